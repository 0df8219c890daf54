//! A server that words responses: one request with the response's name, one answer with the message.

use std::sync::Arc;

use segue_engine::{conversation::Button, project::NlgServer};
use serde_json::{Map, Value as Json, json};

use super::{Moment, view};
use crate::{
    context::CallContext,
    conversation::Reply,
    http::{self, BodyError, HttpClients, read_limited},
    limits,
};

/// The server of one project.
#[derive(Debug)]
pub(super) struct Server {
    def: NlgServer,
    outbound: HttpClients,
}

/// What is asked: the response, its arguments, the state of the conversation, the channel.
pub(super) fn question(moment: &Moment<'_>) -> Json {
    let arguments = moment.message.rephrase.as_ref().map(|wording| wording.arguments.clone()).unwrap_or_default();
    let channel = moment.conversation.latest_message.as_ref().map_or("", |message| &*message.input_channel);
    json!({
        "response": moment.message.utter_action.as_deref(),
        "id": moment.variation().and_then(|variation| variation.id.as_deref()),
        "arguments": arguments,
        "tracker": view::tracker(moment.project, moment.conversation),
        "channel": { "name": channel },
    })
}

impl Server {
    pub(super) fn new(def: NlgServer, outbound: HttpClients) -> Self {
        Self { def, outbound }
    }

    pub(super) async fn ask(&self, question: &Json, cx: &CallContext) -> Result<Reply, String> {
        let cx = cx.with_timeout(self.def.timeout.unwrap_or(limits::NLG_WAIT));
        match cx.wait(self.answer(question)).await {
            Ok(answer) => reply(&answer?),
            Err(stopped) => Err(stopped.to_string()),
        }
    }

    async fn answer(&self, question: &Json) -> Result<Json, String> {
        let mut url = http::parse_endpoint_url(&self.def.url)?;
        if let Some(token) = &self.def.token {
            url.query_pairs_mut().append_pair("token", token);
        }
        let client = self.outbound.client().map_err(|error| error.to_string())?;
        let mut request = client.post(url).header("content-type", "application/json").body(question.to_string());
        if let Some((user, password)) = &self.def.basic_auth {
            request = request.basic_auth(user, Some(password));
        }
        for (name, value) in &self.def.headers {
            request = request.header(name, value);
        }
        // The address may hold a token, so it is never part of an error.
        let response = request.send().await.map_err(|error| error.without_url().to_string())?;
        if !response.status().is_success() {
            return Err(format!("the server answered with status {}", response.status().as_u16()));
        }
        let body = read_limited(response, limits::NLG_BODY).await.map_err(|error| match error {
            BodyError::TooLong { limit } => format!("the answer is longer than {limit} bytes"),
            BodyError::Broken(error) => error.to_string(),
        })?;
        serde_json::from_slice(&body).map_err(|error| format!("the answer is no JSON: {error}"))
    }
}

/// A message out of an answer. What is absent or null is not said; what has another shape is an error.
pub(super) fn reply(answer: &Json) -> Result<Reply, String> {
    let Json::Object(map) = answer else { return Err("the answer is no JSON object".to_owned()) };
    let text = text(map, "text")?;
    let list = |key: &str| match map.get(key) {
        None | Some(Json::Null) => Ok(Vec::new()),
        Some(Json::Array(items)) => Ok(items.clone()),
        Some(_) => Err(format!("`{key}` of the answer is no list")),
    };
    let any = |key: &str| map.get(key).filter(|value| !value.is_null() && **value != json!({})).cloned();
    let buttons = list("buttons")?.into_iter().map(button).collect::<Result<_, _>>()?;
    let reply = Reply {
        text: text.map(Arc::from),
        buttons,
        image: self::text(map, "image")?.map(str::to_owned),
        attachment: any("attachment"),
        custom: any("custom"),
        elements: list("elements")?,
        quick_replies: list("quick_replies")?,
    };
    if reply.is_empty() { Err("the answer says nothing".to_owned()) } else { Ok(reply) }
}

fn text<'a>(map: &'a Map<String, Json>, key: &str) -> Result<Option<&'a str>, String> {
    match map.get(key) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) if text.is_empty() => Ok(None),
        Some(Json::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{key}` of the answer is no text")),
    }
}

fn button(item: Json) -> Result<Button, String> {
    let Json::Object(mut extra) = item else { return Err("a button of the answer is no object".to_owned()) };
    let mut take = |key: &str| extra.shift_remove(key).and_then(|value| value.as_str().map(str::to_owned));
    let (title, payload) = (take("title"), take("payload"));
    let title = title.ok_or("a button of the answer has no `title`")?;
    let payload = payload.unwrap_or_else(|| title.clone());
    Ok(Button { title: title.into(), payload: payload.into(), extra })
}

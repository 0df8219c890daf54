//! The client of an NLG server: one request with the name of the response, one answer with the message. The protocol is that
//! of Rasa: <https://rasa.com/docs/reference/integrations/nlg/>.

use std::sync::Arc;

use segue_base::json::from_slice_lossy;
use segue_engine::{conversation::Button, project::NlgServer};
use serde_json::{Map, Value as Json, json};

use super::{RephraseRequest, context};
use crate::{
    context::CallContext,
    conversation::Reply,
    http::{self, BodyError, HttpClients, read_limited},
    limits,
};

/// The client of a project's NLG server.
#[derive(Debug)]
pub(super) struct NlgClient {
    def: NlgServer,
    http_clients: HttpClients,
}

/// The body of the request: the response, its arguments, the state of the conversation, the channel.
pub(super) fn nlg_request(request: &RephraseRequest<'_>) -> Json {
    let arguments = request.message.rephrase.as_ref().map(|wording| wording.arguments.clone()).unwrap_or_default();
    let channel = request.conversation.latest_message.as_ref().map_or("", |message| &*message.input_channel);
    json!({
        "response": request.message.utter_action.as_deref(),
        "id": request.variation().and_then(|variation| variation.id.as_deref()),
        "arguments": arguments,
        "tracker": context::tracker(request.project, request.conversation),
        "channel": { "name": channel },
    })
}

impl NlgClient {
    pub(super) fn new(def: NlgServer, http_clients: HttpClients) -> Self {
        Self { def, http_clients }
    }

    pub(super) async fn generate(&self, body: &Json, cx: &CallContext) -> Result<Reply, String> {
        let cx = cx.with_timeout(self.def.timeout.unwrap_or(limits::NLG_WAIT));
        match cx.wait(self.post(body)).await {
            Ok(answer) => reply(&answer?),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn post(&self, body: &Json) -> Result<Json, String> {
        let mut url = http::parse_endpoint_url(&self.def.url)?;
        if let Some(token) = &self.def.token {
            url.query_pairs_mut().append_pair("token", token);
        }
        let client = self.http_clients.client().map_err(|error| error.to_string())?;
        let mut request = client.post(url).header("content-type", "application/json").body(body.to_string());
        if let Some((user, password)) = &self.def.basic_auth {
            request = request.basic_auth(user, Some(password));
        }
        for (name, value) in &self.def.headers {
            request = request.header(name, value);
        }
        // The URL may contain a token and must not be part of an error.
        let response = request.send().await.map_err(|error| error.without_url().to_string())?;
        if !response.status().is_success() {
            return Err(format!("the server answered with status {}", response.status().as_u16()));
        }
        let bytes = read_limited(response, limits::NLG_BODY).await.map_err(|error| match error {
            BodyError::TooLong { limit } => format!("the answer is longer than {limit} bytes"),
            BodyError::Broken(error) => error.to_string(),
        })?;
        from_slice_lossy(&bytes).map(|(answer, _)| answer).map_err(|error| format!("the answer is not JSON: {error}"))
    }
}

/// The message of an answer.
///
/// # Errors
/// A field has the wrong type, or the message is empty. Absent and null fields are allowed.
pub(super) fn reply(answer: &Json) -> Result<Reply, String> {
    let Json::Object(map) = answer else { return Err("the answer is not a JSON object".to_owned()) };
    let text = text(map, "text")?;
    let list = |key: &str| match map.get(key) {
        None | Some(Json::Null) => Ok(Vec::new()),
        Some(Json::Array(items)) => Ok(items.clone()),
        Some(_) => Err(format!("`{key}` of the answer is not a list")),
    };
    let non_empty = |key: &str| map.get(key).filter(|value| !value.is_null() && **value != json!({})).cloned();
    let buttons = list("buttons")?.into_iter().map(button).collect::<Result<_, _>>()?;
    let reply = Reply {
        text: text.map(Arc::from),
        buttons,
        image: self::text(map, "image")?.map(str::to_owned),
        attachment: non_empty("attachment"),
        custom: non_empty("custom"),
        elements: list("elements")?,
        quick_replies: list("quick_replies")?,
    };
    if reply.is_empty() { Err("the answer has no content".to_owned()) } else { Ok(reply) }
}

fn text<'a>(map: &'a Map<String, Json>, key: &str) -> Result<Option<&'a str>, String> {
    match map.get(key) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) if text.is_empty() => Ok(None),
        Some(Json::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{key}` of the answer is not a string")),
    }
}

fn button(item: Json) -> Result<Button, String> {
    let Json::Object(mut extra) = item else { return Err("a button of the answer is not an object".to_owned()) };
    let mut take = |key: &str| extra.shift_remove(key).and_then(|value| value.as_str().map(str::to_owned));
    let (title, payload) = (take("title"), take("payload"));
    let title = title.ok_or("a button of the answer has no `title`")?;
    let payload = payload.unwrap_or_else(|| title.clone());
    Ok(Button { title: title.into(), payload: payload.into(), extra })
}

//! Questions put to the person behind the host, as a form, and what they write into it.

use std::{collections::BTreeMap, sync::Arc};

use rmcp::{
    RoleServer,
    model::{ElicitRequest, ElicitRequestParams, InputRequest, ProtocolVersion},
    service::RequestContext,
};
use segue_engine::conversation::{BotKind, Event, EventKind};
use serde_json::{Map, Value as Json, json};

use super::question::{Question, shortened, titled};
use crate::{clock::Clock, context::CallContext, limits, store::StoredReply};

/// A form: the open question, which must be answered, and those after it, which may be left for later.
pub(super) struct Form(ElicitRequestParams);

/// What a person made of a form.
pub(super) enum Filled {
    /// They wrote this into the fields.
    Values(Map<String, Json>),
    /// They did not wish to.
    Declined,
}

/// Whether the host of a call can show a form. Naming no kind of question means forms.
pub(super) fn can_be_shown(context: &RequestContext<RoleServer>) -> bool {
    let asks = context.client_capabilities().and_then(|can| can.elicitation);
    asks.is_some_and(|asks| asks.form.is_some() || asks.url.is_none())
}

impl Form {
    /// The form of a question, after these replies. `written` is what the person wrote before: they need not write it again.
    pub(super) fn of(
        question: &Question,
        replies: &[StoredReply],
        written: &Map<String, Json>,
        version: Option<ProtocolVersion>,
    ) -> Option<Self> {
        if !question.is_plain {
            return None;
        }
        let knows_titles = version.is_some_and(|version| version >= ProtocolVersion::V_2025_11_25);
        let buttons = replies.iter().flat_map(|reply| &reply.reply.buttons);
        let titles: Vec<(String, String)> =
            buttons.filter_map(|one| titled(&question.slot, &one.title, &one.payload)).collect();
        let mut fields = Map::new();
        let first = with_titles(question.schema.clone(), &titles, knows_titles);
        fields.insert(question.slot.clone(), first);
        for next in &question.following {
            let mut field = with_titles(next.schema.clone(), &next.titles, knows_titles);
            if let (Some(value), Some(field)) = (written.get(&next.slot), field.as_object_mut()) {
                field.insert("default".to_owned(), value.clone());
            }
            fields.insert(next.slot.clone(), field);
        }
        let schema = json!({"type": "object", "properties": fields, "required": [question.slot]});
        let requested_schema = serde_json::from_value(schema).ok()?;
        let message = match words(replies) {
            words if words.is_empty() => question.slot.clone(),
            words => words,
        };
        Some(Self(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema }))
    }

    /// As a part of an answer, which the host asks before it calls again.
    pub(super) fn into_request(self) -> InputRequest {
        InputRequest::Elicitation(ElicitRequest::new(self.0))
    }

    /// Shows it, and waits for [`limits::MCP_SERVED_ANSWER`]. `None` when the host cannot, or the person does not answer.
    pub(super) async fn put(self, context: &RequestContext<RoleServer>, clock: &Arc<dyn Clock>) -> Option<Filled> {
        let cx = CallContext {
            cancel: context.ct.clone().into(),
            ..CallContext::new(clock.clone(), limits::MCP_SERVED_ANSWER)
        };
        let asked = cx.wait(context.peer.create_elicitation(self.0)).await.ok()?;
        let answer =
            asked.inspect_err(|error| tracing::warn!(channel = super::NAME, "a host did not ask: {error}")).ok()?;
        Some(filled(&serde_json::to_value(answer).ok()?))
    }
}

/// What the answer of a host says.
pub(super) fn filled(answer: &Json) -> Filled {
    match (answer.get("action").and_then(Json::as_str), answer.get("content").and_then(Json::as_object)) {
        (Some("accept"), Some(values)) => Filled::Values(values.clone()),
        _ => Filled::Declined,
    }
}

/// The words of the buttons in place of bare values: in the way that newer hosts know, or older ones.
fn with_titles(mut schema: Json, titles: &[(String, String)], knows_titles: bool) -> Json {
    let Some(fields) = schema.as_object_mut() else { return schema };
    let values: Vec<String> = fields
        .get("enum")
        .and_then(Json::as_array)
        .map(|values| values.iter().filter_map(Json::as_str).map(str::to_owned).collect())
        .unwrap_or_default();
    let titles: BTreeMap<&str, &str> = titles.iter().map(|(value, title)| (value.as_str(), title.as_str())).collect();
    let differs = |value: &String| titles.get(value.as_str()).is_some_and(|title| title != value);
    if !values.iter().any(differs) {
        return schema;
    }
    let title = |value: &String| titles.get(value.as_str()).map_or_else(|| value.clone(), |title| shortened(title));
    if knows_titles {
        fields.shift_remove("enum");
        let choices: Vec<Json> = values.iter().map(|value| json!({"const": value, "title": title(value)})).collect();
        fields.insert("oneOf".to_owned(), choices.into());
    } else {
        fields.insert("enumNames".to_owned(), values.iter().map(title).collect());
    }
    schema
}

/// What the person is shown: what was said, without what only filled the time.
fn words(replies: &[StoredReply]) -> String {
    let said = replies.iter().filter(|reply| reply.kind != BotKind::Filler);
    let texts: Vec<&str> = said.filter_map(|reply| reply.reply.text.as_deref()).collect();
    texts.join("\n\n")
}

/// The events of the last turn of a talk.
pub(super) fn of_last_turn(events: &[Event]) -> impl Iterator<Item = &Event> {
    let is_turn = |event: &Event| matches!(event.kind, EventKind::User(_) | EventKind::External { .. });
    events.iter().skip(events.iter().rposition(is_turn).unwrap_or(0))
}

/// What was said last in a talk: the replies of its last turn.
pub(super) fn last_said(events: &[Event]) -> Vec<StoredReply> {
    let said = of_last_turn(events).filter_map(|event| match &event.kind {
        EventKind::Bot(bot) => Some(bot),
        _ => None,
    });
    said.map(|bot| StoredReply {
        id: bot.reply_id.clone().unwrap_or_default(),
        reply: bot.reply.clone(),
        kind: bot.kind,
    })
    .collect()
}

/// Words that empty a slot when they stand alone in a payload: a person who writes them may mean them.
const EMPTYING: [&str; 3] = ["none", "null", "undefined"];

/// A value as a message of the person: with the name of the slot, so that no model is asked, where it can be written so.
pub(super) fn as_message(slot: &str, value: &Json) -> Option<String> {
    let text = match value {
        Json::String(text) => text.trim().to_owned(),
        Json::Bool(_) | Json::Number(_) => value.to_string(),
        _ => return None,
    };
    let is_simple = !text.is_empty()
        && !text.contains([',', '(', ')', '[', ']', '{', '}', '=', '\n'])
        && !EMPTYING.iter().any(|word| text.eq_ignore_ascii_case(word));
    Some(if is_simple { format!("/SetSlots({slot}={text})") } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_its_slot_unless_it_could_be_misread() {
        let message = |value: Json| as_message("to", &value);
        assert_eq!(message(json!("Oslo")).as_deref(), Some("/SetSlots(to=Oslo)"));
        assert_eq!(message(json!(2)).as_deref(), Some("/SetSlots(to=2)"));
        assert_eq!(message(json!("Oslo, x=1")).as_deref(), Some("Oslo, x=1"));
        assert_eq!(message(json!("None")).as_deref(), Some("None"));
        assert_eq!(message(json!([1])), None);
    }

    #[test]
    fn values_have_the_titles_of_their_buttons_as_each_host_knows_them() {
        let schema = json!({"type": "string", "enum": ["a", "b"]});
        let titles = [("a".to_owned(), "First".to_owned())];
        let newer =
            json!({"type": "string", "oneOf": [{"const": "a", "title": "First"}, {"const": "b", "title": "b"}]});
        assert_eq!(with_titles(schema.clone(), &titles, true), newer);
        let older = json!({"type": "string", "enum": ["a", "b"], "enumNames": ["First", "b"]});
        assert_eq!(with_titles(schema.clone(), &titles, false), older);
        assert_eq!(with_titles(schema.clone(), &[("a".to_owned(), "a".to_owned())], true), schema);
    }
}

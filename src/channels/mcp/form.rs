//! Elicitation in form mode: the flow's question as a form, and the user's response.

use std::{collections::BTreeMap, sync::Arc};

use rmcp::{
    RoleServer,
    model::{ElicitRequest, ElicitRequestParams, InputRequest, ProtocolVersion},
    service::RequestContext,
};
use segue_engine::conversation::{BotKind, Event, EventKind};
use serde_json::{Map, Value as Json, json};

use super::question::{Question, button_choice, shortened};
use crate::{clock::Clock, context::CallContext, limits, store::StoredReply};

/// A form with one required field for the open question, and optional fields for the questions after it.
pub(super) struct ElicitationForm(ElicitRequestParams);

/// The user's response to a form.
pub(super) enum FormResponse {
    /// The values of the fields.
    Accepted(Map<String, Json>),
    /// The user declined or cancelled.
    Declined,
}

/// Whether the host of a call supports elicitation in form mode. A capability that names no mode means form mode.
pub(super) fn is_supported(context: &RequestContext<RoleServer>) -> bool {
    let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
    elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none())
}

impl ElicitationForm {
    /// The form of a question, with the texts of the replies that ask it. The fields of follow-up questions that the user answered
    /// before have these `values` as defaults. `None` when a form cannot show the question.
    pub(super) fn new(
        question: &Question,
        replies: &[StoredReply],
        values: &Map<String, Json>,
        version: Option<ProtocolVersion>,
    ) -> Option<Self> {
        if !question.fits_form {
            return None;
        }
        let supports_one_of = version.is_some_and(|version| version >= ProtocolVersion::V_2025_11_25);
        let buttons = replies.iter().flat_map(|reply| &reply.reply.buttons);
        let titles: Vec<(String, String)> =
            buttons.filter_map(|button| button_choice(&question.slot, &button.title, &button.payload)).collect();
        let mut fields = Map::new();
        let first = with_titles(question.schema.clone(), &titles, supports_one_of);
        fields.insert(question.slot.clone(), first);
        for next in &question.follow_ups {
            let mut field = with_titles(next.schema.clone(), &next.titles, supports_one_of);
            if let (Some(value), Some(field)) = (values.get(&next.slot), field.as_object_mut()) {
                field.insert("default".to_owned(), value.clone());
            }
            fields.insert(next.slot.clone(), field);
        }
        let schema = json!({"type": "object", "properties": fields, "required": [question.slot]});
        let requested_schema = serde_json::from_value(schema).ok()?;
        let message = match message_text(replies) {
            text if text.is_empty() => question.slot.clone(),
            text => text,
        };
        Some(Self(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema }))
    }

    /// The form as an input request of a result; the host shows it before it calls again.
    pub(super) fn into_request(self) -> InputRequest {
        InputRequest::Elicitation(ElicitRequest::new(self.0))
    }

    /// Sends `elicitation/create` and waits for the response, at most [`limits::MCP_SERVED_ANSWER`]. `None` when the host fails, the
    /// user does not answer in time, or the call is cancelled.
    pub(super) async fn ask(
        self,
        context: &RequestContext<RoleServer>,
        clock: &Arc<dyn Clock>,
    ) -> Option<FormResponse> {
        let cx = CallContext {
            cancel: context.ct.clone().into(),
            ..CallContext::new(clock.clone(), limits::MCP_SERVED_ANSWER)
        };
        let response = cx.wait(context.peer.create_elicitation(self.0)).await.ok()?;
        let response = response
            .inspect_err(|error| tracing::warn!(channel = super::NAME, "the host did not show a form: {error}"))
            .ok()?;
        Some(parse_response(&serde_json::to_value(response).ok()?))
    }
}

/// Reads an `ElicitResult`. Anything but an accepted form with content counts as declined.
pub(super) fn parse_response(response: &Json) -> FormResponse {
    match (response.get("action").and_then(Json::as_str), response.get("content").and_then(Json::as_object)) {
        (Some("accept"), Some(values)) => FormResponse::Accepted(values.clone()),
        _ => FormResponse::Declined,
    }
}

/// The schema with a title for each value of its `enum`: as `oneOf` since MCP 2025-11-25, as `enumNames` before. Unchanged when no
/// title differs from its value.
fn with_titles(mut schema: Json, titles: &[(String, String)], supports_one_of: bool) -> Json {
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
    if supports_one_of {
        fields.shift_remove("enum");
        let choices: Vec<Json> = values.iter().map(|value| json!({"const": value, "title": title(value)})).collect();
        fields.insert("oneOf".to_owned(), choices.into());
    } else {
        fields.insert("enumNames".to_owned(), values.iter().map(title).collect());
    }
    schema
}

/// The text above a form: the texts of the replies, without fillers.
fn message_text(replies: &[StoredReply]) -> String {
    let shown = replies.iter().filter(|reply| reply.kind != BotKind::Filler);
    let texts: Vec<&str> = shown.filter_map(|reply| reply.reply.text.as_deref()).collect();
    texts.join("\n\n")
}

/// The events of the last turn.
pub(super) fn events_of_last_turn(events: &[Event]) -> impl Iterator<Item = &Event> {
    let starts_turn = |event: &Event| matches!(event.kind, EventKind::User(_) | EventKind::External { .. });
    events.iter().skip(events.iter().rposition(starts_turn).unwrap_or(0))
}

/// The replies of the last turn.
pub(super) fn last_replies(events: &[Event]) -> Vec<StoredReply> {
    let messages = events_of_last_turn(events).filter_map(|event| match &event.kind {
        EventKind::Bot(bot) => Some(bot),
        _ => None,
    });
    messages
        .map(|bot| StoredReply::new(bot.reply_id.clone().unwrap_or_default(), bot.reply.clone(), bot.kind))
        .collect()
}

/// Values that `/SetSlots` reads as an empty slot: a user who writes one of them may mean the word.
const NULL_WORDS: [&str; 3] = ["none", "null", "undefined"];

/// A value as a message of the user: as `/SetSlots`, which needs no model, where the payload can express it; else the bare text.
/// `None` for lists, objects and null.
pub(super) fn message_of(slot: &str, value: &Json) -> Option<String> {
    let text = match value {
        Json::String(text) => text.trim().to_owned(),
        Json::Bool(_) | Json::Number(_) => value.to_string(),
        _ => return None,
    };
    let is_simple = !text.is_empty()
        && !text.contains([',', '(', ')', '[', ']', '{', '}', '=', '\n'])
        && !NULL_WORDS.iter().any(|word| text.eq_ignore_ascii_case(word));
    Some(if is_simple { format!("/SetSlots({slot}={text})") } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_set_slots_unless_the_payload_could_be_misread() {
        let message = |value: Json| message_of("to", &value);
        assert_eq!(message(json!("Oslo")).as_deref(), Some("/SetSlots(to=Oslo)"));
        assert_eq!(message(json!(2)).as_deref(), Some("/SetSlots(to=2)"));
        assert_eq!(message(json!("Oslo, x=1")).as_deref(), Some("Oslo, x=1"));
        assert_eq!(message(json!("None")).as_deref(), Some("None"));
        assert_eq!(message(json!([1])), None);
    }

    #[test]
    fn enum_values_have_button_titles_in_the_form_of_the_protocol_version() {
        let schema = json!({"type": "string", "enum": ["a", "b"]});
        let titles = [("a".to_owned(), "First".to_owned())];
        let one_of =
            json!({"type": "string", "oneOf": [{"const": "a", "title": "First"}, {"const": "b", "title": "b"}]});
        assert_eq!(with_titles(schema.clone(), &titles, true), one_of);
        let enum_names = json!({"type": "string", "enum": ["a", "b"], "enumNames": ["First", "b"]});
        assert_eq!(with_titles(schema.clone(), &titles, false), enum_names);
        assert_eq!(with_titles(schema.clone(), &[("a".to_owned(), "a".to_owned())], true), schema);
    }
}

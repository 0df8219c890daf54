//! The question that is open, as data; and put to the person behind the host, where it can do that.

use std::sync::Arc;

use rmcp::{
    RoleServer,
    model::{ElicitRequestParams, ElicitationAction, ElicitationSchema},
    service::{ElicitationMode, RequestContext},
};
use segue_engine::{
    conversation::{BotKind, Conversation, FrameKind, PatternFrame},
    project::{Project, SlotType},
};
use serde_json::{Value as Json, json};

use super::{offers::slot_schema, session::is_newer};
use crate::{clock::Clock, cx::Cx, limits, runtime::Report};

/// A question for a slot.
pub(super) struct Question {
    /// The slot.
    pub(super) slot: String,
    /// What its value may be.
    pub(super) schema: Json,
    /// Whether a form can hold it.
    is_plain: bool,
}

/// The question that is open in a talk.
pub(super) fn open(project: &Project, talk: &Conversation) -> Option<Question> {
    let FrameKind::Pattern { context } = &talk.stack.top()?.kind else { return None };
    let name = match context {
        PatternFrame::CollectInformation { collect, .. } => collect,
        PatternFrame::ValidateSlot { validate, .. } => validate,
        _ => return None,
    };
    let slot = project.slot(name.as_str())?;
    let is_plain = !matches!(slot.kind, SlotType::List | SlotType::Any);
    let mut schema = slot_schema(slot, None);
    if let Some(schema) = schema.as_object_mut().filter(|_| !slot.initial.is_null()) {
        schema.insert("default".into(), slot.initial.clone());
    }
    Some(Question { slot: name.to_string(), schema, is_plain })
}

/// What the person is shown: what was said in this turn, without what only filled the time.
pub(super) fn words(report: &Report) -> String {
    let said = report.replies.iter().filter(|reply| reply.kind != BotKind::Filler);
    let texts: Vec<&str> = said.filter_map(|reply| reply.reply.text.as_deref()).collect();
    texts.join("\n\n")
}

impl Question {
    /// Asks, and waits for [`limits::MCP_SERVED_ANSWER`]. `None` when the host cannot ask, or the person does not answer.
    pub(super) async fn put(
        &self,
        words: &str,
        context: &RequestContext<RoleServer>,
        clock: &Arc<dyn Clock>,
    ) -> Option<String> {
        let can = self.is_plain
            && !is_newer(context)
            && context.peer.supported_elicitation_modes().contains(&ElicitationMode::Form);
        if !can {
            return None;
        }
        let schema = json!({"type": "object", "properties": {&self.slot: self.schema}, "required": [self.slot]});
        let requested_schema: ElicitationSchema = serde_json::from_value(schema).ok()?;
        let request =
            ElicitRequestParams::FormElicitationParams { meta: None, message: words.to_owned(), requested_schema };
        let cx = Cx { cancel: context.ct.clone().into(), ..Cx::new(clock.clone(), limits::MCP_SERVED_ANSWER) };
        let asked = cx.wait(context.peer.create_elicitation(request)).await.ok()?;
        let answer =
            asked.inspect_err(|error| tracing::warn!(channel = super::NAME, "a host did not ask: {error}")).ok()?;
        match answer.action {
            ElicitationAction::Accept => self.as_message(answer.content?.get(&self.slot)?),
            _ => None,
        }
    }

    /// The answer as a message of the person: with the name of the slot, so that no model is asked, where it can be written so.
    fn as_message(&self, value: &Json) -> Option<String> {
        let text = match value {
            Json::String(text) => text.trim().to_owned(),
            Json::Bool(_) | Json::Number(_) => value.to_string(),
            _ => return None,
        };
        let is_simple = !text.is_empty() && !text.contains([',', '(', ')', '[', ']', '{', '}', '=', '\n']);
        Some(if is_simple { format!("/SetSlots({}={text})", self.slot) } else { text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_its_slot_unless_it_could_be_misread() {
        let question = Question { slot: "to".into(), schema: json!({}), is_plain: true };
        let message = |value: Json| question.as_message(&value);
        assert_eq!(message(json!("Oslo")).as_deref(), Some("/SetSlots(to=Oslo)"));
        assert_eq!(message(json!(2)).as_deref(), Some("/SetSlots(to=2)"));
        assert_eq!(message(json!("Oslo, x=1")).as_deref(), Some("Oslo, x=1"));
        assert_eq!(message(json!([1])), None);
    }
}

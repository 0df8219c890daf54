//! Responses: choosing a variation and rendering it.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::{
    Reason,
    advance_context::AdvanceContext,
    eval_scope::{EvalScope, ResponseValues},
};
use crate::{
    condition::Scope as _,
    conversation::{BotKind, BotMessage, Button, EventKind, RephraseInstruction, Reply},
    ids::{ActionName, SlotName},
    project::{LANGUAGE, Nlg, ResponseDef, ResponseText, Variation},
    template::{interpolate_json, interpolate_text},
};

/// The response for internal errors, and for a response of which no variation applies.
pub(super) const INTERNAL_ERROR: &str = "utter_internal_error_rasa";
/// The response for an unknown outcome, in a project without the pattern for it.
pub(super) const OUTCOME_UNKNOWN: &str = "utter_outcome_unknown";
/// The response for flows that the user cancels after they have changed something.
pub(super) const DONE_BEFORE_CANCELLATION: &str = "utter_done_before_cancellation";
/// The response for work that failed after a part of it was done, in a project without the pattern for it.
pub(super) const PARTLY_DONE: &str = "utter_partly_done";

impl AdvanceContext<'_> {
    /// Sends a response: records the action, then the message. An unknown name is noted and no message is sent.
    pub(super) fn say(&mut self, name: &str, arguments: &Map<String, Json>) {
        self.emit_in_top_frame(EventKind::Action { name: ActionName::from(name) });
        self.utter(name, arguments);
    }

    /// Sends a response without recording an action, as rejections do.
    pub(super) fn utter(&mut self, name: &str, arguments: &Map<String, Json>) {
        match self.compose(name, arguments) {
            Some(message) if !message.reply.is_empty() => self.emit_in_top_frame(EventKind::bot(message)),
            Some(_) => self.add_note(format!("`{name}` renders no content")),
            None => self.add_note(format!("`{name}` is not a response of this project, so no message is sent")),
        }
    }

    /// Renders a response; `None` when the project has none of that name.
    pub(super) fn compose(&mut self, name: &str, arguments: &Map<String, Json>) -> Option<BotMessage> {
        self.compose_with(arguments, |composer| composer.response(name))
    }

    /// Like [`Self::compose`], without falling back to the error response; `None` also when no variation applies.
    pub(super) fn compose_exact(&mut self, name: &str, arguments: &Map<String, Json>) -> Option<BotMessage> {
        self.compose_with(arguments, |composer| composer.exact_response(name))
    }

    fn compose_with(
        &mut self,
        arguments: &Map<String, Json>,
        compose: impl FnOnce(&mut ResponseRenderer<'_>) -> Option<BotMessage>,
    ) -> Option<BotMessage> {
        let seed = self.choice_seed();
        let view = self.scope();
        let mut composer = ResponseRenderer::new(&view, arguments, seed);
        let message = compose(&mut composer);
        let (notes, failure) = (composer.notes, composer.failure);
        notes.into_iter().for_each(|note| self.add_note(note));
        if let Some(cause) = failure {
            let flow = self.stack.last().map(|top| top.flow_id.to_string()).unwrap_or_default();
            self.add_reason(Reason::Failed { flow, cause });
        }
        message
    }
}

/// Renders one response.
pub(super) struct ResponseRenderer<'a> {
    view: &'a EvalScope<'a>,
    /// Values that take precedence over slots.
    arguments: &'a Map<String, Json>,
    /// Seed for the choice of a variation.
    choice_seed: u64,
    /// Problems while rendering; recorded as reasons.
    notes: Vec<String>,
    /// Why a text could not be rendered. Its source is never sent.
    failure: Option<String>,
}

impl<'a> ResponseRenderer<'a> {
    pub(super) fn new(view: &'a EvalScope<'a>, arguments: &'a Map<String, Json>, choice_seed: u64) -> Self {
        Self { view, arguments, choice_seed, notes: Vec::new(), failure: None }
    }

    /// Renders a response, or the one for internal errors if no variation applies.
    pub(super) fn response(&mut self, name: &str) -> Option<BotMessage> {
        let response = self.view.project.response(name)?;
        let chosen = self.choose(response).or_else(|| {
            self.notes.push(format!("no variation of `{name}` applies now"));
            self.view.project.response(INTERNAL_ERROR).and_then(|error| error.variations.first())
        })?;
        let message = self.message(response, chosen);
        if self.failure.is_none() {
            return Some(message);
        }
        let error = self.view.project.response(INTERNAL_ERROR)?;
        Some(self.message(error, error.variations.first()?))
    }

    fn exact_response(&mut self, name: &str) -> Option<BotMessage> {
        let response = self.view.project.response(name)?;
        let chosen = self.choose(response)?;
        let message = self.message(response, chosen);
        let Some(failure) = self.failure.take() else { return Some(message) };
        self.notes.push(failure);
        None
    }

    fn message(&mut self, response: &ResponseDef, chosen: &Variation) -> BotMessage {
        let reply = Reply {
            // An empty text means no message.
            text: self.translated(chosen).filter(|text| !text.trim().is_empty()).map(Into::into),
            buttons: chosen.buttons.iter().map(|button| self.button(button)).collect(),
            image: chosen.image.as_ref().map(|image| self.text(image)),
            attachment: chosen.attachment.as_ref().map(|value| self.json(value)),
            custom: chosen.custom.as_ref().map(|value| self.json(value)),
            elements: chosen.elements.iter().map(|value| self.json(value)).collect(),
            quick_replies: chosen.quick_replies.iter().map(|value| self.json(value)).collect(),
        };
        let rephrase = self.rephrase_instruction(response, chosen).filter(|_| reply.text.is_some());
        let utter_action = Some(Arc::from(response.name.as_str()));
        BotMessage { reply, utter_action, kind: BotKind::Response, rephrase, ..BotMessage::default() }
    }

    /// The input for the rephraser or the NLG server, if the project uses one for this variation.
    fn rephrase_instruction(&self, response: &ResponseDef, chosen: &Variation) -> Option<Box<RephraseInstruction>> {
        let wanted = match self.view.project.endpoints.nlg.as_ref()? {
            Nlg::Rephraser(rephraser) => rephraser.rephrases(chosen),
            Nlg::Server(_) => true,
        };
        // The error response that replaces another one is not rephrased.
        let variation = response.variations.iter().position(|variation| std::ptr::eq(variation, chosen))?;
        wanted.then(|| Box::new(RephraseInstruction { variation, arguments: self.arguments.clone() }))
    }

    /// Chooses a variation by priority: with condition and channel, with channel, with condition, without both; at
    /// random among those of the same priority.
    fn choose<'r>(&mut self, response: &'r ResponseDef) -> Option<&'r Variation> {
        let latest = self.view.conversation.latest_message.as_ref();
        let channel = latest.map(|message| message.input_channel.clone()).unwrap_or_default();
        let mut classes: [Vec<&Variation>; 4] = Default::default();
        for variation in &response.variations {
            let conditional = variation.condition.is_some() || !variation.slot_conditions.is_empty();
            let class = match (&variation.channel, conditional) {
                (Some(of), _) if *of != channel => continue,
                (Some(_), true) => 0,
                (Some(_), false) => 1,
                (None, true) => 2,
                (None, false) => 3,
            };
            if (!conditional || self.applies(variation))
                && let Some(members) = classes.get_mut(class)
            {
                members.push(variation);
            }
        }
        let winners = classes.into_iter().find(|members| !members.is_empty())?;
        let at = usize::try_from(mix(self.choice_seed) % winners.len() as u64).unwrap_or(0);
        winners.get(at).copied()
    }

    fn applies(&mut self, variation: &Variation) -> bool {
        let is = |(slot, wanted): &(SlotName, Json)| self.view.slot(slot.as_str()) == Some(wanted);
        if !variation.slot_conditions.iter().all(is) {
            return false;
        }
        let Some(condition) = &variation.condition else { return true };
        let outcome = self.view.eval(condition);
        if let Some(error) = outcome.error {
            self.notes.push(format!("the condition `{condition}` of a response counts as false: {error}"));
        }
        outcome.holds
    }

    /// The text of a variation, in the language of the conversation if there is a translation.
    fn translated(&mut self, variation: &Variation) -> Option<String> {
        let project = self.view.project;
        let language = self.view.conversation.set_value(LANGUAGE).and_then(Json::as_str);
        let translated = language.filter(|wanted| **wanted != *project.config.language).and_then(|wanted| {
            variation.translations.iter().find(|(language, _)| **language == *wanted).map(|(_, text)| text)
        });
        translated.or(variation.text.as_ref()).map(|text| self.text(text))
    }

    /// Renders one text.
    fn text(&mut self, text: &ResponseText) -> String {
        match text {
            ResponseText::Braces(text) => {
                let filled = interpolate_text(text, &ResponseValues { arguments: self.arguments, view: self.view });
                self.note_unknown(&filled.unknown);
                filled.content.into_owned()
            }
            ResponseText::Jinja(template) => {
                let variables = self.view.variables(template, self.arguments);
                template.render(variables).unwrap_or_else(|error| {
                    self.failure = Some(format!("a text cannot be rendered, so the response is not sent: {error}"));
                    String::new()
                })
            }
        }
    }

    fn button(&mut self, (title, payload, extra): &(ResponseText, ResponseText, Map<String, Json>)) -> Button {
        let (title, payload) = (self.text(title).into(), self.text(payload).into());
        Button { title, payload, extra: extra.clone() }
    }

    fn json(&mut self, value: &Json) -> Json {
        let filled = interpolate_json(value, &ResponseValues { arguments: self.arguments, view: self.view });
        self.note_unknown(&filled.unknown);
        filled.content
    }

    fn note_unknown(&mut self, names: &[String]) {
        let note = |name| format!("no slot or argument is called `{name}`; the placeholder is not filled");
        self.notes.extend(names.iter().map(note));
    }
}

/// Spreads the bits of a number, so that neighbouring seeds choose differently (the finaliser of SplitMix64).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The response for a value that does not fit the type.
pub(super) fn type_rejection_response(kind: &crate::project::SlotType) -> Option<&'static str> {
    use crate::project::SlotType;
    match kind {
        SlotType::Bool => Some("utter_boolean_slot_rejection"),
        SlotType::Float { .. } => Some("utter_float_slot_rejection"),
        SlotType::Categorical(_) => Some("utter_categorical_slot_rejection"),
        _ => None,
    }
}

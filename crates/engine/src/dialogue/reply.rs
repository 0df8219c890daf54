//! Responses: which variation is said, and what it reads as.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::{
    context::{Names, View},
    turn::Turn,
};
use crate::{
    condition::Scope as _,
    conversation::{BotKind, BotMessage, Button, EventKind, RephraseInstruction, Reply},
    ids::{ActionName, SlotName},
    project::{LANGUAGE, Nlg, ResponseDef, ResponseText, Variation},
    template::{fill, fill_json},
};

/// What is said when a response has no variation for the moment, or something failed.
pub(super) const INTERNAL_ERROR: &str = "utter_internal_error_rasa";
/// Said where the pattern for what nobody knows cannot run.
pub(super) const OUTCOME_UNKNOWN: &str = "utter_outcome_unknown";

impl Turn<'_> {
    /// Says a response: the action, then the message. A name that is no response is noted and nothing is said.
    pub(super) fn say(&mut self, name: &str, arguments: &Map<String, Json>) {
        self.emit_here(EventKind::Action { name: ActionName::from(name) });
        self.utter(name, arguments);
    }

    /// Says a response without an action of its own, as rejections do.
    pub(super) fn utter(&mut self, name: &str, arguments: &Map<String, Json>) {
        match self.compose(name, arguments) {
            Some(message) if !message.reply.is_empty() => self.emit_here(EventKind::bot(message)),
            Some(_) => self.note(format!("`{name}` says nothing")),
            None => self.note(format!("`{name}` is no response of this project, so nothing is said")),
        }
    }

    /// Makes the message of a response; `None` when the project has none of that name.
    pub(super) fn compose(&mut self, name: &str, arguments: &Map<String, Json>) -> Option<BotMessage> {
        self.compose_with(arguments, |composer| composer.response(name))
    }

    /// The same for a response that nothing may stand in for; `None` also when no variation of it may be used now.
    pub(super) fn compose_itself(&mut self, name: &str, arguments: &Map<String, Json>) -> Option<BotMessage> {
        self.compose_with(arguments, |composer| composer.response_itself(name))
    }

    fn compose_with(
        &mut self,
        arguments: &Map<String, Json>,
        compose: impl FnOnce(&mut Composer<'_>) -> Option<BotMessage>,
    ) -> Option<BotMessage> {
        let lot = self.lot();
        let view = self.view();
        let mut composer = Composer::new(&view, arguments, lot);
        let message = compose(&mut composer);
        let notes = composer.notes;
        notes.into_iter().for_each(|note| self.note(note));
        message
    }
}

/// Makes the message of one response.
pub(super) struct Composer<'a> {
    view: &'a View<'a>,
    /// Values that stand over slots.
    arguments: &'a Map<String, Json>,
    /// Chooses among equals.
    lot: u64,
    /// What did not go as written, for the record of why.
    notes: Vec<String>,
}

impl<'a> Composer<'a> {
    pub(super) fn new(view: &'a View<'a>, arguments: &'a Map<String, Json>, lot: u64) -> Self {
        Self { view, arguments, lot, notes: Vec::new() }
    }

    /// The message of a response, or of the one for internal errors where no variation may be used now.
    pub(super) fn response(&mut self, name: &str) -> Option<BotMessage> {
        let response = self.view.project.response(name)?;
        let chosen = self.choose(response).or_else(|| {
            self.notes.push(format!("no variation of `{name}` may be used now"));
            self.view.project.response(INTERNAL_ERROR).and_then(|error| error.variations.first())
        })?;
        Some(self.message(response, chosen))
    }

    fn response_itself(&mut self, name: &str) -> Option<BotMessage> {
        let response = self.view.project.response(name)?;
        let chosen = self.choose(response)?;
        Some(self.message(response, chosen))
    }

    fn message(&mut self, response: &ResponseDef, chosen: &Variation) -> BotMessage {
        let reply = Reply {
            // An author who writes an empty text wants nothing said.
            text: self.translated(chosen).filter(|text| !text.trim().is_empty()).map(Into::into),
            buttons: chosen.buttons.iter().map(|button| self.button(button)).collect(),
            image: chosen.image.as_ref().map(|image| self.text(image)),
            attachment: chosen.attachment.as_ref().map(|value| self.json(value)),
            custom: chosen.custom.as_ref().map(|value| self.json(value)),
            elements: chosen.elements.iter().map(|value| self.json(value)).collect(),
            quick_replies: chosen.quick_replies.iter().map(|value| self.json(value)).collect(),
        };
        let wording = self.wording(response, chosen).filter(|_| reply.text.is_some());
        let utter_action = Some(Arc::from(response.name.as_str()));
        BotMessage { reply, utter_action, kind: BotKind::Response, wording, ..BotMessage::default() }
    }

    /// What must be known to word the response anew, where the project wants that.
    fn wording(&self, response: &ResponseDef, chosen: &Variation) -> Option<Box<RephraseInstruction>> {
        let wanted = match self.view.project.endpoints.nlg.as_ref()? {
            Nlg::Rephraser(rephraser) => rephraser.rephrases(chosen),
            Nlg::Server(_) => true,
        };
        // A response that stands in for one that has nothing to say is said as it is.
        let variation = response.variations.iter().position(|variation| std::ptr::eq(variation, chosen))?;
        wanted.then(|| Box::new(RephraseInstruction { variation, arguments: self.arguments.clone() }))
    }

    /// Conditional and channel, channel, conditional, plain; by lot within the winning class.
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
        let at = usize::try_from(mixed(self.lot) % winners.len() as u64).unwrap_or(0);
        winners.get(at).copied()
    }

    fn applies(&mut self, variation: &Variation) -> bool {
        let is = |(slot, wanted): &(SlotName, Json)| self.view.slot(slot.as_str()) == Some(wanted);
        if !variation.slot_conditions.iter().all(is) {
            return false;
        }
        let Some(condition) = &variation.condition else { return true };
        let outcome = self.view.eval(condition);
        if let Some(trouble) = outcome.trouble {
            self.notes.push(format!("the condition `{condition}` of a response counts as false: {trouble}"));
        }
        outcome.holds
    }

    /// The text of a variation, in the language of the conversation where it has a translation.
    fn translated(&mut self, variation: &Variation) -> Option<String> {
        let project = self.view.project;
        let language = self.view.conversation.set_value(LANGUAGE).and_then(Json::as_str);
        let translated = language.filter(|wanted| **wanted != *project.config.language).and_then(|wanted| {
            variation.translations.iter().find(|(language, _)| **language == *wanted).map(|(_, text)| text)
        });
        translated.or(variation.text.as_ref()).map(|text| self.text(text))
    }

    /// One text with its values filled in.
    fn text(&mut self, text: &ResponseText) -> String {
        match text {
            ResponseText::Braces(text) => {
                let filled = fill(text, &Names { arguments: self.arguments, view: self.view });
                self.note_unknown(&filled.unknown);
                filled.content.into_owned()
            }
            ResponseText::Jinja(template) => {
                let variables = self.view.variables(template, self.arguments);
                template.render(variables).unwrap_or_else(|error| {
                    self.notes.push(format!("a text could not be rendered and is said as it is written: {error}"));
                    template.source().text().to_owned()
                })
            }
        }
    }

    fn button(&mut self, (title, payload, extra): &(ResponseText, ResponseText, Map<String, Json>)) -> Button {
        let (title, payload) = (self.text(title).into(), self.text(payload).into());
        Button { title, payload, extra: extra.clone() }
    }

    fn json(&mut self, value: &Json) -> Json {
        let filled = fill_json(value, &Names { arguments: self.arguments, view: self.view });
        self.note_unknown(&filled.unknown);
        filled.content
    }

    fn note_unknown(&mut self, names: &[String]) {
        let note = |name| format!("no slot or argument is called `{name}`; the text stands unfilled");
        self.notes.extend(names.iter().map(note));
    }
}

/// Spreads the bits of a number, so that neighbouring seeds choose differently (the finaliser of SplitMix64).
fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The text of a type's rejection.
pub(super) fn rejection_of(kind: &crate::project::SlotType) -> Option<&'static str> {
    use crate::project::SlotType;
    match kind {
        SlotType::Bool => Some("utter_boolean_slot_rejection"),
        SlotType::Float { .. } => Some("utter_float_slot_rejection"),
        SlotType::Categorical(_) => Some("utter_categorical_slot_rejection"),
        _ => None,
    }
}

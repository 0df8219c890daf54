//! Responses: which variation is said, and what it reads as.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::{
    context::{Names, View},
    turn::Turn,
};
use crate::{
    conversation::{BotKind, BotMessage, Button, EventKind, Reply, Wording},
    ids::ActionName,
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
        let mut notes = Vec::new();
        let lot = self.lot();
        let message = compose(&self.view(), name, arguments, lot, &mut notes);
        notes.into_iter().for_each(|note| self.note(note));
        match message {
            Some(message) if !message.reply.is_empty() => self.emit_here(EventKind::bot(message)),
            Some(_) => self.note(format!("`{name}` says nothing")),
            None => self.note(format!("`{name}` is no response of this project, so nothing is said")),
        }
    }
}

/// Makes the message of a response; `None` when the project has none of that name.
pub(super) fn compose(
    view: &View<'_>,
    name: &str,
    arguments: &Map<String, Json>,
    lot: u64,
    notes: &mut Vec<String>,
) -> Option<BotMessage> {
    let response = view.project.response(name)?;
    let chosen = choose(view, response, lot, notes).or_else(|| {
        notes.push(format!("no variation of `{name}` may be used now"));
        view.project.response(INTERNAL_ERROR).and_then(|error| error.variations.first())
    })?;
    Some(message(view, response, chosen, arguments, notes))
}

/// The same for a response that nothing may stand in for; `None` also when no variation of it may be used now.
pub(super) fn compose_itself(
    view: &View<'_>,
    name: &str,
    arguments: &Map<String, Json>,
    lot: u64,
    notes: &mut Vec<String>,
) -> Option<BotMessage> {
    let response = view.project.response(name)?;
    let chosen = choose(view, response, lot, notes)?;
    Some(message(view, response, chosen, arguments, notes))
}

fn message(
    view: &View<'_>,
    response: &ResponseDef,
    chosen: &Variation,
    arguments: &Map<String, Json>,
    notes: &mut Vec<String>,
) -> BotMessage {
    let wording = wording(view, response, chosen, arguments);
    let text = Texts { view, arguments };
    let reply = Reply {
        // An author who writes an empty text wants nothing said.
        text: text.of_variation(chosen, notes).filter(|text| !text.trim().is_empty()).map(Into::into),
        buttons: chosen.buttons.iter().map(|button| text.button(button, notes)).collect(),
        image: chosen.image.as_ref().map(|image| text.text(image, notes)),
        attachment: chosen.attachment.as_ref().map(|value| text.json(value, notes)),
        custom: chosen.custom.as_ref().map(|value| text.json(value, notes)),
        elements: chosen.elements.iter().map(|value| text.json(value, notes)).collect(),
        quick_replies: chosen.quick_replies.iter().map(|value| text.json(value, notes)).collect(),
    };
    let wording = wording.filter(|_| reply.text.as_deref().is_some_and(|text| !text.trim().is_empty()));
    let utter_action = Some(Arc::from(response.name.as_str()));
    BotMessage { reply, utter_action, kind: BotKind::Response, wording, ..BotMessage::default() }
}

/// What must be known to word the response anew, where the project wants that.
fn wording(
    view: &View<'_>,
    response: &ResponseDef,
    chosen: &Variation,
    arguments: &Map<String, Json>,
) -> Option<Box<Wording>> {
    let wanted = match view.project.endpoints.nlg.as_ref()? {
        Nlg::Rephraser(rephraser) => rephraser.takes(chosen),
        Nlg::Server(_) => true,
    };
    // A response that stands in for one that has nothing to say is said as it is.
    let variation = response.variations.iter().position(|variation| std::ptr::eq(variation, chosen))?;
    wanted.then(|| Box::new(Wording { variation, arguments: arguments.clone() }))
}

/// The order of dialogue.md 3.5: conditional and channel, channel, conditional, plain; by lot within the winning class.
fn choose<'r>(view: &View<'_>, response: &'r ResponseDef, lot: u64, notes: &mut Vec<String>) -> Option<&'r Variation> {
    if let [only] = response.variations.as_slice()
        && only.condition.is_none()
        && only.slot_conditions.is_empty()
        && only.channel.is_none()
    {
        return Some(only);
    }
    let channel = view.conversation.latest_message.as_ref().map_or("", |message| &*message.input_channel);
    let mut classes: [Vec<&Variation>; 4] = Default::default();
    for variation in &response.variations {
        let conditional = variation.condition.is_some() || !variation.slot_conditions.is_empty();
        let class = match (&variation.channel, conditional) {
            (Some(of), _) if **of != *channel => continue,
            (Some(_), true) => 0,
            (Some(_), false) => 1,
            (None, true) => 2,
            (None, false) => 3,
        };
        if (!conditional || applies(view, variation, notes))
            && let Some(members) = classes.get_mut(class)
        {
            members.push(variation);
        }
    }
    let winners = classes.into_iter().find(|members| !members.is_empty())?;
    let at = usize::try_from(mixed(lot) % winners.len() as u64).unwrap_or(0);
    winners.get(at).copied()
}

fn applies(view: &View<'_>, variation: &Variation, notes: &mut Vec<String>) -> bool {
    use crate::condition::Scope as _;
    let old = variation.slot_conditions.iter().all(|(slot, wanted)| view.slot(slot.as_str()) == Some(wanted));
    old && variation.condition.as_ref().is_none_or(|condition| {
        let outcome = view.eval(condition);
        if let Some(trouble) = outcome.trouble {
            notes.push(format!("the condition `{condition}` of a response counts as false: {trouble}"));
        }
        outcome.holds
    })
}

/// Spreads the bits of a number, so that neighbouring seeds choose differently (the finaliser of SplitMix64).
fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Renders the texts of one variation.
pub(super) struct Texts<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) arguments: &'a Map<String, Json>,
}

impl Texts<'_> {
    fn of_variation(&self, variation: &Variation, notes: &mut Vec<String>) -> Option<String> {
        let project = self.view.project;
        let language = self.view.conversation.set_value(LANGUAGE).and_then(Json::as_str);
        let translated = language.filter(|wanted| **wanted != *project.config.language).and_then(|wanted| {
            variation.translations.iter().find(|(language, _)| **language == *wanted).map(|(_, text)| text)
        });
        translated.or(variation.text.as_ref()).map(|text| self.text(text, notes))
    }

    /// One text with its values filled in.
    pub(super) fn text(&self, text: &ResponseText, notes: &mut Vec<String>) -> String {
        match text {
            ResponseText::Braces(text) => {
                let filled = fill(text, &Names { arguments: self.arguments, view: self.view });
                unknown(&filled.unknown, notes);
                filled.content.into_owned()
            }
            ResponseText::Jinja(template) => {
                let variables = self.view.variables(template, self.arguments);
                self.view.project.templates.render(template, variables).unwrap_or_else(|error| {
                    notes.push(format!("a text could not be rendered and is said as it is written: {error}"));
                    template.source().text().to_owned()
                })
            }
        }
    }

    fn button(
        &self,
        (title, payload, extra): &(ResponseText, ResponseText, Map<String, Json>),
        notes: &mut Vec<String>,
    ) -> Button {
        let (title, payload) = (self.text(title, notes).into(), self.text(payload, notes).into());
        Button { title, payload, extra: extra.clone() }
    }

    fn json(&self, value: &Json, notes: &mut Vec<String>) -> Json {
        let filled = fill_json(value, &Names { arguments: self.arguments, view: self.view });
        unknown(&filled.unknown, notes);
        filled.content
    }
}

fn unknown(names: &[String], notes: &mut Vec<String>) {
    notes.extend(names.iter().map(|name| format!("no slot or argument is called `{name}`; the text stands unfilled")));
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

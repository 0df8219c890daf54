//! The domain, checked and merged: slots, responses, actions, sessions.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::{Actions, Responses, SlotDefs};
use crate::{
    condition::Condition,
    finding::SourceLocation,
    ids::{FlowId, ResponseName, SlotName},
    template::{Template, placeholders},
};

/// The domain of a project, built-in parts included.
#[derive(Debug, Default)]
pub struct Domain {
    /// Slots by name, in the order of the files.
    pub slots: SlotDefs,
    /// Responses by name.
    pub responses: Responses,
    /// Custom actions by name.
    pub actions: Actions,
    /// Intents, for `/intent` messages.
    pub intents: Vec<Arc<str>>,
    /// Rules of sessions.
    pub session: SessionConfig,
    /// The domain as JSON, as action servers want it.
    pub as_json: Json,
}

/// Rules of sessions.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionConfig {
    /// Minutes without a user message after which a session is over; 0 = never.
    pub expiration_minutes: f64,
    /// Whether a new session begins with the old slots.
    pub carry_over_slots: bool,
    /// Whether a new session begins at all.
    pub start_after_expiry: bool,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self { expiration_minutes: 60.0, carry_over_slots: true, start_after_expiry: true }
    }
}

/// A custom action that the domain lists.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ActionDef {
    /// Whether the action server wants the domain with it.
    pub send_domain: bool,
    /// The slots it reads, where the author says so: a correction that changes none of them does not run it again.
    pub inputs: Option<Vec<SlotName>>,
}

/// A slot.
#[derive(Debug)]
pub struct SlotDef {
    /// Its name.
    pub name: SlotName,
    /// Its type.
    pub kind: SlotType,
    /// Its value before anything is known.
    pub initial: Json,
    /// Who may fill it; empty in the file means [`Mapping::FromLlm`].
    pub mappings: Vec<Mapping>,
    /// When what the model reads into a message fills it.
    pub fill: FillPolicy,
    /// Checks at the moment a command fills it.
    pub validation: Option<Validation>,
    /// Whether `action_reset_routing` leaves its value alone.
    pub shared: bool,
    /// Whether it came with the runtime, not with the project.
    pub builtin: bool,
    /// Where it stands.
    pub place: SourceLocation,
}

/// The type of a slot.
#[derive(Clone, Debug, PartialEq)]
pub enum SlotType {
    /// Any text.
    Text,
    /// True or false.
    Bool,
    /// One of these.
    Categorical(Vec<Arc<str>>),
    /// A number; the bounds are told to agents, not enforced elsewhere.
    Float {
        /// Least, where the author set one.
        min: Option<f64>,
        /// Greatest, where the author set one.
        max: Option<f64>,
    },
    /// A list.
    List,
    /// Anything.
    Any,
}

impl SlotType {
    /// The name in the format.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Bool => "bool",
            Self::Categorical(_) => "categorical",
            Self::Float { .. } => "float",
            Self::List => "list",
            Self::Any => "any",
        }
    }
}

/// When what the model reads into a message fills a slot. Buttons, intents, steps, actions and agents fill it at any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FillPolicy {
    /// Whenever a flow under way asks for it somewhere.
    #[default]
    AnyTime,
    /// Only as the answer to its question, or to correct the value that it has.
    WhenAsked,
    /// Not with a value that the same message gives to another slot: the slot that is asked for takes it, else the first named.
    Once,
}

/// Who may fill a slot.
#[derive(Clone, Debug, PartialEq)]
pub enum Mapping {
    /// The command generator, in these flows or in all.
    FromLlm {
        /// Whether it may change what an NLU mapping filled.
        allow_nlu_correction: bool,
        /// Only while one of these flows is active; empty = always.
        active_flows: Vec<FlowId>,
    },
    /// Actions, steps and buttons only.
    Controlled {
        /// An action that runs at every message.
        run_action_every_turn: Option<String>,
    },
    /// An entity of an intent message.
    FromEntity {
        /// The entity.
        entity: Arc<str>,
        /// Role, if it must have one.
        role: Option<Arc<str>>,
        /// Group, if it must have one.
        group: Option<Arc<str>>,
        /// Intents it must come with; empty = any.
        intents: Vec<Arc<str>>,
        /// Intents it must not come with.
        not_intents: Vec<Arc<str>>,
        /// Only while one of these flows is active; empty = always.
        active_flows: Vec<FlowId>,
    },
    /// A constant for an intent.
    FromIntent {
        /// The value.
        value: Json,
        /// Intents; empty = any.
        intents: Vec<Arc<str>>,
        /// Intents it must not be.
        not_intents: Vec<Arc<str>>,
        /// Only while one of these flows is active; empty = always.
        active_flows: Vec<FlowId>,
    },
    /// The whole text.
    FromText {
        /// Intents; empty = any.
        intents: Vec<Arc<str>>,
        /// Intents it must not be.
        not_intents: Vec<Arc<str>>,
        /// Only while one of these flows is active; empty = always.
        active_flows: Vec<FlowId>,
    },
}

/// Checks at the moment a command fills a slot.
#[derive(Debug)]
pub struct Validation {
    /// Values that are refused.
    pub rejections: Vec<Rejection>,
    /// The question after a refusal.
    pub refill_utter: ResponseName,
}

/// A value that is refused.
#[derive(Debug)]
pub struct Rejection {
    /// When.
    pub condition: Condition,
    /// What is said then.
    pub utter: ResponseName,
}

/// A response with its variations.
#[derive(Debug)]
pub struct ResponseDef {
    /// Its name.
    pub name: ResponseName,
    /// At least one.
    pub variations: Vec<Variation>,
    /// Whether it came with the runtime, not with the project.
    pub builtin: bool,
    /// Where it stands.
    pub place: SourceLocation,
}

/// One variation of a response.
#[derive(Debug, Default)]
pub struct Variation {
    /// The author's id.
    pub id: Option<Arc<str>>,
    /// The text.
    pub text: Option<ResponseText>,
    /// When it may be used.
    pub condition: Option<Condition>,
    /// The old form: every slot must equal its value, type included.
    pub slot_conditions: Vec<(SlotName, Json)>,
    /// The only channel it is for.
    pub channel: Option<Arc<str>>,
    /// Buttons: title, payload, further keys; titles and payloads are texts with `{slot}`.
    pub buttons: Vec<(ResponseText, ResponseText, Map<String, Json>)>,
    /// Address of an image, with `{slot}`.
    pub image: Option<ResponseText>,
    /// As written; texts in it with `{slot}`.
    pub attachment: Option<Json>,
    /// As written; texts in it with `{slot}`.
    pub custom: Option<Json>,
    /// As written; texts in it with `{slot}`.
    pub elements: Vec<Json>,
    /// As written; texts in it with `{slot}`.
    pub quick_replies: Vec<Json>,
    /// The author's metadata: `rephrase`, `template` and anything else.
    pub metadata: Map<String, Json>,
    /// `rephrase` of the metadata, where set.
    pub rephrase: Option<bool>,
    /// `rephrase_prompt` of the metadata.
    pub rephrase_prompt: Option<Template>,
    /// Texts by language.
    pub translations: Vec<(Arc<str>, ResponseText)>,
}

/// A text of a response, in one of the two formats.
#[derive(Debug)]
pub enum ResponseText {
    /// With `{slot}`.
    Braces(Arc<str>),
    /// With Jinja.
    Jinja(Template),
}

impl ResponseDef {
    /// Whether some variation shows the slot, or is chosen by it. A name in a Jinja text counts wherever it stands.
    pub fn shows(&self, slot: &str) -> bool {
        self.variations.iter().any(|variation| variation.shows(slot))
    }
}

impl Variation {
    fn shows(&self, slot: &str) -> bool {
        let texts = self.text.iter().chain(self.translations.iter().map(|(_, text)| text)).chain(&self.image);
        let buttons = self.buttons.iter().flat_map(|(title, payload, _)| [title, payload]);
        let json = self.attachment.iter().chain(&self.custom).chain(&self.elements).chain(&self.quick_replies);
        texts.chain(buttons).any(|text| text.shows(slot))
            || json.into_iter().any(|value| holds(&value.to_string(), slot))
            || self.condition.as_ref().is_some_and(|condition| condition.slots().any(|name| name == slot))
            || self.slot_conditions.iter().any(|(name, _)| *name == *slot)
    }
}

impl ResponseText {
    fn shows(&self, slot: &str) -> bool {
        match self {
            Self::Braces(text) => holds(text, slot),
            Self::Jinja(template) => {
                let is_name = |c: char| c.is_alphanumeric() || c == '_';
                template.source().text().split(|c: char| !is_name(c)).any(|word| word == slot)
            }
        }
    }
}

fn holds(text: &str, slot: &str) -> bool {
    placeholders(text).any(|(_, name)| name == slot)
}

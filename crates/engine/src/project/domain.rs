//! The merged and checked domain: slots, responses, actions, intents and the session configuration.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

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
    /// When sessions expire and what a new session keeps.
    pub session: SessionConfig,
    /// The domain as JSON in the format of action servers.
    pub as_json: Json,
}

/// When sessions expire and what a new session keeps.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionConfig {
    /// Minutes without a user message after which a session expires; 0: never.
    pub expiration_minutes: f64,
    /// Whether a new session keeps the slots of the previous one.
    pub carry_over_slots: bool,
    /// Whether a new session starts after expiry.
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
    /// Whether requests to the action server contain the domain.
    pub send_domain: bool,
    /// The slots that it reads, if declared. It runs again after a correction only if one of them has changed.
    pub inputs: Option<Vec<SlotName>>,
}

/// A slot.
#[derive(Debug)]
pub struct SlotDef {
    /// Its name.
    pub name: SlotName,
    /// Its type.
    pub kind: SlotType,
    /// Its initial value.
    pub initial: Json,
    /// What may fill it; empty in the file means [`Mapping::FromLlm`].
    pub mappings: Vec<Mapping>,
    /// When the command generator may fill it.
    pub fill: FillPolicy,
    /// Checks of every value that a command sets.
    pub validation: Option<Validation>,
    /// Whether `action_reset_routing` keeps its value.
    pub shared: bool,
    /// Whether only actions and steps of flows fill it, and none changes a value that it has.
    pub write_once: bool,
    /// Whether clients get its values among the events of a turn.
    pub public: bool,
    /// Whether it is built in rather than defined by the project.
    pub builtin: bool,
    /// Its location in the project files.
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
    /// A number. Agents see the bounds in their tool schema; nothing else enforces them.
    Float {
        /// The minimum, if set.
        min: Option<f64>,
        /// The maximum, if set.
        max: Option<f64>,
    },
    /// A list.
    List,
    /// Any value.
    Any,
}

impl SlotType {
    /// The name of the type in the domain file.
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
    /// The JSON schema of its values, as clients see it.
    pub fn json_schema(&self) -> Json {
        match self {
            Self::Text => json!({"type": "string"}),
            Self::Bool => json!({"type": "boolean"}),
            Self::Categorical(values) => {
                json!({"type": "string", "enum": values.iter().map(|value| &**value).collect::<Vec<_>>()})
            }
            Self::Float { min, max } => {
                let mut schema = json!({"type": "number"});
                for (key, bound) in [("minimum", min), ("maximum", max)] {
                    if let (Some(bound), Some(schema)) = (bound, schema.as_object_mut()) {
                        schema.insert(key.to_owned(), json!(bound));
                    }
                }
                schema
            }
            Self::List => json!({"type": "array"}),
            Self::Any => json!({}),
        }
    }
}

/// When the command generator may fill a slot. Buttons, intents, steps, actions and agents may always fill it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FillPolicy {
    /// Whenever an active flow has a collect step for it.
    #[default]
    AnyTime,
    /// Only as the answer to its collect step, or to correct its value.
    WhenAsked,
    /// Not with a value that the same message also gives to another slot: the slot that is asked for gets it, else the first one.
    Once,
}

/// What may fill a slot.
#[derive(Clone, Debug, PartialEq)]
pub enum Mapping {
    /// The command generator, in these flows or in all.
    FromLlm {
        /// Whether it may change a value that an NLU mapping has set.
        allow_nlu_correction: bool,
        /// Only while one of these flows is active; empty: always.
        active_flows: Vec<FlowId>,
    },
    /// Actions, steps and buttons only.
    Controlled {
        /// An action that runs in every turn.
        run_action_every_turn: Option<String>,
    },
    /// An entity of an intent message.
    FromEntity {
        /// The entity.
        entity: Arc<str>,
        /// The required role.
        role: Option<Arc<str>>,
        /// The required group.
        group: Option<Arc<str>>,
        /// Only for messages with one of these intents; empty: any.
        intents: Vec<Arc<str>>,
        /// Not for messages with one of these intents.
        not_intents: Vec<Arc<str>>,
        /// Only while one of these flows is active; empty: always.
        active_flows: Vec<FlowId>,
    },
    /// A constant for an intent.
    FromIntent {
        /// The value.
        value: Json,
        /// Only for these intents; empty: any.
        intents: Vec<Arc<str>>,
        /// Not for these intents.
        not_intents: Vec<Arc<str>>,
        /// Only while one of these flows is active; empty: always.
        active_flows: Vec<FlowId>,
    },
    /// The whole text of a message.
    FromText {
        /// Only for these intents; empty: any.
        intents: Vec<Arc<str>>,
        /// Not for these intents.
        not_intents: Vec<Arc<str>>,
        /// Only while one of these flows is active; empty: always.
        active_flows: Vec<FlowId>,
    },
}

/// Checks of every value that a command sets.
#[derive(Debug)]
pub struct Validation {
    /// The rejections; the first whose condition is true applies.
    pub rejections: Vec<Rejection>,
    /// The response that asks again after a rejection.
    pub refill_utter: ResponseName,
}

/// A condition under which a value is rejected.
#[derive(Debug)]
pub struct Rejection {
    /// The condition.
    pub condition: Condition,
    /// The response that is sent if the condition is true.
    pub utter: ResponseName,
}

/// A response with its variations.
#[derive(Debug)]
pub struct ResponseDef {
    /// Its name.
    pub name: ResponseName,
    /// Its variations, at least one.
    pub variations: Vec<Variation>,
    /// Whether it is built in rather than defined by the project.
    pub builtin: bool,
    /// Its location in the project files.
    pub place: SourceLocation,
}

/// A variation of a response.
#[derive(Debug, Default)]
pub struct Variation {
    /// Its id, for NLG servers.
    pub id: Option<Arc<str>>,
    /// The text.
    pub text: Option<ResponseText>,
    /// When it may be used.
    pub condition: Option<Condition>,
    /// The list form of `condition`: every slot must equal its value, including the type.
    pub slot_conditions: Vec<(SlotName, Json)>,
    /// The only channel on which it is used.
    pub channel: Option<Arc<str>>,
    /// Buttons: title, payload, further keys. Titles and payloads may contain `{slot}`.
    pub buttons: Vec<(ResponseText, ResponseText, Map<String, Json>)>,
    /// The URL of an image; may contain `{slot}`.
    pub image: Option<ResponseText>,
    /// As written in the file; strings in it may contain `{slot}`.
    pub attachment: Option<Json>,
    /// As written in the file; strings in it may contain `{slot}`.
    pub custom: Option<Json>,
    /// As written in the file; strings in it may contain `{slot}`.
    pub elements: Vec<Json>,
    /// As written in the file; strings in it may contain `{slot}`.
    pub quick_replies: Vec<Json>,
    /// The metadata: `rephrase`, `template` and arbitrary values.
    pub metadata: Map<String, Json>,
    /// `rephrase` of the metadata, if set.
    pub rephrase: Option<bool>,
    /// `rephrase_prompt` of the metadata.
    pub rephrase_prompt: Option<Template>,
    /// The text in further languages, with the language code.
    pub translations: Vec<(Arc<str>, ResponseText)>,
}

/// The text of a response, in one of two formats.
#[derive(Debug)]
pub enum ResponseText {
    /// With `{slot}`.
    Braces(Arc<str>),
    /// With Jinja.
    Jinja(Template),
}

impl ResponseDef {
    /// Whether a variation shows the slot or depends on it. In a Jinja text every occurrence of the name counts.
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

//! Turns without a user message: pending reminders, and triggers from other programs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::{
    ids::{AgentName, FlowId},
    limits,
    time::Timestamp,
};

/// A request for a turn that no user message started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExternalTrigger {
    /// What it starts.
    #[serde(flatten)]
    pub action: TriggerAction,
    /// Entities of the intent, or slots of the flow.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub values: Map<String, Json>,
    /// The reminder that caused it; the reminder must still be pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reminder: Option<Arc<str>>,
}

/// What a trigger does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TriggerAction {
    /// Starts the flow or pattern with this `nlu_trigger`.
    Intent(Arc<str>),
    /// Starts this flow, whatever its guard says.
    Flow(FlowId),
    /// Starts this flow if its guard holds, as for a user.
    #[serde(rename = "request")]
    StartIfAllowed(FlowId),
    /// Cancels the active flow, as if the user had asked for it.
    Cancel {
        /// The reason, for operators.
        reason: String,
    },
    /// Continues the agent that waits, since what it waits for may be available.
    Continue(AgentName),
    /// Only records the values.
    Note {
        /// A description of the values.
        about: String,
    },
}

/// A pending reminder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reminder {
    /// The name; a new reminder of the same name replaces it.
    pub name: Arc<str>,
    /// The time at which it is due.
    pub due: Timestamp,
    /// The intent that is triggered then.
    pub intent: Arc<str>,
    /// The entities of the intent, as given.
    #[serde(default, skip_serializing_if = "Json::is_null")]
    pub entities: Json,
    /// Whether a user message cancels it.
    pub kill_on_user_msg: bool,
    /// The number of the event that set it; distinguishes two reminders of the same name.
    #[serde(rename = "set")]
    pub event_number: u64,
}

/// The pending reminders, ordered by due time; at most [`limits::REMINDERS`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Reminders(Vec<Reminder>);

impl Reminders {
    /// The reminders, earliest first.
    pub fn iter(&self) -> std::slice::Iter<'_, Reminder> {
        self.0.iter()
    }
    /// Whether no reminder is pending.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Whether the limit is reached.
    pub fn is_full(&self) -> bool {
        self.0.len() >= limits::REMINDERS
    }
    /// The earliest reminder.
    pub fn next(&self) -> Option<&Reminder> {
        self.0.first()
    }
    /// The reminder of that name.
    pub fn get(&self, name: &str) -> Option<&Reminder> {
        self.0.iter().find(|one| *one.name == *name)
    }
    /// Adds a reminder and removes one of the same name. When the limit is reached, the new one is discarded.
    pub(super) fn add(&mut self, reminder: Reminder) {
        self.0.retain(|one| one.name != reminder.name);
        if !self.is_full() {
            let at = self.0.partition_point(|one| one.due <= reminder.due);
            self.0.insert(at, reminder);
        }
    }
    pub(super) fn retain(&mut self, keep: impl FnMut(&Reminder) -> bool) {
        self.0.retain(keep);
    }
}

impl ExternalTrigger {
    /// The trigger of a reminder that is due.
    pub fn of(reminder: &Reminder) -> Self {
        Self {
            action: TriggerAction::Intent(reminder.intent.clone()),
            values: values(&reminder.entities),
            reminder: Some(reminder.name.clone()),
        }
    }
}

/// Entities as a map; they are given as a map or as a list of maps with `entity` and `value`.
fn values(entities: &Json) -> Map<String, Json> {
    let Json::Array(list) = entities else { return entities.as_object().cloned().unwrap_or_default() };
    let pairs =
        list.iter().filter_map(|one| Some((one.get("entity")?.as_str()?.to_owned(), one.get("value")?.clone())));
    pairs.collect()
}

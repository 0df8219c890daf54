//! What happens without a user: reminders that wait, and triggers that came.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::{
    ids::{AgentName, FlowId},
    limits,
    time::Timestamp,
};

/// Something that came and that no user wrote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trigger {
    /// What is to happen.
    #[serde(flatten)]
    pub what: TriggerAction,
    /// Values: entities of the intent, or slots of the flow.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub values: Map<String, Json>,
    /// The reminder it came from, which must still be waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reminder: Option<Arc<str>>,
}

/// What a trigger starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TriggerAction {
    /// The flow or pattern with this `nlu_trigger`.
    Intent(Arc<str>),
    /// This flow.
    Flow(FlowId),
    /// This flow, as a user may ask for it: its guard must hold.
    Request(FlowId),
    /// Nothing: the flow under way ends as if the user had stopped it.
    Cancel {
        /// Why, for operators.
        reason: String,
    },
    /// Nothing: the agent that waits goes on, since what it waits for may have come.
    Continue(AgentName),
    /// Nothing: the values are kept in the record.
    Note {
        /// What they are.
        about: String,
    },
}

/// A reminder that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reminder {
    /// Its name; one name is one reminder.
    pub name: Arc<str>,
    /// When it is due.
    pub due: Timestamp,
    /// The intent that comes then.
    pub intent: Arc<str>,
    /// Its entities, as they were given.
    #[serde(default, skip_serializing_if = "Json::is_null")]
    pub entities: Json,
    /// Whether a message of the user cancels it.
    pub kill_on_user_msg: bool,
    /// The number of the event that set it: tells two settings of one name apart.
    pub set: u64,
}

/// The reminders that wait, the earliest first; at most [`limits::REMINDERS`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Reminders(Vec<Reminder>);

impl Reminders {
    /// The earliest first.
    pub fn iter(&self) -> std::slice::Iter<'_, Reminder> {
        self.0.iter()
    }
    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Whether another finds no place.
    pub fn is_full(&self) -> bool {
        self.0.len() >= limits::REMINDERS
    }
    /// The earliest.
    pub fn next(&self) -> Option<&Reminder> {
        self.0.first()
    }
    /// The one of that name.
    pub fn get(&self, name: &str) -> Option<&Reminder> {
        self.0.iter().find(|one| *one.name == *name)
    }
    /// Adds one; one of the same name goes, as does one for which there is no place.
    pub(super) fn add(&mut self, reminder: Reminder) {
        self.0.retain(|one| one.name != reminder.name);
        if !self.is_full() {
            let at = self.0.partition_point(|one| one.due <= reminder.due);
            self.0.insert(at, reminder);
        }
    }
    pub(super) fn keep(&mut self, keep: impl FnMut(&Reminder) -> bool) {
        self.0.retain(keep);
    }
}

impl Trigger {
    /// What a reminder does when it is due.
    pub fn of(reminder: &Reminder) -> Self {
        Self {
            what: TriggerAction::Intent(reminder.intent.clone()),
            values: values(&reminder.entities),
            reminder: Some(reminder.name.clone()),
        }
    }
}

/// Entities as a map: written so, or as a list of maps with `entity` and `value`.
fn values(entities: &Json) -> Map<String, Json> {
    let Json::Array(list) = entities else { return entities.as_object().cloned().unwrap_or_default() };
    let pairs =
        list.iter().filter_map(|one| Some((one.get("entity")?.as_str()?.to_owned(), one.get("value")?.clone())));
    pairs.collect()
}

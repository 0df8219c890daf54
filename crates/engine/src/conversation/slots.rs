//! The values of slots. A conversation stores only what was set; initial values are in the domain.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::FilledBy;
use crate::ids::SlotName;

/// A slot that was set at least once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlotState {
    /// The current value.
    pub value: Json,
    /// The source of the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filled_by: Option<FilledBy>,
    /// Whether it was assigned since its last reset.
    pub has_been_set: bool,
}

/// All slots that were set, in the order of their first assignment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slots(IndexMap<SlotName, SlotState>);

impl Slots {
    /// The value that was set; `None` when the slot was never set.
    pub fn get(&self, name: &str) -> Option<&Json> {
        self.0.get(name).map(|slot| &slot.value)
    }
    /// The value with its source.
    pub fn state(&self, name: &str) -> Option<&SlotState> {
        self.0.get(name)
    }
    /// Whether the slot was assigned since its last reset.
    pub fn has_been_set(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|slot| slot.has_been_set)
    }
    /// All slots that were set.
    pub fn iter(&self) -> impl Iterator<Item = (&SlotName, &SlotState)> {
        self.0.iter()
    }
    /// Sets a slot and returns its previous state.
    pub(super) fn set(&mut self, name: SlotName, value: Json, filled_by: Option<FilledBy>) -> Option<SlotState> {
        self.0.insert(name, SlotState { value, filled_by, has_been_set: true })
    }
    /// Resets a slot to `value`, its initial value, and returns its previous state.
    pub(super) fn reset(&mut self, name: &SlotName, value: &Json) -> Option<SlotState> {
        self.0.insert(name.clone(), SlotState { value: value.clone(), filled_by: None, has_been_set: false })
    }
    pub(super) fn restore(&mut self, name: SlotName, state: Option<SlotState>) {
        match state {
            Some(state) => _ = self.0.insert(name, state),
            None => _ = self.0.shift_remove(&name),
        }
    }
    /// Removes and returns all states.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = (SlotName, SlotState)> + use<> {
        std::mem::take(&mut self.0).into_iter()
    }
}

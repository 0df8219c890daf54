//! The items of an iteration.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map},
    ops::Deref,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    state::{ItemState, TaskStatus},
    unit::UnitState,
};

/// The items of an iteration by their index in the dataset. It reads as a map, and knows which items are not completed: what follows in a
/// run is decided after each event, and an iteration may have thousands of completed items.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Items {
    all: BTreeMap<u32, ItemState>,
    /// Exactly the items whose status is not [`TaskStatus::Completed`].
    unfinished: BTreeSet<u32>,
}

impl Items {
    /// The items that were started or are to be started again, and are not completed.
    pub fn unfinished(&self) -> impl Iterator<Item = (u32, &ItemState)> {
        self.unfinished.iter().filter_map(|index| Some((*index, self.all.get(index)?)))
    }

    /// Changes an item, if there is one.
    pub(super) fn change(&mut self, index: u32, change: impl FnOnce(&mut ItemState)) {
        let Some(item) = self.all.get_mut(&index) else { return };
        change(item);
        let status = item.status;
        self.note(index, status);
    }
    /// Changes an item, or a new one.
    pub(super) fn change_or_add(&mut self, index: u32, change: impl FnOnce(&mut ItemState)) {
        self.all.entry(index).or_default();
        self.change(index, change);
    }
    /// Changes the items that are not completed.
    pub(super) fn change_unfinished(&mut self, mut change: impl FnMut(u32, &mut ItemState)) {
        for index in self.unfinished.clone() {
            self.change(index, |item| change(index, item));
        }
    }
    /// The unit of an item of a parallel iteration.
    pub(super) fn unit_mut(&mut self, index: u32) -> Option<&mut UnitState> {
        self.all.get_mut(&index)?.unit.as_mut()
    }

    fn note(&mut self, index: u32, status: TaskStatus) {
        if status == TaskStatus::Completed {
            self.unfinished.remove(&index);
        } else {
            self.unfinished.insert(index);
        }
    }
}

impl Deref for Items {
    type Target = BTreeMap<u32, ItemState>;
    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Extend<(u32, ItemState)> for Items {
    fn extend<T: IntoIterator<Item = (u32, ItemState)>>(&mut self, items: T) {
        for (index, item) in items {
            self.note(index, item.status);
            self.all.insert(index, item);
        }
    }
}

impl FromIterator<(u32, ItemState)> for Items {
    fn from_iter<T: IntoIterator<Item = (u32, ItemState)>>(items: T) -> Self {
        let mut new = Self::default();
        new.extend(items);
        new
    }
}

impl IntoIterator for Items {
    type Item = (u32, ItemState);
    type IntoIter = btree_map::IntoIter<u32, ItemState>;
    fn into_iter(self) -> Self::IntoIter {
        self.all.into_iter()
    }
}

impl Serialize for Items {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.all.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(BTreeMap::deserialize(deserializer)?.into_iter().collect())
    }
}

//! The datasets of a run: their items, the ids of items, and checks against the declared fields.

use std::sync::Arc;

use serde_json::Value as Json;

use super::state::RunState;
use crate::project::{
    field_values::{self, Violation},
    missions::{DatasetDef, MissionDef},
};

/// The items of a dataset in a run.
pub fn items<'a>(state: &'a RunState, dataset: &str) -> &'a [Json] {
    state.datasets.get(dataset).map_or(&[], |dataset| &dataset.items)
}

/// The id of an item: its first text among `id`, `name` and `key`, otherwise `item_<index>`.
pub fn item_id(item: &Json, index: u32) -> Arc<str> {
    let named = ["id", "name", "key"].iter().find_map(|key| item.get(key).and_then(Json::as_str));
    named.map_or_else(|| format!("item_{index}").into(), Arc::from)
}

/// An item with null for the declared fields that it does not have, so that a strict template may read them.
pub fn item_with_all_fields(def: &MissionDef, state: &RunState, dataset: &str, index: u32) -> Json {
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    let mut item = items(state, dataset).get(index).cloned().unwrap_or_default();
    if let (Some(fields), Some(declared)) = (item.as_object_mut(), def.datasets.get(dataset)) {
        for name in declared.schema.keys() {
            fields.entry(name.to_string()).or_insert(Json::Null);
        }
    }
    item
}

/// The violations of items, each with a pointer that begins with the number of the item: `/3/url`. Fields that are not declared pass.
pub fn check_items(def: &DatasetDef, items: &[Json]) -> Vec<Violation> {
    let mut found = Vec::new();
    for (index, item) in items.iter().enumerate() {
        if !item.is_object() {
            found.push(Violation { pointer: format!("/{index}"), problem: "an object is expected".into() });
        } else {
            let violations = field_values::check_fields(&def.schema, item, field_values::Extra::Allowed);
            let at =
                |violation: Violation| Violation { pointer: format!("/{index}{}", violation.pointer), ..violation };
            found.extend(violations.into_iter().map(at));
        }
        if found.len() >= field_values::MOST_VIOLATIONS {
            break;
        }
    }
    found
}

/// Items that are drawn at random without repetition; the same seed draws the same ones.
pub fn sample(items: &[Json], count: usize, seed: u64) -> Vec<&Json> {
    let mut rest: Vec<&Json> = items.iter().collect();
    let mut state = seed;
    let mut drawn = Vec::new();
    while drawn.len() < count && !rest.is_empty() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let left = u64::try_from(rest.len()).unwrap_or(1).max(1);
        let at = usize::try_from(mix(state) % left).unwrap_or(0);
        drawn.push(rest.swap_remove(at));
    }
    drawn
}

/// SplitMix64: <https://prng.di.unimi.it/splitmix64.c>.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

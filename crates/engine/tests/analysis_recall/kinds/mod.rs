//! Kinds of mistakes: each takes a valid project, adds one mistake and marks its place.

mod authoring_habits;
mod conditions;
mod control_flow;
mod domain;
mod names;
mod steps;
mod values;
mod whole_project;

use crate::project_builder::ProjectBuilder;

/// A kind of mistake.
pub struct Mistake {
    pub name: &'static str,
    pub apply: fn(&mut ProjectBuilder),
    /// Only in projects without custom actions: those may set and read any slot.
    pub without_custom_actions: bool,
}

const fn kind(name: &'static str, apply: fn(&mut ProjectBuilder)) -> Mistake {
    Mistake { name, apply, without_custom_actions: false }
}

const fn without_custom_actions(name: &'static str, apply: fn(&mut ProjectBuilder)) -> Mistake {
    Mistake { name, apply, without_custom_actions: true }
}

/// All kinds.
pub fn all() -> Vec<Mistake> {
    let mut kinds = Vec::new();
    kinds.extend(steps::KINDS);
    kinds.extend(names::KINDS);
    kinds.extend(conditions::KINDS);
    kinds.extend(values::KINDS);
    kinds.extend(control_flow::KINDS);
    kinds.extend(domain::KINDS);
    kinds.extend(whole_project::KINDS);
    kinds.extend(authoring_habits::KINDS);
    kinds
}

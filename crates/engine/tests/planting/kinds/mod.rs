//! What people get wrong: each kind takes a clean project and spoils it in one place, which it marks.

mod conditions;
mod domain;
mod habits;
mod names;
mod steps;
mod values;
mod ways;
mod whole;

use crate::world::World;

/// A kind of defect.
pub struct Plant {
    pub name: &'static str,
    pub plant: fn(&mut World),
    /// Only in projects without actions of their own: those may fill and read anything, so nobody can know.
    pub quiet: bool,
}

const fn kind(name: &'static str, plant: fn(&mut World)) -> Plant {
    Plant { name, plant, quiet: false }
}

const fn quiet(name: &'static str, plant: fn(&mut World)) -> Plant {
    Plant { name, plant, quiet: true }
}

/// All kinds.
pub fn all() -> Vec<Plant> {
    let mut kinds = Vec::new();
    kinds.extend(steps::KINDS);
    kinds.extend(names::KINDS);
    kinds.extend(conditions::KINDS);
    kinds.extend(values::KINDS);
    kinds.extend(ways::KINDS);
    kinds.extend(domain::KINDS);
    kinds.extend(whole::KINDS);
    kinds.extend(habits::KINDS);
    kinds
}

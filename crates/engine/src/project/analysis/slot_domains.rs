//! Finite abstract domains of slots: values that the conditions of a flow cannot distinguish are one abstract value.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::super::{Project, SlotDef, SlotType};
use crate::{
    condition::{Condition, KnownValue, Literal, PartialScope},
    limits::{ANALYSIS_CASES, ANALYSIS_CELLS},
};

/// A set of abstract values of a slot: a bit for each position.
pub(super) type ValueSet = u64;
/// The set with only null, which is the first abstract value of every slot.
pub(super) const NULL: ValueSet = 1;

/// An abstract value: a class of values with a representative.
#[derive(Debug)]
struct AbstractValue {
    value: Json,
    exact: bool,
    label: String,
}

/// The abstract domain of a slot.
#[derive(Debug)]
pub(super) struct SlotDomain {
    pub(super) slot: String,
    members: Vec<AbstractValue>,
}

/// A string that no project contains, as the representative of all other strings.
const OTHER: &str = "\u{1}";

impl SlotDomain {
    /// The domain of a slot; `None` if it has too many abstract values.
    fn of(slot: &SlotDef, literals: &[Json]) -> Option<Self> {
        let exact = |value: Json| AbstractValue { label: spelled(&value), value, exact: true };
        let mut members = vec![exact(Json::Null)];
        match &slot.kind {
            SlotType::Bool => members.extend([true, false].map(|b| exact(Json::Bool(b)))),
            SlotType::Categorical(values) => members.extend(values.iter().map(|value| exact(Json::from(&**value)))),
            SlotType::Float { .. } => numbers(literals, &mut members),
            SlotType::Text => {
                let mut texts: Vec<&str> = literals.iter().filter_map(Json::as_str).chain([""]).collect();
                texts.sort_unstable();
                texts.dedup();
                members.extend(texts.into_iter().map(|text| exact(Json::from(text))));
                members.push(AbstractValue { value: OTHER.into(), exact: false, label: "any other text".to_owned() });
            }
            SlotType::List | SlotType::Any => {
                let value = Json::Array(vec![OTHER.into()]);
                members.push(AbstractValue { value, exact: false, label: "any value".to_owned() });
            }
        }
        (members.len() <= ANALYSIS_CELLS).then(|| Self { slot: slot.name.to_string(), members })
    }

    /// The set of all abstract values.
    pub(super) fn all(&self) -> ValueSet {
        if self.members.len() >= 64 { ValueSet::MAX } else { (1 << self.members.len()) - 1 }
    }

    /// The abstract value of a constant; all except null if the constant has none.
    pub(super) fn value_of(&self, value: &Json) -> ValueSet {
        let same = |member: &AbstractValue| match (&member.value, value) {
            (Json::Number(a), Json::Number(b)) => member.exact && a.as_f64() == b.as_f64(),
            (a, b) => member.exact && a == b,
        };
        // Categorical values are case-insensitive.
        let alike = |member: &AbstractValue| match (&member.value, value) {
            (Json::String(a), Json::String(b)) => member.exact && a.to_lowercase() == b.to_lowercase(),
            _ => false,
        };
        match self.members.iter().position(same).or_else(|| self.members.iter().position(alike)) {
            Some(at) => 1 << at,
            None => self.all() & !NULL,
        }
    }

    /// A set of values for messages: `more than 10`, `"a" or "b"`.
    pub(super) fn describe(&self, values: ValueSet) -> String {
        let chosen = |at: &usize| values & (1 << at) != 0;
        let set: Vec<usize> = (0..self.members.len()).filter(chosen).collect();
        if values == self.all() & !NULL {
            return "not null".to_owned();
        }
        let is_number = self.members.get(1).is_some_and(|member| member.value.is_number());
        let set: Vec<String> = if is_number { self.ranges(&set) } else { self.spell(&set) };
        match set.as_slice() {
            [] => "nothing".to_owned(),
            [one] => one.clone(),
            [first @ .., last] => format!("{} or {last}", first.join(", ")),
        }
    }

    fn spell(&self, set: &[usize]) -> Vec<String> {
        set.iter().filter_map(|at| self.members.get(*at)).map(|member| member.label.clone()).collect()
    }

    /// Adjacent numbers as ranges. Even positions are literals, odd positions the intervals between them.
    fn ranges(&self, set: &[usize]) -> Vec<String> {
        let mut ranges = Vec::new();
        let mut rest = set;
        while let Some(first) = rest.first().copied() {
            let run =
                rest.iter().zip(first..).take_while(|(at, expected)| **at == *expected && first != 0).count().max(1);
            let last = first + run - 1;
            rest = rest.get(run..).unwrap_or_default();
            let literal = |at: usize| self.members.get(at).map(|member| member.label.clone());
            let from = if first % 2 == 1 {
                (first > 1).then(|| literal(first - 1)).flatten().map(|n| format!("more than {n}"))
            } else {
                literal(first).map(|n| format!("at least {n}"))
            };
            let to = if last % 2 == 1 {
                literal(last + 1).map(|n| format!("less than {n}"))
            } else {
                literal(last).map(|n| format!("at most {n}"))
            };
            ranges.push(match (from, to) {
                _ if first == last && first % 2 == 0 => literal(first).unwrap_or_default(),
                (Some(from), Some(to)) => format!("{from} and {to}"),
                (from, to) => from.or(to).unwrap_or_else(|| "any number".to_owned()),
            });
        }
        ranges
    }
}

fn spelled(value: &Json) -> String {
    match value {
        Json::Null => "null".to_owned(),
        Json::String(text) => format!("`\"{text}\"`"),
        Json::Number(number) => number.as_f64().map_or_else(String::new, |number| number.to_string()),
        other => other.to_string(),
    }
}

/// The literals, and a representative for each interval before, between and after them.
fn numbers(literals: &[Json], members: &mut Vec<AbstractValue>) {
    let truths = literals.iter().filter_map(|value| match value {
        Json::Bool(b) => Some(f64::from(u8::from(*b))),
        other => other.as_f64(),
    });
    let mut points: Vec<f64> = truths.filter(|point| point.is_finite() && point.abs() < 1e15).chain([0.0]).collect();
    points.sort_by(f64::total_cmp);
    points.dedup();
    let mut before: Option<f64> = None;
    let mut add = |value: f64, exact: bool| {
        let value = Json::from(value);
        members.push(AbstractValue { label: spelled(&value), value, exact });
    };
    for point in points {
        add(before.map_or(point - 1.0, |before| f64::midpoint(before, point)), false);
        add(point, true);
        before = Some(point);
    }
    add(before.unwrap_or_default() + 1.0, false);
}

/// The domains of all slots that a set of conditions reads.
#[derive(Debug, Default)]
pub(super) struct SlotDomains {
    pub(super) slots: Vec<SlotDomain>,
}

/// The maximum number of slots, because their positions are bits of a `u64`.
const SLOTS: usize = 64;

impl SlotDomains {
    /// The domains for these conditions, for constants that steps set, and for slots that steps ask for.
    pub(super) fn of<'c>(
        project: &Project,
        conditions: impl Iterator<Item = &'c Condition>,
        constants: impl Iterator<Item = (&'c str, &'c Json)>,
        asked: impl Iterator<Item = &'c str>,
    ) -> Self {
        let mut literals: BTreeMap<&str, Vec<Json>> = BTreeMap::new();
        for condition in conditions {
            for slot in condition.slots() {
                literals.entry(slot).or_default();
            }
            for comparison in condition.comparisons() {
                literals.entry(comparison.slot).or_default().extend(json_of(comparison.literal));
            }
        }
        for slot in asked {
            literals.entry(slot).or_default();
        }
        for (slot, value) in constants {
            if let Some(literals) = literals.get_mut(slot) {
                literals.push(value.clone());
            }
        }
        let domain = |(slot, literals): (&str, Vec<Json>)| {
            let slot = project.slot(slot)?;
            let mut literals = literals;
            literals.push(slot.initial.clone());
            SlotDomain::of(slot, &literals)
        };
        Self { slots: literals.into_iter().filter_map(domain).take(SLOTS).collect() }
    }

    /// The position of a slot.
    pub(super) fn at(&self, slot: &str) -> Option<usize> {
        self.slots.binary_search_by(|domain| domain.slot.as_str().cmp(slot)).ok()
    }

    /// All values of all slots.
    pub(super) fn everything(&self) -> Vec<ValueSet> {
        self.slots.iter().map(SlotDomain::all).collect()
    }

    /// Enumerates all assignments of abstract values, within `sets`, to the slots that `conditions` read. Slots with too many
    /// values stay unknown.
    pub(super) fn each_assignment<'c>(
        &self,
        conditions: impl Iterator<Item = &'c Condition>,
        sets: &[ValueSet],
        visit: &mut dyn FnMut(&Assignment<'_>),
    ) {
        let mut slots: Vec<usize> = conditions.flat_map(Condition::slots).filter_map(|slot| self.at(slot)).collect();
        slots.sort_unstable();
        slots.dedup();
        let many = |at: &usize| u64::from(sets.get(*at).copied().unwrap_or_default().count_ones());
        slots.sort_by_key(many);
        while slots.iter().map(many).fold(1_u64, u64::saturating_mul) > ANALYSIS_CASES {
            slots.pop();
        }
        let mut assignment = Assignment { domains: self, chosen: vec![None; self.slots.len()] };
        enumerate(&mut assignment, &slots, sets, visit);
    }
}

fn enumerate(
    assignment: &mut Assignment<'_>,
    slots: &[usize],
    sets: &[ValueSet],
    visit: &mut dyn FnMut(&Assignment<'_>),
) {
    let Some((slot, rest)) = slots.split_first() else {
        visit(assignment);
        return;
    };
    let set = sets.get(*slot).copied().unwrap_or_default();
    for member in (0..64).filter(|member| set & (1 << member) != 0) {
        if let Some(chosen) = assignment.chosen.get_mut(*slot) {
            *chosen = Some(member);
        }
        enumerate(assignment, rest, sets, visit);
    }
}

/// An assignment of an abstract value to each enumerated slot.
pub(super) struct Assignment<'g> {
    domains: &'g SlotDomains,
    chosen: Vec<Option<usize>>,
}

impl Assignment<'_> {
    /// Adds the values of this assignment to `sets`. For a slot that is not enumerated, adds `within`.
    pub(super) fn add_to(&self, sets: &mut [ValueSet], within: &[ValueSet]) {
        for ((set, chosen), within) in sets.iter_mut().zip(&self.chosen).zip(within) {
            *set |= chosen.map_or(*within, |member| 1 << member);
        }
    }

    /// The value of a slot as a set; `None` if the slot is not enumerated.
    pub(super) fn of(&self, slot: usize) -> Option<ValueSet> {
        self.chosen.get(slot).copied().flatten().map(|member| 1 << member)
    }
}

impl PartialScope for Assignment<'_> {
    fn slot(&self, name: &str) -> Option<KnownValue<'_>> {
        let at = self.domains.at(name)?;
        let member = self.domains.slots.get(at)?.members.get(self.chosen.get(at).copied().flatten()?)?;
        Some(KnownValue { value: &member.value, exact: member.exact })
    }
}

fn json_of(literal: Literal<'_>) -> Option<Json> {
    match literal {
        Literal::Text(text) => Some(Json::from(text)),
        Literal::Number(number) => Some(Json::from(number)),
        Literal::Bool(b) => Some(Json::from(b)),
        Literal::Null | Literal::Undefined | Literal::Empty => None,
    }
}

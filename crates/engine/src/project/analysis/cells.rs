//! The finitely many cases of a slot: values between which no condition at hand can tell a difference are one case.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::super::{Project, SlotDef, SlotType};
use crate::{
    condition::{Condition, KnownValue, Literal, PartialScope},
    limits::{ANALYSIS_CASES, ANALYSIS_CELLS},
};

/// A set of cases of one slot, by position.
pub(super) type Mask = u64;
/// The case `null`, which every slot has.
pub(super) const NULL: Mask = 1;

/// One case of a slot.
#[derive(Debug)]
struct Cell {
    value: Json,
    exact: bool,
    said: String,
}

/// All cases of one slot.
#[derive(Debug)]
pub(super) struct Cells {
    pub(super) slot: String,
    cells: Vec<Cell>,
}

/// A text that no author writes.
const OTHER: &str = "\u{1}";

impl Cells {
    /// `None` where there are too many.
    fn of(slot: &SlotDef, literals: &[Json]) -> Option<Self> {
        let exact = |value: Json| Cell { said: spelled(&value), value, exact: true };
        let mut cells = vec![exact(Json::Null)];
        match &slot.kind {
            SlotType::Bool => cells.extend([true, false].map(|b| exact(Json::Bool(b)))),
            SlotType::Categorical(values) => cells.extend(values.iter().map(|value| exact(Json::from(&**value)))),
            SlotType::Float { .. } => numbers(literals, &mut cells),
            SlotType::Text => {
                let mut texts: Vec<&str> = literals.iter().filter_map(Json::as_str).chain([""]).collect();
                texts.sort_unstable();
                texts.dedup();
                cells.extend(texts.into_iter().map(|text| exact(Json::from(text))));
                cells.push(Cell { value: OTHER.into(), exact: false, said: "any other text".to_owned() });
            }
            SlotType::List | SlotType::Any => {
                let value = Json::Array(vec![OTHER.into()]);
                cells.push(Cell { value, exact: false, said: "any value".to_owned() });
            }
        }
        (cells.len() <= ANALYSIS_CELLS).then(|| Self { slot: slot.name.to_string(), cells })
    }

    /// Every case.
    pub(super) fn all(&self) -> Mask {
        if self.cells.len() >= 64 { Mask::MAX } else { (1 << self.cells.len()) - 1 }
    }

    /// The case of a constant that a step sets; every case but null where it has none of its own.
    pub(super) fn case_of(&self, value: &Json) -> Mask {
        let same = |cell: &Cell| match (&cell.value, value) {
            (Json::Number(a), Json::Number(b)) => cell.exact && a.as_f64() == b.as_f64(),
            (a, b) => cell.exact && a == b,
        };
        // A choice is taken in any case; a text that differs in case has a case of its own.
        let alike = |cell: &Cell| match (&cell.value, value) {
            (Json::String(a), Json::String(b)) => cell.exact && a.to_lowercase() == b.to_lowercase(),
            _ => false,
        };
        match self.cells.iter().position(same).or_else(|| self.cells.iter().position(alike)) {
            Some(at) => 1 << at,
            None => self.all() & !NULL,
        }
    }

    /// The cases for people: `more than 10`, `"a" or "b"`.
    pub(super) fn said(&self, mask: Mask) -> String {
        let chosen = |at: &usize| mask & (1 << at) != 0;
        let set: Vec<usize> = (0..self.cells.len()).filter(chosen).collect();
        if mask == self.all() & !NULL {
            return "not null".to_owned();
        }
        let is_number = self.cells.get(1).is_some_and(|cell| cell.value.is_number());
        let set: Vec<String> = if is_number { self.ranges(&set) } else { self.spell(&set) };
        match set.as_slice() {
            [] => "nothing".to_owned(),
            [one] => one.clone(),
            [first @ .., last] => format!("{} or {last}", first.join(", ")),
        }
    }

    fn spell(&self, set: &[usize]) -> Vec<String> {
        set.iter().filter_map(|at| self.cells.get(*at)).map(|cell| cell.said.clone()).collect()
    }

    /// Neighbouring numbers as one range. Odd positions are what lies between literals, even ones the literals.
    fn ranges(&self, set: &[usize]) -> Vec<String> {
        let mut said = Vec::new();
        let mut rest = set;
        while let Some(first) = rest.first().copied() {
            let run =
                rest.iter().zip(first..).take_while(|(at, expected)| **at == *expected && first != 0).count().max(1);
            let last = first + run - 1;
            rest = rest.get(run..).unwrap_or_default();
            let literal = |at: usize| self.cells.get(at).map(|cell| cell.said.clone());
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
            said.push(match (from, to) {
                _ if first == last && first % 2 == 0 => literal(first).unwrap_or_default(),
                (Some(from), Some(to)) => format!("{from} and {to}"),
                (from, to) => from.or(to).unwrap_or_else(|| "any number".to_owned()),
            });
        }
        said
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

/// The literals, and one number for what lies before, between and after them.
fn numbers(literals: &[Json], cells: &mut Vec<Cell>) {
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
        cells.push(Cell { said: spelled(&value), value, exact });
    };
    for point in points {
        add(before.map_or(point - 1.0, |before| f64::midpoint(before, point)), false);
        add(point, true);
        before = Some(point);
    }
    add(before.unwrap_or_default() + 1.0, false);
}

/// The slots that conditions at hand read, with their cases.
#[derive(Debug, Default)]
pub(super) struct Ground {
    pub(super) slots: Vec<Cells>,
}

/// At most so many slots: their positions fit a mask.
const SLOTS: usize = 64;

impl Ground {
    /// Of these conditions, and of constants that steps set.
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
        let cells = |(slot, literals): (&str, Vec<Json>)| {
            let slot = project.slot(slot)?;
            let mut literals = literals;
            literals.push(slot.initial.clone());
            Cells::of(slot, &literals)
        };
        Self { slots: literals.into_iter().filter_map(cells).take(SLOTS).collect() }
    }

    /// The position of a slot.
    pub(super) fn at(&self, slot: &str) -> Option<usize> {
        self.slots.binary_search_by(|cells| cells.slot.as_str().cmp(slot)).ok()
    }

    /// Every case of every slot.
    pub(super) fn everything(&self) -> Vec<Mask> {
        self.slots.iter().map(Cells::all).collect()
    }

    /// Goes through all cases of the slots that `conditions` read, within `masks`. A slot with too many cases is left unknown.
    pub(super) fn each_case<'c>(
        &self,
        conditions: impl Iterator<Item = &'c Condition>,
        masks: &[Mask],
        visit: &mut dyn FnMut(&Case<'_>),
    ) {
        let mut slots: Vec<usize> = conditions.flat_map(Condition::slots).filter_map(|slot| self.at(slot)).collect();
        slots.sort_unstable();
        slots.dedup();
        let many = |at: &usize| u64::from(masks.get(*at).copied().unwrap_or_default().count_ones());
        slots.sort_by_key(many);
        while slots.iter().map(many).fold(1_u64, u64::saturating_mul) > ANALYSIS_CASES {
            slots.pop();
        }
        let mut case = Case { ground: self, chosen: vec![None; self.slots.len()] };
        go(&mut case, &slots, masks, visit);
    }
}

fn go(case: &mut Case<'_>, slots: &[usize], masks: &[Mask], visit: &mut dyn FnMut(&Case<'_>)) {
    let Some((slot, rest)) = slots.split_first() else {
        visit(case);
        return;
    };
    let mask = masks.get(*slot).copied().unwrap_or_default();
    for cell in (0..64).filter(|cell| mask & (1 << cell) != 0) {
        if let Some(chosen) = case.chosen.get_mut(*slot) {
            *chosen = Some(cell);
        }
        go(case, rest, masks, visit);
    }
}

/// One case of each slot that was gone through.
pub(super) struct Case<'g> {
    ground: &'g Ground,
    chosen: Vec<Option<usize>>,
}

impl Case<'_> {
    /// Adds this case to masks; a slot that was not gone through keeps what `within` says.
    pub(super) fn add_to(&self, masks: &mut [Mask], within: &[Mask]) {
        for ((mask, chosen), within) in masks.iter_mut().zip(&self.chosen).zip(within) {
            *mask |= chosen.map_or(*within, |cell| 1 << cell);
        }
    }

    /// The case of one slot, as a mask.
    pub(super) fn of(&self, slot: usize) -> Option<Mask> {
        self.chosen.get(slot).copied().flatten().map(|cell| 1 << cell)
    }
}

impl PartialScope for Case<'_> {
    fn slot(&self, name: &str) -> Option<KnownValue<'_>> {
        let at = self.ground.at(name)?;
        let cell = self.ground.slots.get(at)?.cells.get(self.chosen.get(at).copied().flatten()?)?;
        Some(KnownValue { value: &cell.value, exact: cell.exact })
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

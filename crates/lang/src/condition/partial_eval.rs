//! Partial evaluation: the possible results of a condition when only some slots are known, for checkers that examine cases.
//!
//! The results are an over-approximation: an unknown slot may have any value, so no possible result is missed. Comparisons whose slots
//! are all known are decided by the evaluation that runs conversations, errors included.

use serde_json::Value as Json;

use super::{
    Condition, Scope,
    evaluate::truth,
    inspect::{Operator, literal_of, walk},
    syntax::{Connective, NameRoot, Node},
};

/// The assumed value of a slot.
#[derive(Clone, Copy, Debug)]
pub struct KnownValue<'a> {
    /// The value, or a representative of a class of values.
    pub value: &'a Json,
    /// Whether the slot has exactly this value. If not, the value represents a class, such as all numbers between two literals or all
    /// strings that equal no literal.
    pub exact: bool,
}

/// A scope in which only some slots are known.
pub trait PartialScope {
    /// The assumed value of a slot; `None` if it may have any value.
    fn slot(&self, name: &str) -> Option<KnownValue<'_>>;
}

/// The possible results of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PossibleResults {
    /// It may hold.
    pub holds: bool,
    /// It may be false, by itself or because of an error.
    pub fails: bool,
}

#[derive(Clone, Copy)]
struct Outcomes {
    holds: bool,
    fails: bool,
    raises: bool,
}

const ANY: Outcomes = Outcomes { holds: true, fails: true, raises: true };

impl Condition {
    /// The possible results under `scope`. A template may have any result.
    pub fn possible_results(&self, scope: &dyn PartialScope) -> PossibleResults {
        if let Some(holds) = self.as_constant() {
            return PossibleResults { holds, fails: !holds };
        }
        let outcomes = self.node().map_or(ANY, |node| outcomes(node, scope));
        PossibleResults { holds: outcomes.holds, fails: outcomes.fails || outcomes.raises }
    }
}

fn outcomes(node: &Node, scope: &dyn PartialScope) -> Outcomes {
    match node {
        Node::Chain { operands, last } => chain(operands, last, scope),
        Node::Not(inner) => {
            let inner = outcomes(inner, scope);
            Outcomes { holds: inner.fails, fails: inner.holds, ..inner }
        }
        _ if is_decided(node, scope) => match truth(node, &KnownSlots(scope)) {
            Ok(holds) => Outcomes { holds, fails: !holds, raises: false },
            Err(_) => Outcomes { holds: false, fails: false, raises: true },
        },
        _ => ANY,
    }
}

/// From left to right, as in evaluation: a false operand before `and` and a true operand before `or` end the chain.
fn chain(operands: &[(Node, Connective)], last: &Node, scope: &dyn PartialScope) -> Outcomes {
    let mut all = Outcomes { holds: false, fails: false, raises: false };
    for (operand, connective) in operands {
        let one = outcomes(operand, scope);
        all.raises |= one.raises;
        let continues = match connective {
            Connective::And => {
                all.fails |= one.fails;
                one.holds
            }
            Connective::Or => {
                all.holds |= one.holds;
                one.fails
            }
        };
        if !continues {
            return all;
        }
    }
    let one = outcomes(last, scope);
    Outcomes { holds: all.holds | one.holds, fails: all.fails | one.fails, raises: all.raises | one.raises }
}

/// Whether everything that the comparison depends on is known well enough to evaluate it.
fn is_decided(node: &Node, scope: &dyn PartialScope) -> bool {
    let mut known = true;
    let mut inexact: Vec<KnownValue<'_>> = Vec::new();
    walk(node, &mut |part| {
        let Node::Name(name) = part else { return };
        let slot = match name.root {
            NameRoot::Bare => return,
            NameRoot::InSlots => {
                let mut path = name.path();
                path.next().filter(|_| path.next().is_none()).and_then(|slot| scope.slot(slot))
            }
            NameRoot::Slots | NameRoot::Context | NameRoot::InContext => None,
        };
        match slot {
            Some(slot) if slot.exact => {}
            Some(slot) => inexact.push(slot),
            None => known = false,
        }
    });
    match inexact.as_slice() {
        [] => known,
        [one] => known && is_same_for_all(node, one.value),
        _ => false,
    }
}

/// Whether the node has the same result for all values that `value` represents. A number represents those between two literals; a
/// string or any other value represents those that equal no literal.
fn is_same_for_all(node: &Node, value: &Json) -> bool {
    let is_literal = |node: &Node| literal_of(node).is_some();
    match (node, value) {
        (Node::Name(_), Json::String(_) | Json::Number(_)) => true,
        (Node::Compare { left, right, .. }, Json::Number(_)) => is_literal(left) || is_literal(right),
        (Node::Compare { left, operator, right }, Json::String(_)) => {
            !Operator::from(*operator).is_order() && (is_literal(left) || is_literal(right))
        }
        (Node::Compare { left, operator, right }, _) => {
            let is_null = |node: &Node| matches!(node, Node::Null | Node::Undefined);
            !Operator::from(*operator).is_order() && (is_null(left) || is_null(right))
        }
        (Node::Contains { container, item }, Json::String(_) | Json::Number(_)) => {
            matches!((&**container, &**item), (Node::Set(items), Node::Name(_)) if items.iter().all(is_literal))
        }
        _ => false,
    }
}

/// The known slots as a scope.
struct KnownSlots<'a>(&'a dyn PartialScope);

impl Scope for KnownSlots<'_> {
    fn slot(&self, name: &str) -> Option<&Json> {
        self.0.slot(name).map(|slot| slot.value)
    }
    fn slot_count(&self) -> usize {
        0
    }
    fn context(&self) -> Option<&Json> {
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

    use serde_json::json;

    use super::*;

    /// A scope that knows only the slot `a`.
    struct OnlyA(Json, bool);

    impl PartialScope for OnlyA {
        fn slot(&self, name: &str) -> Option<KnownValue<'_>> {
            (name == "a").then_some(KnownValue { value: &self.0, exact: self.1 })
        }
    }

    fn may(text: &str, value: Json, exact: bool) -> (bool, bool) {
        let possible = Condition::parse(text).unwrap().possible_results(&OnlyA(value, exact));
        (possible.holds, possible.fails)
    }

    #[test]
    fn known_slots_decide_and_unknown_slots_allow_any_result() {
        assert_eq!(may("slots.a > 5", json!(7), true), (true, false));
        assert_eq!(may("slots.a > 5", json!(null), true), (false, true));
        assert_eq!(may("not (slots.a > 5)", json!(null), true), (false, true));
        assert_eq!(may("slots.b > 5", json!(7), true), (true, true));
        assert_eq!(may("slots.a > 5 and slots.b", json!(3), true), (false, true));
        assert_eq!(may("slots.a > 5 or slots.b", json!(7), true), (true, false));
        assert_eq!(may("slots.a > slots.b", json!(7), true), (true, true));
        assert_eq!(may("context.x is \"y\"", json!(7), true), (true, true));
    }

    #[test]
    fn a_representative_value_decides_only_if_its_whole_class_agrees() {
        assert_eq!(may("slots.a > 5", json!(5.5), false), (true, false));
        assert_eq!(may("slots.a = \"x\"", json!("?"), false), (false, true));
        assert_eq!(may("slots.a matches \"x\"", json!("?"), false), (true, true));
        assert_eq!(may("slots.a < \"x\"", json!("?"), false), (true, true));
        assert_eq!(may("slots.a contains \"x\"", json!("?"), false), (true, true));
        assert_eq!(may("{\"x\" \"y\"} contains slots.a", json!("?"), false), (false, true));
        assert_eq!(may("slots.a is not null", json!(["?"]), false), (true, false));
        assert_eq!(may("slots.a = 5", json!(["?"]), false), (true, true));
    }
}

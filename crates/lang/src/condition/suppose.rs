//! What a condition may come to when only some slots are known, for checkers that go through cases.
//!
//! Never says "cannot" wrongly: what is not known may be anything. Comparisons whose slots are known are decided by the very
//! evaluation that runs conversations, exceptions included.

use serde_json::Value as Json;

use super::{
    Condition, Scope,
    evaluate::truth,
    inspect::{literal_of, walk},
    syntax::{Link, Node, Root},
};

/// What is supposed of a slot.
#[derive(Clone, Copy, Debug)]
pub struct Supposed<'a> {
    /// Its value, or one that stands for many.
    pub value: &'a Json,
    /// Whether it is exactly this value, not one that stands for others: a number between two literals, any other text.
    pub exact: bool,
}

/// What is supposed while a condition is looked at.
pub trait Suppose {
    /// What is supposed of a slot; `None`: it may be anything.
    fn slot(&self, name: &str) -> Option<Supposed<'_>>;
}

/// What a condition may come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PossibleResults {
    /// It may hold.
    pub holds: bool,
    /// It may be false, by itself or by an exception.
    pub fails: bool,
}

#[derive(Clone, Copy)]
struct Ends {
    holds: bool,
    fails: bool,
    raises: bool,
}

const ANY: Ends = Ends { holds: true, fails: true, raises: true };

impl Condition {
    /// What it may come to under `supposed`. A template may come to anything.
    pub fn possible(&self, supposed: &dyn Suppose) -> PossibleResults {
        if let Some(holds) = self.as_constant() {
            return PossibleResults { holds, fails: !holds };
        }
        let ends = self.node().map_or(ANY, |node| ends(node, supposed));
        PossibleResults { holds: ends.holds, fails: ends.fails || ends.raises }
    }
}

fn ends(node: &Node, supposed: &dyn Suppose) -> Ends {
    match node {
        Node::Chain { links, last } => chain(links, last, supposed),
        Node::Not(inner) => {
            let inner = ends(inner, supposed);
            Ends { holds: inner.fails, fails: inner.holds, ..inner }
        }
        _ if is_decided(node, supposed) => match truth(node, &Cases(supposed)) {
            Ok(holds) => Ends { holds, fails: !holds, raises: false },
            Err(_) => Ends { holds: false, fails: false, raises: true },
        },
        _ => ANY,
    }
}

/// From left to right, as it is evaluated: a false operand before `and` and a true one before `or` end it.
fn chain(links: &[(Node, Link)], last: &Node, supposed: &dyn Suppose) -> Ends {
    let mut all = Ends { holds: false, fails: false, raises: false };
    for (operand, link) in links {
        let one = ends(operand, supposed);
        all.raises |= one.raises;
        let goes_on = match link {
            Link::And => {
                all.fails |= one.fails;
                one.holds
            }
            Link::Or => {
                all.holds |= one.holds;
                one.fails
            }
        };
        if !goes_on {
            return all;
        }
    }
    let one = ends(last, supposed);
    Ends { holds: all.holds | one.holds, fails: all.fails | one.fails, raises: all.raises | one.raises }
}

/// Whether everything that the comparison depends on is known.
fn is_decided(node: &Node, supposed: &dyn Suppose) -> bool {
    let mut known = true;
    let mut loose: Vec<Supposed<'_>> = Vec::new();
    walk(node, &mut |part| {
        let Node::Name(name) = part else { return };
        let slot = match name.root {
            Root::Bare => return,
            Root::InSlots => {
                let mut path = name.path();
                path.next().filter(|_| path.next().is_none()).and_then(|slot| supposed.slot(slot))
            }
            Root::Slots | Root::Context | Root::InContext => None,
        };
        match slot {
            Some(slot) if slot.exact => {}
            Some(slot) => loose.push(slot),
            None => known = false,
        }
    });
    match loose.as_slice() {
        [] => known,
        [one] => known && is_same_for_all(node, one.value),
        _ => false,
    }
}

/// Whether one value answers for all that it stands for. Numbers: literals are the borders between which it lies. Texts and
/// anything else: it is equal to no literal.
fn is_same_for_all(node: &Node, value: &Json) -> bool {
    let is_plain = |node: &Node| literal_of(node).is_some();
    match (node, value) {
        (Node::Name(_), Json::String(_) | Json::Number(_)) => true,
        (Node::Compare { left, operator, right }, Json::Number(_)) => {
            let _ = operator;
            is_plain(left) || is_plain(right)
        }
        (Node::Compare { left, operator, right }, Json::String(_)) => {
            !super::inspect::Operator::from(*operator).is_order() && (is_plain(left) || is_plain(right))
        }
        (Node::Compare { left, operator, right }, _) => {
            let is_null = |node: &Node| matches!(node, Node::Null | Node::Undefined);
            !super::inspect::Operator::from(*operator).is_order() && (is_null(left) || is_null(right))
        }
        (Node::Contains { container, item }, Json::String(_) | Json::Number(_)) => {
            matches!((&**container, &**item), (Node::Set(items), Node::Name(_)) if items.iter().all(is_plain))
        }
        _ => false,
    }
}

/// The cases as a scope.
struct Cases<'a>(&'a dyn Suppose);

impl Scope for Cases<'_> {
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

    struct One(Json, bool);

    impl Suppose for One {
        fn slot(&self, name: &str) -> Option<Supposed<'_>> {
            (name == "a").then_some(Supposed { value: &self.0, exact: self.1 })
        }
    }

    fn may(text: &str, value: Json, exact: bool) -> (bool, bool) {
        let possible = Condition::parse(text).unwrap().possible(&One(value, exact));
        (possible.holds, possible.fails)
    }

    #[test]
    fn what_is_known_is_decided_and_what_is_not_may_be_anything() {
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
    fn a_value_that_stands_for_many_answers_only_where_all_agree() {
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

//! Values during evaluation, with Python's rules for equality, order and membership.

use std::cmp::Ordering;

use serde_json::{Map, Value as Json};

use super::{Scope, syntax::Compare};

/// The error that makes the whole condition false. Names kinds of values, never values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EvaluationError(pub(super) String);

/// A value, borrowed from the condition or the scope.
#[derive(Clone)]
pub(super) enum Value<'a> {
    Undefined,
    Empty,
    Null,
    Bool(bool),
    Number(Number),
    Text(&'a str),
    List(&'a [Json]),
    Map(&'a Map<String, Json>),
    /// All slots: the name `slots` alone.
    Slots(&'a dyn Scope),
    /// A set literal without duplicates; items are scalars or undefined.
    Set(Vec<Value<'a>>),
}

/// A number. Integers are kept apart from floats because Python compares the two exactly.
#[derive(Clone, Copy)]
pub(super) enum Number {
    Integer(i128),
    Float(f64),
}

impl Number {
    fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => Some(a.cmp(&b)),
            (Self::Float(a), Self::Float(b)) => a.partial_cmp(&b),
            (Self::Integer(a), Self::Float(b)) => compare_integer_float(a, b),
            (Self::Float(a), Self::Integer(b)) => compare_integer_float(b, a).map(Ordering::reverse),
        }
    }

    fn is_zero(self) -> bool {
        matches!(self, Self::Integer(0)) || matches!(self, Self::Float(0.0))
    }
}

fn compare_integer_float(integer: i128, float: f64) -> Option<Ordering> {
    // Integers in JSON have 64 bits here, so a float of at least this size is larger than any; below it, truncation is exact.
    const BEYOND: f64 = 1e30;
    if float.is_nan() {
        return None;
    }
    if float >= BEYOND {
        return Some(Ordering::Less);
    }
    if float <= -BEYOND {
        return Some(Ordering::Greater);
    }
    #[allow(clippy::cast_possible_truncation)]
    let truncated = float.trunc() as i128;
    Some(integer.cmp(&truncated).then(0.0_f64.partial_cmp(&float.fract())?))
}

impl<'a> From<&'a Json> for Value<'a> {
    fn from(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(b) => Self::Bool(*b),
            Json::Number(n) => Self::Number(match (n.as_i64(), n.as_u64()) {
                (Some(integer), _) => Number::Integer(integer.into()),
                (_, Some(integer)) => Number::Integer(integer.into()),
                _ => Number::Float(n.as_f64().unwrap_or(f64::NAN)),
            }),
            Json::String(s) => Self::Text(s),
            Json::Array(items) => Self::List(items),
            Json::Object(map) => Self::Map(map),
        }
    }
}

impl<'a> Value<'a> {
    /// Truth as in Python.
    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::Undefined | Self::Empty | Self::Null => false,
            Self::Bool(b) => *b,
            Self::Number(n) => !n.is_zero(),
            Self::Text(_) | Self::List(_) | Self::Map(_) | Self::Slots(_) | Self::Set(_) => self.length() != Some(0),
        }
    }

    fn length(&self) -> Option<usize> {
        match self {
            Self::Text(s) => Some(s.len()),
            Self::List(items) => Some(items.len()),
            Self::Map(map) => Some(map.len()),
            Self::Slots(scope) => Some(scope.slot_count()),
            Self::Set(items) => Some(items.len()),
            _ => None,
        }
    }

    /// The kind of the value, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Undefined => "undefined",
            Self::Empty => "empty",
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) | Self::Slots(_) => "an object",
            Self::Set(_) => "a set",
        }
    }

    /// The value as a number; booleans are numbers.
    fn number(&self) -> Option<Number> {
        match self {
            Self::Bool(b) => Some(Number::Integer((*b).into())),
            Self::Number(n) => Some(*n),
            _ => None,
        }
    }

    /// Whether it may be an item of a set.
    pub(super) fn is_hashable(&self) -> bool {
        !matches!(self, Self::List(_) | Self::Map(_) | Self::Slots(_))
    }

    /// `=`.
    pub(super) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Undefined | Self::Empty, Self::Undefined | Self::Empty) => true,
            (Self::Empty, sized) | (sized, Self::Empty) => sized.length() == Some(0),
            (Self::Null, Self::Null) => true,
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::List(a), Self::List(b)) => same_lists(a, b),
            (Self::Map(a), Self::Map(b)) => same_maps(a, b),
            (Self::Slots(_), Self::Slots(_)) => true,
            (Self::Slots(scope), Self::Map(map)) | (Self::Map(map), Self::Slots(scope)) => {
                map.len() == scope.slot_count()
                    && map.iter().all(|(name, value)| scope.slot(name).is_some_and(|slot| same(slot, value)))
            }
            (Self::Set(a), Self::Set(b)) => a.len() == b.len() && is_subset(a, b),
            _ => match (self.number(), other.number()) {
                (Some(a), Some(b)) => a.compare(b) == Some(Ordering::Equal),
                _ => false,
            },
        }
    }

    /// Any comparison.
    pub(super) fn compare(&self, operator: Compare, other: &Self) -> Result<bool, EvaluationError> {
        match (operator, self, other) {
            (Compare::Equal, ..) => Ok(self.equals(other)),
            // The one case where `!=` is not the negation of `=`: undefined differs from everything except itself.
            (Compare::NotEqual, Self::Undefined, Self::Empty) => Ok(true),
            (Compare::NotEqual, ..) => Ok(!self.equals(other)),
            (_, Self::Undefined | Self::Empty, _) | (_, _, Self::Undefined | Self::Empty) => Ok(false),
            (_, Self::Set(a), Self::Set(b)) => Ok(match operator {
                Compare::Less => a.len() < b.len() && is_subset(a, b),
                Compare::LessOrEqual => is_subset(a, b),
                Compare::Greater => b.len() < a.len() && is_subset(b, a),
                _ => is_subset(b, a),
            }),
            _ => self.order(other).map(|ordering| holds(operator, ordering)).unwrap_or_else(|| {
                let (left, right, sign) = (self.kind(), other.kind(), operator.sign());
                Err(EvaluationError(format!("{left} cannot be ordered against {right} with `{sign}`")))
            }),
        }
    }

    /// The order of two values; `None` if their kinds have none. The inner result is an error for lists whose items have no order.
    fn order(&self, other: &Self) -> Option<Result<Option<Ordering>, EvaluationError>> {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => Some(Ok(Some(a.cmp(b)))),
            (Self::List(a), Self::List(b)) => Some(order_lists(a, b)),
            _ => self.number().zip(other.number()).map(|(a, b)| Ok(a.compare(b))),
        }
    }

    /// `contains`, with `self` as the container.
    pub(super) fn contains(&self, item: &Value<'_>) -> Result<bool, EvaluationError> {
        let hashable = |what: &str| {
            let kind = item.kind();
            if item.is_hashable() {
                Ok(())
            } else {
                Err(EvaluationError(format!("{kind} cannot be looked up in {what}")))
            }
        };
        match self {
            Self::Undefined => Ok(false),
            Self::Text(text) => match item {
                Value::Text(part) => Ok(text.contains(part)),
                other => Err(EvaluationError(format!("{} cannot be looked up in a string", other.kind()))),
            },
            Self::List(items) => Ok(items.iter().any(|one| Value::from(one).equals(item))),
            Self::Map(map) => {
                hashable("an object")?;
                Ok(matches!(item, Value::Text(key) if map.contains_key(*key)))
            }
            Self::Slots(scope) => {
                hashable("an object")?;
                Ok(matches!(item, Value::Text(key) if scope.slot(key).is_some()))
            }
            Self::Set(items) => {
                hashable("a set")?;
                Ok(items.iter().any(|one| one.equals(item)))
            }
            Self::Empty | Self::Null | Self::Bool(_) | Self::Number(_) => Ok(false),
        }
    }

    /// Whether `contains` evaluates its right side for this container.
    pub(super) fn is_container(&self) -> bool {
        !matches!(self, Self::Empty | Self::Null | Self::Bool(_) | Self::Number(_))
    }
}

fn holds(operator: Compare, ordering: Result<Option<Ordering>, EvaluationError>) -> Result<bool, EvaluationError> {
    let ordering = ordering?;
    Ok(match operator {
        Compare::Less => ordering == Some(Ordering::Less),
        Compare::LessOrEqual => ordering.is_some_and(Ordering::is_le),
        Compare::Greater => ordering == Some(Ordering::Greater),
        Compare::GreaterOrEqual => ordering.is_some_and(Ordering::is_ge),
        Compare::Equal => ordering == Some(Ordering::Equal),
        Compare::NotEqual => ordering != Some(Ordering::Equal),
    })
}

fn same(a: &Json, b: &Json) -> bool {
    Value::from(a).equals(&Value::from(b))
}

fn same_lists(a: &[Json], b: &[Json]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
}

fn same_maps(a: &Map<String, Json>, b: &Map<String, Json>) -> bool {
    a.len() == b.len() && a.iter().all(|(key, value)| b.get(key).is_some_and(|other| same(value, other)))
}

fn is_subset(a: &[Value<'_>], b: &[Value<'_>]) -> bool {
    a.iter().all(|item| b.iter().any(|other| item.equals(other)))
}

/// Lists are ordered by their first unequal items, then by length.
fn order_lists(a: &[Json], b: &[Json]) -> Result<Option<Ordering>, EvaluationError> {
    let Some((a, b)) = a.iter().zip(b).find(|(a, b)| !same(a, b)) else { return Ok(Some(a.len().cmp(&b.len()))) };
    let (a, b) = (Value::from(a), Value::from(b));
    a.order(&b).unwrap_or_else(|| {
        Err(EvaluationError(format!("lists with {} and {} at the same position have no order", a.kind(), b.kind())))
    })
}

//! Evaluates a syntax tree against a scope.
//!
//! Allocates only for a set that is not the left side of `contains`, and for an error.

use serde_json::Value as Json;

use super::{
    Scope,
    syntax::{Compare, Connective, Name, NameRoot, Node, RegexOperand},
    value::{EvaluationError, Number, Value},
};

/// Whether the node holds.
pub(super) fn truth(node: &Node, scope: &dyn Scope) -> Result<bool, EvaluationError> {
    match node {
        Node::Chain { operands, last } => {
            for (operand, connective) in operands {
                match (truth(operand, scope)?, connective) {
                    (false, Connective::And) => return Ok(false),
                    (true, Connective::Or) => return Ok(true),
                    _ => {}
                }
            }
            truth(last, scope)
        }
        Node::Not(inner) => Ok(!truth(inner, scope)?),
        Node::Compare { left, operator, right } => compare(left, *operator, right, scope),
        Node::Contains { container, item } => contains(container, item, scope),
        Node::Matches { subject, operand } => matches(subject, operand, scope),
        _ => Ok(value(node, scope)?.is_true()),
    }
}

fn value<'a>(node: &'a Node, scope: &'a dyn Scope) -> Result<Value<'a>, EvaluationError> {
    Ok(match node {
        Node::Name(name) => look_up(name, scope)?,
        Node::Text(text) => Value::Text(text),
        Node::Number(number) => Value::Number(Number::Float(*number)),
        Node::Bool(b) => Value::Bool(*b),
        Node::Null => Value::Null,
        Node::Undefined => Value::Undefined,
        Node::Empty => Value::Empty,
        Node::Set(items) => {
            let mut values: Vec<Value<'a>> = Vec::with_capacity(items.len());
            for item in items {
                let item = set_item(item, scope)?;
                if !values.iter().any(|value| value.equals(&item)) {
                    values.push(item);
                }
            }
            Value::Set(values)
        }
        _ => Value::Bool(truth(node, scope)?),
    })
}

/// The value of a set item.
fn set_item<'a>(node: &'a Node, scope: &'a dyn Scope) -> Result<Value<'a>, EvaluationError> {
    match node {
        Node::Name(_) | Node::Text(_) | Node::Number(_) | Node::Bool(_) | Node::Null => {
            let value = value(node, scope)?;
            if value.is_hashable() {
                Ok(value)
            } else {
                Err(EvaluationError(format!("{} cannot be an item of a set", value.kind())))
            }
        }
        _ => {
            Err(EvaluationError("an item of a set must be a name, a string, a number, true, false or null".to_owned()))
        }
    }
}

fn compare(left: &Node, operator: Compare, right: &Node, scope: &dyn Scope) -> Result<bool, EvaluationError> {
    let (a, b) = (value(left, scope)?, value(right, scope)?);
    a.compare(operator, &b).map_err(|EvaluationError(message)| match (left, right) {
        (Node::Name(name), _) | (_, Node::Name(name)) => EvaluationError(format!("`{}`: {message}", name.text)),
        _ => EvaluationError(message),
    })
}

fn contains(container: &Node, item: &Node, scope: &dyn Scope) -> Result<bool, EvaluationError> {
    let Node::Set(items) = container else {
        let container = value(container, scope)?;
        return if container.is_container() { container.contains(&value(item, scope)?) } else { Ok(false) };
    };
    // For a set literal no set is built. All items are evaluated nevertheless, because each may be an error.
    let wanted = value(item, scope)?;
    if !wanted.is_hashable() {
        return Err(EvaluationError(format!("{} cannot be looked up in a set", wanted.kind())));
    }
    let mut found = false;
    for item in items {
        found |= set_item(item, scope)?.equals(&wanted);
    }
    Ok(found)
}

fn matches(subject: &Node, operand: &RegexOperand, scope: &dyn Scope) -> Result<bool, EvaluationError> {
    let Value::Text(text) = value(subject, scope)? else { return Ok(false) };
    let result = operand.regex.is_match(text);
    match result.error() {
        Some(error) => Err(EvaluationError(error)),
        None => Ok(result.is_match()),
    }
}

fn look_up<'a>(name: &Name, scope: &'a dyn Scope) -> Result<Value<'a>, EvaluationError> {
    let mut path = name.path();
    let start = match name.root {
        NameRoot::Bare => None,
        NameRoot::Slots => return Ok(Value::Slots(scope)),
        NameRoot::Context => return Ok(scope.context().map_or(Value::Undefined, Value::from)),
        NameRoot::InSlots => path.next().and_then(|slot| scope.slot(slot)),
        NameRoot::InContext => scope.context(),
    };
    let Some(mut at) = start else { return Ok(Value::Undefined) };
    for part in path {
        match step(at, part)
            .map_err(|kind| EvaluationError(format!("`{}`: `{part}` is looked up in {kind}", name.text)))?
        {
            Some(inner) => at = inner,
            None => return Ok(Value::Undefined),
        }
    }
    Ok(Value::from(at))
}

/// One step of a dotted name. As in pypred, a list or string that does not contain the part gives undefined; one that contains it is
/// an error (the part is found but cannot be indexed), and so is any other value except an object.
fn step<'a>(at: &'a Json, part: &str) -> Result<Option<&'a Json>, &'static str> {
    let contains_part = match at {
        Json::Object(map) => return Ok(map.get(part)),
        Json::Array(items) => items.iter().any(|item| item.as_str() == Some(part)),
        Json::String(text) => text.contains(part),
        _ => true,
    };
    if contains_part { Err(Value::from(at).kind()) } else { Ok(None) }
}

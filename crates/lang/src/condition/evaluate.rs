//! Walks the tree against a scope.
//!
//! Nothing is allocated unless a set stands somewhere else than left of `contains`, or an exception is told.

use serde_json::Value as Json;

use super::{
    Scope,
    syntax::{Compare, Link, Name, Node, Root, Search},
    value::{Number, Trouble, Value},
};

/// Whether the node holds.
pub(super) fn truth(node: &Node, scope: &dyn Scope) -> Result<bool, Trouble> {
    match node {
        Node::Chain { links, last } => {
            for (operand, link) in links {
                match (truth(operand, scope)?, link) {
                    (false, Link::And) => return Ok(false),
                    (true, Link::Or) => return Ok(true),
                    _ => {}
                }
            }
            truth(last, scope)
        }
        Node::Not(inner) => Ok(!truth(inner, scope)?),
        Node::Compare { left, operator, right } => compare(left, *operator, right, scope),
        Node::Contains { container, item } => contains(container, item, scope),
        Node::Matches { subject, pattern } => matches(subject, pattern, scope),
        _ => Ok(value(node, scope)?.is_true()),
    }
}

fn value<'a>(node: &'a Node, scope: &'a dyn Scope) -> Result<Value<'a>, Trouble> {
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
                let item = member(item, scope)?;
                if !values.iter().any(|one| one.equals(&item)) {
                    values.push(item);
                }
            }
            Value::Set(values)
        }
        _ => Value::Bool(truth(node, scope)?),
    })
}

/// The value of an item of a set.
fn member<'a>(node: &'a Node, scope: &'a dyn Scope) -> Result<Value<'a>, Trouble> {
    match node {
        Node::Name(_) | Node::Text(_) | Node::Number(_) | Node::Bool(_) | Node::Null => {
            let value = value(node, scope)?;
            if value.is_hashable() {
                Ok(value)
            } else {
                Err(Trouble(format!("{} cannot be an item of a set", value.kind())))
            }
        }
        _ => Err(Trouble("an item of a set must be a name, a text, a number, true, false or null".to_owned())),
    }
}

fn compare(left: &Node, operator: Compare, right: &Node, scope: &dyn Scope) -> Result<bool, Trouble> {
    let (a, b) = (value(left, scope)?, value(right, scope)?);
    a.compare(operator, &b).map_err(|Trouble(why)| match (left, right) {
        (Node::Name(name), _) | (_, Node::Name(name)) => Trouble(format!("`{}`: {why}", name.text)),
        _ => Trouble(why),
    })
}

fn contains(container: &Node, item: &Node, scope: &dyn Scope) -> Result<bool, Trouble> {
    let Node::Set(items) = container else {
        let container = value(container, scope)?;
        return if container.is_container() { container.contains(&value(item, scope)?) } else { Ok(false) };
    };
    // A set literal needs no set: all items are still evaluated, since any of them may be an exception.
    let wanted = value(item, scope)?;
    if !wanted.is_hashable() {
        return Err(Trouble(format!("{} cannot be looked for in a set", wanted.kind())));
    }
    let mut found = false;
    for item in items {
        found |= member(item, scope)?.equals(&wanted);
    }
    Ok(found)
}

fn matches(subject: &Node, search: &Search, scope: &dyn Scope) -> Result<bool, Trouble> {
    let Value::Text(text) = value(subject, scope)? else { return Ok(false) };
    let verdict = search.pattern.is_match(text);
    match verdict.trouble() {
        Some(trouble) => Err(Trouble(trouble)),
        None => Ok(verdict.is_match()),
    }
}

fn look_up<'a>(name: &Name, scope: &'a dyn Scope) -> Result<Value<'a>, Trouble> {
    let mut path = name.path();
    let start = match name.root {
        Root::Bare => None,
        Root::Slots => return Ok(Value::Slots(scope)),
        Root::Context => return Ok(scope.context().map_or(Value::Undefined, Value::from)),
        Root::InSlots => path.next().and_then(|slot| scope.slot(slot)),
        Root::InContext => scope.context(),
    };
    let Some(mut at) = start else { return Ok(Value::Undefined) };
    for part in path {
        match step(at, part).map_err(|kind| Trouble(format!("`{}`: `{part}` is looked up in {kind}", name.text)))? {
            Some(inner) => at = inner,
            None => return Ok(Value::Undefined),
        }
    }
    Ok(Value::from(at))
}

/// One step of a dotted name. As ever, a list or text that does not hold the part gives undefined, one that does hold it is an
/// exception (it can be found but not indexed), and so is anything without parts.
fn step<'a>(at: &'a Json, part: &str) -> Result<Option<&'a Json>, &'static str> {
    let holds_it = match at {
        Json::Object(map) => return Ok(map.get(part)),
        Json::Array(items) => items.iter().any(|item| item.as_str() == Some(part)),
        Json::String(text) => text.contains(part),
        _ => true,
    };
    if holds_it { Err(Value::from(at).kind()) } else { Ok(None) }
}

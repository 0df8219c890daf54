//! Filters and functions of Jinja2 that minijinja lacks or implements differently, and those of Rasa prompts.
//!
//! Filters are deterministic and read nothing but their arguments: the same template with the same values always renders the same text.

use minijinja::{
    Environment, Error, ErrorKind, State, UndefinedBehavior, Value,
    value::{Kwargs, Rest, ValueKind, ValueOrKwargs, from_args},
};
use minijinja_contrib::{filters as contrib, globals};

use super::{
    engine::{from_json, to_json},
    python::{JsonStyle, json_text},
};
use crate::limits::TEMPLATE_JSON_BYTES;

pub(super) fn register(env: &mut Environment<'static>) {
    env.add_filter("to_json_escaped_string", json_escaped);
    env.add_filter("json", json_escaped);
    env.add_filter("tojson", tojson);
    env.add_filter("fromjson", fromjson);
    env.add_filter("truncate", truncate);
    env.add_filter("center", center);
    env.add_filter("wordcount", wordcount);
    env.add_filter("striptags", contrib::striptags);
    env.add_filter("filesizeformat", contrib::filesizeformat);
    env.add_filter("length", length);
    env.add_filter("count", length);
    env.add_filter("int", int);
    env.add_filter("float", float);
    env.add_filter("replace", replace);
    // Jinja2 takes the items as arguments, minijinja-contrib as one list.
    env.add_function("cycler", |items: Rest<Value>| globals::cycler(items.0));
    env.add_function("joiner", globals::joiner);
}

fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// `to_json_escaped_string`: the value as JSON, with keys in their order and non-ASCII characters as they are.
fn json_escaped(state: &mut State<'_, '_>, value: &Value) -> Result<String, Error> {
    if value.is_undefined() {
        // The output must be valid JSON, so an undefined name becomes an empty string.
        return match state.undefined_behavior() {
            UndefinedBehavior::Strict => Err(Error::from(ErrorKind::UndefinedError)),
            _ => Ok("\"\"".to_owned()),
        };
    }
    Ok(json_text(&to_json(value)?, JsonStyle::default()))
}

/// `tojson(indent=None)` as in Jinja2: sorted keys, only ASCII, safe in HTML.
fn tojson(value: &Value, indent: Option<usize>, options: Kwargs) -> Result<String, Error> {
    let indent = indent.or(options.get("indent")?);
    options.assert_all_used()?;
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    let indent = indent.map(|width| width.min(16)); // a larger indent only costs tokens
    Ok(json_text(&to_json(value)?, JsonStyle { indent, sorted: true, escaped: true }))
}

/// `fromjson`: parses a string of JSON; other values are returned unchanged.
fn fromjson(value: &Value) -> Result<Value, Error> {
    let Some(text) = value.as_str() else { return Ok(value.clone()) };
    if text.len() > TEMPLATE_JSON_BYTES {
        return Err(refused(format!("a JSON text of more than {TEMPLATE_JSON_BYTES} bytes is not read")));
    }
    serde_json::from_str(text)
        .map(|json| from_json(&json))
        .map_err(|error| refused(format!("not a JSON text: {error}")))
}

/// `truncate(length=255, killwords=False, end='...', leeway=5)`, counting characters as Python does.
fn truncate(text: String, rest: Rest<ValueOrKwargs>) -> Result<String, Error> {
    type Arguments = (Option<usize>, Option<bool>, Option<String>, Option<usize>, Kwargs);
    let rest = rest.into_values();
    let (length, killwords, end, leeway, options) = from_args::<Arguments>(&rest)?;
    let length = length.or(options.get("length")?).unwrap_or(255);
    let killwords = killwords.or(options.get("killwords")?).unwrap_or(false);
    let end = end.or(options.get("end")?).unwrap_or_else(|| "...".to_owned());
    let leeway = leeway.or(options.get("leeway")?).unwrap_or(5);
    options.assert_all_used()?;
    let mark = end.chars().count();
    if length < mark {
        return Err(refused(format!("truncate: the length {length} is less than that of its end mark, {mark}")));
    }
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(text);
    }
    let head: String = text.chars().take(length - mark).collect();
    let kept = if killwords { &head } else { head.rsplit_once(' ').map_or(head.as_str(), |(words, _)| words) };
    Ok(format!("{kept}{end}"))
}

/// `center(width=80)`.
fn center(text: String, width: Option<usize>, options: Kwargs) -> Result<String, Error> {
    let width = width.or(options.get("width")?).unwrap_or(80);
    options.assert_all_used()?;
    super::methods::padded(&text, width, ' ', super::methods::Side::Both)
}

/// `wordcount`: runs of letters, digits and underscores.
fn wordcount(text: String) -> usize {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty()).count()
}

/// `length`: as in Jinja2, an undefined name has length 0 in lenient mode.
fn length(state: &mut State<'_, '_>, value: &Value) -> Result<usize, Error> {
    match (value.kind(), state.undefined_behavior()) {
        (ValueKind::Undefined, UndefinedBehavior::Strict) => Err(Error::from(ErrorKind::UndefinedError)),
        (ValueKind::Undefined, _) => Ok(0),
        _ => value.len().ok_or_else(|| refused(format!("a {} has no length", value.kind()))),
    }
}

/// `int(default=0, base=10)`: the default if the value is not a number.
fn int(
    state: &mut State<'_, '_>,
    value: &Value,
    default: Option<Value>,
    base: Option<u32>,
    options: Kwargs,
) -> Result<Value, Error> {
    let default = default.or(options.get("default")?).unwrap_or_else(|| Value::from(0));
    let base = base.or(options.get("base")?).unwrap_or(10);
    options.assert_all_used()?;
    if !(2..=36).contains(&base) {
        return Err(refused("int: the base is a number from 2 to 36"));
    }
    if let Some(integer) = value.as_str().and_then(|text| i64::from_str_radix(text.trim(), base).ok()) {
        return Ok(Value::from(integer));
    }
    if value.is_integer() {
        return Ok(value.clone());
    }
    // A larger float does not fit into an i64.
    let float = as_float(state, value)?.filter(|float| float.abs() < 9.2e18);
    Ok(float.map_or(default, |float| Value::from(float.trunc() as i64)))
}

/// `float(default=0.0)`: the default if the value is not a number.
fn float(state: &mut State<'_, '_>, value: &Value, default: Option<Value>, options: Kwargs) -> Result<Value, Error> {
    let default = default.or(options.get("default")?).unwrap_or_else(|| Value::from(0.0));
    options.assert_all_used()?;
    Ok(as_float(state, value)?.map_or(default, Value::from))
}

fn as_float(state: &State<'_, '_>, value: &Value) -> Result<Option<f64>, Error> {
    Ok(match (value.kind(), state.undefined_behavior()) {
        (ValueKind::Undefined, UndefinedBehavior::Strict) => return Err(Error::from(ErrorKind::UndefinedError)),
        (ValueKind::String, _) => value.as_str().and_then(|text| text.trim().parse().ok()),
        (ValueKind::Bool, _) => Some(f64::from(u8::from(value.is_true()))),
        (ValueKind::Number, _) => f64::try_from(value.clone()).ok(),
        _ => None,
    })
}

/// `replace(old, new, count=None)`.
fn replace(text: String, old: String, new: String, count: Option<usize>, options: Kwargs) -> Result<String, Error> {
    let count = count.or(options.get("count")?);
    options.assert_all_used()?;
    Ok(match count {
        Some(count) => text.replacen(&old, &new, count),
        None => text.replace(&old, &new),
    })
}

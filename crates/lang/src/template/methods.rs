//! Python methods of template values: those of `minijinja-contrib`, and some that it lacks.

use std::sync::LazyLock;

use minijinja::{
    Error, ErrorKind, State, Value,
    value::{Tuple, ValueKind, from_args},
};
use minijinja_contrib::pycompat;

use crate::limits::TEMPLATE_PAD_CHARS;

/// Calls a method that the value itself does not implement.
pub(super) fn call(state: &mut State<'_, '_>, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(text) = value.as_str()
        && let Some(result) = call_on_string(text, method, args)
    {
        return result;
    }
    if let (Some(number), "is_integer") = (f64::try_from(value.clone()).ok(), method) {
        let () = from_args(args)?;
        return Ok(Value::from(number.fract() == 0.0));
    }
    if let (ValueKind::Seq, "index") = (value.kind(), method) {
        let (wanted,): (&Value,) = from_args(args)?;
        let at = value.try_iter()?.position(|item| item == *wanted);
        return at.map(Value::from).ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "index: no such item"));
    }
    if let ("copy", Some(_)) = (method, value.as_object()) {
        let () = from_args(args)?;
        return Ok(value.clone()); // values are immutable
    }
    pycompat::unknown_method_callback(state, value, method, args)
}

fn call_on_string(text: &str, method: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    Some(match method {
        "ljust" => pad(text, args, Side::Right),
        "rjust" => pad(text, args, Side::Left),
        "center" => pad(text, args, Side::Both),
        "zfill" => from_args(args).and_then(|(width,): (usize,)| zfill(text, width)).map(Value::from),
        "removeprefix" => {
            from_args(args).map(|(prefix,): (&str,)| Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        "removesuffix" => {
            from_args(args).map(|(suffix,): (&str,)| Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        "casefold" => from_args(args).map(|()| Value::from(text.to_lowercase().replace('ß', "ss"))),
        "swapcase" => from_args(args).map(|()| Value::from(swapcase(text))),
        "partition" => from_args(args).and_then(|(at,): (&str,)| partition(text, at, text.split_once(at), false)),
        "rpartition" => from_args(args).and_then(|(at,): (&str,)| partition(text, at, text.rsplit_once(at), true)),
        "rsplit" => from_args(args).map(|(at, most): (Option<&str>, Option<usize>)| rsplit(text, at, most)),
        "isdecimal" => from_args(args).map(|()| Value::from(is_decimal(text))),
        _ => return None,
    })
}

/// The side of a string that is padded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
    Both,
}

fn pad(text: &str, args: &[Value], side: Side) -> Result<Value, Error> {
    let (width, fill): (usize, Option<char>) = from_args(args)?;
    padded(text, width, fill.unwrap_or(' '), side).map(Value::from)
}

pub(super) fn padded(text: &str, width: usize, fill: char, side: Side) -> Result<String, Error> {
    if width > TEMPLATE_PAD_CHARS {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("a width of more than {TEMPLATE_PAD_CHARS} is refused"),
        ));
    }
    let missing = width.saturating_sub(text.chars().count());
    let left = match side {
        Side::Left => missing,
        Side::Right => 0,
        // Python puts the odd space on the left if the width is odd.
        Side::Both => missing / 2 + (missing & width & 1),
    };
    let run = |n: usize| std::iter::repeat_n(fill, n).collect::<String>();
    Ok([run(left).as_str(), text, run(missing - left).as_str()].concat())
}

fn zfill(text: &str, width: usize) -> Result<String, Error> {
    let (sign, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (text.get(..1).unwrap_or_default(), digits),
        None => ("", text),
    };
    Ok([sign, &padded(digits, width.saturating_sub(sign.len()), '0', Side::Left)?].concat())
}

fn swapcase(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_uppercase() {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
    }
    out
}

fn partition(text: &str, at: &str, parts: Option<(&str, &str)>, from_end: bool) -> Result<Value, Error> {
    if at.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "partition needs a separator that is not empty"));
    }
    let parts = match parts {
        Some((before, after)) => [before, at, after],
        None if from_end => ["", "", text],
        None => [text, "", ""],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from))))
}

fn rsplit(text: &str, at: Option<&str>, most: Option<usize>) -> Value {
    let limit = most.map_or(usize::MAX, |most| most.saturating_add(1));
    let mut parts: Vec<&str> = match at {
        Some(at) => text.rsplitn(limit, at).collect(),
        None => rsplit_whitespace(text, most.unwrap_or(usize::MAX)),
    };
    parts.reverse();
    parts.into_iter().collect()
}

/// The words of a text from its end. A run of white space is one separator; the rest after `most` words keeps its own white space.
fn rsplit_whitespace(text: &str, most: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_end();
    while parts.len() < most
        && let Some((before, last)) = rest.rsplit_once(char::is_whitespace)
    {
        parts.push(last);
        rest = before.trim_end();
    }
    parts.extend(Some(rest).filter(|rest| !rest.is_empty()));
    parts
}

/// Whether a text consists of decimal digits of any script, without fractions or superscripts.
fn is_decimal(text: &str) -> bool {
    static DIGITS: LazyLock<Option<regex::Regex>> = LazyLock::new(|| regex::Regex::new(r"^\p{Nd}+$").ok());
    DIGITS.as_ref().is_some_and(|digits| digits.is_match(text))
}

//! Python's `str()`, `repr()` and `json.dumps()` for JSON values.

use std::{borrow::Cow, fmt::Write};

use serde_json::Value as Json;

use crate::text::is_hidden;

/// A float in the form of Python's `repr`: `50.0`, `1e-07`, `1e+16`, `nan`.
pub fn float_text(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{value:e}"); // both languages print the shortest digits that read back the same
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let mut text = value.to_string();
        if !text.contains('.') {
            text.push_str(".0");
        }
        return text;
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

/// A value in the form of Python's `str`: strings as they are, `None`, `True`, `50.0`, `['a', 1]`.
pub fn python_text(value: &Json) -> Cow<'_, str> {
    match value {
        Json::String(text) => Cow::Borrowed(text),
        Json::Null => Cow::Borrowed("None"),
        Json::Bool(true) => Cow::Borrowed("True"),
        Json::Bool(false) => Cow::Borrowed("False"),
        other => {
            let mut out = String::new();
            write_repr(other, &mut out);
            Cow::Owned(out)
        }
    }
}

fn write_repr(value: &Json, out: &mut String) {
    match value {
        Json::String(text) => write_string_repr(text, out),
        Json::Number(number) => write_number(number, out),
        Json::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                write_repr(item, out);
            }
            out.push(']');
        }
        Json::Object(map) => {
            out.push('{');
            for (at, (key, item)) in map.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                write_string_repr(key, out);
                out.push_str(": ");
                write_repr(item, out);
            }
            out.push('}');
        }
        simple => out.push_str(&python_text(simple)),
    }
}

fn write_number(number: &serde_json::Number, out: &mut String) {
    match number.as_f64() {
        Some(float) if number.is_f64() => out.push_str(&float_text(float)),
        _ => out.push_str(&number.to_string()),
    }
}

fn write_string_repr(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c if is_hidden(c) => push_escape(c, out),
            c => out.push(c),
        }
    }
    out.push(quote);
}

fn push_escape(c: char, out: &mut String) {
    let code = u32::from(c);
    // Writing to a String cannot fail.
    let _ = match code {
        0..=0xFF => write!(out, "\\x{code:02x}"),
        0x100..=0xFFFF => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
}

/// The layout of JSON output.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JsonStyle {
    /// Spaces per level; `None` puts everything on one line, separated by `, ` and `: `.
    pub(super) indent: Option<usize>,
    /// Sort keys.
    pub(super) sorted: bool,
    /// Write only ASCII, and `<`, `>`, `&`, `'` as escapes, as Jinja2's `tojson` does.
    pub(super) escaped: bool,
}

/// JSON in the form of Python's `json.dumps`.
pub(super) fn json_text(value: &Json, style: JsonStyle) -> String {
    let mut out = String::new();
    write_json(value, style, 1, &mut out);
    out
}

fn write_json(value: &Json, style: JsonStyle, level: usize, out: &mut String) {
    match value {
        Json::String(text) => write_json_string(text, style, out),
        Json::Number(number) => write_number(number, out),
        Json::Array(items) if !items.is_empty() => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                separate(at, style, level, out);
                write_json(item, style, level + 1, out);
            }
            line_break(style, level - 1, out);
            out.push(']');
        }
        Json::Object(map) if !map.is_empty() => {
            let mut entries: Vec<_> = map.iter().collect();
            if style.sorted {
                entries.sort_by_key(|(key, _)| *key);
            }
            out.push('{');
            for (at, (key, item)) in entries.into_iter().enumerate() {
                separate(at, style, level, out);
                write_json_string(key, style, out);
                out.push_str(": ");
                write_json(item, style, level + 1, out);
            }
            line_break(style, level - 1, out);
            out.push('}');
        }
        simple => out.push_str(&simple.to_string()),
    }
}

fn separate(at: usize, style: JsonStyle, level: usize, out: &mut String) {
    if at > 0 {
        out.push_str(if style.indent.is_some() { "," } else { ", " });
    }
    line_break(style, level, out);
}

fn line_break(style: JsonStyle, level: usize, out: &mut String) {
    if let Some(width) = style.indent {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', width.saturating_mul(level)));
    }
}

fn write_json_string(text: &str, style: JsonStyle, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{C}' => out.push_str("\\f"),
            '\0'..='\u{1F}' => push_u16(u16::try_from(u32::from(c)).unwrap_or(0), out),
            '<' | '>' | '&' | '\'' | '\u{7F}'.. if style.escaped => {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| push_u16(*unit, out));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn push_u16(unit: u16, out: &mut String) {
    let _ = write!(out, "\\u{unit:04x}"); // writing to a String cannot fail
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
    use serde_json::json;

    use super::*;

    #[test]
    fn floats_print_as_in_python() {
        let table = [
            (50.0, "50.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e-7, "1.5e-07"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-0.0, "-0.0"),
            (1e100, "1e+100"),
            (123_456_789.123, "123456789.123"),
        ];
        for (value, text) in table {
            assert_eq!(float_text(value), text);
        }
    }

    #[test]
    fn values_print_as_in_python() {
        let value = json!({"a": [1, 2.0, null, true], "it's": "say \"hi\"\n", "q": "it's"});
        assert_eq!(python_text(&value), r#"{'a': [1, 2.0, None, True], "it's": 'say "hi"\n', 'q': "it's"}"#);
        assert_eq!(python_text(&json!("plain ' text")), "plain ' text");
        assert_eq!(python_text(&json!(["\u{200B}\u{1}"])), r"['\u200b\x01']");
    }
}

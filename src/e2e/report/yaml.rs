//! Writing plain data as YAML in blocks: the little of it that result files need. Texts stand in double quotes, so that no
//! reader takes them for anything else.

use serde_json::Value as Json;

/// The data as a YAML file.
pub(super) fn write(value: &Json) -> String {
    let mut out = String::new();
    match value {
        Json::Object(fields) if !fields.is_empty() => block(value, 0, &mut out),
        Json::Array(items) if !items.is_empty() => block(value, 0, &mut out),
        scalar => {
            out.push_str(&scalar.to_string());
            out.push('\n');
        }
    }
    out
}

fn block(value: &Json, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Json::Object(fields) => {
            for (at, (key, value)) in fields.iter().enumerate() {
                // The first key of a map in a list stands behind its dash.
                if at > 0 || !out.ends_with("- ") {
                    out.push_str(&indent);
                }
                out.push_str(&name(key));
                out.push(':');
                under(value, depth + 1, out);
            }
        }
        Json::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                if at > 0 || !out.ends_with("- ") {
                    out.push_str(&indent);
                }
                out.push_str("- ");
                match item {
                    Json::Object(fields) if !fields.is_empty() => block(item, depth + 1, out),
                    Json::Array(inner) if !inner.is_empty() => block(item, depth + 1, out),
                    scalar => {
                        out.push_str(&scalar.to_string());
                        out.push('\n');
                    }
                }
            }
        }
        _ => {}
    }
}

fn under(value: &Json, depth: usize, out: &mut String) {
    match value {
        Json::Object(fields) if !fields.is_empty() => {
            out.push('\n');
            block(value, depth, out);
        }
        Json::Array(items) if !items.is_empty() => {
            out.push('\n');
            block(value, depth, out);
        }
        scalar => {
            out.push(' ');
            out.push_str(&scalar.to_string());
            out.push('\n');
        }
    }
}

/// A key: plain where nothing could be mistaken.
fn name(key: &str) -> String {
    let plain = !key.is_empty()
        && key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let words = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    if plain && !words.contains(&key.to_ascii_lowercase().as_str()) {
        key.to_owned()
    } else {
        Json::from(key).to_string()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_read_as_it_was() {
        for value in [
            json!({"a": [{"b": 1, "c": [[1, [2]], {}, [], null]}, "x: y # z\n\u{1}ü"], "yes": {"": true, "d e": 1.5}}),
            json!([]),
            json!({}),
            json!("text"),
            json!([[{"a": {"b": {"c": [{"d": []}]}}}]]),
        ] {
            let text = write(&value);
            let read: Json = serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert_eq!(read, value, "{text}");
        }
    }
}

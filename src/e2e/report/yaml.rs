//! Writing YAML files. All strings are quoted, so that no parser reads one as a number or a boolean.

use serde_json::Value as Json;

/// The data as a YAML file.
pub(super) fn write(value: &Json) -> String {
    let options = serde_yaml::ser_options! { quote_all: true, compact_list_indent: false };
    // Every JSON value can be written as YAML.
    serde_yaml::to_string_with_options(value, options).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn written_yaml_is_read_back_unchanged() {
        for value in [
            json!({"a": [{"b": 1, "c": [[1, [2]], {}, [], null]}, "x: y # z\n\u{1}ü"], "yes": {"": true, "d e": 1.5}}),
            json!([]),
            json!({}),
            json!("text"),
            json!(["yes", "1.5", "null", " \"a\" ", "'b'", "c\\d", "- e\nf\n", "…".repeat(300)]),
            json!({"hel\u{7f}lo": "a\u{7f}b\u{80}c\u{85}d\u{9f}e\u{2028}f\u{2029}g\u{feff}h\u{fffe}\u{b}\t\r\n\u{e000}\u{1f600}"}),
            json!([[{"a": {"b": {"c": [{"d": []}]}}}]]),
        ] {
            let text = write(&value);
            let read: Json = serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert_eq!(read, value, "{text}");
            let is_printable =
                |c: char| matches!(c, '\n' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..);
            assert!(text.chars().all(|c| is_printable(c) && c != '\u{feff}'), "YAML 1.2.2, section 5.1: {text:?}");
        }
    }
}

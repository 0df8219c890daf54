//! Result files as YAML. Texts are quoted, so that no reader takes them for anything else.

use serde_json::Value as Json;

/// The data as a YAML file.
pub(super) fn write(value: &Json) -> String {
    let options = serde_yaml::ser_options! { quote_all: true, compact_list_indent: false };
    // Plain JSON has nothing that YAML cannot say.
    serde_yaml::to_string_with_options(value, options).unwrap_or_default()
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
            json!(["yes", "1.5", "null", " \"a\" ", "'b'", "c\\d", "- e\nf\n", "…".repeat(300)]),
            json!([[{"a": {"b": {"c": [{"d": []}]}}}]]),
        ] {
            let text = write(&value);
            let read: Json = serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert_eq!(read, value, "{text}");
        }
    }
}

//! Slot values as models write them.

use segue_engine::{conversation::FilledBy, project::SlotType};
use serde_json::Value as Json;

/// The origin that is recorded for slots filled by these commands.
pub(super) const FILLED_BY: FilledBy = FilledBy::Llm;

/// Values that mean an empty slot. The comparison is exact: `none` and `NULL` are ordinary text.
const EMPTY_VALUES: [&str; 5] = ["[missing information]", "[missing]", "None", "undefined", "null"];

/// A value without the quotes and white space around it.
pub(super) fn trimmed(value: &str) -> &str {
    value.trim_matches(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`' | '“' | '”' | '‘' | '’'))
}

/// A value for a slot of type `kind`. The dialogue engine converts it to the type; here only the punctuation at the end of a
/// sentence is removed from values that cannot end with it.
pub(super) fn value(written: &str, kind: &SlotType) -> Json {
    let mut text = trimmed(written);
    if matches!(kind, SlotType::Bool | SlotType::Float { .. } | SlotType::Categorical(_)) && !is_category(kind, text) {
        text = text.trim_end_matches(['.', ',', ';', '!', '*', '`', '"', '\'']).trim_end();
    }
    if text.is_empty() || EMPTY_VALUES.contains(&text) { Json::Null } else { Json::from(text) }
}

fn is_category(kind: &SlotType, text: &str) -> bool {
    matches!(kind, SlotType::Categorical(values) if values.iter().any(|value| **value == *text))
}

/// The value after a slot's name in `set slot <slot> <value>`; `None` when nothing follows the name.
pub(super) fn value_of_words(after: &str) -> Option<&str> {
    let text = after.trim();
    let text = text.strip_prefix("->").or_else(|| text.strip_prefix('=')).or_else(|| {
        // A colon is a separator only directly after the name or before a space: `:30` is a value.
        text.strip_prefix(':').filter(|rest| after.starts_with(':') || rest.starts_with(' '))
    });
    let text = text.unwrap_or_else(|| after.trim());
    (!text.trim().is_empty()).then_some(text)
}

/// The value of an argument, without a keyword before it: `value="x"`.
pub(super) fn argument(text: &str) -> &str {
    let text = text.trim();
    match text.split_once('=') {
        Some((word, rest)) if KEYWORDS.contains(&word.trim()) => rest.trim(),
        _ => text,
    }
}

const KEYWORDS: [&str; 10] =
    ["name", "slot", "slot_name", "value", "flow", "flow_name", "flow_id", "options", "agent", "agent_id"];

/// Whether the text after a complete command has no effect: punctuation, or a remark in parentheses or after a dash.
pub(super) fn is_remark(rest: &str) -> bool {
    let rest = rest.trim_start();
    ["(", "#", "//", "—", "–", "- "].iter().any(|open| rest.starts_with(open)) || !rest.contains(char::is_alphanumeric)
}

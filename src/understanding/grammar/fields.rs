//! Values as models write them.

use segue_engine::{conversation::FilledBy, project::SlotType};
use serde_json::Value as Json;

/// Who fills slots here.
pub(super) const BY: FilledBy = FilledBy::Llm;

/// What stands for an empty slot, in exactly these letters.
const NOTHING: [&str; 5] = ["[missing information]", "[missing]", "None", "undefined", "null"];

/// A value without the quotes and blanks around it.
pub(super) fn trimmed(value: &str) -> &str {
    value.trim_matches(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`' | '“' | '”' | '‘' | '’'))
}

/// A value for a slot of that type. The type itself is the engine's matter; here only the full stop of a sentence is taken
/// from values that cannot end with one.
pub(super) fn value(written: &str, kind: &SlotType) -> Json {
    let mut text = trimmed(written);
    if matches!(kind, SlotType::Bool | SlotType::Float { .. } | SlotType::Categorical(_)) && !is_category(kind, text) {
        text = text.trim_end_matches(['.', ',', ';', '!', '*', '`', '"', '\'']).trim_end();
    }
    if text.is_empty() || NOTHING.contains(&text) { Json::Null } else { Json::from(text) }
}

fn is_category(kind: &SlotType, text: &str) -> bool {
    matches!(kind, SlotType::Categorical(values) if values.iter().any(|value| **value == *text))
}

/// The value behind the name of a slot in words; `None` when there is none.
pub(super) fn value_of_words(after: &str) -> Option<&str> {
    let text = after.trim();
    let text = text.strip_prefix("->").or_else(|| text.strip_prefix('=')).or_else(|| {
        // A colon belongs to the form only right behind the name or with a blank after it: `:30` is a value.
        text.strip_prefix(':').filter(|rest| after.starts_with(':') || rest.starts_with(' '))
    });
    let text = text.unwrap_or_else(|| after.trim());
    (!text.trim().is_empty()).then_some(text)
}

/// The value of an argument, without the keyword that some models write before it: `value="x"`.
pub(super) fn argument(text: &str) -> &str {
    let text = text.trim();
    match text.split_once('=') {
        Some((word, rest)) if KEYWORDS.contains(&word.trim()) => rest.trim(),
        _ => text,
    }
}

const KEYWORDS: [&str; 10] =
    ["name", "slot", "slot_name", "value", "flow", "flow_name", "flow_id", "options", "agent", "agent_id"];

/// Whether what follows a whole command changes nothing: closing signs, or a remark in parentheses or behind a dash.
pub(super) fn is_remark(rest: &str) -> bool {
    let rest = rest.trim_start();
    ["(", "#", "//", "—", "–", "- "].iter().any(|open| rest.starts_with(open)) || !rest.contains(char::is_alphanumeric)
}

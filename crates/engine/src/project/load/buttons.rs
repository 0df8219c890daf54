//! Buttons, and what their payloads fill.

use serde_json::{Map, Value as Json};

use super::{
    super::{ResponseText, keys::BUTTON, reader::Reader, uses::Used, yaml::Node},
    responses::text,
};
use crate::limits::PAYLOAD_PAIRS;

const SET_SLOTS: &str = "/SetSlots(";

impl Reader<'_> {
    /// One button: title, payload, and every other key.
    pub(super) fn button(
        &mut self,
        node: &Node,
        jinja: bool,
    ) -> Option<(ResponseText, ResponseText, Map<String, Json>)> {
        let fields = self.fields(node, &BUTTON)?;
        let title = fields.node("title")?;
        let payload = fields.node("payload").unwrap_or(title);
        self.payload(payload);
        let mut extra = node.json_map();
        extra.retain(|key, _| key != "title" && key != "payload");
        Some((text(self, title, jinja)?, text(self, payload, jinja)?, extra))
    }

    fn payload(&mut self, node: &Node) {
        let Some(written) = node.text() else { return };
        let lower = written.to_ascii_lowercase();
        if lower.starts_with("/setslots(") && !written.starts_with(SET_SLOTS) {
            let help = "Write `/SetSlots(slot=value)` exactly so.";
            self.error("F0311", node, "`/SetSlots` is written with a capital S twice", help);
            return;
        }
        let Some(inner) = written.strip_prefix(SET_SLOTS) else {
            if let Some(intent) = intent_of(written) {
                let place = node.place_at(&self.file, 1, intent.chars().count());
                self.uses_name(Used::ButtonIntent, intent, place);
            }
            return;
        };
        if !inner.trim_end().ends_with(')') {
            self.error("F0311", node, "the payload `/SetSlots(` is never closed", "End it with `)`.");
            return;
        }
        if written.matches('=').count() > PAYLOAD_PAIRS {
            let message = format!("a payload fills at most {PAYLOAD_PAIRS} slots; this one would be ignored");
            self.error("F0311", node, message, "Split it, or fill the slots in a flow.");
        }
        let pairs = payload_slots(written);
        if pairs.is_empty() {
            let help = "Write `/SetSlots(slot=value, other=value)`.";
            self.error("F0311", node, "the payload fills no slot", help);
        }
        for (name, at, value) in pairs {
            let offset = written.get(..at).map_or(0, |before| before.chars().count());
            let place = node.place_at(&self.file, offset, name.chars().count());
            self.uses_name(Used::PayloadSlot, name, place);
            self.fills_slot(name, Json::from(value), Some(self.response.clone()), node);
        }
    }
}

/// The intent of `/greet` or `/greet{{"name": "x"}}`; none where a slot may stand for a part of it.
fn intent_of(payload: &str) -> Option<&str> {
    let rest = payload.strip_prefix('/')?;
    let end = rest.find(|c: char| !(c.is_alphanumeric() || "_-+.".contains(c))).unwrap_or(rest.len());
    let (intent, after) = rest.split_at_checked(end)?;
    let is_whole = after.trim().is_empty() || after.starts_with("{{") || after.starts_with("{\"");
    (!intent.is_empty() && is_whole).then_some(intent)
}

/// The slots of `/SetSlots(a=1, b=two)`: name, its byte offset in the payload, and value.
fn payload_slots(payload: &str) -> Vec<(&str, usize, &str)> {
    let Some(inner) = payload.strip_prefix(SET_SLOTS) else { return Vec::new() };
    let mut found = Vec::new();
    let mut depth = 0_u32;
    let mut start = 0;
    let mut name: Option<(&str, usize)> = None;
    let mut value = 0;
    for (at, c) in inner.char_indices() {
        match c {
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            '=' if name.is_none() => {
                let written = inner.get(start..at).unwrap_or_default();
                let indent = written.len() - written.trim_start().len();
                name = Some((written.trim(), SET_SLOTS.len() + start + indent));
                value = at + 1;
            }
            ',' | ')' if depth == 0 => {
                let written = inner.get(value..at).unwrap_or_default().trim();
                found.extend(name.take().filter(|(name, _)| !name.is_empty()).map(|(name, at)| (name, at, written)));
                start = at + 1;
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_a_payload_are_found_where_they_stand() {
        let payload = "/SetSlots(a=1, b = two,list=[x, y])";
        assert_eq!(payload_slots(payload), [("a", 10, "1"), ("b", 15, "two"), ("list", 23, "[x, y]")]);
        assert_eq!(payload_slots("/greet"), []);
    }

    #[test]
    fn intents_of_payloads_are_found() {
        assert_eq!(intent_of("/greet"), Some("greet"));
        assert_eq!(intent_of("/inform{{\"a\": 1}}"), Some("inform"));
        assert_eq!(intent_of("/{kind}"), None);
        assert_eq!(intent_of("/buy {thing}"), None);
        assert_eq!(intent_of("hello"), None);
    }
}

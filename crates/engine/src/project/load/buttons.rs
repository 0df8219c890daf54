//! Buttons, and what their payloads fill.

use serde_json::{Map, Value as Json};

use super::{
    super::{ResponseText, reader::Reader, schema::BUTTON, uses::Used, yaml::Node},
    responses::text,
};
use crate::{
    limits::PAYLOAD_PAIRS,
    payload::{self, IntentMessage, Payload, SET_SLOTS, SlotPair},
};

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
        let pairs = match payload::parse(written) {
            Some(Payload::SetSlots(pairs)) => pairs,
            Some(Payload::Intent(message)) => return self.intent(node, message),
            None => return,
        };
        if !written.trim_end().ends_with(')') {
            self.error("F0311", node, "the payload `/SetSlots(` is never closed", "End it with `)`.");
            return;
        }
        if written.matches('=').count() > PAYLOAD_PAIRS {
            let message = format!("a payload fills at most {PAYLOAD_PAIRS} slots; this one would be ignored");
            self.error("F0311", node, message, "Split it, or fill the slots in a flow.");
        }
        if pairs.is_empty() {
            let help = "Write `/SetSlots(slot=value, other=value)`.";
            self.error("F0311", node, "the payload fills no slot", help);
        }
        for SlotPair { name, value, offset } in pairs {
            let offset = written.get(..offset).map_or(0, |before| before.chars().count());
            let place = node.place_at(&self.file, offset, name.chars().count());
            self.uses_name(Used::PayloadSlot, name, place);
            self.fills_slot(name, Json::from(value), Some(self.response.clone()), node);
        }
    }

    /// Notes the intent that a button sends, unless a slot may stand for a part of the name.
    fn intent(&mut self, node: &Node, IntentMessage { name, rest }: IntentMessage<'_>) {
        if rest.is_empty() || rest.starts_with("{{") || rest.starts_with("{\"") {
            let place = node.place_at(&self.file, 1, name.chars().count());
            self.uses_name(Used::ButtonIntent, name, place);
        }
    }
}

//! Reads buttons and records the slots that their payloads fill.

use serde_json::{Map, Value as Json};

use super::{
    super::{ResponseText, load_context::LoadContext, references::ReferenceKind, schema::BUTTON, yaml::Node},
    responses::text,
};
use crate::{
    limits::PAYLOAD_PAIRS,
    payload::{self, IntentMessage, Payload, SET_SLOTS, SlotPair},
};

impl LoadContext<'_> {
    /// Reads a button: title, payload, and all other keys.
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
            let help = "Write `/SetSlots(slot=value)`.";
            self.error("F0311", node, "`/SetSlots` is case-sensitive", help);
            return;
        }
        let pairs = match payload::parse(written) {
            Some(Payload::SetSlots(pairs)) => pairs,
            Some(Payload::Intent(message)) => return self.intent(node, message),
            None => return,
        };
        if !written.trim_end().ends_with(')') {
            self.error("F0311", node, "the payload `/SetSlots(` has no closing parenthesis", "End it with `)`.");
            return;
        }
        if written.matches('=').count() > PAYLOAD_PAIRS {
            let message = format!("a payload may fill at most {PAYLOAD_PAIRS} slots; this one would be ignored");
            self.error("F0311", node, message, "Fill fewer slots, or fill them in a flow.");
        }
        if pairs.is_empty() {
            let help = "Write `/SetSlots(slot=value, other=value)`.";
            self.error("F0311", node, "the payload fills no slot", help);
        }
        for SlotPair { name, value, offset } in pairs {
            let offset = written.get(..offset).map_or(0, |before| before.chars().count());
            let place = node.place_at(&self.file, offset, name.chars().count());
            self.reference_name(ReferenceKind::PayloadSlot, name, place);
            self.record_assignment(name, Json::from(value), Some(self.response.clone()), node);
        }
    }

    /// Records the intent that a button sends, unless its name contains a slot.
    fn intent(&mut self, node: &Node, IntentMessage { name, rest }: IntentMessage<'_>) {
        if rest.is_empty() || rest.starts_with("{{") || rest.starts_with("{\"") {
            let place = node.place_at(&self.file, 1, name.chars().count());
            self.reference_name(ReferenceKind::ButtonIntent, name, place);
        }
    }
}

//! Commands as JSON: `{"command": "set slot", "name": "amount", "value": 50}`, or a string in one of the other forms.

use serde_json::{Map, Value as Json};

use super::{DropReason, Grammar, LinePosition, Parsed, command_names, command_names::CommandName};
use crate::limits;

impl Grammar<'_> {
    /// Parses the items of a JSON answer; each item counts as a line.
    pub(in crate::understanding) fn parse_items(&self, items: &[Json]) -> Parsed {
        let mut parsed = Parsed::default();
        for (index, item) in items.iter().enumerate() {
            let written = item.to_string();
            let at = LinePosition { number: index + 1, line: &written };
            if index >= limits::COMMAND_LINES {
                parsed.drop(at, &written, DropReason::LimitExceeded);
                break;
            }
            match item {
                Json::String(text) => match text.lines().next() {
                    Some(line) => self.parse_line(LinePosition { number: index + 1, line }, &mut parsed),
                    None => parsed.drop_prose(at, &written),
                },
                Json::Object(map) => self.parse_item(at, map, &mut parsed),
                _ => parsed.drop_prose(at, &written),
            }
        }
        parsed.drop_redundant_cannot_handle()
    }

    fn parse_item(&self, at: LinePosition<'_>, map: &Map<String, Json>, parsed: &mut Parsed) {
        // In `{"start flow": "x"}` the key is the command.
        let (command, keyed_value) = match text(map, &["command", "action", "type", "function"]).and_then(command_name)
        {
            Some(command) => (command, None),
            None => match map.iter().next().and_then(|(key, value)| Some((command_name(key)?, value))) {
                Some((command, value)) => (command, Some(value)),
                None => return parsed.drop_prose(at, at.line),
            },
        };
        let inner = map
            .get("arguments")
            .or_else(|| map.get("parameters"))
            .and_then(Json::as_object)
            .or(keyed_value.and_then(Json::as_object));
        let map = inner.unwrap_or(map);
        let line = at.line;
        match command {
            CommandName::Start => {
                let name =
                    keyed_value.and_then(Json::as_str).or_else(|| text(map, &["flow", "flow_id", "flow_name", "name"]));
                let _ = self.parse_start(at, line, name.unwrap_or_default(), parsed);
            }
            CommandName::Restart => {
                let name = keyed_value.and_then(Json::as_str).or_else(|| text(map, &["agent_id", "agent", "name"]));
                let _ = self.parse_restart(at, line, name.unwrap_or_default(), parsed);
            }
            CommandName::Set => {
                let name = text(map, &["slot", "slot_name", "name"]).unwrap_or_default();
                let value = map.get("value").map(|value| match value {
                    Json::String(text) => text.clone(),
                    value => value.to_string(),
                });
                self.set_slot(at, line, name, value.as_deref(), parsed);
            }
            CommandName::Clarify => {
                let list =
                    ["options", "flows"].iter().find_map(|key| map.get(*key)).or(keyed_value).and_then(Json::as_array);
                let names: Vec<&str> = list.into_iter().flatten().filter_map(Json::as_str).collect();
                self.parse_clarify(at, line, &names.join(" "), parsed);
            }
            command => {
                let _ = self.parse_without_arguments(at, line, command, "", parsed);
            }
        }
    }
}

fn text<'a>(map: &'a Map<String, Json>, keys: &[&str]) -> Option<&'a str> {
    keys.iter().find_map(|key| map.get(*key)).and_then(Json::as_str)
}

/// The command that `text` names, when nothing follows the name.
fn command_name(text: &str) -> Option<CommandName> {
    command_names::strip_name(text.trim()).and_then(|(command, rest)| rest.is_empty().then_some(command))
}

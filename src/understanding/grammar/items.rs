//! Commands as JSON: `{"command": "set slot", "name": "amount", "value": 50}`, or a text of the other forms.

use serde_json::{Map, Value as Json};

use super::{At, Grammar, Parsed, Why, verbs, verbs::Verb};
use crate::limits;

impl Grammar<'_> {
    /// Reads items; each counts as a line.
    pub(in crate::understanding) fn read_items(&self, items: &[Json]) -> Parsed {
        let mut parsed = Parsed::default();
        for (index, item) in items.iter().enumerate() {
            let written = item.to_string();
            let at = At { number: index + 1, line: &written };
            if index >= limits::COMMAND_LINES {
                parsed.drop(at, &written, Why::TooMuch);
                break;
            }
            match item {
                Json::String(text) => match text.lines().next() {
                    Some(line) => self.line(At { number: index + 1, line }, &mut parsed),
                    None => parsed.prose(at, &written),
                },
                Json::Object(map) => self.item(at, map, &mut parsed),
                _ => parsed.prose(at, &written),
            }
        }
        parsed.without_empty_hands()
    }

    fn item(&self, at: At<'_>, map: &Map<String, Json>, parsed: &mut Parsed) {
        // `{"start flow": "x"}`: the verb is the key.
        let (verb, alone) = match text(map, &["command", "action", "type", "function"]).and_then(whole) {
            Some(verb) => (verb, None),
            None => match map.iter().next().and_then(|(key, value)| Some((whole(key)?, value))) {
                Some((verb, value)) => (verb, Some(value)),
                None => return parsed.prose(at, at.line),
            },
        };
        let inner = map
            .get("arguments")
            .or_else(|| map.get("parameters"))
            .and_then(Json::as_object)
            .or(alone.and_then(Json::as_object));
        let map = inner.unwrap_or(map);
        let line = at.line;
        match verb {
            Verb::Start => {
                let name =
                    alone.and_then(Json::as_str).or_else(|| text(map, &["flow", "flow_id", "flow_name", "name"]));
                let _ = self.start_words(at, line, name.unwrap_or_default(), parsed);
            }
            Verb::Restart => {
                let name = alone.and_then(Json::as_str).or_else(|| text(map, &["agent_id", "agent", "name"]));
                let _ = self.restart_words(at, line, name.unwrap_or_default(), parsed);
            }
            Verb::Set => {
                let name = text(map, &["slot", "slot_name", "name"]).unwrap_or_default();
                let value = map.get("value").map(|value| match value {
                    Json::String(text) => text.clone(),
                    value => value.to_string(),
                });
                self.set(at, line, name, value.as_deref(), parsed);
            }
            Verb::Clarify => {
                let list = ["options", "flows"].iter().find_map(|key| map.get(*key)).or(alone).and_then(Json::as_array);
                let names: Vec<&str> = list.into_iter().flatten().filter_map(Json::as_str).collect();
                self.clarify(at, line, &names.join(" "), parsed);
            }
            verb => {
                let _ = self.bare(at, line, verb, "", parsed);
            }
        }
    }
}

fn text<'a>(map: &'a Map<String, Json>, keys: &[&str]) -> Option<&'a str> {
    keys.iter().find_map(|key| map.get(*key)).and_then(Json::as_str)
}

/// A text that is a verb and nothing else.
fn whole(text: &str) -> Option<Verb> {
    verbs::strip(text.trim()).and_then(|(verb, rest)| rest.is_empty().then_some(verb))
}

//! `credentials.yml`: channels and their settings, as written.

use indexmap::IndexMap;
use serde_json::{Map, Value as Json};

use super::super::{
    keys::{CREDENTIALS, Support},
    reader::{Reader, said},
};
use crate::finding::did_you_mean;

/// Channels whose callers may show signed tokens.
const GUARDED: [&str; 2] = ["rest", "mcp"];

/// Reads the file; no channels where there is none.
pub(super) fn load(reader: &mut Reader<'_>) -> IndexMap<String, Json> {
    let mut channels = IndexMap::new();
    let Some(file) = &reader.sources.credentials else { return channels };
    let Some(mut root) = reader.open(file) else { return channels };
    if root.is_null() {
        return channels;
    }
    reader.expand(&mut root, "credentials");
    let Some(entries) = root.map() else {
        let message = format!("credentials are a map from channel to settings, but here stands {}", root.kind());
        reader.error("F0108", &root, message, "Write for example `rest:`.");
        return channels;
    };
    for entry in entries {
        match CREDENTIALS.key(&entry.key).map(|key| key.support) {
            Some(Support::Warned(why)) => {
                let message = format!("the channel `{}` is not opened", entry.key);
                reader.warning("F0615", &entry.at, message, format!("{why}."));
            }
            None if !entry.key.contains('.') => {
                let message = format!("no channel is called `{}`", entry.key);
                let help = match did_you_mean(&entry.key, CREDENTIALS.names()) {
                    Some(near) => format!("Did you mean `{near}`?"),
                    None => "Fine if your program brings a channel of that name; else remove it.".to_owned(),
                };
                reader.warning("F0615", &entry.at, message, help);
            }
            _ => {}
        }
        if entry.key == "version" {
            continue;
        }
        let mut settings = match &entry.node {
            node if node.is_null() => Json::Object(Map::new()),
            node if node.map().is_some() => node.json(),
            node => {
                let message =
                    format!("the settings of channel `{}` are a map, but here stands {}", entry.key, said(node));
                reader.error("F0108", node, message, format!("Write `{}:` alone, or keys below it.", entry.key));
                continue;
            }
        };
        if entry.key.contains('.') {
            let message =
                format!("`{}` names Python code of a channel, which is not run here and is left out", entry.key);
            let help = "Use a built-in channel such as `rest`, or implement the `Channel` trait in Rust.";
            reader.warning("F0611", &entry.at, message, help);
            continue;
        }
        if let Some(node) =
            entry.node.get("jwt").filter(|node| !node.is_null() && GUARDED.contains(&entry.key.as_str()))
        {
            // The keys of a file stand in its place from here on.
            let rules = reader.jwt(node).map_or(Json::Null, |(_, rules)| Json::Object(rules));
            settings.as_object_mut().and_then(|settings| settings.insert("jwt".to_owned(), rules));
        }
        channels.insert(entry.key.clone(), settings);
    }
    channels
}

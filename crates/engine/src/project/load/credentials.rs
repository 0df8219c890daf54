//! `credentials.yml`: channels and their settings.

use indexmap::IndexMap;

use super::super::{
    CallerAuth, ChannelDef, ChannelSettings, McpChannelSettings, McpPromptDef, McpResourceDef, RestSettings,
    reader::{Fields, Reader, said},
    schema::{CHANNEL, CREDENTIALS, MCP_ARGUMENT, MCP_CHANNEL, MCP_PROMPT, MCP_RESOURCE, REST, Support},
    uses::Used,
    yaml::{Entry, Node, Value},
};
use crate::finding::did_you_mean;

/// Reads the file; no channels where there is none.
pub(super) fn load(reader: &mut Reader<'_>) -> IndexMap<String, ChannelDef> {
    let mut channels = IndexMap::new();
    let Some(file) = &reader.sources.credentials else { return channels };
    let Some(mut root) = reader.open(file) else { return channels };
    if root.is_null() {
        return channels;
    }
    reader.expand(&mut root, "credentials");
    let Some(entries) = root.map() else {
        let message = format!("credentials are a map from channel to settings, but this is {}", root.kind());
        reader.error("F0108", &root, message, "Write for example `rest:`.");
        return channels;
    };
    for entry in entries.iter().filter(|entry| entry.key != "version") {
        if let Some(channel) = channel(reader, entry) {
            channels.insert(entry.key.clone(), channel);
        }
    }
    channels
}

fn channel(reader: &mut Reader<'_>, entry: &Entry) -> Option<ChannelDef> {
    let own = reader.sources.channels.iter().find(|schema| schema.name == entry.key).copied();
    if own.is_none() {
        warn_of_name(reader, entry);
    }
    let empty = Node::empty_map(&entry.node);
    let node = if entry.node.is_null() { &empty } else { &entry.node };
    if node.map().is_none() {
        let message = format!("the settings of channel `{}` are a map, but this is {}", entry.key, said(node));
        reader.error("F0108", node, message, format!("Write `{}:` alone, or keys below it.", entry.key));
        return None;
    }
    if entry.key.contains('.') {
        let message = format!("`{}` names Python code of a channel, which is not run here and is left out", entry.key);
        let help = "Use a built-in channel such as `rest`, or implement the `Channel` trait in Rust.";
        reader.warning("F0611", &entry.at, message, help);
        return None;
    }
    match entry.key.as_str() {
        "rest" => return rest(reader, node),
        "mcp" => return mcp(reader, node),
        _ => {}
    }
    let (common, others) = split(node);
    let common = reader.fields(&common, &CHANNEL)?;
    let settings = match own {
        Some(schema) => reader.fields(&others, schema)?.json_all(),
        None => others.json_map(),
    };
    Some(def(&common, ChannelSettings::Other(settings)))
}

fn warn_of_name(reader: &mut Reader<'_>, entry: &Entry) {
    match CREDENTIALS.key(&entry.key).map(|key| key.support) {
        Some(Support::AcceptedWithWarning(why)) => {
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
}

/// The keys that every channel may have, and its own.
fn split(node: &Node) -> (Node, Node) {
    let (mut common, mut others) = (node.clone(), node.clone());
    for (part, is_common) in [(&mut common, true), (&mut others, false)] {
        if let Value::Map(entries) = &mut part.value {
            entries.retain(|entry| CHANNEL.key(&entry.key).is_some() == is_common);
        }
    }
    (common, others)
}

fn def(fields: &Fields<'_>, settings: ChannelSettings) -> ChannelDef {
    let texts = |key| owned(fields.texts(key));
    ChannelDef {
        origins: texts("allowed_origins"),
        hosts: texts("allowed_hosts"),
        misspelt: fields.misspelt(),
        settings,
    }
}

fn owned(nodes: Vec<&Node>) -> Vec<String> {
    nodes.into_iter().filter_map(|node| node.text().map(str::to_owned)).collect()
}

fn rest(reader: &mut Reader<'_>, node: &Node) -> Option<ChannelDef> {
    let fields = reader.fields(node, &REST)?;
    let auth = caller_auth(reader, &fields);
    let senders = owned(fields.texts("senders"));
    if senders.is_empty() && fields.node("senders").is_some() {
        let help = "Write whom the token speaks for, such as `[\"shop-*\"]`, or leave the key out.";
        reader.error("F0108", fields.at("senders"), "`senders` is empty", help);
    }
    if !senders.is_empty() && fields.node("auth_token").is_none() {
        let help = "Set `auth_token` beside it.";
        reader.error("F0109", fields.at("senders"), "`senders` binds a token to senders, and there is no token", help);
    }
    let settings = RestSettings {
        auth,
        senders,
        refuses_payloads: !fields.flag("payloads"),
        metadata_bytes: fields.whole("metadata_bytes"),
    };
    Some(def(&fields, ChannelSettings::Rest(settings)))
}

fn mcp(reader: &mut Reader<'_>, node: &Node) -> Option<ChannelDef> {
    let fields = reader.fields(node, &MCP_CHANNEL)?;
    let settings = McpChannelSettings {
        auth: caller_auth(reader, &fields),
        elicitation: fields.flag("elicitation"),
        refuses_payloads: !fields.flag("payloads"),
        prompts: fields.list("prompts").iter().filter_map(|node| mcp_prompt(reader, node)).collect(),
        resources: fields.list("resources").iter().filter_map(|node| mcp_resource(reader, node)).collect(),
    };
    Some(def(&fields, ChannelSettings::Mcp(settings)))
}

/// `auth_token` and `jwt`. An empty token is refused: it would admit callers without a token.
fn caller_auth(reader: &mut Reader<'_>, fields: &Fields<'_>) -> CallerAuth {
    if fields.text("auth_token").is_some_and(|token| token.trim().is_empty()) {
        reader.error("F0109", fields.at("auth_token"), "`auth_token` is empty", "Set it, or leave the key out.");
    }
    CallerAuth {
        token: fields.text("auth_token").map(str::to_owned),
        jwt: fields.node("jwt").and_then(|node| reader.jwt(node)),
    }
}

fn mcp_prompt(reader: &mut Reader<'_>, node: &Node) -> Option<McpPromptDef> {
    let fields = reader.fields(node, &MCP_PROMPT)?;
    for argument in fields.list("arguments") {
        reader.fields(argument, &MCP_ARGUMENT);
    }
    reader.uses(Used::Response, fields.node("response")?);
    fields.parse()
}

fn mcp_resource(reader: &mut Reader<'_>, node: &Node) -> Option<McpResourceDef> {
    let fields = reader.fields(node, &MCP_RESOURCE)?;
    reader.uses(Used::Response, fields.node("response")?);
    fields.parse()
}

//! Reads `credentials.yml`: channels and their settings.

use indexmap::IndexMap;

use super::super::{
    CallbackSettings, CallerAuth, ChannelDef, ChannelSettings, JwtDef, McpChannelSettings, McpPromptDef,
    McpResourceDef, OpenAiSettings, RestSettings, SocketIoSettings, WhileBusy,
    load_context::{LoadContext, MapFields, describe},
    references::ReferenceKind,
    schema::{
        CALLBACK, CHANNEL, CREDENTIALS, HOLD_WRITES_MS, MCP_ARGUMENT, MCP_CHANNEL, MCP_PROMPT, MCP_RESOURCE, OPENAI,
        REST, SOCKETIO, Support, WEBSOCKET,
    },
    yaml::{Entry, Node, Value},
};
use crate::finding::did_you_mean;

/// Reads the file; no channels if there is none.
pub(super) fn load(context: &mut LoadContext<'_>) -> IndexMap<String, ChannelDef> {
    let mut channels = IndexMap::new();
    let Some(file) = &context.sources.credentials else { return channels };
    let Some(mut root) = context.open(file) else { return channels };
    if root.is_null() {
        return channels;
    }
    context.expand(&mut root, "credentials");
    let Some(entries) = root.map() else {
        let message = format!("credentials must be a map from channels to settings, but this is {}", root.kind());
        context.error("F0108", &root, message, "Write for example `rest:`.");
        return channels;
    };
    for entry in entries.iter().filter(|entry| entry.key != "version") {
        if let Some(channel) = channel(context, entry) {
            channels.insert(entry.key.clone(), channel);
        }
    }
    channels
}

fn channel(context: &mut LoadContext<'_>, entry: &Entry) -> Option<ChannelDef> {
    let own = context.sources.channels.iter().find(|schema| schema.name == entry.key).copied();
    if own.is_none() {
        warn_of_name(context, entry);
    }
    let empty = Node::empty_map(&entry.node);
    let node = if entry.node.is_null() { &empty } else { &entry.node };
    if node.map().is_none() {
        let message =
            format!("the settings of the channel `{}` must be a map, but this is {}", entry.key, describe(node));
        context.error("F0108", node, message, format!("Write `{}:` without a value, or keys below it.", entry.key));
        return None;
    }
    if entry.key.contains('.') {
        let message = format!("`{}` is a Python channel, which does not run and is ignored", entry.key);
        let help = "Use a built-in channel such as `rest`, or implement the `Channel` trait in Rust.";
        context.warning("F0611", &entry.at, message, help);
        return None;
    }
    match entry.key.as_str() {
        "rest" => {
            let fields = context.fields(node, &REST)?;
            let settings = messages(context, &fields);
            return Some(def(&fields, ChannelSettings::Rest(settings)));
        }
        "websocket" => {
            let fields = context.fields(node, &WEBSOCKET)?;
            let settings = messages(context, &fields);
            return Some(def(&fields, ChannelSettings::WebSocket(settings)));
        }
        "socketio" => return socketio(context, node),
        "callback" => return callback(context, node),
        "mcp" => return mcp(context, node),
        "openai" => return openai(context, node),
        _ => {}
    }
    let (common, others) = split(node);
    let common = context.fields(&common, &CHANNEL)?;
    let settings = match own {
        Some(schema) => context.fields(&others, schema)?.json_all(),
        None => others.json_map(),
    };
    Some(def(&common, ChannelSettings::Other(settings)))
}

fn warn_of_name(context: &mut LoadContext<'_>, entry: &Entry) {
    match CREDENTIALS.key(&entry.key).map(|key| key.support) {
        Some(Support::AcceptedWithWarning(why)) => {
            let message = format!("the channel `{}` is not supported and is ignored", entry.key);
            context.warning("F0615", &entry.at, message, format!("{why}."));
        }
        None if !entry.key.contains('.') => {
            let message = format!("there is no channel `{}`", entry.key);
            let help = match did_you_mean(&entry.key, CREDENTIALS.names()) {
                Some(near) => format!("Did you mean `{near}`?"),
                None => {
                    "Ignore this if your program registers a channel with this name; otherwise remove it.".to_owned()
                }
            };
            context.warning("F0615", &entry.at, message, help);
        }
        _ => {}
    }
}

/// Splits a map into the keys that every channel may have and the other keys.
fn split(node: &Node) -> (Node, Node) {
    let (mut common, mut others) = (node.clone(), node.clone());
    for (part, is_common) in [(&mut common, true), (&mut others, false)] {
        if let Value::Map(entries) = &mut part.value {
            entries.retain(|entry| CHANNEL.key(&entry.key).is_some() == is_common);
        }
    }
    (common, others)
}

fn def(fields: &MapFields<'_>, settings: ChannelSettings) -> ChannelDef {
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

/// The settings of a channel for the messages that it accepts. A key that the channel does not have is not set.
fn messages(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> RestSettings {
    let auth = caller_auth(context, fields);
    let senders = owned(fields.texts("senders"));
    if senders.is_empty() && fields.node("senders").is_some() {
        let help = "List the sender ids that the token may use, such as `[\"shop-*\"]`, or remove the key.";
        context.error("F0108", fields.at("senders"), "`senders` is empty", help);
    }
    if !senders.is_empty() && fields.node("auth_token").is_none() {
        let help = "Add `auth_token`.";
        context.error("F0109", fields.at("senders"), "`senders` restricts `auth_token`, which is missing", help);
    }
    RestSettings {
        auth,
        senders,
        refuses_payloads: !fields.flag("payloads"),
        metadata_bytes: fields.whole("metadata_bytes"),
        while_busy: match fields.text("while_busy") {
            Some("interrupt") => WhileBusy::Interrupt,
            Some("reject") => WhileBusy::Reject,
            _ => WhileBusy::Queue,
        },
    }
}

fn socketio(context: &mut LoadContext<'_>, node: &Node) -> Option<ChannelDef> {
    let fields = context.fields(node, &SOCKETIO)?;
    let mut messages = messages(context, &fields);
    if let Some(key) = fields.text("jwt_key") {
        match JwtDef::with_shared_key(key, fields.text("jwt_method").unwrap_or("HS256")) {
            Ok(_) if messages.auth.jwt.is_some() => {
                let help = "Remove one of them.";
                context.error("F0109", fields.at("jwt_key"), "`jwt_key` and `jwt` cannot be combined", help);
            }
            Ok(jwt) => messages.auth.jwt = Some(jwt),
            Err(wrong) => {
                let at = if wrong.key == "secret" { "jwt_key" } else { "jwt_method" };
                context.error("F0643", fields.at(at), wrong.message, format!("Fix `{at}`: {}.", wrong.help));
            }
        }
    }
    let text = |key: &str, default: &str| fields.text(key).unwrap_or(default).to_owned();
    let settings = SocketIoSettings {
        messages,
        user_event: text("user_message_evt", "user_uttered"),
        bot_event: text("bot_message_evt", "bot_uttered"),
        namespace: text("namespace", "/"),
        path: text("socketio_path", "/socket.io"),
        metadata_key: text("metadata_key", "metadata"),
        persists_sessions: fields.flag("session_persistence"),
        streams: fields.flag("stream"),
    };
    Some(def(&fields, ChannelSettings::SocketIo(settings)))
}

fn callback(context: &mut LoadContext<'_>, node: &Node) -> Option<ChannelDef> {
    let fields = context.fields(node, &CALLBACK)?;
    let settings = CallbackSettings {
        messages: messages(context, &fields),
        url: fields.text("url").unwrap_or_default().to_owned(),
        batch: fields.flag("batch"),
        signing_secret: fields.text("signing_secret").map(str::to_owned),
    };
    Some(def(&fields, ChannelSettings::Callback(settings)))
}

fn mcp(context: &mut LoadContext<'_>, node: &Node) -> Option<ChannelDef> {
    let fields = context.fields(node, &MCP_CHANNEL)?;
    let settings = McpChannelSettings {
        auth: caller_auth(context, &fields),
        elicitation: fields.flag("elicitation"),
        refuses_payloads: !fields.flag("payloads"),
        prompts: fields.list("prompts").iter().filter_map(|node| mcp_prompt(context, node)).collect(),
        resources: fields.list("resources").iter().filter_map(|node| mcp_resource(context, node)).collect(),
    };
    Some(def(&fields, ChannelSettings::Mcp(settings)))
}

fn openai(context: &mut LoadContext<'_>, node: &Node) -> Option<ChannelDef> {
    let fields = context.fields(node, &OPENAI)?;
    let is_chat = fields.text("mode") == Some("chat");
    let hold = if is_chat || !fields.flag("early_generation") { 0 } else { HOLD_WRITES_MS };
    let settings = OpenAiSettings {
        auth: caller_auth(context, &fields),
        is_chat,
        hold_writes_ms: fields.whole("hold_writes_ms").unwrap_or(hold),
        conversation_from: owned(fields.texts("conversation_from")),
        refuses_payloads: !fields.flag("payloads"),
    };
    Some(def(&fields, ChannelSettings::OpenAi(settings)))
}

/// `auth_token` and `jwt`. An empty token is refused, because it would accept callers without a token.
fn caller_auth(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> CallerAuth {
    if fields.text("auth_token").is_some_and(|token| token.trim().is_empty()) {
        context.error("F0109", fields.at("auth_token"), "`auth_token` is empty", "Set the token, or remove the key.");
    }
    CallerAuth {
        token: fields.text("auth_token").map(str::to_owned),
        jwt: fields.node("jwt").and_then(|node| context.jwt(node)),
    }
}

fn mcp_prompt(context: &mut LoadContext<'_>, node: &Node) -> Option<McpPromptDef> {
    let fields = context.fields(node, &MCP_PROMPT)?;
    for argument in fields.list("arguments") {
        context.fields(argument, &MCP_ARGUMENT);
    }
    context.reference(ReferenceKind::Response, fields.node("response")?);
    fields.parse()
}

fn mcp_resource(context: &mut LoadContext<'_>, node: &Node) -> Option<McpResourceDef> {
    let fields = context.fields(node, &MCP_RESOURCE)?;
    context.reference(ReferenceKind::Response, fields.node("response")?);
    fields.parse()
}

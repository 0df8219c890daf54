//! Reads `endpoints.yml`.

use std::{sync::Arc, time::Duration};

use indexmap::IndexMap;
use serde_json::{Map, Value as Json};

use super::{
    super::{
        Endpoints, HttpDef, McpServerDef, McpTransport, ModelDef, ModelGroup, RouterDef, RunsDef, SandboxDef,
        SandboxProgram, ServerDef, TrackerStoreDef,
        load_context::{LoadContext, MapFields, describe},
        references::ReferenceKind,
        schema::{
            BASIC_AUTH, ENDPOINTS, HTTP, INTERACTION, LOCK_STORE, MCP_META, MCP_META_KEY, MCP_META_SLOT, MCP_SERVER,
            METRICS, MODEL, MODEL_GROUP, MapSchema, PRIVACY, ROUTER, RUNS, SANDBOX, SERVER, TRACING, TRACKER_STORE,
            WORKSPACES,
        },
        yaml::Node,
    },
    a2a_server, action_endpoint, fallbacks, first_place, nlg,
};
use crate::ids::{ServerName, SlotName};

/// Reads `endpoints.yml`; empty endpoints if there is none.
pub(super) fn load(context: &mut LoadContext<'_>) -> Endpoints {
    let mut endpoints = Endpoints::default();
    let Some(file) = &context.sources.endpoints else { return endpoints };
    let Some(mut root) = context.open(file) else { return endpoints };
    if root.is_null() {
        return endpoints;
    }
    context.expand(&mut root, "endpoints");
    let Some(fields) = context.fields(&root, &ENDPOINTS) else { return endpoints };
    let mut places = IndexMap::new();
    for node in fields.list("model_groups") {
        if let Some(group) = model_group(context, node) {
            if let Some(first) = first_place(&mut places, &group.id, group.place.clone()) {
                let message = format!("duplicate model group `{}`, first on line {}", group.id, first.line);
                context.error("F0605", node, message, "Give each group a unique id.");
                continue;
            }
            endpoints.model_groups.insert(group.id.clone(), group);
        }
    }
    let mut places = IndexMap::new();
    for node in fields.list("mcp_servers") {
        if let Some(server) = mcp_server(context, node) {
            if let Some(first) = first_place(&mut places, server.name.as_str(), server.place.clone()) {
                let message = format!("duplicate MCP server `{}`, first on line {}", server.name, first.line);
                context.error("F0602", node, message, "Give each server a unique name.");
                continue;
            }
            endpoints.mcp_servers.insert(server.name.clone(), server);
        }
    }
    sections(context, &fields, &mut endpoints);
    endpoints
}

fn sections(context: &mut LoadContext<'_>, fields: &MapFields<'_>, endpoints: &mut Endpoints) {
    for (key, schema) in SECTIONS {
        if let Some(node) = fields.node(key).filter(|node| node.map().is_some()) {
            context.fields(node, schema);
        }
    }
    if let Some(node) = fields.node("vector_store") {
        endpoints.qdrant = super::search::vector_store(context, node);
    }
    if let Some(node) = fields.node("privacy") {
        model_reference(context, node);
    }
    endpoints.action_endpoint = fields.node("action_endpoint").and_then(|node| action_endpoint::read(context, node));
    endpoints.server = fields.node("server").and_then(|node| server(context, node)).unwrap_or_default();
    endpoints.http = fields.node("http").and_then(|node| http(context, node)).unwrap_or_default();
    endpoints.a2a_server = fields.node("a2a_server").and_then(|node| a2a_server::read(context, node));
    endpoints.sandbox = fields.node("sandbox").and_then(|node| sandbox(context, node));
    let workspaces = fields.node("workspaces").and_then(|node| context.fields(node, &WORKSPACES));
    endpoints.workspace_bytes =
        workspaces.and_then(|fields| fields.whole("max_mib")).map(|mebibytes| mebibytes.saturating_mul(1024 * 1024));
    endpoints.runs = fields.node("runs").and_then(|node| runs(context, node)).unwrap_or_default();
    endpoints.nlg = fields.node("nlg").and_then(|node| nlg::nlg(context, node));
    endpoints.tracker_store = fields.node("tracker_store").and_then(|node| tracker_store(context, node));
}

/// Sections without effect; only their keys are checked.
static SECTIONS: [(&str, &MapSchema); 5] = [
    ("lock_store", &LOCK_STORE),
    ("interaction_handling", &INTERACTION),
    ("privacy", &PRIVACY),
    ("tracing", &TRACING),
    ("metrics", &METRICS),
];

/// Reads `server`. A limit of 0 is an error, because the server would refuse every message.
fn server(context: &mut LoadContext<'_>, node: &Node) -> Option<ServerDef> {
    let fields = context.fields(node, &SERVER)?;
    let count = |context: &mut LoadContext<'_>, key: &str, least: u64| {
        let count = fields.whole(key)?;
        if count < least {
            let message = format!("with `{key}: {count}` the server would refuse every message");
            context.error("F0108", fields.at(key), message, "Write an integer above 0, or remove the key.");
        }
        usize::try_from(count).ok()
    };
    Some(ServerDef {
        open_turns: count(context, "open_turns", 1),
        running_turns: count(context, "running_turns", 1),
        turns_per_caller: count(context, "turns_per_caller", 1),
        expected_wait: fields.seconds("expected_wait"),
        connections: count(context, "connections", 1),
        connections_per_address: count(context, "connections_per_address", 0),
        chat_page: fields.bool("chat_page"),
    })
}

/// Reads `runs`.
fn runs(context: &mut LoadContext<'_>, node: &Node) -> Option<RunsDef> {
    let fields = context.fields(node, &RUNS)?;
    let days = fields.whole("retention_days").map(|days| u32::try_from(days).unwrap_or(u32::MAX));
    Some(RunsDef { retention_days: days })
}

/// Reads `http`: the proxy for outbound requests.
fn http(context: &mut LoadContext<'_>, node: &Node) -> Option<HttpDef> {
    let fields = context.fields(node, &HTTP)?;
    let schemes = ["http://", "https://", "socks4://", "socks4a://", "socks5://", "socks5h://"];
    if let Some((node, text)) = fields.node("proxy").and_then(|node| Some((node, node.text()?)))
        && !schemes.iter().any(|scheme| text.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()))
    {
        // The URL may contain a password, so the message does not show it.
        let message = "the URL of a proxy must start with `http://`, `https://` or `socks5://` and a host";
        context.error("F0612", node, message, "Write the full URL, such as `http://proxy.corp:3128`.");
    }
    let hosts = fields.node("no_proxy").map(|node| match node.list() {
        Some(hosts) => hosts.iter().filter_map(Node::text).collect::<Vec<_>>().join(","),
        None => node.text().unwrap_or_default().to_owned(),
    });
    Some(HttpDef { proxy: fields.text("proxy").map(str::to_owned), no_proxy: hosts })
}

/// Reads `sandbox`: the preset, or a program with arguments.
fn sandbox(context: &mut LoadContext<'_>, node: &Node) -> Option<SandboxDef> {
    let fields = context.fields(node, &SANDBOX)?;
    let texts = |key: &str| fields.list(key).iter().filter_map(Node::text).map(Into::into).collect::<Vec<Arc<str>>>();
    let command = texts("command");
    let names_program = command.first().is_some_and(|program| !program.trim().is_empty());
    // An ill-typed value is reported already.
    let has_preset = fields.has("preset");
    if has_preset && fields.has("command") {
        let message = "`preset` and `command` are two sandboxes; only one is allowed";
        context.error("F0855", fields.at("command"), message, "Remove one of them.");
        return None;
    }
    for key in ["network", "read_only"].into_iter().filter(|key| fields.has(key) && fields.has("command")) {
        let message = format!("`{key}` has no effect with `command`, whose arguments say what commands may use");
        context.error(
            "F0855",
            fields.at(key),
            message,
            "Remove it, or write `preset: bubblewrap` in place of `command`.",
        );
    }
    let program = if has_preset {
        SandboxProgram::Bubblewrap { network: fields.flag("network"), read_only: texts("read_only") }
    } else if names_program {
        SandboxProgram::Command(command)
    } else {
        if fields.node("command").is_some() {
            let help = "Write `preset: bubblewrap`, or a program and its arguments, such as `command: [bwrap, --unshare-all, …]`.";
            context.error("F0855", fields.at("command"), "`command` of a sandbox names no program", help);
        } else if !fields.has("command") {
            let help = "Write `preset: bubblewrap`, or `command` with a program and its arguments.";
            context.error("F0855", node, "the sandbox has neither `preset` nor `command`", help);
        }
        return None;
    };
    for folder in fields.list("read_only") {
        if folder.text().is_some_and(|path| !path.starts_with('/')) {
            let message = "a folder of `read_only` must be an absolute path";
            context.error("F0855", folder, message, "Write a path that begins with `/`, such as `/opt/rust`.");
        }
    }
    Some(SandboxDef {
        program,
        timeout: fields.seconds("timeout_seconds"),
        max_parallel: fields.whole("max_parallel").and_then(|most| usize::try_from(most).ok()),
        path: fields.shared("path"),
    })
}

/// The default database file of `type: SQL`, as in Rasa.
const CALM_FILE: &str = "rasa.db";

/// Reads `tracker_store`. An unsupported store is only a warning here; `segue run` refuses it.
fn tracker_store(context: &mut LoadContext<'_>, node: &Node) -> Option<TrackerStoreDef> {
    let fields = context.fields(node, &TRACKER_STORE)?;
    let lower = |key: &str| fields.text(key).unwrap_or_default().to_ascii_lowercase();
    let file = |keys: &[&str]| keys.iter().filter_map(|key| fields.text(key)).find(|file| !file.is_empty());
    let full = fields.text("synchronous").map(|how| how == "full");
    let (kind, dialect) = (lower("type"), lower("dialect"));
    Some(match (kind.as_str(), dialect.as_str()) {
        ("" | "inmemory" | "in_memory" | "memory", _) => TrackerStoreDef::Memory,
        ("sql", "" | "sqlite") => {
            TrackerStoreDef::Sqlite { file: Some(file(&["db"]).unwrap_or(CALM_FILE).to_owned()), full }
        }
        ("sqlite" | "segue", _) => TrackerStoreDef::Sqlite { file: file(&["path", "db"]).map(str::to_owned), full },
        _ => {
            let (key, what) = if kind == "sql" { ("dialect", dialect) } else { ("type", kind) };
            let at = fields.node(key).unwrap_or(node);
            let message =
                format!("the tracker store `{what}` is not supported by this version; `segue run` will not start");
            let help = "Use `type: SQL` with `dialect: sqlite`; `segue import` imports existing conversations.";
            context.warning("F0614", at, message, help);
            TrackerStoreDef::Unsupported(what)
        }
    })
}

/// Records the model groups under `llm` and `embeddings` of a section.
fn model_reference(context: &mut LoadContext<'_>, node: &Node) {
    for key in ["llm", "embeddings"] {
        if let Some(llm) = node.get(key) {
            context.model(llm);
        }
    }
}

impl LoadContext<'_> {
    /// Reads `llm` of a component: its model group, or the settings of its own model.
    pub(super) fn model(&mut self, node: &Node) -> (Option<Arc<str>>, Map<String, Json>) {
        // Some pages about Rasa write it with a hyphen.
        if let Some(group) = node.get("model_group").or_else(|| node.get("model-group")) {
            if let Some(name) = group.text() {
                self.reference(ReferenceKind::ModelGroup, group);
                return (Some(name.into()), Map::new());
            }
            let message = format!("`model_group` must be a string, but this is {}", describe(group));
            self.error("F0108", group, message, "Write the id of a group in `endpoints.yml`.");
            return (None, Map::new());
        }
        let Some(fields) = self.fields(node, &MODEL) else { return (None, Map::new()) };
        (None, fields.json_all())
    }
}

fn model_group(context: &mut LoadContext<'_>, node: &Node) -> Option<ModelGroup> {
    let fields = context.fields(node, &MODEL_GROUP)?;
    let written = fields.list("models");
    let models: Vec<ModelDef> = written.iter().filter_map(|model| model_def(context, model)).collect();
    if written.is_empty() && fields.node("models").is_some() {
        context.error(
            "F0605",
            fields.at("models"),
            "a model group needs at least one model",
            "Add a model with `provider` and `model`.",
        );
    }
    let id = fields.shared("id");
    let router_fields = fields.node("router").and_then(|router| context.fields(router, &ROUTER));
    let fallbacks = router_fields.as_ref().and_then(|router| router.node("fallbacks"));
    let fallbacks = fallbacks.map(|node| fallbacks::fallbacks(context, id.as_deref().unwrap_or_default(), node));
    let router = router_fields.as_ref().map(router);
    if written.len() > 1 && router.is_none() {
        let message = "a group with several models needs a `router`; without it only the first model would be used";
        context.error(
            "F0607",
            fields.at("models"),
            message,
            "Add `router: {routing_strategy: simple-shuffle}`, or keep one model.",
        );
    }
    Some(ModelGroup {
        id: id?,
        models,
        router,
        fallbacks: fallbacks.unwrap_or_default(),
        place: context.place(fields.at("id")),
    })
}

fn router(fields: &MapFields<'_>) -> RouterDef {
    let positive = |key: &str| fields.number(key).filter(|number| *number >= 0.0);
    // The cast saturates.
    let count = |key: &str| positive(key).map(|number| number as u32);
    RouterDef {
        strategy: fields.text("routing_strategy").map(str::to_owned),
        cooldown: positive("cooldown_time").and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        allowed_fails: count("allowed_fails"),
        num_retries: count("num_retries"),
    }
}

fn model_def(context: &mut LoadContext<'_>, node: &Node) -> Option<ModelDef> {
    let fields = context.fields(node, &MODEL)?;
    if !fields.has("provider") {
        context.error("F0109", node, "the model needs `provider`", "Add for example `provider: openai`.");
    }
    let provider = fields.shared("provider")?;
    for (of, key) in [("scripted", "script"), ("cassette", "path")] {
        if *provider == *of && !fields.has(key) {
            let message = format!("a model with `provider: {of}` needs `{key}`");
            context.error("F0109", node, message, format!("Add `{key}: …` with the path of the file."));
        }
    }
    let mut settings = fields.json_all();
    settings.shift_remove("provider");
    settings.shift_remove("model");
    let model = fields.shared("model").unwrap_or_default();
    Some(ModelDef { provider, model, settings })
}

fn mcp_server(context: &mut LoadContext<'_>, node: &Node) -> Option<McpServerDef> {
    let fields = context.fields(node, &MCP_SERVER)?;
    let oauth = context.mcp_oauth(&fields);
    let transport = transport(context, node, &fields);
    let (meta_static, meta_slots, meta_metadata) = meta(context, &fields);
    let mut headers = pairs(context, &fields, "headers");
    headers.extend(context.auth_headers(&fields));
    let effects = effects(context, &fields, "a tool");
    let elicitation = elicitation(context, &fields);
    let offers = offers(context, &fields);
    Some(McpServerDef {
        name: ServerName::new(fields.shared("name")?),
        transport: transport?,
        headers,
        oauth,
        meta_static,
        meta_slots,
        meta_metadata,
        connect_timeout: fields.seconds("connect_timeout"),
        tool_timeout: fields.seconds("tool_timeout"),
        tool_timeout_total: fields.seconds("tool_timeout_total"),
        progress_messages: fields.flag("progress_messages"),
        protocol_version: fields.text("protocol_version").map(str::to_owned),
        elicitation,
        sampling: fields.flag("sampling"),
        offers,
        trust_annotations: fields.flag("trust_annotations"),
        effects,
        pin: fields.flag("pin"),
        place: context.place(fields.at("name")),
    })
}

/// Reads `elicitation`: the fields that a server may ask for, and their slots.
fn elicitation(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> IndexMap<String, SlotName> {
    let mut slots = IndexMap::new();
    for entry in fields.map("elicitation") {
        match entry.node.text() {
            Some(slot) => {
                context.reference(ReferenceKind::Slot, &entry.node);
                slots.insert(entry.key.clone(), slot.into());
            }
            None => {
                let message =
                    format!("the values of `elicitation` must be slot names, but this is {}", describe(&entry.node));
                context.error("F0108", &entry.node, message, "Write the slot for the answer.");
            }
        }
    }
    slots
}

/// Reads `offers`: what else of a server is available as tools.
fn offers(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> Vec<String> {
    let mut offers = Vec::new();
    for node in fields.texts("offers") {
        match node.text() {
            Some(what @ ("resources" | "prompts")) => offers.push(what.to_owned()),
            _ => {
                let message = format!("`offers` may contain `resources` and `prompts`, but this is {}", describe(node));
                context.error("F0108", node, message, "Remove it. Tools are always available.");
            }
        }
    }
    offers
}

fn transport(context: &mut LoadContext<'_>, node: &Node, fields: &MapFields<'_>) -> Option<McpTransport> {
    let is_stdio = match fields.text("type") {
        Some(kind) => kind == "stdio",
        None if fields.has("type") => return None, // reported as a wrong value
        None => fields.has("command") && !fields.has("url"),
    };
    let (needed, strange) =
        if is_stdio { ("command", ["url", "headers", "oauth"]) } else { ("url", ["command", "args", "env"]) };
    if !fields.has(needed) {
        let kind = if is_stdio { "stdio" } else { "http" };
        let message = format!("an MCP server of type `{kind}` needs `{needed}`");
        context.error("F0603", node, message, format!("Add `{needed}: …`, or set another `type`."));
    }
    for key in strange.into_iter().filter(|key| fields.has(key)) {
        let message = format!("`{key}` is not a key of an MCP server with `{needed}`");
        context.error("F0603", fields.at(key), message, "Remove it, or set another `type`.");
    }
    if is_stdio {
        let args = fields.texts("args").into_iter().filter_map(|node| node.text().map(str::to_owned)).collect();
        let env = pairs(context, fields, "env");
        Some(McpTransport::Stdio { command: fields.text("command")?.to_owned(), args, env })
    } else {
        context.address(fields.node("url"));
        Some(McpTransport::Http { url: fields.text("url")?.to_owned() })
    }
}

/// Reads `effects`: effect classes by the name of a tool or an action.
pub(super) fn effects(context: &mut LoadContext<'_>, fields: &MapFields<'_>, of: &str) -> IndexMap<String, String> {
    let mut effects = IndexMap::new();
    for entry in fields.map("effects") {
        match entry.node.text() {
            Some(effect @ ("read" | "idempotent" | "write")) => {
                effects.insert(entry.key.clone(), effect.to_owned());
            }
            _ => {
                let message = format!(
                    "the effect class of {of} must be `read`, `idempotent` or `write`, but this is {}",
                    describe(&entry.node)
                );
                let help = "`read`: may be repeated; `idempotent`: may be repeated with the same key; `write`: must not be repeated.";
                context.error("F0613", &entry.node, message, help);
            }
        }
    }
    effects
}

/// Reads `basic_auth`: user name and password.
pub(super) fn basic_auth(
    context: &mut LoadContext<'_>,
    fields: &MapFields<'_>,
    variable: &str,
) -> Option<(String, String)> {
    let basic = fields.node("basic_auth").and_then(|node| context.fields(node, &BASIC_AUTH))?;
    context.secret_warned(basic.node("password"), "password", variable);
    Some((basic.text("username")?.to_owned(), basic.text("password")?.to_owned()))
}

pub(super) fn pairs(context: &mut LoadContext<'_>, fields: &MapFields<'_>, key: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for entry in fields.map(key) {
        match entry.node.text() {
            Some(text) => pairs.push((entry.key.clone(), text.to_owned())),
            None => {
                let message = format!("the values of `{key}` must be strings, but this is {}", describe(&entry.node));
                context.error("F0108", &entry.node, message, "Write a string.");
            }
        }
    }
    pairs
}

/// Fields of `_meta` in tool calls: fixed, from slots, from the message.
type Meta = (Map<String, Json>, Vec<(String, SlotName)>, Vec<(String, String)>);

fn meta(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> Meta {
    let Some(meta) = fields.node("meta_map").and_then(|node| context.fields(node, &MCP_META)) else {
        return Default::default();
    };
    let mut slots = Vec::new();
    for node in meta.list("from_slots") {
        let Some(item) = context.fields(node, &MCP_META_SLOT) else { continue };
        if let (Some(slot), Some(param)) = (item.node("slot"), item.text("param")) {
            context.reference(ReferenceKind::Slot, slot);
            slots.push((param.to_owned(), slot.text().unwrap_or_default().into()));
        }
    }
    let mut known = Vec::new();
    for node in meta.list("from_metadata") {
        let Some(item) = context.fields(node, &MCP_META_KEY) else { continue };
        if let (Some(key), Some(param)) = (item.text("key"), item.text("param")) {
            known.push((param.to_owned(), key.to_owned()));
        }
    }
    (meta.json_map("static").unwrap_or_default(), slots, known)
}

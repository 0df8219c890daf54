//! `sub_agents/*/config.yml`.

use std::{collections::HashSet, str::FromStr, sync::Arc};

use indexmap::IndexMap;

use super::{
    super::{
        AgentConnection, AgentDef, Endpoints, OnToolError, Protocol,
        reader::{Fields, Reader},
        schema::{AGENT, AGENT_FILE, CONFIGURATION, CONNECTION, CONNECTIONS},
        uses::Used,
        yaml::Node,
    },
    agent_rules, first_place, remote,
};
use crate::ids::{AgentName, ServerName, ToolName};

/// Tries to connect, unless set.
const MAX_RETRIES: u32 = 3;

/// Reads all agents.
pub(super) fn load(reader: &mut Reader<'_>, endpoints: &Endpoints) -> IndexMap<AgentName, Arc<AgentDef>> {
    let mut agents = IndexMap::new();
    let mut places = IndexMap::new();
    for file in &reader.sources.agents {
        let Some(mut root) = reader.open(file) else { continue };
        reader.expand(&mut root, "agent");
        let Some(agent) = agent(reader, &root, endpoints) else { continue };
        if let Some(first) = first_place(&mut places, agent.name.as_str(), agent.place.clone()) {
            let message = format!("an agent named `{}` already stands in {}", agent.name, first.file);
            let help = "Flows call agents by name; give each a name of its own.";
            reader.findings.error("F0511", &agent.place, message, help);
            continue;
        }
        agents.insert(agent.name.clone(), Arc::new(agent));
    }
    agents
}

fn agent(reader: &mut Reader<'_>, root: &Node, endpoints: &Endpoints) -> Option<AgentDef> {
    let file = reader.fields(root, &AGENT_FILE)?;
    let who = file.node("agent").and_then(|node| reader.fields(node, &AGENT));
    let empty = Node::empty_map(root);
    let how = reader.fields(file.node("configuration").unwrap_or(&empty), &CONFIGURATION)?;
    let protocol = who.as_ref().map(|who| protocol(reader, who)).unwrap_or(Some(Protocol::Rasa))?;
    match protocol {
        Protocol::A2a => remote::check(reader, &file, &how),
        Protocol::Rasa => check_own(reader, &file, &how),
    }
    let remote = (protocol == Protocol::A2a).then(|| remote::read(reader, &how)).flatten().map(Box::new);
    let (model_group, llm) = how.node("llm").map(|node| reader.model(node)).unwrap_or_default();
    let prompt = how.node("prompt_template").and_then(|node| reader.template_file(node));
    let connections = connections(reader, &file, endpoints);
    let module = how.node("module").and_then(|module| reader.module(module));
    let timezone = reader.timezone(how.node("timezone"), "F0513");
    let who = who?;
    for key in ["name", "description"] {
        if who.text(key).is_some_and(|text| text.trim().is_empty()) {
            reader.error("F0501", who.at(key), format!("`{key}` of an agent must not be empty"), "Write what it is.");
        }
    }
    Some(AgentDef {
        name: AgentName::new(who.shared("name")?),
        description: who.shared("description").unwrap_or_default(),
        protocol,
        model_group,
        llm,
        prompt,
        module: module.map(Into::into),
        timeout: how.seconds("timeout"),
        max_retries: how.whole("max_retries").and_then(|n| u32::try_from(n).ok()).unwrap_or(MAX_RETRIES),
        include_date_time: how.flag("include_date_time"),
        timezone,
        enable_filler_messages: how.flag("enable_filler_messages"),
        tool_timeout: how.seconds("tool_timeout"),
        on_tool_error: if how.text("on_tool_error") == Some("fail") {
            OnToolError::Fail
        } else {
            OnToolError::FeedBack
        },
        max_iterations: how.whole("max_iterations").and_then(|n| u32::try_from(n).ok()),
        connections,
        rules: agent_rules::rules(reader, &how),
        auth: how.node("auth").and_then(|node| reader.auth(node)).unwrap_or_default(),
        hook_auth: how.node("hook_auth").and_then(|node| reader.auth(node)).unwrap_or_default(),
        remote,
        place: reader.place(who.node("name")?),
    })
}

fn protocol(reader: &mut Reader<'_>, who: &Fields<'_>) -> Option<Protocol> {
    match who.text("protocol") {
        None | Some("RASA" | "rasa") => Some(Protocol::Rasa),
        Some("A2A" | "a2a") => Some(Protocol::A2a),
        Some("mcp") => {
            let message = "`mcp` is the name of an early version; it is read as `RASA`";
            reader.warning("F0502", who.node("protocol")?, message, "Write `RASA`.");
            Some(Protocol::Rasa)
        }
        Some(other) => {
            let message = format!("`{other}` is not a protocol of agents");
            reader.error(
                "F0502",
                who.node("protocol")?,
                message,
                "Write `RASA` for an agent of this project or `A2A` for a remote one.",
            );
            None
        }
    }
}

fn check_own(reader: &mut Reader<'_>, file: &Fields<'_>, how: &Fields<'_>) {
    // Hooks behind an address may want to know who asks.
    let served = how.text("module").is_some_and(|module| module.contains("://"));
    for key in remote::KEYS {
        if how.has(key) && !(served && key == "auth") {
            let message = format!("`{key}` belongs to remote agents");
            reader.error("F0510", how.at(key), message, "Remove it, or set `agent.protocol: A2A`.");
        }
    }
    let servers = file.node("connections").and_then(|node| node.get("mcp_servers"));
    match servers {
        // An agent of one's own needs no tools.
        None if how.has("module") => {}
        None => {
            let at = if file.has("connections") { file.at("connections") } else { file.node };
            let help = "Add `connections: {mcp_servers: [{name: …}]}` with a server of `endpoints.yml`.";
            reader.error("F0503", at, "an agent needs `connections.mcp_servers`", help);
        }
        Some(list) if list.list().is_some_and(<[Node]>::is_empty) => {
            reader.warning(
                "F0504",
                list,
                "`mcp_servers` is empty, so the agent has no tools but those registered in Rust",
                "Add `- name: …`, if it should use a server.",
            );
        }
        Some(_) => {}
    }
}

fn connections(reader: &mut Reader<'_>, file: &Fields<'_>, endpoints: &Endpoints) -> Vec<AgentConnection> {
    let Some(fields) = file.node("connections").and_then(|node| reader.fields(node, &CONNECTIONS)) else {
        return Vec::new();
    };
    let mut connections = Vec::new();
    let mut seen = HashSet::new();
    for node in fields.list("mcp_servers") {
        let Some(item) = reader.fields(node, &CONNECTION) else { continue };
        for key in ["include_tools", "exclude_tools"] {
            if item.node(key).is_some_and(|list| list.list().is_some_and(<[Node]>::is_empty)) {
                let message = format!("`{key}` is empty, which could mean all tools or none");
                reader.error("F0507", item.at(key), message, "Name tools, or remove the key for all of them.");
            }
        }
        if item.has("include_tools") && item.has("exclude_tools") {
            let message = "`include_tools` and `exclude_tools` exclude one another";
            reader.error("F0506", item.at("exclude_tools"), message, "Keep one of the two.");
        }
        let Some(name) = item.node("name") else { continue };
        if reader.sources.endpoints.is_none() || endpoints.mcp_servers.is_empty() {
            let message = "the agent uses MCP servers, but `endpoints.yml` names none";
            reader.error("F0505", name, message, "Add the server under `mcp_servers` of `endpoints.yml`.");
        } else {
            reader.uses(Used::AgentServer, name);
        }
        let text = name.text().unwrap_or_default();
        if !seen.insert(text) {
            reader.error("F0602", name, format!("the server `{text}` is listed twice"), "List it once.");
            continue;
        }
        let tools = |key| item.texts(key).into_iter().filter_map(|node| node.text().map(ToolName::from)).collect();
        connections.push(AgentConnection {
            server: ServerName::from(text),
            include: tools("include_tools"),
            exclude: tools("exclude_tools"),
        });
    }
    connections
}

impl Reader<'_> {
    /// A time zone by its IANA name; `UTC` where it is absent or unknown.
    pub(super) fn timezone(&mut self, node: Option<&Node>, code: &'static str) -> Arc<str> {
        let Some((node, name)) = node.and_then(|node| Some((node, node.text()?))) else { return "UTC".into() };
        if chrono_tz::Tz::from_str(name).is_ok() {
            return name.into();
        }
        let zones = chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name());
        let help = match crate::finding::did_you_mean(name, zones) {
            Some(near) => format!("Did you mean `{near}`?"),
            None => "Write an IANA name such as `Europe/Berlin`.".to_owned(),
        };
        self.error(code, node, format!("`{name}` is not a time zone"), help);
        "UTC".into()
    }

    /// `module`: a registered name or an address. The path of a Python class is kept as a name: hooks in Rust may be registered
    /// under it; without them the agent works, but without its hooks.
    fn module<'n>(&mut self, node: &'n Node) -> Option<&'n str> {
        let text = node.text()?;
        if text.contains("://") {
            self.address(Some(node));
        } else if text.contains('.') {
            let message =
                format!("`{text}` names Python code, which is not run here; the agent works without its hooks");
            let help = "Register hooks under this name in Rust, or give the http address of a hook server.";
            self.warning("F0514", node, message, help);
        }
        Some(text)
    }
}

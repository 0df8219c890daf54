//! Reads `sub_agents/*/config.yml`.

use std::{collections::HashSet, str::FromStr, sync::Arc};

use indexmap::IndexMap;

use super::{
    super::{
        AgentConnection, AgentDef, Endpoints, OnToolError, Protocol, SubagentsDef,
        load_context::{LoadContext, MapFields},
        references::ReferenceKind,
        schema::{AGENT, AGENT_FILE, CONFIGURATION, CONNECTION, CONNECTIONS},
        yaml::Node,
    },
    agent_rules, builtin_tools, delegation, first_place, remote,
    skills::{self, SkillLibrary},
};
use crate::{
    ids::{AgentName, ServerName, ToolName},
    limits::AGENT_MODEL_CALLS,
};

/// The default of `max_retries`.
const MAX_RETRIES: u32 = 3;

/// Reads all agents.
pub(super) fn load(
    context: &mut LoadContext<'_>,
    endpoints: &Endpoints,
    subagents: &SubagentsDef,
    library: &mut SkillLibrary,
) -> IndexMap<AgentName, Arc<AgentDef>> {
    let mut agents = IndexMap::new();
    let mut places = IndexMap::new();
    for file in &context.sources.agents {
        let Some(mut root) = context.open(file) else { continue };
        context.expand(&mut root, "agent");
        let Some(agent) = agent(context, &root, endpoints, subagents, library) else { continue };
        if let Some(first) = first_place(&mut places, agent.name.as_str(), agent.place.clone()) {
            let message = format!("an agent named `{}` is already defined in {}", agent.name, first.file);
            let help = "Give each agent a unique name; flows call agents by name.";
            context.findings.error("F0511", &agent.place, message, help);
            continue;
        }
        agents.insert(agent.name.clone(), Arc::new(agent));
    }
    agents
}

fn agent(
    context: &mut LoadContext<'_>,
    root: &Node,
    endpoints: &Endpoints,
    subagents: &SubagentsDef,
    library: &mut SkillLibrary,
) -> Option<AgentDef> {
    let file = context.fields(root, &AGENT_FILE)?;
    let identity = file.node("agent").and_then(|node| context.fields(node, &AGENT));
    let empty = Node::empty_map(root);
    let configuration = context.fields(file.node("configuration").unwrap_or(&empty), &CONFIGURATION)?;
    let protocol = identity.as_ref().map(|identity| protocol(context, identity)).unwrap_or(Some(Protocol::Rasa))?;
    match protocol {
        Protocol::A2a => {
            remote::check(context, &file, &configuration);
            for key in ["delegation", "workspace", "builtin_tools"].into_iter().filter(|key| file.has(key)) {
                let message = format!("`{key}` is a key of agents of this project, and this one is remote");
                context.error("F0510", file.at(key), message, "Remove it.");
            }
            for key in skills::KEYS.into_iter().filter(|key| configuration.has(key)) {
                let message = format!("`{key}` is a key of agents of this project, and this one is remote");
                context.error("F0510", configuration.at(key), message, "Remove it.");
            }
        }
        Protocol::Rasa => check_own(context, &file, &configuration),
    }
    let remote = (protocol == Protocol::A2a).then(|| remote::read(context, &configuration)).flatten().map(Box::new);
    let (model_group, llm) = configuration.node("llm").map(|node| context.model(node)).unwrap_or_default();
    let prompt = configuration.node("prompt_template").and_then(|node| context.template_file(node));
    let connections = connections(context, &file, endpoints);
    let module = configuration.node("module").and_then(|module| context.module(module));
    let timezone = context.timezone(configuration.node("timezone"), "F0513");
    let identity = identity?;
    for key in ["name", "description"] {
        if identity.text(key).is_some_and(|text| text.trim().is_empty()) {
            context.error(
                "F0501",
                identity.at(key),
                format!("the `{key}` of an agent must not be empty"),
                "Write a text.",
            );
        }
    }
    let max_iterations = configuration.whole("max_iterations").map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    if let Some(written) = max_iterations.filter(|written| *written > AGENT_MODEL_CALLS) {
        let most = AGENT_MODEL_CALLS;
        let message =
            format!("in a conversation `max_iterations` is {most} at most; {most} is used there instead of {written}");
        context.warning(
            "F0810",
            configuration.at("max_iterations"),
            message,
            format!("Write `max_iterations: {most}`."),
        );
    }
    Some(AgentDef {
        name: AgentName::new(identity.shared("name")?),
        description: identity.shared("description").unwrap_or_default(),
        protocol,
        model_group,
        llm,
        prompt,
        module: module.map(Into::into),
        timeout: configuration.seconds("timeout"),
        max_retries: configuration.whole("max_retries").and_then(|n| u32::try_from(n).ok()).unwrap_or(MAX_RETRIES),
        include_date_time: configuration.flag("include_date_time"),
        timezone,
        enable_filler_messages: configuration.flag("enable_filler_messages"),
        tool_timeout: configuration.seconds("tool_timeout"),
        on_tool_error: if configuration.text("on_tool_error") == Some("fail") {
            OnToolError::Fail
        } else {
            OnToolError::FeedBack
        },
        max_iterations,
        connections,
        rules: agent_rules::rules(context, &configuration),
        auth: configuration.node("auth").and_then(|node| context.auth(node)).unwrap_or_default(),
        hook_auth: configuration.node("hook_auth").and_then(|node| context.auth(node)).unwrap_or_default(),
        skills: skills::of_agent(context, &configuration, library),
        delegation: delegation::agent(context, &file, subagents, endpoints).map(Box::new),
        workspace: delegation::workspace(context, &file, endpoints),
        builtin_tools: builtin_tools::read(context, &file),
        remote,
        place: context.place(identity.node("name")?),
    })
}

fn protocol(context: &mut LoadContext<'_>, identity: &MapFields<'_>) -> Option<Protocol> {
    match identity.text("protocol") {
        None | Some("RASA" | "rasa") => Some(Protocol::Rasa),
        Some("A2A" | "a2a") => Some(Protocol::A2a),
        Some("mcp") => {
            let message = "`mcp` is an older name of the protocol `RASA`";
            context.warning("F0502", identity.node("protocol")?, message, "Write `RASA`.");
            Some(Protocol::Rasa)
        }
        Some(other) => {
            let message = format!("`{other}` is not an agent protocol");
            context.error(
                "F0502",
                identity.node("protocol")?,
                message,
                "Write `RASA` for an agent of this project or `A2A` for a remote agent.",
            );
            None
        }
    }
}

fn check_own(context: &mut LoadContext<'_>, file: &MapFields<'_>, configuration: &MapFields<'_>) {
    // A hook server may require authentication.
    let served = configuration.text("module").is_some_and(|module| module.contains("://"));
    for key in remote::KEYS {
        if configuration.has(key) && !(served && key == "auth") {
            let message = format!("`{key}` is a key of remote agents");
            context.error("F0510", configuration.at(key), message, "Remove it, or set `agent.protocol: A2A`.");
        }
    }
    let servers = file.node("connections").and_then(|node| node.get("mcp_servers"));
    match servers {
        // An agent with registered code needs no tools, and files, sub-agents or built-in tools may be all that it works with.
        None if configuration.has("module") => {}
        None if ["workspace", "delegation", "builtin_tools"].into_iter().any(|key| file.has(key)) => {}
        None => {
            let at = if file.has("connections") { file.at("connections") } else { file.node };
            let help = "Add `connections: {mcp_servers: [{name: …}]}` with a server from `endpoints.yml`, or `workspace: files`. An agent whose tools are written in Rust has `mcp_servers: []`, one whose code is registered has `module`.";
            context.error("F0503", at, "an agent needs `connections.mcp_servers`", help);
        }
        Some(list) if list.list().is_some_and(<[Node]>::is_empty) => {
            context.warning(
                "F0504",
                list,
                "`mcp_servers` is empty, so the agent has only tools registered in Rust",
                "Add `- name: …` if it should use a server.",
            );
        }
        Some(_) => {}
    }
}

fn connections(context: &mut LoadContext<'_>, file: &MapFields<'_>, endpoints: &Endpoints) -> Vec<AgentConnection> {
    let Some(fields) = file.node("connections").and_then(|node| context.fields(node, &CONNECTIONS)) else {
        return Vec::new();
    };
    let mut connections = Vec::new();
    let mut seen = HashSet::new();
    for node in fields.list("mcp_servers") {
        let Some(item) = context.fields(node, &CONNECTION) else { continue };
        for key in ["include_tools", "exclude_tools"] {
            if item.node(key).is_some_and(|list| list.list().is_some_and(<[Node]>::is_empty)) {
                let message = format!("`{key}` is empty, which is ambiguous: all tools or none");
                context.error("F0507", item.at(key), message, "List tools, or remove the key for all tools.");
            }
        }
        if item.has("include_tools") && item.has("exclude_tools") {
            let message = "`include_tools` and `exclude_tools` cannot be combined";
            context.error("F0506", item.at("exclude_tools"), message, "Remove one of the two.");
        }
        let Some(name) = item.node("name") else { continue };
        if context.sources.endpoints.is_none() || endpoints.mcp_servers.is_empty() {
            let message = "the agent uses MCP servers, but `endpoints.yml` defines none";
            context.error("F0505", name, message, "Add the server under `mcp_servers` of `endpoints.yml`.");
        } else {
            context.reference(ReferenceKind::AgentServer, name);
        }
        let text = name.text().unwrap_or_default();
        if !seen.insert(text) {
            context.error("F0602", name, format!("the server `{text}` is listed twice"), "List it once.");
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

impl LoadContext<'_> {
    /// Reads an IANA time zone name; `UTC` if it is absent or unknown.
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

    /// Reads `module`: a registered name or a URL. The path of a Python class is used as a name, under which hooks may be
    /// registered in Rust. Without them the agent runs without hooks.
    fn module<'n>(&mut self, node: &'n Node) -> Option<&'n str> {
        let text = node.text()?;
        if text.contains("://") {
            self.address(Some(node));
        } else if text.contains('.') {
            let message = format!("`{text}` is Python code, which does not run; the agent works without its hooks");
            let help = "Register hooks with this name in Rust, or write the URL of a hook server.";
            self.warning("F0514", node, message, help);
        }
        Some(text)
    }
}

//! Reads `missions/*.yml`.

use std::{collections::HashSet, sync::Arc};

use indexmap::IndexMap;

use super::{
    super::{
        AgentDef, BudgetLimits, Endpoints,
        check::mission as check,
        load_context::{LoadContext, MapFields},
        missions::{
            BudgetDef, CommanderDef, ConcurrencyDef, ContextLimits, DatasetDef, InputDef, MissionAgentDef, MissionDef,
            OnBreach, OnOverflow, ValueKind,
        },
        references::ReferenceKind,
        schema::{
            BUDGET, COMMANDER, COMPACTION, CONCURRENCY, DATASET, MISSION, MISSION_AGENT, MISSION_FILE, MISSION_TRIGGER,
            TOOL_RESPONSE,
        },
        yaml::Node,
    },
    builtin_tools, delegation,
    fields::{self, NamedNode},
    first_place, mission_tasks,
    skills::{self, SkillLibrary},
    storage,
};
use crate::{
    ids::AgentName,
    limits::{MISSION_CORRECTIONS, MISSION_PARALLEL, MISSION_RESULT_TOKENS, MISSION_TURNS},
};

/// Keys in which `${…}` is not an environment variable: texts for models, and names.
const LITERAL: [&str; 28] = [
    "title",
    "objective",
    "until",
    "key",
    "description",
    "personality",
    "directive",
    "when",
    "condition",
    "if",
    "else",
    "items",
    "enum",
    "pattern",
    "name",
    "agents",
    "tools",
    "skills",
    "depends_on",
    "send_to",
    "to",
    "target",
    "dataset",
    "bind_to",
    "shared",
    "memories",
    "packets",
    "workspace",
];

/// Reads all missions.
pub(super) fn load(
    context: &mut LoadContext<'_>,
    agents: &IndexMap<AgentName, Arc<AgentDef>>,
    endpoints: &Endpoints,
    library: &mut SkillLibrary,
) -> IndexMap<Arc<str>, Arc<MissionDef>> {
    let mut missions = IndexMap::new();
    let mut places = IndexMap::new();
    for file in &context.sources.missions {
        let Some(mut root) = context.open(file) else { continue };
        context.expand_except(&mut root, "mission", &LITERAL);
        let Some(mission) = mission(context, &root, agents, endpoints, library) else { continue };
        if let Some(first) = first_place(&mut places, &mission.name, mission.place.clone()) {
            let message = format!("a mission named `{}` is already defined in {}", mission.name, first.file);
            context.findings.error("F0802", &mission.place, message, "Give each mission a unique name.");
            continue;
        }
        missions.insert(mission.name.clone(), Arc::new(mission));
    }
    missions
}

fn mission(
    context: &mut LoadContext<'_>,
    root: &Node,
    agents: &IndexMap<AgentName, Arc<AgentDef>>,
    endpoints: &Endpoints,
    library: &mut SkillLibrary,
) -> Option<MissionDef> {
    let file = context.fields(root, &MISSION_FILE)?;
    let fields = context.fields(file.node("mission")?, &MISSION)?;
    let stem = context.file.rsplit('/').next().and_then(|name| name.split('.').next()).unwrap_or_default().to_owned();
    let name = fields.text("name").unwrap_or(&stem);
    let at = fields.node("name").unwrap_or(file.at("mission"));
    context.identifier(name, at, "a mission");
    let local_agents = local_agents(context, &fields, agents, endpoints, library);
    let inputs = fields::inputs(context, fields.node("inputs"));
    let datasets = datasets(context, &fields, &inputs);
    if let Some(trigger) = fields.node("trigger") {
        context.fields(trigger, &MISSION_TRIGGER);
    }
    let concurrency = concurrency(context, &fields, &inputs);
    let mut mission = MissionDef {
        name: name.into(),
        title: fields.shared("title"),
        description: fields.shared("description").unwrap_or_default(),
        directive: fields.shared("directive").unwrap_or_default(),
        commander: commander(context, &fields),
        agents: agent_names(&fields),
        local_agents,
        inputs,
        datasets,
        storage: storage::read(context, &fields),
        budget: budget(context, &fields),
        concurrency,
        tasks: IndexMap::new(),
        place: context.place(at),
    };
    mission_agents_are_known(context, &fields, &mission, agents);
    let places = mission_tasks::read(context, &fields, &mut mission, agents);
    check::check(&mission, &places, &mut context.findings);
    unused_local_agents(context, &mission);
    Some(mission)
}

/// The names in `agents`. A reference of HCL (`agents.writer`) is read as a name.
pub(super) fn agent_names(fields: &MapFields<'_>) -> Vec<AgentName> {
    fields.list("agents").iter().filter_map(|node| Some(AgentName::from(plain(node.text()?, "agents.")))).collect()
}

/// A reference of HCL without its kind: `tasks.read` is `read`.
pub(super) fn plain<'t>(text: &'t str, kind: &str) -> &'t str {
    text.strip_prefix(kind).unwrap_or(text)
}

fn mission_agents_are_known(
    context: &mut LoadContext<'_>,
    fields: &MapFields<'_>,
    mission: &MissionDef,
    agents: &IndexMap<AgentName, Arc<AgentDef>>,
) {
    agents_are_known(context, fields, &mission.local_agents, agents);
}

/// Reports names in `agents` that neither the project nor the mission defines, and names that are listed twice.
pub(super) fn agents_are_known(
    context: &mut LoadContext<'_>,
    fields: &MapFields<'_>,
    local: &IndexMap<AgentName, Arc<MissionAgentDef>>,
    agents: &IndexMap<AgentName, Arc<AgentDef>>,
) {
    let mut seen = HashSet::new();
    for node in fields.list("agents") {
        let name = plain(node.text().unwrap_or_default(), "agents.");
        if !seen.insert(name) {
            context.error("F0832", node, format!("the agent `{name}` is listed twice"), "List it once.");
        } else if !local.contains_key(name) && !agents.contains_key(name) {
            let known = local.keys().chain(agents.keys()).map(AgentName::as_str);
            let help = match crate::finding::did_you_mean(name, known) {
                Some(near) => format!("Did you mean `{near}`?"),
                None => format!("Add the agent in `sub_agents/{name}/config.yml`, or under `local_agents`."),
            };
            context.error("F0820", node, format!("there is no agent `{name}`"), help);
        }
    }
}

fn unused_local_agents(context: &mut LoadContext<'_>, mission: &MissionDef) {
    let is_used = |name: &AgentName| {
        mission.agents.contains(name) || mission.tasks.values().any(|task| task.agents.contains(name))
    };
    for agent in mission.local_agents.values().filter(|agent| !is_used(&agent.name)) {
        let message = format!("no task may call the local agent `{}`", agent.name);
        let help = "Add it to `agents` of the mission or of a task, or remove it.";
        context.findings.warning("F0822", &agent.place, message, help);
    }
}

fn commander(context: &mut LoadContext<'_>, mission: &MapFields<'_>) -> CommanderDef {
    let mut commander = CommanderDef::default();
    let Some(node) = mission.node("commander").filter(|node| !node.is_null()) else { return commander };
    if let Some(group) = node.text() {
        context.reference(ReferenceKind::ModelGroup, node);
        commander.model_group = Some(group.into());
        return commander;
    }
    let Some(fields) = context.fields(node, &COMMANDER) else { return commander };
    (commander.model_group, commander.llm) = fields.node("llm").map(|node| context.model(node)).unwrap_or_default();
    commander.reasoning = fields.shared("reasoning");
    commander.plan_required = fields.text("plan") != Some("optional");
    commander.max_turns = clamped(context, &fields, "max_turns", commander.max_turns, 1, MISSION_TURNS);
    commander.corrections = clamped(context, &fields, "corrections", commander.corrections, 0, MISSION_CORRECTIONS);
    commander.max_parallel_agents =
        clamped(context, &fields, "max_parallel_agents", commander.max_parallel_agents, 1, MISSION_PARALLEL);
    commander.context = context_limits(context, &fields, commander.max_turns);
    commander
}

/// `tool_response` and `compaction` of a commander or an agent.
fn context_limits(context: &mut LoadContext<'_>, fields: &MapFields<'_>, max_turns: u32) -> ContextLimits {
    let mut limits = ContextLimits::default();
    if let Some(response) = fields.node("tool_response").and_then(|node| context.fields(node, &TOOL_RESPONSE)) {
        limits.tool_response_tokens =
            clamped(context, &response, "max_tokens", limits.tool_response_tokens, 1, MISSION_RESULT_TOKENS);
    }
    if let Some(compaction) = fields.node("compaction").and_then(|node| context.fields(node, &COMPACTION)) {
        limits.compact_above = compaction.whole("token_limit").map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
        limits.turn_retention = clamped(context, &compaction, "turn_retention", limits.turn_retention, 1, max_turns);
        if compaction.text("summary") == Some("model") {
            let message = "`summary: model` is accepted but has no effect";
            let help = "Code writes the summary; remove the key.";
            context.warning("F0116", compaction.at("summary"), message, help);
        }
    }
    limits
}

/// A number within its range. A number outside is replaced by the nearest one, with a warning.
pub(super) fn clamped(
    context: &mut LoadContext<'_>,
    fields: &MapFields<'_>,
    key: &str,
    default: u32,
    least: u32,
    most: u32,
) -> u32 {
    let Some(written) = fields.whole(key) else { return default };
    let used = u32::try_from(written).unwrap_or(u32::MAX).clamp(least, most);
    if u64::from(used) != written {
        let message = format!("`{key}` must be from {least} to {most}; {used} is used instead of {written}");
        context.warning("F0810", fields.at(key), message, format!("Write `{key}: {used}`."));
    }
    used
}

fn local_agents(
    context: &mut LoadContext<'_>,
    mission: &MapFields<'_>,
    agents: &IndexMap<AgentName, Arc<AgentDef>>,
    endpoints: &Endpoints,
    library: &mut SkillLibrary,
) -> IndexMap<AgentName, Arc<MissionAgentDef>> {
    let mut local = IndexMap::new();
    for NamedNode { name, at, node } in fields::named(context, mission.node("local_agents"), "a local agent") {
        let Some(fields) = context.fields(node, &MISSION_AGENT) else { continue };
        if let Some(global) = agents.get(name) {
            let message = format!("the local agent `{name}` has the name of the agent in {}", global.place.file);
            context.error("F0803", at, message, "Rename one of the two.");
        }
        let tools = server_tools(context, fields.list("tools"));
        let (model_group, llm) = fields.node("llm").map(|node| context.model(node)).unwrap_or_default();
        let agent = MissionAgentDef {
            name: name.into(),
            title: fields.shared("title"),
            description: fields.shared("description").unwrap_or_default(),
            model_group,
            llm,
            tools,
            context: context_limits(context, &fields, MISSION_TURNS),
            skills: skills::of_agent(context, &fields, library),
            workspace: delegation::workspace(context, &fields, endpoints),
            builtin_tools: builtin_tools::read(context, &fields),
            place: context.place(at),
        };
        local.insert(agent.name.clone(), Arc::new(agent));
    }
    local
}

/// Reads tools of servers: `server`, `server.all` or `server.tool`.
pub(super) fn server_tools(context: &mut LoadContext<'_>, nodes: &[Node]) -> Vec<Arc<str>> {
    let mut tools = Vec::new();
    for node in nodes {
        let tool = plain(node.text().unwrap_or_default(), "mcp.");
        let server = tool.split('.').next().unwrap_or_default();
        context.reference_name(ReferenceKind::AgentServer, server, context.place(node));
        tools.push(tool.trim_end_matches(".all").into());
    }
    tools
}

fn datasets(
    context: &mut LoadContext<'_>,
    mission: &MapFields<'_>,
    inputs: &IndexMap<Arc<str>, InputDef>,
) -> IndexMap<Arc<str>, DatasetDef> {
    let mut datasets = IndexMap::new();
    for NamedNode { name, at, node } in fields::named(context, mission.node("datasets"), "a dataset") {
        let is_valid = context.identifier(name, at, "a dataset");
        let empty = Node::empty_map(at);
        // `sources:` without keys is a dataset of any objects that tasks fill.
        let node = if node.is_null() { &empty } else { node };
        let Some(fields) = context.fields(node, &DATASET).filter(|_| is_valid) else { continue };
        let schema = fields::fields(context, fields.node("schema"));
        let mut dataset = DatasetDef {
            description: fields.shared("description").unwrap_or_default(),
            schema,
            items: None,
            bind_to: fields.text("bind_to").map(|input| plain(input, "inputs.").into()),
            place: context.place(at),
        };
        if fields.has("items") {
            let items = fields.list("items");
            items.iter().for_each(|item| dataset_item(context, item, &dataset));
            dataset.items = Some(items.iter().map(Node::json).collect());
        }
        if let Some(input) = &dataset.bind_to {
            let written = fields.at("bind_to");
            let named = inputs.get(input);
            let is_list = named.is_some_and(|input| input.field.kind == ValueKind::List && !input.protected);
            if fields.has("items") {
                let message = format!("the dataset `{name}` has two sources: `items` and `bind_to`");
                context.error("F0826", written, message, "Remove one of the two.");
            } else if named.is_none() {
                let help = match crate::finding::did_you_mean(input, inputs.keys().map(|name| &**name)) {
                    Some(near) => format!("Did you mean `{near}`?"),
                    None => format!("Add `{input}: {{type: list}}` under `inputs`."),
                };
                context.error("F0826", written, format!("there is no input `{input}`"), help);
            } else if !is_list {
                let message = format!("the input `{input}` cannot fill a dataset, because it is not a `list`");
                context.error("F0826", written, message, "Write `type: list` in the input.");
            }
        }
        datasets.insert(name.into(), dataset);
    }
    datasets
}

/// Reports the first problem of an item.
fn dataset_item(context: &mut LoadContext<'_>, node: &Node, dataset: &DatasetDef) {
    if node.map().is_none() {
        let message = format!("an item of a dataset must be a map, but this is {}", node.kind());
        context.error("F0825", node, message, "Write the fields of the item as keys.");
        return;
    }
    for (name, field) in &dataset.schema {
        let value = node.get(name).filter(|value| !value.is_null());
        match value.map(|value| (value, field.check(&value.json()))) {
            None if field.required => {
                let message = format!("the item has no `{name}`, which the schema requires");
                context.error("F0825", node, message, format!("Add `{name}: …`."));
            }
            Some((value, Err(problem))) => {
                let message = format!("`{name}` of the item does not fit the schema: {problem}");
                context.error("F0825", value, message, "Correct the value or the schema.");
            }
            None | Some((_, Ok(()))) => {}
        }
    }
}

/// Reads `budget` of a mission or a task.
pub(super) fn budget(context: &mut LoadContext<'_>, owner: &MapFields<'_>) -> Option<BudgetDef> {
    let node = owner.node("budget")?;
    let fields = context.fields(node, &BUDGET)?;
    let limits = budget_limits(context, owner, &fields);
    let on_breach = match fields.text("on_breach") {
        Some("finish_turn") => OnBreach::FinishTurn,
        Some("ask") => OnBreach::Ask,
        _ => OnBreach::Fail,
    };
    Some(BudgetDef { limits, on_breach })
}

/// Reads the limits of the section `budget` of `owner`, whose keys are `fields`.
pub(super) fn budget_limits(
    context: &mut LoadContext<'_>,
    owner: &MapFields<'_>,
    fields: &MapFields<'_>,
) -> BudgetLimits {
    let (tokens, cost) = (fields.whole("tokens"), fields.number("dollars"));
    if tokens.is_none() && cost.is_none() && !fields.has("tokens") && !fields.has("dollars") {
        let help = "Add `tokens: …` or `dollars: …`.";
        context.error("F0811", owner.at("budget"), "the budget has no limit", help);
    }
    for (key, is_zero) in [("tokens", tokens == Some(0)), ("dollars", cost.is_some_and(|cost| cost <= 0.0))] {
        if is_zero {
            let message = format!("with this `{key}` no run can do anything");
            context.error("F0811", fields.at(key), message, "Write a number above 0, or remove the key.");
        }
    }
    let warn_at = fields.number("warn_at").unwrap_or(0.8);
    if !(warn_at > 0.0 && warn_at <= 1.0) {
        let message = "`warn_at` is a share of the budget, above 0 and at most 1";
        context.error("F0811", fields.at("warn_at"), message, "Write for example `warn_at: 0.8`.");
    }
    BudgetLimits { tokens, cost, warn_at: Some(warn_at) }
}

fn concurrency(
    context: &mut LoadContext<'_>,
    mission: &MapFields<'_>,
    inputs: &IndexMap<Arc<str>, InputDef>,
) -> ConcurrencyDef {
    let default = ConcurrencyDef::default();
    let Some(fields) = mission.node("concurrency").and_then(|node| context.fields(node, &CONCURRENCY)) else {
        return default;
    };
    if fields.text("overflow") == Some("replace") {
        let message = "`overflow: replace` is accepted but has no effect";
        let help = "A run above a limit is refused. Write `skip` or `queue`.";
        context.warning("F0116", fields.at("overflow"), message, help);
    }
    if fields.has("limit") && !fields.has("key") {
        let message = "`limit` has no effect without `key`";
        let help = "Add `key: \"{{ inputs.<name> }}\"`, or write `max_parallel` for all runs of the mission.";
        context.warning("F0845", fields.at("limit"), message, help);
    }
    ConcurrencyDef {
        max_parallel: clamped(context, &fields, "max_parallel", default.max_parallel, 1, MISSION_PARALLEL),
        max_tasks: clamped(context, &fields, "max_tasks", default.max_tasks, 1, MISSION_PARALLEL),
        key: fields.node("key").and_then(|node| mission_tasks::concurrency_key(context, node, inputs)),
        limit: clamped(context, &fields, "limit", default.limit, 1, MISSION_PARALLEL),
        overflow: match fields.text("overflow") {
            Some("queue") => OnOverflow::Queue,
            _ => OnOverflow::Skip,
        },
    }
}

#[cfg(test)]
mod tests;

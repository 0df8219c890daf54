//! Reads `subagents.yml`, and `delegation` and `workspace` of agents.

use std::{sync::Arc, time::Duration};

use super::{
    super::{
        AdmissionDef, BudgetLimits, DelegateModel, DelegationDef, Endpoints, Preset, SubagentType, SubagentsDef,
        WorkspaceAccess,
        load_context::{LoadContext, MapFields},
        references::ReferenceKind,
        schema::{
            ADMISSION, DELEGATION, DELEGATION_BUDGET, SUBAGENT_DEFAULTS, SUBAGENT_OVERRIDE, SUBAGENT_TYPE, SUBAGENTS,
            SUBAGENTS_FILE, TOKEN_BUDGET,
        },
        yaml::{Entry, Node},
    },
    fields,
    missions::{budget_limits, clamped},
};
use crate::{
    finding::did_you_mean,
    limits::{DELEGATION_CONCURRENT, DELEGATION_DEPTH, DELEGATION_QUEUED, DELEGATION_RUNNING, DELEGATION_TOTAL},
};

/// Keys in which `${…}` is not an environment variable: texts for models, and names.
const LITERAL: [&str; 7] = ["description", "system_prompt", "enum", "pattern", "tools", "disallowed_tools", "skills"];
/// The tool whose commands run in the sandbox.
const BASH: &str = "bash";
/// The `model` of a type that uses the model of its parent.
const INHERIT: &str = "inherit";

/// Limits that apply to types without their own.
#[derive(Clone, Copy)]
struct Limits {
    max_turns: Option<u32>,
    timeout: Option<Duration>,
    token_budget: Option<BudgetLimits>,
}

impl Limits {
    fn read(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> Self {
        Self {
            max_turns: fields.whole("max_turns").map(|turns| u32::try_from(turns).unwrap_or(u32::MAX)),
            timeout: fields.seconds("timeout_seconds"),
            token_budget: fields.node("token_budget").map(|node| token_budget(context, node)),
        }
    }

    fn or(self, other: Self) -> Self {
        Self {
            max_turns: self.max_turns.or(other.max_turns),
            timeout: self.timeout.or(other.timeout),
            token_budget: self.token_budget.or(other.token_budget),
        }
    }

    fn apply(self, kind: &mut SubagentType) {
        kind.max_turns = self.max_turns.unwrap_or(kind.max_turns);
        kind.timeout = self.timeout.unwrap_or(kind.timeout);
        kind.token_budget = self.token_budget.unwrap_or(kind.token_budget);
    }

    const NONE: Self = Self { max_turns: None, timeout: None, token_budget: None };
}

/// Reads `subagents.yml`; the built-in types if there is none.
pub(super) fn load(context: &mut LoadContext<'_>, endpoints: &Endpoints) -> SubagentsDef {
    let mut def = SubagentsDef::default();
    if endpoints.sandbox.is_some() {
        let bash = SubagentType::of_preset(Preset::Bash);
        def.types.insert(bash.name.clone(), bash);
    }
    let Some(file) = &context.sources.subagents else { return def };
    let Some(mut root) = context.open(file).filter(|root| !root.is_null()) else { return def };
    context.expand_except(&mut root, "subagents", &LITERAL);
    let Some(fields) = context.fields(&root, &SUBAGENTS_FILE) else { return def };
    let Some(fields) = fields.node("subagents").and_then(|node| context.fields(node, &SUBAGENTS)) else { return def };
    def.max_total = clamped(context, &fields, "max_total_per_run", def.max_total, 1, DELEGATION_TOTAL);
    def.admission = admission(context, &fields).unwrap_or(def.admission);
    let defaults = fields.node("defaults").and_then(|node| context.fields(node, &SUBAGENT_DEFAULTS));
    let defaults = defaults.map_or(Limits::NONE, |fields| Limits::read(context, &fields));
    // The budget on top is for all types, the other limits on top are for the built-in ones.
    let global = Limits::read(context, &fields);
    let for_all = Limits { token_budget: global.token_budget, ..Limits::NONE }.or(defaults);
    for kind in def.types.values_mut() {
        global.or(defaults).apply(kind);
    }
    for key in ["types", "custom_agents"] {
        for entry in fields.map(key) {
            subagent_type(context, key, entry, &mut def, for_all, global, endpoints);
        }
    }
    overrides(context, &fields, &mut def, endpoints);
    def
}

fn admission(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> Option<AdmissionDef> {
    let default = AdmissionDef::default();
    let fields = fields.node("admission").and_then(|node| context.fields(node, &ADMISSION))?;
    let max_queued = clamped(context, &fields, "max_queued", default.max_queued, 0, DELEGATION_QUEUED);
    Some(AdmissionDef {
        max_running: clamped(context, &fields, "max_running", default.max_running, 1, DELEGATION_RUNNING),
        max_queued: if fields.text("policy") == Some("reject") { 0 } else { max_queued },
        queue_timeout: fields.seconds("queue_timeout_seconds").unwrap_or(default.queue_timeout),
    })
}

fn token_budget(context: &mut LoadContext<'_>, node: &Node) -> BudgetLimits {
    let Some(fields) = context.fields(node, &TOKEN_BUDGET) else { return BudgetLimits::default() };
    let default = SubagentType::TOKEN_BUDGET;
    let warn_at = fields.number("warn_threshold").or(default.warn_at);
    if !warn_at.is_some_and(|warn_at| warn_at > 0.0 && warn_at <= 1.0) {
        let message = "`warn_threshold` is a share of the budget, above 0 and at most 1";
        context.error("F0811", fields.at("warn_threshold"), message, "Write for example `warn_threshold: 0.7`.");
    }
    let limits = BudgetLimits { tokens: fields.whole("max_tokens").or(default.tokens), cost: None, warn_at };
    if fields.flag("enabled") { limits } else { BudgetLimits::default() }
}

fn subagent_type(
    context: &mut LoadContext<'_>,
    key: &str,
    entry: &Entry,
    def: &mut SubagentsDef,
    for_all: Limits,
    global: Limits,
    endpoints: &Endpoints,
) {
    let name = entry.key.as_str();
    let empty = Node::empty_map(&entry.at);
    let node = if entry.node.is_null() { &empty } else { &entry.node };
    let Some(fields) = context.fields(node, &SUBAGENT_TYPE) else { return };
    let builtin = Preset::named(name);
    if builtin.is_some() && key == "custom_agents" {
        let message = format!("`{name}` is a built-in type, which takes precedence over this one");
        let help = "Choose another name, or change the built-in type under `agents`.";
        context.warning("F0853", &entry.at, message, help);
        return;
    }
    if let Some(earlier) = def.types.get(name).filter(|earlier| !earlier.place.file.is_empty()) {
        let message = format!("the type `{name}` is already on line {}", earlier.place.line);
        context.error("F0853", &entry.at, message, "Give each type a unique name.");
        return;
    }
    let is_deep = fields.text("preset") == Some(Preset::DEEP);
    let general = is_deep.then_some(Preset::GeneralPurpose);
    let preset = fields.text("preset").and_then(Preset::named).or(builtin).or(general);
    if let Some(builtin) = builtin.filter(|builtin| preset != Some(*builtin)) {
        let message = format!("the built-in type `{name}` cannot have another preset");
        let help = format!("Write `preset: {}`, or choose another name.", builtin.name());
        context.error("F0853", fields.at("preset"), message, help);
    }
    for key in ["description", "system_prompt"] {
        let is_empty = fields.text(key).is_none_or(|text| text.trim().is_empty());
        // An invalid preset is reported already.
        if ((preset.is_none() && !fields.has("preset")) || fields.has(key)) && is_empty {
            let message = format!("the type `{name}` needs `{key}`");
            let help = format!("Add `{key}: …`, or `preset: general-purpose` for a built-in text.");
            context.error("F0851", if fields.has(key) { fields.at(key) } else { &entry.at }, message, help);
        }
    }
    let base = preset.map(SubagentType::of_preset);
    let mut kind = base.unwrap_or_else(|| SubagentType {
        preset: None,
        tools: None,
        max_turns: SubagentType::MAX_TURNS,
        ..SubagentType::of_preset(Preset::GeneralPurpose)
    });
    kind.name = name.into();
    kind.description = fields.shared("description");
    kind.system_prompt = fields.shared("system_prompt");
    kind.tools = texts(&fields, "tools").or(kind.tools);
    kind.disallowed_tools = texts(&fields, "disallowed_tools").unwrap_or_default();
    kind.skills = texts(&fields, "skills");
    kind.model = model(context, &fields).unwrap_or_default();
    kind.output = fields::fields(context, fields.node("output"));
    kind.place = context.place(&entry.at);
    let shared = if builtin.is_some() { global.or(for_all) } else { for_all };
    // What the type itself says comes before what holds for several types.
    let deep = Limits { max_turns: preset.filter(|_| is_deep).map(Preset::deep_turns), ..Limits::NONE };
    Limits::read(context, &fields).or(deep).or(shared).apply(&mut kind);
    if without_sandbox(context, &fields, &kind, &entry.at, endpoints) {
        def.types.insert(kind.name.clone(), kind);
    }
}

/// Whether the type can exist: one that only runs commands is left out without a sandbox.
fn without_sandbox(
    context: &mut LoadContext<'_>,
    fields: &MapFields<'_>,
    kind: &SubagentType,
    at: &Node,
    endpoints: &Endpoints,
) -> bool {
    if endpoints.sandbox.is_some() {
        return true;
    }
    let help = "Add `sandbox: {preset: bubblewrap}` to `endpoints.yml`.";
    if kind.preset == Some(Preset::Bash) || fields.has("requires") {
        let message =
            format!("the type `{}` needs a sandbox and is left out, because `endpoints.yml` sets none", kind.name);
        context.warning("F0852", at, message, help);
        return false;
    }
    let bash = fields.list("tools").iter().find(|tool| tool.text() == Some(BASH));
    if let Some(tool) = bash {
        let message = "the tool `bash` needs a sandbox, and `endpoints.yml` sets none";
        context.warning("F0852", tool, message, help);
    }
    true
}

fn texts(fields: &MapFields<'_>, key: &str) -> Option<Vec<Arc<str>>> {
    fields.node(key)?;
    Some(fields.list(key).iter().filter_map(Node::text).map(Into::into).collect())
}

fn model(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> Option<DelegateModel> {
    let node = fields.node("model").filter(|node| !node.is_null())?;
    match node.text() {
        Some(INHERIT) => Some(DelegateModel::Inherit),
        Some(group) => {
            context.reference(ReferenceKind::ModelGroup, node);
            Some(DelegateModel::Group(group.into()))
        }
        None => match context.model(node) {
            (Some(group), _) => Some(DelegateModel::Group(group)),
            (None, own) => Some(DelegateModel::Own(own)),
        },
    }
}

/// Reads `agents`: settings that replace those of any type.
fn overrides(context: &mut LoadContext<'_>, fields: &MapFields<'_>, def: &mut SubagentsDef, endpoints: &Endpoints) {
    for entry in fields.map("agents") {
        let Some(fields) = context.fields(&entry.node, &SUBAGENT_OVERRIDE) else { continue };
        let limits = Limits::read(context, &fields);
        let model = model(context, &fields);
        let known: Vec<Arc<str>> = def.types.keys().cloned().collect();
        let Some(kind) = def.types.get_mut(entry.key.as_str()) else {
            // Without a sandbox there is no `bash`, so there is nothing to change.
            if entry.key == BASH && endpoints.sandbox.is_none() {
                continue;
            }
            unknown_type(context, &entry.at, &entry.key, &known);
            continue;
        };
        limits.apply(kind);
        kind.model = model.unwrap_or_else(|| kind.model.clone());
        kind.skills = texts(&fields, "skills").or_else(|| kind.skills.clone());
    }
}

fn unknown_type(context: &mut LoadContext<'_>, at: &Node, name: &str, known: &[Arc<str>]) {
    let help = match did_you_mean(name, known.iter().map(|name| &**name)) {
        Some(near) => format!("Did you mean `{near}`?"),
        None => format!("Add `{name}` under `types` of `subagents.yml`."),
    };
    context.error("F0850", at, format!("there is no type of sub-agents `{name}`"), help);
}

/// Reads `delegation` of an agent; `None` if it is off.
pub(super) fn agent(
    context: &mut LoadContext<'_>,
    file: &MapFields<'_>,
    subagents: &SubagentsDef,
    endpoints: &Endpoints,
) -> Option<DelegationDef> {
    let fields = context.fields(file.node("delegation")?, &DELEGATION)?;
    let known: Vec<Arc<str>> = subagents.types.keys().cloned().collect();
    for node in fields.list("types") {
        let name = node.text().unwrap_or_default();
        if name == BASH && endpoints.sandbox.is_none() {
            let message = "the type `bash` needs a sandbox, and `endpoints.yml` sets none";
            let help = "Add `sandbox: {preset: bubblewrap}` to `endpoints.yml`, or remove `bash`.";
            context.error("F0852", node, message, help);
        } else if !subagents.types.contains_key(name) {
            unknown_type(context, node, name, &known);
        }
    }
    if fields.node("types").is_some_and(|node| node.list().is_some_and(<[Node]>::is_empty)) {
        let message = "`types` is empty, so the agent can start no sub-agents";
        context.error("F0850", fields.at("types"), message, "List types, or remove the key for all types.");
    }
    let per_conversation = fields.whole("per_conversation").map(|most| u32::try_from(most).unwrap_or(u32::MAX));
    let def = DelegationDef {
        types: texts(&fields, "types"),
        max_concurrent: clamped(context, &fields, "max_concurrent", 3, 1, DELEGATION_CONCURRENT),
        max_total: clamped(context, &fields, "max_total", subagents.max_total, 1, DELEGATION_TOTAL),
        per_conversation,
        depth: clamped(context, &fields, "depth", 1, 1, DELEGATION_DEPTH),
        background: fields.flag("background"),
        budget: budget(context, &fields),
        place: context.place(fields.at("types")),
    };
    fields.flag("enabled").then_some(def)
}

fn budget(context: &mut LoadContext<'_>, owner: &MapFields<'_>) -> BudgetLimits {
    let fields = owner.node("budget").and_then(|node| context.fields(node, &DELEGATION_BUDGET));
    fields.map_or_else(BudgetLimits::default, |fields| budget_limits(context, owner, &fields))
}

/// Reads `workspace` of an agent.
pub(super) fn workspace(context: &mut LoadContext<'_>, file: &MapFields<'_>, endpoints: &Endpoints) -> WorkspaceAccess {
    let Some(node) = file.node("workspace").filter(|node| !node.is_null()) else { return WorkspaceAccess::default() };
    let access = match node.list() {
        Some(tools) => {
            for tool in tools {
                let name = tool.text().unwrap_or_default();
                if !WorkspaceAccess::TOOLS.contains(&name) {
                    unknown_word(context, tool, "a tool of workspaces", &WorkspaceAccess::TOOLS);
                }
            }
            WorkspaceAccess::of(tools.iter().filter_map(Node::text))
        }
        None => node.text().and_then(WorkspaceAccess::named).unwrap_or_else(|| {
            unknown_word(context, node, "a valid value of `workspace`", &WorkspaceAccess::WORDS);
            WorkspaceAccess::default()
        }),
    };
    if access.has(BASH) && endpoints.sandbox.is_none() {
        let message = "commands need a sandbox, and `endpoints.yml` sets none";
        let help = "Add `sandbox: {preset: bubblewrap}` to `endpoints.yml`, or write `workspace: files`.";
        context.error("F0852", file.at("workspace"), message, help);
        return access.without_commands();
    }
    access
}

fn unknown_word(context: &mut LoadContext<'_>, node: &Node, what: &str, known: &[&str]) {
    let text = node.text().unwrap_or_default();
    let help = match did_you_mean(text, known.iter().copied()) {
        Some(near) => format!("Did you mean `{near}`?"),
        None => format!("Write one of `{}`.", known.join("`, `")),
    };
    context.error("F0111", node, format!("`{text}` is not {what}"), help);
}

#[cfg(test)]
mod tests;

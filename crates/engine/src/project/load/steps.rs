//! Reads the steps of a flow. Nested lists become one list, in the order of the file.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{
    super::{
        ActionReference, Call, Collect, Step, StepKind,
        load_context::{LoadContext, MapFields, describe},
        references::{ConditionRole, ReferenceKind},
        schema::{DTMF, STEP, STEP_KINDS, Support, TOOL_INPUT, TOOL_MAPPING, TOOL_OUTPUT, is_key_of_kind},
        yaml::{Entry, Node},
    },
    continuation_hash,
    next::{UnresolvedNext, UnresolvedTarget},
    slots,
};
use crate::{
    finding::{SourceLocation, did_you_mean},
    ids::{ActionName, AgentName, FlowId, ResponseName, ServerName, SlotName, StepId, ToolName},
};

/// The position of a list of steps in a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepListKind {
    /// `steps` of the flow: the last step ends it.
    Top,
    /// Under `then` or `else`: the last step needs `next`.
    Branch,
    /// A list of steps under `next`: the last step ends the flow.
    Plain,
}

/// A step before step ids are resolved.
pub(super) struct UnresolvedStep {
    pub(super) id: StepId,
    /// Whether the id is written in the file.
    pub(super) named: bool,
    pub(super) kind: StepKind,
    pub(super) follow: UnresolvedNext,
    pub(super) on_error: Option<UnresolvedNext>,
    pub(super) place: SourceLocation,
    pub(super) description: Option<Arc<str>>,
    /// A hash of the single step.
    pub(super) own: u32,
}

/// The steps of a flow that are read so far.
pub(super) struct StepListBuilder<'a> {
    pub(super) flow: &'a FlowId,
    agents: &'a HashSet<String>,
    pub(super) steps: Vec<UnresolvedStep>,
    ids: HashMap<String, u32>,
}

impl<'a> StepListBuilder<'a> {
    pub(super) fn new(flow: &'a FlowId, agents: &'a HashSet<String>) -> Self {
        Self { flow, agents, steps: Vec::new(), ids: HashMap::new() }
    }

    /// Reads all steps of the flow.
    pub(super) fn read(mut self, context: &mut LoadContext<'_>, nodes: &[Node]) -> (Vec<Step>, HashMap<StepId, usize>) {
        self.list(context, nodes, StepListKind::Top);
        self.resolve(context)
    }

    /// Reads a list. Returns the position of its first step.
    pub(super) fn list(
        &mut self,
        context: &mut LoadContext<'_>,
        nodes: &[Node],
        position: StepListKind,
    ) -> Option<usize> {
        let mut own: Vec<(usize, &Node)> = Vec::with_capacity(nodes.len());
        for node in nodes {
            own.extend(self.step(context, node).map(|at| (at, node)));
        }
        for (order, (at, node)) in own.iter().enumerate() {
            let after = own.get(order + 1).map(|(at, _)| *at);
            self.link_to_following(context, *at, after, node, position);
        }
        own.first().map(|(at, _)| *at)
    }

    /// Sets the next step of a step without `next` to the following one, or reports the missing key.
    fn link_to_following(
        &mut self,
        context: &mut LoadContext<'_>,
        at: usize,
        after: Option<usize>,
        node: &Node,
        position: StepListKind,
    ) {
        let Some(step) = self.steps.get_mut(at) else { return };
        let is_link = matches!(step.kind, StepKind::Link(_));
        if is_link && after.is_some() {
            let help = "Move `link` to the end of the list, or use `call` to return afterwards.";
            context.findings.error("F0208", &step.place, "`link` leaves the flow, so no step may follow it", help);
        }
        if !matches!(step.follow, UnresolvedNext::Omitted) {
            return;
        }
        if matches!(step.kind, StepKind::Noop) && node.get("noop").is_some() {
            let help = "Add `next:` with branches or a step id.";
            context.findings.error("F0231", &step.place, "a `noop` step needs `next`", help);
        }
        if let (StepListKind::Branch, None, false) = (position, after, is_link) {
            let help = "Add `next: END`, or `next` with the id of the following step.";
            context.findings.error("F0207", &step.place, "the last step of a branch needs `next`", help);
        }
        step.follow = UnresolvedNext::Go(match after {
            Some(after) if !is_link => UnresolvedTarget::At(after),
            _ => UnresolvedTarget::End,
        });
    }

    fn step(&mut self, context: &mut LoadContext<'_>, node: &Node) -> Option<usize> {
        let fields = context.fields(node, &STEP)?;
        let kind_entry = self.kind_of(context, &fields);
        let kind_name = kind_entry.map_or("noop", |entry| entry.key.as_str());
        let kind = kind_entry.and_then(|entry| self.kind(context, &fields, entry));
        let at = self.steps.len();
        let place = match kind_entry {
            Some(entry) if entry.node.text().is_some() && entry.key != "noop" => context.place(&entry.node),
            Some(entry) => context.place(&entry.at),
            None => context.place(node),
        };
        let (id, named) = self.id(context, &fields, at, kind_name, kind_entry);
        let description = fields.shared("description");
        let kind = kind.unwrap_or(StepKind::Noop);
        if matches!(kind, StepKind::Link(_)) && fields.has("next") {
            let help = "Remove `next`: the linked flow continues from here.";
            context.error("F0208", fields.at("next"), "a `link` step cannot have `next`", help);
        }
        self.steps.push(UnresolvedStep {
            id,
            named,
            kind,
            follow: UnresolvedNext::Omitted,
            on_error: None,
            place,
            description,
            own: continuation_hash::own(node),
        });
        let follow = self.next(context, fields.node("next"), "next");
        let on_error = self.next(context, fields.node("on_error"), "on_error");
        if let Some(step) = self.steps.get_mut(at) {
            step.follow = follow;
            step.on_error = Some(on_error).filter(|follow| !matches!(follow, UnresolvedNext::Omitted));
        }
        Some(at)
    }

    /// The entry with the kind of the step.
    fn kind_of<'n>(&self, context: &mut LoadContext<'_>, fields: &MapFields<'n>) -> Option<&'n Entry> {
        let entries = fields.node.map().unwrap_or_default();
        let mut kinds = entries.iter().filter(|entry| STEP_KINDS.contains(&entry.key.as_str()));
        let Some(first) = kinds.next() else {
            let is_reported = |entry: &Entry| {
                matches!(STEP.key(&entry.key), Some(key) if matches!(key.support, Support::Refused(_)))
                    || STEP.key(&entry.key).is_none() && did_you_mean(&entry.key, STEP_KINDS).is_some()
            };
            if !entries.iter().any(is_reported) {
                let help = format!("Add one of `{}`.", STEP_KINDS.join("`, `"));
                context.error("F0204", fields.node, "this step has no kind", help);
            }
            return None;
        };
        for other in kinds {
            let message =
                format!("a step can have only one kind, but this one has `{}` and `{}`", first.key, other.key);
            context.error("F0204", &other.at, message, "Write two steps.");
        }
        for entry in
            entries.iter().filter(|entry| STEP.key(&entry.key).is_some() && !is_key_of_kind(&entry.key, &first.key))
        {
            if !STEP_KINDS.contains(&entry.key.as_str()) {
                let message = format!("`{}` is not a key of a step with `{}`", entry.key, first.key);
                context.error("F0236", &entry.at, message, "Remove it, or move it to another step.");
            }
        }
        Some(first)
    }

    fn id(
        &mut self,
        context: &mut LoadContext<'_>,
        fields: &MapFields<'_>,
        at: usize,
        kind: &str,
        entry: Option<&Entry>,
    ) -> (StepId, bool) {
        if let Some(node) = fields.node("id")
            && let Some(id) = node.text()
        {
            if matches!(id, "START" | "END") || id.starts_with("NEXT:") {
                let message = format!("`{id}` is reserved and cannot be the id of a step");
                context.error("F0209", node, message, "Choose another id.");
            }
            match self.ids.get(id) {
                Some(line) => {
                    let message = format!("duplicate step id `{id}` in the flow `{}`, first on line {line}", self.flow);
                    context.error("F0210", node, message, "Give each step a unique id.");
                }
                None => _ = self.ids.insert(id.to_owned(), node.line),
            }
            return (id.into(), true);
        }
        let target = entry.and_then(|entry| entry.node.text()).unwrap_or_default();
        let postfix = match kind {
            "action" => target.to_owned(),
            "collect" | "link" | "call" => format!("{kind}_{target}"),
            _ => kind.to_owned(),
        };
        (StepId::from(format!("{}_{at}_{postfix}", self.flow)), false)
    }

    fn kind(&mut self, context: &mut LoadContext<'_>, fields: &MapFields<'_>, entry: &Entry) -> Option<StepKind> {
        match entry.key.as_str() {
            "action" => action(context, fields.node("action")?).map(StepKind::Action),
            "collect" => collect(context, fields).map(|collect| StepKind::Collect(Box::new(collect))),
            "link" => fields.text("link").map(|flow| StepKind::Link(flow.into())),
            "call" => self.call(context, fields).map(StepKind::Call),
            "set_slots" => Some(StepKind::SetSlots(set_slots(context, &entry.node))),
            _ => Some(StepKind::Noop),
        }
    }

    fn call(&self, context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> Option<Call> {
        let target = fields.text("call")?;
        if fields.has("mcp_server") || fields.has("mapping") {
            return tool(context, fields, target);
        }
        if self.agents.contains(target) {
            return Some(Call::Agent { agent: AgentName::from(target), exit_if: exit_if(context, fields) });
        }
        if fields.has("exit_if") {
            let help = format!("Call an agent (`{target}` is not an agent), or remove `exit_if`.");
            context.error(
                "F0228",
                fields.at("exit_if"),
                "`exit_if` ends the task of an agent, but this step does not call an agent",
                help,
            );
        }
        Some(Call::Flow(target.into()))
    }
}

fn action(context: &mut LoadContext<'_>, node: &Node) -> Option<ActionReference> {
    let text = node.text()?;
    if text.contains("{{") || text.contains("{%") {
        return context.template(node, text).map(ActionReference::Template);
    }
    context.reference(ReferenceKind::Action, node);
    Some(ActionReference::Plain(ActionName::from(text)))
}

fn collect(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> Option<Collect> {
    let node = fields.node("collect")?;
    let text = node.text()?;
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts_well || !text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
        let help = "Use letters, digits, `_` and `-`, and start with a letter or `_`.";
        context.error("F0212", node, format!("`{text}` is not a valid name of a collected slot"), help);
    }
    context.reference(ReferenceKind::Slot, node);
    let slot = SlotName::from(text);
    if let Some(utter) = fields.node("utter") {
        context.reference(ReferenceKind::Response, utter);
    }
    if let Some(dtmf) = fields.node("dtmf").and_then(|node| context.fields(node, &DTMF))
        && dtmf.has("length")
        && dtmf.has("finish_on_key")
    {
        let message = "`length` and `finish_on_key` cannot be combined";
        context.error("F0280", dtmf.at("finish_on_key"), message, "Remove one of the two.");
    }
    let rejections = slots::rejections(context, fields, &slot);
    Some(Collect {
        description: fields.shared("description"),
        ask_before_filling: fields.flag("ask_before_filling"),
        decides: false, // known when all flows are
        reset_after_flow_ends: fields.flag("reset_after_flow_ends"),
        utter: fields.text("utter").map_or_else(|| ResponseName::from(format!("utter_ask_{slot}")), ResponseName::from),
        action: ActionName::from(format!("action_ask_{slot}")),
        rejections,
        force_slot_filling: fields.flag("force_slot_filling"),
        silence: silence(context, fields),
        slot,
    })
}

/// Reads `silence_timeout`: a number of seconds, or a map from channel to seconds.
fn silence(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> Vec<(Option<Arc<str>>, f64)> {
    let Some(node) = fields.node("silence_timeout") else { return Vec::new() };
    let pairs: Vec<(Option<Arc<str>>, &Node)> = match node.map() {
        Some(entries) => entries.iter().map(|entry| (Some(entry.key.as_str().into()), &entry.node)).collect(),
        None => vec![(None, node)],
    };
    let mut seconds = Vec::with_capacity(pairs.len());
    for (channel, node) in pairs {
        match node.number().and_then(|number| number.as_f64()).filter(|number| *number > 0.0) {
            Some(number) => seconds.push((channel, number)),
            None => {
                let message = format!("`silence_timeout` must be a number of seconds, but this is {}", describe(node));
                context.error("F0108", node, message, "Write seconds, or a map from channel to seconds.");
            }
        }
    }
    seconds
}

/// Reads `set_slots`: a map, or a list of maps.
fn set_slots(context: &mut LoadContext<'_>, node: &Node) -> Vec<(SlotName, serde_json::Value)> {
    let single = std::slice::from_ref(node);
    let maps = node.list().unwrap_or(single);
    let mut pairs = Vec::new();
    for map in maps {
        let Some(entries) = map.map().filter(|entries| !entries.is_empty()) else {
            let message = format!("`set_slots` must be slots with values, but this is {}", describe(map));
            context.error("F0108", map, message, "Write `- slot_name: value`.");
            continue;
        };
        for entry in entries {
            context.reference_name(ReferenceKind::Slot, &entry.key, context.place(&entry.at));
            context.record_assignment(&entry.key, entry.node.json(), None, &entry.node);
            pairs.push((SlotName::from(entry.key.as_str()), entry.node.json()));
        }
    }
    pairs
}

fn tool(context: &mut LoadContext<'_>, fields: &MapFields<'_>, tool: &str) -> Option<Call> {
    if fields.has("exit_if") {
        let help = "Remove `exit_if`, or `mcp_server` and `mapping`.";
        context.error(
            "F0228",
            fields.at("exit_if"),
            "`exit_if` ends the task of an agent, but this step calls a tool",
            help,
        );
    }
    for (has, lacks) in [("mcp_server", "mapping"), ("mapping", "mcp_server")] {
        if fields.has(has) && !fields.has(lacks) {
            let message = format!("a tool call needs `mcp_server` and `mapping`; `{lacks}` is missing");
            context.error("F0227", fields.at(has), message, format!("Add `{lacks}: …`."));
        }
    }
    if let Some(server) = fields.node("mcp_server") {
        context.reference(ReferenceKind::Server, server);
    }
    let mapping = fields.node("mapping").and_then(|node| context.fields(node, &TOOL_MAPPING));
    let (mut input, mut output) = (Vec::new(), Vec::new());
    for node in mapping.as_ref().map(|mapping| mapping.list("input")).unwrap_or_default() {
        let Some(item) = context.fields(node, &TOOL_INPUT) else { continue };
        if let (Some(param), Some(slot)) = (item.text("param"), item.node("slot")) {
            context.reference(ReferenceKind::Slot, slot);
            input.push((param.to_owned(), SlotName::from(slot.text().unwrap_or_default())));
        }
    }
    for node in mapping.as_ref().map(|mapping| mapping.list("output")).unwrap_or_default() {
        let Some(item) = context.fields(node, &TOOL_OUTPUT) else { continue };
        if let (Some(slot), Some(value)) = (item.node("slot"), item.node("value")) {
            context.reference(ReferenceKind::Slot, slot);
            let expression = context.expression(value);
            output.extend(expression.map(|value| (SlotName::from(slot.text().unwrap_or_default()), value)));
        }
    }
    let server = ServerName::from(fields.text("mcp_server")?);
    Some(Call::Tool { server, tool: ToolName::from(tool), input, output })
}

fn exit_if(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> Vec<crate::condition::Condition> {
    let items = fields.list("exit_if");
    if items.is_empty() && fields.node("exit_if").is_some() {
        let help = "Write conditions such as `- slots.appointment is not null`, or remove the key for an open agent.";
        context.error("F0515", fields.at("exit_if"), "`exit_if` needs at least one condition", help);
    }
    let mut conditions = Vec::new();
    for node in items {
        if matches!(node.value, super::super::yaml::Value::Bool(_)) {
            let help = "Write the slots that the agent must fill, such as `slots.appointment is not null`.";
            context.error("F0515", node, "a condition of `exit_if` must read at least one slot", help);
            continue;
        }
        let Some(condition) = context.condition(node, ConditionRole::ExitIf) else { continue };
        conditions.push(condition);
    }
    conditions
}

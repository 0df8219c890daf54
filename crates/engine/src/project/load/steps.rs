//! Steps: nested lists become one list, in the order of the file.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{
    super::{
        ActionReference, Call, Collect, Step, StepKind,
        reader::{Fields, Reader, said},
        schema::{DTMF, STEP, STEP_KINDS, Support, TOOL_INPUT, TOOL_MAPPING, TOOL_OUTPUT, belongs},
        uses::{Role, Used},
        yaml::{Entry, Node},
    },
    next::{Dest, Follow},
    reach, slots,
};
use crate::{
    finding::{SourceLocation, did_you_mean},
    ids::{ActionName, AgentName, FlowId, ResponseName, ServerName, SlotName, StepId, ToolName},
};

/// Where a list of steps stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// `steps` of the flow: the last step ends it.
    Top,
    /// Under `then` or `else`: the last step must say how it goes on.
    Branch,
    /// A plain list under `next`: the last step ends the flow.
    Plain,
}

/// A step before ids are resolved.
pub(super) struct DraftStep {
    pub(super) id: StepId,
    /// Whether the author wrote the id.
    pub(super) named: bool,
    pub(super) kind: StepKind,
    pub(super) follow: Follow,
    pub(super) on_error: Option<Follow>,
    pub(super) place: SourceLocation,
    pub(super) description: Option<Arc<str>>,
    /// A hash over what it does by itself.
    pub(super) own: u32,
}

/// The steps of one flow while they are read.
pub(super) struct Draft<'a> {
    pub(super) flow: &'a FlowId,
    agents: &'a HashSet<String>,
    pub(super) steps: Vec<DraftStep>,
    ids: HashMap<String, u32>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(flow: &'a FlowId, agents: &'a HashSet<String>) -> Self {
        Self { flow, agents, steps: Vec::new(), ids: HashMap::new() }
    }

    /// Reads all steps of the flow.
    pub(super) fn read(mut self, reader: &mut Reader<'_>, nodes: &[Node]) -> (Vec<Step>, HashMap<StepId, usize>) {
        self.list(reader, nodes, Position::Top);
        self.resolve(reader)
    }

    /// Reads one list; tells the position of its first step.
    pub(super) fn list(&mut self, reader: &mut Reader<'_>, nodes: &[Node], position: Position) -> Option<usize> {
        let mut own: Vec<(usize, &Node)> = Vec::with_capacity(nodes.len());
        for node in nodes {
            own.extend(self.step(reader, node).map(|at| (at, node)));
        }
        for (order, (at, node)) in own.iter().enumerate() {
            let after = own.get(order + 1).map(|(at, _)| *at);
            self.tie(reader, *at, after, node, position);
        }
        own.first().map(|(at, _)| *at)
    }

    /// Gives a step without `next` the one that follows, or says what is missing.
    fn tie(&mut self, reader: &mut Reader<'_>, at: usize, after: Option<usize>, node: &Node, position: Position) {
        let Some(step) = self.steps.get_mut(at) else { return };
        let is_link = matches!(step.kind, StepKind::Link(_));
        if is_link && after.is_some() {
            let help = "Move `link` to the end of the list; to come back, use `call`.";
            reader.findings.error("F0208", &step.place, "`link` leaves the flow, so no step may follow it", help);
        }
        if !matches!(step.follow, Follow::Unsaid) {
            return;
        }
        if matches!(step.kind, StepKind::Noop) && node.get("noop").is_some() {
            let help = "Add `next:` with branches or a step id.";
            reader.findings.error("F0231", &step.place, "a `noop` step does nothing without `next`", help);
        }
        if let (Position::Branch, None, false) = (position, after, is_link) {
            let help = "Add `next: END`, or the id of the step that follows.";
            reader.findings.error("F0207", &step.place, "the last step of a branch must say how it goes on", help);
        }
        step.follow = Follow::Go(match after {
            Some(after) if !is_link => Dest::At(after),
            _ => Dest::End,
        });
    }

    fn step(&mut self, reader: &mut Reader<'_>, node: &Node) -> Option<usize> {
        let fields = reader.fields(node, &STEP)?;
        let kind_entry = self.kind_of(reader, &fields);
        let kind_name = kind_entry.map_or("noop", |entry| entry.key.as_str());
        let kind = kind_entry.and_then(|entry| self.kind(reader, &fields, entry));
        let at = self.steps.len();
        let place = match kind_entry {
            Some(entry) if entry.node.text().is_some() && entry.key != "noop" => reader.place(&entry.node),
            Some(entry) => reader.place(&entry.at),
            None => reader.place(node),
        };
        let (id, named) = self.id(reader, &fields, at, kind_name, kind_entry);
        let description = fields.shared("description");
        let kind = kind.unwrap_or(StepKind::Noop);
        if matches!(kind, StepKind::Link(_)) && fields.has("next") {
            let help = "Remove `next`: the flow that is linked to goes on from here.";
            reader.error("F0208", fields.at("next"), "a `link` has no `next`", help);
        }
        self.steps.push(DraftStep {
            id,
            named,
            kind,
            follow: Follow::Unsaid,
            on_error: None,
            place,
            description,
            own: reach::own(node),
        });
        let follow = self.next(reader, fields.node("next"), "next");
        let on_error = self.next(reader, fields.node("on_error"), "on_error");
        if let Some(step) = self.steps.get_mut(at) {
            step.follow = follow;
            step.on_error = Some(on_error).filter(|follow| !matches!(follow, Follow::Unsaid));
        }
        Some(at)
    }

    /// The one key that says what the step does.
    fn kind_of<'n>(&self, reader: &mut Reader<'_>, fields: &Fields<'n>) -> Option<&'n Entry> {
        let entries = fields.node.map().unwrap_or_default();
        let mut kinds = entries.iter().filter(|entry| STEP_KINDS.contains(&entry.key.as_str()));
        let Some(first) = kinds.next() else {
            let told = |entry: &Entry| {
                matches!(STEP.key(&entry.key), Some(key) if matches!(key.support, Support::Refused(_)))
                    || STEP.key(&entry.key).is_none() && did_you_mean(&entry.key, STEP_KINDS).is_some()
            };
            if !entries.iter().any(told) {
                let help = format!("Add one of `{}`.", STEP_KINDS.join("`, `"));
                reader.error("F0204", fields.node, "this step does not say what it does", help);
            }
            return None;
        };
        for other in kinds {
            let message = format!("a step does one thing, but this one has `{}` and `{}`", first.key, other.key);
            reader.error("F0204", &other.at, message, "Make two steps of it.");
        }
        for entry in entries.iter().filter(|entry| STEP.key(&entry.key).is_some() && !belongs(&entry.key, &first.key)) {
            if !STEP_KINDS.contains(&entry.key.as_str()) {
                let message = format!("`{}` does not belong to a step with `{}`", entry.key, first.key);
                reader.error("F0236", &entry.at, message, "Remove it, or move it to the step it is meant for.");
            }
        }
        Some(first)
    }

    fn id(
        &mut self,
        reader: &mut Reader<'_>,
        fields: &Fields<'_>,
        at: usize,
        kind: &str,
        entry: Option<&Entry>,
    ) -> (StepId, bool) {
        if let Some(node) = fields.node("id")
            && let Some(id) = node.text()
        {
            if matches!(id, "START" | "END") || id.starts_with("NEXT:") {
                let message = format!("`{id}` is reserved and cannot be the id of a step");
                reader.error("F0209", node, message, "Choose another id.");
            }
            match self.ids.get(id) {
                Some(line) => {
                    let message =
                        format!("the step id `{id}` stands twice in the flow `{}`, first on line {line}", self.flow);
                    reader.error("F0210", node, message, "Give each step an id of its own.");
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

    fn kind(&mut self, reader: &mut Reader<'_>, fields: &Fields<'_>, entry: &Entry) -> Option<StepKind> {
        match entry.key.as_str() {
            "action" => action(reader, fields.node("action")?).map(StepKind::Action),
            "collect" => collect(reader, fields).map(|collect| StepKind::Collect(Box::new(collect))),
            "link" => fields.text("link").map(|flow| StepKind::Link(flow.into())),
            "call" => self.call(reader, fields).map(StepKind::Call),
            "set_slots" => Some(StepKind::SetSlots(set_slots(reader, &entry.node))),
            _ => Some(StepKind::Noop),
        }
    }

    fn call(&self, reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<Call> {
        let target = fields.text("call")?;
        if fields.has("mcp_server") || fields.has("mapping") {
            return tool(reader, fields, target);
        }
        if self.agents.contains(target) {
            return Some(Call::Agent { agent: AgentName::from(target), exit_if: exit_if(reader, fields) });
        }
        if fields.has("exit_if") {
            let help = format!("Name an agent: `call: <agent>`; `{target}` is none. Or remove `exit_if`.");
            reader.error(
                "F0228",
                fields.at("exit_if"),
                "`exit_if` ends the task of an agent, and this is no call of an agent",
                help,
            );
        }
        Some(Call::Flow(target.into()))
    }
}

fn action(reader: &mut Reader<'_>, node: &Node) -> Option<ActionReference> {
    let text = node.text()?;
    if text.contains("{{") || text.contains("{%") {
        return reader.template(node, text).map(ActionReference::Template);
    }
    reader.uses(Used::Action, node);
    Some(ActionReference::Plain(ActionName::from(text)))
}

fn collect(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<Collect> {
    let node = fields.node("collect")?;
    let text = node.text()?;
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts_well || !text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
        let help = "Use letters, digits, `_` and `-`, and begin with a letter or `_`.";
        reader.error("F0212", node, format!("`{text}` cannot be the name of a slot that is collected"), help);
    }
    reader.uses(Used::Slot, node);
    let slot = SlotName::from(text);
    if let Some(utter) = fields.node("utter") {
        reader.uses(Used::Response, utter);
    }
    if let Some(dtmf) = fields.node("dtmf").and_then(|node| reader.fields(node, &DTMF))
        && dtmf.has("length")
        && dtmf.has("finish_on_key")
    {
        let message = "`length` and `finish_on_key` exclude one another";
        reader.error("F0280", dtmf.at("finish_on_key"), message, "Keep one of the two.");
    }
    let rejections = slots::rejections(reader, fields, &slot);
    Some(Collect {
        description: fields.shared("description"),
        ask_before_filling: fields.flag("ask_before_filling"),
        reset_after_flow_ends: fields.flag("reset_after_flow_ends"),
        utter: fields.text("utter").map_or_else(|| ResponseName::from(format!("utter_ask_{slot}")), ResponseName::from),
        action: ActionName::from(format!("action_ask_{slot}")),
        rejections,
        force_slot_filling: fields.flag("force_slot_filling"),
        silence: silence(reader, fields),
        slot,
    })
}

/// `silence_timeout: 5`, or a map from channel to seconds.
fn silence(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<(Option<Arc<str>>, f64)> {
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
                let message = format!("`silence_timeout` takes seconds, but this is {}", said(node));
                reader.error("F0108", node, message, "Write seconds, or a map from channel to seconds.");
            }
        }
    }
    seconds
}

/// A list of maps, or one map.
fn set_slots(reader: &mut Reader<'_>, node: &Node) -> Vec<(SlotName, serde_json::Value)> {
    let single = std::slice::from_ref(node);
    let maps = node.list().unwrap_or(single);
    let mut pairs = Vec::new();
    for map in maps {
        let Some(entries) = map.map().filter(|entries| !entries.is_empty()) else {
            let message = format!("`set_slots` takes slots with values, but this is {}", said(map));
            reader.error("F0108", map, message, "Write `- slot_name: value`.");
            continue;
        };
        for entry in entries {
            reader.uses_name(Used::Slot, &entry.key, reader.place(&entry.at));
            reader.fills_slot(&entry.key, entry.node.json(), None, &entry.node);
            pairs.push((SlotName::from(entry.key.as_str()), entry.node.json()));
        }
    }
    pairs
}

fn tool(reader: &mut Reader<'_>, fields: &Fields<'_>, tool: &str) -> Option<Call> {
    if fields.has("exit_if") {
        let help = "Remove `exit_if`, or `mcp_server` and `mapping`.";
        reader.error(
            "F0228",
            fields.at("exit_if"),
            "`exit_if` ends the task of an agent, and this is the call of a tool",
            help,
        );
    }
    for (has, lacks) in [("mcp_server", "mapping"), ("mapping", "mcp_server")] {
        if fields.has(has) && !fields.has(lacks) {
            let message = format!("the call of a tool needs `mcp_server` and `mapping`; `{lacks}` is missing");
            reader.error("F0227", fields.at(has), message, format!("Add `{lacks}: …`."));
        }
    }
    if let Some(server) = fields.node("mcp_server") {
        reader.uses(Used::Server, server);
    }
    let mapping = fields.node("mapping").and_then(|node| reader.fields(node, &TOOL_MAPPING));
    let (mut input, mut output) = (Vec::new(), Vec::new());
    for node in mapping.as_ref().map(|mapping| mapping.list("input")).unwrap_or_default() {
        let Some(item) = reader.fields(node, &TOOL_INPUT) else { continue };
        if let (Some(param), Some(slot)) = (item.text("param"), item.node("slot")) {
            reader.uses(Used::Slot, slot);
            input.push((param.to_owned(), SlotName::from(slot.text().unwrap_or_default())));
        }
    }
    for node in mapping.as_ref().map(|mapping| mapping.list("output")).unwrap_or_default() {
        let Some(item) = reader.fields(node, &TOOL_OUTPUT) else { continue };
        if let (Some(slot), Some(value)) = (item.node("slot"), item.node("value")) {
            reader.uses(Used::Slot, slot);
            let expression = reader.expression(value);
            output.extend(expression.map(|value| (SlotName::from(slot.text().unwrap_or_default()), value)));
        }
    }
    let server = ServerName::from(fields.text("mcp_server")?);
    Some(Call::Tool { server, tool: ToolName::from(tool), input, output })
}

fn exit_if(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<crate::condition::Condition> {
    let items = fields.list("exit_if");
    if items.is_empty() && fields.node("exit_if").is_some() {
        let help = "Write conditions such as `- slots.appointment is not null`, or remove the key for an open agent.";
        reader.error("F0515", fields.at("exit_if"), "`exit_if` needs at least one condition", help);
    }
    let mut conditions = Vec::new();
    for node in items {
        if matches!(node.value, super::super::yaml::Value::Bool(_)) {
            let help = "Name the slots that the agent must fill, such as `slots.appointment is not null`.";
            reader.error("F0515", node, "a condition of `exit_if` must read at least one slot", help);
            continue;
        }
        let Some(condition) = reader.condition(node, Role::ExitIf) else { continue };
        conditions.push(condition);
    }
    conditions
}

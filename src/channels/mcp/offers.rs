//! The tools: one to talk, and one for each flow that somebody may ask for. Made once; a project does not change while it runs.

use std::{collections::HashMap, sync::Arc};

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use segue_engine::{
    ids::FlowId,
    project::{ActionReference, Call, Collect, Flow, Mapping, Project, SlotDef, SlotType, StepKind},
    text::{TextLimit, truncate},
};
use serde_json::{Map, Value as Json, json};

use super::words::say;
use crate::{limits, tools::ArgumentCheck};

/// The tool to talk.
pub(super) const CONVERSE: &str = "converse";
/// The argument of every tool that names the talk.
const CONVERSATION: &str = "conversation_id";

/// All tools.
pub(super) struct Offers {
    /// In the order of the list: the one to talk, then the flows as the project has them.
    pub(super) tools: Vec<Tool>,
    wishes: HashMap<String, Offered>,
}

/// What stands behind one tool.
pub(super) struct Offered {
    /// The flow it begins; the tool to talk begins none.
    pub(super) flow: Option<FlowId>,
    /// The name of the argument that names the talk.
    pub(super) conversation: String,
    /// The slots that are arguments of it.
    slots: Vec<String>,
    /// Checks its arguments; absent when the schema is beyond our own limits, and then only the dialogue checks values.
    check: Option<ArgumentCheck>,
}

impl Offers {
    /// The tools of a project.
    pub(super) fn of(project: &Project) -> Self {
        let mut offers = Self { tools: Vec::new(), wishes: HashMap::new() };
        offers.add(converse(), None, CONVERSATION.to_owned());
        for flow in project.user_flows().filter(|flow| !flow.is_link_only()) {
            let name = offers.free_name(flow.id.as_str());
            let (tool, conversation) = tool_of(project, flow, name);
            offers.add(tool, Some(flow.id.clone()), conversation);
        }
        offers
    }

    /// What stands behind a tool.
    pub(super) fn get(&self, name: &str) -> Option<&Offered> {
        self.wishes.get(name)
    }

    fn add(&mut self, tool: Tool, flow: Option<FlowId>, conversation: String) {
        let check = ArgumentCheck::compile(&Json::Object((*tool.input_schema).clone())).ok();
        let properties = tool.input_schema.get("properties").and_then(Json::as_object);
        let names = properties.into_iter().flat_map(Map::keys).filter(|name| flow.is_some() && **name != conversation);
        let slots = names.cloned().collect();
        self.wishes.insert(tool.name.to_string(), Offered { flow, conversation, slots, check });
        self.tools.push(tool);
    }

    /// A name that hosts take and no other tool has: plain, with a prefix only where another has it already.
    fn free_name(&self, id: &str) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let plain: String = id.chars().map(|c| if is_plain(c) { c } else { '_' }).take(limits::TOOL_NAME).collect();
        let short: String = plain.chars().take(limits::TOOL_NAME - 12).collect();
        let more = (2_u32..).map(|number| format!("flow_{short}_{number}"));
        let mut names = [plain, format!("flow_{short}")].into_iter().chain(more);
        names.find(|name| !self.wishes.contains_key(name)).unwrap_or_default()
    }
}

impl Offered {
    /// Whether a slot is an argument of it.
    pub(super) fn takes(&self, slot: &str) -> bool {
        self.slots.iter().any(|known| known == slot)
    }
    /// What does not fit in the arguments of a call; empty when all does.
    pub(super) fn problems(&self, arguments: &Json) -> Vec<String> {
        self.check.as_ref().map(|check| check.problems(arguments)).unwrap_or_default()
    }
}

fn converse() -> Tool {
    let properties = Map::from_iter([
        ("message".to_owned(), json!({"type": "string", "description": say("message", &[])})),
        (CONVERSATION.to_owned(), conversation_schema()),
    ]);
    let hints = ToolAnnotations::from_raw(None, Some(false), Some(true), Some(false), Some(true));
    Tool::new(CONVERSE, say("converse", &[]), object(properties, &["message"]))
        .with_title("Talk")
        .with_annotations(hints)
        .with_raw_output_schema(Arc::new(output()))
}

fn tool_of(project: &Project, flow: &Flow, name: String) -> (Tool, String) {
    let mut survey = Survey { project, asked: Vec::new(), acts: false };
    survey.walk(flow, 0, &mut Vec::new());
    let mut properties = Map::new();
    for collect in &survey.asked {
        if let Some(slot) = project.slot(collect.slot.as_str()) {
            properties.insert(collect.slot.to_string(), slot_schema(slot, collect.description.as_deref()));
        }
    }
    let taken = properties.contains_key(CONVERSATION);
    let conversation = if taken { format!("segue_{CONVERSATION}") } else { CONVERSATION.to_owned() };
    properties.insert(conversation.clone(), conversation_schema());
    let about = match flow.description.trim() {
        "" => say("flow_without_description", &[("name", &flow.name)]),
        about => say("flow", &[("about", about)]),
    };
    let about = truncate(&about, TextLimit::Bytes(limits::MCP_DESCRIPTION), "…").into_owned();
    let hints = ToolAnnotations::from_raw(None, Some(!survey.acts), Some(survey.acts), Some(false), Some(survey.acts));
    let tool = Tool::new(name, about, object(properties, &[]))
        .with_title(&*flow.name)
        .with_annotations(hints)
        .with_raw_output_schema(Arc::new(output()));
    (tool, conversation)
}

/// What a flow and those it calls come to.
struct Survey<'a> {
    project: &'a Project,
    /// The questions whose answers may be given at the start, one for each slot.
    asked: Vec<&'a Collect>,
    /// Whether anything but talk may happen: agents, tools, actions, other flows that it links to.
    acts: bool,
}

impl<'a> Survey<'a> {
    fn walk(&mut self, flow: &'a Flow, depth: usize, seen: &mut Vec<&'a FlowId>) {
        if depth >= limits::COMMAND_CALL_DEPTH || seen.contains(&&flow.id) {
            return;
        }
        seen.push(&flow.id);
        for step in &flow.steps {
            match &step.kind {
                StepKind::Collect(collect) => self.question(collect),
                StepKind::Call(Call::Flow(child)) => match self.project.flow(child.as_str()) {
                    Some(child) => self.walk(child, depth + 1, seen),
                    None => self.acts = true,
                },
                StepKind::Call(_) | StepKind::Link(_) | StepKind::Action(ActionReference::Template(_)) => {
                    self.acts = true
                }
                StepKind::Action(ActionReference::Plain(name)) => {
                    self.acts |= self.project.response(name.as_str()).is_none();
                }
                StepKind::SetSlots(_) | StepKind::Noop => {}
            }
        }
    }

    /// A question that is always asked is no argument: what was given would be forgotten, and a confirmation is the person's.
    fn question(&mut self, collect: &'a Collect) {
        let fits = !collect.ask_before_filling && self.project.slot(collect.slot.as_str()).is_some_and(is_given);
        if fits && !self.asked.iter().any(|known| known.slot == collect.slot) {
            self.asked.push(collect);
        }
    }
}

/// Whether somebody outside may give the value of a slot.
pub(super) fn is_given(slot: &SlotDef) -> bool {
    slot.mappings.is_empty() || slot.mappings.iter().any(|mapping| matches!(mapping, Mapping::FromLlm { .. }))
}

/// The schema of a slot's value.
pub(super) fn slot_schema(slot: &SlotDef, about: Option<&str>) -> Json {
    let mut schema = match &slot.kind {
        SlotType::Text => json!({"type": "string"}),
        SlotType::Bool => json!({"type": "boolean"}),
        SlotType::Categorical(values) => {
            json!({"type": "string", "enum": values.iter().map(|value| &**value).collect::<Vec<_>>()})
        }
        SlotType::Float { min, max } => {
            let mut schema = json!({"type": "number"});
            for (key, bound) in [("minimum", min), ("maximum", max)] {
                if let (Some(bound), Some(schema)) = (bound, schema.as_object_mut()) {
                    schema.insert(key.to_owned(), json!(bound));
                }
            }
            schema
        }
        SlotType::List => json!({"type": "array"}),
        SlotType::Any => json!({}),
    };
    if let (Some(about), Some(schema)) = (about, schema.as_object_mut()) {
        schema.insert("description".to_owned(), truncate(about, TextLimit::Bytes(limits::MCP_DESCRIPTION), "…").into());
    }
    schema
}

fn conversation_schema() -> Json {
    json!({"type": "string", "maxLength": limits::WIRE_ID, "description": say("conversation_id", &[])})
}

fn object(properties: Map<String, Json>, required: &[&str]) -> JsonObject {
    Map::from_iter([
        ("type".to_owned(), json!("object")),
        ("properties".to_owned(), Json::Object(properties)),
        ("required".to_owned(), json!(required)),
        ("additionalProperties".to_owned(), json!(false)),
    ])
}

/// What every tool answers.
fn output() -> JsonObject {
    let button = json!({"type": "object", "properties": {"title": {"type": "string"}, "payload": {"type": "string"}}});
    let reply = json!({
        "type": "object",
        "properties": {
            "text": {"type": "string"}, "kind": {"type": "string"},
            "buttons": {"type": "array", "items": button}, "image": {"type": "string"},
        },
    });
    let question = json!({
        "type": "object",
        "properties": {"slot": {"type": "string"}, "schema": {"type": "object"}},
        "required": ["slot", "schema"],
    });
    let properties = json!({
        "conversation_id": {"type": "string"},
        "replies": {"type": "array", "items": reply},
        "waiting_for_input": {"type": "boolean"},
        "question": question,
        "session_ended": {"type": "boolean"},
        "repeated": {"type": "boolean"},
    });
    let required = ["conversation_id", "replies", "waiting_for_input", "session_ended"];
    Map::from_iter([
        ("type".to_owned(), json!("object")),
        ("properties".to_owned(), properties),
        ("required".to_owned(), json!(required)),
    ])
}

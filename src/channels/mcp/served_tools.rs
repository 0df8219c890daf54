//! The tools of the server: `converse`, and one for each flow that a user may start. Built once: a loaded project is immutable.

use std::{collections::HashMap, sync::Arc};

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use segue_engine::{
    ids::FlowId,
    project::{ActionReference, Call, Collect, Flow, Mapping, Project, SlotDef, StepKind},
    text::{TextLimit, truncate},
};
use serde_json::{Map, Value as Json, json};

use super::texts::text;
use crate::{limits, tools::ArgumentCheck};

/// The tool that sends a message of the user.
const CONVERSE: &str = "converse";
/// The argument of every tool that names the conversation.
const CONVERSATION_ARGUMENT: &str = "conversation_id";

/// All tools of the server.
pub(super) struct ServedTools {
    /// As they are listed: `converse`, then the flows in the order of the project.
    pub(super) list: Vec<Tool>,
    by_name: HashMap<String, ServedTool>,
}

/// What a tool does, and what its arguments mean.
pub(super) struct ServedTool {
    /// The flow that it starts; `None` for `converse`.
    pub(super) flow: Option<FlowId>,
    /// The argument that names the conversation: `conversation_id`, or another name where a slot has this one.
    pub(super) conversation_argument: String,
    /// The slots among its arguments.
    slots: Vec<String>,
    /// Checks the arguments against the schema. `None` when the schema exceeds a limit; then only the flow validates the values.
    check: Option<ArgumentCheck>,
}

impl ServedTools {
    /// The tools of a project.
    pub(super) fn new(project: &Project) -> Self {
        let mut tools = Self { list: Vec::new(), by_name: HashMap::new() };
        tools.add(converse_tool(), None, CONVERSATION_ARGUMENT.to_owned());
        for flow in project.user_flows().filter(|flow| !flow.is_link_only()) {
            let name = tools.unique_name(flow.id.as_str());
            let (tool, conversation_argument) = flow_tool(project, flow, name);
            tools.add(tool, Some(flow.id.clone()), conversation_argument);
        }
        tools
    }

    /// The tool of a name.
    pub(super) fn get(&self, name: &str) -> Option<&ServedTool> {
        self.by_name.get(name)
    }

    /// The tools that start a flow.
    pub(super) fn flow_tools(&self) -> impl Iterator<Item = &Tool> {
        self.list.iter().skip(1)
    }

    fn add(&mut self, tool: Tool, flow: Option<FlowId>, conversation_argument: String) {
        let check = ArgumentCheck::compile(&Json::Object((*tool.input_schema).clone())).ok();
        let properties = tool.input_schema.get("properties").and_then(Json::as_object);
        let names = properties.into_iter().flat_map(Map::keys);
        let slots = names.filter(|name| flow.is_some() && **name != conversation_argument).cloned().collect();
        self.by_name.insert(tool.name.to_string(), ServedTool { flow, conversation_argument, slots, check });
        self.list.push(tool);
    }

    /// The name of a flow's tool: its id in the characters and the length that MCP allows; with a prefix, and if need be a number,
    /// where another tool has this name.
    fn unique_name(&self, id: &str) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let plain: String = id.chars().map(|c| if is_plain(c) { c } else { '_' }).take(limits::TOOL_NAME).collect();
        let short: String = plain.chars().take(limits::TOOL_NAME - 12).collect();
        let numbered = (2_u32..).map(|number| format!("flow_{short}_{number}"));
        let mut names = [plain, format!("flow_{short}")].into_iter().chain(numbered);
        names.find(|name| !self.by_name.contains_key(name)).unwrap_or_default()
    }
}

impl ServedTool {
    /// Whether a slot is one of the arguments.
    pub(super) fn accepts_slot(&self, slot: &str) -> bool {
        self.slots.iter().any(|name| name == slot)
    }
    /// What is wrong with the arguments of a call; empty when they are valid.
    pub(super) fn problems(&self, arguments: &Json) -> Vec<String> {
        self.check.as_ref().map(|check| check.problems(arguments)).unwrap_or_default()
    }
}

fn converse_tool() -> Tool {
    let properties = Map::from_iter([
        ("message".to_owned(), json!({"type": "string", "description": text("message", &[])})),
        (CONVERSATION_ARGUMENT.to_owned(), conversation_schema()),
    ]);
    let hints = ToolAnnotations::from_raw(None, Some(false), Some(true), Some(false), Some(true));
    Tool::new(CONVERSE, text("converse", &[]), object_schema(properties, &["message"]))
        .with_title("Send a message")
        .with_annotations(hints)
        .with_raw_output_schema(Arc::new(output_schema()))
}

/// The tool of a flow, and the name of its conversation argument.
fn flow_tool(project: &Project, flow: &Flow, name: String) -> (Tool, String) {
    let mut inputs = FlowInputs { project, questions: Vec::new(), has_effects: false };
    inputs.visit(flow, 0, &mut Vec::new());
    let mut properties = Map::new();
    for collect in &inputs.questions {
        if let Some(slot) = project.slot(collect.slot.as_str()) {
            properties.insert(collect.slot.to_string(), slot_schema(slot, collect.description.as_deref()));
        }
    }
    let is_taken = properties.contains_key(CONVERSATION_ARGUMENT);
    let conversation_argument =
        if is_taken { format!("segue_{CONVERSATION_ARGUMENT}") } else { CONVERSATION_ARGUMENT.to_owned() };
    properties.insert(conversation_argument.clone(), conversation_schema());
    let description = match flow.description.trim() {
        "" => text("flow_without_description", &[("name", &flow.name)]),
        about => text("flow", &[("about", about)]),
    };
    let description = truncate(&description, TextLimit::Bytes(limits::MCP_DESCRIPTION), "…").into_owned();
    let acts = inputs.has_effects;
    let hints = ToolAnnotations::from_raw(None, Some(!acts), Some(acts), Some(false), Some(acts));
    let tool = Tool::new(name, description, object_schema(properties, &[]))
        .with_title(&*flow.name)
        .with_annotations(hints)
        .with_raw_output_schema(Arc::new(output_schema()));
    (tool, conversation_argument)
}

/// What a flow and the flows that it calls ask for, and whether they do anything else.
struct FlowInputs<'a> {
    project: &'a Project,
    /// The questions whose answers may be arguments of the tool, one for each slot.
    questions: Vec<&'a Collect>,
    /// Whether there are steps that may have effects: agents, tools, custom actions, links to other flows.
    has_effects: bool,
}

impl<'a> FlowInputs<'a> {
    fn visit(&mut self, flow: &'a Flow, depth: usize, visited: &mut Vec<&'a FlowId>) {
        if depth >= limits::COMMAND_CALL_DEPTH || visited.contains(&&flow.id) {
            return;
        }
        visited.push(&flow.id);
        for step in &flow.steps {
            match &step.kind {
                StepKind::Collect(collect) => self.add_question(collect),
                StepKind::Call(Call::Flow(child)) => match self.project.flow(child.as_str()) {
                    Some(child) => self.visit(child, depth + 1, visited),
                    None => self.has_effects = true,
                },
                StepKind::Call(_) | StepKind::Link(_) | StepKind::Action(ActionReference::Template(_)) => {
                    self.has_effects = true
                }
                StepKind::Action(ActionReference::Plain(name)) => {
                    self.has_effects |= self.project.response(name.as_str()).is_none();
                }
                StepKind::SetSlots(_) | StepKind::Noop => {}
            }
        }
    }

    /// A question with `ask_before_filling` is no argument: the flow would discard the value and ask. Confirmations are such questions,
    /// and only the user may answer them.
    fn add_question(&mut self, collect: &'a Collect) {
        let is_argument =
            !collect.ask_before_filling && self.project.slot(collect.slot.as_str()).is_some_and(is_user_fillable);
        if is_argument && !self.questions.iter().any(|question| question.slot == collect.slot) {
            self.questions.push(collect);
        }
    }
}

/// Whether the value of a slot may come from the user: it has a mapping `from_llm`, or none.
pub(super) fn is_user_fillable(slot: &SlotDef) -> bool {
    slot.mappings.is_empty() || slot.mappings.iter().any(|mapping| matches!(mapping, Mapping::FromLlm { .. }))
}

/// The JSON schema of a slot's value, with this description.
pub(super) fn slot_schema(slot: &SlotDef, description: Option<&str>) -> Json {
    let mut schema = slot.kind.json_schema();
    if let (Some(description), Some(schema)) = (description, schema.as_object_mut()) {
        let description = truncate(description, TextLimit::Bytes(limits::MCP_DESCRIPTION), "…");
        schema.insert("description".to_owned(), description.into());
    }
    schema
}

fn conversation_schema() -> Json {
    json!({"type": "string", "maxLength": limits::WIRE_ID, "description": text("conversation_id", &[])})
}

fn object_schema(properties: Map<String, Json>, required: &[&str]) -> JsonObject {
    Map::from_iter([
        ("type".to_owned(), json!("object")),
        ("properties".to_owned(), Json::Object(properties)),
        ("required".to_owned(), json!(required)),
        ("additionalProperties".to_owned(), json!(false)),
    ])
}

/// The schema of the structured content that every tool returns.
fn output_schema() -> JsonObject {
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

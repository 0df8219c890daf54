//! MCP prompts: one for each flow, which asks the host's model to run it, and those of the project. Also completion: suggested
//! values for the arguments of prompts, and for the id in the URI of a transcript.

use rmcp::{
    ErrorData, RoleServer,
    model::{
        ArgumentInfo, CompletionInfo, ElicitRequest, ElicitRequestParams, GetPromptRequestParams, GetPromptResponse,
        GetPromptResult, InputRequest, InputRequiredResult, Prompt, PromptArgument, PromptMessage, Reference, Role,
        Tool,
    },
    service::RequestContext,
};
use segue_engine::project::{McpArgumentDef, McpPromptDef};
use serde_json::{Map, Value as Json, json};

use super::{
    call_result::content_blocks,
    custom_content::{self, TextValues},
    form::{self, FormResponse},
    session::{Session, is_sessionless_revision},
    texts::text,
    transcript,
};
use crate::limits;

/// The key of the input request for missing arguments.
const ARGUMENTS: &str = "arguments";

impl Session {
    /// All prompts: those of the project, then one for each flow, except where a prompt of the project has its name.
    pub(super) fn prompts(&self) -> Vec<Prompt> {
        let custom = &self.shared.settings.prompts;
        let custom_prompts = custom
            .iter()
            .map(|def| Prompt::new(&*def.name, def.description.as_deref(), Some(custom_content::arguments(def))));
        let flows = self.shared.tools.flow_tools().filter(|tool| !custom.iter().any(|def| def.name == tool.name));
        let flow_prompts = flows.map(|tool| {
            let argument = |(name, schema): (&String, &Json)| {
                let argument = PromptArgument::new(name).with_required(false);
                let description = schema.get("description").and_then(Json::as_str);
                description.into_iter().fold(argument, |argument, text| argument.with_description(text))
            };
            let arguments = self.slot_arguments(tool).map(argument).collect();
            let prompt = Prompt::new(&*tool.name, tool.description.as_deref(), Some(arguments));
            tool.title.iter().fold(prompt, |prompt, title| prompt.with_title(title))
        });
        custom_prompts.chain(flow_prompts).collect()
    }

    /// The arguments of a flow's tool that are slots, with their schemas.
    fn slot_arguments<'a>(&'a self, tool: &'a Tool) -> impl Iterator<Item = (&'a String, &'a Json)> {
        let served = self.shared.tools.get(&tool.name);
        let all = tool.input_schema.get("properties").and_then(Json::as_object).into_iter().flatten();
        all.filter(move |(name, _)| served.is_some_and(|served| served.accepts_slot(name)))
    }

    /// The messages of a prompt with the given arguments.
    ///
    /// # Errors
    /// There is no such prompt, or a required argument is missing and the user cannot be asked for it.
    pub(super) fn prompt(
        &self,
        request: GetPromptRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let name = request.name.clone();
        let mut given = request.arguments.unwrap_or_default();
        if let Some(def) = self.shared.settings.prompts.iter().find(|def| def.name == name) {
            if let Some(response) = request.input_responses.as_ref().and_then(|all| all.get(ARGUMENTS)) {
                match form::parse_response(response) {
                    FormResponse::Accepted(values) => given.extend(values),
                    FormResponse::Declined => {
                        return Err(ErrorData::invalid_params("the arguments were not given", None));
                    }
                }
            }
            return self.custom_prompt(def, &given, context);
        }
        let tool = self.shared.tools.flow_tools().find(|tool| tool.name == name);
        let tool = tool.ok_or_else(|| ErrorData::invalid_params(format!("there is no prompt {name:?}"), None))?;
        let values = self.slot_arguments(tool).filter_map(|(slot, _)| Some(format!("{slot} = {}", given.get(slot)?)));
        let values: Vec<String> = values.collect();
        let known = match values.is_empty() {
            true => String::new(),
            false => text("task_request_known", &[("values", &values.join(", "))]),
        };
        let about = tool.title.as_deref().unwrap_or_default();
        let message = text("task_request", &[("tool", &name), ("about", about), ("known", &known)]);
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, message)]).into())
    }

    fn custom_prompt(
        &self,
        prompt: &McpPromptDef,
        given: &Map<String, Json>,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let value =
            |name: &str| given.get(name).and_then(Json::as_str).filter(|text| text.len() <= limits::MCP_DESCRIPTION);
        let missing: Vec<&McpArgumentDef> =
            prompt.arguments.iter().filter(|one| one.required && value(&one.name).is_none()).collect();
        if let Some(first) = missing.first() {
            let can_ask =
                self.shared.settings.elicits && is_sessionless_revision(context) && form::is_supported(context);
            let form = can_ask.then(|| arguments_form(prompt, &missing)).flatten();
            let problem =
                || ErrorData::invalid_params(format!("the argument `{}` is missing or too long", first.name), None);
            let requests = [(ARGUMENTS.to_owned(), form.ok_or_else(problem)?)].into();
            return Ok(InputRequiredResult::from_input_requests(requests).into());
        }
        let values: TextValues = prompt
            .arguments
            .iter()
            .map(|one| (one.name.clone(), value(&one.name).unwrap_or_default().into()))
            .collect();
        let reply = custom_content::prompt_content(&self.shared.assistant.project(), prompt, &values);
        let messages = content_blocks(&reply).into_iter().map(|block| PromptMessage::new(Role::User, block)).collect();
        Ok(GetPromptResult::new(messages).into())
    }

    /// The values of an argument that begin with what the user has typed: of a flow's slot that has fixed values, or the ids of this
    /// session's conversations. Case does not matter. At most [`CompletionInfo::MAX_VALUES`].
    pub(super) fn completions(&self, of: &Reference, argument: &ArgumentInfo) -> CompletionInfo {
        let all: Vec<String> = match of {
            Reference::Prompt(prompt) => {
                let tool = self.shared.tools.flow_tools().find(|tool| tool.name == prompt.name);
                let slot = tool.and_then(|tool| self.slot_arguments(tool).find(|(name, _)| **name == argument.name));
                slot.map(|(_, schema)| fixed_values(schema)).unwrap_or_default()
            }
            Reference::Resource(template) if template.uri == transcript::URI_TEMPLATE => {
                self.own_conversations().iter().rev().map(ToString::to_string).collect()
            }
            _ => Vec::new(),
        };
        let typed = argument.value.to_lowercase();
        let matching = all.into_iter().filter(|value| value.to_lowercase().starts_with(&typed));
        CompletionInfo::new(matching.take(CompletionInfo::MAX_VALUES).collect()).unwrap_or_default()
    }
}

/// The values that a schema allows, if it lists them.
fn fixed_values(schema: &Json) -> Vec<String> {
    let texts = |list: &Vec<Json>| list.iter().filter_map(Json::as_str).map(str::to_owned).collect();
    match (schema.get("enum").and_then(Json::as_array), schema.get("type").and_then(Json::as_str)) {
        (Some(values), _) => texts(values),
        (None, Some("boolean")) => ["true", "false"].map(str::to_owned).to_vec(),
        _ => Vec::new(),
    }
}

/// An input request for missing arguments, each a required text field. `None` when their schema is none that a form may have.
fn arguments_form(prompt: &McpPromptDef, missing: &[&McpArgumentDef]) -> Option<InputRequest> {
    let field = |def: &&McpArgumentDef| {
        let schema = match &def.description {
            Some(description) => json!({"type": "string", "description": description}),
            None => json!({"type": "string"}),
        };
        (def.name.clone(), schema)
    };
    let fields: Map<String, Json> = missing.iter().map(field).collect();
    let required: Vec<&String> = fields.keys().collect();
    let schema = json!({"type": "object", "properties": fields, "required": required});
    let message = prompt.description.clone().unwrap_or_else(|| prompt.name.clone());
    let requested_schema = serde_json::from_value(schema).ok()?;
    let params = ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema };
    Some(InputRequest::Elicitation(ElicitRequest::new(params)))
}

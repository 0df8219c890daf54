//! Prompts, which a person picks in the host: one for each flow, as an errand for the host's model, and those of the author. And
//! the values that a host may suggest while somebody writes an argument.

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
    answer::blocks,
    authored::{self, Values},
    form::{self, Filled},
    session::{Session, is_newer},
    transcript,
    words::say,
};
use crate::limits;

/// The key of the question for arguments that are missing.
const ARGUMENTS: &str = "arguments";

impl Session {
    /// All prompts: those of the author, then the flows that have no namesake among them.
    pub(super) fn prompts(&self) -> Vec<Prompt> {
        let authored = &self.shared.settings.prompts;
        let of_author = authored
            .iter()
            .map(|one| Prompt::new(&*one.name, one.description.as_deref(), Some(authored::arguments(one))));
        let flows = self.shared.offers.tools.iter().skip(1);
        let of_flows = flows.filter(|tool| !authored.iter().any(|one| one.name == tool.name)).map(|tool| {
            let told = |(name, schema): (&String, &Json)| {
                let told = PromptArgument::new(name).with_required(false);
                let about = schema.get("description").and_then(Json::as_str);
                about.into_iter().fold(told, |told, about| told.with_description(about))
            };
            let prompt =
                Prompt::new(&*tool.name, tool.description.as_deref(), Some(self.slots(tool).map(told).collect()));
            tool.title.iter().fold(prompt, |prompt, title| prompt.with_title(title))
        });
        of_author.chain(of_flows).collect()
    }

    /// The arguments of a flow's tool that are slots, with their schemas.
    fn slots<'a>(&'a self, tool: &'a Tool) -> impl Iterator<Item = (&'a String, &'a Json)> {
        let offered = self.shared.offers.get(&tool.name);
        let all = tool.input_schema.get("properties").and_then(Json::as_object).into_iter().flatten();
        all.filter(move |(name, _)| offered.is_some_and(|offered| offered.takes(name)))
    }

    /// One prompt with its arguments.
    pub(super) fn prompt(
        &self,
        request: GetPromptRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let name = request.name.clone();
        let mut given = request.arguments.unwrap_or_default();
        if let Some(authored) = self.shared.settings.prompts.iter().find(|one| one.name == name) {
            if let Some(answer) = request.input_responses.as_ref().and_then(|all| all.get(ARGUMENTS)) {
                match form::filled(answer) {
                    Filled::Values(values) => given.extend(values),
                    Filled::Declined => return Err(ErrorData::invalid_params("the arguments were not given", None)),
                }
            }
            return self.authored(authored, &given, context);
        }
        let tool = self.shared.offers.tools.iter().skip(1).find(|tool| tool.name == name);
        let tool = tool.ok_or_else(|| ErrorData::invalid_params(format!("there is no prompt {name:?}"), None))?;
        let known = self.slots(tool).filter_map(|(slot, _)| Some(format!("{slot} = {}", given.get(slot)?)));
        let known: Vec<String> = known.collect();
        let known = match known.is_empty() {
            true => String::new(),
            false => say("errand_known", &[("values", &known.join(", "))]),
        };
        let about = tool.title.as_deref().unwrap_or_default();
        let text = say("errand", &[("tool", &name), ("about", about), ("known", &known)]);
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)]).into())
    }

    fn authored(
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
            let can_ask = self.shared.settings.elicits && is_newer(context) && form::can_be_shown(context);
            let form = can_ask.then(|| asks_for(prompt, &missing)).flatten();
            let problem =
                || ErrorData::invalid_params(format!("the argument `{}` is missing or too long", first.name), None);
            let asked = [(ARGUMENTS.to_owned(), form.ok_or_else(problem)?)].into();
            return Ok(InputRequiredResult::from_input_requests(asked).into());
        }
        let values: Values = prompt
            .arguments
            .iter()
            .map(|one| (one.name.clone(), value(&one.name).unwrap_or_default().into()))
            .collect();
        let said = blocks(&authored::prompt(self.shared.assistant.project(), prompt, &values));
        let messages = said.into_iter().map(|block| PromptMessage::new(Role::User, block)).collect();
        Ok(GetPromptResult::new(messages).into())
    }

    /// The values of an argument that begin so: of a slot with values of its own, or of the id of a talk.
    pub(super) fn completed(&self, of: &Reference, argument: &ArgumentInfo) -> CompletionInfo {
        let all: Vec<String> = match of {
            Reference::Prompt(prompt) => {
                let tool = self.shared.offers.tools.iter().skip(1).find(|tool| tool.name == prompt.name);
                let schema = tool.and_then(|tool| self.slots(tool).find(|(name, _)| **name == argument.name));
                schema.map(|(_, schema)| choices(schema)).unwrap_or_default()
            }
            Reference::Resource(template) if template.uri == transcript::TEMPLATE => {
                self.began().iter().rev().map(ToString::to_string).collect()
            }
            _ => Vec::new(),
        };
        let wanted = argument.value.to_lowercase();
        let fits = all.into_iter().filter(|value| value.to_lowercase().starts_with(&wanted));
        CompletionInfo::new(fits.take(CompletionInfo::MAX_VALUES).collect()).unwrap_or_default()
    }
}

fn choices(schema: &Json) -> Vec<String> {
    let texts = |list: &Vec<Json>| list.iter().filter_map(Json::as_str).map(str::to_owned).collect();
    match (schema.get("enum").and_then(Json::as_array), schema.get("type").and_then(Json::as_str)) {
        (Some(values), _) => texts(values),
        (None, Some("boolean")) => ["true", "false"].map(str::to_owned).to_vec(),
        _ => Vec::new(),
    }
}

/// A form for the arguments that are missing.
fn asks_for(prompt: &McpPromptDef, missing: &[&McpArgumentDef]) -> Option<InputRequest> {
    let field = |one: &&McpArgumentDef| {
        let schema = match &one.description {
            Some(about) => json!({"type": "string", "description": about}),
            None => json!({"type": "string"}),
        };
        (one.name.clone(), schema)
    };
    let fields: Map<String, Json> = missing.iter().map(field).collect();
    let required: Vec<&String> = fields.keys().collect();
    let schema = json!({"type": "object", "properties": fields, "required": required});
    let message = prompt.description.clone().unwrap_or_else(|| prompt.name.clone());
    let requested_schema = serde_json::from_value(schema).ok()?;
    let params = ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema };
    Some(InputRequest::Elicitation(ElicitRequest::new(params)))
}

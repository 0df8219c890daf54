//! Resources and prompts of a server as tools, if its entry enables them. All of them are read-only.

use std::sync::Arc;

use rmcp::model::{
    ClientRequest, GetPromptRequest, ListPromptsRequest, ListResourcesRequest, PaginatedRequestParams,
    ReadResourceRequest,
};
use serde_json::{Map, Value as Json, json};

use super::{call::McpTool, server::Shared};
use crate::{ArgumentCheck, EffectClass, ToolHandler, ToolInfo, ToolOutput};

/// A resource or prompt operation that is offered as a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResourceTool {
    Resources,
    Resource,
    Prompts,
    Prompt,
}

/// Their texts for models.
const WORDS: &str = include_str!("../../prompts/offers.txt");

impl ResourceTool {
    /// The operations that belong to a value of `offers`.
    fn of(word: &str) -> [Self; 2] {
        if word == "prompts" { [Self::Prompts, Self::Prompt] } else { [Self::Resources, Self::Resource] }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Resources => "list_resources",
            Self::Resource => "read_resource",
            Self::Prompts => "list_prompts",
            Self::Prompt => "get_prompt",
        }
    }

    fn parameters(self) -> Json {
        let text = json!({"type": "string"});
        let (properties, required) = match self {
            Self::Resources | Self::Prompts => (json!({"cursor": text}), json!([])),
            Self::Resource => (json!({"uri": text}), json!(["uri"])),
            Self::Prompt => {
                let arguments = json!({"type": "object", "additionalProperties": text});
                (json!({"name": text, "arguments": arguments}), json!(["name"]))
            }
        };
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
    }

    /// The request with the arguments as its parameters.
    pub(super) fn request(self, arguments: &Map<String, Json>) -> Option<ClientRequest> {
        let params = Json::Object(arguments.clone());
        let cursor = || {
            let cursor = arguments.get("cursor").and_then(Json::as_str).map(str::to_owned);
            PaginatedRequestParams::default().with_cursor(cursor)
        };
        Some(match self {
            Self::Resources => ClientRequest::ListResourcesRequest(ListResourcesRequest::with_param(cursor())),
            Self::Prompts => ClientRequest::ListPromptsRequest(ListPromptsRequest::with_param(cursor())),
            Self::Resource => {
                ClientRequest::ReadResourceRequest(ReadResourceRequest::new(serde_json::from_value(params).ok()?))
            }
            Self::Prompt => {
                ClientRequest::GetPromptRequest(GetPromptRequest::new(serde_json::from_value(params).ok()?))
            }
        })
    }

    /// The outcome of a response.
    pub(super) fn output(self, mut raw: Map<String, Json>) -> ToolOutput {
        let meta = match raw.remove("_meta") {
            Some(Json::Object(meta)) => meta,
            _ => Map::new(),
        };
        for of_the_protocol in ["resultType", "ttlMs", "cacheScope"] {
            raw.remove(of_the_protocol);
        }
        let content = match self {
            Self::Resources | Self::Prompts => {
                return ToolOutput { structured: Some(Json::Object(raw)), meta, ..ToolOutput::default() };
            }
            Self::Resource => {
                let contents = raw.get("contents").and_then(Json::as_array).into_iter().flatten();
                contents.map(|one| json!({"type": "resource", "resource": one})).collect()
            }
            Self::Prompt => {
                let messages = raw.get("messages").and_then(Json::as_array).into_iter().flatten();
                messages.filter_map(|message| message.get("content").cloned()).collect()
            }
        };
        ToolOutput { content, meta, ..ToolOutput::default() }
    }
}

/// The tools for what the entry enables. A tool of the server with the same name has precedence.
pub(super) fn tools(shared: &Arc<Shared>, taken: impl Fn(&str) -> bool) -> Vec<Arc<dyn ToolHandler>> {
    let offers = shared.offers.iter().flat_map(|word| ResourceTool::of(word)).filter(|offer| !taken(offer.name()));
    let made = offers.filter_map(|offer| {
        let parameters = offer.parameters();
        let check = ArgumentCheck::compile(&parameters).ok()?;
        let words = WORDS.lines().find_map(|line| line.strip_prefix(offer.name())?.strip_prefix(" = "));
        let spec = ToolInfo::new(offer.name(), words.unwrap_or_default())
            .parameters(parameters)
            .effect(EffectClass::Read)
            .source(shared.name.clone());
        Some(Arc::new(McpTool::offering(spec, check, offer, shared.clone())) as Arc<dyn ToolHandler>)
    });
    made.collect()
}

//! Resources and prompts of a server as tools, if `offers` of its entry enables them. All of them only read.

use std::sync::Arc;

use rmcp::model::{
    ClientRequest, GetPromptRequest, ListPromptsRequest, ListResourcesRequest, PaginatedRequestParams,
    ReadResourceRequest,
};
use serde_json::{Map, Value as Json, json};

use super::{call::McpTool, server::ServerState};
use crate::{ArgumentCheck, EffectClass, ToolHandler, ToolInfo, ToolOutput};

/// An operation on resources or prompts that models call as a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResourceTool {
    ListResources,
    ReadResource,
    ListPrompts,
    GetPrompt,
}

/// The descriptions of these tools, one `name = text` per line.
const DESCRIPTIONS: &str = include_str!("../../prompts/offers.txt");

impl ResourceTool {
    /// The operations for a value of `offers`: `resources` or `prompts`.
    fn for_offer(offer: &str) -> [Self; 2] {
        if offer == "prompts" {
            [Self::ListPrompts, Self::GetPrompt]
        } else {
            [Self::ListResources, Self::ReadResource]
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::ListResources => "list_resources",
            Self::ReadResource => "read_resource",
            Self::ListPrompts => "list_prompts",
            Self::GetPrompt => "get_prompt",
        }
    }

    fn parameters(self) -> Json {
        let text = json!({"type": "string"});
        let (properties, required) = match self {
            Self::ListResources | Self::ListPrompts => (json!({"cursor": text}), json!([])),
            Self::ReadResource => (json!({"uri": text}), json!(["uri"])),
            Self::GetPrompt => {
                let arguments = json!({"type": "object", "additionalProperties": text});
                (json!({"name": text, "arguments": arguments}), json!(["name"]))
            }
        };
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
    }

    /// The request with the arguments as its parameters; `None` if they are invalid.
    pub(super) fn request(self, arguments: &Map<String, Json>) -> Option<ClientRequest> {
        let params = Json::Object(arguments.clone());
        let cursor = || {
            let cursor = arguments.get("cursor").and_then(Json::as_str).map(str::to_owned);
            PaginatedRequestParams::default().with_cursor(cursor)
        };
        Some(match self {
            Self::ListResources => ClientRequest::ListResourcesRequest(ListResourcesRequest::with_param(cursor())),
            Self::ListPrompts => ClientRequest::ListPromptsRequest(ListPromptsRequest::with_param(cursor())),
            Self::ReadResource => {
                ClientRequest::ReadResourceRequest(ReadResourceRequest::new(serde_json::from_value(params).ok()?))
            }
            Self::GetPrompt => {
                ClientRequest::GetPromptRequest(GetPromptRequest::new(serde_json::from_value(params).ok()?))
            }
        })
    }

    /// The output for the result of the request.
    pub(super) fn output(self, mut raw: Map<String, Json>) -> ToolOutput {
        let meta = match raw.remove("_meta") {
            Some(Json::Object(meta)) => meta,
            _ => Map::new(),
        };
        for protocol_key in ["resultType", "ttlMs", "cacheScope"] {
            raw.remove(protocol_key);
        }
        let content = match self {
            Self::ListResources | Self::ListPrompts => {
                return ToolOutput { structured: Some(Json::Object(raw)), meta, ..ToolOutput::default() };
            }
            Self::ReadResource => {
                let contents = raw.get("contents").and_then(Json::as_array).into_iter().flatten();
                contents.map(|resource| json!({"type": "resource", "resource": resource})).collect()
            }
            Self::GetPrompt => {
                let messages = raw.get("messages").and_then(Json::as_array).into_iter().flatten();
                messages.filter_map(|message| message.get("content").cloned()).collect()
            }
        };
        ToolOutput { content, meta, ..ToolOutput::default() }
    }
}

/// The tools for the operations that the entry enables. A tool of the server with the same name has precedence.
pub(super) fn tools(state: &Arc<ServerState>, is_taken: impl Fn(&str) -> bool) -> Vec<Arc<dyn ToolHandler>> {
    let operations = state.offers.iter().flat_map(|offer| ResourceTool::for_offer(offer));
    let tools = operations.filter(|operation| !is_taken(operation.name())).filter_map(|operation| {
        let parameters = operation.parameters();
        let check = ArgumentCheck::compile(&parameters).ok()?;
        let description =
            DESCRIPTIONS.lines().find_map(|line| line.strip_prefix(operation.name())?.strip_prefix(" = "));
        let info = ToolInfo::new(operation.name(), description.unwrap_or_default())
            .parameters(parameters)
            .effect(EffectClass::Read)
            .source(state.name.clone());
        Some(Arc::new(McpTool::for_resource(info, check, operation, state.clone())) as Arc<dyn ToolHandler>)
    });
    tools.collect()
}

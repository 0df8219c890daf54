//! The methods of MCP: lists, in pages, and requests for one tool, prompt or resource.

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, DiscoverResult,
        GetPromptRequestParams, GetPromptResponse, Implementation, ListPromptsResult, ListResourceTemplatesResult,
        ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
        ReadResourceResult, Resource, ResourceContents, ResourceTemplate, ServerCapabilities, ServerConfig,
        SubscribeRequestParams, Tool, UnsubscribeRequestParams,
    },
    service::RequestContext,
};

use segue_engine::{ids::ConversationId, project::McpResourceDef};

use super::{
    custom_content::{self, TextValues},
    notifications::{SetLogLevel, requested_level, with_logging},
    session::Session,
    texts::text,
    transcript,
};
use crate::limits;

const TEXT_PLAIN: &str = "text/plain";

impl ServerHandler for Session {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_prompts()
            .enable_completions();
        self.config(with_logging(capabilities.build()))
    }

    /// As [`Self::get_info`] without subscriptions: without a session nothing can be sent after the response.
    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let versions = self.supported_protocol_versions().into_owned();
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().enable_prompts();
        let config = self.config(with_logging(capabilities.enable_completions().build()));
        Ok(DiscoverResult::from_server_info(versions, config))
    }

    async fn set_level(&self, request: SetLogLevel, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.set_log_level(requested_level(&request));
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscribe_to(&request.uri, &context)
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.shared.subscriptions.remove(self.id, Some(&request.uri));
        Ok(())
    }

    async fn list_prompts(
        &self,
        page: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let all = self.prompts();
        let (prompts, next) = page_of(&all, page)?;
        let mut list = ListPromptsResult::with_all_items(prompts.to_vec());
        list.next_cursor = next;
        Ok(list)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        self.prompt(request, &context)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Ok(CompleteResult::new(self.completions(&request.r#ref, &request.argument)))
    }

    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let (tools, next) = page_of(&self.shared.tools.list, page)?;
        let mut list = ListToolsResult::with_all_items(tools.to_vec());
        list.next_cursor = next;
        Ok(list)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.shared.tools.list.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.call(request, &context).await
    }

    async fn list_resources(
        &self,
        page: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let custom = self.shared.settings.resources.iter().filter(|def| !custom_content::is_template(def));
        let custom = custom.map(|def| {
            let resource = Resource::new(&*def.uri, def.name.as_deref().unwrap_or(&def.uri));
            let resource = def.description.iter().fold(resource, |resource, text| resource.with_description(text));
            def.mime_type.iter().fold(resource, |resource, mime_type| resource.with_mime_type(mime_type))
        });
        let transcript = |id: &ConversationId| {
            Resource::new(transcript::uri(id), id.as_str())
                .with_title("Transcript")
                .with_description("The messages of this conversation.")
                .with_mime_type(TEXT_PLAIN)
        };
        let all: Vec<Resource> = custom.chain(self.own_conversations().iter().map(transcript)).collect();
        let (resources, next) = page_of(&all, page)?;
        let mut list = ListResourcesResult::with_all_items(resources.to_vec());
        list.next_cursor = next;
        Ok(list)
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = ResourceTemplate::new(transcript::URI_TEMPLATE, "transcript")
            .with_description("The messages of a conversation that this session started.")
            .with_mime_type(TEXT_PLAIN);
        let custom = self.shared.settings.resources.iter().filter(|def| custom_content::is_template(def));
        let custom = custom.map(|def| {
            let template = ResourceTemplate::new(&*def.uri, def.name.as_deref().unwrap_or(&def.uri));
            let template = def.description.iter().fold(template, |template, text| template.with_description(text));
            def.mime_type.iter().fold(template, |template, mime_type| template.with_mime_type(mime_type))
        });
        Ok(ListResourceTemplatesResult::with_all_items([template].into_iter().chain(custom).collect()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if let Some((def, values)) = self.custom_resource(&request.uri) {
            let project = self.shared.assistant.project();
            let contents = custom_content::resource_contents(&project, def, &request.uri, &values);
            return Ok(ReadResourceResult::new(contents).into());
        }
        // The error is the same whether a conversation of another session exists or not.
        let own = transcript::conversation_of(&request.uri).filter(|id| self.own_conversations().contains(id));
        let Some(id) = own else { return Err(resource_not_found(&request.uri)) };
        let text = transcript::text(&self.shared.assistant, &id).await.map_err(|error| {
            tracing::error!(channel = super::NAME, code = error.code(), "{error}");
            ErrorData::internal_error("the transcript cannot be read at present", None)
        })?;
        let contents = ResourceContents::text(text, request.uri).with_mime_type(TEXT_PLAIN);
        Ok(ReadResourceResult::new(vec![contents]).into())
    }
}

impl Session {
    fn config(&self, capabilities: ServerCapabilities) -> ServerConfig {
        let project = self.shared.assistant.project();
        let name = &*project.config.assistant_id;
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("segue", env!("CARGO_PKG_VERSION")).with_title(name))
            .with_instructions(text("instructions", &[("name", name)]))
    }

    /// The resource of the project with this URI, and the values in it.
    fn custom_resource(&self, uri: &str) -> Option<(&McpResourceDef, TextValues)> {
        let mut all = self.shared.settings.resources.iter();
        all.find_map(|def| Some((def, custom_content::match_uri(def, uri)?)))
    }

    /// Whether this session may read the resource of a URI.
    pub(super) fn may_read(&self, uri: &str) -> bool {
        self.custom_resource(uri).is_some()
            || transcript::conversation_of(uri).is_some_and(|id| self.own_conversations().contains(&id))
    }
}

/// The error for a URI that this session may not read, or that has no resource.
pub(super) fn resource_not_found(uri: &str) -> ErrorData {
    ErrorData::resource_not_found("there is no such resource for this session", Some(serde_json::json!({"uri": uri})))
}

/// One page of a list, and the cursor of the next page: the index of its first item.
fn page_of<T>(all: &[T], page: Option<PaginatedRequestParams>) -> Result<(&[T], Option<String>), ErrorData> {
    let cursor = page.and_then(|page| page.cursor);
    let start = match &cursor {
        None => 0,
        Some(cursor) => cursor
            .parse::<usize>()
            .ok()
            .filter(|start| *start < all.len())
            .ok_or_else(|| ErrorData::invalid_params("this server did not issue this cursor", None))?,
    };
    let end = all.len().min(start.saturating_add(limits::MCP_SERVED_PAGE));
    Ok((all.get(start..end).unwrap_or_default(), (end < all.len()).then(|| end.to_string())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn pagination_returns_all_items_and_refuses_an_unknown_cursor() {
        let all: Vec<usize> = (0..limits::MCP_SERVED_PAGE + 3).collect();
        let (first, next) = page_of(&all, None).unwrap();
        assert_eq!(first.len(), limits::MCP_SERVED_PAGE);
        let (rest, none) = page_of(&all, Some(PaginatedRequestParams::default().with_cursor(next))).unwrap();
        assert_eq!((rest.len(), none), (3, None));
        for unknown in ["x", "-1", "9999"] {
            assert!(page_of(&all, Some(PaginatedRequestParams::default().with_cursor(Some(unknown.into())))).is_err());
        }
        assert!(page_of(&[0_u8; 0], None).is_ok());
    }
}

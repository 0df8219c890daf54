//! The methods of the protocol: what there is, in pages, and what is done with it.

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
    authored::{self, Values},
    session::Session,
    transcript,
    watch::{SetLevel, with_logging},
    words::say,
};
use crate::limits;

const PLAIN: &str = "text/plain";

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

    /// Without a session nobody is told of anything after an answer.
    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let versions = self.supported_protocol_versions().into_owned();
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().enable_prompts();
        let config = self.config(with_logging(capabilities.enable_completions().build()));
        Ok(DiscoverResult::from_server_info(versions, config))
    }

    async fn set_level(&self, request: SetLevel, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.heed(&request);
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.watch(&request.uri, &context)
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.shared.watchers.forget(self.scope, Some(&request.uri));
        Ok(())
    }

    async fn list_prompts(
        &self,
        page: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let all = self.prompts();
        let (prompts, next) = paged(&all, page)?;
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
        Ok(CompleteResult::new(self.completed(&request.r#ref, &request.argument)))
    }

    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let (tools, next) = paged(&self.shared.offers.tools, page)?;
        let mut list = ListToolsResult::with_all_items(tools.to_vec());
        list.next_cursor = next;
        Ok(list)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.shared.offers.tools.iter().find(|tool| tool.name == name).cloned()
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
        let fixed = self.shared.settings.resources.iter().filter(|one| !authored::is_template(one));
        let fixed = fixed.map(|one| {
            let resource = Resource::new(&*one.uri, one.name.as_deref().unwrap_or(&one.uri));
            let resource = one.description.iter().fold(resource, |told, about| told.with_description(about));
            one.mime_type.iter().fold(resource, |told, kind| told.with_mime_type(kind))
        });
        let transcript = |id: &ConversationId| {
            Resource::new(transcript::address(id), id.as_str())
                .with_title("Transcript")
                .with_description("What was said in this talk so far.")
                .with_mime_type(PLAIN)
        };
        let all: Vec<Resource> = fixed.chain(self.began().iter().map(transcript)).collect();
        let (resources, next) = paged(&all, page)?;
        let mut list = ListResourcesResult::with_all_items(resources.to_vec());
        list.next_cursor = next;
        Ok(list)
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = ResourceTemplate::new(transcript::TEMPLATE, "transcript")
            .with_description("What was said in a talk that this session began.")
            .with_mime_type(PLAIN);
        let authored = self.shared.settings.resources.iter().filter(|one| authored::is_template(one));
        let authored = authored.map(|one| {
            let template = ResourceTemplate::new(&*one.uri, one.name.as_deref().unwrap_or(&one.uri));
            let template = one.description.iter().fold(template, |told, about| told.with_description(about));
            one.mime_type.iter().fold(template, |told, kind| told.with_mime_type(kind))
        });
        Ok(ListResourceTemplatesResult::with_all_items([template].into_iter().chain(authored).collect()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if let Some((one, values)) = self.authored_at(&request.uri) {
            let contents = authored::contents(self.shared.assistant.project(), one, &request.uri, &values);
            return Ok(ReadResourceResult::new(contents).into());
        }
        // Whether a talk of somebody else is there is not told either.
        let mine = transcript::talk(&request.uri).filter(|id| self.began().contains(id));
        let Some(id) = mine else { return Err(no_resource(&request.uri)) };
        let text = transcript::written(&self.shared.assistant, &id).await.map_err(|error| {
            tracing::error!(channel = super::NAME, code = error.code(), "{error}");
            ErrorData::internal_error("the transcript cannot be read now", None)
        })?;
        let contents = ResourceContents::text(text, request.uri).with_mime_type(PLAIN);
        Ok(ReadResourceResult::new(vec![contents]).into())
    }
}

impl Session {
    fn config(&self, capabilities: ServerCapabilities) -> ServerConfig {
        let name = &*self.shared.assistant.project().config.assistant_id;
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("segue", env!("CARGO_PKG_VERSION")).with_title(name))
            .with_instructions(say("instructions", &[("name", name)]))
    }

    fn authored_at(&self, address: &str) -> Option<(&McpResourceDef, Values)> {
        let mut all = self.shared.settings.resources.iter();
        all.find_map(|one| Some((one, authored::matched(one, address)?)))
    }

    /// Whether this session may read what stands at an address.
    pub(super) fn may_read(&self, address: &str) -> bool {
        self.authored_at(address).is_some() || transcript::talk(address).is_some_and(|id| self.began().contains(&id))
    }
}

/// There is nothing at this address for this session.
pub(super) fn no_resource(address: &str) -> ErrorData {
    ErrorData::resource_not_found(
        "there is no such resource for this session",
        Some(serde_json::json!({"uri": address})),
    )
}

/// One page of a list that does not change while it is read: the cursor is the place where the next begins.
fn paged<T>(all: &[T], page: Option<PaginatedRequestParams>) -> Result<(&[T], Option<String>), ErrorData> {
    let cursor = page.and_then(|page| page.cursor);
    let from = match &cursor {
        None => 0,
        Some(cursor) => cursor
            .parse::<usize>()
            .ok()
            .filter(|from| *from < all.len())
            .ok_or_else(|| ErrorData::invalid_params("this cursor is none of ours", None))?,
    };
    let to = all.len().min(from + limits::MCP_SERVED_PAGE);
    Ok((all.get(from..to).unwrap_or_default(), (to < all.len()).then(|| to.to_string())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn pages_follow_each_other_and_a_strange_cursor_is_refused() {
        let all: Vec<usize> = (0..limits::MCP_SERVED_PAGE + 3).collect();
        let (first, next) = paged(&all, None).unwrap();
        assert_eq!(first.len(), limits::MCP_SERVED_PAGE);
        let (rest, none) = paged(&all, Some(PaginatedRequestParams::default().with_cursor(next))).unwrap();
        assert_eq!((rest.len(), none), (3, None));
        for strange in ["x", "-1", "9999"] {
            assert!(paged(&all, Some(PaginatedRequestParams::default().with_cursor(Some(strange.into())))).is_err());
        }
        assert!(paged(&[0_u8; 0], None).is_ok());
    }
}

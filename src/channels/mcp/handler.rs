//! The methods of the protocol: what there is, in pages, and what is done with it.

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, Implementation, ListResourceTemplatesResult, ListResourcesResult,
        ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
        Resource, ResourceContents, ResourceTemplate, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
};

use super::{session::Session, transcript, words::say};
use crate::limits;

const PLAIN: &str = "text/plain";

impl ServerHandler for Session {
    fn get_info(&self) -> ServerConfig {
        let name = &*self.shared.assistant.project().config.assistant_id;
        // There is no prompt to give: whoever asks is told an empty list, and that must be announced.
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().enable_prompts().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("segue", env!("CARGO_PKG_VERSION")).with_title(name))
            .with_instructions(say("instructions", &[("name", name)]))
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
        let began = self.began();
        let (page, next) = paged(&began, page)?;
        let transcript = |id| {
            Resource::new(transcript::address(id), id.as_str())
                .with_title("Transcript")
                .with_description("What was said in this talk so far.")
                .with_mime_type(PLAIN)
        };
        let mut list = ListResourcesResult::with_all_items(page.iter().map(transcript).collect());
        list.next_cursor = next;
        Ok(list)
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = ResourceTemplate::new("segue://conversation/{conversation_id}", "transcript")
            .with_description("What was said in a talk that this session began.")
            .with_mime_type(PLAIN);
        Ok(ListResourceTemplatesResult::with_all_items(vec![template]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        // Whether a talk of somebody else is there is not told either.
        let mine = transcript::talk(&request.uri).filter(|id| self.began().contains(id));
        let Some(id) = mine else {
            let data = serde_json::json!({"uri": request.uri});
            return Err(ErrorData::resource_not_found("this session began no such talk", Some(data)));
        };
        let text = transcript::written(&self.shared.assistant, &id).await.map_err(|error| {
            tracing::error!(channel = super::NAME, code = error.code(), "{error}");
            ErrorData::internal_error("the transcript cannot be read now", None)
        })?;
        let contents = ResourceContents::text(text, request.uri).with_mime_type(PLAIN);
        Ok(ReadResourceResult::new(vec![contents]).into())
    }
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

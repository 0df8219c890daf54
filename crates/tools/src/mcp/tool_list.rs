//! Reads the tool list of a server (`tools/list`): all pages, within limits, with cleaned descriptions. An unusable tool is
//! excluded with the reason, and does not affect the others.

use std::{collections::HashSet, sync::Arc};

use segue_engine::text::strip_hidden;
use serde_json::{Value as Json, json};

use super::{
    call::McpTool,
    resource_tools,
    server::ServerState,
    session::{self, RequestError, SessionHandle},
    session_manager::SessionHealth,
};
use crate::{ArgumentCheck, EffectClass, ToolCatalog, ToolHandler, ToolInfo, schema::with_object_type};
use segue_base::{context::CallContext, limits};

/// The longest name of a tool, in bytes: the MCP specification recommends names of at most 128 characters
/// (<https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool-names>).
const MAX_NAME: usize = 128;

/// Lists the tools and caches the catalogue, within [`limits::MCP_INITIALISE`]. Returns it with the health of the session.
pub(super) async fn list_tools(
    state: &Arc<ServerState>,
    session: &SessionHandle,
) -> (Result<ToolCatalog, String>, SessionHealth) {
    // Read before the list, so that a change during listing makes the catalogue outdated.
    let version = *state.handler.version.borrow();
    let cx = CallContext::new(state.environment.clock.clone(), limits::MCP_INITIALISE);
    let mut builder = ToolListBuilder::default();
    match cx.wait(read_pages(state, session, &mut builder)).await {
        Ok(Ok(())) => {}
        Ok(Err(RequestError::Failed(error))) => {
            let health = match &error {
                rmcp::ServiceError::McpError(_) => SessionHealth::Healthy,
                error if session::is_session_expired(error) => SessionHealth::Broken,
                _ => SessionHealth::TransportFailed,
            };
            return (Err(format!("it does not list its tools: {}", session::error_reason(&error))), health);
        }
        Ok(Err(RequestError::NotSent(reason))) => return (Err(reason), SessionHealth::TransportFailed),
        Ok(Err(RequestError::SessionEnded)) => {
            return (
                Err("it closed the connection while listing its tools".to_owned()),
                SessionHealth::TransportFailed,
            );
        }
        Err(error) => return (Err(format!("it did not list its tools in time: {error}")), SessionHealth::Suspect),
    }
    let resource_tools = resource_tools::tools(state, |name| builder.names.contains(name));
    builder.tools.extend(resource_tools);
    for (name, reason) in &builder.excluded {
        tracing::warn!(server = %state.name, tool = name, reason, "a tool is excluded");
    }
    let catalog = ToolCatalog { version, tools: builder.tools, excluded: builder.excluded };
    *state.catalog.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(catalog.clone());
    (Ok(catalog), SessionHealth::Healthy)
}

/// Collects the tools of all pages.
#[derive(Default)]
struct ToolListBuilder {
    tools: Vec<Arc<dyn ToolHandler>>,
    excluded: Vec<(String, String)>,
    /// Names in lower case, because models may confuse two that differ only in case.
    names: HashSet<String>,
}

/// Reads the pages of the list until its end or a limit.
async fn read_pages(
    state: &Arc<ServerState>,
    session: &SessionHandle,
    builder: &mut ToolListBuilder,
) -> Result<(), RequestError> {
    let mut cursors = HashSet::new();
    let mut cursor = None;
    for _ in 0..limits::MCP_PAGES {
        let page = serde_json::to_value(session.list_tools_page(cursor.take()).await?).unwrap_or_default();
        for tool in page.get("tools").and_then(Json::as_array).into_iter().flatten() {
            if builder.tools.len() >= limits::MCP_TOOLS {
                builder.truncated(format!("only the first {} tools are read", limits::MCP_TOOLS));
                return Ok(());
            }
            builder.add(state, tool);
        }
        match page.get("nextCursor").and_then(Json::as_str).filter(|next| !next.is_empty()) {
            None => return Ok(()),
            Some(next) if !cursors.insert(next.to_owned()) => {
                builder.truncated("the list of tools repeats a cursor; the rest is not read".to_owned());
                return Ok(());
            }
            Some(next) => cursor = Some(next.to_owned()),
        }
    }
    builder.truncated(format!("only the first {} pages of the list are read", limits::MCP_PAGES));
    Ok(())
}

impl ToolListBuilder {
    /// Records that the rest of the list is not read.
    fn truncated(&mut self, reason: String) {
        self.excluded.push(("…".to_owned(), reason));
    }

    /// Adds a tool as the server lists it, or excludes it.
    fn add(&mut self, state: &Arc<ServerState>, raw: &Json) {
        let name = raw.get("name").and_then(Json::as_str).unwrap_or_default();
        // Excluded tools are reported, so their number is limited too.
        let result = if self.excluded.len() > limits::MCP_TOOLS { return } else { self.parse(state, name, raw) };
        match result {
            Ok(tool) => self.tools.push(Arc::new(tool)),
            Err(reason) => {
                let shown: String = strip_hidden(name).chars().take(MAX_NAME).collect();
                self.excluded.push((if shown.is_empty() { "?".to_owned() } else { shown }, reason));
            }
        }
    }

    /// Checks a tool as the server lists it. `Err`: why it is unusable.
    fn parse(&mut self, state: &Arc<ServerState>, name: &str, raw: &Json) -> Result<McpTool, String> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_allowed) {
            return Err(format!("its name does not consist of 1 to {MAX_NAME} letters, digits, `_`, `-`, `.` or `/`"));
        }
        if raw.pointer("/execution/taskSupport").and_then(Json::as_str) == Some("required") {
            return Err("it can only run as a task, which is not supported".to_owned());
        }
        let parameters = with_object_type(raw.get("inputSchema").cloned().unwrap_or_else(|| json!({})));
        let check = ArgumentCheck::compile(&parameters).map_err(|error| error.to_string())?;
        // Results are checked if possible; an unusable result schema is ignored.
        let output = raw.get("outputSchema").and_then(|schema| ArgumentCheck::compile_any(schema).ok());
        if !self.names.insert(name.to_ascii_lowercase()) {
            return Err("another tool of this server has the same name, or one that differs only in case".to_owned());
        }
        let info = ToolInfo::new(name, description(raw))
            .parameters(parameters)
            .effect(effect_of(state, name, raw))
            .source(state.name.clone());
        Ok(McpTool::new(info, check, output, state.clone()))
    }
}

/// The description without invisible characters, of at most [`limits::MCP_DESCRIPTION`] bytes.
fn description(raw: &Json) -> String {
    let text = raw.get("description").and_then(Json::as_str).unwrap_or_default();
    let text = strip_hidden(text);
    let end = text.floor_char_boundary(limits::MCP_DESCRIPTION);
    text.get(..end).unwrap_or_default().trim().to_owned()
}

/// The effect class: from the configuration, else from the annotations of a trusted server, else `write`.
fn effect_of(state: &ServerState, name: &str, raw: &Json) -> EffectClass {
    if let Some(effect) = state.effects.get(name) {
        return *effect;
    }
    let hint =
        |hint: &str| raw.get("annotations").and_then(|hints| hints.get(hint)).and_then(Json::as_bool) == Some(true);
    match state.trust_annotations {
        true if hint("readOnlyHint") => EffectClass::Read,
        true if hint("idempotentHint") => EffectClass::Idempotent,
        _ => EffectClass::Write,
    }
}

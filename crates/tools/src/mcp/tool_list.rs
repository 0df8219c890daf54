//! The tool list of a server: paged, limited, cleaned. An unusable tool is excluded with its reason, and does not
//! affect the others.

use std::{collections::HashSet, sync::Arc};

use segue_engine::text::strip_hidden;
use serde_json::{Value as Json, json};

use super::{
    call::McpTool,
    resource_tools,
    server::Shared,
    session::{self, RequestError, SessionHandle},
    session_manager::SessionHealth,
};
use crate::{ArgumentCheck, EffectClass, ToolCatalog, ToolHandler, ToolInfo, schema::completed};
use segue_base::{context::CallContext, limits};

/// The longest name that the protocol allows.
const LONGEST_NAME: usize = 128;

/// Lists the tools, caches the list, and returns the state of the session. The time is limited.
pub(super) async fn read(shared: &Arc<Shared>, line: &SessionHandle) -> (Result<ToolCatalog, String>, SessionHealth) {
    // Read before the list: a change meanwhile makes the list outdated, never the reverse.
    let version = *shared.listener.version.borrow();
    let cx = CallContext::new(shared.around.clock.clone(), limits::MCP_INITIALISE);
    let mut listed = ToolListBuilder::default();
    match cx.wait(pages(shared, line, &mut listed)).await {
        Ok(Ok(())) => {}
        Ok(Err(RequestError::Failed(error))) => {
            let fate = match &error {
                rmcp::ServiceError::McpError(_) => SessionHealth::Good,
                error if session::is_forgotten(error) => SessionHealth::Broken,
                _ => SessionHealth::Lost,
            };
            return (Err(format!("it does not list its tools: {}", session::why(&error))), fate);
        }
        Ok(Err(RequestError::NotSent(reason))) => return (Err(reason), SessionHealth::Lost),
        Ok(Err(RequestError::Gone)) => {
            return (Err("it went away while it listed its tools".to_owned()), SessionHealth::Lost);
        }
        Err(stopped) => return (Err(format!("it did not list its tools in time: {stopped}")), SessionHealth::Doubtful),
    }
    let offered = resource_tools::tools(shared, |name| listed.names.contains(name));
    listed.tools.extend(offered);
    for (name, why) in &listed.excluded {
        tracing::warn!(server = %shared.name, tool = name, why, "a tool is left out");
    }
    let catalog = ToolCatalog { version, tools: listed.tools, excluded: listed.excluded };
    *shared.catalog.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(catalog.clone());
    (Ok(catalog), SessionHealth::Good)
}

#[derive(Default)]
struct ToolListBuilder {
    tools: Vec<Arc<dyn ToolHandler>>,
    excluded: Vec<(String, String)>,
    /// Names in lower case: two that differ only in case would be confused.
    names: HashSet<String>,
}

async fn pages(shared: &Arc<Shared>, line: &SessionHandle, listed: &mut ToolListBuilder) -> Result<(), RequestError> {
    let mut cursors = HashSet::new();
    let mut cursor = None;
    for _ in 0..limits::MCP_PAGES {
        let page = serde_json::to_value(line.page(cursor.take()).await?).unwrap_or_default();
        for tool in page.get("tools").and_then(Json::as_array).into_iter().flatten() {
            if listed.tools.len() >= limits::MCP_TOOLS {
                listed.rest(format!("only the first {} tools are read", limits::MCP_TOOLS));
                return Ok(());
            }
            listed.take(shared, tool);
        }
        match page.get("nextCursor").and_then(Json::as_str).filter(|next| !next.is_empty()) {
            None => return Ok(()),
            Some(next) if !cursors.insert(next.to_owned()) => {
                listed.rest("the list of tools turns in a circle: the same cursor came twice".to_owned());
                return Ok(());
            }
            Some(next) => cursor = Some(next.to_owned()),
        }
    }
    listed.rest(format!("only the first {} pages of the list are read", limits::MCP_PAGES));
    Ok(())
}

impl ToolListBuilder {
    /// The rest is ignored.
    fn rest(&mut self, why: String) {
        self.excluded.push(("…".to_owned(), why));
    }

    fn take(&mut self, shared: &Arc<Shared>, raw: &Json) {
        let name = raw.get("name").and_then(Json::as_str).unwrap_or_default();
        // Excluded tools are reported, so their number is limited too.
        let result = if self.excluded.len() > limits::MCP_TOOLS { return } else { self.read(shared, name, raw) };
        match result {
            Ok(tool) => self.tools.push(Arc::new(tool)),
            Err(why) => {
                let shown: String = strip_hidden(name).chars().take(LONGEST_NAME).collect();
                self.excluded.push((if shown.is_empty() { "?".to_owned() } else { shown }, why));
            }
        }
    }

    fn read(&mut self, shared: &Arc<Shared>, name: &str, raw: &Json) -> Result<McpTool, String> {
        let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
        if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(sound) {
            return Err(format!("its name is not made of 1 to {LONGEST_NAME} letters, digits, `_`, `-`, `.`, `/`"));
        }
        if raw.pointer("/execution/taskSupport").and_then(Json::as_str) == Some("required") {
            return Err("it runs as a task only".to_owned());
        }
        let parameters = completed(raw.get("inputSchema").cloned().unwrap_or_else(|| json!({})));
        let check = ArgumentCheck::compile(&parameters).map_err(|refused| refused.to_string())?;
        // Results are checked if possible; an unusable result schema is ignored.
        let output = raw.get("outputSchema").and_then(|schema| ArgumentCheck::compile_any(schema).ok());
        if !self.names.insert(name.to_ascii_lowercase()) {
            return Err("another tool of this server has the same name, or differs from it by case alone".to_owned());
        }
        let description = described(raw);
        let spec = ToolInfo::new(name, description)
            .parameters(parameters)
            .effect(effect_of(shared, name, raw))
            .source(shared.name.clone());
        Ok(McpTool::new(spec, check, output, shared.clone()))
    }
}

fn described(raw: &Json) -> String {
    let text = raw.get("description").and_then(Json::as_str).unwrap_or_default();
    let text = strip_hidden(text);
    let end = text.floor_char_boundary(limits::MCP_DESCRIPTION);
    text.get(..end).unwrap_or_default().trim().to_owned()
}

/// The effect class: from the configuration, else from the annotations of a trusted server, else `write`.
fn effect_of(shared: &Shared, name: &str, raw: &Json) -> EffectClass {
    if let Some(effect) = shared.effects.get(name) {
        return *effect;
    }
    let hint =
        |hint: &str| raw.get("annotations").and_then(|hints| hints.get(hint)).and_then(Json::as_bool) == Some(true);
    match shared.trust_annotations {
        true if hint("readOnlyHint") => EffectClass::Read,
        true if hint("idempotentHint") => EffectClass::Idempotent,
        _ => EffectClass::Write,
    }
}

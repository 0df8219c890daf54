//! A tool source of tools written in Rust. It replaces an MCP server: agents and call steps use its tools by the server's name.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use tokio::sync::watch;

use super::{Health, SourceError, Tool, ToolCatalog, ToolHandler, ToolSource};
use segue_base::context::CallContext;

/// A tool source of tools in this process. Its list never changes, and its health is always [`Health::Up`].
pub struct Toolbox {
    name: String,
    tools: Vec<Arc<dyn ToolHandler>>,
    changes: watch::Sender<u64>,
}

impl Toolbox {
    /// A source that replaces the server `name` of `endpoints.yml`.
    pub fn new(name: impl Into<String>, tools: impl IntoIterator<Item = Tool>) -> Self {
        let tools = tools.into_iter().map(|tool| Arc::new(tool) as Arc<dyn ToolHandler>).collect();
        Self { name: name.into(), tools, changes: watch::Sender::new(0) }
    }
}

#[async_trait]
impl ToolSource for Toolbox {
    fn name(&self) -> &str {
        &self.name
    }
    async fn list(&self, _: &CallContext) -> Result<ToolCatalog, SourceError> {
        let catalog = ToolCatalog { version: 0, tools: self.tools.clone(), excluded: Vec::new() };
        Ok(catalog)
    }
    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
    fn status(&self) -> Health {
        Health::Up
    }
    async fn close(&self, _: &CallContext) {}
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Toolbox").field("name", &self.name).finish_non_exhaustive()
    }
}

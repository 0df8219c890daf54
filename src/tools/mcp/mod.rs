//! Tools of MCP servers: over the pipes of a child process, or over streamable HTTP.
//!
//! Entry: [`McpServers`], the pool of the whole process; each [`McpServer`] is a [`ToolSource`](super::ToolSource). One task
//! owns each session: it connects when somebody first asks, and again after a loss. Everything that a server says is
//! data: descriptions are cleaned, schemas checked, sizes capped. A server cannot ask anything of us: sampling,
//! elicitation and roots are refused. The order of a connection's life is in `docs/lifecycles/mcp-connection.md`.

mod call;
mod catalog;
mod child;
mod client;
mod connection;
mod lines;
mod listener;
mod owner;
mod pool;
mod wire;

pub use self::{
    client::{McpServer, Pipes, Surroundings},
    pool::McpServers,
};

use segue_engine::{ids::SlotName, project::McpServerDef};
use serde_json::{Map, Value as Json};

/// The `_meta` of a call that comes from slots: an absent or empty slot leaves its parameter out. What the server's entry
/// states for every call is added by the tool itself.
pub fn meta_from_slots(def: &McpServerDef, mut slot: impl FnMut(&SlotName) -> Option<Json>) -> Map<String, Json> {
    let filled = def.meta_slots.iter().filter_map(|(parameter, name)| {
        let value = slot(name).filter(|value| !value.is_null())?;
        Some((parameter.clone(), value))
    });
    filled.collect()
}

#[cfg(test)]
mod tests;

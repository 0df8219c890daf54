//! Tools of MCP servers: over the pipes of a child process, or over streamable HTTP.
//!
//! Entry: [`McpServer`], a [`ToolSource`](super::ToolSource); one per entry of `endpoints.yml` serves the whole process. One
//! task owns each session: it connects when somebody first asks, and again after a loss. Everything that a server says
//! is data: descriptions are cleaned, schemas checked, sizes capped. What a server asks of us is refused, unless its
//! entry allows it (`inquiry.rs`); roots always are. The order of a connection's life is in `docs/internals/mcp-connection.md`.

mod auth;
mod call;
mod catalog;
mod child;
mod client;
mod connection;
mod inquiry;
mod lines;
mod listener;
mod offers;
mod owner;
mod wire;

pub use self::{
    auth::Login,
    client::{McpEnvironment, McpServer, Pipes},
};

/// Where logins are kept, beside the project.
pub const LOGINS: &str = ".segue/mcp";

#[cfg(test)]
mod tests;

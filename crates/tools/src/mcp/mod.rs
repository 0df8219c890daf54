//! The client of MCP servers (<https://modelcontextprotocol.io>): over the pipes of a child process, or over streamable
//! HTTP.
//!
//! [`McpServer`] is a [`ToolSource`](super::ToolSource); one per entry of `endpoints.yml` serves the whole process. Each has
//! a session manager, a task that connects at the first request, and again after a lost connection. Everything from a
//! server is untrusted data: descriptions are cleaned, schemas checked, sizes limited. Requests from a server to the
//! client are rejected unless its entry allows them (`elicitation.rs`); requests for roots always are. The life cycle of a
//! session is described in `docs/internals/mcp-connection.md`.

mod auth;
mod call;
mod child;
mod client_handler;
mod elicitation;
mod form;
mod http_messages;
mod http_transport;
mod line_guard;
mod resource_tools;
mod server;
mod session;
mod session_manager;
mod tool_list;

pub use self::{
    auth::Login,
    server::{McpEnvironment, McpServer, Pipes},
};

/// The folder of stored logins, relative to the project folder.
pub const LOGINS: &str = ".segue/mcp";

#[cfg(test)]
mod tests;

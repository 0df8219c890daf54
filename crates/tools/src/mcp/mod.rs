//! The client of MCP servers (<https://modelcontextprotocol.io>): over the pipes of a child process, or over streamable
//! HTTP.
//!
//! [`McpServer`] is a [`ToolSource`](super::ToolSource); one per entry of `endpoints.yml` serves the whole process. One
//! task owns each session: it connects at the first request, and again after a lost connection. Everything from a
//! server is untrusted data: descriptions are cleaned, schemas checked, sizes limited. Requests from a server to the
//! client are refused unless its entry allows them (`inquiry.rs`); roots are always refused. The life cycle of a
//! connection is described in `docs/internals/mcp-connection.md`.

mod auth;
mod call;
mod child;
mod client_handler;
mod elicitation;
mod http_transport;
mod lines;
mod resource_tools;
mod server;
mod session;
mod session_manager;
mod tool_list;

pub use self::{
    auth::Login,
    server::{McpEnvironment, McpServer, Pipes},
};

/// The folder of logins, in the project.
pub const LOGINS: &str = ".segue/mcp";

#[cfg(test)]
mod tests;

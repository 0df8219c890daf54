//! What else stands behind the journal besides models and tools: hooks, remote agents, and what a server asks in the middle of a
//! call.

pub(super) mod elicitation;
pub(super) mod hooks;
pub(super) mod remote_agent;

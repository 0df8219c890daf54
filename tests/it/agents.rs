//! Agents in a whole assistant: prompt injection, confirmation of tool calls, pinned tools, hooks, agents in Rust.

mod confirmation;
mod connection;
mod custom_agents;
mod hooks;
mod prompt_injection;
mod tool_pins;
mod vectors;
mod workspaces;

use segue::llm::{ChatResponse, FinishReason, ToolArguments, ToolCall};
use serde_json::Value as Json;

/// An answer of a model with a text and tool calls.
fn tool_calls(text: &str, calls: &[(&str, Json)]) -> ChatResponse {
    let calls = calls.iter().enumerate().map(|(at, (name, arguments))| ToolCall {
        id: format!("c{at}").into(),
        name: (*name).into(),
        arguments: ToolArguments::json(arguments.clone()),
    });
    ChatResponse {
        text: text.into(),
        tool_calls: calls.collect(),
        finish: FinishReason::ToolCalls,
        ..ChatResponse::default()
    }
}

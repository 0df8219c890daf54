//! The imports that most programs with custom parts need: `use segue::prelude::*;`

pub use async_trait::async_trait;
pub use schemars::JsonSchema;
pub use serde::Deserialize;
pub use serde_json::json;

pub use crate::{
    agents::{
        Agent, AgentError, AgentResult, AgentRun,
        hooks::{AgentHooks, AgentInput, HookContext, HookResult},
    },
    channels::{Channel, ChannelService, Inbox},
    effect::EffectClass,
    llm::ToolSpec,
    runtime::{Assistant, AssistantBuilder, IncomingMessage},
    server::axum_router,
    tools::{NoArguments, Tool, ToolCallContext, ToolError},
};

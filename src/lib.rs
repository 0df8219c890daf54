//! Segue runs conversational assistants that are written as CALM projects: flows, a domain, agents and tools in YAML. A model
//! turns a user's message into commands; flows decide what happens.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use segue::prelude::*;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct ForecastArgs {
//!     /// Name of the town
//!     place: String,
//! }
//!
//! let forecast = Tool::new("forecast", "Tells tomorrow's weather in a town", |args: ForecastArgs, _| async move {
//!     Ok(json!({ "place": args.place, "sky": "clear" }))
//! })
//! .effect(EffectClass::Read);
//!
//! let assistant = Assistant::builder("my-project")?.tool("weather", forecast).build()?;
//! let turn = assistant.say("ada", "How is the weather in Bergen?").await?;
//! println!("{}", turn.text());
//! # Ok(())
//! # }
//! ```
//!
//! Parts of your own: a [`Tool`], an [`Agent`], the [`AgentHooks`] of an agent of ours, a [`Channel`], an [`Llm`], a [`Store`]; and the
//! whole inside another server by [`axum_router`]. `docs/rust-api.md` has a section on each, and `examples/` a program. Tests of such
//! parts have [`testing`].
//!
//! # Modules
//!
//! A module imports only from lower layers; `ARCHITECTURE.md` has the table, which CI checks.
//!
//! | layer | modules | contents |
//! | --- | --- | --- |
//! | server | [`server`] | HTTP routes and limits, shutdown |
//! | interfaces | [`channels`], [`e2e`], [`import`] | REST, MCP and A2A servers; test cases; conversations of other stores |
//! | runtime | [`runtime`] | one turn, from message to replies |
//! | agents and generation | [`understanding`], [`knowledge`], [`rephrasing`], [`agents`] | from messages to commands; answers from documents; rephrasing; agent loops |
//! | adapters | [`llm`], [`tools`], [`a2a`], [`actions`], [`store`], [`journal`], [`search`], [`prompts`] | models; tools and MCP; remote agents; action servers; storage; the effect journal; retrieval; prompt files |
//! | domain model | [`project`], [`conversation`] | the author's project; events and their state |
//! | foundation | [`clock`], [`context`], [`effect`], [`limits`], [`secret`], [`http`], [`outbound_auth`], [`environment`] | what every layer uses |
//!
//! The dialogue engine, [`dialogue`], is a package without I/O, clock or randomness: `segue-engine`.
//!
//! # The life of a message
//!
//! 1. A channel authenticates the caller, parses the request and passes the message to its [`Inbox`].
//! 2. [`Assistant::receive`] stores the message. A repeated message is answered with the stored replies.
//! 3. Each conversation runs one turn at a time; further messages wait in its mailbox.
//! 4. The conversation is loaded: a snapshot, and the events since.
//! 5. [`dialogue::advance`] takes the message and returns events and the next effect.
//! 6. Understanding turns words into commands: without a model where the meaning is certain, otherwise with one call.
//! 7. The dialogue engine executes commands and walks flows until it needs an action, a tool or an agent.
//! 8. Each effect goes through the journal, which knows what may be repeated. Its outcome is the next input of the engine.
//! 9. When the engine waits for the user, events, replies and the mark "answered" are committed in one transaction.
//! 10. Replies go to the channel's [`ReplySink`]; deltas of a streamed reply may have been sent before, each announced in the
//!     journal.

use segue_base::child;
#[cfg(feature = "grpc")]
pub use segue_base::grpc;
pub use segue_base::{clock, context, effect, environment, failpoint, health, http, limits, outbound_auth, secret};
pub use {segue_a2a as a2a, segue_llm as llm, segue_store as store, segue_tools as tools};

pub mod actions;
pub mod agents;
pub mod channels;
pub mod conversation;
#[cfg(feature = "mcp")]
pub mod demo;
pub mod e2e;
pub mod import;
pub mod journal;
pub mod knowledge;
pub mod prelude;
pub mod project;
pub mod prompts;
pub mod rephrasing;
pub mod runtime;
pub mod search;
pub mod server;
#[cfg(test)]
#[path = "../tests/support/test_server.rs"]
mod test_server;
pub mod testing;
pub mod understanding;

/// For implementing the traits of this crate that have asynchronous methods.
pub use async_trait::async_trait;
/// What every other trait of this crate gives back where it may wait.
pub use futures::future::BoxFuture;
/// The version that the schemas of typed tools are made with.
pub use schemars;
pub use segue_engine::{
    dialogue,
    ids::{self, ConversationId},
    time::Timestamp,
};

pub use crate::{
    actions::{ActionRequest, ActionServer},
    agents::{Agent, AgentError, AgentHooks, AgentResult, AgentRun},
    channels::{Arrival, Channel, Inbox, RestChannel},
    clock::{Clock, SystemClock},
    context::CallContext,
    conversation::{
        ActionOutcome, ActionServerResponse, AgentOutcome, AgentStatus, BotKind, BotMessage, Button, Conversation,
        DeliveryError, DiscardReplies, Event, EventKind, FlowLocation, Receipt, Reply, ReplyEvent, ReplyKind,
        ReplySink, StepError, UserMessage,
    },
    effect::EffectClass,
    llm::{ChatRequest, ChatResponse, ChatStream, Delta, Embedder, Embedding, Llm, LlmError, ModelProfile},
    project::Project,
    runtime::{Action, Assistant, AssistantBuilder, Failure, IncomingMessage, LoadError, ReceiveError, TurnReport},
    server::axum_router,
    store::{MemoryStore, Store, StoreError},
    tools::{
        FailureKind, Tool, ToolCallContext, ToolError, ToolFailure, ToolHandler, ToolInfo, ToolOutcome, ToolOutput,
        ToolSource, Toolbox,
    },
};

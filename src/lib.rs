//! Segue runs conversational assistants that are written as CALM projects: flows, a domain, agents and tools in YAML. A model
//! translates a user's message into commands; flows decide what happens.
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
//! Custom parts are a [`Tool`], an [`Agent`], [`AgentHooks`] for a built-in agent, a [`Channel`], an [`Llm`], a [`Store`]. [`axum_router`]
//! serves an assistant in another server. `docs/how-to/rust-api.md` has a section on each, and `examples/` a program. [`testing`] has
//! what tests of such parts need.
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
//! | agents and generation | [`understanding`], [`knowledge`], [`rephrasing`], [`agents`], [`delegation`] | from messages to commands; answers from documents; rephrasing; agent loops; sub-agents |
//! | adapters | [`llm`], [`tools`], [`a2a`], [`actions`], [`store`], [`journal`], [`search`], [`prompts`] | models; tools and MCP; remote agents; action servers; storage; the effect journal; retrieval; prompt files |
//! | domain model | [`project`], [`conversation`] | the author's project; events and their state |
//! | foundation | [`clock`], [`context`], [`effect`], [`limits`], [`secret`], [`http`], [`outbound_auth`], [`environment`] | what every layer uses |
//!
//! The dialogue engine, [`dialogue`], is a package without I/O, clock or randomness: `segue-engine`.
//!
//! # The life of a message
//!
//! 1. A channel authenticates the caller, parses the request and passes the message to its [`Inbox`].
//! 2. [`Assistant::receive`] stores the message. A duplicate is answered with the stored replies.
//! 3. Each conversation runs one turn at a time; further messages wait in its mailbox.
//! 4. The conversation is loaded from its snapshot and the events since.
//! 5. [`dialogue::advance`] takes the message and returns events and the next effect.
//! 6. If the effect is understanding, one call of a model turns the message into commands. Structured messages need no model.
//! 7. The dialogue engine executes commands and walks flows until it needs another effect: an action, a tool, an agent.
//! 8. Each effect goes through the journal: an effect with a recorded outcome is not performed again. The outcome is the next input of
//!    the engine.
//! 9. When the engine waits for the user, events, replies and the mark "answered" are committed in one transaction.
//! 10. Replies go to the channel's [`ReplySink`]. Deltas of a streamed reply may have been sent before, each reply announced in the
//!     journal.

use segue_base::child;
#[cfg(feature = "grpc")]
pub use segue_base::grpc;
pub use segue_base::{clock, context, effect, environment, failpoint, health, http, limits, outbound_auth, secret};
// `cli` names the library as its users do.
extern crate self as segue;

pub use {segue_a2a as a2a, segue_llm as llm, segue_store as store, segue_tools as tools};

pub mod actions;
pub mod agents;
pub mod channels;
#[doc(hidden)]
pub mod cli;
pub mod conversation;
pub mod delegation;
#[cfg(feature = "mcp")]
pub mod demo;
pub mod e2e;
pub mod import;
pub mod journal;
pub mod knowledge;
pub mod missions;
pub mod prelude;
pub mod project;
pub mod prompts;
mod react;
pub mod rephrasing;
pub mod runtime;
pub mod search;
pub mod server;
#[cfg(test)]
#[path = "../tests/support/test_server.rs"]
mod test_server;
pub mod testing;
pub mod understanding;

/// For implementations of the traits of this crate with `async fn` methods.
pub use async_trait::async_trait;
/// The version of `schemars` that creates the schemas of typed tools.
pub use schemars;
pub use segue_engine::{
    dialogue,
    ids::{self, ConversationId},
    time::Timestamp,
};

pub use crate::{
    actions::{ActionRequest, ActionServer},
    agents::{Agent, AgentError, AgentHooks, AgentResult, AgentRun},
    channels::{Channel, Inbox, RestChannel},
    clock::{Clock, SystemClock},
    context::CallContext,
    conversation::{
        ActionOutcome, ActionServerResponse, AgentOutcome, AgentStatus, BotKind, BotMessage, Button, Conversation,
        DeliveryError, DiscardReplies, Event, EventKind, FlowLocation, Receipt, Reply, ReplyKind, ReplySink, StepError,
        TurnEvent, UserMessage,
    },
    delegation::{DelegationSettings, Delegations, TaskEvent, TaskEventSink},
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

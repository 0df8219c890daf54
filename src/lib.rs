//! Segue runs conversational assistants that are written as CALM projects: flows, a domain, agents and tools in YAML. What a
//! person says is turned into commands by a model; what happens then is decided by flows.
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
//! # The rooms
//!
//! A room imports only from the floors below it; `ARCHITECTURE.md` has the table that is checked.
//!
//! | floor | rooms | what they are for |
//! | --- | --- | --- |
//! | 6 porch | [`server`] | routes, limits, the end of the process |
//! | 5 hall | [`channels`], [`import`] | wires to users, both directions; conversations of another store |
//! | 4 engine room | [`runtime`] | one turn, from message to replies |
//! | 3 actors | [`understanding`], [`knowledge`], [`rephrasing`], [`agents`] | from words to commands; answers from documents; rephrasing of responses; loops with a goal |
//! | 2 instruments | [`llm`], [`tools`], [`a2a`], [`actions`], [`store`], [`journal`], [`search`], [`prompts`] | models; tools and MCP; remote agents; action servers; everything durable; what happens at most once; finding texts; texts for models |
//! | 1 vocabulary | [`project`], [`conversation`] | what the author wrote; what happened |
//! | 0 ground | [`clock`], [`context`], [`effect`], [`limits`], [`secret`], [`http`], [`auth`], [`environment`] | words everybody uses |
//!
//! The dialogue engine, [`dialogue`], is a crate of its own that can neither wait nor look around: `segue-engine`.
//!
//! # The journey of a message
//!
//! 1. A [`Channel`] authenticates the caller, parses, and hands the message to its [`Inbox`].
//! 2. [`Assistant::receive`] has the store accept it: a message that came before is answered as before.
//! 3. The mailbox queues it: one turn at a time in a conversation.
//! 4. The conversation is loaded: a snapshot, and the events since.
//! 5. [`dialogue::advance`] takes the message and says what must happen outside.
//! 6. Understanding turns words into commands: without a model where it is obvious, else by one call.
//! 7. The dialogue engine executes commands and walks flows until it needs an action, a tool or an agent.
//! 8. Each effect passes the journal, which knows what may be repeated; its outcome is the next input of the dialogue engine.
//! 9. When the dialogue engine listens, events, replies and the mark "answered" are committed as one.
//! 10. Replies go to the channel's [`ReplySink`]; streamed pieces may have left before, announced.

use segue_base::child;
#[cfg(feature = "grpc")]
pub use segue_base::grpc;
pub use segue_base::{auth, clock, context, effect, environment, failpoint, health, http, limits, secret};
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
#[path = "../tests/support/answering.rs"]
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
        ActionAnswer, ActionOutcome, AgentOutcome, AgentStatus, BotKind, BotMessage, Button, Conversation,
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

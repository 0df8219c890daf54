//! Tools for language models, and the sources that list them.
//!
//! [`Tool::new`] makes a tool from a closure with typed arguments; [`ToolHandler`] is the trait behind it, and [`ToolSource`] the one
//! of a source whose tools change. An agent run collects a [`ToolSet`](registry::ToolSet) and calls it through
//! [`CheckedCall`](invoke::CheckedCall), which checks the arguments against their schema first; a flow's call step goes through
//! [`call_step`](direct::call_step). The `mcp` feature adds the client of MCP servers, `mcp::McpServer`.
//!
//! This package never calls a model and never sees a conversation: what a tool may know of its caller is in its
//! [`ToolCallContext`].

pub mod direct;
mod error;
pub mod invoke;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod outcome;
pub mod pins;
pub mod registry;
pub mod schema;
mod tool;
mod toolbox;
mod words;

#[cfg(test)]
mod fixture;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::future::BoxFuture;
use segue_engine::text::{ELLIPSIS, TextLimit, single_line, strip_hidden, truncate};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};
use tokio::sync::watch;

pub use self::error::with_causes;
pub use self::{
    error::ToolError,
    schema::ArgumentCheck,
    tool::{NoArguments, Tool},
    toolbox::Toolbox,
};
pub use segue_base::effect::EffectClass;
pub use segue_base::health::Health as SourceStatus;
use segue_base::{context::CallContext, limits};

/// What is known of a tool: what models see, and what its calls may do.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolInfo {
    /// Its name, as the model calls it.
    pub name: Arc<str>,
    /// What it does.
    pub description: Arc<str>,
    /// JSON Schema of its arguments; always of type `object`.
    pub parameters: Arc<Json>,
    /// Whether the schema lies in the subset that strict mode of model wires wants.
    pub strict: bool,
    /// What may be repeated.
    pub effect: EffectClass,
    /// Where it comes from, for traces: the server's name, or `custom`, `builtin`.
    pub source: Arc<str>,
}

impl ToolInfo {
    /// A tool without arguments that changes something, as long as nothing else is said of it.
    pub fn new(name: impl Into<Arc<str>>, description: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            parameters: Arc::new(json!({"type": "object", "properties": {}})),
            strict: false,
            effect: EffectClass::Write,
            source: "custom".into(),
        }
    }
    /// The JSON Schema of its arguments.
    #[must_use]
    pub fn parameters(mut self, schema: Json) -> Self {
        self.parameters = Arc::new(schema);
        self
    }
    /// What may be repeated of it.
    #[must_use]
    pub fn effect(mut self, effect: EffectClass) -> Self {
        self.effect = effect;
        self
    }
    /// Where it comes from.
    #[must_use]
    pub fn source(mut self, source: impl Into<Arc<str>>) -> Self {
        self.source = source.into();
        self
    }
}

/// What a tool may know of its call.
#[derive(Clone)]
pub struct ToolCallContext {
    /// Deadline, cancellation, key.
    pub cx: CallContext,
    /// Facts of the conversation and of the backend; no model sees them.
    pub metadata: Arc<Map<String, Json>>,
    /// Who calls.
    pub caller: ToolCaller,
    /// What MCP carries as `_meta`.
    pub meta: Arc<Map<String, Json>>,
    /// Takes news of a long call; may be ignored.
    pub progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
    /// A key that is the same when the same step is tried again; for tools that know idempotency keys.
    pub idempotency_key: Arc<str>,
    /// Who answers what the tool asks back; nobody, unless its server may ask.
    pub inquired: Option<Arc<dyn ClientRequestHandler>>,
    /// The effect class of this call, where somebody has a say above the tool's source: the author of an agent. `None`: that
    /// of the tool's own [`info`](ToolHandler::info). A tool repeats nothing and reports nothing by any other class.
    pub effect: Option<EffectClass>,
}

impl ToolCallContext {
    /// The effect class of this call of a tool with this info.
    pub fn effect(&self, info: &ToolInfo) -> EffectClass {
        self.effect.unwrap_or(info.effect)
    }
    /// The time that is left for the call. It ends then by itself: what waits longer is dropped.
    pub fn remaining(&self) -> Duration {
        self.cx.remaining()
    }
    /// Tells how far a long call is. Whoever waits for it waits longer as long as it gets further.
    pub fn report(&self, progress: Progress) {
        if let Some(report) = &self.progress {
            report(progress);
        }
    }
}

/// A form that a tool wants filled in the middle of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct ElicitationRequest {
    /// The server that asks.
    pub server: Arc<str>,
    /// What it says to the user.
    pub message: String,
    /// JSON Schema of the form: an object of plain fields.
    pub schema: Json,
}

/// The answer to a form.
#[derive(Clone, Debug, PartialEq)]
pub enum ElicitationResponse {
    /// The form, filled.
    Accept(Map<String, Json>),
    /// Not answered, and nobody will be asked.
    Decline,
    /// These fields have to be asked for first.
    Missing(Vec<String>),
}

/// Who answers what a tool asks back.
pub trait ClientRequestHandler: Send + Sync {
    /// Answers a form from what is known.
    fn form(&self, inquiry: &ElicitationRequest) -> ElicitationResponse;
    /// Lets our model answer a `sampling/createMessage`; the result is that of the protocol. *Cancellation*: dropping the
    /// future gives the call of the model up.
    ///
    /// # Errors
    /// In words that the server may read: there is no answer.
    fn sample<'a>(&'a self, params: Json, cx: &'a CallContext) -> BoxFuture<'a, Result<Json, String>>;
}

impl fmt::Debug for ToolCallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolCallContext").field("cx", &self.cx).field("caller", &self.caller).finish_non_exhaustive()
    }
}

/// Who calls a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCaller {
    /// The conversation.
    pub conversation: Arc<str>,
    /// The agent; none for a call step.
    pub agent: Option<Arc<str>>,
    /// The calling flow.
    pub flow: Option<Arc<str>>,
}

/// News of a long call.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// How far. A call whose news grow may take longer than its limit.
    pub done: f64,
    /// Of how much, if known.
    pub total: Option<f64>,
    /// In words.
    pub message: Option<String>,
}

impl Progress {
    /// Its words as one short line without hidden characters: they are text of others. `None` when it has none.
    pub fn line(&self) -> Option<String> {
        let line = strip_hidden(self.message.as_deref()?);
        let line = single_line(&line);
        let line = truncate(line.trim(), TextLimit::Chars(limits::TOOL_PROGRESS_TEXT), ELLIPSIS);
        (!line.is_empty()).then(|| line.into_owned())
    }
}

/// What a tool gave. Never an `Err`: the model must be told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutcome {
    /// It answered.
    Done(ToolOutput),
    /// It failed, and nothing else is in doubt.
    Failed(ToolFailure),
    /// It may have run; nobody knows.
    Unknown(ToolFailure),
    /// It goes on elsewhere.
    Pending(TaskRef),
}

/// The answer of a tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// Structured content, if the tool gives any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Json>,
    /// Content parts as they came: `{type: text, text}` and others.
    #[serde(default)]
    pub content: Vec<Json>,
    /// Why the answer of a call that changed something cannot be used, in words for the model. It was done all the same, so
    /// there is nothing else in such an output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusable: Option<String>,
    /// `_meta` of the answer.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub meta: Map<String, Json>,
}

/// Why a tool gave nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolFailure {
    /// The kind, short and machine-readable.
    pub kind: FailureKind,
    /// In words, for the model: no secrets, no addresses.
    pub message: String,
    /// Whether the whole run must end.
    #[serde(default)]
    pub fatal: bool,
    /// Fields that the user has to fill before the tool can do its work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wants: Vec<String>,
    /// A code, for operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The cause, for operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The tool says so itself.
    ToolError,
    /// It did not answer in time.
    Timeout,
    /// The server cannot be reached, or went away.
    Unavailable,
    /// There is no such tool.
    UnknownTool,
    /// The arguments do not fit its schema.
    BadArguments,
    /// Its answer is no answer: empty, too large, or against its own schema. Only of a call that changes nothing: what changed
    /// something and said so is done, with an [`unusable`](ToolOutput::unusable) answer.
    BadResult,
    /// Somebody stopped it.
    Cancelled,
    /// It is not allowed here.
    Refused,
}

/// A task that goes on elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRef {
    /// Its id there.
    pub id: String,
}

/// A tool as a type of your own: for what [`Tool`] cannot say, such as one whose description changes. [`Tool::from_handler`] makes
/// a tool of it.
#[async_trait]
pub trait ToolHandler: Send + Sync {
    /// What it is.
    fn info(&self) -> &ToolInfo;
    /// The compiled check of its arguments, where it keeps one; else whoever collects tools compiles the schema.
    fn arguments(&self) -> Option<Arc<ArgumentCheck>> {
        None
    }
    /// The longest a call may be silent, where its source sets one.
    fn limit(&self) -> Option<Duration> {
        None
    }
    /// The longest a call may take that keeps telling how far it is, where its source sets one.
    fn most(&self) -> Option<Duration> {
        None
    }
    /// Does it. Arguments were checked against the schema. *Cancellation*: dropping the future gives the call up; whether it
    /// ran is then unknown, and the journal says so for a `write`.
    async fn call(&self, arguments: Json, context: &ToolCallContext) -> ToolOutcome;
}

#[async_trait]
impl<H: ToolHandler + ?Sized> ToolHandler for Arc<H> {
    fn info(&self) -> &ToolInfo {
        (**self).info()
    }
    fn arguments(&self) -> Option<Arc<ArgumentCheck>> {
        (**self).arguments()
    }
    fn limit(&self) -> Option<Duration> {
        (**self).limit()
    }
    fn most(&self) -> Option<Duration> {
        (**self).most()
    }
    async fn call(&self, arguments: Json, context: &ToolCallContext) -> ToolOutcome {
        (**self).call(arguments, context).await
    }
}

/// Somebody who lists tools: an MCP server, a registry.
pub trait ToolSource: Send + Sync {
    /// Its name.
    fn name(&self) -> &str;
    /// Its tools now.
    ///
    /// # Errors
    /// The source cannot be reached; the text is for operators.
    fn list<'a>(&'a self, cx: &'a CallContext) -> BoxFuture<'a, Result<ToolCatalog, SourceError>>;
    /// The version of the list; changes when the list may have.
    fn changes(&self) -> watch::Receiver<u64>;
    /// Whether it answers, for `/health`.
    fn status(&self) -> SourceStatus;
    /// Closes it; waits at most as long as the context allows.
    fn close<'a>(&'a self, cx: &'a CallContext) -> BoxFuture<'a, ()>;
}

/// The tools of a source at one moment.
#[derive(Clone, Default)]
pub struct ToolCatalog {
    /// Its version.
    pub version: u64,
    /// The tools, in the source's order.
    pub tools: Vec<Arc<dyn ToolHandler>>,
    /// Tools that were left out, with the reason.
    pub excluded: Vec<(String, String)>,
}

impl fmt::Debug for ToolCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog")
            .field("version", &self.version)
            .field("tools", &self.tools.iter().map(|tool| tool.info().name.clone()).collect::<Vec<_>>())
            .field("excluded", &self.excluded)
            .finish()
    }
}

/// Why a source lists nothing.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{source_name}: {reason}")]
pub struct SourceError {
    /// The source.
    pub source_name: String,
    /// Why, for operators.
    pub reason: String,
}

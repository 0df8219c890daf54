//! Tools for language models, and the sources that list them.
//!
//! [`Tool::new`] makes a tool from a closure with typed arguments; [`ToolHandler`] is the trait behind it, and [`ToolSource`] the one of a
//! source whose tools change. An agent run collects a [`ToolSet`](tool_set::ToolSet) and calls it through
//! [`CheckedCall`](invoke::CheckedCall), which checks the arguments against their schema first; a flow's call step goes through
//! [`run_call_step`](call_step::run_call_step). The `mcp` feature adds the client of MCP servers, `mcp::McpServer`. [`builtin`] has tools
//! for the time and for HTTP requests, [`workspace`] the tools that read and write the files of one run, [`script`] those that run a script
//! of a skill.
//!
//! This package never calls a model and never sees a conversation: what a tool may know of its caller is in its
//! [`ToolCallContext`].

pub mod builtin;
pub mod call_step;
mod error;
pub mod invoke;
pub mod mask;
#[cfg(feature = "mcp")]
pub mod mcp;
mod messages;
pub mod outcome;
pub mod pins;
pub mod schema;
pub mod script;
mod tool;
pub mod tool_set;
mod toolbox;
pub mod workspace;
mod wrapper;

#[cfg(test)]
mod fixture;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
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
    wrapper::{CallWrapper, WrappedTool},
};
pub use segue_base::effect::EffectClass;
pub use segue_base::health::Health;
use segue_base::{context::CallContext, limits};

/// The source of tools that name none: those that a program registers.
pub const REGISTERED_SOURCE: &str = "custom";

/// The description of a tool: what models see, and the effect class of its calls.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolInfo {
    /// Its name, as models call it.
    pub name: Arc<str>,
    /// What it does.
    pub description: Arc<str>,
    /// The JSON Schema of its arguments; always of type `object`.
    pub parameters: Arc<Json>,
    /// Whether the schema is in the subset that the strict mode of model APIs accepts.
    pub strict: bool,
    /// The effect class: whether a call may be repeated.
    pub effect: EffectClass,
    /// Its source, for traces: the name of the server, or `custom`, `builtin`.
    pub source: Arc<str>,
}

impl ToolInfo {
    /// A tool without arguments and of the effect class `write`.
    pub fn new(name: impl Into<Arc<str>>, description: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            parameters: Arc::new(json!({"type": "object", "properties": {}})),
            strict: false,
            effect: EffectClass::Write,
            source: REGISTERED_SOURCE.into(),
        }
    }
    /// Whether a call of this effect class changes something outside the program: `write` or `idempotent`. The files of a run are part of
    /// its work, so tools that only touch them change nothing; commands may do anything.
    pub fn changes(&self, class: EffectClass) -> Option<&'static str> {
        let is_file = matches!(&*self.source, workspace::SOURCE | workspace::SLOT_SOURCE);
        class.changes().filter(|_| !is_file || &*self.name == workspace::BASH)
    }
    /// The JSON Schema of its arguments.
    #[must_use]
    pub fn parameters(mut self, schema: Json) -> Self {
        self.parameters = Arc::new(schema);
        self
    }
    /// Sets the effect class.
    #[must_use]
    pub fn effect(mut self, effect: EffectClass) -> Self {
        self.effect = effect;
        self
    }
    /// Sets the source.
    #[must_use]
    pub fn source(mut self, source: impl Into<Arc<str>>) -> Self {
        self.source = source.into();
        self
    }
}

/// The context of a tool call.
#[derive(Clone)]
#[non_exhaustive]
pub struct ToolCallContext {
    /// Deadline, cancellation and key of the call.
    pub cx: CallContext,
    /// Metadata of the conversation and of the backend; models do not see them.
    pub metadata: Arc<Map<String, Json>>,
    /// The caller.
    pub caller: ToolCaller,
    /// The `_meta` object of an MCP request.
    pub meta: Arc<Map<String, Json>>,
    /// Receives progress of a long call; a tool may ignore it.
    pub progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
    /// The idempotency key: the same for every attempt of the same step.
    pub idempotency_key: Arc<str>,
    /// Handles requests from the server to the client (MCP elicitation and sampling); `None` unless the server may send
    /// them.
    pub client_requests: Option<Arc<dyn ClientRequestHandler>>,
    /// The effect class of this call if the author of an agent overrides it; `None` for that of the tool's
    /// [`info`](ToolHandler::info). It alone decides about retries and about reports of unknown outcomes.
    pub effect: Option<EffectClass>,
}

impl ToolCallContext {
    /// The context of a call in a conversation, without metadata and progress, and with the effect class of the tool.
    pub fn new(cx: CallContext, conversation: impl Into<Arc<str>>, idempotency_key: impl Into<Arc<str>>) -> Self {
        Self {
            cx,
            metadata: Arc::default(),
            caller: ToolCaller::new(conversation),
            meta: Arc::default(),
            progress: None,
            idempotency_key: idempotency_key.into(),
            client_requests: None,
            effect: None,
        }
    }
    /// Sets the caller.
    #[must_use]
    pub fn with_caller(mut self, caller: ToolCaller) -> Self {
        self.caller = caller;
        self
    }
    /// Sets the metadata of the conversation and of the backend.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Arc<Map<String, Json>>) -> Self {
        self.metadata = metadata;
        self
    }
    /// Sets the `_meta` object of an MCP request.
    #[must_use]
    pub fn with_meta(mut self, meta: Map<String, Json>) -> Self {
        self.meta = Arc::new(meta);
        self
    }
    /// Sets the receiver of progress.
    #[must_use]
    pub fn with_progress(mut self, progress: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }
    /// Sets the handler of requests from the server.
    #[must_use]
    pub fn with_client_requests(mut self, handler: Arc<dyn ClientRequestHandler>) -> Self {
        self.client_requests = Some(handler);
        self
    }
    /// Limits the time of the call.
    #[must_use]
    pub fn with_timeout(mut self, limit: Duration) -> Self {
        self.cx = self.cx.with_timeout(limit);
        self
    }
    /// The effect class of this call of a tool with this info.
    pub fn effect(&self, info: &ToolInfo) -> EffectClass {
        self.effect.unwrap_or(info.effect)
    }
    /// The time left for the call. The call is dropped when it is over.
    pub fn remaining(&self) -> Duration {
        self.cx.remaining()
    }
    /// Reports the progress of a long call. Progress that increases extends the idle timeout of the call.
    pub fn report(&self, progress: Progress) {
        if let Some(report) = &self.progress {
            report(progress);
        }
    }
}

/// A request for user input during a tool call (MCP elicitation,
/// <https://modelcontextprotocol.io/specification/2025-06-18/client/elicitation>).
#[derive(Clone, Debug, PartialEq)]
pub struct ElicitationRequest {
    /// The requesting server.
    pub server: Arc<str>,
    /// The message for the user.
    pub message: String,
    /// The JSON Schema of the form: an object of primitive fields.
    pub schema: Json,
}

/// The response to an elicitation.
#[derive(Clone, Debug, PartialEq)]
pub enum ElicitationResponse {
    /// The completed form.
    Accept(Map<String, Json>),
    /// The form is declined because of this field.
    Decline(FormField),
    /// These fields must be collected from the user first.
    Missing(Vec<FormField>),
}

/// A field of a form that is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormField {
    /// Its name; empty if the whole form is meant.
    pub name: String,
    /// Why, for the model; `None` if there is no value for it.
    pub problem: Option<String>,
}

impl FormField {
    /// A field that is not answered for this reason.
    pub fn new(name: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { name: name.into(), problem: Some(problem.into()) }
    }
    /// A field for which there is no value.
    pub fn without_value(name: impl Into<String>) -> Self {
        Self { name: name.into(), problem: None }
    }
}

/// Handles requests that a server sends to the client during a call (MCP elicitation and sampling).
#[async_trait]
pub trait ClientRequestHandler: Send + Sync {
    /// Answers an elicitation from known values.
    fn elicit(&self, request: &ElicitationRequest) -> ElicitationResponse;
    /// Whether an optional field of this name may be filled. One that is not is left out of the answer.
    fn fills(&self, _field: &str) -> bool {
        true
    }
    /// Answers a `sampling/createMessage` request by the configured model; returns the result as the protocol defines it
    /// (<https://modelcontextprotocol.io/specification/2025-06-18/client/sampling>).
    /// Cancellation: dropping the future cancels the model call.
    ///
    /// # Errors
    /// A text for the server: the model has no response.
    async fn sample(&self, params: Json, cx: &CallContext) -> Result<Json, String>;
}

impl fmt::Debug for ToolCallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolCallContext").field("cx", &self.cx).field("caller", &self.caller).finish_non_exhaustive()
    }
}

/// The caller of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ToolCaller {
    /// The conversation.
    pub conversation: Arc<str>,
    /// The agent; `None` for a call step.
    pub agent: Option<Arc<str>>,
    /// The calling flow.
    pub flow: Option<Arc<str>>,
    /// The session of the agent, if several work beside each other: the id of a sub-agent, or the unit of a mission.
    pub session: Option<Arc<str>>,
}

impl ToolCaller {
    /// A caller in a conversation that is no agent, no flow and has no session of its own.
    pub fn new(conversation: impl Into<Arc<str>>) -> Self {
        Self { conversation: conversation.into(), agent: None, flow: None, session: None }
    }
    /// Sets the agent.
    #[must_use]
    pub fn agent(mut self, agent: impl Into<Arc<str>>) -> Self {
        self.agent = Some(agent.into());
        self
    }
    /// Sets the calling flow.
    #[must_use]
    pub fn flow(mut self, flow: impl Into<Arc<str>>) -> Self {
        self.flow = Some(flow.into());
        self
    }
    /// Sets the session of the agent.
    #[must_use]
    pub fn session(mut self, session: impl Into<Arc<str>>) -> Self {
        self.session = Some(session.into());
        self
    }
}

/// Progress of a long call (MCP progress notification).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// The current amount. A call whose amount increases may exceed its idle timeout.
    pub current: f64,
    /// The total amount, if known.
    pub total: Option<f64>,
    /// A text for the user.
    pub message: Option<String>,
}

impl Progress {
    /// A current amount, of an unknown total and without a message.
    pub fn new(current: f64) -> Self {
        Self { current, total: None, message: None }
    }
    /// Sets the total amount.
    #[must_use]
    pub fn total(mut self, total: f64) -> Self {
        self.total = Some(total);
        self
    }
    /// Sets the text for the user.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }
    /// The message as one line without control characters, of at most [`limits::TOOL_PROGRESS_TEXT`] characters, because a
    /// third party wrote it; `None` without a message.
    pub fn message_line(&self) -> Option<String> {
        let line = strip_hidden(self.message.as_deref()?);
        let line = single_line(&line);
        let line = truncate(line.trim(), TextLimit::Chars(limits::TOOL_PROGRESS_TEXT), ELLIPSIS);
        (!line.is_empty()).then(|| line.into_owned())
    }
}

/// The outcome of a tool call. It is no `Result`, because the model must see failures too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutcome {
    /// It returned a result.
    Done(ToolOutput),
    /// It failed, and had no effect.
    Failed(ToolFailure),
    /// The outcome is unknown: it may have had its effect.
    Unknown(ToolFailure),
    /// It continues as a task elsewhere.
    Pending(TaskRef),
}

impl ToolOutcome {
    /// How the call ended, as events and hooks name it: `done`, `failed`, `unknown` or `pending`.
    pub fn status(&self) -> &'static str {
        match self {
            Self::Done(_) => "done",
            Self::Failed(_) => "failed",
            Self::Unknown(_) => "unknown",
            Self::Pending(_) => "pending",
        }
    }
}

/// The result of a tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolOutput {
    /// Structured content, if there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Json>,
    /// Content parts as received: `{type: text, text}` and others.
    #[serde(default)]
    pub content: Vec<Json>,
    /// Why the result of a call with an effect cannot be used, in a text for the model. The effect has happened, so the
    /// output has no other content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusable: Option<String>,
    /// `_meta` of the result.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub meta: Map<String, Json>,
}

/// Why a tool call failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolFailure {
    /// The kind.
    pub kind: FailureKind,
    /// The message for the model, without secrets and addresses.
    pub message: String,
    /// Whether the agent run must end.
    #[serde(default)]
    pub fatal: bool,
    /// Fields or slots that the user must fill before the tool can run.
    #[serde(default, rename = "wants", skip_serializing_if = "Vec::is_empty")]
    pub missing_fields: Vec<String>,
    /// An error code for operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The cause for operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Data about the failure for programs; models do not see it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub meta: Map<String, Json>,
}

/// The kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The tool reported an error.
    ToolError,
    /// It did not finish in time.
    Timeout,
    /// The server cannot be reached, or the connection was lost.
    Unavailable,
    /// There is no such tool.
    UnknownTool,
    /// The arguments do not match the schema.
    BadArguments,
    /// The result is invalid: empty, too large, or against its schema. Only for calls without effects: a call with an
    /// effect succeeded, with an [`unusable`](ToolOutput::unusable) result.
    BadResult,
    /// It was cancelled.
    Cancelled,
    /// It is not allowed.
    Refused,
}

/// A task that continues elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRef {
    /// Its id at the server.
    pub id: String,
}

/// A tool implemented by a type, for what [`Tool`] cannot express, such as a description that changes.
/// [`Tool::from_handler`] makes a tool from it.
#[async_trait]
pub trait ToolHandler: Send + Sync {
    /// The description of the tool.
    fn info(&self) -> &ToolInfo;
    /// The compiled check of its arguments, if it has one; otherwise the schema is compiled when tools are collected.
    fn argument_check(&self) -> Option<Arc<ArgumentCheck>> {
        None
    }
    /// The idle timeout of a call: the longest time without progress, if the source sets one.
    fn idle_timeout(&self) -> Option<Duration> {
        None
    }
    /// The total timeout of a call that reports progress, if the source sets one.
    fn total_timeout(&self) -> Option<Duration> {
        None
    }
    /// Calls the tool. The arguments match the schema. Cancellation: dropping the future abandons the call; its outcome
    /// is then unknown, and the journal records that for a `write`.
    async fn call(&self, arguments: Json, context: &ToolCallContext) -> ToolOutcome;
    /// Called in place of [`call`](Self::call) when the outcome of a call is read from a record, because the work around it runs again: a
    /// tool that remembers what it was asked restores it here. Nothing may be performed.
    fn replayed(&self, arguments: &Json, outcome: &ToolOutcome, context: &ToolCallContext) {
        let _ = (arguments, outcome, context);
    }
}

#[async_trait]
impl<H: ToolHandler + ?Sized> ToolHandler for Arc<H> {
    fn info(&self) -> &ToolInfo {
        (**self).info()
    }
    fn argument_check(&self) -> Option<Arc<ArgumentCheck>> {
        (**self).argument_check()
    }
    fn idle_timeout(&self) -> Option<Duration> {
        (**self).idle_timeout()
    }
    fn total_timeout(&self) -> Option<Duration> {
        (**self).total_timeout()
    }
    async fn call(&self, arguments: Json, context: &ToolCallContext) -> ToolOutcome {
        (**self).call(arguments, context).await
    }
    fn replayed(&self, arguments: &Json, outcome: &ToolOutcome, context: &ToolCallContext) {
        (**self).replayed(arguments, outcome, context);
    }
}

/// A source of tools, such as an MCP server.
#[async_trait]
pub trait ToolSource: Send + Sync {
    /// Its name.
    fn name(&self) -> &str;
    /// Its current tools.
    ///
    /// # Errors
    /// [`SourceError`], for operators, if the source cannot be reached.
    async fn list(&self, cx: &CallContext) -> Result<ToolCatalog, SourceError>;
    /// The version of the list; it changes when the list may have changed.
    fn changes(&self) -> watch::Receiver<u64>;
    /// Its health, for `/health`.
    fn status(&self) -> Health;
    /// Closes the source; waits at most until the deadline of the context.
    async fn close(&self, cx: &CallContext);
}

/// The tools of a source at one time.
#[derive(Clone, Default)]
pub struct ToolCatalog {
    /// Its version.
    pub version: u64,
    /// The tools, in the source's order.
    pub tools: Vec<Arc<dyn ToolHandler>>,
    /// Excluded tools, with the reason.
    pub excluded: Vec<(String, String)>,
}

impl fmt::Debug for ToolCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolCatalog")
            .field("version", &self.version)
            .field("tools", &self.tools.iter().map(|tool| tool.info().name.clone()).collect::<Vec<_>>())
            .field("excluded", &self.excluded)
            .finish()
    }
}

/// Why the tools of a source cannot be listed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{source_name}: {reason}")]
pub struct SourceError {
    /// The source.
    pub source_name: String,
    /// The reason for operators.
    pub reason: String,
}

//! Agents written in Rust: the trait [`Agent`], its context [`AgentRun`], and the execution of one run.

use std::{fmt, pin::pin, sync::Arc};

use async_trait::async_trait;
use segue_engine::{
    conversation::{AgentCall, AgentOutcome, AgentStatus, BotKind, Conversation, EventKind, FilledBy, Reply},
    ids::SlotName,
    project::{AgentDef, Project},
};
use serde_json::{Map, Value as Json};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{
    AgentRequest,
    completion::RunRecorder,
    policy::{Rejection, ToolPolicy},
    slot_tools,
    slots::RunSlots,
    tool_events,
};
use crate::{
    context::{CallContext, WaitError},
    conversation::{ReplySink, ToolPhase},
    llm::{ChatRequest, ChatResponse, ToolArguments, ToolCall},
    react::{self, ModelTurn},
    tools::{FailureKind, ToolOutcome, invoke::CheckedCall, tool_set::ToolSet, with_causes},
};

/// An agent written in Rust. A flow calls it by its name, like any other agent.
///
/// ```
/// use segue::prelude::*;
///
/// struct Echo;
///
/// #[async_trait]
/// impl Agent for Echo {
///     async fn run(&self, run: &mut AgentRun<'_>) -> AgentResult {
///         if run.user_message().contains("enough") {
///             return run.finish("Bye!").await;
///         }
///         run.ask(format!("You said: {}", run.user_message())).await
///     }
/// }
/// ```
#[async_trait]
pub trait Agent: Send + Sync {
    /// Works on one message of the user until it asks the user something, completes its task, or fails.
    ///
    /// Messages, model calls and tool calls are recorded one by one. After a crash the method runs again, and recorded calls return
    /// their recorded results; everything else it does happens again.
    ///
    /// *Cancellation*: when the user interrupts or the deadline of the run passes, the future is dropped where it waits; messages and
    /// records up to then are kept. A tool call or model call in progress ends first: a call that changes something is never
    /// interrupted.
    async fn run(&self, run: &mut AgentRun<'_>) -> AgentResult;
}

/// The result of a run: [`AgentRun::ask`], [`AgentRun::finish`], [`AgentRun::wait`] and [`AgentRun::done`] return an [`AgentEnd`];
/// `?` turns any error into an [`AgentError`].
pub type AgentResult = Result<AgentEnd, AgentError>;

/// The end of a run, returned by the methods of [`AgentRun`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentEnd(AgentStatus);

/// The failure of an agent. The flow continues at the step's `on_error`; without one, `pattern_internal_error` is triggered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentError {
    code: String,
    reason: String,
}

impl AgentError {
    /// The code of an error without a code of its own.
    pub const CODE: &str = "A0523";

    /// An error; the reason is for operators.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { code: Self::CODE.to_owned(), reason: reason.into() }
    }
    /// Sets a code of your own for operators; the REST channel also returns it in the header `X-Turn-Error`.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = code.into();
        self
    }
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl<E: std::error::Error> From<E> for AgentError {
    fn from(error: E) -> Self {
        Self::new(with_causes(&error))
    }
}

/// The context of one run of an agent written in Rust: the message, the conversation, and methods for replies, models and tools.
pub struct AgentRun<'a> {
    request: &'a AgentRequest<'a>,
    recorder: RunRecorder<'a>,
    policy: ToolPolicy<'a>,
    slots: Map<String, Json>,
    out: &'a mut dyn ReplySink,
    cx: &'a CallContext,
    /// Number of steps so far: each has a key of its own, which is the same when the turn runs again.
    steps: u32,
    /// Locked by the step in progress. Stopping a run waits for it: a step sees the cancellation itself and records its result.
    step_lock: Arc<Mutex<()>>,
}

impl<'a> AgentRun<'a> {
    /// The newest message of the user.
    pub fn user_message(&self) -> &'a str {
        &self.request.call.user_message
    }
    /// The calling flow and step, and the state of the task.
    pub fn call(&self) -> &'a AgentCall {
        self.request.call
    }
    /// The conversation at the start of the run; it contains the newest message of the user.
    pub fn conversation(&self) -> &'a Conversation {
        self.request.conversation
    }
    /// Its `config.yml`.
    pub fn definition(&self) -> &'a AgentDef {
        self.request.definition
    }
    /// The project.
    pub fn project(&self) -> &'a Arc<Project> {
        self.request.project
    }
    /// Deadline, cancellation and clock. The time of `clock` is recorded, so that a replay sees the same time.
    pub fn cx(&self) -> &CallContext {
        self.cx
    }
    /// The value of a slot; `None` if it has none.
    pub fn slot(&self, name: &str) -> Option<&Json> {
        let value = self.slots.get(name).or_else(|| self.request.conversation.slots.get(name));
        value.filter(|value| !value.is_null())
    }
    /// Sets a slot; `null` clears it. The value is converted to the type of the slot.
    ///
    /// # Errors
    /// The domain has no such slot, or the value does not fit its type.
    pub fn set_slot(&mut self, name: &str, value: impl Into<Json>) -> Result<(), AgentError> {
        let slots = &self.request.project.domain.slots;
        let Some(definition) = slots.get(name) else {
            let meant = segue_engine::finding::did_you_mean(name, slots.keys().map(|slot| slot.as_str()));
            let help = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
            return Err(AgentError::new(format!("the domain has no slot `{name}`{help}")));
        };
        let value = slot_tools::coerce(&definition.kind, &value.into())
            .map_err(|reason| AgentError::new(format!("the slot `{name}` cannot be set: {reason}")))?;
        self.slots.insert(name.to_owned(), value.clone());
        let (name, filled_by) = (SlotName::from(name), Some(FilledBy::Agent));
        self.recorder.record(EventKind::Slot { name, value, filled_by, reset: false }, self.cx);
        Ok(())
    }
    /// Data that the agent keeps for its next run of the same task.
    pub fn memory(&mut self) -> &mut Map<String, Json> {
        &mut self.recorder.metadata
    }

    /// Sends a message and continues the run.
    pub async fn say(&mut self, message: impl Into<Reply>) {
        self.send(message.into(), BotKind::Intermediate).await;
    }
    /// Sends a message and ends the run; the user's next message starts the next run.
    pub async fn ask(&mut self, message: impl Into<Reply>) -> AgentResult {
        self.send(message.into(), BotKind::InputRequired).await;
        self.wait()
    }
    /// Sends a message and completes the task; the flow continues.
    pub async fn finish(&mut self, message: impl Into<Reply>) -> AgentResult {
        self.send(message.into(), BotKind::FinalResponse).await;
        self.done()
    }
    /// Ends the run and waits for the user, like [`ask`](Self::ask), without a message.
    pub fn wait(&self) -> AgentResult {
        Ok(AgentEnd(AgentStatus::AwaitingUser))
    }
    /// Completes the task, like [`finish`](Self::finish), without a message.
    pub fn done(&self) -> AgentResult {
        Ok(AgentEnd(AgentStatus::Finished))
    }

    /// Calls the model of the agent; its response is not sent to the user.
    ///
    /// # Errors
    /// The model gave no complete response.
    pub async fn chat(&mut self, chat_request: ChatRequest) -> Result<Arc<ChatResponse>, AgentError> {
        let (cx, _under_way) = self.begin("llm").await;
        Ok(self.request.llm.chat(chat_request, &cx).await?.finish().await?)
    }
    /// Calls the model of the agent and sends the text of its response to the user; streams it if the channel supports that.
    ///
    /// # Errors
    /// The model gave no complete response. The part that the user saw is recorded as a message.
    pub async fn say_answer(&mut self, mut chat_request: ChatRequest) -> Result<Arc<ChatResponse>, AgentError> {
        let (cx, _under_way) = self.begin("llm").await;
        chat_request.streamed_to_user = self.out.wants_deltas();
        let source: Arc<str> = format!("agent:{}", self.request.call.agent).into();
        let (answer, streamed) =
            match react::stream_answer(&*self.request.llm, &source, chat_request, None, self.out, &cx).await {
                ModelTurn::Answer(answer, streamed) => (Ok(answer), streamed),
                ModelTurn::Failed(error, streamed) => (Err(error.into()), streamed),
            };
        streamed.send_end(BotKind::Intermediate, self.out, &cx).await;
        self.recorder.record_text(&streamed, BotKind::Intermediate, false, &cx);
        answer
    }
    /// The tools of the agent: those of its `connections` and those registered for it.
    pub fn tools(&self) -> &'a ToolSet {
        &self.request.tools
    }
    /// Calls a tool of the agent. The rules of its `config.yml` hold: a call that they do not allow, or that the user would have to confirm,
    /// fails with [`FailureKind::Refused`].
    pub async fn call_tool(&mut self, name: &str, arguments: Json) -> ToolOutcome {
        let (cx, _under_way) = self.begin("call").await;
        let call = ToolCall { id: "".into(), name: name.into(), arguments: ToolArguments::json(arguments.clone()) };
        let outcome = match self.checked(&call, arguments) {
            Ok(checked) => {
                tool_events::show(&call, self.request, ToolPhase::Started, self.out, &cx).await;
                let outcome = checked.send(&tool_events::tool_context(0, &call, self.request, None, &cx), None).await;
                tool_events::show(&call, self.request, tool_events::phase_of(&outcome), self.out, &cx).await;
                outcome
            }
            Err(outcome) => outcome,
        };
        let event = tool_events::tool_ended(&call, self.request, &outcome, &outcome.for_model(), Default::default());
        self.recorder.record(event, &cx);
        outcome
    }

    /// A call that the tool's schema and the rules of the agent allow. Nobody can be asked here, so a call that needs a confirmation is
    /// rejected.
    #[expect(clippy::result_large_err, reason = "the error is the outcome itself, and one call has one")]
    fn checked(&mut self, call: &ToolCall, arguments: Json) -> Result<CheckedCall, ToolOutcome> {
        let checked = CheckedCall::find(&self.request.tools, &call.name, arguments)?;
        let mut slots = RunSlots::new(self.request.project, self.request.conversation);
        self.slots.iter().for_each(|(name, value)| slots.record(name, value.clone()));
        let reason = match self.policy.rejection(&call.name, |condition| slots.is_true(condition)) {
            Some(Rejection::Requires(reason)) => format!("this call is not allowed now: {reason}"),
            Some(Rejection::Capped(most)) => format!("`max_calls` allows {most} calls in a task"),
            None if self.policy.must_confirm(&call.name, checked.effect()) => {
                "the user must confirm this call, and an agent in Rust cannot ask for it".to_owned()
            }
            None => {
                self.policy.count(&call.name);
                return Ok(checked);
            }
        };
        Err(ToolOutcome::failed(FailureKind::Refused, reason))
    }

    async fn send(&mut self, reply: Reply, kind: BotKind) {
        if reply.is_empty() {
            return;
        }
        let (cx, _under_way) = self.begin("say").await;
        self.recorder.send(reply, kind, self.out, &cx).await;
    }

    /// Begins a step, which is in progress until the guard is dropped.
    async fn begin(&mut self, kind: &str) -> (CallContext, OwnedMutexGuard<()>) {
        let step_lock = self.step_lock.clone().lock_owned().await;
        self.steps += 1;
        (self.cx.step(format!("{kind}.{}", self.steps - 1)), step_lock)
    }
}

impl fmt::Debug for AgentRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentRun").field("request", &self.request).finish_non_exhaustive()
    }
}

/// Runs an agent until it ends or `cx` stops it; the outcome contains the events up to then.
pub(crate) async fn run(
    agent: &dyn Agent,
    request: &AgentRequest<'_>,
    out: &mut dyn ReplySink,
    cx: &CallContext,
) -> AgentOutcome {
    let mut recorder = RunRecorder::new(request);
    recorder.metadata = request.call.metadata_if_not_run();
    let step_lock = Arc::<Mutex<()>>::default();
    let policy = ToolPolicy::new(&request.definition.rules, &request.call.metadata);
    let slots = Map::new();
    let mut run = AgentRun { request, recorder, policy, slots, out, cx, steps: 0, step_lock: step_lock.clone() };
    let status = match until_stopped(agent.run(&mut run), &step_lock, cx).await {
        Ok(Ok(AgentEnd(status))) => status,
        Ok(Err(error)) => react::failed_status(&error.code, error.reason),
        Err(stopped) => react::failed_status(react::CODE_DEADLINE, stopped.to_string()),
    };
    let status = react::unless_stopped(status, cx);
    let mut metadata = std::mem::take(&mut run.recorder.metadata);
    metadata.extend(run.policy.metadata());
    AgentOutcome { status, events: run.recorder.into_events(), data: Json::Null, metadata }
}

/// Waits for the run of an agent. When it is stopped, the step in progress ends first, and no other begins.
async fn until_stopped(
    run: impl Future<Output = AgentResult>,
    step_lock: &Mutex<()>,
    cx: &CallContext,
) -> Result<AgentResult, WaitError> {
    let mut run = pin!(run);
    match cx.wait(&mut run).await {
        Ok(ended) => Ok(ended),
        Err(stopped) => tokio::select! {
            biased;
            // The lock is fair: this waiter gets it before the next step of the agent.
            _ = step_lock.lock() => Err(stopped),
            ended = &mut run => Ok(ended),
        },
    }
}

//! Agents written in Rust: what their code is given for one message, and what becomes of what it does.

use std::{fmt, pin::pin, sync::Arc};

use async_trait::async_trait;
use segue_engine::{
    conversation::{
        AgentCall, AgentOutcome, AgentStatus, BotKind, BotMessage, Conversation, EventKind, FilledBy, Reply,
    },
    ids::SlotName,
    project::{AgentDef, Project},
};
use serde_json::{Map, Value as Json};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{
    AgentRequest, calls,
    completion::Ledger,
    speech::{self, Heard},
    step,
};
use crate::{
    context::{CallContext, WaitError},
    conversation::{ReplyEvent, ReplySink},
    llm::{ChatRequest, ChatResponse, ToolArguments, ToolCall},
    tools::{ToolOutcome, invoke::CheckedCall, registry::ToolSet, with_causes},
};

/// An agent written in Rust. A flow calls it by its name, as it calls any other.
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
    /// Works on one message of the user, until it asks the user something, is done, or fails.
    ///
    /// What it says, the calls of its model and of its tools are recorded one by one. After a crash it runs again, and they answer from
    /// the record; whatever else it does is done again.
    ///
    /// *Cancellation*: the future is dropped where it waits, when the user interrupts or the time of the run is over; what it had
    /// said and recorded by then stays. A call of a tool or of the model that is under way ends first: one that changes something is
    /// never cut.
    async fn run(&self, run: &mut AgentRun<'_>) -> AgentResult;
}

/// How a run ends: [`AgentRun::ask`], [`AgentRun::finish`] and their like make an [`AgentEnd`]; any error becomes an
/// [`AgentError`] by `?`.
pub type AgentResult = Result<AgentEnd, AgentError>;

/// How a run of an agent ended. Made by the methods of [`AgentRun`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentEnd(AgentStatus);

/// An agent gave up: the flow goes on at the step's `on_error`, else ends with the words of `pattern_internal_error`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentError {
    code: String,
    reason: String,
}

impl AgentError {
    /// The code of an agent that says nothing more exact.
    pub const CODE: &str = "A0523";

    /// Gives up; the reason is for operators.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { code: Self::CODE.to_owned(), reason: reason.into() }
    }
    /// A code of your own for operators; it is also what callers of the REST channel get as `X-Turn-Error`.
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

/// One run of an agent written in Rust: the message it works on, and everything that it may do.
pub struct AgentRun<'a> {
    task: &'a AgentRequest<'a>,
    ledger: Ledger<'a>,
    slots: Map<String, Json>,
    out: &'a mut dyn ReplySink,
    cx: &'a CallContext,
    /// How many steps were taken: each gets a key of its own, which is the same when the turn runs again.
    steps: u32,
    /// Held by the step that is under way. Whoever stops the run waits for it: a step sees the stop itself and records what came of it.
    under_way: Arc<Mutex<()>>,
}

impl<'a> AgentRun<'a> {
    /// The newest message of the user.
    pub fn user_message(&self) -> &'a str {
        &self.task.call.user_message
    }
    /// Why and where the agent was called.
    pub fn call(&self) -> &'a AgentCall {
        self.task.call
    }
    /// The conversation as it was when the run began; the newest message of the user is in it.
    pub fn conversation(&self) -> &'a Conversation {
        self.task.conversation
    }
    /// Its `config.yml`.
    pub fn definition(&self) -> &'a AgentDef {
        self.task.definition
    }
    /// The project.
    pub fn project(&self) -> &'a Arc<Project> {
        self.task.project
    }
    /// Deadline, cancellation and clock. What `clock` says is recorded.
    pub fn cx(&self) -> &CallContext {
        self.cx
    }
    /// The value of a slot; `None` where it has none.
    pub fn slot(&self, name: &str) -> Option<&Json> {
        let value = self.slots.get(name).or_else(|| self.task.conversation.slots.get(name));
        value.filter(|value| !value.is_null())
    }
    /// Sets a slot; `null` empties it.
    pub fn set_slot(&mut self, name: &str, value: impl Into<Json>) {
        let value = value.into();
        self.slots.insert(name.to_owned(), value.clone());
        let (name, filled_by) = (SlotName::from(name), Some(FilledBy::Agent));
        self.ledger.event(EventKind::Slot { name, value, filled_by, reset: false }, self.cx);
    }
    /// What the agent keeps for its next run of the same task.
    pub fn memory(&mut self) -> &mut Map<String, Json> {
        &mut self.ledger.metadata
    }

    /// Says something and works on.
    pub async fn say(&mut self, message: impl Into<Reply>) {
        self.send(message.into(), BotKind::Intermediate).await;
    }
    /// Says something and waits for the user: the next message starts the next run.
    pub async fn ask(&mut self, message: impl Into<Reply>) -> AgentResult {
        self.send(message.into(), BotKind::InputRequired).await;
        self.wait()
    }
    /// Says something, and the task is done: the flow goes on.
    pub async fn finish(&mut self, message: impl Into<Reply>) -> AgentResult {
        self.send(message.into(), BotKind::FinalResponse).await;
        self.done()
    }
    /// Waits for the user, as [`ask`](Self::ask), without saying anything.
    pub fn wait(&self) -> AgentResult {
        Ok(AgentEnd(AgentStatus::AwaitingUser))
    }
    /// The task is done, as with [`finish`](Self::finish), without saying anything.
    pub fn done(&self) -> AgentResult {
        Ok(AgentEnd(AgentStatus::Finished))
    }

    /// Asks the model of the agent and shows nothing of its answer.
    ///
    /// # Errors
    /// The model gave no whole answer.
    pub async fn chat(&mut self, request: ChatRequest) -> Result<Arc<ChatResponse>, AgentError> {
        let (cx, _under_way) = self.begin("llm").await;
        Ok(self.task.llm.chat(request, &cx).await?.finish().await?)
    }
    /// Asks the model of the agent and says the text of its answer, while it comes where the channel can show that.
    ///
    /// # Errors
    /// The model gave no whole answer. What the user saw of it is recorded as said.
    pub async fn say_answer(&mut self, mut request: ChatRequest) -> Result<Arc<ChatResponse>, AgentError> {
        let (cx, _under_way) = self.begin("llm").await;
        request.streamed_to_user = self.out.streams();
        let (answer, spoken) = match speech::ask(self.task, request, None, self.out, &cx).await {
            Heard::Answer(answer, spoken) => (Ok(answer), spoken),
            Heard::Broken(error, spoken) => (Err(error.into()), spoken),
        };
        spoken.end(BotKind::Intermediate, self.out, &cx).await;
        self.ledger.said(&spoken, BotKind::Intermediate, false, &cx);
        answer
    }
    /// The tools of the agent: those of its `connections` and those registered for it.
    pub fn tools(&self) -> &'a ToolSet {
        &self.task.tools
    }
    /// Calls a tool of the agent.
    pub async fn call_tool(&mut self, name: &str, arguments: Json) -> ToolOutcome {
        let (cx, _under_way) = self.begin("call").await;
        let call = ToolCall { id: "".into(), name: name.into(), arguments: ToolArguments::json(arguments.clone()) };
        let outcome = match CheckedCall::find(&self.task.tools, name, arguments) {
            Ok(checked) => checked.send(&calls::tool_context(0, &call, self.task, None, &cx), None).await,
            Err(outcome) => outcome,
        };
        let status = match &outcome {
            ToolOutcome::Done(_) => "done",
            ToolOutcome::Failed(_) => "failed",
            ToolOutcome::Unknown(_) => "unknown",
            ToolOutcome::Pending(_) => "pending",
        };
        let event = calls::executed(&call, self.task, status, &outcome.for_model(), Default::default());
        self.ledger.event(event, &cx);
        outcome
    }

    async fn send(&mut self, reply: Reply, kind: BotKind) {
        if reply.is_empty() {
            return;
        }
        let (cx, _under_way) = self.begin("say").await;
        let id: Arc<str> = cx.key.as_str().into();
        let piece = ReplyEvent::Message { id: id.clone(), message: Box::new(reply.clone()), kind };
        // A channel that is gone does not end the run: what was said is stored with the turn, and delivered from there.
        let _ = self.out.send(piece, &cx).await;
        let agent = Some(self.task.call.agent.clone());
        let said = BotMessage { reply, kind, agent, reply_id: Some(id), ..BotMessage::default() };
        self.ledger.event(EventKind::bot(said), &cx);
    }

    /// Begins a step, which is under way as long as the guard lives.
    async fn begin(&mut self, kind: &str) -> (CallContext, OwnedMutexGuard<()>) {
        let under_way = self.under_way.clone().lock_owned().await;
        self.steps += 1;
        (self.cx.step(format!("{kind}.{}", self.steps - 1)), under_way)
    }
}

impl fmt::Debug for AgentRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentRun").field("task", &self.task).finish_non_exhaustive()
    }
}

/// Runs an agent within its time; what it had done when it was stopped is in the outcome.
pub(crate) async fn run(
    agent: &dyn Agent,
    task: &AgentRequest<'_>,
    out: &mut dyn ReplySink,
    cx: &CallContext,
) -> AgentOutcome {
    let mut ledger = Ledger::new(task);
    ledger.metadata = task.call.metadata_if_not_run();
    let under_way = Arc::<Mutex<()>>::default();
    let mut run = AgentRun { task, ledger, slots: Map::new(), out, cx, steps: 0, under_way: under_way.clone() };
    let status = match until_stopped(agent.run(&mut run), &under_way, cx).await {
        Ok(Ok(AgentEnd(status))) => status,
        Ok(Err(error)) => step::failed(&error.code, error.reason),
        Err(stopped) => step::failed(step::DEADLINE, stopped.to_string()),
    };
    let status = step::unless_stopped(status, cx);
    let metadata = std::mem::take(&mut run.ledger.metadata);
    AgentOutcome { status, events: run.ledger.into_events(), data: Json::Null, metadata }
}

/// Waits for the run of an agent. When it is stopped, the step under way ends first, and no other begins.
async fn until_stopped(
    run: impl Future<Output = AgentResult>,
    under_way: &Mutex<()>,
    cx: &CallContext,
) -> Result<AgentResult, WaitError> {
    let mut run = pin!(run);
    match cx.wait(&mut run).await {
        Ok(ended) => Ok(ended),
        Err(stopped) => tokio::select! {
            biased;
            // The lock is fair: whoever waits for it gets it before the next step of the agent.
            _ = under_way.lock() => Err(stopped),
            ended = &mut run => Ok(ended),
        },
    }
}

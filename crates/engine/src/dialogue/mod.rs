//! The dialogue engine: deterministic, without waiting, a clock or files.
//!
//! [`advance`] takes the project, the conversation and one input. It changes the conversation only by applying the
//! events that it also returns, and says in [`Next`] what the runtime must do next. The same arguments give the same
//! result, byte for byte, so a stored conversation can be replayed from its inputs (tested in
//! `tests/dialogue/properties.rs`).
//!
//! A message passes through `session` (starts a session, records the message), then `message_payload` and `shortcuts`
//! (messages that need no model) or [`Next::Understand`], then `commands` (which commands are kept, and what they do to
//! the stack), then `flow` (executes steps until an effect is needed or the assistant listens).
//!
//! An advance works on a copy of the stack and records it once, at its end, if it changed. Every other change is an
//! event at the moment it happens.

mod action_response;
mod actions;
mod advance_context;
mod agent_frame;
mod chains;
mod code_change;
mod collect;
mod commands;
mod completed_steps;
mod confirmation;
mod eval_scope;
mod flow;
mod frame_end;
mod kept_values;
mod late_confirmations;
mod message_payload;
mod on_error;
mod patterns;
mod pending;
mod reason;
mod rejections;
mod reminder;
mod response;
mod search;
mod session;
mod shortcuts;
mod slot_dependencies;
mod slots;
mod tool_call;
mod writes;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use self::advance_context::AdvanceContext;
pub use self::{reason::Reason, slots::coerce};
use crate::{
    conversation::{
        ActionCall, ActionOutcome, AgentCall, AgentOutcome, BotMessage, Command, Conversation, Event, EventKind,
        ExternalTrigger, FlowToolCall, SearchCall, SearchOutcome, ToolResult, UserMessage,
    },
    ids::FlowId,
    project::Project,
    time::Timestamp,
};

/// An input of the dialogue engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// The time of arrival, and of every event that it causes; recorded.
    pub at: Timestamp,
    /// The seed for random choices, such as among variations of a response; recorded.
    pub seed: u64,
    /// The kind of input.
    pub kind: InputKind,
}

/// The kinds of input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// A user message: a turn starts.
    Message(UserMessage),
    /// A reminder is due, or another program makes a request: a turn starts without a message.
    Trigger(ExternalTrigger),
    /// The answer to [`Next::Understand`].
    #[serde(rename = "understood")]
    Commands(Vec<Command>),
    /// The answer to [`Next::Act`].
    #[serde(rename = "acted")]
    ActionOutcome(ActionOutcome),
    /// The answer to [`Next::Tool`].
    #[serde(rename = "called")]
    ToolResult(ToolResult),
    /// The answer to [`Next::Agent`].
    Agent(AgentOutcome),
    /// The answer to [`Next::Search`].
    #[serde(rename = "searched")]
    SearchOutcome(SearchOutcome),
    /// Another version of the program or the project recovers the turn of a crashed process; no decision of the turn is
    /// repeated.
    #[serde(rename = "upgraded")]
    VersionChanged {
        /// The outcomes of the effects of the turn.
        outcomes: Vec<EventKind>,
    },
    /// The budget of the turn is exhausted: the turn ends with one message about it.
    #[serde(rename = "exhausted")]
    BudgetExhausted {
        /// The budget, for operators.
        budget: String,
    },
    /// The turn was interrupted before the requested effect began: the turn ends, and the step of the effect runs when its
    /// flow goes on.
    Interrupted,
}

/// What the runtime must do next. Every outcome is passed back as the next [`Input`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Next {
    /// The turn is over; wait for the user.
    Listen,
    /// The turn and the session are over.
    EndSession,
    /// Find the commands in the newest user message.
    Understand,
    /// Run a custom action.
    Act(ActionCall),
    /// Call a tool. Boxed, like an agent call, because it is moved often and most variants are far smaller.
    Tool(Box<FlowToolCall>),
    /// Run an agent.
    Agent(Box<AgentCall>),
    /// Answer from documents.
    Search(SearchCall),
}

/// The result of [`advance`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advance {
    /// The events, already applied to the conversation.
    pub events: Vec<Event>,
    /// What to do next.
    pub next: Next,
    /// The reasons of the decisions: every dropped command, every branch taken.
    #[serde(rename = "why")]
    pub reasons: Vec<Reason>,
}

/// Processes one input.
///
/// Never fails: an input that does not fit the state of the conversation changes nothing and ends the turn;
/// [`Advance::reasons`] names the cause.
pub fn advance(project: &Project, conversation: &mut Conversation, input: Input) -> Advance {
    #[cfg(debug_assertions)]
    let before = conversation.clone();
    let mut turn = AdvanceContext::begin(project, conversation, input.at, input.seed);
    let next = match input.kind {
        InputKind::Message(message) => session::on_user_message(&mut turn, message),
        InputKind::Trigger(trigger) => reminder::on_trigger(&mut turn, trigger),
        InputKind::Commands(commands) => commands::execute(&mut turn, commands, commands::CommandSource::Model),
        InputKind::ActionOutcome(outcome) => actions::on_action_outcome(&mut turn, outcome),
        InputKind::ToolResult(result) => tool_call::on_tool_result(&mut turn, result),
        InputKind::Agent(outcome) => agent_frame::on_agent_outcome(&mut turn, outcome),
        InputKind::SearchOutcome(outcome) => search::on_search_outcome(&mut turn, outcome),
        InputKind::VersionChanged { outcomes } => frame_end::on_version_change(&mut turn, outcomes),
        InputKind::BudgetExhausted { budget } => frame_end::on_budget_exhausted(&mut turn, &budget),
        InputKind::Interrupted => pending::on_interruption(&mut turn),
    };
    let advance = turn.finish(next);
    #[cfg(debug_assertions)]
    debug_assert_eq!(
        *conversation,
        advance.events.iter().fold(before, |mut old, event| {
            old.apply(event);
            old
        }),
        "the conversation changed by something else than its events"
    );
    advance
}

/// Ends a turn that failed too often, without executing flows. Records the message or trigger and `outcomes`, closes
/// all frames and sends `response`. Inputs that do not start a turn are ignored.
pub fn give_up(
    project: &Project,
    conversation: &mut Conversation,
    input: Input,
    outcomes: Vec<EventKind>,
    response: &str,
) -> Advance {
    let mut turn = AdvanceContext::begin(project, conversation, input.at, input.seed);
    match input.kind {
        InputKind::Message(message) => turn.emit(EventKind::User(message)),
        InputKind::Trigger(trigger) => turn.emit(EventKind::External { trigger }),
        _ => {}
    }
    let next = frame_end::on_give_up(&mut turn, outcomes, response);
    turn.finish(next)
}

/// Whether a flow may be started now: it is a flow of the project, not a pattern, and its guard holds.
pub fn may_start(project: &Project, conversation: &Conversation, flow: &FlowId) -> bool {
    commands::may_start(&eval_scope::EvalScope::new(project, conversation, conversation.stack.frames()), flow)
}

/// Renders a response with the current state of the conversation, for action servers that name one. `seed` chooses the
/// variation, and `arguments` take precedence over slots. `None` when the project has no such response.
pub fn compose(
    project: &Project,
    conversation: &Conversation,
    response: &str,
    arguments: &Map<String, Json>,
    seed: u64,
) -> Option<BotMessage> {
    let view = eval_scope::EvalScope::new(project, conversation, conversation.stack.frames());
    response::ResponseRenderer::new(&view, arguments, seed).response(response)
}

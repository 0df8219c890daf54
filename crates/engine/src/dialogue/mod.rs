//! The dialogue engine: deterministic, without a wait, a clock or a file.
//!
//! Entry: [`advance`]. It takes the project, the conversation and one input, changes the conversation only by applying the
//! events that it also returns, and says in [`Next`] what the runtime must do now. The same arguments give the same answer,
//! byte for byte; so a stored conversation can be walked again from its inputs (held by `tests/dialogue/properties.rs`).
//!
//! The journey of a message: `session` (a session begins, the message is recorded) → `structured` and `shortcuts` (what
//! needs no model) or [`Next::Understand`] → `commands` (which survive, and what they do to the stack) →
//! `flow` (steps are walked until something must be performed or the assistant listens).
//!
//! The stack is worked on as a copy and recorded once, at the end of an advance that changed it; every other change is an
//! event at the moment it happens.

mod actions;
mod agent_frame;
mod answers;
mod code_change;
mod collect;
mod commands;
mod confirm;
mod context;
mod ending;
mod failure;
mod flow;
mod interrupt;
mod patterns;
mod pending;
mod rejections;
mod reminder;
mod reply;
mod rerun;
mod search;
mod session;
mod shortcuts;
mod slots;
mod structured;
mod tool_call;
mod turn;
mod walked;
mod why;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use self::turn::Turn;
pub use self::{slots::coerced, why::Reason};
use crate::{
    conversation::{
        ActionCall, ActionOutcome, AgentCall, AgentOutcome, BotMessage, Command, Conversation, Event, EventKind,
        FlowToolCall, SearchCall, SearchOutcome, ToolResult, Trigger, UserMessage,
    },
    ids::FlowId,
    project::Project,
    time::Timestamp,
};

/// One input of the dialogue engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// When it came; recorded, and the time of every event that it causes.
    pub at: Timestamp,
    /// For choices among equals, such as variations of a response; recorded.
    pub seed: u64,
    /// What came.
    pub kind: InputKind,
}

/// What can come in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// A user wrote: a turn begins.
    Message(UserMessage),
    /// A reminder is due, or a program wants something: a turn begins without a message.
    Trigger(Trigger),
    /// The answer to [`Next::Understand`].
    Understood(Vec<Command>),
    /// The answer to [`Next::Act`].
    Acted(ActionOutcome),
    /// The answer to [`Next::Tool`].
    Called(ToolResult),
    /// The answer to [`Next::Agent`].
    Agent(AgentOutcome),
    /// The answer to [`Next::Search`].
    Searched(SearchOutcome),
    /// Another version of the program or the project takes the turn over from one that died: nothing of it is decided again.
    Upgraded {
        /// What its effects had come to.
        outcomes: Vec<EventKind>,
    },
    /// The turn's budget is spent: end it with one honest message.
    Exhausted {
        /// Which budget, for operators.
        budget: String,
    },
}

/// What the runtime must do now. Every answer comes back as the next [`Input`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Next {
    /// The turn is over; wait for the user.
    Listen,
    /// The turn is over and so is the session.
    EndSession,
    /// Find the commands in the newest user message.
    Understand,
    /// Run a custom action.
    Act(ActionCall),
    /// Call a tool. Boxed, as an agent's call: it is handed on several times, and most answers are far smaller.
    Tool(Box<FlowToolCall>),
    /// Run an agent.
    Agent(Box<AgentCall>),
    /// Answer from documents.
    Search(SearchCall),
}

/// What the dialogue engine answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advance {
    /// What happened; already applied to the conversation.
    pub events: Vec<Event>,
    /// What to do now.
    pub next: Next,
    /// Why: every dropped command, every branch taken.
    pub why: Vec<Reason>,
}

/// Takes one input and says what happened and what must be done now.
///
/// Never fails: an input that does not fit what is under way changes nothing and ends the turn, and `why` says so.
pub fn advance(project: &Project, conversation: &mut Conversation, input: Input) -> Advance {
    #[cfg(debug_assertions)]
    let before = conversation.clone();
    let mut turn = Turn::begin(project, conversation, input.at, input.seed);
    let next = match input.kind {
        InputKind::Message(message) => session::receive(&mut turn, message),
        InputKind::Trigger(trigger) => reminder::triggered(&mut turn, trigger),
        InputKind::Understood(commands) => commands::execute(&mut turn, commands, commands::Source::Model),
        InputKind::Acted(outcome) => actions::acted(&mut turn, outcome),
        InputKind::Called(result) => tool_call::called(&mut turn, result),
        InputKind::Agent(outcome) => agent_frame::came_back(&mut turn, outcome),
        InputKind::Searched(outcome) => search::searched(&mut turn, outcome),
        InputKind::Upgraded { outcomes } => ending::upgraded(&mut turn, outcomes),
        InputKind::Exhausted { budget } => ending::exhausted(&mut turn, &budget),
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

/// Ends a turn that was tried too often, without walking anything: the message or trigger and `outcomes` are recorded, what was under way
/// is taken down, and `response` is said. Other inputs than those that begin a turn are left out.
pub fn give_up(
    project: &Project,
    conversation: &mut Conversation,
    input: Input,
    outcomes: Vec<EventKind>,
    response: &str,
) -> Advance {
    let mut turn = Turn::begin(project, conversation, input.at, input.seed);
    match input.kind {
        InputKind::Message(message) => turn.emit(EventKind::User(message)),
        InputKind::Trigger(trigger) => turn.emit(EventKind::External { trigger }),
        _ => {}
    }
    let next = ending::given_up(&mut turn, outcomes, response);
    turn.finish(next)
}

/// Whether somebody may ask for a flow as the conversation stands: one of the author's, whose guard holds.
pub fn may_start(project: &Project, conversation: &Conversation, flow: &FlowId) -> bool {
    commands::may_start(&context::View::new(project, conversation, conversation.stack.frames()), flow)
}

/// Makes the message of a response as the conversation stands, for answers of action servers that name one: the variation is
/// chosen by `seed`, and `arguments` stand over slots. `None` when the project has no such response.
pub fn compose(
    project: &Project,
    conversation: &Conversation,
    response: &str,
    arguments: &Map<String, Json>,
    seed: u64,
) -> Option<BotMessage> {
    let view = context::View::new(project, conversation, conversation.stack.frames());
    reply::Composer::new(&view, arguments, seed).response(response)
}

//! End-to-end cases, checked: what the user says, and what is expected of the assistant.
//!
//! Entry: [`CaseFile::read`]. Nothing here runs a case or knows a project: names are checked where both are at hand.

use std::{sync::Arc, time::Duration};

use indexmap::IndexMap;
use serde_json::{Map, Value as Json};

use crate::{finding::SourceLocation, regex_dialect::PythonRegex};

/// A file of cases, or a `conftest.yml`.
#[derive(Debug)]
pub struct CaseFile {
    /// Its path, as it was handed in.
    pub path: Arc<str>,
    /// What its cases, or those of its folder, share.
    pub shared: SharedFixtures,
    /// The cases; none in a `conftest.yml`.
    pub cases: Vec<TestCase>,
}

/// What several cases share.
#[derive(Clone, Debug, Default)]
pub struct SharedFixtures {
    /// Slot values by fixture.
    pub fixtures: IndexMap<Arc<str>, Fixture>,
    /// Metadata of messages by name.
    pub metadata: IndexMap<Arc<str>, Map<String, Json>>,
    /// Answers of custom actions, by `action` or `case::action`.
    pub actions: IndexMap<Arc<str>, StubAction>,
    /// Answers of tools, by `server.tool` or `case::server.tool`; given in order, the last again and again.
    pub tools: IndexMap<Arc<str>, Stub<StubTool>>,
    /// Runs of agents, by `agent` or `case::agent`; given in order, the last again and again.
    pub agents: IndexMap<Arc<str>, Stub<StubAgent>>,
    /// The script of a model that answers for every model.
    pub llm: Option<Named>,
    /// The model that judges texts: `model_group`, or its settings.
    pub judge: Option<Map<String, Json>>,
    /// The endpoints file.
    pub endpoints: Option<Named>,
}

/// A name that stands somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name.
    pub name: Arc<str>,
    /// Where it stands.
    pub place: SourceLocation,
}

/// Slot values that are set before the first step.
#[derive(Clone, Debug)]
pub struct Fixture {
    /// Slots and their values, in order.
    pub slots: Vec<(Named, Json)>,
}

/// Answers in order.
#[derive(Clone, Debug)]
pub struct Stub<T> {
    /// The answers; never empty.
    pub answers: Vec<T>,
    /// Where they stand.
    pub place: SourceLocation,
}

/// What a stubbed action answers, in the form of an action server.
#[derive(Clone, Debug)]
pub struct StubAction {
    /// Its events.
    pub events: Vec<Json>,
    /// Its messages.
    pub responses: Vec<Json>,
    /// Where it stands.
    pub place: SourceLocation,
}

/// What a stubbed tool answers once.
#[derive(Clone, Debug, PartialEq)]
pub enum StubTool {
    /// It works.
    Result(Json),
    /// It fails.
    Error(Arc<str>),
}

/// One run of a stubbed agent.
#[derive(Clone, Debug)]
pub struct StubAgent {
    /// What it says.
    pub says: Vec<Arc<str>>,
    /// What it fills.
    pub slots: Map<String, Json>,
    /// How it ends.
    pub ends: StubEnd,
}

/// How a run of a stubbed agent ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StubEnd {
    /// It waits for the user.
    AwaitingUser,
    /// Its task is done.
    Finished,
    /// It gave up.
    Failed,
}

/// One case.
#[derive(Clone, Debug)]
pub struct TestCase {
    /// Its name, unique in its file.
    pub name: Arc<str>,
    /// Where it stands.
    pub place: SourceLocation,
    /// Its fixtures, in order.
    pub fixtures: Vec<Named>,
    /// Metadata of every message.
    pub metadata: Option<Named>,
    /// Its steps; the first is one of the user.
    pub steps: Vec<CaseStep>,
    /// As it was written, for writing it again.
    pub written: Json,
    /// Whether all of it could be read; what is left of a case with an error is only good for finding more of them.
    pub whole: bool,
}

impl TestCase {
    /// Whether it has any assertion; then what stands in steps of their own is not looked at.
    pub fn asserts(&self) -> bool {
        self.steps.iter().any(|step| matches!(&step.kind, CaseStepKind::User(user) if !user.assertions.is_empty()))
    }
}

/// One step.
#[derive(Clone, Debug)]
pub struct CaseStep {
    /// Where it stands.
    pub place: SourceLocation,
    /// What it is.
    pub kind: CaseStepKind,
}

/// What a step is.
#[derive(Clone, Debug)]
pub enum CaseStepKind {
    /// The user says something.
    User(Box<UserStep>),
    /// The assistant said exactly this.
    Bot(Arc<str>),
    /// The assistant said this response.
    Utter(Arc<str>),
    /// These slots were set.
    SlotWasSet(Vec<SlotCheck>),
    /// These were not.
    SlotWasNotSet(Vec<SlotCheck>),
    /// The message before meant these commands: for tests of understanding.
    Commands(Vec<Json>),
}

/// The user says something.
#[derive(Clone, Debug)]
pub struct UserStep {
    /// What.
    pub text: Arc<str>,
    /// Metadata of this message.
    pub metadata: Option<Named>,
    /// Whether assertions must hold one after the other.
    pub ordered: bool,
    /// What must hold for the events of this turn.
    pub assertions: Vec<Assertion>,
    /// What it means, for tests of understanding.
    pub commands: Vec<Json>,
}

/// What must hold.
#[derive(Clone, Debug)]
pub struct Assertion {
    /// Where it stands.
    pub place: SourceLocation,
    /// What it says.
    pub kind: AssertionKind,
}

/// What an assertion says about the events of a turn.
#[derive(Clone, Debug)]
pub enum AssertionKind {
    /// Flows began.
    FlowStarted(Flows),
    /// A flow ended.
    FlowCompleted(FlowEnd),
    /// A flow was stopped.
    FlowCancelled(FlowEnd),
    /// The user was asked to choose from flows.
    Clarification(Flows),
    /// Slots got values; all of them.
    SlotWasSet(Vec<SlotCheck>),
    /// Slots did not; none of them.
    SlotWasNotSet(Vec<SlotCheck>),
    /// An action ran, or a response was said.
    ActionExecuted(Arc<str>),
    /// A message was said.
    BotUttered(BotMessageExpectation),
    /// A message was not said.
    BotDidNotUtter(BotMessageExpectation),
    /// A generated text answers the user, as a model judges.
    Relevant(JudgedTextExpectation),
    /// A generated text has a ground, as a model judges.
    Grounded(JudgedTextExpectation),
    /// Something became of an agent's task.
    Agent(AgentMark, Arc<str>),
    /// A tool was called.
    ToolCalled(ToolCheck),
    /// A tool was not called.
    ToolNotCalled(ToolCheck),
    /// The most calls of models.
    MaxLlmCalls(u64),
    /// The longest the turn may take.
    MaxTurnLatency(Duration),
}

impl AssertionKind {
    /// The key it is written with.
    pub fn key(&self) -> &'static str {
        match self {
            Self::FlowStarted(_) => "flow_started",
            Self::FlowCompleted(_) => "flow_completed",
            Self::FlowCancelled(_) => "flow_cancelled",
            Self::Clarification(_) => "pattern_clarification_contains",
            Self::SlotWasSet(_) => "slot_was_set",
            Self::SlotWasNotSet(_) => "slot_was_not_set",
            Self::ActionExecuted(_) => "action_executed",
            Self::BotUttered(_) => "bot_uttered",
            Self::BotDidNotUtter(_) => "bot_did_not_utter",
            Self::Relevant(_) => "generative_response_is_relevant",
            Self::Grounded(_) => "generative_response_is_grounded",
            Self::Agent(mark, _) => mark.key(),
            Self::ToolCalled(_) => "tool_called",
            Self::ToolNotCalled(_) => "tool_not_called",
            Self::MaxLlmCalls(_) => "max_llm_calls",
            Self::MaxTurnLatency(_) => "max_turn_latency_ms",
        }
    }
}

/// Several flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flows {
    /// Their ids; for a clarification also names.
    pub flows: Vec<Arc<str>>,
    /// Whether all are wanted, or one is enough.
    pub all: bool,
}

/// How a flow ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowEnd {
    /// The flow.
    pub flow: Arc<str>,
    /// Its last step; any unless set.
    pub step: Option<Arc<str>>,
}

/// A slot, and the value that counts.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotCheck {
    /// The slot.
    pub name: Arc<str>,
    /// The value; `None` means any that is not null.
    pub value: Option<Json>,
}

/// A message, by what is known of it; all of it on the same message.
#[derive(Clone, Debug)]
pub struct BotMessageExpectation {
    /// The response it was made from.
    pub utter_name: Option<Arc<str>>,
    /// The expression that is found in its text, as written and as compiled.
    pub text_matches: Option<(Arc<str>, Arc<PythonRegex>)>,
    /// Its buttons, in order.
    pub buttons: Option<Vec<UtteredButton>>,
}

/// A button of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtteredButton {
    /// What is shown.
    pub title: Arc<str>,
    /// What is sent, where that counts.
    pub payload: Option<Arc<str>>,
}

/// A text that a model judges.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedTextExpectation {
    /// The least score, from 0 to 1.
    pub threshold: f64,
    /// Only texts made from this response.
    pub utter_name: Option<Arc<str>>,
    /// Only texts of this component, action or agent.
    pub utter_source: Option<Arc<str>>,
    /// What is true.
    pub ground_truth: Option<Arc<str>>,
}

/// What became of an agent's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentMark {
    /// It began.
    Started,
    /// It is done.
    Completed,
    /// It waits.
    Interrupted,
    /// It goes on.
    Resumed,
    /// It is over without a result.
    Cancelled,
}

impl AgentMark {
    /// The key it is written with.
    pub fn key(self) -> &'static str {
        match self {
            Self::Started => "agent_started",
            Self::Completed => "agent_completed",
            Self::Interrupted => "agent_interrupted",
            Self::Resumed => "agent_resumed",
            Self::Cancelled => "agent_cancelled",
        }
    }
}

/// A call of a tool, by what is known of it.
#[derive(Clone, Debug)]
pub struct ToolCheck {
    /// The tool.
    pub name: Arc<str>,
    /// Its server.
    pub server: Option<Arc<str>>,
    /// The agent that calls.
    pub agent: Option<Arc<str>>,
    /// Arguments; further ones do not matter. A text may be an expression for the whole of the argument.
    pub arguments: Vec<(String, Json, Option<Arc<PythonRegex>>)>,
    /// Whether it worked.
    pub success: Option<bool>,
    /// How often.
    pub times: Option<u64>,
}

//! Checked end-to-end test cases: the messages of the user and the expectations about the assistant.
//!
//! [`TestFile::read`] reads a file without a project, so it does not check names of flows, slots and responses.

use std::{sync::Arc, time::Duration};

use indexmap::IndexMap;
use serde_json::{Map, Value as Json};

use crate::{finding::SourceLocation, regex_dialect::PythonRegex};

/// A file of test cases, or a `conftest.yml`.
#[derive(Debug)]
pub struct TestFile {
    /// Its path, as passed by the caller.
    pub path: Arc<str>,
    /// The settings shared by its test cases, or by those of its folder.
    pub shared: SharedFixtures,
    /// The test cases; empty in a `conftest.yml`.
    pub cases: Vec<TestCase>,
}

/// Settings shared by several test cases.
#[derive(Clone, Debug, Default)]
pub struct SharedFixtures {
    /// Slot values by fixture.
    pub fixtures: IndexMap<Arc<str>, Fixture>,
    /// Metadata of messages by name.
    pub metadata: IndexMap<Arc<str>, Map<String, Json>>,
    /// Stubs of custom actions, by `action` or `case::action`.
    pub actions: IndexMap<Arc<str>, StubAction>,
    /// Stubs of tools, by `server.tool` or `case::server.tool`.
    pub tools: IndexMap<Arc<str>, Stub<StubTool>>,
    /// Stubs of agents, by `agent` or `case::agent`.
    pub agents: IndexMap<Arc<str>, Stub<StubAgent>>,
    /// The script of a scripted model that replaces every model.
    pub llm: Option<LocatedName>,
    /// The model that judges generated texts: `model_group`, or its settings.
    pub judge: Option<Map<String, Json>>,
    /// The endpoints file that replaces that of the project.
    pub endpoints: Option<LocatedName>,
}

/// A name with its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedName {
    /// The name.
    pub name: Arc<str>,
    /// Its location in the file.
    pub place: SourceLocation,
}

/// Slot values that are set before the first step.
#[derive(Clone, Debug)]
pub struct Fixture {
    /// Slots and their values, in order.
    pub slots: Vec<(LocatedName, Json)>,
}

/// The results of successive calls.
#[derive(Clone, Debug)]
pub struct Stub<T> {
    /// The results in order, never empty. The last one is repeated.
    pub answers: Vec<T>,
    /// Its location in the file.
    pub place: SourceLocation,
}

/// The result of a stubbed action, in the format of an action server.
#[derive(Clone, Debug)]
pub struct StubAction {
    /// Its events.
    pub events: Vec<Json>,
    /// Its messages.
    pub responses: Vec<Json>,
    /// Its location in the file.
    pub place: SourceLocation,
}

/// The result of one call of a stubbed tool.
#[derive(Clone, Debug, PartialEq)]
pub enum StubTool {
    /// The call succeeds with this result.
    Result(Json),
    /// The call fails with this message.
    Error(Arc<str>),
    /// It is not known whether the call had its effect.
    Unknown,
}

/// A run of a stubbed agent.
#[derive(Clone, Debug)]
pub struct StubAgent {
    /// Its messages.
    pub says: Vec<Arc<str>>,
    /// The slots that it fills.
    pub slots: Map<String, Json>,
    /// The status at the end of the run.
    pub ends: StubStatus,
}

/// The status at the end of a run of a stubbed agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StubStatus {
    /// It waits for the user.
    AwaitingUser,
    /// Its task is completed.
    Finished,
    /// The run failed.
    Failed,
}

/// A test case.
#[derive(Clone, Debug)]
pub struct TestCase {
    /// Its name, unique in its file.
    pub name: Arc<str>,
    /// Its location in the file.
    pub place: SourceLocation,
    /// Its fixtures, in order.
    pub fixtures: Vec<LocatedName>,
    /// The name of the metadata of every message.
    pub metadata: Option<LocatedName>,
    /// Its steps; the first is a `user` step.
    pub steps: Vec<TestStep>,
    /// The test case as written in the file.
    pub written: Json,
    /// Whether it has no error. An incomplete test case must not run; it is kept only to check its names.
    pub whole: bool,
}

impl TestCase {
    /// Whether it has an assertion. Then `bot`, `utter` and slot steps are not checked.
    pub fn asserts(&self) -> bool {
        self.steps.iter().any(|step| matches!(&step.kind, TestStepKind::User(user) if !user.assertions.is_empty()))
    }
}

/// A step of a test case.
#[derive(Clone, Debug)]
pub struct TestStep {
    /// Its location in the file.
    pub place: SourceLocation,
    /// Its kind.
    pub kind: TestStepKind,
}

/// The kind of a test step.
#[derive(Clone, Debug)]
pub enum TestStepKind {
    /// A message of the user.
    User(Box<UserStep>),
    /// The assistant sent exactly this text.
    Bot(Arc<str>),
    /// The assistant sent this response.
    Utter(Arc<str>),
    /// These slots were set.
    SlotWasSet(Vec<SlotCheck>),
    /// These slots were not set.
    SlotWasNotSet(Vec<SlotCheck>),
    /// The expected commands for the previous message, for `segue test du`.
    Commands(Vec<Json>),
}

/// A message of the user and the assertions about its turn.
#[derive(Clone, Debug)]
pub struct UserStep {
    /// The text of the message.
    pub text: Arc<str>,
    /// The name of its metadata.
    pub metadata: Option<LocatedName>,
    /// Whether the events must occur in the order of the assertions.
    pub ordered: bool,
    /// The assertions about the events of the turn.
    pub assertions: Vec<Assertion>,
    /// The expected commands, for `segue test du`.
    pub commands: Vec<Json>,
}

/// An assertion about the events of a turn.
#[derive(Clone, Debug)]
pub struct Assertion {
    /// Its location in the file.
    pub place: SourceLocation,
    /// Its kind.
    pub kind: AssertionKind,
}

/// The kind of an assertion.
#[derive(Clone, Debug)]
pub enum AssertionKind {
    /// Flows started.
    FlowStarted(Flows),
    /// A flow ended.
    FlowCompleted(FlowEnd),
    /// A flow was cancelled.
    FlowCancelled(FlowEnd),
    /// A clarification question asked the user to choose among flows.
    Clarification(Flows),
    /// All of these slots were set.
    SlotWasSet(Vec<SlotCheck>),
    /// None of these slots was set.
    SlotWasNotSet(Vec<SlotCheck>),
    /// An action ran, or a response was sent.
    ActionExecuted(Arc<str>),
    /// A message was sent.
    BotUttered(BotMessageExpectation),
    /// A message was not sent.
    BotDidNotUtter(BotMessageExpectation),
    /// A model judges a generated text as relevant to the user's message.
    Relevant(JudgedTextExpectation),
    /// A model judges a generated text as grounded.
    Grounded(JudgedTextExpectation),
    /// An event of the task of an agent.
    Agent(AgentTaskEvent, Arc<str>),
    /// A tool was called.
    ToolCalled(ToolCheck),
    /// A tool was not called.
    ToolNotCalled(ToolCheck),
    /// The maximum number of model calls.
    MaxLlmCalls(u64),
    /// The maximum duration of the turn.
    MaxTurnLatency(Duration),
}

impl AssertionKind {
    /// The key in the file.
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

/// The flows of an assertion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flows {
    /// Their ids; for a clarification also names.
    pub flows: Vec<Arc<str>>,
    /// Whether all are required; otherwise one is enough.
    pub all: bool,
}

/// The end of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowEnd {
    /// The flow.
    pub flow: Arc<str>,
    /// Its last step; `None`: any.
    pub step: Option<Arc<str>>,
}

/// A slot and its expected value.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotCheck {
    /// The slot.
    pub name: Arc<str>,
    /// The value; `None`: any value other than null.
    pub value: Option<Json>,
}

/// The expected properties of a message. All of them must be true for the same message.
#[derive(Clone, Debug)]
pub struct BotMessageExpectation {
    /// The name of the response.
    pub utter_name: Option<Arc<str>>,
    /// A regular expression that matches a part of the text: as written, and compiled.
    pub text_matches: Option<(Arc<str>, Arc<PythonRegex>)>,
    /// Its buttons, in order.
    pub buttons: Option<Vec<ButtonExpectation>>,
}

/// An expected button of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ButtonExpectation {
    /// The label.
    pub title: Arc<str>,
    /// The payload; `None`: any.
    pub payload: Option<Arc<str>>,
}

/// A generated text that a model judges.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedTextExpectation {
    /// The minimum score, from 0 to 1.
    pub threshold: f64,
    /// Judge only texts of this response.
    pub utter_name: Option<Arc<str>>,
    /// Judge only texts of this component, action or agent.
    pub utter_source: Option<Arc<str>>,
    /// The facts to judge by; `None`: the sources that the text was generated from.
    pub ground_truth: Option<Arc<str>>,
}

/// An event of the task of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentTaskEvent {
    /// The task started.
    Started,
    /// The task was completed.
    Completed,
    /// The task was interrupted.
    Interrupted,
    /// The task was resumed.
    Resumed,
    /// The task ended without a result.
    Cancelled,
}

impl AgentTaskEvent {
    /// The key in the file.
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

/// The expected properties of a tool call.
#[derive(Clone, Debug)]
pub struct ToolCheck {
    /// The tool.
    pub name: Arc<str>,
    /// Its server; `None`: any.
    pub server: Option<Arc<str>>,
    /// The calling agent; `None`: any agent or flow.
    pub agent: Option<Arc<str>>,
    /// Expected arguments; others are ignored. A string may be a regular expression for the whole argument.
    pub arguments: Vec<(String, Json, Option<Arc<PythonRegex>>)>,
    /// Whether it succeeded; `None`: both.
    pub success: Option<bool>,
    /// The number of calls; `None`: at least one.
    pub times: Option<u64>,
}

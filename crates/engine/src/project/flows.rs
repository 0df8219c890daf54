//! Checked flows. The steps of a flow are one list, and every `next` is resolved to a step of the same flow.

use std::{collections::HashMap, sync::Arc};

use serde_json::Value as Json;

use super::Rejection;
use crate::{
    condition::Condition,
    finding::SourceLocation,
    ids::{ActionName, AgentName, FlowId, ResponseName, ServerName, SlotName, StepId, ToolName},
    template::{Expression, Template},
};

/// A flow.
#[derive(Debug)]
pub struct Flow {
    /// Its id.
    pub id: FlowId,
    /// Its readable name.
    pub name: Arc<str>,
    /// Readable names in other languages.
    pub translations: Vec<(Arc<str>, Arc<str>)>,
    /// What it does, for the model.
    pub description: Arc<str>,
    /// `if`: the condition for commands that start it.
    pub guard: Option<Condition>,
    /// Whether it is in the prompt regardless of retrieval.
    pub always_include_in_prompt: bool,
    /// Intents that start it.
    pub nlu_triggers: Vec<NluTrigger>,
    /// Whether `pattern_completed` may be triggered after it.
    pub run_pattern_completed: bool,
    /// Slots that keep their value when it ends.
    pub persisted_slots: Vec<SlotName>,
    /// Its steps, nested ones included; the first is the entry.
    pub steps: Vec<Step>,
    /// The position of each step in `steps`, by its id.
    pub index: HashMap<StepId, usize>,
    /// Its location in the project files.
    pub place: SourceLocation,
    /// Whether it is built in rather than defined by the project.
    pub builtin: bool,
    /// A hash of everything that affects its behaviour.
    pub fingerprint: u64,
}

/// An intent that starts a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct NluTrigger {
    /// Its name.
    pub intent: Arc<str>,
    /// The minimum confidence.
    pub confidence_threshold: f64,
}

/// A step.
#[derive(Debug)]
pub struct Step {
    /// Its id; generated from flow, position and kind if the file has none.
    pub id: StepId,
    /// What it does.
    pub kind: StepKind,
    /// The next step.
    pub next: NextStep,
    /// The next step after a failure; without it the flow ends.
    pub on_error: Option<NextStep>,
    /// Its location in the project files.
    pub place: SourceLocation,
    /// Its description.
    pub description: Option<Arc<str>>,
    /// A hash of the behaviour of this step and of every step that can follow it in the flow, independent of step ids. It
    /// finds the step of an active conversation again after the project has changed.
    pub continuation_hash: u32,
}

/// What a step does.
#[derive(Debug)]
pub enum StepKind {
    /// Ask until a slot is filled.
    Collect(Box<Collect>),
    /// Run an action or send a response.
    Action(ActionReference),
    /// Set slots to constants.
    SetSlots(Vec<(SlotName, Json)>),
    /// Run a flow, an agent or a tool, then continue with the next step.
    Call(Call),
    /// Continue with another flow in place of this one.
    Link(FlowId),
    /// Do nothing; only `next` matters.
    Noop,
}

/// The name of an action. In patterns it may be a template over `context`.
#[derive(Debug)]
pub enum ActionReference {
    /// A plain name.
    Plain(ActionName),
    /// A template that is rendered with the context of the frame.
    Template(Template),
}

/// A collect step.
#[derive(Debug)]
pub struct Collect {
    /// The slot.
    pub slot: SlotName,
    /// What the value means, for the model.
    pub description: Option<Arc<str>>,
    /// Whether it asks even if the slot has a value.
    pub ask_before_filling: bool,
    /// Whether its answer decides what follows: a condition on the slot, in this flow or another one, comes before the next question and
    /// before anything that may write. Only for questions with `ask_before_filling`.
    pub decides: bool,
    /// Whether the slot is reset when the flow ends.
    pub reset_after_flow_ends: bool,
    /// The response that asks; by default `utter_ask_<slot>`.
    pub utter: ResponseName,
    /// The action that asks instead: `action_ask_<slot>`.
    pub action: ActionName,
    /// The rejections of this step.
    pub rejections: Vec<Rejection>,
    /// Whether only a value for this slot is accepted while the step waits for an answer.
    pub force_slot_filling: bool,
    /// Voice: seconds of silence until the silence pattern is triggered, by channel. The entry without a channel is the
    /// default.
    pub silence: Vec<(Option<Arc<str>>, f64)>,
}

/// The target of a `call` step.
#[derive(Debug)]
pub enum Call {
    /// Another flow.
    Flow(FlowId),
    /// An agent.
    Agent {
        /// The agent.
        agent: AgentName,
        /// The task ends when all of these are true; empty for an open agent.
        exit_if: Vec<Condition>,
    },
    /// A tool of an MCP server.
    Tool {
        /// The server.
        server: ServerName,
        /// The tool.
        tool: ToolName,
        /// Parameter names and the slots that fill them.
        input: Vec<(String, SlotName)>,
        /// Slots and the expressions over `result` that fill them.
        output: Vec<(SlotName, Expression)>,
    },
}

/// The next step.
#[derive(Debug)]
pub enum NextStep {
    /// Always the same target.
    Go(Target),
    /// The target of the first branch whose condition is true, else `otherwise`.
    Branch {
        /// The branches in order.
        branches: Vec<Branch>,
        /// `else`.
        otherwise: Option<Otherwise>,
    },
}

/// A branch.
#[derive(Debug)]
pub struct Branch {
    /// The condition.
    pub condition: Condition,
    /// The target.
    pub target: Target,
}

/// The `else` of a list of branches.
#[derive(Debug)]
pub struct Otherwise {
    /// The target.
    pub target: Target,
    /// Its location in the project files.
    pub place: SourceLocation,
}

/// The target of a `next`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// This step of the same flow.
    Step(StepId),
    /// The end of the flow.
    End,
}

impl NextStep {
    /// All possible targets, in order.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        let (one, branches, otherwise) = match self {
            Self::Go(target) => (Some(target), &[][..], None),
            Self::Branch { branches, otherwise } => {
                (None, branches.as_slice(), otherwise.as_ref().map(|otherwise| &otherwise.target))
            }
        };
        one.into_iter().chain(branches.iter().map(|branch| &branch.target)).chain(otherwise)
    }
}

impl Step {
    /// All possible targets: those of `next`, then those of `on_error`.
    pub fn exits(&self) -> impl Iterator<Item = &Target> {
        self.next.targets().chain(self.on_error.iter().flat_map(NextStep::targets))
    }
}

impl Flow {
    /// Whether this is a conversation pattern.
    pub fn is_pattern(&self) -> bool {
        self.id.as_str().starts_with("pattern_")
    }
    /// Whether only calls and links start it, because its guard is the constant `false`.
    pub fn is_link_only(&self) -> bool {
        self.guard.as_ref().and_then(Condition::as_constant) == Some(false)
    }
    /// A step by id. Ids without the prefix of the flow, as in older CALM versions, are found too.
    pub fn step(&self, id: &str) -> Option<&Step> {
        let at = match self.index.get(id) {
            Some(at) => at,
            None => self.index.get(format!("{}_{id}", self.id).as_str())?,
        };
        self.steps.get(*at)
    }
    /// The readable name in a language.
    pub fn name_in(&self, language: &str) -> &Arc<str> {
        self.translations.iter().find(|(of, _)| **of == *language).map_or(&self.name, |(_, name)| name)
    }
    /// The first step.
    pub fn first(&self) -> Option<&Step> {
        self.steps.first()
    }
    /// The collect steps of this flow, without those of called flows.
    pub fn collects(&self) -> impl Iterator<Item = (&Step, &Collect)> {
        self.steps.iter().filter_map(|step| match &step.kind {
            StepKind::Collect(collect) => Some((step, &**collect)),
            _ => None,
        })
    }
}

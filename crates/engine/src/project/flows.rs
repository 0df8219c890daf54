//! Flows, checked: steps in one list, every `next` resolved to a step of the same flow.

use std::{collections::HashMap, sync::Arc};

use serde_json::Value as Json;

use super::Rejection;
use crate::{
    condition::Condition,
    finding::SourceLocation,
    ids::{ActionName, AgentName, FlowId, ResponseName, ServerName, SlotName, StepId, ToolName},
    template::{Expression, Template},
};

/// One flow.
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
    /// `if`: when a command may start it.
    pub guard: Option<Condition>,
    /// Whether it is always shown to the model.
    pub always_include_in_prompt: bool,
    /// Intents that start it.
    pub nlu_triggers: Vec<NluTrigger>,
    /// Whether `pattern_completed` may follow it.
    pub run_pattern_completed: bool,
    /// Slots that stay when it ends.
    pub persisted_slots: Vec<SlotName>,
    /// Its steps, nested ones included; the first is the entry.
    pub steps: Vec<Step>,
    /// Position of each step by its id.
    pub index: HashMap<StepId, usize>,
    /// Where it stands.
    pub place: SourceLocation,
    /// Whether it came with Segue.
    pub builtin: bool,
    /// A hash over everything in it that changes what it does.
    pub fingerprint: u64,
}

/// An intent that starts a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct NluTrigger {
    /// Its name.
    pub intent: Arc<str>,
    /// The least confidence.
    pub confidence_threshold: f64,
}

/// One step.
#[derive(Debug)]
pub struct Step {
    /// Its id; made from flow, position and kind where the author wrote none.
    pub id: StepId,
    /// What it does.
    pub kind: StepKind,
    /// What follows.
    pub next: NextStep,
    /// What follows when it fails; without it the flow ends.
    pub on_error: Option<NextStep>,
    /// Where it stands.
    pub place: SourceLocation,
    /// What the author says about it.
    pub description: Option<Arc<str>>,
    /// A hash over what this step and all that can follow it in the flow do, whatever their ids are.
    pub reach: u32,
}

/// What a step does.
#[derive(Debug)]
pub enum StepKind {
    /// Ask until a slot is filled.
    Collect(Box<Collect>),
    /// Run an action or say a response.
    Action(ActionReference),
    /// Fill slots with constants.
    SetSlots(Vec<(SlotName, Json)>),
    /// Go into a flow, an agent or a tool, and come back.
    Call(Call),
    /// Go on in another flow; does not come back.
    Link(FlowId),
    /// Only `next`.
    Noop,
}

/// A name that may be a template over `context`, as patterns use it.
#[derive(Debug)]
pub enum ActionReference {
    /// A plain name.
    Plain(ActionName),
    /// Rendered with the frame's context first.
    Template(Template),
}

/// Asking for a slot.
#[derive(Debug)]
pub struct Collect {
    /// The slot.
    pub slot: SlotName,
    /// What the value means, for the model.
    pub description: Option<Arc<str>>,
    /// Always ask, even when it is filled.
    pub ask_before_filling: bool,
    /// Whether the slot is emptied at the flow's end.
    pub reset_after_flow_ends: bool,
    /// The question; `utter_ask_<slot>` unless set.
    pub utter: ResponseName,
    /// The action that asks instead: `action_ask_<slot>`.
    pub action: ActionName,
    /// Values that are refused here.
    pub rejections: Vec<Rejection>,
    /// Only a value for this slot counts while it is asked.
    pub force_slot_filling: bool,
    /// Voice: seconds of silence after the question, where the step says so; the last entry, without a channel, is for all
    /// others.
    pub silence: Vec<(Option<Arc<str>>, f64)>,
}

/// Where a call goes.
#[derive(Debug)]
pub enum Call {
    /// Another flow.
    Flow(FlowId),
    /// An agent; with conditions it is a task agent.
    Agent {
        /// Which.
        agent: AgentName,
        /// All must hold for the task to be done; empty for an open agent.
        exit_if: Vec<Condition>,
    },
    /// A tool of an MCP server.
    Tool {
        /// The server.
        server: ServerName,
        /// The tool.
        tool: ToolName,
        /// Parameter names and the slots they are filled from.
        input: Vec<(String, SlotName)>,
        /// Slots and the expressions over `result` that fill them.
        output: Vec<(SlotName, Expression)>,
    },
}

/// What follows a step.
#[derive(Debug)]
pub enum NextStep {
    /// One way.
    Go(Target),
    /// The first branch that holds, else `otherwise`.
    Branch {
        /// In order.
        branches: Vec<Branch>,
        /// `else`.
        otherwise: Option<Otherwise>,
    },
}

/// One branch.
#[derive(Debug)]
pub struct Branch {
    /// When.
    pub condition: Condition,
    /// Where to.
    pub target: Target,
}

/// The `else` of branches.
#[derive(Debug)]
pub struct Otherwise {
    /// Where to.
    pub target: Target,
    /// Where it stands.
    pub place: SourceLocation,
}

/// Where a `next` leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// To this step of the same flow.
    Step(StepId),
    /// To the end of the flow.
    End,
}

impl NextStep {
    /// Every way it may lead, in order.
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
    /// Every way out of it: by `next`, then by `on_error`.
    pub fn exits(&self) -> impl Iterator<Item = &Target> {
        self.next.targets().chain(self.on_error.iter().flat_map(NextStep::targets))
    }
}

impl Flow {
    /// Whether this is one of the conversation patterns.
    pub fn is_pattern(&self) -> bool {
        self.id.as_str().starts_with("pattern_")
    }
    /// Whether only other flows may start it: its guard is literally false. Nobody needs to find it.
    pub fn is_link_only(&self) -> bool {
        self.guard.as_ref().and_then(Condition::as_constant) == Some(false)
    }
    /// A step by id. An id of an older generation, without the flow's name in front, is found as well.
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
    /// The entry.
    pub fn first(&self) -> Option<&Step> {
        self.steps.first()
    }
    /// All collect steps of this flow itself; called flows are not followed.
    pub fn collects(&self) -> impl Iterator<Item = (&Step, &Collect)> {
        self.steps.iter().filter_map(|step| match &step.kind {
            StepKind::Collect(collect) => Some((step, &**collect)),
            _ => None,
        })
    }
}

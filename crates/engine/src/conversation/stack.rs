//! What is under way: frames, bottom first. Data only; the dialogue engine moves them.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::{FilledBy, StepError};
use crate::ids::{ActionName, AgentName, FlowId, FrameId, ResponseName, SlotName, StepId};

/// The frames of a conversation, bottom first.
///
/// A copy shares them until one of the two is changed: an advance works on a copy, its event holds it, and the conversation takes it
/// from there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Stack(Arc<Vec<Frame>>);

/// One frame: a flow, a pattern or an agent that is under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// Its id, unique in the conversation.
    pub frame_id: FrameId,
    /// The flow it walks; for an agent, the flow that called it.
    pub flow_id: FlowId,
    /// Where in that flow.
    pub at: Position,
    /// What it is.
    #[serde(flatten)]
    pub kind: FrameKind,
    /// The way from the flow's beginning to here: the steps that ask, call, act or branch. A value that changes leads back to
    /// the first of them that has used it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trail: Vec<StepId>,
    /// What the flow could still do from here when the frame came to this place ([`crate::project::Step::reach`]); 0 = not
    /// known. Tells whether a change of the flow concerns this frame.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reach: u32,
    /// Actions and tool calls of the flow, and of the flows it called, that ran: a correction that leads past them again
    /// does not run them again unless what they read has changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ran: Vec<CompletedStep>,
    /// Why the latest step of it that failed did so, for conditions and texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<StepError>>,
    /// Since another flow came in between: the slots that the steps of the trail have used, each with a hash of its value
    /// then. What is different when this flow goes on leads back as a correction does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aside: Vec<(SlotName, u32)>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the form that serde asks for
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Frame {
    /// Whether it walks a flow of the author.
    pub fn is_flow(&self) -> bool {
        matches!(self.kind, FrameKind::Flow { .. })
    }
    /// Whether it walks a pattern.
    pub fn is_pattern(&self) -> bool {
        self.pattern().is_some()
    }
    /// Whether it is an agent.
    pub fn is_agent(&self) -> bool {
        self.agent().is_some()
    }
    /// What a pattern knows.
    pub fn pattern(&self) -> Option<&PatternFrame> {
        match &self.kind {
            FrameKind::Pattern { context } => Some(context),
            _ => None,
        }
    }
    /// What a pattern knows, to change it.
    pub fn pattern_mut(&mut self) -> Option<&mut PatternFrame> {
        match &mut self.kind {
            FrameKind::Pattern { context } => Some(context),
            _ => None,
        }
    }
    /// The agent.
    pub fn agent(&self) -> Option<&AgentFrame> {
        match &self.kind {
            FrameKind::Agent(agent) => Some(agent),
            _ => None,
        }
    }
    /// The agent, to change it.
    pub fn agent_mut(&mut self) -> Option<&mut AgentFrame> {
        match &mut self.kind {
            FrameKind::Agent(agent) => Some(agent),
            _ => None,
        }
    }
}

/// An action or a tool call that ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompletedStep {
    /// The flow it stands in: the frame's own, or one that it called.
    pub flow: FlowId,
    /// Its step.
    pub step: StepId,
    /// A hash of the slots it may read, as they were when it had run.
    pub inputs: u32,
    /// How many steps the trail had then: going back to one of those does not lead past it again.
    pub after: u32,
    /// Whether a correction went back past it, and it has not been come to since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub passed: bool,
}

/// Where a frame stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Position {
    /// Before its first step.
    Start,
    /// This step ran; its `next` says what follows.
    At(StepId),
    /// This step runs next.
    Before(StepId),
    /// It is over and will be taken down.
    End,
}

/// What a frame is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FrameKind {
    /// A flow of the author.
    Flow {
        /// How it came onto the stack.
        frame_type: FlowFrameType,
    },
    /// A pattern.
    Pattern {
        /// What it knows.
        context: PatternFrame,
    },
    /// An agent, above the flow that called it.
    Agent(AgentFrame),
}

/// How a flow came onto the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowFrameType {
    /// Started when nothing else was under way.
    Regular,
    /// Started while another flow was under way.
    Interrupt,
    /// Reached by `link`.
    Link,
    /// Reached by `call`.
    Call,
}

/// What a pattern's frame knows; its keys are `context.…` in conditions and templates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "pattern", rename_all = "snake_case")]
pub enum PatternFrame {
    /// Asking for a slot.
    CollectInformation {
        /// The slot.
        collect: SlotName,
        /// The question.
        utter: ResponseName,
        /// The action that asks instead.
        collect_action: ActionName,
        /// The collect step, which holds the rejections; in the frame below.
        step_id: StepId,
    },
    /// A slot with `validation` was set.
    ValidateSlot {
        /// The slot.
        validate: SlotName,
        /// The question after a refusal.
        refill_utter: ResponseName,
        /// The action that asks instead.
        refill_action: ActionName,
    },
    /// Slots are being corrected.
    Correction {
        /// Whether the flow only asks again.
        is_reset_only: bool,
        /// New values by slot.
        corrected_slots: Map<String, Json>,
        /// The flow to go back in.
        reset_flow_id: Option<FlowId>,
        /// The step to go back to.
        reset_step_id: Option<StepId>,
        /// The new values, for texts.
        new_slot_values: Vec<Json>,
        /// Who gave them; a frame of an older program does not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filled_by: Option<FilledBy>,
    },
    /// A flow is being stopped.
    CancelFlow {
        /// Its readable name.
        canceled_name: String,
        /// The frames that end.
        canceled_frames: Vec<FrameId>,
    },
    /// Which flow was meant?
    Clarification {
        /// Readable names.
        names: Vec<String>,
        /// The flows.
        options: Vec<FlowId>,
        /// The names as an enumeration, made by `action_clarify_flows`.
        clarification_options: String,
    },
    /// A flow completed and nothing is left.
    Completed {
        /// Its readable name.
        previous_flow_name: String,
    },
    /// An interrupting flow ended.
    ContinueInterrupted {
        /// Readable names.
        interrupted_flow_names: Vec<String>,
        /// The flows.
        interrupted_flow_ids: Vec<FlowId>,
        /// The names as an enumeration.
        interrupted_flow_options: String,
        /// Whether there are several.
        multiple_flows_interrupted: bool,
        /// The readable name of the one that goes on next if nobody asks; what the format had before 3.14.
        #[serde(default)]
        previous_flow_name: String,
    },
    /// Something went wrong on our side.
    InternalError {
        /// The kind.
        error_type: String,
        /// Facts.
        info: Map<String, Json>,
    },
    /// The message could not be handled.
    CannotHandle {
        /// Why.
        reason: String,
    },
    /// Knowledge is being searched for the step that asked for it; above that step's frame and never there between turns.
    Search,
    /// A pattern without facts of its own.
    Plain,
}

/// An agent that has begun a task and not finished it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentFrame {
    /// The agent.
    pub agent_id: AgentName,
    /// Where it stands.
    pub state: AgentState,
    /// Whether the task had been completed before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_restart: bool,
    /// What the agent wants to find again at its next turn.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Json>,
}

/// Where an agent's frame stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    /// It asked the user something.
    WaitingForInput,
    /// The user turned to something else.
    Interrupted,
    /// It is about to be invoked again after an interruption.
    Resuming,
    /// The user answered; it is about to be invoked with that.
    Continuing,
    /// It completed before and is about to begin anew.
    Restarting,
}

impl From<Vec<Frame>> for Stack {
    fn from(frames: Vec<Frame>) -> Self {
        Self(Arc::new(frames))
    }
}

impl Deref for Stack {
    type Target = Vec<Frame>;
    fn deref(&self) -> &Vec<Frame> {
        &self.0
    }
}

/// Parts the copies, if there are any. For the dialogue engine, which records each change as an event.
impl DerefMut for Stack {
    fn deref_mut(&mut self) -> &mut Vec<Frame> {
        Arc::make_mut(&mut self.0)
    }
}

impl Stack {
    /// Bottom first.
    pub fn frames(&self) -> &[Frame] {
        &self.0
    }
    /// Bottom first, to keep.
    pub fn into_frames(self) -> Vec<Frame> {
        Arc::unwrap_or_clone(self.0)
    }
    /// The frame on top.
    pub fn top(&self) -> Option<&Frame> {
        self.0.last()
    }
    /// Whether it is a copy that nobody has changed.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
    /// The topmost frame that walks a flow of the author, called and linked ones included.
    pub fn top_user_frame(&self) -> Option<&Frame> {
        self.0.iter().rev().find(|frame| frame.is_flow())
    }
    /// The agent on top, if it waits for the user.
    pub fn waiting_agent(&self) -> Option<&AgentFrame> {
        match &self.top()?.kind {
            FrameKind::Agent(agent) if agent.state == AgentState::WaitingForInput => Some(agent),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn frame(id: &str) -> Frame {
        Frame {
            frame_id: FrameId::from(id),
            flow_id: FlowId::from("flow"),
            at: Position::Start,
            kind: FrameKind::Flow { frame_type: FlowFrameType::Regular },
            trail: Vec::new(),
            reach: 0,
            ran: Vec::new(),
            error: None,
            aside: Vec::new(),
        }
    }

    #[test]
    fn a_copy_shares_its_frames_until_one_of_the_two_is_changed() {
        let stack = Stack::from(vec![frame("1")]);
        let mut copy = stack.clone();
        assert!(copy.is_same(&stack) && copy.top() == stack.top());
        copy.last_mut().unwrap().at = Position::End;
        assert!(!copy.is_same(&stack));
        assert_eq!((&stack.top().unwrap().at, &copy.top().unwrap().at), (&Position::Start, &Position::End));
        copy.last_mut().unwrap().at = Position::Start;
        assert!(copy == stack && !copy.is_same(&stack), "the same frames, but not the same copy");
        copy.push(frame("2"));
        let (one, two) = (stack.into_frames(), copy.into_frames());
        assert_eq!((one.len(), two.len()), (1, 2));
    }
}

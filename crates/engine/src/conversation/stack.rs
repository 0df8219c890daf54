//! The stack of active flows, patterns and agents. Data only; the dialogue engine changes it.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::{FilledBy, StepError, Writes};
use crate::ids::{ActionName, AgentName, FlowId, FrameId, ResponseName, SlotName, StepId};

/// The frames of a conversation, bottom first.
///
/// A clone shares the frames until one of the two is changed: an advance works on a clone, its event contains it, and
/// the conversation takes it from there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Stack(Arc<Vec<Frame>>);

/// A frame: an active flow, pattern or agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// The id, unique in the conversation.
    pub frame_id: FrameId,
    /// The flow it runs; for an agent, the calling flow.
    pub flow_id: FlowId,
    /// The position in that flow.
    pub at: Position,
    /// The kind of frame.
    #[serde(flatten)]
    pub kind: FrameKind,
    /// The steps from the start of the flow to the current position that ask, call, act or branch. A changed slot value
    /// leads back to the first of them that has used it.
    #[serde(default, rename = "trail", skip_serializing_if = "Vec::is_empty")]
    pub visited_steps: Vec<StepId>,
    /// Hash of what could still happen in the flow from here when the frame reached this position
    /// ([`crate::project::Step::continuation_hash`]); 0 = not known. Shows whether a change of the project concerns this frame.
    #[serde(default, rename = "reach", skip_serializing_if = "is_zero")]
    pub continuation_hash: u32,
    /// Completed actions and tool calls of the flow and of the flows it called. A correction that passes them again
    /// does not run them again unless their inputs have changed.
    #[serde(default, rename = "ran", skip_serializing_if = "Vec::is_empty")]
    pub completed_steps: Vec<CompletedStep>,
    /// The error of the step that failed most recently, for conditions and texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<StepError>>,
    /// While another flow interrupts this one: the slots that the visited steps have used, each with a hash of its
    /// value at the interruption. A value that differs when this flow resumes leads back like a correction.
    #[serde(default, rename = "aside", skip_serializing_if = "Vec::is_empty")]
    pub used_slot_hashes: Vec<(SlotName, u32)>,
    /// What the flow and the flows and agents it called have changed outside the program. If it fails, the user is told.
    #[serde(default, skip_serializing_if = "Writes::is_empty")]
    pub writes: Writes,
    /// Values that the user gave for this flow while another one ran first. They are set when this flow begins or
    /// resumes.
    #[serde(default, rename = "values", skip_serializing_if = "Vec::is_empty")]
    pub kept_values: Vec<KeptValue>,
    /// While a tool call of the flow waits for values (MCP elicitation): how often it has asked for each slot.
    #[serde(default, rename = "asked_by_tool", skip_serializing_if = "Vec::is_empty")]
    pub tool_questions: Vec<(SlotName, u32)>,
}

/// A value that is kept for a flow which has not begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptValue {
    /// The slot.
    pub slot: SlotName,
    /// The value, of the type of the slot.
    pub value: Json,
    /// The source of the value.
    pub filled_by: FilledBy,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Frame {
    /// Whether it is a flow of the project.
    pub fn is_flow(&self) -> bool {
        matches!(self.kind, FrameKind::Flow { .. })
    }
    /// Whether it is a pattern.
    pub fn is_pattern(&self) -> bool {
        self.pattern().is_some()
    }
    /// Whether it is an agent.
    pub fn is_agent(&self) -> bool {
        self.agent().is_some()
    }
    /// The context of a pattern.
    pub fn pattern(&self) -> Option<&PatternFrame> {
        match &self.kind {
            FrameKind::Pattern { context } => Some(context),
            _ => None,
        }
    }
    /// The context of a pattern, mutable.
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
    /// The agent, mutable.
    pub fn agent_mut(&mut self) -> Option<&mut AgentFrame> {
        match &mut self.kind {
            FrameKind::Agent(agent) => Some(agent),
            _ => None,
        }
    }
}

/// A completed action or tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompletedStep {
    /// The flow that contains it: the frame's own, or one that it called.
    pub flow: FlowId,
    /// The step.
    pub step: StepId,
    /// A hash of its input slots after it had run.
    #[serde(rename = "inputs")]
    pub input_hash: u32,
    /// Number of visited steps at that time. Going back to an earlier step leads past this one again.
    #[serde(rename = "after")]
    pub visited_count: u32,
    /// Whether a correction went back past it and the flow has not reached it since; it may then be skipped once.
    #[serde(default, rename = "passed", skip_serializing_if = "std::ops::Not::not")]
    pub skippable: bool,
}

/// The position of a frame in its flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Position {
    /// Before the first step.
    Start,
    /// At this step, which ran; its `next` determines what follows.
    At(StepId),
    /// This step runs next.
    Before(StepId),
    /// At the end; the frame will be removed.
    End,
}

/// The kind of a frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FrameKind {
    /// A flow of the project.
    Flow {
        /// How it came onto the stack.
        frame_type: FlowFrameType,
    },
    /// A pattern.
    Pattern {
        /// The context of the pattern.
        context: PatternFrame,
    },
    /// An agent, above the flow that called it.
    Agent(AgentFrame),
}

/// How a flow came onto the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowFrameType {
    /// Started when no other flow was active.
    Regular,
    /// Started while another flow was active.
    Interrupt,
    /// Reached by `link`.
    Link,
    /// Reached by `call`.
    Call,
}

/// The context of a pattern's frame; its keys are `context.…` in conditions and templates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "pattern", rename_all = "snake_case")]
pub enum PatternFrame {
    /// A slot is being collected.
    CollectInformation {
        /// The slot.
        collect: SlotName,
        /// The response that asks.
        utter: ResponseName,
        /// The action that asks instead.
        collect_action: ActionName,
        /// The collect step in the frame below; it defines the rejections.
        step_id: StepId,
    },
    /// A slot with `validation` was set and is being checked.
    ValidateSlot {
        /// The slot.
        validate: SlotName,
        /// The response that asks again after a rejection.
        refill_utter: ResponseName,
        /// The action that asks instead.
        refill_action: ActionName,
    },
    /// Slots are being corrected.
    Correction {
        /// Whether the slots are only asked for again.
        is_reset_only: bool,
        /// New values by slot.
        corrected_slots: Map<String, Json>,
        /// The flow that goes back.
        reset_flow_id: Option<FlowId>,
        /// The step to go back to.
        reset_step_id: Option<StepId>,
        /// The new values, for texts.
        new_slot_values: Vec<Json>,
        /// The source of the values; frames of older releases do not contain it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filled_by: Option<FilledBy>,
    },
    /// A flow is being cancelled.
    CancelFlow {
        /// The display name of the flow.
        canceled_name: String,
        /// The frames that end.
        canceled_frames: Vec<FrameId>,
    },
    /// The user is asked which flow they mean.
    Clarification {
        /// Display names of the flows.
        names: Vec<String>,
        /// The flows.
        options: Vec<FlowId>,
        /// The names as an enumeration, generated by `action_clarify_flows`.
        clarification_options: String,
    },
    /// A flow completed and the stack is empty.
    Completed {
        /// The display name of the flow.
        previous_flow_name: String,
    },
    /// An interrupting flow ended.
    ContinueInterrupted {
        /// Display names of the flows.
        interrupted_flow_names: Vec<String>,
        /// The flows.
        interrupted_flow_ids: Vec<FlowId>,
        /// The names as an enumeration.
        interrupted_flow_options: String,
        /// Whether there are several.
        multiple_flows_interrupted: bool,
        /// The display name of the flow that resumes next without a question; the format before CALM 3.14.
        #[serde(default)]
        previous_flow_name: String,
    },
    /// An internal error occurred.
    InternalError {
        /// The error type.
        error_type: String,
        /// Further values.
        info: Map<String, Json>,
    },
    /// The message could not be handled.
    CannotHandle {
        /// The reason.
        reason: String,
    },
    /// Documents are being searched for the step in the frame below; never on the stack between turns.
    Search,
    /// A pattern without a context of its own.
    Plain,
}

/// An agent with an unfinished task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentFrame {
    /// The agent.
    pub agent_id: AgentName,
    /// The state.
    pub state: AgentState,
    /// Whether the agent had completed the task before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_restart: bool,
    /// State of the agent for its next turn.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Json>,
}

/// The state of an agent's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    /// It waits for the user's answer.
    WaitingForInput,
    /// The user changed the subject.
    Interrupted,
    /// It is about to be invoked after an interruption.
    Resuming,
    /// It is about to be invoked with the user's answer.
    Continuing,
    /// It completed before and is about to restart.
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

/// Unshares the frames if clones exist. For the dialogue engine, which records each change as an event.
impl DerefMut for Stack {
    fn deref_mut(&mut self) -> &mut Vec<Frame> {
        Arc::make_mut(&mut self.0)
    }
}

impl Stack {
    /// The frames, bottom first.
    pub fn frames(&self) -> &[Frame] {
        &self.0
    }
    /// The owned frames, bottom first.
    pub fn into_frames(self) -> Vec<Frame> {
        Arc::unwrap_or_clone(self.0)
    }
    /// The frame on top.
    pub fn top(&self) -> Option<&Frame> {
        self.0.last()
    }
    /// Whether both are unchanged clones that share their frames.
    pub fn shares_frames_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
    /// The topmost frame of a project flow, called and linked flows included.
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
            visited_steps: Vec::new(),
            continuation_hash: 0,
            completed_steps: Vec::new(),
            error: None,
            used_slot_hashes: Vec::new(),
            writes: Default::default(),
            kept_values: Vec::new(),
            tool_questions: Vec::new(),
        }
    }

    #[test]
    fn clone_shares_frames_until_one_side_changes() {
        let stack = Stack::from(vec![frame("1")]);
        let mut copy = stack.clone();
        assert!(copy.shares_frames_with(&stack) && copy.top() == stack.top());
        copy.last_mut().unwrap().at = Position::End;
        assert!(!copy.shares_frames_with(&stack));
        assert_eq!((&stack.top().unwrap().at, &copy.top().unwrap().at), (&Position::Start, &Position::End));
        copy.last_mut().unwrap().at = Position::Start;
        assert!(copy == stack && !copy.shares_frames_with(&stack), "equal frames that are not shared");
        copy.push(frame("2"));
        let (one, two) = (stack.into_frames(), copy.into_frames());
        assert_eq!((one.len(), two.len()), (1, 2));
    }
}

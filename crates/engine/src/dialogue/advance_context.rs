//! The working state of one [`advance`](super::advance): the conversation, the copy of its stack, and the recorded
//! events.

use super::{Advance, Next, Reason, eval_scope::EvalScope};
use crate::{
    condition::Condition,
    conversation::{
        ActionCall, ActionOrigin, Command, Conversation, Event, EventKind, FilledBy, FlowLocation, Frame, FrameKind,
        PendingEffect, Position, Stack,
    },
    ids::{ActionName, FlowId, FrameId, SlotName, StepId},
    limits,
    project::{LANGUAGE, Project},
    time::Timestamp,
};
use serde_json::Value as Json;

/// The result of one step.
pub(super) enum StepResult {
    /// Execute the next step.
    Continue,
    /// Return this to the runtime.
    Return(Next),
}

/// The working state of one advance; a turn consists of several.
pub(super) struct AdvanceContext<'a> {
    /// The project. It outlives the context, so that parts of it can be borrowed while the context changes.
    pub(super) project: &'a Project,
    conversation: &'a mut Conversation,
    /// The time of the input.
    pub(super) at: Timestamp,
    seed: u64,
    /// The current stack. The stack of the conversation is the previous one until [`AdvanceContext::finish`].
    pub(super) stack: Stack,
    /// The pending effect. As with the stack, the conversation has the previous one.
    pub(super) pending: Option<PendingEffect>,
    next_frame: u64,
    events: Vec<Event>,
    reasons: Vec<Reason>,
    /// Number of steps executed in this advance.
    pub(super) steps: usize,
    /// Whether a flow has exceeded its limit in this advance.
    pub(super) breaker_tripped: bool,
    /// Number of frames that stay on the stack when the budget is exhausted: only the frames above them run, and no
    /// effect is performed.
    pub(super) protected_frames: Option<usize>,
    /// Whether the newest message was reverted: then the turn listens.
    pub(super) rewound: bool,
}

impl<'a> AdvanceContext<'a> {
    /// Starts with the stack of the conversation.
    pub(super) fn begin(project: &'a Project, conversation: &'a mut Conversation, at: Timestamp, seed: u64) -> Self {
        Self {
            project,
            at,
            seed,
            stack: conversation.stack.clone(),
            pending: conversation.pending.clone(),
            next_frame: conversation.next_frame,
            conversation,
            events: Vec::new(),
            reasons: Vec::new(),
            steps: 0,
            breaker_tripped: false,
            protected_frames: None,
            rewound: false,
        }
    }

    /// Records the stack and the pending effect if they changed, and returns the result.
    pub(super) fn finish(mut self, next: Next) -> Advance {
        let before = &self.conversation;
        let unchanged = self.stack.shares_frames_with(&before.stack) || self.stack == before.stack;
        if !unchanged || self.next_frame != before.next_frame || self.pending != before.pending {
            let (frames, pending) = (std::mem::take(&mut self.stack), self.pending.take());
            self.emit(EventKind::Stack { frames, next_frame: self.next_frame, pending });
        }
        Advance { events: self.events, next, reasons: self.reasons }
    }

    /// The current conversation, except for its stack.
    pub(super) fn conversation(&self) -> &Conversation {
        self.conversation
    }

    /// Whether the message of the turn was written before its sender got the question that was open.
    pub(super) fn is_before_question(&self) -> bool {
        let message = self.conversation.latest_message.as_ref().filter(|_| self.conversation.turn.by_message);
        message.is_some_and(|message| message.before_question)
    }

    /// A seed for random choices: it differs between the choices of a turn and is the same at every replay.
    pub(super) fn choice_seed(&self) -> u64 {
        self.seed.wrapping_add(self.conversation.events.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Requests a custom action.
    pub(super) fn request_action(&mut self, name: ActionName, asked_by: ActionOrigin) -> Next {
        self.pending = Some(PendingEffect::Action { name: name.clone(), asked_by });
        Next::Act(ActionCall { name })
    }

    /// Applies and records an event that belongs to no flow.
    pub(super) fn emit(&mut self, kind: EventKind) {
        self.record(Event { at: self.at, kind, location: FlowLocation::default() });
    }

    /// Applies and records an event of the frame on top.
    pub(super) fn emit_in_top_frame(&mut self, kind: EventKind) {
        let location = self.stack.last().map(location_of).unwrap_or_default();
        self.record(Event { at: self.at, kind, location });
    }

    /// Applies and records an event of that frame.
    pub(super) fn emit_at(&mut self, frame: &Frame, kind: EventKind) {
        self.record(Event { at: self.at, kind, location: location_of(frame) });
    }

    /// Reloads the stack from the conversation after an event restored it.
    pub(super) fn reload_stack(&mut self) {
        self.stack = self.conversation.stack.clone();
    }

    /// Applies and records an event.
    pub(super) fn record(&mut self, event: Event) {
        if let Some(note) = self.write_once_violation(&event.kind) {
            return self.add_note(note);
        }
        self.conversation.apply(&event);
        self.events.push(event);
    }

    /// Why an event may not set its slot: the slot is `write_once`, and it has a value, or a model or a user would fill it.
    fn write_once_violation(&self, kind: &EventKind) -> Option<String> {
        let EventKind::Slot { name, value, filled_by, .. } = kind else { return None };
        self.project.slot(name.as_str()).filter(|slot| slot.write_once)?;
        let has_value = !self.slot(name.as_str()).is_null();
        match filled_by {
            // Code may take the value away, for example when the user logs out.
            Some(FilledBy::Custom) if !has_value || value.is_null() => None,
            Some(FilledBy::Flow) | None if !has_value => None,
            Some(FilledBy::Custom | FilledBy::Flow) | None => {
                Some(format!("`{name}` is `write_once` and has a value, so it stays as it is"))
            }
            Some(_) => {
                Some(format!("`{name}` is `write_once`: only actions, tool results and `set_slots` steps fill it"))
            }
        }
    }

    /// Records a slot value; the caller has normalised it.
    pub(super) fn set_slot(&mut self, name: &SlotName, value: Json, by: FilledBy) {
        self.emit_in_top_frame(EventKind::Slot { name: name.clone(), value, filled_by: Some(by), reset: false });
    }

    /// Adds a reason.
    pub(super) fn add_reason(&mut self, reason: Reason) {
        self.reasons.push(reason);
    }

    /// Adds a [`Reason::Note`].
    pub(super) fn add_note(&mut self, text: impl Into<String>) {
        self.reasons.push(Reason::Note { text: text.into() });
    }

    /// Adds a [`Reason::Dropped`].
    pub(super) fn add_dropped(&mut self, command: Command, rule: &str) {
        self.reasons.push(Reason::Dropped { command, rule: rule.to_owned() });
    }

    /// The current scope of conditions and templates.
    pub(super) fn scope(&self) -> EvalScope<'_> {
        EvalScope::new(self.project, self.conversation, &self.stack)
    }

    /// Whether a condition holds; an error is recorded and counts as false.
    pub(super) fn holds(&mut self, condition: &Condition) -> bool {
        let outcome = self.scope().eval(condition);
        if let Some(error) = outcome.error {
            self.add_reason(Reason::Condition { condition: condition.text().to_owned(), error });
        }
        outcome.holds
    }

    /// The value of a slot: what was set, else its initial value, else null.
    pub(super) fn slot(&self, name: &str) -> &Json {
        static NULL: Json = Json::Null;
        self.conversation.set_value(name).or_else(|| self.project.slot(name).map(|slot| &slot.initial)).unwrap_or(&NULL)
    }

    /// The display name of a flow, in the language of the conversation.
    pub(super) fn flow_name(&self, flow: &FlowId) -> String {
        let project = self.project;
        let Some(known) = project.flow(flow.as_str()) else { return flow.to_string() };
        if known.translations.is_empty() {
            return known.name.to_string();
        }
        known.name_in(self.slot(LANGUAGE).as_str().unwrap_or_default()).to_string()
    }

    /// A new frame before the first step of a flow.
    pub(super) fn frame(&mut self, flow_id: &FlowId, kind: FrameKind) -> Frame {
        self.next_frame += 1;
        let frame_id = FrameId::from(self.next_frame.to_string());
        Frame {
            frame_id,
            flow_id: flow_id.clone(),
            at: Position::Start,
            kind,
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

    /// Pushes a frame; false when the stack is full. Flows leave space for collect steps and patterns above them.
    pub(super) fn push(&mut self, frame: Frame) -> bool {
        let is_flow = frame.is_flow();
        let headroom = if is_flow { 0 } else { limits::STACK_HEADROOM };
        let fits = self.stack.len() < limits::STACK_FRAMES + headroom;
        if fits {
            self.stack.push(frame);
        } else {
            self.add_note(format!(
                "the stack already has {} frames, so `{}` is not added",
                self.stack.len(),
                frame.flow_id
            ));
        }
        fits
    }
}

/// The flow and step of a frame, for events.
pub(super) fn location_of(frame: &Frame) -> FlowLocation {
    FlowLocation { active_flow: Some(frame.flow_id.clone()), step_id: step_of(frame).cloned() }
}

/// The step of a frame, if any.
pub(super) fn step_of(frame: &Frame) -> Option<&StepId> {
    match &frame.at {
        Position::At(step) | Position::Before(step) => Some(step),
        Position::Start | Position::End => None,
    }
}

/// The step of a frame for events that require one: `START` or `END` outside the steps.
pub(super) fn step_or_end(frame: &Frame) -> StepId {
    step_of(frame).cloned().unwrap_or_else(|| StepId::from(if frame.at == Position::Start { "START" } else { "END" }))
}

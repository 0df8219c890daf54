//! One advance at work: the conversation, the copy of its stack, and what has been recorded so far.

use super::{Advance, Next, Reason, context::View};
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

/// What one step of the walk came to.
pub(super) enum Walk {
    /// Walk on.
    On,
    /// Stop here: this must be done first.
    Stop(Next),
}

/// One advance at work.
pub(super) struct Turn<'a> {
    /// The project; outlives the turn, so parts of it can be held while the turn changes.
    pub(super) project: &'a Project,
    conversation: &'a mut Conversation,
    /// The time of the input.
    pub(super) at: Timestamp,
    seed: u64,
    /// The stack as it is now; the conversation's own is the one from before until [`Turn::finish`].
    pub(super) stack: Stack,
    /// The effect that was asked for; as the stack, the conversation's own is the one from before.
    pub(super) pending: Option<PendingEffect>,
    next_frame: u64,
    events: Vec<Event>,
    why: Vec<Reason>,
    /// Steps walked in this advance.
    pub(super) steps: usize,
    /// Whether the breaker has tripped in this advance.
    pub(super) tripped: bool,
    /// Frames that must stay: with the turn's budget spent, only what lies above is walked, and nothing is performed.
    pub(super) floor: Option<usize>,
    /// Whether the newest message was taken back: then the turn listens.
    pub(super) rewound: bool,
}

impl<'a> Turn<'a> {
    /// Begins with the stack of the conversation.
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
            why: Vec::new(),
            steps: 0,
            tripped: false,
            floor: None,
            rewound: false,
        }
    }

    /// Records the stack and the pending effect if they changed, and hands out what happened.
    pub(super) fn finish(mut self, next: Next) -> Advance {
        let before = &self.conversation;
        let unchanged = self.stack.is_same(&before.stack) || self.stack == before.stack;
        if !unchanged || self.next_frame != before.next_frame || self.pending != before.pending {
            let (frames, pending) = (std::mem::take(&mut self.stack), self.pending.take());
            self.emit(EventKind::Stack { frames, next_frame: self.next_frame, pending });
        }
        Advance { events: self.events, next, why: self.why }
    }

    /// The conversation as it stands, but for its stack.
    pub(super) fn conversation(&self) -> &Conversation {
        self.conversation
    }

    /// A number for choices among equals: it differs from place to place in a turn and is the same at every replay.
    pub(super) fn lot(&self) -> u64 {
        self.seed.wrapping_add(self.conversation.events.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Asks for a custom action.
    pub(super) fn act(&mut self, name: ActionName, asked_by: ActionOrigin) -> Next {
        self.pending = Some(PendingEffect::Action { name: name.clone(), asked_by });
        Next::Act(ActionCall { name })
    }

    /// Applies and records an event that belongs to no flow.
    pub(super) fn emit(&mut self, kind: EventKind) {
        self.record(Event { at: self.at, kind, place: FlowLocation::default() });
    }

    /// Applies and records an event of the frame on top.
    pub(super) fn emit_here(&mut self, kind: EventKind) {
        let place = self.stack.last().map(place_of).unwrap_or_default();
        self.record(Event { at: self.at, kind, place });
    }

    /// Applies and records an event of that frame.
    pub(super) fn emit_at(&mut self, frame: &Frame, kind: EventKind) {
        self.record(Event { at: self.at, kind, place: place_of(frame) });
    }

    /// Takes the stack as the conversation has it: an event has just put it back.
    pub(super) fn reload_stack(&mut self) {
        self.stack = self.conversation.stack.clone();
    }

    /// Applies and records an event as it is.
    pub(super) fn record(&mut self, event: Event) {
        self.conversation.apply(&event);
        self.events.push(event);
    }

    /// Records a value; the caller has settled its type.
    pub(super) fn set_slot(&mut self, name: &SlotName, value: Json, by: FilledBy) {
        self.emit_here(EventKind::Slot { name: name.clone(), value, filled_by: Some(by), reset: false });
    }

    /// A line for the record of why.
    pub(super) fn because(&mut self, reason: Reason) {
        self.why.push(reason);
    }

    /// A remark for the record of why.
    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.why.push(Reason::Note { text: text.into() });
    }

    /// Notes that a command was dropped.
    pub(super) fn dropped(&mut self, command: Command, rule: &str) {
        self.why.push(Reason::Dropped { command, rule: rule.to_owned() });
    }

    /// Everything a condition or a text may look at, now.
    pub(super) fn view(&self) -> View<'_> {
        View::new(self.project, self.conversation, &self.stack)
    }

    /// Whether a condition holds; trouble is noted and counts as false.
    pub(super) fn holds(&mut self, condition: &Condition) -> bool {
        let outcome = self.view().eval(condition);
        if let Some(trouble) = outcome.error {
            self.because(Reason::Condition { condition: condition.text().to_owned(), trouble });
        }
        outcome.holds
    }

    /// The value of a slot: what was set, else its initial value, else null.
    pub(super) fn slot(&self, name: &str) -> &Json {
        static NULL: Json = Json::Null;
        self.conversation.set_value(name).or_else(|| self.project.slot(name).map(|slot| &slot.initial)).unwrap_or(&NULL)
    }

    /// The readable name of a flow, in the language of the conversation.
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
            trail: Vec::new(),
            reach: 0,
            ran: Vec::new(),
            error: None,
            aside: Vec::new(),
        }
    }

    /// Puts a frame on top; false when the stack is full. A flow leaves room for what is asked and said about it.
    pub(super) fn push(&mut self, frame: Frame) -> bool {
        let is_flow = frame.is_flow();
        let room = if is_flow { 0 } else { limits::STACK_HEADROOM };
        let fits = self.stack.len() < limits::STACK_FRAMES + room;
        if fits {
            self.stack.push(frame);
        } else {
            self.note(format!("the stack holds {} frames already, `{}` is left out", self.stack.len(), frame.flow_id));
        }
        fits
    }
}

/// The flow and step of a frame, for events.
pub(super) fn place_of(frame: &Frame) -> FlowLocation {
    FlowLocation { active_flow: Some(frame.flow_id.clone()), step_id: step_of(frame).cloned() }
}

/// The step a frame stands at, if at any.
pub(super) fn step_of(frame: &Frame) -> Option<&StepId> {
    match &frame.at {
        Position::At(step) | Position::Before(step) => Some(step),
        Position::Start | Position::End => None,
    }
}

/// The step of a frame for events that need one.
pub(super) fn step_or_end(frame: &Frame) -> StepId {
    step_of(frame).cloned().unwrap_or_else(|| StepId::from(if frame.at == Position::Start { "START" } else { "END" }))
}

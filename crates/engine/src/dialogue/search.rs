//! Knowledge: a step asks for it, the world finds it, the answer is said; then whatever was under way goes on.
//!
//! While the world searches, a frame stands above the step that asked. It is never there when the user writes: a turn that
//! was cut takes it down.

use serde_json::{Map, Value as Json};

use super::{
    Next, interrupt, patterns,
    turn::{Turn, Walk},
};
use crate::{
    conversation::{
        BotKind, BotMessage, EventKind, Frame, FrameKind, PatternFrame, PendingEffect, Position, Reply, SearchCall,
        SearchOutcome,
    },
    ids::FlowId,
    limits,
    project::{ActionReference, CalmVersion, Flow, StepKind, builtin::TRIGGER_SEARCH},
};

const NO_ANSWER: &str = "cannot_handle_no_relevant_answer";
const NOT_SUPPORTED: &str = "cannot_handle_not_supported";

/// `action_trigger_search`: puts the search on top. Without a policy nobody could answer, and the user is told so.
pub(super) fn trigger(turn: &mut Turn<'_>) {
    if turn.project.config.search.is_none() {
        return cannot_handle(turn, NOT_SUPPORTED);
    }
    let flow_id = turn.stack.last().map_or_else(|| FlowId::from(patterns::SEARCH), |top| top.flow_id.clone());
    let frame = turn.frame(&flow_id, FrameKind::Pattern { context: PatternFrame::Search });
    turn.push(frame);
}

/// Whether a frame is a search.
pub(super) fn is_search(frame: &Frame) -> bool {
    matches!(frame.pattern(), Some(PatternFrame::Search))
}

/// The walk came to a search.
pub(super) fn on_top(turn: &mut Turn<'_>) -> Walk {
    let ended = turn.stack.last().is_some_and(|top| top.at == Position::End);
    if ended || turn.floor.is_some() {
        if turn.floor.is_some() {
            turn.note("nothing is searched any more: the turn's budget is spent");
        }
        turn.stack.pop();
        return Walk::On;
    }
    let flow_id = turn.stack.last().map(|top| top.flow_id.clone()).unwrap_or_else(|| FlowId::from(patterns::SEARCH));
    turn.pending = Some(PendingEffect::Search);
    Walk::Stop(Next::Search(SearchCall { flow_id, at: turn.at }))
}

/// A message came while a search had not ended: that turn was cut. The old question is not searched again.
pub(super) fn abandon_search(turn: &mut Turn<'_>) {
    turn.stack.retain(|frame| !is_search(frame));
}

/// The search came back.
pub(super) fn searched(turn: &mut Turn<'_>, outcome: SearchOutcome) -> Next {
    if turn.pending != Some(PendingEffect::Search) {
        turn.note("a search came back that nobody waits for");
        return Next::Listen;
    }
    turn.pending = None;
    turn.stack.pop_if(|frame| is_search(frame));
    match outcome {
        SearchOutcome::Answered { mut message } if says_something(&message) => {
            message.kind = BotKind::Response;
            message.agent = None;
            turn.emit_here(EventKind::Bot(message));
        }
        SearchOutcome::Answered { .. } => {
            turn.note("the answer is empty");
            cannot_handle(turn, NO_ANSWER);
        }
        SearchOutcome::NoAnswer { reason } => {
            turn.note(format!("no answer from documents: {reason}"));
            cannot_handle(turn, NO_ANSWER);
        }
        SearchOutcome::Failed { reason, said } => {
            if let Some(said) = said {
                turn.emit_here(EventKind::Bot(said));
            }
            turn.note(format!("the search failed: {reason}"));
            failed(turn, &reason);
        }
    }
    turn.walk()
}

fn says_something(message: &BotMessage) -> bool {
    let blank = message.reply.text.as_deref().is_none_or(|text| text.trim().is_empty());
    !blank || !Reply { text: None, ..message.reply.clone() }.is_empty()
}

/// The end of the pattern that answers from documents. With nothing else under way it counts as the end of a
/// task. A flow under way asks its open question again; projects of the 3.16 generation are asked whether to go on with it.
pub(super) fn ended(turn: &mut Turn<'_>, frame: &Frame, flow: Option<&Flow>) {
    let asks =
        |kind: &StepKind| matches!(kind, StepKind::Action(ActionReference::Plain(name)) if *name == *TRIGGER_SEARCH);
    let answers = flow.is_some_and(|flow| flow.steps.iter().any(|step| asks(&step.kind)));
    if !answers || frame.flow_id != *patterns::SEARCH || turn.project.config.search.is_none() {
        return;
    }
    if !turn.stack.is_empty() {
        if turn.project.config.compat.patterns == CalmVersion::From3_16 {
            interrupt::offer_to_continue(turn);
        }
    } else if flow.is_some_and(|flow| flow.run_pattern_completed) {
        let previous_flow_name = turn.flow_name(&frame.flow_id);
        turn.push_pattern(patterns::COMPLETED, PatternFrame::Completed { previous_flow_name });
    }
}

fn cannot_handle(turn: &mut Turn<'_>, reason: &str) {
    let reason = reason.to_owned();
    if !turn.push_pattern(patterns::CANNOT_HANDLE, PatternFrame::CannotHandle { reason }) {
        turn.say("utter_ask_rephrase", &Map::new());
    }
}

/// What is under way goes on: a question that could not be answered is no reason to give it up.
fn failed(turn: &mut Turn<'_>, reason: &str) {
    let reason: String = reason.chars().take(limits::TOOL_SUMMARY).collect();
    let info = Map::from_iter([
        ("error_source".to_owned(), Json::from("knowledge")),
        ("error_message".to_owned(), Json::from(reason)),
    ]);
    let error_type = "rasa_internal_error_default".to_owned();
    if !turn.push_pattern(patterns::INTERNAL_ERROR, PatternFrame::InternalError { error_type, info }) {
        turn.say(super::reply::INTERNAL_ERROR, &Map::new());
    }
}

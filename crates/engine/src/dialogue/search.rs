//! Document search (enterprise search): a step requests it, the runtime performs it, and the answer is sent; then the
//! active flow continues.
//!
//! During the search, a frame is above the step that requested it. It is never there when a user message arrives: an
//! interrupted turn removes it.

use serde_json::{Map, Value as Json};

use super::{
    Next,
    advance_context::{AdvanceContext, StepResult},
    chains, patterns,
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

/// `action_trigger_search`: pushes the search frame. Without a search policy the user is notified that this is not
/// supported.
pub(super) fn trigger(turn: &mut AdvanceContext<'_>) {
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

/// Runs the search whose frame is on top.
pub(super) fn run_top_search(turn: &mut AdvanceContext<'_>) -> StepResult {
    let ended = turn.stack.last().is_some_and(|top| top.at == Position::End);
    if ended || turn.protected_frames.is_some() {
        if turn.protected_frames.is_some() {
            turn.add_note("the search does not run: the budget of the turn is exhausted");
        }
        turn.stack.pop();
        return StepResult::Continue;
    }
    let flow_id = turn.stack.last().map(|top| top.flow_id.clone()).unwrap_or_else(|| FlowId::from(patterns::SEARCH));
    turn.pending = Some(PendingEffect::Search);
    StepResult::Return(Next::Search(SearchCall { flow_id, at: turn.at }))
}

/// A message arrived while a search was pending: the search is dropped and not repeated.
pub(super) fn abandon_search(turn: &mut AdvanceContext<'_>) {
    turn.stack.retain(|frame| !is_search(frame));
}

/// Handles the outcome of a search.
pub(super) fn on_search_outcome(turn: &mut AdvanceContext<'_>, outcome: SearchOutcome) -> Next {
    if turn.pending != Some(PendingEffect::Search) {
        turn.add_note("received the outcome of a search that is not pending");
        return Next::Listen;
    }
    turn.pending = None;
    turn.stack.pop_if(|frame| is_search(frame));
    match outcome {
        SearchOutcome::Answered { mut message } if has_content(&message) => {
            message.kind = BotKind::Response;
            message.agent = None;
            turn.emit_in_top_frame(EventKind::Bot(message));
        }
        SearchOutcome::Answered { .. } => {
            turn.add_note("the answer of the search is empty");
            cannot_handle(turn, NO_ANSWER);
        }
        SearchOutcome::NoAnswer { reason } => {
            turn.add_note(format!("no answer from documents: {reason}"));
            cannot_handle(turn, NO_ANSWER);
        }
        SearchOutcome::Failed { reason, partial } => {
            if let Some(partial) = partial {
                turn.emit_in_top_frame(EventKind::Bot(partial));
            }
            turn.add_note(format!("the search failed: {reason}"));
            failed(turn, &reason);
        }
    }
    turn.run_until_effect()
}

fn has_content(message: &BotMessage) -> bool {
    let blank = message.reply.text.as_deref().is_none_or(|text| text.trim().is_empty());
    !blank || !Reply { text: None, ..message.reply.clone() }.is_empty()
}

/// Handles the end of the search pattern. Without an active flow it counts as a completed task. An active flow asks its
/// open question again; with the patterns of CALM 3.16 the user is asked whether to continue it.
pub(super) fn on_pattern_end(turn: &mut AdvanceContext<'_>, frame: &Frame, flow: Option<&Flow>) {
    let asks =
        |kind: &StepKind| matches!(kind, StepKind::Action(ActionReference::Plain(name)) if *name == *TRIGGER_SEARCH);
    let answers = flow.is_some_and(|flow| flow.steps.iter().any(|step| asks(&step.kind)));
    if !answers || frame.flow_id != *patterns::SEARCH || turn.project.config.search.is_none() {
        return;
    }
    if !turn.stack.is_empty() {
        if turn.project.config.compat.patterns == CalmVersion::From3_16 {
            chains::offer_to_continue(turn);
        }
    } else if flow.is_some_and(|flow| flow.run_pattern_completed) {
        let previous_flow_name = turn.flow_name(&frame.flow_id);
        turn.push_pattern(patterns::COMPLETED, PatternFrame::Completed { previous_flow_name });
    }
}

fn cannot_handle(turn: &mut AdvanceContext<'_>, reason: &str) {
    let reason = reason.to_owned();
    if !turn.push_pattern(patterns::CANNOT_HANDLE, PatternFrame::CannotHandle { reason }) {
        turn.say("utter_ask_rephrase", &Map::new());
    }
}

/// Reports a failed search. The active flow continues.
fn failed(turn: &mut AdvanceContext<'_>, reason: &str) {
    let reason: String = reason.chars().take(limits::TOOL_SUMMARY).collect();
    let info = Map::from_iter([
        ("error_source".to_owned(), Json::from("knowledge")),
        ("error_message".to_owned(), Json::from(reason)),
    ]);
    let error_type = "rasa_internal_error_default".to_owned();
    if !turn.push_pattern(patterns::INTERNAL_ERROR, PatternFrame::InternalError { error_type, info }) {
        turn.say(super::response::INTERNAL_ERROR, &Map::new());
    }
}

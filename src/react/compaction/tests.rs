//! Long histories become short and stay valid.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::{CompactionReport, CompactionRules, KeptFacts, compact};
use crate::{
    limits,
    llm::{ChatMessage, ToolCall},
    react::{
        LoopState,
        healer::{
            CallFate, heal,
            tests::{PROMPTS, call, problem, response, valid_history},
        },
    },
};

fn rules(keep_turns: usize) -> CompactionRules {
    CompactionRules { token_limit: 100, keep_turns }
}

fn long(messages: Vec<Arc<ChatMessage>>) -> LoopState {
    LoopState { messages, last_input_tokens: 101, ..LoopState::default() }
}

fn facts() -> KeptFacts {
    KeptFacts {
        assignment: None,
        plan: vec!["[x] read".into(), "[ ] write".into()],
        progress: vec!["item 2 of 5".into()],
        questions: vec!["Which year?".into()],
        learnings: vec!["The port closes at six.".into()],
        skills: vec!["timetables".into()],
    }
}

/// The assignment and three turns with one call each.
fn three_turns() -> Vec<Arc<ChatMessage>> {
    let mut messages = vec![ChatMessage::user("Find the ferry.")];
    for turn in 0..3 {
        let call = call(&format!("c{turn}"), if turn == 0 { "read" } else { "find" }, json!({}));
        messages.extend([response(&format!("Step {turn}."), [call.clone()]), ChatMessage::tool(&call, "found")]);
    }
    messages
}

fn results_and_calls(messages: &[Arc<ChatMessage>]) -> (Vec<&str>, Vec<&str>) {
    let mut calls = Vec::new();
    let mut results = Vec::new();
    for message in messages {
        match &**message {
            ChatMessage::Assistant { tool_calls, .. } => calls.extend(tool_calls.iter().map(|call| &*call.id)),
            ChatMessage::Tool { call_id, .. } => results.push(&**call_id),
            _ => {}
        }
    }
    (calls, results)
}

proptest! {
    #[test]
    fn a_call_and_its_result_are_never_separated(messages in valid_history(), keep in 0_usize..4) {
        let mut state = long(messages.clone());
        compact(&mut state, rules(keep), facts(), &PROMPTS);
        let (calls, results) = results_and_calls(&state.messages);
        prop_assert_eq!(calls, results);
        prop_assert_eq!(problem(&state.messages), None);
        let responses = |messages: &[Arc<ChatMessage>]| {
            messages.iter().filter(|message| matches!(***message, ChatMessage::Assistant { .. })).count()
        };
        prop_assert_eq!(responses(&state.messages), responses(&messages).min(keep.max(1)).max(
            if state.summary.is_none() { responses(&messages) } else { 0 },
        ));
    }

    #[test]
    fn damaged_histories_are_valid_after_compaction_and_healing(
        messages in valid_history().prop_shuffle(), keep in 0_usize..4,
    ) {
        let mut state = long(messages);
        compact(&mut state, rules(keep), facts(), &PROMPTS);
        prop_assert_eq!(problem(&heal(&state.messages, &PROMPTS, &|_| CallFate::Interrupted)), None);
    }

    #[test]
    fn a_second_compaction_without_a_new_turn_changes_nothing(messages in valid_history(), keep in 0_usize..4) {
        let mut state = long(messages);
        compact(&mut state, rules(keep), facts(), &PROMPTS);
        state.last_input_tokens = 101;
        let before = state.clone();
        prop_assert_eq!(compact(&mut state, rules(keep), facts(), &PROMPTS), None);
        prop_assert_eq!(state, before);
    }

    #[test]
    fn a_stored_state_continues_with_the_same_short_form(messages in valid_history(), more in valid_history()) {
        let mut state = long(messages);
        compact(&mut state, rules(1), facts(), &PROMPTS);
        let stored = serde_json::to_string(&state).unwrap();
        let mut resumed: LoopState = serde_json::from_str(&stored).unwrap();
        prop_assert_eq!(&resumed, &state);
        for state in [&mut state, &mut resumed] {
            state.messages.extend(more.iter().cloned());
            state.last_input_tokens = 101;
            compact(state, rules(1), facts(), &PROMPTS);
        }
        prop_assert_eq!(resumed, state);
    }
}

#[test]
fn a_summary_has_the_assignment_the_facts_and_the_replaced_turns() {
    let mut state = long(three_turns());
    let report = compact(&mut state, rules(1), facts(), &PROMPTS);
    let expected = CompactionReport { input_tokens: 101, token_limit: 100, messages: 5, kept_turns: 1 };
    assert_eq!(report, Some(expected));
    assert_eq!(state.messages.len(), 3, "the summary, the last response and its result");
    assert_eq!(
        state.messages[0].text(),
        "The earlier part of this run (5 messages) is replaced by this summary.\n\n\
         ## Assignment\nFind the ferry.\n\n\
         ## Plan\n- [x] read\n- [ ] write\n\n\
         ## Progress\n- item 2 of 5\n\n\
         ## Open questions\n- Which year?\n\n\
         ## Learnings\n- The port closes at six.\n\n\
         ## Loaded skills\n- timetables\n\n\
         ## Tools used\n- find: 1 call\n- read: 1 call\n\n\
         ## Your responses\n- Step 0.\n- Step 1."
    );
}

#[test]
fn the_next_summary_continues_the_first() {
    let mut state = long(three_turns());
    compact(&mut state, rules(1), facts(), &PROMPTS);
    let more = call("c9", "find", json!({}));
    state.messages.extend([
        ChatMessage::user("Hurry."),
        response("", [more.clone()]),
        ChatMessage::tool(&more, "found"),
        ChatMessage::assistant("Done."),
    ]);
    state.last_input_tokens = 101;
    let report = compact(&mut state, rules(1), KeptFacts::default(), &PROMPTS).unwrap();
    assert_eq!((report.messages, state.messages.len()), (5, 2));
    let text = state.messages[0].text();
    for part in [
        "(10 messages)",
        "## Assignment\nFind the ferry.",
        "- find: 3 calls\n- read: 1 call",
        "## Messages to you\n- Hurry.",
        "- Step 0.\n- Step 1.\n- Step 2.",
    ] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    assert!(!text.contains("## Plan"), "facts are those of now:\n{text}");
}

#[test]
fn nothing_is_compacted_up_to_the_limit_or_without_older_turns() {
    let mut state = LoopState { last_input_tokens: 100, ..long(three_turns()) };
    assert_eq!(compact(&mut state, rules(1), facts(), &PROMPTS), None);
    let mut state = long(three_turns());
    assert_eq!(compact(&mut state, rules(4), facts(), &PROMPTS), None);
    assert_eq!(state, long(three_turns()));
}

#[test]
fn texts_of_a_summary_are_short_and_limited() {
    let count = limits::SUMMARY_TEXTS + 3;
    let turn = |at: usize| [ChatMessage::assistant(format!("{at} {}", "x".repeat(500))), ChatMessage::user("go on")];
    let mut state = long((0..=count).flat_map(turn).collect());
    compact(&mut state, rules(1), KeptFacts::default(), &PROMPTS);
    let answers = &state.summary.as_ref().unwrap().answers;
    assert_eq!((answers.latest.len(), answers.omitted), (limits::SUMMARY_TEXTS, 3));
    assert!(answers.latest.iter().all(|text| text.chars().count() == limits::SUMMARY_TEXT));
    assert!(state.messages[0].text().contains("(3 earlier ones are left out.)"));
}

#[test]
fn a_call_whose_result_comes_later_is_no_place_for_a_cut() {
    let late: ToolCall = call("late", "find", json!({}));
    let messages = vec![
        ChatMessage::user("u"),
        response("", [late.clone()]),
        ChatMessage::assistant("waiting"),
        ChatMessage::tool(&late, "found"),
    ];
    let mut state = long(messages.clone());
    assert_eq!(compact(&mut state, rules(1), facts(), &PROMPTS), None);
    assert_eq!(state.messages, messages);
}

//! Damaged histories become valid for both APIs; valid ones stay as they are.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::{
    collections::HashSet,
    sync::{Arc, LazyLock},
};

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::{CallFate, heal};
use crate::{
    llm::{
        ChatMessage, ChatRequest, ModelConfig, Purpose, ToolArguments, ToolCall,
        message::{ReasoningBlock, ReasoningBlocks},
        request_body,
    },
    prompts::PromptSet,
    react::LoopState,
};

pub(in crate::react) static PROMPTS: LazyLock<PromptSet> = LazyLock::new(|| PromptSet::new(|_| None).unwrap());

pub(in crate::react) fn call(id: &str, name: &str, arguments: Json) -> ToolCall {
    ToolCall { id: id.into(), name: name.into(), arguments: ToolArguments::json(arguments) }
}

pub(in crate::react) fn response(text: &str, calls: impl Into<Vec<ToolCall>>) -> Arc<ChatMessage> {
    Arc::new(ChatMessage::Assistant { text: text.into(), tool_calls: calls.into(), reasoning: None })
}

fn healed(messages: &[Arc<ChatMessage>]) -> Vec<Arc<ChatMessage>> {
    heal(messages, &PROMPTS, &|_| CallFate::Interrupted)
}

fn sent(messages: &[Arc<ChatMessage>], provider: &str, model: &str) -> Vec<Json> {
    let mut request = ChatRequest::new(Purpose::AGENT, vec![ChatMessage::system("rules")]);
    request.messages.extend(messages.iter().cloned());
    let config = ModelConfig { provider: provider.into(), model: model.into(), ..ModelConfig::default() };
    let body = request_body(&request, &config).unwrap();
    body["messages"].as_array().unwrap().clone()
}

/// The first rule of Chat Completions that the messages break. Two assistant messages in a row count, because many chat templates
/// refuse them.
fn chat_completions_problem(messages: &[Arc<ChatMessage>]) -> Option<String> {
    let sent = sent(messages, "self-hosted", "m");
    let mut open: Vec<String> = Vec::new();
    let mut ids = HashSet::new();
    let mut last = "";
    for message in &sent {
        let role = message["role"].as_str().unwrap();
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap();
            if open.first().is_none_or(|first| first != id) {
                return Some(format!("a result of `{id}`, which is not the next open call of {open:?}"));
            }
            open.remove(0);
        } else if !open.is_empty() {
            return Some(format!("calls without results: {open:?}"));
        }
        if role == "assistant" {
            if last == "assistant" {
                return Some("two assistant messages in a row".into());
            }
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                open.push(call["id"].as_str().unwrap().to_owned());
                if !ids.insert(call["id"].clone()) {
                    return Some(format!("the id {} is used twice", call["id"]));
                }
            }
        }
        last = role;
    }
    (!open.is_empty()).then(|| format!("calls without results at the end: {open:?}"))
}

/// The first rule of the Messages API that the messages break.
fn messages_api_problem(messages: &[Arc<ChatMessage>]) -> Option<String> {
    let sent = sent(messages, "anthropic", "claude-sonnet-4-5");
    let mut open: Vec<String> = Vec::new();
    let mut ids = HashSet::new();
    for (at, message) in sent.iter().enumerate() {
        let expected = if at % 2 == 0 { "user" } else { "assistant" };
        if message["role"] != expected {
            return Some(format!("message {at} is not of the role {expected}"));
        }
        let blocks = message["content"].as_array().unwrap();
        let results = blocks.iter().take_while(|block| block["type"] == "tool_result");
        let results: Vec<String> = results.map(|block| block["tool_use_id"].as_str().unwrap().to_owned()).collect();
        if results != open {
            return Some(format!("results of {results:?} for the calls {open:?}"));
        }
        if blocks.iter().skip(results.len()).any(|block| block["type"] == "tool_result") {
            return Some("a result after another block".into());
        }
        let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
        open = calls.map(|block| block["id"].as_str().unwrap().to_owned()).collect();
        if let Some(id) = open.iter().find(|id| !ids.insert((*id).clone())) {
            return Some(format!("the id {id} is used twice"));
        }
    }
    None
}

pub(in crate::react) fn problem(messages: &[Arc<ChatMessage>]) -> Option<String> {
    chat_completions_problem(messages).or_else(|| messages_api_problem(messages))
}

/// Valid histories: user messages, responses of one to three calls with their results, and texts.
pub(in crate::react) fn valid_history() -> impl Strategy<Value = Vec<Arc<ChatMessage>>> {
    proptest::collection::vec((0_usize..=3, any::<bool>(), "[a-z]{0,5}"), 1..10).prop_map(|turns| {
        let mut messages = vec![ChatMessage::user("the assignment")];
        for (turn, (count, has_user, text)) in turns.into_iter().enumerate() {
            let calls: Vec<ToolCall> =
                (0..count).map(|at| call(&format!("c{turn}_{at}"), "find", json!({"at": at}))).collect();
            if calls.is_empty() {
                messages.push(ChatMessage::assistant(format!("said {text}")));
                messages.push(ChatMessage::user("more"));
                continue;
            }
            messages.push(response(&text, &calls[..]));
            messages.extend(calls.iter().map(|call| ChatMessage::tool(call, format!("result of {}", call.id))));
            if has_user {
                messages.push(ChatMessage::system("a note"));
            }
        }
        messages
    })
}

proptest! {
    #[test]
    fn valid_histories_stay_unchanged(messages in valid_history()) {
        prop_assert_eq!(problem(&messages), None);
        prop_assert_eq!(healed(&messages), messages);
    }

    #[test]
    fn every_prefix_becomes_valid(messages in valid_history(), at in any::<prop::sample::Index>()) {
        let prefix = &messages[..at.index(messages.len() + 1)];
        prop_assert_eq!(problem(&healed(prefix)), None);
    }

    #[test]
    fn every_suffix_becomes_valid(messages in valid_history(), at in any::<prop::sample::Index>()) {
        let suffix = &messages[at.index(messages.len() + 1)..];
        prop_assert_eq!(problem(&healed(suffix)), None);
    }

    #[test]
    fn histories_with_deleted_and_repeated_messages_become_valid(
        messages in valid_history(),
        copies in proptest::collection::vec(0_usize..=2, 64),
    ) {
        let damaged: Vec<Arc<ChatMessage>> =
            messages.iter().zip(copies.iter().cycle()).flat_map(|(m, n)| std::iter::repeat_n(m.clone(), *n)).collect();
        let once = healed(&damaged);
        prop_assert_eq!(problem(&once), None);
        prop_assert_eq!(healed(&once), once);
    }

    #[test]
    fn shuffled_histories_become_valid_and_lose_no_result(
        messages in valid_history().prop_shuffle(),
    ) {
        let once = healed(&messages);
        prop_assert_eq!(problem(&once), None);
        let results = |messages: &[Arc<ChatMessage>]| {
            let texts = messages.iter().filter(|message| matches!(***message, ChatMessage::Tool { .. }));
            texts.map(|message| message.text().to_owned()).collect::<HashSet<_>>()
        };
        prop_assert_eq!(results(&once), results(&messages));
    }
}

#[test]
fn the_check_of_these_tests_finds_every_kind_of_damage() {
    let one = call("a", "find", json!({}));
    let two = call("b", "find", json!({}));
    let result = |call: &ToolCall| ChatMessage::tool(call, "r");
    for (name, messages) in [
        ("no result", vec![response("", [one.clone()])]),
        ("no call", vec![ChatMessage::user("u"), result(&one)]),
        ("wrong order", vec![response("", &[one.clone(), two.clone()]), result(&two), result(&one)]),
        ("two results", vec![response("", [one.clone()]), result(&one), result(&one)]),
        ("not adjacent", vec![response("", [one.clone()]), ChatMessage::user("u"), result(&one)]),
        ("in a row", vec![ChatMessage::assistant("1"), ChatMessage::assistant("2")]),
        ("one id", vec![response("", [one.clone()]), result(&one), response("", [one.clone()]), result(&one)]),
    ] {
        assert!(problem(&messages).is_some(), "{name}");
        assert_eq!(problem(&healed(&messages)), None, "{name}");
    }
}

#[test]
fn the_model_reads_what_became_of_each_call() {
    let calls = ["interrupted", "queued"].map(|id| call(id, "pay", json!({})));
    let fate = |call: &ToolCall| match &*call.id {
        "queued" => CallFate::Queued,
        _ => CallFate::Interrupted,
    };
    let messages = heal(&[response("", &calls)], &PROMPTS, &fate);
    let texts: Vec<&str> = messages[1..].iter().map(|message| message.text()).collect();
    for (text, (code, says)) in
        texts.iter().zip([("tool.interrupted", "outcome is unknown"), ("tool.queued", "never started")])
    {
        assert!(
            text.starts_with(&format!("error: {code}: ")) && text.contains(says) && text.contains("`pay`"),
            "{text}"
        );
    }
}

#[test]
fn texts_of_two_responses_in_a_row_are_joined_and_calls_are_kept() {
    let one = call("a", "find", json!({}));
    let messages = [ChatMessage::assistant("First."), response("Second.", [one.clone()]), ChatMessage::tool(&one, "r")];
    let messages = healed(&messages);
    assert_eq!(messages, [response("First.\n\nSecond.", [one.clone()]), ChatMessage::tool(&one, "r")]);
}

#[test]
fn reasoning_keeps_its_place_when_responses_are_joined() {
    let one = call("a", "find", json!({}));
    let with_reasoning = |text: &str, after: &[usize]| {
        let block = |after: &usize| ReasoningBlock { after: *after, block: Arc::new(json!({"type": "thinking"})) };
        let reasoning = ReasoningBlocks { model: "m".into(), blocks: after.iter().map(block).collect() };
        let calls = vec![one.clone()];
        Arc::new(ChatMessage::Assistant { text: text.into(), tool_calls: calls, reasoning: Some(Arc::new(reasoning)) })
    };
    for (text, joined, after, expected) in
        [("", "First.", [0, 1], [0, 2]), ("Second.", "First.\n\nSecond.", [0, 1], [0, 1])]
    {
        let messages = [ChatMessage::assistant("First."), with_reasoning(text, &after), ChatMessage::tool(&one, "r")];
        assert_eq!(healed(&messages)[0], with_reasoning(joined, &expected));
    }
}

#[test]
fn a_stored_state_is_healed_with_its_summary() {
    let (one, two) = (call("a", "find", json!({})), call("b", "pay", json!({})));
    let summary = ChatMessage::user("The summary.");
    let messages = vec![summary.clone(), response("", &[one.clone(), two.clone()]), ChatMessage::tool(&one, "r")];
    let mut state = LoopState { messages, summary: Some(Box::default()), ..LoopState::default() };
    state.heal(&PROMPTS, &|_| CallFate::Queued);
    assert_eq!(state.messages[0], summary);
    assert_eq!(state.messages[3], CallFate::Queued.result(&two, &PROMPTS));
    assert_eq!((state.messages.len(), problem(&state.messages)), (4, None));
}

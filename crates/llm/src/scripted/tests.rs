#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::time::Duration;

use segue_base::manual_clock::ManualClock;
use serde_json::json;

use super::*;
use crate::{ChatMessage, ChatResponse, Delta, FinishReason, LlmErrorKind, Purpose, ToolCall, ToolSpec};

/// A small ferry assistant that uses each feature of scripts.
const FERRIES: &str = include_str!("tests/ferries.yml");

fn model() -> ScriptedLlm {
    ScriptedLlm::from_text("ferries.yml", FERRIES, 7).unwrap()
}

/// A prompt like that of a command generator: state as JSON, the user's message at its end.
fn commands(asked: &str, user: &str) -> ChatRequest {
    let state = json!({"flows": [{"name": "book_crossing"}], "asked": asked, "slots": {"passengers": null}});
    let prompt = format!("Choose commands.\n\nState:\n{state}\n\nUSER: an earlier line\nAI: hello\nUSER: {user}");
    ChatRequest::new(Purpose::COMMANDS, vec![ChatMessage::user(prompt)])
}

fn agent(user: &str) -> ChatRequest {
    let tool = |name: &str| ToolSpec {
        name: name.into(),
        description: "".into(),
        parameters: Arc::new(json!({"type": "object"})),
        strict: false,
    };
    ChatRequest::new(Purpose::AGENT, vec![ChatMessage::system("You find crossings."), ChatMessage::user(user)])
        .with_tools([tool("find_crossings"), tool("task_completed")])
}

async fn chat(model: &dyn Llm, request: ChatRequest) -> Result<Arc<ChatResponse>, LlmError> {
    let cx = ManualClock::auto_advancing().context(Duration::from_secs(600));
    model.chat(request, &cx).await?.finish().await
}

async fn text_of(request: ChatRequest) -> String {
    chat(&model(), request).await.unwrap().text.to_string()
}

#[tokio::test]
async fn rules_generate_commands() {
    for (asked, words, lines) in [
        (
            "",
            "I'd like to book a ferry from bgo to Stavanger",
            "start flow book_crossing\nset slot from Bergen\nset slot to Stavanger",
        ),
        ("", "Book a ferry for three of us", "start flow book_crossing\nset slot passengers 3"),
        ("passengers", "a couple of adults", "set slot passengers 2"),
        ("passengers", "never mind, cancel that", "cancel flow"),
        ("", "BOOK A FERRY", "start flow book_crossing"),
    ] {
        assert_eq!(text_of(commands(asked, words)).await, lines, "{asked}: {words}");
    }
}

#[tokio::test]
async fn rules_call_tools_and_use_their_results() {
    let mut request = agent("Is there anything from Bergen to svg tomorrow?");
    let first = chat(&model(), request.clone()).await.unwrap();
    assert_eq!(&*first.text, "One moment, I am looking.");
    let call = first.tool_calls[0].clone();
    assert_eq!(
        call,
        ToolCall {
            id: "call_2_0".into(),
            name: "find_crossings".into(),
            arguments: crate::ToolArguments::json(
                json!({"from": "Bergen", "to": "Stavanger", "passengers": 1, "day": "tomorrow"})
            ),
        }
    );
    request.messages.push(first.to_message());
    let found = json!({"crossings": [{"id": "BS1", "departs": "08:00", "price": 59.5}, {"id": "BS2", "departs": "17:30", "price": 49}]});
    request.messages.push(ChatMessage::tool(&call, found.to_string()));
    let second = chat(&model(), request.clone()).await.unwrap();
    assert_eq!(&*second.text, "I found 2 crossings:\n- BS1 at 08:00 for 59.50\n- BS2 at 17:30 for 49.00");
    assert!(second.tool_calls.is_empty());
    // The same tool call with an empty result, and with an error.
    request.messages.pop();
    request.messages.push(ChatMessage::tool(&call, r#"{"crossings": []}"#));
    assert_eq!(text_of(request.clone()).await, "Nothing sails from Bergen.");
    request.messages.pop();
    request.messages.push(ChatMessage::tool(&call, "Error: the server is down"));
    assert_eq!(text_of(request).await, "I cannot look that up now (find_crossings).");
}

#[tokio::test]
async fn the_same_request_gets_the_same_response() {
    let model = model();
    let mut seen = std::collections::BTreeSet::new();
    for words in ["hello", "hi", "hello there", "hey you", "good day", "hi hi"] {
        let first = chat(&model, agent(words)).await.unwrap();
        assert_eq!(first, chat(&model, agent(words)).await.unwrap(), "{words}");
        seen.insert(first.text.to_string());
    }
    assert_eq!(seen.len(), 2, "both alternatives are used: {seen:?}");
}

#[tokio::test]
async fn without_a_matching_rule_it_says_so() {
    assert_eq!(text_of(agent("what is the meaning of life?")).await, NO_MATCHING_RULE);
}

#[tokio::test]
async fn text_is_streamed_with_its_timing() {
    let clock = ManualClock::auto_advancing();
    let cx = clock.context(Duration::from_secs(600));
    let mut stream = model().chat(agent("slowly please"), &cx).await.unwrap();
    let mut deltas = Vec::new();
    while let Some(delta) = stream.next().await {
        if let Delta::Text(text) = delta.unwrap() {
            deltas.push((text.to_string(), clock_millis(&clock)));
        }
    }
    assert_eq!(deltas, [("One ".into(), 300), ("by ".into(), 320), ("one.".into(), 340)]);
}

fn clock_millis(clock: &ManualClock) -> u128 {
    segue_base::clock::Clock::elapsed(clock).as_millis()
}

#[tokio::test]
async fn scripted_failures_are_decoded_like_those_of_providers() {
    use LlmErrorKind as K;
    let model = model();
    for (words, kind) in [
        ("fail with 429", K::RateLimited { after: Some(Duration::from_secs(2)) }),
        ("fail with quota", K::QuotaExhausted),
        ("fail with cut", K::Truncated),
        ("fail with page", K::InvalidResponse(crate::InvalidResponse::UnexpectedFormat)),
        ("fail with noise", K::InvalidResponse(crate::InvalidResponse::NotJson)),
        ("fail with error", K::Overloaded { after: None }),
        ("fail with silence", K::FirstTokenTimeout),
    ] {
        assert_eq!(chat(&model, agent(words)).await.unwrap_err().kind, kind, "{words}");
    }
    let answer = chat(&model, agent("fail with length")).await.unwrap();
    assert_eq!((answer.finish, answer.tool_calls.len(), answer.truncated_calls.len()), (FinishReason::Length, 0, 1));
}

#[tokio::test]
async fn fault_injection_splits_bytes_and_sends_invalid_responses() {
    let text = "mischief: {split: true, garbage_every: 3}\nrules:\n- say: 'Grüße 😀 to all of you'\n  calls: [{name: f, arguments: {a: 'ü😀'}}]";
    for seed in 0..50 {
        let model = ScriptedLlm::from_text("m", text, seed).unwrap();
        for call in 1..=6 {
            let end = chat(&model, agent("x")).await;
            if call % 3 == 0 {
                assert_eq!(end.unwrap_err().code(), "bad_answer");
            } else {
                let answer = end.unwrap();
                assert_eq!(&*answer.text, "Grüße 😀 to all of you");
                assert_eq!(answer.tool_calls[0].arguments.as_json(), Some(&json!({"a": "ü😀"})));
            }
        }
    }
}

#[test]
fn errors_in_a_script_are_reported_with_their_rule() {
    for (text, part) in [
        ("rules: [{say: '{{ x', name: greet}]", "rule `greet`: `reply`"),
        ("rules: [{when: {user: '('}, say: x}]", "rule 1: `when`"),
        ("rules: [{when: {user: '{dock:x}'}, say: x}]", "no table is named `dock`"),
        ("rules: [{when: {test: '1 +'}, say: x}]", "`test: 1 +`"),
        ("rules: [{when: {user: x}}]", "the rule has no reply"),
        ("rules: [{say: x, pace: {every: '3 parsecs'}}]", "not a duration"),
        ("read: {a: {match: x, state: y}}\nrules: []", "`read.a`"),
        ("rules: [{sya: x}]", "s.yml:1:10: unknown field `sya`"),
        ("rules:\n- {when: {stat: x}, say: x}", "s.yml:2:11: unknown field `stat`"),
        ("read: {slot: {stat: x}}\nrules: []", "unknown field `stat`"),
        ("read: {slot: [{stat: x}]}\nrules: []", "unknown field `stat`"),
        ("rules: [{say: x, fail: {garbage: lots}}]", ""),
    ] {
        let error = ScriptedLlm::from_text("s.yml", text, 0).err().unwrap();
        assert!(error.starts_with("s.yml:") && error.contains(part), "{text}: {error}");
    }
}

#[tokio::test]
async fn templates_and_patterns_have_resource_limits() {
    let endless = "rules: [{say: '{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}'}]";
    let model = ScriptedLlm::from_text("s.yml", endless, 0).unwrap();
    let error = chat(&model, agent("x")).await.unwrap_err();
    assert!(error.detail.as_deref().is_some_and(|detail| detail.contains("fuel")), "{error:?}");
    // A pattern that is too large to compile matches nothing: the next rule answers.
    let large = r"rules: [{when: {user: '(?:\w{100}){1000}|x'}, say: large}, {say: next}]";
    let model = ScriptedLlm::from_text("s.yml", large, 0).unwrap();
    assert_eq!(&*chat(&model, agent("x")).await.unwrap().text, "next");
}

#[tokio::test]
async fn the_strict_model_reports_unexpected_and_missing_calls() {
    let double = ScriptedLlm::strict(["one", "two"]);
    assert_eq!(&*chat(&double, agent("a")).await.unwrap().text, "one");
    assert!(double.verify().unwrap_err().contains("1 expected calls did not come"));
    chat(&double, agent("b")).await.unwrap();
    double.verify().unwrap();
    assert_eq!(chat(&double, agent("c")).await.unwrap_err().kind, LlmErrorKind::NotInScript);
    assert!(double.verify().unwrap_err().contains("call 3 (agent) was not expected"));
    assert_eq!(double.requests().len(), 3);
    let checked = ScriptedCall::from("x")
        .expecting(|request| if request.tools.is_empty() { Ok(()) } else { Err("tools!".into()) });
    let double = ScriptedLlm::strict([checked]);
    assert!(chat(&double, agent("a")).await.is_err());
    assert!(double.verify().unwrap_err().contains("tools!"));
}

#[tokio::test]
async fn facts_of_the_conversation_and_let_expressions() {
    let script = r"
tables: { port: { Bergen: [bgo], Stavanger: [svg] } }
read:
  now: { match: 'Now: (?P<it>.*)' }
  port: { talk: 'to ({port})|reach ({port})' }
  people: { talk: 'USER: for (\w+)', since: ^-- over -- }
let:
  port: fact.port | lookup('port')
  day: user | date(fact.now)
  all: port ~ ' ' ~ day ~ ' ' ~ ((fact.people | number) or 'alone')
rules:
  - { when: { test: port == 'Bergen' }, say: '{{ all }}' }
  - { say: 'elsewhere, {{ all }}' }
";
    let model = ScriptedLlm::from_text("talk", script, 1).unwrap();
    let mut messages = vec![
        ChatMessage::system("Now: Saturday, 21 November 2026"),
        ChatMessage::user("to svg"),
        ChatMessage::user("for two"),
        ChatMessage::assistant("You can reach BGO as well."),
        ChatMessage::user("well then, tomorrow"),
    ];
    let answer = |messages| chat(&model, ChatRequest::new(Purpose::AGENT, messages));
    assert_eq!(&*answer(messages.clone()).await.unwrap().text, "Bergen 2026-11-22 2");
    messages.insert(3, ChatMessage::system("-- over --"));
    assert_eq!(&*answer(messages.clone()).await.unwrap().text, "Bergen 2026-11-22 alone");
    messages.push(ChatMessage::user("to svg, on monday"));
    assert_eq!(&*answer(messages).await.unwrap().text, "elsewhere, Stavanger 2026-11-23 alone");
    for (wrong, says) in [
        ("read: { a: { talk: '(' } }", "read.a"),
        ("let: { a: '1 +' }", "let.a"),
        ("read: { a: { match: x, since: y } }", "since"),
    ] {
        let problem = ScriptedLlm::from_text("s", &format!("{wrong}\nrules: [{{ say: x }}]"), 1).err().unwrap();
        assert!(problem.contains(says), "{problem}");
    }
}

#[test]
fn one_file_serves_a_chat_model_and_an_embedding_model() {
    let script = "same: [[refund, reimbursement]]\nrules: [{say: hi}]\n";
    ScriptedLlm::from_text("s.yml", script, 7).unwrap();
    crate::embeddings::ScriptedEmbedder::from_text("s.yml", script).unwrap();
}

#[test]
fn a_pattern_for_the_users_words_that_matches_nothing_is_noticed() {
    let misses = |pattern: &str, purpose: Purpose| {
        let text = format!("read: {{user: {{purpose: commands, match: '{pattern}'}}}}\nrules: [{{say: hi}}]\n");
        let script = Script::read("script.yml", &text).unwrap();
        let request = ChatRequest::new(purpose, vec![ChatMessage::user("USER: hello")]);
        RequestFacts::new(&script, &request).misses_user()
    };
    assert!(misses("Person: (.*)", Purpose::COMMANDS));
    assert!(!misses("USER: (.*)", Purpose::COMMANDS));
    assert!(!misses("Person: (.*)", Purpose::AGENT));
}

#[tokio::test]
async fn named_groups_of_the_patterns_of_tool_results_become_variables() {
    let script = r#"
rules:
  - when: { last_tool: { name: find, matches: 'employees (?P<n>\d+)', has: { city: '(?P<city>O.*)' } } }
    say: '{{ n }} in {{ city }}'
"#;
    let model = ScriptedLlm::from_text("script.yml", script, 7).unwrap();
    let call =
        crate::ToolCall { id: "c".into(), name: "find".into(), arguments: crate::ToolArguments::json(json!({})) };
    let called = crate::ChatResponse::calls(vec![call.clone()]).to_message();
    let result = ChatMessage::tool(&call, json!({"text": "employees 12", "city": "Oslo"}).to_string());
    let request = ChatRequest::new(Purpose::AGENT, vec![ChatMessage::user("find"), called, result]);
    assert_eq!(&*chat(&model, request).await.unwrap().text, "12 in Oslo");
}

#[tokio::test]
async fn white_space_at_the_ends_of_the_users_text_and_of_captures_does_not_matter() {
    let script = r#"
rules:
  - when: { purpose: agent, user: '^<NEW_TASK>(?P<task>.*)</NEW_TASK>$' }
    say: '[{{ task }}][{{ m[1] }}][{{ user }}]'
  - when: { user: '^plan it$' }
    calls: [{ name: find, arguments: { what: ' {{ user }} ' } }]
"#;
    let model = ScriptedLlm::from_text("script.yml", script, 7).unwrap();
    let response = chat(&model, agent("<NEW_TASK>\n  find pages \n</NEW_TASK>\n")).await.unwrap();
    assert_eq!(&*response.text, "[find pages][find pages][<NEW_TASK> find pages </NEW_TASK>]");
    let response = chat(&model, ChatRequest::new(Purpose::COMMANDS, vec![ChatMessage::user("\n plan it\n")])).await;
    assert_eq!(response.unwrap().tool_calls[0].arguments, crate::ToolArguments::json(json!({"what": "plan it"})));
}

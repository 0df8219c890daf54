#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use segue_engine::project::{SourceFile, test_cases::TestFile};
use serde_json::json;

use super::*;

/// The events of one turn, as they are stored.
fn observed(events: Json) -> ObservedTurn {
    let with_time = |event: &Json| {
        let mut event = event.clone();
        event["timestamp"] = json!(0.0);
        serde_json::from_value(event).unwrap()
    };
    let events = events.as_array().unwrap().iter().map(with_time).collect();
    ObservedTurn { user: "hi".into(), events, llm_calls: 2, duration: std::time::Duration::from_millis(300) }
}

fn project() -> Project {
    let files = [
        ("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"),
        ("flows/a.yml", "flows: {pay: {name: paying, description: pays, steps: [{noop: true, next: END}]}}"),
    ];
    crate::project::from_texts(files).project.unwrap()
}

/// Which of these assertions pass for the turn, each checked alone.
fn which_pass(events: &Json, assertions: &str) -> Vec<bool> {
    check(events, assertions, false).iter().map(|result| matches!(result, AssertionResult::Passed(_))).collect()
}

fn check(events: &Json, assertions: &str, ordered: bool) -> Vec<AssertionResult> {
    let text = format!("test_cases:\n- test_case: a\n  steps:\n  - user: hi\n    assertions:\n{assertions}");
    let (file, findings) = TestFile::read(&SourceFile { path: "a.yml".into(), text: text.into() });
    assert!(findings.is_empty(), "{findings:?}");
    let file = file.unwrap();
    let TestStepKind::User(user) = &file.cases[0].steps[0].kind else { panic!() };
    let (observed, project) = (observed(events.clone()), project());
    let mut from = 0;
    let check_one = |assertion: &segue_engine::project::test_cases::Assertion| {
        let result = AssertionCheck { observed: &observed, from, project: &project }.assertion(&assertion.kind);
        if let (true, AssertionResult::Passed(Some(at))) = (ordered, &result) {
            from = at + 1;
        }
        result
    };
    user.assertions.iter().map(check_one).collect()
}

#[test]
fn slot_values_are_compared_by_type_and_numbers_by_value() {
    let events = json!([
        {"event": "slot", "name": "amount", "value": 2.0},
        {"event": "slot", "name": "city", "value": "Rome"},
        {"event": "slot", "name": "flag", "value": true},
        {"event": "slot", "name": "gone", "value": null},
        {"event": "slot", "name": "list", "value": [1, {"a": 2.0}]},
    ]);
    let passed = which_pass(
        &events,
        "
    - slot_was_set: [{name: amount, value: 2}]
    - slot_was_set: [{name: amount, value: '2'}]
    - slot_was_set: [{name: city, value: rome}]
    - slot_was_set: [{name: city}, {name: flag, value: true}]
    - slot_was_set: [{name: city}, {name: other}]
    - slot_was_set: [{name: flag, value: 'true'}]
    - slot_was_set: [{name: gone}]
    - slot_was_set: [{name: gone, value: null}]
    - slot_was_set: [{name: list, value: [1, {a: 2}]}]
    - slot_was_not_set: [{name: gone}]
    - slot_was_not_set: [{name: gone, value: null}]
    - slot_was_not_set: [{name: city, value: Paris}]
    - slot_was_not_set: [{name: city, value: Rome}]
    - slot_was_not_set: [{name: other}, {name: city}]
",
    );
    let expected = [true, false, false, true, false, false, false, true, true, true, false, true, false, false];
    assert_eq!(passed, expected);
    let all = json!([{"event": "reset_slots"}]);
    assert_eq!(which_pass(&all, "    - slot_was_set: [{name: amount, value: null}]\n"), [true]);
}

#[test]
fn bot_uttered_needs_one_message_that_has_all_properties() {
    let events = json!([
        {"event": "bot", "text": "Which of them?", "utter_action": "utter_ask", "buttons": [{"title": "A", "payload": "/a"}]},
        {"event": "bot", "text": "You have 20 dollars.\nGood."},
    ]);
    let passed = which_pass(
        &events,
        r#"
    - bot_uttered: {utter_name: utter_ask}
    - bot_uttered: {text_matches: '\d+ dol'}
    - bot_uttered: {utter_name: utter_ask, text_matches: dollars}
    - bot_uttered: {text_matches: '(?<!thirty )dollars\.(?=\s)'}
    - bot_uttered: {buttons: [{title: A, payload: /a}]}
    - bot_uttered: {buttons: [{title: A}]}
    - bot_uttered: {buttons: [{title: A, payload: /b}]}
    - bot_uttered: {buttons: [{title: A}, {title: B}]}
    - bot_did_not_utter: {text_matches: euros}
    - bot_did_not_utter: {text_matches: dollars}
    - action_executed: utter_ask
    - action_executed: utter_other
"#,
    );
    assert_eq!(passed, [true, true, false, true, true, true, false, false, true, false, true, false]);
}

#[test]
fn flow_agent_and_tool_assertions_find_their_events() {
    let events = json!([
        {"event": "flow_started", "flow_id": "pay"},
        {"event": "flow_started", "flow_id": "pattern_clarification", "context": {"options": ["pay", "get"], "names": ["paying", "getting"]}},
        {"event": "action", "name": "action_x"},
        {"event": "agent_started", "flow_id": "pay", "agent_id": "clerk"},
        {"event": "tool_executed", "server": "bank", "tool_name": "rate", "agent_id": "clerk", "arguments": {"of": "EUR", "n": 2}, "status": "done"},
        {"event": "tool_executed", "tool_name": "rate", "arguments": {}, "status": "failed"},
        {"event": "agent_cancelled", "flow_id": "pay", "agent_id": "clerk"},
        {"event": "flow_completed", "flow_id": "pay", "step_id": "pay_0_noop"},
    ]);
    let passed = which_pass(
        &events,
        r"
    - flow_started: pay
    - flow_started: [pay, get]
    - flow_started: {flow_ids: [pay, get], operator: any}
    - flow_completed: {flow_id: pay, flow_step_id: 0_noop}
    - flow_completed: {flow_id: pay, flow_step_id: 1_noop}
    - flow_cancelled: pay
    - pattern_clarification_contains: [pay]
    - pattern_clarification_contains: [paying, get]
    - pattern_clarification_contains: [pay, other]
    - pattern_clarification_contains: {flow_ids: [pay, other], operator: any}
    - action_executed: action_x
    - agent_started: clerk
    - agent_completed: clerk
    - agent_cancelled: clerk
    - tool_called: rate
    - tool_called: {name: rate, times: 2}
    - tool_called: {name: rate, times: 1}
    - tool_called: {name: rate, server: bank, agent_id: clerk, arguments: {of: '[A-Z]{3}', n: 2.0}, success: true, times: 1}
    - tool_called: {name: rate, arguments: {of: 'E'}}
    - tool_not_called: {name: rate, arguments: {of: USD}}
    - tool_not_called: rate
    - max_llm_calls: 2
    - max_llm_calls: 1
    - max_turn_latency_ms: 300
    - max_turn_latency_ms: 299
",
    );
    let expected = [
        true, false, true, true, false, false, true, true, false, true, true, true, false, true, true, true, false,
        true, false, true, false, true, false, true, false,
    ];
    assert_eq!(passed, expected);
}

#[test]
fn with_assertion_order_each_match_must_follow_the_previous_one() {
    let events = json!([
        {"event": "slot", "name": "a", "value": 1},
        {"event": "bot", "text": "one"},
        {"event": "slot", "name": "a", "value": 2},
    ]);
    let passed = |assertions: &str| -> Vec<bool> {
        check(&events, assertions, true).iter().map(|result| matches!(result, AssertionResult::Passed(_))).collect()
    };
    assert_eq!(
        passed("    - bot_uttered: {text_matches: one}\n    - slot_was_set: [{name: a, value: 2}]\n"),
        [true, true]
    );
    assert_eq!(
        passed("    - bot_uttered: {text_matches: one}\n    - slot_was_set: [{name: a, value: 1}]\n"),
        [true, false]
    );
    assert_eq!(
        passed(
            "    - slot_was_set: [{name: a, value: 2}, {name: a, value: 1}]\n    - bot_uttered: {text_matches: one}\n"
        ),
        [true, false],
        "after an assertion with several slots, the next one starts after the last of them"
    );
    assert_eq!(
        passed("    - bot_did_not_utter: {text_matches: two}\n    - slot_was_set: [{name: a, value: 1}]\n"),
        [true, true]
    );
    let events = json!([
        {"event": "flow_started", "flow_id": "pattern_clarification", "context": {"options": ["pay"]}},
        {"event": "bot", "text": "one"},
    ]);
    let results =
        check(&events, "    - bot_uttered: {text_matches: one}\n    - pattern_clarification_contains: [pay]\n", true);
    assert!(matches!(results[..], [AssertionResult::Passed(_), AssertionResult::Failed { .. }]), "{results:?}");
}

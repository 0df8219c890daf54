#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::*;
use crate::{
    finding::Severity,
    project::test_cases::{AssertionKind, TestStepKind},
};

fn read_text(text: &str) -> (Option<TestFile>, Vec<Finding>) {
    TestFile::read(&SourceFile { path: "tests/a.yml".into(), text: text.into() })
}

fn places(findings: &[Finding]) -> Vec<(&str, u32, u32)> {
    findings.iter().map(|f| (f.code, f.place.line, f.place.column)).collect()
}

const EVERYTHING: &str = r#"
fixtures:
  - premium_user:
      - membership: premium
      - logged_in: true
      - mocked_datetime: "2026-06-15T10:00:00+00:00"
metadata:
  - phone: { source: phone }
stub_custom_actions:
  action_check:
    events: [{ event: slot, name: balance, value: 1300 }]
    responses: [{ text: You have 1300. }]
  second case::action_check: { events: [], responses: [] }
stub_mcp_tools:
  bank.doubt: { outcome: unknown }
  bank.rates: { result: { eur: 1.1 } }
  second case::bank.rates: [{ error: closed }, { result: open }]
stub_agents:
  clerk: { says: [One moment., Done.], slots: { found: true }, status: awaiting_user }
stub_llm: bank.script.yml
llm_judge: { llm: { model_group: judge } }
endpoints: endpoints.yml
test_cases:
  - test_case: first case
    fixtures: [premium_user]
    metadata: phone
    steps:
      - user: 150
      - bot: "Exactly this."
      - utter: utter_ask
      - slot_was_set: [{ amount: 150 }, city]
      - slot_was_not_set: [pin]
      - slot_was_set: account
      - slot_was_not_set: { account: savings }
  - test_case: second case
    steps:
      - user: "yes"
        metadata: phone
        assertion_order_enabled: true
        commands: [set slot a 1]
        assertions:
          - flow_started: transfer
          - flow_started: { flow_ids: [a, b], operator: any }
          - flow_completed: { flow_id: transfer, flow_step_id: done }
          - flow_cancelled: { flow_id: transfer }
          - pattern_clarification_contains: [a, b]
          - pattern_clarification_contains: { operator: any, flow_ids: [a] }
          - slot_was_set: [{ name: amount, value: 50 }, { name: city }, { name: pizza, value: null }]
          - slot_was_not_set: [{ name: pin }, { name: city, value: Rome }]
          - action_executed: action_transfer
          - bot_uttered: { utter_name: utter_a, text_matches: 'have \d+ dollars', buttons: [{ title: Yes, payload: /ok }] }
          - bot_did_not_utter: { text_matches: sorry }
          - generative_response_is_relevant: { threshold: 0.85, utter_name: utter_a, utter_source: clerk }
          - generative_response_is_grounded: { threshold: 0.9, ground_truth: It is so. }
          - agent_started: clerk
          - agent_completed: clerk
          - agent_interrupted: clerk
          - agent_resumed: clerk
          - agent_cancelled: clerk
          - tool_called: { name: rates, server: bank, agent_id: clerk, arguments: { of: "e.r", n: 2 }, success: true, times: 1 }
          - tool_not_called: pay
          - max_llm_calls: 3
          - max_turn_latency_ms: 2000
      - commands: [{ start_flow: transfer }]
"#;

#[test]
fn every_key_of_the_format_is_read() {
    let (file, findings) = read_text(EVERYTHING);
    assert_eq!(places(&findings), []);
    let file = file.unwrap();
    let shared = &file.shared;
    assert_eq!(shared.fixtures["premium_user"].slots.len(), 3);
    assert_eq!(shared.metadata["phone"]["source"], "phone");
    assert_eq!(shared.actions.len(), 2);
    assert_eq!(shared.tools["second case::bank.rates"].answers[0], StubTool::Error("closed".into()));
    assert_eq!(shared.agents["clerk"].answers[0].ends, StubStatus::AwaitingUser);
    assert_eq!(&*shared.llm.as_ref().unwrap().name, "bank.script.yml");
    assert_eq!(shared.judge.as_ref().unwrap()["model_group"], "judge");
    let [first, second] = file.cases.as_slice() else { panic!("{:?}", file.cases) };
    assert!(!first.asserts() && second.asserts());
    assert!(matches!(&first.steps[0].kind, TestStepKind::User(user) if &*user.text == "150"));
    assert!(
        matches!(&first.steps[3].kind, TestStepKind::SlotWasSet(slots) if slots.len() == 2 && slots[1].value.is_none())
    );
    let TestStepKind::User(user) = &second.steps[0].kind else { panic!("{second:?}") };
    assert_eq!(user.assertions.len(), 22);
    let AssertionKind::SlotWasSet(slots) = &user.assertions[6].kind else { panic!("{user:?}") };
    let values: Vec<_> = slots.iter().map(|slot| slot.value.clone()).collect();
    assert_eq!(values, [Some(serde_json::json!(50)), None, Some(Json::Null)]);
    let keys: Vec<_> = user.assertions.iter().map(|assertion| assertion.kind.key()).collect();
    let declared: Vec<_> = super::super::super::schema::ASSERTION.names().collect();
    assert!(declared.iter().all(|key| keys.contains(key)), "{declared:?}");
}

#[test]
fn all_errors_of_a_file_are_reported_at_once_with_locations() {
    let text = r#"
fixtures:
  - premium
test_case: []
test_cases:
  - test_case: one
    step: []
    steps:
      - usr: hello
      - bot: first
        assertions: []
  - test_case: two
    steps:
      - user: hello
        assertions:
          - bot_utterd: {}
          - bot_uttered: {}
          - bot_uttered: { text_matches: "a(b" }
          - flow_started: a
            flow_completed: b
          - generative_response_is_relevant: { threshold: 4 }
          - flow_completed: { flow_step_id: s }
  - test_case: three
    steps:
      - user: hello
      - bot: one
        utter: two
  - test_case: three
    steps: [{ user: hello }]
  - test_case: three
    steps: [{ user: hello }]
  - test_case: four
    steps: [{ user: hello }]
"#;
    let (file, findings) = read_text(text);
    let expected = [
        ("F0108", 3, 5),
        ("F0107", 4, 1),
        ("F0107", 7, 5),
        ("F0107", 9, 9),
        ("E0103", 11, 9),
        ("F0107", 16, 13),
        ("E0103", 17, 26),
        ("E0105", 18, 45),
        ("E0103", 19, 13),
        ("E0105", 21, 59),
        ("F0109", 22, 29),
        ("E0103", 26, 9),
        ("E0102", 28, 16),
        ("E0102", 30, 16),
    ];
    assert_eq!(places(&findings), expected);
    assert!(findings.iter().all(|f| f.severity == Severity::Error && !f.help.is_empty()), "{findings:?}");
    let whole: Vec<bool> = file.unwrap().cases.iter().map(|case| case.whole).collect();
    assert_eq!(whole, [false, false, false, true], "what is left of a case with an error is marked");
}

#[test]
fn steps_beside_assertions_are_reported_as_ignored() {
    let text = "test_cases:\n  - test_case: a\n    steps:\n      - user: hi\n        assertions: [{ action_executed: b }]\n      - bot: hello\n";
    let (file, findings) = read_text(text);
    assert_eq!(places(&findings), [("E0104", 6, 9)]);
    assert_eq!(file.unwrap().cases.len(), 1);
}

#[test]
fn forms_of_older_projects_have_no_findings() {
    let text = r#"
test_cases:
  - test_case: with commands of their own
    steps:
      - user: yes
      - commands:
        - start_flow: pay
        - set_slot:
          - amount: "50"
        - correct_slot:
          - to: null
      - utter: utter_a
      - user: >-
          two lines
          of text
      - commands:
        - error:
          error_type: too_long
  - test_case: buttons without quotes
    fixtures: []
    steps:
      - user: /SetSlots(ok=True)
        assertions:
            - bot_uttered:
                buttons:
                  - title: Yes
                    payload: /SetSlots(ok=True)
            - slot_was_set:
                - name: ok
                  value: True
            - flow_completed:
                 flow_id: pay
"#;
    let (file, findings) = read_text(text);
    assert_eq!(places(&findings), []);
    let TestStepKind::User(user) = &file.unwrap().cases[1].steps[0].kind else { panic!() };
    let AssertionKind::SlotWasSet(slots) = &user.assertions[1].kind else { panic!("{user:?}") };
    assert_eq!(slots[0].value, Some(serde_json::json!(true)));
    let (file, findings) = read_text("test_cases:\n  - test_case: empty\n    steps: []\n");
    assert_eq!(places(&findings), [("E0103", 3, 5)]);
    assert!(findings[0].severity == Severity::Warning && file.unwrap().cases[0].whole);
}

#[test]
fn a_conftest_may_be_empty_and_has_no_cases() {
    let read = |text: &str| TestFile::read_conftest(&SourceFile { path: "conftest.yml".into(), text: text.into() });
    assert_eq!(read("").1.len(), 0);
    assert_eq!(places(&read("test_cases: []").1), [("F0107", 1, 1)]);
}

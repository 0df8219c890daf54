#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use serde_json::json;

use super::*;

type ExpectedCall<'a> = (&'a str, &'a str, &'a str);
type Increment<'a> = (Option<u64>, &'a str, &'a str, &'a str);

fn assemble(increments: &[Increment<'_>]) -> Result<ChatResponse, LlmError> {
    let mut assembler = Assembler::new(3, 400);
    for (index, id, name, arguments) in increments.iter().copied() {
        assembler.call(ToolCallDelta { index, id, name, arguments, ..ToolCallDelta::default() });
    }
    assembler.finish(FinishReason::ToolCalls);
    assembler.finish_response()
}

fn calls_of(answer: &ChatResponse) -> Vec<(String, String, String)> {
    let fields = |call: &ToolCall| (call.id.to_string(), call.name.to_string(), call.arguments.to_string());
    answer.tool_calls.iter().map(fields).collect()
}

#[test]
fn tool_call_deltas_of_all_providers_are_assembled() {
    let cases: [(&str, &[Increment<'_>], &[ExpectedCall<'_>]); 13] = [
        (
            "in increments",
            &[(Some(0), "a", "f", ""), (Some(0), "", "", "{\"x\""), (Some(0), "", "", ":1}")],
            &[("a", "f", r#"{"x":1}"#)],
        ),
        (
            "interleaved",
            &[(Some(0), "a", "f", ""), (Some(1), "b", "g", ""), (Some(0), "", "", "{}"), (Some(1), "", "", "[]")],
            &[("a", "f", "{}"), ("b", "g", "[]")],
        ),
        ("names and ids repeated", &[(Some(0), "a", "f", "{"), (Some(0), "a", "f", "}")], &[("a", "f", "{}")]),
        ("no arguments", &[(Some(0), "a", "f", "")], &[("a", "f", "{}")]),
        (
            "no index, by id",
            &[(None, "a", "f", "{}"), (None, "b", "g", "{"), (None, "b", "", "}")],
            &[("a", "f", "{}"), ("b", "g", "{}")],
        ),
        (
            "no index, no id",
            &[(None, "", "f", "{"), (None, "", "", "}"), (None, "", "f", "{}")],
            &[("call_3_0", "f", "{}"), ("call_3_1", "f", "{}")],
        ),
        (
            "every index 0",
            &[(Some(0), "a", "f", "{"), (Some(0), "", "", "}"), (Some(0), "b", "f", "{}")],
            &[("a", "f", "{}"), ("b", "f", "{}")],
        ),
        (
            "every index 0 and no id",
            &[
                (Some(0), "", "f", "{}"),
                (Some(0), "", "g", "{"),
                (Some(0), "", "", "}"),
                (Some(0), "", "g", "{\"x\":1}"),
            ],
            &[("call_3_0", "f", "{}"), ("call_3_1", "g", "{}"), ("call_3_2", "g", r#"{"x":1}"#)],
        ),
        (
            "every index 0 and one id",
            &[(Some(0), "a", "f", "{}"), (Some(0), "", "g", "{}")],
            &[("a", "f", "{}"), ("call_3_1", "g", "{}")],
        ),
        (
            "names repeated without ids",
            &[(Some(0), "", "f", ""), (Some(0), "", "f", "{"), (Some(0), "", "f", "}"), (Some(0), "", "f", "")],
            &[("call_3_0", "f", "{}")],
        ),
        ("a new id in every piece", &[(Some(0), "a", "f", "{"), (Some(0), "b", "", "}")], &[("a", "f", "{}")]),
        (
            "one id for two calls",
            &[(Some(0), "a", "f", "{}"), (Some(1), "a", "f", "[]")],
            &[("a", "f", "{}"), ("call_3_1", "f", "[]")],
        ),
        ("the same call twice", &[(Some(0), "a", "f", "{}"), (Some(1), "a", "f", "{}")], &[("a", "f", "{}")]),
    ];
    for (case, increments, expected) in cases {
        let answer = assemble(increments).unwrap();
        let expected: Vec<_> = expected.iter().map(|(a, b, c)| (a.to_string(), b.to_string(), c.to_string())).collect();
        assert_eq!(calls_of(&answer), expected, "{case}");
    }
}

#[test]
fn tool_calls_need_a_finish_reason() {
    let mut assembler = Assembler::new(1, 0);
    assembler.call(ToolCallDelta { index: Some(0), id: "a", name: "pay", arguments: "", ..ToolCallDelta::default() });
    assembler.end_marker().unwrap();
    assert_eq!(assembler.finish_response().unwrap_err().kind, LlmErrorKind::Truncated);
}

#[test]
fn the_end_marker_completes_text() {
    let mut assembler = Assembler::new(1, 0);
    assembler.text("hello").unwrap();
    assembler.end_marker().unwrap();
    assert_eq!(&*assembler.finish_response().unwrap().text, "hello");
}

#[test]
fn truncated_calls_are_reported_by_name_only() {
    for finish in [FinishReason::Length, FinishReason::ContentFilter] {
        let mut assembler = Assembler::new(1, 0);
        assembler.call(ToolCallDelta {
            index: Some(0),
            id: "a",
            name: "pay",
            arguments: "{}",
            ..ToolCallDelta::default()
        });
        assembler.finish(finish);
        let answer = assembler.finish_response().unwrap();
        assert!(answer.tool_calls.is_empty());
        assert_eq!(answer.truncated_calls, ["pay".into()]);
        assert_eq!(answer.finish, finish);
    }
}

#[test]
fn malformed_arguments_carry_the_position_of_the_error() {
    let answer = assemble(&[(Some(0), "a", "f", r#"{"x": "#)]).unwrap();
    let ToolArguments::Malformed { text, error } = &answer.tool_calls[0].arguments else { panic!("{answer:?}") };
    assert_eq!(&**text, r#"{"x": "#);
    assert!(error.contains("line 1 column"), "{error}");
    assert_eq!(answer.tool_calls[0].arguments.as_json(), None);
}

#[test]
fn deltas_after_the_finish_reason_are_ignored() {
    let mut assembler = Assembler::new(1, 0);
    assembler.text("a").unwrap();
    assembler.finish(FinishReason::Stop);
    assert!(!assembler.text("b").unwrap());
    assert!(!assembler.call(ToolCallDelta { name: "pay", ..ToolCallDelta::default() }));
    assembler.finish(FinishReason::ToolCalls);
    let answer = assembler.finish_response().unwrap();
    assert_eq!((&*answer.text, answer.tool_calls.len(), answer.finish), ("a", 0, FinishReason::Stop));
}

#[test]
fn every_buffer_is_limited() {
    let mut assembler = Assembler::new(1, 0);
    assert_eq!(assembler.text(&"x".repeat(limits::MODEL_ANSWER + 1)), Err(InvalidResponse::TextTooLong));
}

fn drop_reasons(answer: &ChatResponse) -> Vec<Option<DropReason>> {
    answer.tool_calls.iter().map(|call| call.arguments.drop_reason()).collect()
}

#[test]
fn a_call_that_cannot_run_leaves_the_others_in_their_places() {
    let long = "x".repeat(limits::MODEL_ARGUMENTS + 1);
    let answer = assemble(&[
        (Some(0), "a", "f", "{}"),
        (Some(1), "b", "", "{\"x\":1}"),
        (Some(2), "c", "g", &long),
        (Some(2), "", "", "{}"),
        (Some(3), "d", "h", "{}"),
    ])
    .unwrap();
    assert_eq!(drop_reasons(&answer), [None, Some(DropReason::NoName), Some(DropReason::TooLong), None]);
    let expected = [("a", "f", "{}"), ("b", "unnamed", ""), ("c", "g", ""), ("d", "h", "{}")];
    assert_eq!(calls_of(&answer), expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned())));
}

#[test]
fn only_the_first_calls_that_can_run_do() {
    let mut many: Vec<Increment<'_>> = vec![(Some(1_000), "no name", "", "{}")];
    many.extend((0..500).map(|i| (Some(i), "", "f", "{}")));
    let answer = assemble(&many).unwrap();
    let reasons = drop_reasons(&answer);
    assert_eq!(reasons.len(), limits::MODEL_CALLS_KEPT);
    assert_eq!(reasons.iter().filter(|reason| reason.is_none()).count(), limits::MODEL_CALLS);
    assert!(reasons[1..=limits::MODEL_CALLS].iter().all(Option::is_none), "a call that cannot run takes no place");
    assert_eq!(reasons[limits::MODEL_CALLS + 1], Some(DropReason::TooMany));
    assert_eq!(answer.warnings, [ResponseWarning::CallsIgnored]);
}

#[test]
fn the_arguments_of_all_calls_together_are_limited() {
    let long = format!("\"{}\"", "x".repeat(limits::MODEL_ARGUMENTS - 2));
    let fit = limits::MODEL_ARGUMENTS_TOTAL / limits::MODEL_ARGUMENTS;
    let many: Vec<Increment<'_>> = (0..fit as u64 + 1).map(|i| (Some(i), "", "f", &*long)).collect();
    let reasons = drop_reasons(&assemble(&many).unwrap());
    assert!(reasons[..fit].iter().all(Option::is_none) && reasons[fit] == Some(DropReason::TooLong), "{reasons:?}");
}

#[test]
fn an_increment_without_name_and_arguments_is_no_call() {
    let answer = assemble(&[(None, "a", "f", "{}"), (Some(0), "", "", ""), (Some(7), "sig", "", "")]).unwrap();
    assert_eq!(calls_of(&answer), [("a".to_owned(), "f".to_owned(), "{}".to_owned())]);
    let answer = assemble(&[(Some(0), "", "", "")]).unwrap();
    assert_eq!((answer.tool_calls.len(), answer.finish), (0, FinishReason::Stop));
}

#[test]
fn usage_is_estimated_when_missing_or_impossible() {
    for reported in [None, Some(Usage { input: u64::MAX, ..Usage::default() })] {
        let mut assembler = Assembler::new(1, 401);
        assembler.text("12345").unwrap();
        reported.into_iter().for_each(|usage| assembler.usage(usage));
        assembler.finish(FinishReason::Stop);
        let usage = assembler.finish_response().unwrap().usage;
        assert_eq!((usage.input, usage.output, usage.estimated), (101, 2, true));
    }
}

#[test]
fn tool_calls_override_the_finish_reason_stop() {
    let mut assembler = Assembler::new(1, 0);
    assembler.call(ToolCallDelta { index: Some(0), id: "a", name: "f", arguments: "{}", ..ToolCallDelta::default() });
    assembler.finish(FinishReason::Stop);
    let answer = assembler.finish_response().unwrap();
    assert_eq!(answer.finish, FinishReason::ToolCalls);
    assert_eq!(answer.tool_calls[0].arguments.as_json(), Some(&json!({})));
}

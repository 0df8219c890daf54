//! Tests: `ask_clarification`.

use super::*;

#[tokio::test]
async fn a_question_is_structured_content_for_the_runtime() {
    let fixture = Fixture::new();
    let arguments = json!({
        "question": "When do you travel?", "clarification_type": "missing_info", "context": "Two dates are needed.",
        "options": ["soon", "later"],
        "fields": [
            {"name": "start", "label": "Start", "type": "date", "required": true},
            {"name": "class", "label": "Class", "type": "select", "options": ["first", "second"]}
        ]
    });
    let outcome = fixture.agent().call(ASK_CLARIFICATION, arguments).await;
    let ToolOutcome::Done(output) = outcome else { panic!("{outcome:?}") };
    let question: Clarification = serde_json::from_value(output.structured.unwrap()).unwrap();
    assert_eq!((question.clarification_type, question.options.len()), (ClarificationKind::MissingInfo, 2));
    assert_eq!((question.fields[0].kind, question.fields[0].required), (FieldKind::Date, true));
    assert_eq!((question.fields[1].kind, question.fields[1].required), (FieldKind::Select, false));
    assert!(tree(fixture.folder.path()).is_empty(), "a question needs no folder");
}

#[tokio::test]
async fn questions_that_cannot_be_asked_are_refused_with_the_reason() {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    let field = |name: &str, kind: &str, options: usize| json!({"name": name, "label": "L", "type": kind, "options": vec!["o"; options]});
    let cases = [
        (json!({"question": "  "}), "its text is blank"),
        (json!({"question": "q", "clarification_type": "other"}), "must be one of"),
        (json!({"question": "q".repeat(4_001)}), "longer than 4000 characters"),
        (json!({"question": "q", "options": vec!["o"; 25]}), "more than 24 items"),
        (json!({"question": "q", "fields": vec![field("a", "text", 0); 17]}), "more than 16 items"),
        (json!({"question": "q", "fields": [field("a", "select", 25)]}), "more than 24 items"),
        (
            json!({"question": "q", "fields": [field("a", "text", 0), field("a", "date", 0)]}),
            "two fields have the name `a`",
        ),
        (json!({"question": "q", "fields": [field("a", "select", 0)]}), "the field `a` needs `options`"),
        (json!({"question": "q", "fields": [field("a", "number", 2)]}), "the field `a` may not have `options`"),
        (json!({"question": "q", "fields": [field("a", "colour", 0)]}), "must be one of"),
    ];
    for (mut arguments, expected) in cases {
        if arguments.get("clarification_type").is_none() {
            arguments["clarification_type"] = json!("suggestion");
        }
        let outcome = agent.call(ASK_CLARIFICATION, arguments.clone()).await;
        assert_eq!(code(&outcome), "bad_arguments", "{arguments}");
        assert!(outcome.for_model().contains(expected), "{arguments}: {}", outcome.for_model());
    }
}

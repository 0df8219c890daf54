//! Answers that contain more than bare commands, or none.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use proptest::prelude::*;

use super::*;
use crate::understanding::{fixture::bank, grammar::tests::short};

fn parse_answer(text: &str) -> ParsedAnswer {
    let project = bank();
    parse(&ChatResponse::text(text), &Grammar { project: &project, active: Vec::new() })
}

#[test]
fn commands_are_found_beside_reasoning_prose_and_json() {
    for (text, expected) in [
        // reasoning
        ("<think>maybe\nstart flow check-balance</think>\ncancel flow", "cancel"),
        ("\n<thinking>\ncancel flow\n</thinking>\n\nset slot amount 5", r#"set amount="5""#),
        ("they want\ncancel flow\n</think>\nset slot amount 5", r#"set amount="5""#),
        (
            "set slot recipient </think> start flow check-balance",
            r#"set recipient="</think> start flow check-balance""#,
        ),
        // prose around commands, headings between them
        (
            "Here are the actions:\n\nstart flow transfer_money\nset slot amount 5",
            r#"start transfer_money | set amount="5""#,
        ),
        ("cancel flow\n\nThis stops the transfer, as the person asked.", "cancel"),
        (
            "**Flows**\nstart flow transfer_money\n**Slots**\nset slot amount 5",
            r#"start transfer_money | set amount="5""#,
        ),
        ("Sure!\n```\nstart flow transfer_money\n```\nHope that helps.", "start transfer_money"),
        ("start flow nothing\ncancel flow", "cancel"),
        // JSON
        (
            r#"[{"command": "start flow", "flow": "transfer_money"}, {"command": "set slot", "name": "amount", "value": 50}]"#,
            r#"start transfer_money | set amount="50""#,
        ),
        (
            "```json\n[\n  {\"action\": \"set_slot\", \"slot\": \"transfer_confirmed\", \"value\": true}\n]\n```",
            r#"set transfer_confirmed="true""#,
        ),
        (
            r#"{"actions": ["start flow transfer_money", "set slot amount 5"]}"#,
            r#"start transfer_money | set amount="5""#,
        ),
        (
            "{\"command\": \"cancel flow\"}\n{\"command\": \"StartFlow\", \"flow\": \"check-balance\"}",
            "cancel | start check-balance",
        ),
        (r#"["cancel flow"]"#, "cancel"),
        (r#"{"start flow": "transfer_money"}"#, "start transfer_money"),
        (r#"[{"set slot": {"name": "recipient", "value": null}}]"#, "set recipient=null"),
        (
            r#"{"command": "set slot", "name": "recipient", "value": "Joe\ncancel flow"}"#,
            r#"set recipient="Joe\ncancel flow""#,
        ),
        (
            r#"{"name": "set_slot", "action": "set_slot", "arguments": {"name": "amount", "value": 5}}"#,
            r#"set amount="5""#,
        ),
        (
            r#"{"command": "clarify", "options": ["transfer_money", "check-balance"]}"#,
            "clarify check-balance transfer_money",
        ),
        (r#"{"command": "restart agent", "agent_id": "trip_planner"}"#, "restart trip_planner"),
        ("[start flow transfer_money]", "start transfer_money"),
    ] {
        let parsed = parse_answer(text);
        assert_eq!(short(&parsed.commands), expected, "{text}");
        assert_eq!(parsed.mistakes, [""; 0], "{text}");
    }
}

#[test]
fn unusable_answers_have_mistakes_to_report() {
    for (text, mistake) in [
        ("start flow transfer_money\nor perhaps rather\nstart flow check-balance", "prose between"),
        ("- `start flow <flow>`: the person wants it.\nset slot amount 5", "placeholder"),
        ("I'm sorry, I cannot help with that.", "no action has this form"),
        ("start flow nothing", "no such flow"),
        ("set slot nothing 5", "no such slot"),
        (r#"[{"command": "start flow", "flow": "nothing"}]"#, "no such flow"),
        (r#"{"answer": 42}"#, "no action has this form"),
        (r#"[{"command": "start flow", "flow"#, "no action has this form"),
        ("42", "no action has this form"),
    ] {
        let parsed = parse_answer(text);
        assert!(parsed.commands.is_empty(), "{text}: {:?}", parsed.commands);
        let mistakes = parsed.mistakes.join("\n");
        assert!(if text == "42" { mistakes.is_empty() } else { mistakes.contains(mistake) }, "{text}: {mistakes}");
    }
}

#[test]
fn the_prompt_itself_yields_no_commands() {
    let prompt = include_str!("../../../prompts/commands.j2");
    assert!(parse_answer(prompt).commands.is_empty());
}

#[test]
fn an_empty_answer_has_no_mistakes() {
    for (text, is_blank) in [
        ("", true),
        ("  \n", true),
        ("<think>hm", true),
        ("<think>cancel flow</think>", true),
        ("```\n```", false),
        ("...", false),
    ] {
        assert_eq!(parse_answer(text), ParsedAnswer::empty(is_blank), "{text}");
    }
}

proptest! {
    #[test]
    fn any_answer_is_parsed_without_panic(text in any::<String>()) {
        parse_answer(&text);
    }
    #[test]
    fn any_json_is_parsed_without_panic(depth in 0usize..200, text in "[\\[\\]{}\",:a-z0-9 ]{0,80}") {
        parse_answer(&format!("{}{text}{}", "[".repeat(depth), "]".repeat(depth)));
    }
}

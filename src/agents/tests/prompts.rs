//! The messages of a request: prompt templates of the project, restart, resume, history, and a stable prefix for caching.

use segue_engine::conversation::{BotKind, BotMessage, EventKind, Reply};
use serde_json::{Value as Json, json};

use super::harness::{Harness, calls, text};
use crate::limits;

/// A template with a loop over slots as in Rasa 3.15, and mapping access and dates as in 3.16.
pub(super) const OWN: &str = "You help with: {{ description }}
{% for slot in slots %}{{ slot.name }}={{ slot.value }};{% endfor %}
{% if slots.vehicle %}with a car{% endif %}
{% if current_datetime %}{{ current_datetime.strftime('%d %B, %Y') }} {{ current_datetime.tzname() }}{% endif %}
{% if slot_names %}fill {{ slot_names | join(', ') }}{% endif %}";

#[tokio::test]
async fn templates_of_both_rasa_versions_render() {
    let own = "configuration:\n  prompt_template: prompts/own.jinja2\n  timezone: Europe/Oslo\n";
    let mut harness = Harness::new("book", own, "hi", vec![text("Which crossing?")]);
    let car = EventKind::Slot { name: "vehicle".into(), value: json!(true), filled_by: None, reset: false };
    harness.apply(car);
    harness.run().await;
    let request = harness.request(0);
    assert_eq!(request[0].0, "system");
    assert_eq!(
        request[0].1,
        "You help with: Finds crossings.\ncrossing=None;passengers=None;vehicle=True;language=en;\nwith a car\n18 November, 2026 CET\nfill crossing, passengers"
    );
    assert_eq!(
        request.iter().filter(|(role, _)| role == "system").count(),
        1,
        "the built-in context is not added to a template of the project"
    );
}

#[tokio::test]
async fn stable_prompt_comes_first_and_does_not_change_between_turns() {
    let steps = vec![text("Which crossing?"), text("How many?")];
    let mut harness = Harness::new("book", "", "hi", steps);
    harness.run_without_verify().await;
    harness.user("the early one");
    harness.call.at = segue_engine::time::Timestamp::from_seconds(1_795_100_000.0);
    harness.run().await;
    let (first, second) = (harness.request(0), harness.request(1));
    assert_eq!(first[0], second[0]);
    assert!(second[second.len() - 2].1.contains("- Now: "), "the changing part is just before the newest message");
    assert_eq!(second.last().unwrap(), &("user".into(), "the early one".into()));
}

#[tokio::test]
async fn earlier_run_is_marked_when_the_task_restarts() {
    let mut harness = Harness::new("book", "", "two please", vec![text("Which crossing this time?")]);
    let said = |text: &str| {
        let reply = Reply::text(text);
        EventKind::bot(BotMessage { reply, kind: BotKind::FinalResponse, ..BotMessage::default() })
    };
    harness.apply(said("All set."));
    harness.apply(EventKind::AgentCompleted {
        flow_id: "book".into(),
        agent_id: "finder".into(),
        status: "completed".into(),
        context_id: None,
    });
    harness.user("once more");
    harness.apply(EventKind::AgentStarted {
        flow_id: "book".into(),
        agent_id: "finder".into(),
        context_id: None,
        restarted: true,
    });
    harness.call.restarted = true;
    harness.run().await;
    let texts: Vec<String> = harness.request(0).into_iter().map(|(_, text)| text).collect();
    let at = |expected: &str| {
        texts.iter().position(|text| text == expected).unwrap_or_else(|| panic!("{expected}: {texts:#?}"))
    };
    assert!(at("--- Previous run (completed) ---") < at("All set."));
    assert!(at("All set.") < at("--- The previous run ends here ---"));
    assert!(at("--- The previous run ends here ---") < at("once more"));
    assert!(texts.iter().any(|text| text.contains("Previous run (completed)") && text.contains("fresh start")));
}

#[tokio::test]
async fn resumed_agent_sees_its_last_question() {
    let mut harness = Harness::new("search", "", "yes", vec![text("So, where from?")]);
    harness.call.resumed = true;
    harness.call.resumed_last_request = Some("Where from?".into());
    harness.run().await;
    let context = harness.request(0).into_iter().find(|(_, text)| text.contains("interrupted")).unwrap().1;
    assert!(context.contains("\"Where from?\""), "{context}");
}

#[tokio::test]
async fn every_call_has_one_result_in_every_request() {
    let steps = vec![
        calls("", &[("find", json!({})), ("nope", json!({})), ("fail", json!({})), ("task_completed", json!({}))]),
        text("Bye."),
    ];
    let mut harness = Harness::new("search", "", "hi", steps);
    harness.run().await;
    let roles: Vec<String> = harness.request(1).into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles[roles.len() - 5..], ["assistant", "tool", "tool", "tool", "tool"]);
}

#[tokio::test]
async fn only_the_latest_utterances_are_in_the_prompt() {
    let mut harness = Harness::new("search", "", "hi", vec![text("Where from?")]);
    for n in 0..30 {
        harness.user(&format!("message {n}"));
    }
    harness.run().await;
    let said: Vec<String> =
        harness.request(0).into_iter().filter(|(role, _)| role == "user").map(|(_, text)| text).collect();
    assert_eq!(said.len(), limits::AGENT_HISTORY);
    assert_eq!((said[0].as_str(), said.last().unwrap().as_str()), ("message 20", "message 29"));
}

/// The tool results of earlier turns in the next request.
async fn results_in_the_next_turn(configuration: &str, tool_calls: &[Vec<(&str, Json)>]) -> Vec<String> {
    let mut steps: Vec<_> = tool_calls.iter().map(|group| calls("", group)).collect();
    let before = steps.len() + 1;
    steps.extend([text("Which one?"), text("Well.")]);
    let mut harness = Harness::new("search", configuration, "hi", steps);
    harness.run_without_verify().await;
    harness.user("the second");
    harness.run().await;
    harness.request(before).into_iter().filter(|(role, _)| role == "tool").map(|(_, text)| text).collect()
}

#[tokio::test]
async fn long_result_does_not_displace_other_exchanges() {
    let list = json!({"lines": limits::TOOL_RESULT / 6});
    let tool_calls = [("other", json!({})), ("find", list), ("find", json!({}))].map(|call| vec![call]);
    let results = results_in_the_next_turn("", &tool_calls).await;
    let [first, long, last] = results.as_slice() else { panic!("{results:?}") };
    assert_eq!(
        (first.as_str(), last.as_str()),
        (r#"{"ok":true}"#, r#"{"crossings":["NW-1"]}"#),
        "short results are complete"
    );
    assert!(long.starts_with(r#"{"lines":"a line"#) && long.ends_with('…') && long.len() < limits::AGENT_EXCHANGES);
}

#[tokio::test]
async fn result_of_a_write_is_kept_after_many_reads() {
    let rules = "configuration:\n  max_iterations: 12\n  tools:\n    other: { effect: write }\n";
    let lists = vec![("find", json!({"lines": limits::AGENT_EXCHANGE_MIN})); 10];
    let mut tool_calls = vec![vec![("other", json!({}))], vec![("find", json!({"port": "oldest"}))]];
    tool_calls.extend(vec![lists; 9]);
    let results = results_in_the_next_turn(rules, &tool_calls).await;
    assert_eq!(results.first().unwrap(), r#"{"ok":true}"#);
    assert!(!results.iter().any(|text| text.contains("NW-1")), "the oldest reads are dropped first");
    assert!(results.last().unwrap().starts_with(r#"{"lines""#));
}

#[tokio::test]
async fn long_exchanges_have_shortened_texts_and_all_calls() {
    let long_call = |mark: &str| calls("", &[("find", json!({"port": mark.repeat(limits::AGENT_EXCHANGES * 2 / 3)}))]);
    let mut harness = Harness::new("search", "", "hi", vec![long_call("a"), long_call("b"), text("There is NW-1.")]);
    let outcome = harness.run().await;
    let exchanges = outcome.events.iter().find_map(|event| match &event.kind {
        EventKind::AgentExchanges { exchanges, .. } => Some(exchanges.clone()),
        _ => None,
    });
    let exchanges = exchanges.unwrap();
    assert_eq!(exchanges.len(), 4, "both calls and their results");
    assert!(exchanges[0].to_string().contains("aaa") && exchanges[2].to_string().contains("bbb"));
    let size: usize = exchanges.iter().map(|message| message.to_string().len()).sum();
    assert!(size <= limits::AGENT_EXCHANGES, "{size}");
}

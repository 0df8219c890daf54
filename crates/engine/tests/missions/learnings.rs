//! `<LEARNINGS>` blocks: reading, merging, and the way from item to item.

use segue_engine::mission::learnings::Learnings;
use serde_json::json;

use crate::driver::{CallOptions, Run};

fn learned(text: &str) -> Option<serde_json::Value> {
    Learnings::parse(text).map(|learnings| serde_json::to_value(learnings).unwrap())
}

#[test]
fn the_last_usable_block_of_a_text_counts() {
    let full = r#"Done. <LEARNINGS>{"key_insights": ["a", " b ", 5, ""], "failures": [{"problem": "p", "solution": "s"}, {"solution": "x"}], "recommendations": "r"}</LEARNINGS>"#;
    let expected =
        json!({"key_insights": ["a", "b"], "failures": [{"problem": "p", "solution": "s"}], "recommendations": "r"});
    assert_eq!(learned(full), Some(expected));
    let two = "<LEARNINGS>{\"key_insights\": [\"old\"]}</LEARNINGS> x <LEARNINGS>\n```json\n{\"key_insights\": [\"new\"]}\n```\n</LEARNINGS>";
    assert_eq!(learned(two), Some(json!({"key_insights": ["new"]})));
    let broken_last = "<LEARNINGS>{\"key_insights\": [\"old\"]}</LEARNINGS><LEARNINGS>{oops</LEARNINGS>";
    assert_eq!(learned(broken_last), Some(json!({"key_insights": ["old"]})));
    let listed = r#"<LEARNINGS>{"recommendations": ["one", "two"]}</LEARNINGS>"#;
    assert_eq!(learned(listed), Some(json!({"recommendations": "one\ntwo"})));
    for none in ["", "<LEARNINGS>", "</LEARNINGS><LEARNINGS>", "<LEARNINGS>}{</LEARNINGS>", "<LEARNINGS>{}</LEARNINGS>"]
    {
        assert_eq!(learned(none), None, "{none}");
    }
    assert_eq!(Learnings::strip("Answer.\n<LEARNINGS>{}</LEARNINGS> More"), "Answer. More");
    assert_eq!(Learnings::strip("a <LEARNINGS> open"), "a <LEARNINGS> open");
}

#[test]
fn the_newest_twenty_insights_stay() {
    let mut all = Learnings::default();
    for n in 0..25 {
        let text = format!("<LEARNINGS>{{\"key_insights\": [\"i{n}\"], \"recommendations\": \"r{n}\"}}</LEARNINGS>");
        all.merge(&Learnings::parse(&text).unwrap());
    }
    assert_eq!(all.key_insights.len(), 20);
    assert_eq!((&*all.key_insights[0], &*all.key_insights[19], &*all.recommendations), ("i5", "i24", "r24"));
    // A repeated insight is not stored twice, and counts as new.
    all.merge(&Learnings::parse("<LEARNINGS>{\"key_insights\": [\"i5\"]}</LEARNINGS>").unwrap());
    assert_eq!(all.key_insights.len(), 20);
    assert_eq!((&*all.key_insights[0], &*all.key_insights[19]), ("i6", "i5"));
    let values = all.prompt_values();
    assert_eq!(values.get_attr("key_insights").unwrap().len(), Some(20));
}

#[test]
fn learnings_of_an_item_are_there_for_the_next_one() {
    use segue_engine::mission::tools::{Arguments, Then};
    let mut run =
        Run::of("{name: m, datasets: {d: {items: [{}, {}]}}, tasks: {s: {iterator: {dataset: d, session: fresh}}}}");
    let first = run.call("s", "dataset_next", json!({}));
    assert_eq!(first.then, Then::Continue, "the first item needs no other session");
    let options = CallOptions {
        learnings: Learnings::parse("<LEARNINGS>{\"key_insights\": [\"slow site\"]}</LEARNINGS>"),
        ..Default::default()
    };
    let next = run.try_call("s", "dataset_next", Arguments::Json(&json!({})), &options);
    assert_eq!(next.then, Then::FreshSession);
    assert_eq!(&*run.state.tasks["s"].learnings.key_insights[0], "slow site");
    let options = CallOptions {
        learnings: Learnings::parse("<LEARNINGS>{\"failures\": [\"captcha\"]}</LEARNINGS>"),
        ..Default::default()
    };
    run.try_call("s", "task_complete", Arguments::Json(&json!({"summary": "done"})), &options);
    assert_eq!(&*run.state.tasks["s"].learnings.failures[0].problem, "captcha");
}

//! The test vectors for sub agents, by number, and where each is shown: a test, or a case of the engine.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc, sync::Mutex};

use segue::{
    Assistant, Effect, Incoming, NoSink, ToolCx, ToolOutcome, ToolOutput, ToolSpec, Toolbox,
    llm::{Answer, Arguments, Finish, ToolCall},
    testing::{ScriptedLlm, World},
    tools::registry::FunctionTool,
};
use serde_json::{Value as Json, json};

const VECTORS: [(u32, &str); 39] = [
    (1, "v1_text_alone_asks_the_user_and_is_sent_once"),
    (2, "v2_a_filler_is_recorded_before_its_tool_and_the_result_reaches_the_model"),
    (3, "v3_text_with_task_completed_is_the_closing_line"),
    (4, "v4_task_completed_without_text_asks_for_the_closing_line_without_tools"),
    (5, "v5_a_tool_beside_task_completed_runs_in_both_orders"),
    (5, "every_override_point_of_an_open_agent_counts"),
    (6, "v6_an_unknown_tool_is_told_to_the_model_or_ends_the_run"),
    (7, "v7_arguments_that_are_no_json_are_corrected_once"),
    (8, "v8_three_empty_answers_with_waits_of_one_and_two_seconds_fail"),
    (9, "v9_calls_without_end_stop_at_the_limit_and_are_no_success"),
    (10, "v10_the_task_is_done_when_the_last_condition_holds_and_ends_without_a_word"),
    (11, "v11_both_values_of_one_answer_count_before_the_exit_check"),
    (12, "v12_a_value_set_before_a_question_is_kept"),
    (13, "v13_what_is_no_number_is_refused_with_a_reason_and_does_not_end_the_task"),
    (14, "v14_the_declared_spelling_of_a_category_is_recorded"),
    (15, "v15_a_text_when_everything_is_filled_completes_and_is_recorded"),
    (16, "a task agent, and a second time"),
    (16, "an_earlier_run_is_marked_when_the_task_starts_afresh"),
    (17, "a task agent, and a second time"),
    (18, "a digression and back to the agent"),
    (18, "a_resumed_agent_is_told_what_it_had_asked"),
    (19, "a digression and not back"),
    (20, "two agents in one flow, the second interrupted"),
    (20, "several agents of two flows interrupted at once, each resumed in its turn"),
    (21, "a failure is said once"),
    (21, "the agent of another flow lives on after a failure"),
    (22, "arguments from slots, slots from the result"),
    (22, "a path that is not there is empty, a list in a text slot is JSON"),
    (22, "failures end the flow with one message"),
    (23, "v23_what_every_call_carries_is_exact_and_an_empty_slot_is_left_out"),
    (24, "headers_of_the_entry_are_on_every_request_and_never_printed"),
    (24, "tokens_are_kept_and_asked_for_anew_when_one_is_refused"),
    (24, "every_example_gives_its_code"),
    (25, "vector_25_a_stream_of_the_older_generation"),
    (26, "vector_26_a_task_is_asked_for_in_growing_pauses_until_patience_ends"),
    (27, "vector_27_a_task_that_nobody_wants_any_more_is_asked_about_no_longer"),
    (28, "vector_28_a_stream_of_the_newer_generation"),
    (29, "v29_templates_of_both_generations_render"),
    (30, "every_stream_gives_what_it_must"),
];

fn names(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            names(&path, text);
        } else if path.extension().is_some_and(|end| end == "rs" || end == "yml") && !path.ends_with("vectors.rs") {
            text.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_vector_is_shown_by_a_test_that_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut text = include_str!("vectors.rs").split("#[tokio::test]").skip(1).collect::<String>();
    ["src", "crates/engine/tests", "tests/it"].into_iter().for_each(|folder| names(&root.join(folder), &mut text));
    for (number, name) in VECTORS {
        let is_there = text.contains(&format!("fn {name}(")) || text.contains(&format!("case: {name}"));
        assert!(is_there, "vector {number}: nothing is called `{name}`");
    }
    let shown: BTreeSet<u32> = VECTORS.iter().map(|(number, _)| *number).collect();
    let missing: Vec<u32> = (1..=30).filter(|number| !shown.contains(number)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test]
async fn v23_what_every_call_carries_is_exact_and_an_empty_slot_is_left_out() {
    let seen: Arc<Mutex<Vec<Json>>> = Arc::default();
    let kept = seen.clone();
    let spec = ToolSpec {
        name: "look".into(),
        description: "looks".into(),
        parameters: Arc::new(json!({"type": "object"})),
        strict: false,
        effect: Effect::Read,
        source: "bank".into(),
    };
    let run = move |_: Json, cx: ToolCx| {
        kept.lock().unwrap().push(Json::Object((*cx.meta).clone()));
        std::future::ready(ToolOutcome::Done(ToolOutput::structured(json!({}))))
    };
    let tool: Arc<dyn segue::Tool> = Arc::new(FunctionTool::new(spec, run).unwrap());
    let endpoints = r#"
mcp_servers:
  - name: bank
    url: http://127.0.0.1:9/mcp
    meta_map:
      static: { plan: gold }
      from_slots: [{ slot: customer, param: customer_id }, { slot: nobody, param: nobody }]
"#;
    let files = [
        (
            "config.yml",
            "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n",
        ),
        ("domain.yml", "slots: {customer: {type: text, initial_value: c-7}, nobody: {type: text}}\n"),
        ("endpoints.yml", endpoints),
        ("data/flows.yml", "flows: {look: {description: look, steps: [{call: looker}]}}\n"),
        (
            "sub_agents/looker/config.yml",
            "agent: {name: looker, description: d}\nconnections: {mcp_servers: [{name: bank}]}\n",
        ),
    ];
    let call = ToolCall { id: "c".into(), name: "look".into(), arguments: Arguments::json(json!({})) };
    let model = ScriptedLlm::strict([
        Answer::text("start flow look"),
        Answer { tool_calls: vec![call], finish: Finish::ToolCalls, ..Answer::default() },
        Answer::text("Well?"),
    ]);
    let builder = Assistant::builder_from_texts(files).unwrap().source(Arc::new(Toolbox::new("bank", [tool])));
    let assistant = World::of(builder.model(Arc::new(model))).unwrap().assistant;
    assistant.receive(Incoming::text("u", "look", "test"), Box::new(NoSink)).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [json!({"plan": "gold", "customer_id": "c-7"})]);
}

//! What missions express: rounds, limits over runs, chains, questions without an answer, reruns and plans.

use std::time::Duration;

use segue::{
    missions::MissionError,
    store::runs::{RunStatus, StopRequest},
    testing::ManualClock,
};

use segue_engine::mission::rerun::RerunFrom;

use super::*;

/// An engine in memory, with a model that a function makes.
fn engine(
    files: &[(&str, &str)],
    clock: &ManualClock,
    respond: impl Fn(&ChatRequest) -> ChatResponse + Send + Sync + 'static,
) -> RunEngine {
    let base =
        [("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"), ("domain.yml", "")];
    let profile = ModelProfile::for_model("test", "");
    let model = FunctionModel { profile, respond, requests: Arc::default() };
    let builder = Assistant::builder_from_texts(base.iter().chain(files).copied());
    let builder = builder.unwrap_or_else(|error| panic!("{error:?}"));
    builder
        .model(Arc::new(model))
        .clock(Arc::new(clock.clone()))
        .build_missions(Arc::new(MemoryRunStore::new()))
        .unwrap()
}

fn start(mission: &str, inputs: Json) -> StartRun {
    StartRun::new(mission).inputs(inputs.as_object().unwrap().clone())
}

async fn drive(engine: &RunEngine, run: &segue::ids::RunId) -> RunEnd {
    engine.drive(run, &CancellationToken::new(), &mut |_| {}).await.unwrap()
}

/// A model that gets it right in the second round if it was told about the first.
#[tokio::test]
async fn a_repeated_task_gets_the_findings_of_the_round_before_in_a_new_session() {
    let mission = format!(
        "{HEAD}  tasks:\n    fix:\n      objective: Fix.\n      output: {{passed: {{type: bool, required: true}}, log: string}}\n      repeat: {{until: output.passed, max: 3}}\n"
    );
    let finished = finish(&mission, json!({}), |request| {
        assert_eq!(request.messages.len(), 2, "each round has a session of its own");
        let prompt = request.messages[0].text();
        assert!(prompt.contains("of at most 3"), "{prompt}");
        let passed =
            prompt.contains("- the cache is stale") && prompt.contains(r#"{"passed":false,"log":"two tests fail"}"#);
        assert_eq!(prompt.contains("This is round 2"), passed, "{prompt}");
        let output = json!({"passed": passed, "log": "two tests fail"});
        let calls =
            calls(&[("submit_output", json!({ "output": output })), ("task_complete", json!({"summary": "tried"}))]);
        let text = r#"<LEARNINGS>{"key_insights": ["the cache is stale"]}</LEARNINGS>"#.into();
        ChatResponse { text, ..calls }
    })
    .await;
    assert_eq!(finished.end, RunEnd::Completed);
    assert_eq!(finished.requests.lock().unwrap().len(), 2);
    let state = finished.engine.status(&finished.run).await.unwrap().state;
    assert_eq!(state.tasks["fix"].round(), 2);
}

fn exclusive(overflow: &str) -> String {
    format!(
        "{HEAD}  inputs: {{issue: {{type: string}}}}\n  concurrency: {{key: 'issue-{{{{ inputs.issue }}}}', limit: 1, overflow: {overflow}}}\n  tasks: {{work: {{objective: Work.}}}}\n"
    )
}

/// Asks a person first.
fn asks(request: &ChatRequest) -> ChatResponse {
    match request.messages.last().unwrap().text() {
        "Work." => calls(&[("ask", json!({"question": "Go?"}))]),
        answer => calls(&[("task_complete", json!({ "summary": answer }))]),
    }
}

#[tokio::test]
async fn a_run_above_the_limit_of_its_key_is_refused() {
    let engine = engine(&[("missions/m.yml", &exclusive("skip"))], &ManualClock::new(), asks);
    let first = engine.start(start("m", json!({"issue": "7"}))).await.unwrap();
    assert_eq!(drive(&engine, &first).await, RunEnd::Waiting);
    let refused = engine.start(start("m", json!({"issue": "7"}))).await;
    let Err(error @ MissionError::Full(..)) = refused else { panic!("{refused:?}") };
    assert_eq!(
        error.to_string(),
        "1 of 1 runs with the key `issue-7` have begun and not ended (`concurrency.limit`); wait until one has ended, cancel one that is not needed, or write `overflow: queue`"
    );
    engine.start(start("m", json!({"issue": "8"}))).await.unwrap();
    engine.stop(&first, StopRequest::Cancel).await.unwrap();
    engine.start(start("m", json!({"issue": "7"}))).await.unwrap();
}

#[tokio::test]
async fn a_queued_run_begins_when_the_other_one_has_ended() {
    let clock = ManualClock::new();
    let engine = engine(&[("missions/m.yml", &exclusive("queue"))], &clock, asks);
    let first = engine.start(start("m", json!({"issue": "7"}))).await.unwrap();
    assert_eq!(drive(&engine, &first).await, RunEnd::Waiting);
    let second = engine.start(start("m", json!({"issue": "7"}))).await.unwrap();
    let status = async |run| engine.status(run).await.unwrap().stored.summary.status;
    assert_eq!(status(&second).await, RunStatus::Queued);
    let (answered, driven) = (engine.clone(), engine.clone());
    let of_second = second.clone();
    let waiting = tokio::spawn(async move { drive(&driven, &of_second).await });
    tokio::task::yield_now().await;
    let question = answered.control().questions(Some(first.clone())).await.unwrap()[0].key.id.clone();
    answered.control().answer(&first, question.as_str(), "yes", "event", None).await.unwrap();
    assert_eq!(drive(&answered, &first).await, RunEnd::Completed);
    for _ in 0..1_000 {
        clock.advance(Duration::from_millis(500));
        tokio::task::yield_now().await;
    }
    assert!(waiting.is_finished());
    assert_eq!(waiting.await.unwrap(), RunEnd::Waiting, "it began, and asks its own question");
    assert_eq!(engine.status(&second).await.unwrap().state.human_inputs.len(), 1);
}

#[tokio::test]
async fn a_question_without_an_answer_takes_the_declared_route_after_its_time() {
    let mission = format!(
        "{HEAD}  tasks:\n    work:\n      objective: Work.\n      questions: {{timeout_seconds: 3600}}\n      router: [{{to: stop, no_answer: true}}]\n    stop: {{objective: Stop.}}\n"
    );
    let clock = ManualClock::new();
    let engine = engine(&[("missions/m.yml", &mission)], &clock, |request| match request.messages[1].text() {
        "Stop." => calls(&[("task_complete", json!({"summary": "stopped"}))]),
        _ => asks(request),
    });
    let run = engine.start(start("m", json!({}))).await.unwrap();
    assert_eq!(drive(&engine, &run).await, RunEnd::Waiting);
    clock.advance(Duration::from_secs(3599));
    assert_eq!(drive(&engine, &run).await, RunEnd::Waiting);
    clock.advance(Duration::from_secs(2));
    assert_eq!(drive(&engine, &run).await, RunEnd::Completed);
    let state = engine.status(&run).await.unwrap().state;
    assert_eq!(state.tasks["work"].summary.as_deref(), Some("Nobody answered in time: Go?"));
    assert_eq!(state.task_status("stop"), TaskStatus::Completed);
}

#[tokio::test]
async fn a_default_answer_counts_after_its_time() {
    let mission = format!(
        "{HEAD}  tasks:\n    work: {{objective: Work., questions: {{timeout_seconds: 3600, default: later}}}}\n"
    );
    let clock = ManualClock::new();
    let engine = engine(&[("missions/m.yml", &mission)], &clock, asks);
    let run = engine.start(start("m", json!({}))).await.unwrap();
    assert_eq!(drive(&engine, &run).await, RunEnd::Waiting);
    clock.advance(Duration::from_secs(3601));
    assert_eq!(drive(&engine, &run).await, RunEnd::Completed);
    let summary = engine.status(&run).await.unwrap().state.tasks["work"].summary.clone().unwrap();
    assert!(summary.contains(r#""answer":"later","default":true"#), "{summary}");
}

/// One item after the other, so that the second is told what the first learned.
#[tokio::test]
async fn items_that_start_later_are_told_what_earlier_ones_learned() {
    for (learnings, told) in [("share", true), ("keep", false)] {
        let mission = format!(
            "{HEAD}  datasets: {{rows: {{items: [{{n: 1}}, {{n: 2}}]}}}}\n  tasks:\n    read:\n      objective: 'Read {{{{ item.n }}}}.'\n      iterator: {{dataset: rows, parallel: true, concurrency_limit: 1, learnings: {learnings}}}\n"
        );
        let finished = finish(&mission, json!({}), |_| {
            let text = r#"<LEARNINGS>{"key_insights": ["page 3 is empty"]}</LEARNINGS>"#.into();
            ChatResponse { text, ..calls(&[("task_complete", json!({"summary": "read"}))]) }
        })
        .await;
        assert_eq!(finished.end, RunEnd::Completed);
        let requests = finished.requests.lock().unwrap();
        let has = |at: usize| requests[at].messages[0].text().contains("- page 3 is empty");
        assert_eq!((requests.len(), has(0), has(1)), (2, false, told), "{learnings}");
    }
}

#[tokio::test]
async fn a_clean_up_task_is_told_why_the_run_failed() {
    let mission =
        format!("{HEAD}  tasks:\n    work: {{objective: Work.}}\n    clean: {{objective: Clean., always: true}}\n");
    let finished = finish(&mission, json!({}), |request| match request.messages[1].text() {
        "Work." => calls(&[("task_complete", json!({"succeed": false, "reason": "no access"}))]),
        _ => {
            let prompt = request.messages[0].text();
            assert!(prompt.contains("This run failed: task work failed: no access"), "{prompt}");
            calls(&[("task_complete", json!({"summary": "cleaned"}))])
        }
    })
    .await;
    assert_eq!(finished.end, RunEnd::Failed);
    let state = finished.engine.status(&finished.run).await.unwrap().state;
    assert_eq!(state.tasks["clean"].summary.as_deref(), Some("cleaned"));
}

/// The run after it is queued, because the first one has not ended when it starts; nothing is lost.
#[tokio::test]
async fn a_chain_has_one_id_and_hands_results_over() {
    let one = format!(
        "{HEAD}  concurrency: {{key: 'tree', limit: 1}}\n  tasks:\n    dig:\n      objective: Dig.\n      output: {{facts: {{type: integer, required: true}}}}\n      router:\n        - {{to: 'mission:n#write', when: enough, hand_over: [summaries, outputs]}}\n"
    );
    let two = HEAD.replace("name: m", "name: n")
        + "  concurrency: {key: 'tree', limit: 1}\n  tasks: {plan: {objective: Plan.}, write: {objective: Write.}}\n";
    let engine = engine(&[("missions/m.yml", &one), ("missions/n.yml", &two)], &ManualClock::new(), |request| {
        let prompt = request.messages[0].text();
        match request.messages.last().unwrap().text() {
            "Dig." => calls(&[
                ("submit_output", json!({"output": {"facts": 3}})),
                ("task_complete", json!({"summary": "three facts", "route": "n"})),
            ]),
            "Write." => {
                assert!(prompt.contains("## `m:dig`\nthree facts"), "{prompt}");
                calls(&[("query_task_output", json!({"task": "m:dig"}))])
            }
            result => calls(&[("task_complete", json!({ "summary": result }))]),
        }
    });
    let first = engine.start(start("m", json!({}))).await.unwrap();
    assert_eq!(drive(&engine, &first).await, RunEnd::Completed);
    let state = engine.status(&first).await.unwrap().state;
    let next = segue::ids::RunId::new(state.follow_ups[0].run.clone());
    assert_eq!(drive(&engine, &next).await, RunEnd::Completed);
    let next = engine.status(&next).await.unwrap().state;
    assert_eq!(next.tasks["write"].summary.as_deref(), Some(r#"{"task":"m:dig","output":{"facts":3}}"#));
    assert_eq!(next.task_status("plan"), TaskStatus::Pending, "the run enters at a task");
    assert_eq!((&*next.chain_id, next.chain), (first.as_str(), 1));
}

#[tokio::test]
async fn the_sessions_that_a_rerun_takes_over_can_read_their_long_results() {
    let mission = format!(
        "{HEAD}  tasks:\n    gather: {{objective: Gather.}}\n    write: {{objective: Write., depends_on: [gather]}}\n"
    );
    let rows: Vec<Json> = (0..40)
        .map(|n| json!({"name": format!("row {n}, which is long enough to be stored with the others")}))
        .collect();
    let rows = json!(rows).to_string();
    let engine = engine(&[("missions/m.yml", &mission)], &ManualClock::new(), move |request| {
        let last = request.messages.last().unwrap().text();
        match last {
            _ if request.purpose.as_str() == "agent" => says(&rows),
            _ if last.contains("Which is the last?") => {
                calls(&[("result_get", json!({"id": "_result_call_agent_1", "path": "39.name"}))])
            }
            // The copy of the commander; the asker gets this text.
            _ if last.contains("\"value\"") && request.messages[1].text() == "Gather." => says(last),
            "Gather." => calls(&[("call_agent", json!({"name": "helper", "task": "find all"}))]),
            _ if last.contains("_result_call_agent_1") => done("gathered"),
            "Write." => calls(&[("ask_commander", json!({"task_name": "gather", "question": "Which is the last?"}))]),
            answer => done(answer),
        }
    });
    let first = engine.start(start("m", json!({}))).await.unwrap();
    assert_eq!(drive(&engine, &first).await, RunEnd::Completed);
    let from = RerunFrom { task: "write".into(), failed_items: false };
    let second = engine.rerun(&first, Some(&from)).await.unwrap();
    assert_eq!(drive(&engine, &second).await, RunEnd::Completed);
    let third = engine.rerun(&second, Some(&from)).await.unwrap();
    assert_eq!(drive(&engine, &third).await, RunEnd::Completed);
    for run in [first, second, third] {
        let state = engine.status(&run).await.unwrap().state;
        let summary = state.tasks["write"].summary.as_deref().unwrap_or_default();
        assert!(summary.contains("row 39"), "{summary}");
    }
}

// ---- the program ----

#[test]
fn a_rerun_from_a_task_goes_on_with_the_files_of_the_earlier_run() {
    let folder = tempfile::tempdir().unwrap();
    write_project(folder.path(), "", "", TWO_TASKS);
    let mission = std::fs::read_to_string(folder.path().join("missions/m.yml")).unwrap();
    std::fs::write(folder.path().join("missions/m.yml"), mission.replace("tools: []", "workspace: files")).unwrap();
    let script = r#"
rules:
  - when: {purpose: agent, last_tool: {}}
    say: '<ANSWER>{{ tool_text }}</ANSWER>'
  - when: {purpose: agent, user: 'note it'}
    calls: [{name: write_file, arguments: {description: a note, path: note.md, content: tea}}]
  - when: {purpose: agent}
    calls: [{name: read_file, arguments: {description: the note, path: note.md}}]
  - when: {purpose: commander, last_tool: {}}
    calls: [{name: task_complete, arguments: {summary: '{{ tool_text }}'}}]
  - when: {purpose: commander, user: 'Find'}
    calls: [{name: call_agent, arguments: {name: helper, task: 'note it'}}]
  - when: {purpose: commander}
    calls: [{name: call_agent, arguments: {name: helper, task: 'read'}}]
"#;
    std::fs::write(folder.path().join("script.yml"), script).unwrap();
    let with = |arguments: &[&str]| segue(folder.path(), &[arguments, &["--store", "sqlite:runs.db"]].concat(), &[]);
    let run_of = |output: &crate::support::program::ProgramOutput| {
        assert_eq!(output.code, 0, "{}\n{}", output.out, output.err);
        serde_json::from_str::<Json>(output.lines()[0]).unwrap()["run"].as_str().unwrap().to_owned()
    };
    let first = run_of(&with(&["run", "m", "--input", "topic=tea"]));
    let second = with(&["rerun", &first, "--task", "write"]);
    let run = run_of(&second);
    let shown: Json = serde_json::from_str(&with(&["show", &run]).out).unwrap();
    assert!(shown["tasks"]["write"]["summary"].as_str().unwrap().contains("tea"), "{shown}");
    assert_eq!(shown["files"]["files"][0]["path"], "workspace/note.md");
    // From the beginning, a run has no files.
    let whole = with(&["rerun", &first]);
    let copied = folder.path().join(".segue/runs").join(run_of(&whole)).join("workspace/note.md");
    assert!(copied.exists(), "it has written its own");
    // The limit of the workspace holds for the copy.
    let endpoints = std::fs::read_to_string(folder.path().join("endpoints.yml")).unwrap();
    std::fs::write(folder.path().join(".segue/runs").join(&first).join("workspace/big"), vec![b'x'; 2 << 20]).unwrap();
    std::fs::write(folder.path().join("endpoints.yml"), endpoints + "workspaces: {max_mib: 1}\n").unwrap();
    let refused = with(&["rerun", &first, "--task", "write"]);
    assert!(refused.code == 2 && refused.err.contains("[N0108]"), "{} {}", refused.code, refused.err);
}

#[test]
fn a_rerun_from_a_task_takes_over_what_does_not_hang_on_it() {
    let folder = tempfile::tempdir().unwrap();
    write_project(folder.path(), "", "", TWO_TASKS);
    let with = |arguments: &[&str]| segue(folder.path(), &[arguments, &["--store", "sqlite:runs.db"]].concat(), &[]);
    let ran = with(&["run", "m", "--input", "topic=tea"]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
    let started: Json = serde_json::from_str(ran.lines()[0]).unwrap();
    let run = started["run"].as_str().unwrap();
    let again = with(&["rerun", run, "--task", "write"]);
    assert_eq!(again.code, 0, "{}\n{}", again.out, again.err);
    let counts = counts(&again);
    assert_eq!(counts.get(&("gather".into(), "session_turn".into())), None, "{counts:?}");
    assert_eq!(counts[&("gather".into(), "task_copied".into())], 1);
    assert_eq!(counts[&("write".into(), "task_completed".into())], 1);
    let first: Json = serde_json::from_str(again.lines()[0]).unwrap();
    let shown = with(&["show", first["run"].as_str().unwrap()]);
    let shown: Json = serde_json::from_str(&shown.out).unwrap();
    assert_eq!((&shown["rerun_of"], &shown["tasks"]["gather"]["copied_from"]), (&json!(run), &json!(run)));
    assert_eq!(shown["tasks"]["gather"]["summary"], "result: three pages");
    for (arguments, message) in [
        (&["--task", "x"][..], "the mission has no task `x`; it has gather, write"),
        (&["--task", "write", "--failed-items"], "does not iterate in parallel"),
    ] {
        let refused = with(&[&["rerun", run], arguments].concat());
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert!(refused.err.contains(message), "{}", refused.err);
    }
}

#[test]
fn a_plan_checks_inputs_and_shows_objectives_without_a_model() {
    let folder = tempfile::tempdir().unwrap();
    write_project(folder.path(), "", "", TWO_TASKS);
    let plan = segue(folder.path(), &["plan", "m", "--input", "topic=tea"], &[]);
    assert_eq!(plan.code, 0, "{}", plan.err);
    assert_eq!(
        plan.out,
        "gather\n  objective: Find pages about tea.\n  sessions: at most 1; model calls of the commander: at most 60\nwrite after gather\n  objective: Write.\n  sessions: at most 1; model calls of the commander: at most 60\nwhole run: model calls of commanders: at most 120; those of agents depend on their assignments; no budget\n"
    );
    assert!(!folder.path().join(".segue").exists(), "nothing is stored");
    let wrong = segue(folder.path(), &["plan", "m", "--input", "topik=tea"], &[]);
    assert_eq!(wrong.code, 2, "{}", wrong.err);
    assert!(wrong.err.contains("input `topik`: the mission has no such input"), "{}", wrong.err);
}

/// The end of the first run, whatever process works on the second one.
#[test]
fn a_run_waits_in_the_store_until_another_process_has_ended_its_run() {
    let folder = tempfile::tempdir().unwrap();
    write_project(folder.path(), "", "", "    choose: {objective: Choose.}\n  concurrency: {max_parallel: 1}\n");
    let with = |arguments: &[&str]| segue(folder.path(), &[arguments, &["--store", "sqlite:runs.db"]].concat(), &[]);
    let ran = with(&["run", "m", "--input", "topic=x"]);
    assert_eq!(ran.code, 4, "{}\n{}", ran.out, ran.err);
    let started: Json = serde_json::from_str(ran.lines()[0]).unwrap();
    let run = started["run"].as_str().unwrap();
    let refused = with(&["run", "m", "--input", "topic=x"]);
    assert_eq!(refused.code, 3, "{}\n{}", refused.out, refused.err);
    assert!(refused.err.contains("1 of 1 runs of the mission `m` have begun"), "{}", refused.err);
    assert_eq!(with(&["answer", run, "blue"]).code, 0);
    assert_eq!(with(&["resume", run]).code, 0);
    assert_eq!(with(&["run", "m", "--input", "topic=x"]).code, 4, "there is room again");
}

#[test]
fn a_run_that_another_one_has_led_to_has_a_folder_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let created = crate::support::program::run_in(folder.path(), &["init", ".", "--template", "mission"], "");
    assert_eq!(created.code, 0, "{}", created.err);
    let first = "mission:\n  name: first\n  description: x\n  commander: {llm: {model_group: main}, plan: optional}\n  agents: [helper]\n  local_agents: {helper: {description: x, llm: {model_group: main}}}\n  tasks: {begin: {objective: Begin., router: [{to: 'mission:research', when: always}]}}\n";
    std::fs::write(folder.path().join("missions/first.yml"), first).unwrap();
    let path = folder.path().join("script.yml");
    let begin = "rules:\n  - when: {purpose: commander, user: Begin}\n    calls: [{name: task_complete, arguments: {summary: x, route: research, mission_inputs: {topic: tea}}}]\n";
    let script = std::fs::read_to_string(&path).unwrap().replacen("rules:\n", begin, 1);
    std::fs::write(&path, script).unwrap();
    let ran = segue(folder.path(), &["run", "first"], &[]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
    let end: Json = serde_json::from_str(ran.lines().last().unwrap()).unwrap();
    assert!(end["run"].as_str().unwrap().ends_with("/next"), "{end}");
    assert!(std::path::Path::new(end["folder"].as_str().unwrap()).join("outputs/report.md").is_file(), "{end}");
    // The beginning of its id is that of the first run, which is meant.
    let id = end["run"].as_str().unwrap();
    let shown: Json = serde_json::from_str(&segue(folder.path(), &["show", &id[..6]], &[]).out).unwrap();
    assert_eq!(shown["mission"], "first");
}

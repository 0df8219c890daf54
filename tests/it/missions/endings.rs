//! Runs that cannot go on: each ends and names the cause, or says what it waits for.

use segue::{
    ids::RunId,
    missions::MissionError,
    store::runs::{RunBatch, RunStatus},
};
use segue_engine::{mission::state::RunState, time::Timestamp};

use super::*;

/// An engine over a store, with a project of these missions.
fn engine(
    runs: &Arc<MemoryRunStore>,
    missions: &[(&str, &str)],
    respond: impl Fn(&ChatRequest) -> ChatResponse + Send + Sync + 'static,
) -> RunEngine {
    let base =
        [("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"), ("domain.yml", "")];
    let model = FunctionModel { profile: ModelProfile::for_model("test", ""), respond, requests: Arc::default() };
    let builder = Assistant::builder_from_texts(base.iter().chain(missions).copied());
    let builder = builder.unwrap_or_else(|error| panic!("{error:?}"));
    builder.model(Arc::new(model)).build_missions(runs.clone()).unwrap()
}

async fn start(engine: &RunEngine, inputs: Json) -> RunId {
    let inputs = inputs.as_object().unwrap().clone();
    engine.start(StartRun::new("m").inputs(inputs)).await.unwrap()
}

async fn drive(engine: &RunEngine, run: &RunId) -> Result<RunEnd, MissionError> {
    engine.drive(run, &CancellationToken::new(), &mut |_| {}).await
}

/// Answers the only open question.
async fn answer(engine: &RunEngine, run: &RunId) {
    let question = engine.control().questions(Some(run.clone())).await.unwrap()[0].key.id.clone();
    engine.control().answer(run, question.as_str(), "yes", "event", None).await.unwrap();
}

/// A run that has failed: its state, in which nothing is open.
async fn failed(engine: &RunEngine, run: &RunId) -> (RunState, String) {
    let report = engine.status(run).await.unwrap();
    assert_eq!(report.stored.summary.status, RunStatus::Failed);
    assert_pairs(&engine.control().events(run, 0).await.unwrap());
    let failure = report.state.failure.clone().unwrap();
    (report.state, format!("{} [{}]", failure.error, failure.code))
}

/// Commanders ask a person in the task whose objective is `Ask.`, and complete every other task at once.
fn asks(request: &ChatRequest) -> ChatResponse {
    match last(request) {
        "Ask." => calls(&[("ask", json!({"question": "Go?"}))]),
        _ => done("done"),
    }
}

#[tokio::test]
async fn a_defect_in_the_work_on_an_item_fails_its_attempt_and_the_next_one_runs() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = attempts.clone();
    let mission = |more: &str| {
        format!(
            "{HEAD}  datasets: {{d: {{items: [{{n: 1}}, {{n: 2}}]}}}}\n  tasks:\n    read: {{objective: 'Read {{{{ item.n }}}}.', iterator: {{dataset: d, parallel: true{more}}}}}\n"
        )
    };
    let respond = move |request: &ChatRequest| match (is_agent(request), last(request)) {
        (true, _) if counted.fetch_add(1, Ordering::SeqCst) == 0 => panic!("an index out of bounds"),
        (true, _) => says("<ANSWER>read</ANSWER>"),
        (false, "Read 1.") => calls(&[("call_agent", json!({"name": "helper", "task": "Read it."}))]),
        (false, _) => done("read"),
    };
    let finished = finish(&mission(", max_retries: 1, retry_delay: 0"), json!({}), respond.clone()).await;
    assert_eq!((finished.end, attempts.swap(0, Ordering::SeqCst)), (RunEnd::Completed, 2));
    let finished = finish(&mission(""), json!({}), respond).await;
    assert_eq!(finished.end, RunEnd::Failed);
    let (_, failure) = failed(&finished.engine, &finished.run).await;
    assert!(failure.contains("item 0 (item_0) failed: the work on it panicked: an index out of bounds"), "{failure}");
}

#[tokio::test]
async fn a_defect_in_the_work_on_a_task_fails_the_run() {
    let mission =
        format!("{HEAD}  tasks: {{write: {{objective: Write.}}, clean: {{objective: Clean., always: true}}}}\n");
    let finished = finish(&mission, json!({}), |request| match last(request) {
        "Write." => panic!("{} of {}", 3, 2),
        _ => done("clean"),
    })
    .await;
    assert_eq!(finished.end, RunEnd::Failed);
    let (state, failure) = failed(&finished.engine, &finished.run).await;
    assert_eq!(failure, "task write failed: the work on it panicked: 3 of 2 [unit.panicked]");
    assert_eq!(state.tasks["clean"].status, TaskStatus::Completed, "what always runs has run");
}

#[tokio::test]
async fn a_run_with_an_event_that_cannot_be_read_fails() {
    let runs = Arc::new(MemoryRunStore::new());
    let mission = format!("{HEAD}  tasks: {{ask: {{objective: Ask.}}}}\n");
    for event in [r#"{"event":"task_paused","task":"ask"}"#, "{", r#"{"event":"task_completed"}"#] {
        let engine = engine(&runs, &[("missions/m.yml", &mission)], asks);
        let run = start(&engine, json!({})).await;
        assert_eq!(drive(&engine, &run).await.unwrap(), RunEnd::Waiting);
        let batch = RunBatch::new(run.clone(), Timestamp::from_micros(1));
        runs.append_run(RunBatch { events: vec![event.into()], ..batch }).await.unwrap();
        let error = drive(&engine, &run).await.unwrap_err();
        assert!(matches!(error, MissionError::Unreadable { .. }), "{event}: {error}");
        assert_eq!(runs.summary(&run).await.unwrap().unwrap().status, RunStatus::Failed, "{event}");
        assert!(!drive(&engine, &run).await.is_ok_and(|end| end == RunEnd::Failed), "{event}");
    }
}

#[tokio::test]
async fn a_run_whose_mission_is_not_in_the_project_stays_until_it_is_there_again() {
    let runs = Arc::new(MemoryRunStore::new());
    let mission = format!("{HEAD}  tasks: {{ask: {{objective: Ask.}}}}\n");
    let with = engine(&runs, &[("missions/m.yml", &mission)], asks);
    let run = start(&with, json!({})).await;
    assert_eq!(drive(&with, &run).await.unwrap(), RunEnd::Waiting);
    let other = mission.replace("name: m", "name: other");
    let without = engine(&runs, &[("missions/other.yml", &other)], asks);
    answer(&without, &run).await;
    let error = drive(&without, &run).await.unwrap_err();
    assert!(error.to_string().contains("put its file back and continue the run"), "{error}");
    assert_eq!(runs.summary(&run).await.unwrap().unwrap().status, RunStatus::Waiting);
    assert_eq!(drive(&with, &run).await.unwrap(), RunEnd::Completed);
}

/// The file of a mission is changed while its run waits. What the run has begun and cannot end any more is named.
#[tokio::test]
async fn a_run_whose_mission_was_changed_goes_on_or_fails_with_what_no_longer_fits() {
    let head =
        format!("{HEAD}  inputs: {{topic: {{type: string}}}}\n  datasets: {{d: {{items: [{{n: 1}}, {{n: 2}}]}}}}\n");
    let before = format!("{head}  tasks: {{ask: {{objective: Ask.}}}}\n");
    let items = format!(
        "{head}  tasks: {{ask: {{objective: Ask., iterator: {{dataset: d, parallel: true, concurrency_limit: 1}}}}}}\n"
    );
    let stuck = |task: &str| {
        format!(
            "task {task} failed: nothing works on it: the mission `m` was changed after the run was started [run.stuck]"
        )
    };
    for (before, after, expected) in [
        (&before, format!("{head}  tasks: {{write: {{objective: Write.}}}}\n"), Some(stuck("ask"))),
        (&items, format!("{head}  tasks: {{write: {{objective: Write.}}}}\n"), Some(stuck("ask"))),
        (&items, before.clone(), Some(stuck("ask"))),
        // Its commander ends what it has begun.
        (&before, items.clone(), None),
        (&before, format!("{head}  tasks: {{ask: {{objective: Ask.}}, write: {{objective: Write., depends_on: [ask]}}}}\n"), None),
        (
            &before,
            format!("{head}  tasks: {{ask: {{objective: Ask.}}, write: {{objective: 'Write {{{{ inputs.style.length }}}}.', depends_on: [ask]}}}}\n")
                .replace("topic: {type: string}", "topic: {type: string}, style: {type: object}"),
            Some("a value that is not defined was used".to_owned()),
        ),
    ] {
        let runs = Arc::new(MemoryRunStore::new());
        let first = engine(&runs, &[("missions/m.yml", before)], asks);
        let run = start(&first, json!({"topic": "tea"})).await;
        assert_eq!(drive(&first, &run).await.unwrap(), RunEnd::Waiting);
        let second = engine(&runs, &[("missions/m.yml", &after)], asks);
        assert_eq!(drive(&second, &run).await.unwrap(), RunEnd::Waiting, "the question is still open: {after}");
        answer(&second, &run).await;
        let end = drive(&second, &run).await.unwrap();
        match expected {
            None => assert_eq!(end, RunEnd::Completed, "{after}"),
            Some(expected) => {
                assert_eq!(end, RunEnd::Failed, "{after}");
                let (_, failure) = failed(&second, &run).await;
                assert!(failure.contains(&expected), "{failure}\n{after}");
            }
        }
    }
}

#[tokio::test]
async fn a_run_fails_if_the_mission_that_follows_cannot_be_started_and_goes_on_when_it_can() {
    let runs = Arc::new(MemoryRunStore::new());
    let first = format!(
        "{HEAD}  tasks:\n    choose: {{objective: Choose., router: [{{to: 'mission:second', when: always}}]}}\n    ask: {{objective: Ask., depends_on: [choose]}}\n"
    );
    let second = first.replace("name: m", "name: second").split("  tasks:").next().unwrap().to_owned()
        + "  inputs: {topic: {type: string}}\n  tasks: {write: {objective: Write.}}\n";
    let respond = |request: &ChatRequest| match last(request) {
        "Choose." => {
            calls(&[("task_complete", json!({"summary": "s", "route": "second", "mission_inputs": {"topic": "tea"}}))])
        }
        _ => asks(request),
    };
    let with = |second: &str| engine(&runs, &[("missions/m.yml", &first), ("missions/second.yml", second)], respond);
    let good = with(&second);
    let run = start(&good, json!({})).await;
    assert_eq!(drive(&good, &run).await.unwrap(), RunEnd::Waiting);
    let changed = with(&second.replace("topic: {type: string}", "topic: {type: integer}"));
    answer(&changed, &run).await;
    assert_eq!(drive(&changed, &run).await.unwrap(), RunEnd::Failed);
    let (_, failure) = failed(&changed, &run).await;
    assert_eq!(
        failure,
        "the mission `second` that follows cannot be started: input `topic`: a value of type integer is expected, not \"tea\" [follow_up.failed]"
    );
    good.resume(&run).await.unwrap();
    assert_eq!(drive(&good, &run).await.unwrap(), RunEnd::Completed);
    let next = good.status(&run).await.unwrap().state.follow_ups[0].clone();
    assert!(next.started);
    assert_eq!(drive(&good, &RunId::new(next.run)).await.unwrap(), RunEnd::Completed);
}

#[test]
fn people_see_which_items_failed_and_what_a_run_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let items = "    read: {objective: 'Read {{ item.id }}.', iterator: {dataset: d, parallel: true, on_error: continue, min_success: 0.5}}\n    ask: {objective: Ask., depends_on: [read]}\n";
    write_project(folder.path(), "", "", items);
    let file = folder.path().join("missions/m.yml");
    let mission = std::fs::read_to_string(&file).unwrap();
    let mission = mission.replace("  tasks:\n", "  datasets: {d: {items: [{id: k1}, {id: k2}]}}\n  tasks:\n");
    std::fs::write(&file, mission).unwrap();
    let script = "rules:\n  - when: {user: 'Read k2'}\n    calls: [{name: task_complete, arguments: {succeed: false, reason: bad page}}]\n  - when: {last_tool: {name: ask}}\n    calls: [{name: task_complete, arguments: {summary: done}}]\n  - when: {user: 'Ask'}\n    calls: [{name: ask, arguments: {question: 'Go?'}}]\n  - when: {purpose: commander}\n    calls: [{name: task_complete, arguments: {summary: read}}]\n";
    std::fs::write(folder.path().join("script.yml"), script).unwrap();
    let mission = |arguments: &[&str]| segue(folder.path(), &[arguments, &["--store", "sqlite:runs.db"]].concat(), &[]);
    let ran = mission(&["run", "m", "--input", "topic=x"]);
    assert_eq!(ran.code, 4, "{}", ran.err);
    let run = serde_json::from_str::<Json>(ran.lines()[0]).unwrap()["run"].as_str().unwrap().to_owned();
    let show = || serde_json::from_str::<Json>(&mission(&["show", &run]).out).unwrap();
    let rows = show()["tasks"]["read"]["items"].clone();
    assert_eq!((&rows[0]["status"], &rows[0]["error"]), (&json!("completed"), &Json::Null));
    assert_eq!(
        (&rows[1]["item_id"], &rows[1]["status"], &rows[1]["error"]),
        (&json!("k2"), &json!("failed"), &json!("bad page"))
    );
    std::fs::rename(&file, folder.path().join("missions/m.txt")).unwrap();
    let waits = "the project has no mission `m`; put its file back";
    assert!(show()["waits_for"].as_str().is_some_and(|why| why.contains(waits)), "{}", show());
    let resumed = mission(&["resume", &run]);
    assert!(resumed.code == 2 && resumed.err.contains(waits), "{}", resumed.err);
    std::fs::rename(folder.path().join("missions/m.txt"), &file).unwrap();
    assert_eq!((show()["waits_for"].clone(), show()["status"].clone()), (Json::Null, json!("waiting")));
    assert_eq!(mission(&["answer", &run, "yes"]).code, 0);
    assert_eq!(mission(&["resume", &run]).code, 0);
}

//! Inputs of type `file`: checked before a run starts, copied into its folder, and read by agents.

use std::{path::Path, sync::Arc};

use segue::{
    Assistant, ChatRequest, ModelProfile,
    missions::{MissionError, RunEnd, RunEngine, StartRun},
    store::runs::{MemoryRunStore, RunStore},
};
use segue_engine::mission::rerun::RerunFrom;
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use super::{FunctionModel, HEAD, calls, done, is_agent, last, says, segue};

const CONFIG: &str = "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n";

/// A mission whose agent reads the files `notes` and `more`.
fn project(folder: &Path) {
    std::fs::create_dir_all(folder.join("missions")).unwrap();
    std::fs::write(folder.join("config.yml"), CONFIG).unwrap();
    std::fs::write(folder.join("domain.yml"), "").unwrap();
    let mission = HEAD.replace("description: helps", "description: helps, workspace: read")
        + "  inputs: {notes: {type: file, description: what is known}, more: file}\n  tasks: {read: {objective: 'Read {{ inputs.notes }} and {{ inputs.more }}'}}\n";
    std::fs::write(folder.join("missions/m.yml"), mission).unwrap();
}

fn engine(folder: &Path, store: Arc<dyn RunStore>) -> RunEngine {
    let respond = |request: &ChatRequest| {
        let text = last(request);
        if is_agent(request) {
            let Some(paths) = text.split("read: ").nth(1) else { return says(&format!("<ANSWER>{text}</ANSWER>")) };
            let path = paths.split_whitespace().next().unwrap_or_default();
            return calls(&[("read_file", json!({"description": "the notes", "path": path}))]);
        }
        match text.strip_prefix("Read ").and_then(|text| text.split_once(" and ")) {
            Some((_, more)) => calls(&[("call_agent", json!({"name": "helper", "task": format!("read: {more}")}))]),
            None => done(text),
        }
    };
    let model = FunctionModel { profile: ModelProfile::for_model("test", ""), respond, requests: Arc::default() };
    let builder = Assistant::builder(folder).unwrap_or_else(|error| panic!("{error:?}"));
    builder.model(Arc::new(model)).build_missions(store).unwrap()
}

fn start(notes: &Path, more: &Path) -> StartRun {
    let inputs = json!({"notes": notes.to_str(), "more": more.to_str()}).as_object().unwrap().clone();
    StartRun::new("m").inputs(inputs)
}

/// The copies that runs have, of all runs.
fn copies(folder: &Path) -> usize {
    let runs = std::fs::read_dir(folder.join(".segue/runs")).map(|runs| runs.count());
    runs.unwrap_or_default()
}

#[tokio::test]
async fn a_run_has_copies_of_its_files_and_a_resume_and_a_rerun_use_them() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    project(folder.path());
    let (notes, more) = (elsewhere.path().join("notes.md"), elsewhere.path().join("other/notes.md"));
    std::fs::create_dir_all(more.parent().unwrap()).unwrap();
    std::fs::write(&notes, "first notes").unwrap();
    std::fs::write(&more, "second notes").unwrap();
    let store: Arc<dyn RunStore> = Arc::new(MemoryRunStore::new());
    let engine = engine(folder.path(), store);
    let run = engine.start(start(&notes, &more)).await.unwrap();
    let state = engine.status(&run).await.unwrap().state;
    assert_eq!(
        Json::Object(state.inputs),
        json!({"notes": "/mnt/user-data/uploads/notes.md", "more": "/mnt/user-data/uploads/more_notes.md"})
    );
    // The sources are gone; the run stops and goes on.
    std::fs::remove_dir_all(elsewhere.path()).unwrap();
    let stopped = CancellationToken::new();
    stopped.cancel();
    assert_eq!(engine.drive(&run, &stopped, &mut |_| {}).await.unwrap(), RunEnd::Stopped);
    engine.resume(&run).await.unwrap();
    let drive = async |run: segue::ids::RunId| {
        assert_eq!(engine.drive(&run, &CancellationToken::new(), &mut |_| {}).await.unwrap(), RunEnd::Completed);
        let state = engine.status(&run).await.unwrap().state;
        state.tasks["read"].summary.as_deref().unwrap_or_default().to_owned()
    };
    let summary = drive(run.clone()).await;
    assert!(summary.contains("second notes"), "{summary}");
    for from in [None, Some(RerunFrom { task: "read".into(), failed_items: false })] {
        let again = engine.rerun(&run, from.as_ref()).await.unwrap();
        let summary = drive(again).await;
        assert!(summary.contains("second notes"), "{summary}");
    }
}

#[tokio::test]
async fn files_that_cannot_be_read_start_no_run() {
    let folder = tempfile::tempdir().unwrap();
    project(folder.path());
    let good = folder.path().join("good.md");
    std::fs::write(&good, "good").unwrap();
    let large = folder.path().join("large.md");
    std::fs::File::create(&large).unwrap().set_len(segue::limits::MISSION_FILE + 1).unwrap();
    let store: Arc<dyn RunStore> = Arc::new(MemoryRunStore::new());
    let engine = engine(folder.path(), store.clone());
    for (path, problem) in [
        (folder.path().join("none.md"), "there is no file"),
        (folder.path().join("missions"), "is a folder; name one file"),
        (large, "has 10485761 bytes, more than 10485760"),
    ] {
        let Err(MissionError::Inputs(problems)) = engine.start(start(&good, &path)).await else { panic!("{path:?}") };
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(texts.len() == 1 && texts[0].starts_with("input `more`: ") && texts[0].contains(problem), "{texts:?}");
    }
    assert_eq!(copies(folder.path()), 0);
    assert_eq!(engine.control().runs(segue::store::runs::RunFilter::default(), 10).await.unwrap(), []);
}

#[tokio::test]
async fn a_repeated_start_with_a_key_returns_the_run_although_the_files_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    project(folder.path());
    let notes = folder.path().join("notes.md");
    std::fs::write(&notes, "notes").unwrap();
    let engine = engine(folder.path(), Arc::new(MemoryRunStore::new()));
    let keyed = |key: &str| start(&notes, &notes).idempotency_key(key);
    let run = engine.start(keyed("one")).await.unwrap();
    assert_eq!((engine.start(keyed("one")).await.unwrap(), copies(folder.path())), (run.clone(), 1));
    std::fs::remove_file(&notes).unwrap();
    assert_eq!((engine.start(keyed("one")).await.unwrap(), copies(folder.path())), (run, 1));
    assert!(matches!(engine.start(keyed("two")).await, Err(MissionError::Inputs(problems)) if problems.len() == 2));
}

#[test]
fn a_plan_checks_files_and_shows_the_paths_that_agents_see() {
    let folder = tempfile::tempdir().unwrap();
    project(folder.path());
    std::fs::write(folder.path().join("good.md"), "good").unwrap();
    let plan = segue(folder.path(), &["plan", "m", "--input", "notes=good.md", "--input", "more=none.md"], &[]);
    assert_eq!(plan.code, 2, "{}\n{}", plan.out, plan.err);
    assert!(plan.err.contains("input `more`: there is no file none.md"), "{}", plan.err);
    let plan = segue(folder.path(), &["plan", "m", "--input", "notes=good.md", "--input", "more=good.md"], &[]);
    assert_eq!(plan.code, 0, "{}\n{}", plan.out, plan.err);
    let expected = "objective: Read /mnt/user-data/uploads/good.md and /mnt/user-data/uploads/more_good.md";
    assert!(plan.out.contains(expected), "{}", plan.out);
    assert_eq!(copies(folder.path()), 0, "nothing is stored");
}

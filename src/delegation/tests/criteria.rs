//! `acceptance_criteria`: files and commands of a real workspace are checked, and everything else is marked.

use std::{path::Path, sync::Arc};

use segue_engine::project::WorkspaceAccess;
use serde_json::{Value as Json, json};

use super::harness::{World, meta_of, say, task, text_of};
use crate::{
    limits,
    tools::{
        ToolHandler,
        workspace::{Sandbox, SandboxPreset, WorkspaceSettings, WorkspaceTools, Workspaces},
    },
};

/// The tools of the workspace of the conversation `c`, with the files of the test.
fn workspace_tools(folder: &Path, sandbox: Option<Sandbox>, access: &str) -> Vec<Arc<dyn ToolHandler>> {
    let workspaces = Workspaces::new(WorkspaceSettings::new(folder));
    let files = folder.join("c").join("workspace");
    std::fs::create_dir_all(&files).unwrap();
    std::fs::write(files.join("report.md"), "# Report").unwrap();
    std::fs::write(files.join("empty.md"), "").unwrap();
    std::fs::write(files.join("picture.png"), [0_u8, 159, 146, 150]).unwrap();
    let tools = WorkspaceTools::of_runs(workspaces).sandbox(sandbox);
    let named = WorkspaceAccess::named(access).unwrap();
    let names = named.tools().iter().copied();
    names.filter_map(|name| tools.tool(name)).map(|tool| Arc::new(tool) as Arc<dyn ToolHandler>).collect()
}

fn with_criteria(criteria: Json) -> Json {
    let mut arguments = task("a");
    arguments["acceptance_criteria"] = criteria;
    arguments
}

/// The assignment as the delegate reads it.
fn scene(criteria: &str) -> String {
    format!("delegate: a\n\nIt is done when all of this holds:{criteria}")
}

#[tokio::test]
async fn files_and_commands_are_checked_and_everything_else_is_unverified() {
    let folder = tempfile::tempdir().unwrap();
    let sandbox = SandboxPreset::new().sandbox(std::ffi::OsStr::new("/usr/local/bin:/usr/bin:/bin")).ok();
    let has_sandbox = sandbox.is_some();
    let lines = "\n- file report.md\n- file none.md\n- file_not_empty empty.md\n- file_not_empty picture.png\n- file ../../etc/passwd\n- command grep -q Report report.md\n- command exit 3\n- The prices are in euros";
    let scene = scene(lines);
    let mut world = World::new([(&*scene, vec![say("done")])]).await;
    world.extra_tools = workspace_tools(folder.path(), sandbox, if has_sandbox { "commands" } else { "read" });
    let parent = world.parent("c").await;
    let criteria = json!([
        {"file": "report.md"}, {"file": "none.md"}, {"file_not_empty": "empty.md", "text": null},
        {"file_not_empty": "picture.png"}, {"file": "../../etc/passwd"},
        {"command": "grep -q Report report.md"}, {"command": "exit 3"}, "The prices are in euros",
    ]);
    let outcome = parent.task("t0", with_criteria(criteria.clone())).await;
    let (passed, failed) = match has_sandbox {
        true => ("met: command grep -q Report report.md", "not met: command exit 3 (exit status 3)"),
        false => (
            "unverified: command grep -q Report report.md (not checked: there is no tool `bash`)",
            "unverified: command exit 3 (not checked: there is no tool `bash`)",
        ),
    };
    let expected = format!(
        "Task Succeeded. Result: done\n\nAcceptance criteria:\n- met: file report.md\n- not met: file none.md (there is no such file)\n- not met: file_not_empty empty.md (the file is empty)\n- met: file_not_empty picture.png\n- not met: file ../../etc/passwd (this is not a file of the workspace)\n- {passed}\n- {failed}\n- unverified: The prices are in euros"
    );
    assert_eq!(text_of(&outcome), expected);
    let meta = meta_of(&outcome);
    let found = meta["subagent_criteria"].as_array().unwrap();
    assert_eq!(found[0], json!({"criterion": "file report.md", "verdict": "met"}));
    assert_eq!(found[1], json!({"criterion": "file none.md", "verdict": "not_met", "reason": "there is no such file"}));
    assert_eq!(found[7], json!({"criterion": "The prices are in euros", "verdict": "unverified"}));
    // Each check is a step; a turn that runs again reads the recorded result, although the files have changed.
    std::fs::remove_file(folder.path().join("c/workspace/report.md")).unwrap();
    let again = world.parent("c").await.task("t0", with_criteria(criteria)).await;
    assert_eq!(text_of(&again), expected);
    let records = world.recorded().await;
    let checks = records.iter().filter(|record| record.key.as_str().contains("/criterion."));
    assert_eq!(checks.count(), if has_sandbox { 7 } else { 5 });
}

#[tokio::test]
async fn without_tools_for_files_nothing_is_checked_and_the_delegate_reads_the_criteria() {
    let scene = scene("\n- file report.md");
    let world = World::new([(&*scene, vec![say("done")])]).await;
    let parent = world.parent("c").await;
    let outcome = parent.task("t0", with_criteria(json!([{"file": "report.md"}]))).await;
    let text = text_of(&outcome);
    assert!(text.ends_with("- unverified: file report.md (not checked: there is no tool `read_file`)"), "{text}");
}

#[tokio::test]
async fn criteria_that_cannot_be_read_start_nothing() {
    let world = World::new([]).await;
    let parent = world.parent("c").await;
    let long = "x".repeat(limits::DELEGATION_CRITERION + 1);
    for (at, (criteria, problem)) in [
        (json!([{"file": "a", "command": "b"}]), "number 1: write an object with one of the keys"),
        (json!([{"text": "a"}, {"files": "b"}]), "number 2: write an object with one of the keys"),
        (json!([{"file": 5}]), "number 1: the value of `file` must be a text"),
        (json!(["x", " "]), "number 2: it is empty"),
        (json!([long]), "number 1: it has more than 500 characters"),
        (json!(vec!["x"; 21]), "there are 21, at most 20 are allowed"),
    ]
    .into_iter()
    .enumerate()
    {
        let text = text_of(&parent.task(&format!("t{at}"), with_criteria(criteria)).await);
        assert!(text.contains(&format!("`acceptance_criteria` cannot be used: {problem}")), "{text}");
    }
    assert_eq!(world.events.all(), Vec::<Json>::new());
}

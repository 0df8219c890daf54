#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#[cfg(unix)]
mod commands;
mod confinement;
mod edits;
mod listing;
mod questions;
mod registry;
mod removal;
mod slots;

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use super::*;
use crate::{ToolHandler, ToolOutcome, fixture::context, invoke::invoke, tool_set::ToolSet};

/// A folder of a test, with the workspace `run` in it.
struct Fixture {
    folder: TempDir,
    workspace: Workspace,
}

impl Fixture {
    fn new() -> Self {
        Self::with(|_| {})
    }
    fn with(change: impl FnOnce(&mut WorkspaceSettings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = WorkspaceSettings::new(folder.path().join("run"));
        change(&mut settings);
        Self { folder, workspace: Workspace::new(settings) }
    }
    /// The tools of a new agent.
    fn agent(&self) -> Agent {
        Agent::new(WorkspaceTools::new(self.workspace.clone()))
    }
    /// A path on the host below the folder of the run.
    fn on_host(&self, path: &str) -> PathBuf {
        self.workspace.folder().join(path)
    }
}

struct Agent {
    tools: WorkspaceTools,
    set: Arc<ToolSet>,
}

impl Agent {
    fn new(tools: WorkspaceTools) -> Self {
        let set = tools.tools().into_iter().map(|tool| Arc::new(tool) as Arc<dyn ToolHandler>);
        let set = set.fold(ToolSet::builder(), |set, tool| set.tool(tool)).build();
        Self { tools, set: Arc::new(set) }
    }
    /// Calls a tool as a loop does, with its schema checked.
    async fn call(&self, name: &str, mut arguments: Json) -> ToolOutcome {
        arguments["description"] = json!("a test");
        invoke(&self.set, name, arguments, &context(), None).await
    }
    async fn text(&self, name: &str, arguments: Json) -> String {
        let outcome = self.call(name, arguments).await;
        assert!(matches!(outcome, ToolOutcome::Done(_)), "{outcome:?}");
        outcome.for_model()
    }
    async fn write(&self, path: &str, content: &str) -> ToolOutcome {
        self.call(WRITE_FILE, json!({"path": path, "content": content})).await
    }
    async fn append(&self, path: &str, content: &str) -> ToolOutcome {
        self.call(WRITE_FILE, json!({"path": path, "content": content, "append": true})).await
    }
    async fn read(&self, path: &str) -> String {
        self.text(READ_FILE, json!({"path": path})).await
    }
    async fn replace(&self, path: &str, old: &str, new: &str) -> ToolOutcome {
        self.call(STR_REPLACE, json!({"path": path, "old_str": old, "new_str": new})).await
    }
}

/// The code of a refused call.
fn code(outcome: &ToolOutcome) -> &str {
    match outcome {
        ToolOutcome::Failed(failure) => failure.code.as_deref().unwrap_or(failure.kind.as_str()),
        other => panic!("it was not refused: {other:?}"),
    }
}

#[track_caller]
fn done(outcome: ToolOutcome) -> String {
    assert!(matches!(outcome, ToolOutcome::Done(_)), "{outcome:?}");
    outcome.for_model()
}

/// Every file and folder below a host folder, without following links.
fn tree(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

#[test]
fn every_tool_has_a_description_and_takes_description_as_its_first_parameter() {
    use crate::EffectClass::{Read, Write};
    let fixture = Fixture::new();
    let tools = fixture.agent().tools.tools();
    let effects: Vec<_> = tools.iter().map(|tool| (&*tool.info().name, tool.info().effect)).collect();
    let expected = [
        (LS, Read),
        (READ_FILE, Read),
        (WRITE_FILE, Write),
        (STR_REPLACE, Write),
        (GLOB, Read),
        (GREP, Read),
        (BASH, Write),
        (PRESENT_FILES, Read),
        (ASK_CLARIFICATION, Read),
    ];
    assert_eq!(effects, expected);
    for tool in &tools {
        let info = tool.info();
        assert!(!info.description.is_empty(), "{}", info.name);
        assert!(tool.argument_check().is_some(), "the schema of {} compiles", info.name);
        let first = info.parameters["properties"].as_object().unwrap().keys().next().unwrap();
        assert_eq!(first, "description");
        let problems = tool.argument_check().unwrap().problems(&json!({}));
        // A question and files for the user speak for themselves.
        let is_optional = [PRESENT_FILES, ASK_CLARIFICATION].contains(&&*info.name);
        assert_eq!(problems.iter().any(|problem| problem.contains("description")), !is_optional, "{}", info.name);
    }
    assert_eq!(tools::DEFINITIONS.len(), tools.len(), "the file has no other tools");
}

#[tokio::test]
async fn nothing_is_created_until_the_first_use_and_removal_is_final() {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    assert!(tree(fixture.folder.path()).is_empty());
    done(agent.write("notes.txt", "a").await);
    assert!(fixture.on_host("workspace/notes.txt").is_file());
    fixture.workspace.remove().await.unwrap();
    assert!(tree(fixture.folder.path()).is_empty());
    assert_eq!(code(&agent.write("notes.txt", "a").await), "file.removed");
    assert!(tree(fixture.folder.path()).is_empty());
    fixture.workspace.remove().await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn the_folder_of_a_run_can_be_read_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::new();
    done(fixture.agent().write("a", "a").await);
    assert_eq!(std::fs::metadata(fixture.workspace.folder()).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn ids_of_runs_are_names_of_folders_and_nothing_else() {
    let project = Path::new("/srv/project");
    let settings = WorkspaceSettings::for_run(project, "0198-run_7").unwrap();
    assert!(settings.folder.ends_with(".segue/runs/0198-run_7"));
    // One that another run has led to.
    let settings = WorkspaceSettings::for_run(project, "0198-run_7/next").unwrap();
    assert!(settings.folder.ends_with(".segue/runs/0198-run_7.next"));
    for run in ["", ".", "..", "a.b", "a/", "/a", "a//b", "a/../b", "../a", "a\\b", "a\0", "é", &"x".repeat(300)] {
        assert!(WorkspaceSettings::for_run(project, run).is_err(), "{run:?}");
    }
}

#[tokio::test]
async fn host_paths_and_secrets_are_masked_in_results() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = WorkspaceSettings::for_run(folder.path(), "r1").unwrap();
    let key = "-----BEGIN KEY-----\nabcdefghijklmnopqrstuvwxyz\n-----END KEY-----";
    settings.secrets = vec![Secret::new("s3cr3t-token"), Secret::new(key), Secret::new("ab")];
    let workspace = Workspace::new(settings);
    let agent = Agent::new(WorkspaceTools::new(workspace.clone()));
    let run = workspace.folder().display().to_string();
    let project = folder.path().display().to_string();
    let content = format!(
        "at {run}/workspace/x and {project}/config.yml\ntoken s3cr3t-token, s3cr3\u{200b}t-token\nabcdefghijklmnopqrstuvwxyz\nab\n"
    );
    let created = done(agent.write("s3cr3t-token.txt", &content).await);
    assert!(created.starts_with("Created /mnt/user-data/workspace/[secret].txt with "), "{created}");
    let other = Agent::new(WorkspaceTools::new(workspace.clone()));
    let refused = other.write("s3cr3t-token.txt", "x").await.for_model();
    assert!(refused.contains("`/mnt/user-data/workspace/[secret].txt` exists"), "{refused}");
    let expected = "at /mnt/user-data/workspace/x and [host path]/config.yml\ntoken [secret], [secret]\n[secret]\nab\n";
    let text = agent.read("s3cr3t-token.txt").await;
    assert!(text.starts_with(expected) && text.contains("stands for it: `[secret]`, `[host path]`."), "{text}");
    assert_eq!(
        agent.text(GREP, json!({"pattern": "token"})).await,
        "/mnt/user-data/workspace/[secret].txt:2: token [secret], [secret]"
    );
    assert_eq!(agent.text(GLOB, json!({"pattern": "*"})).await, "/mnt/user-data/workspace/[secret].txt");
    assert!(agent.text(LS, json!({"path": "."})).await.contains("[secret].txt"));
}

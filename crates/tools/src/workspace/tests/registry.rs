//! Tests: the workspaces of a process.

use super::*;

fn workspaces(folder: &TempDir) -> Workspaces {
    Workspaces::new(WorkspaceSettings::for_project(folder.path()).unwrap())
}

#[tokio::test]
async fn each_conversation_has_a_workspace_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let workspaces = workspaces(&folder);
    let agent = Agent::new(WorkspaceTools::of_conversations(workspaces.clone()));
    let of = |conversation: &str| {
        let mut context = context();
        context.caller.conversation = conversation.into();
        context
    };
    let arguments = |content: &str| json!({"description": "a test", "path": "a", "content": content});
    done(invoke(&agent.set, WRITE_FILE, arguments("of one"), &of("one"), None).await);
    done(invoke(&agent.set, WRITE_FILE, arguments("of two"), &of("two"), None).await);
    let read = workspaces.of_conversation("two").read(&VirtualPath::parse("a").unwrap()).await.unwrap();
    assert_eq!(read, b"of two");
}

#[test]
fn any_id_of_a_conversation_has_a_safe_folder_that_no_other_has() {
    let ids = ["", "..", "a/b", "a_b", "ab", "AB", "+49 170 123", "é", &"x".repeat(500), &"x".repeat(501), "r1"];
    let folders: Vec<String> = ids.iter().map(|id| Workspaces::conversation_folder(id)).collect();
    for folder in &folders {
        assert!(folder.starts_with("c-") && folder.len() <= 64, "{folder}");
        assert!(folder.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)), "{folder}");
    }
    let different: std::collections::BTreeSet<&String> = folders.iter().collect();
    assert_eq!(different.len(), ids.len());
    let (folder, id) = (tempfile::tempdir().unwrap(), Workspaces::conversation_folder("user-1"));
    assert!(id.starts_with("c-user-1."));
    assert!(workspaces(&folder).of_run(&id).is_err(), "no run has the folder of a conversation");
}

#[tokio::test]
async fn unused_workspaces_are_closed_and_opened_again_with_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let workspaces = workspaces(&folder);
    let kept = workspaces.of_run("kept").unwrap();
    kept.add_upload("a", b"a".to_vec()).await.unwrap();
    workspaces.of_run("closed").unwrap().add_upload("b", b"b".to_vec()).await.unwrap();
    for number in 0..2 * limits::WORKSPACES_OPEN {
        workspaces.of_run(&format!("run{number}")).unwrap();
    }
    let path = VirtualPath::parse("/mnt/user-data/uploads/b").unwrap();
    assert_eq!(workspaces.of_run("closed").unwrap().read(&path).await.unwrap(), b"b");
    assert!(Arc::ptr_eq(&workspaces.of_run("kept").unwrap().inner, &kept.inner), "one that is in use stays");
}

#[tokio::test]
async fn a_removed_workspace_starts_empty_again() {
    let folder = tempfile::tempdir().unwrap();
    let workspaces = workspaces(&folder);
    workspaces.of_run("r1").unwrap().add_upload("a", b"a".to_vec()).await.unwrap();
    workspaces.remove("r1").await.unwrap();
    assert!(!folder.path().join(".segue/runs/r1").exists());
    assert_eq!(workspaces.of_run("r1").unwrap().usage().await.unwrap(), Usage::default());
}

#[cfg(unix)]
#[tokio::test]
async fn the_files_of_a_run_are_copied_without_links_and_within_the_limits() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join(".segue/runs");
    std::fs::write(folder.path().join("secret"), "secret").unwrap();
    for (path, text) in
        [("workspace/a/b.sh", "#!"), ("outputs/report.md", "# Report"), ("scratchpad/note", "n"), ("unfinished/x", "x")]
    {
        let path = runs.join("r1").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    std::fs::set_permissions(runs.join("r1/workspace/a/b.sh"), std::fs::Permissions::from_mode(0o700)).unwrap();
    symlink(folder.path().join("secret"), runs.join("r1/workspace/link")).unwrap();
    let workspaces = workspaces(&folder);
    let copied = workspaces.copy_run("r1", "r2").await.unwrap();
    assert_eq!(copied.bytes, 11);
    let read = |path: &str| std::fs::read_to_string(runs.join(path)).ok();
    assert_eq!(read("r2/outputs/report.md").as_deref(), Some("# Report"));
    assert_eq!(read("r2/scratchpad/note").as_deref(), Some("n"));
    assert_eq!((read("r2/workspace/link"), read("r2/unfinished/x")), (None, None));
    let mode = std::fs::metadata(runs.join("r2/workspace/a/b.sh")).unwrap().permissions().mode();
    assert_eq!(mode & 0o100, 0o100, "a script can still be run");
    // The copy is an ordinary workspace.
    let path = VirtualPath::parse("/mnt/user-data/outputs/report.md").unwrap();
    assert_eq!(workspaces.of_run("r2").unwrap().read(&path).await.unwrap(), b"# Report");
    // A run without files has none to copy, and nothing is created.
    assert_eq!(workspaces.copy_run("r3", "r4").await.unwrap(), Usage::default());
    assert!(!runs.join("r4").exists());
    let small = WorkspaceSettings { max_bytes: 9, ..WorkspaceSettings::for_project(folder.path()).unwrap() };
    let full = Workspaces::new(small).copy_run("r1", "r5").await;
    assert!(matches!(full, Err(FileError::Quota { limit: 9, .. })), "{full:?}");
    assert!(!runs.join("r5").exists(), "nothing is left");
}

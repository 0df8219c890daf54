//! Tests: no path leads out of the workspace.

use proptest::prelude::*;

use super::*;

/// Paths that lead out of the workspace, or are not allowed.
const ESCAPES: &[&str] = &[
    "",
    " ",
    "../..",
    "../../../etc/passwd",
    "../../../../../../../../tmp/outside.txt",
    "a/../../../../outside.txt",
    "/",
    "/etc/passwd",
    "/tmp/outside.txt",
    "/mnt",
    "/mnt/user-data-other/workspace/a",
    "/mnt/user-data/other/a",
    "/mnt/user-data/unfinished/a",
    "/mnt/user-data/workspace/../../../etc/passwd",
    "/mnt/user-data/../../outside.txt",
    "/mnt/user-data/../other",
    "../unfinished/a",
    "../other/a",
    "~",
    "~/outside.txt",
    "~root/outside.txt",
    "a\0b",
    "a\nb",
    "a\u{1b}[31mb",
    "..\\outside.txt",
    "C:\\outside.txt",
    "\\\\host\\share",
    "a\u{200b}b",
    "a\u{202e}txt.b",
    "\u{feff}../a",
    "/proc/self/environ",
    "/dev/zero",
];

#[tokio::test]
async fn paths_out_of_the_workspace_are_refused_by_every_tool() {
    let fixture = Fixture::new();
    let outside = fixture.folder.path().join("outside.txt");
    std::fs::write(&outside, "secret").unwrap();
    let agent = fixture.agent();
    done(agent.write("inside.txt", "inside").await);
    let before = tree(fixture.folder.path());
    let absolute = outside.display().to_string();
    for path in ESCAPES.iter().copied().chain([absolute.as_str(), &"x/".repeat(600), &"x".repeat(256)]) {
        let calls = [
            (LS, json!({"path": path})),
            (READ_FILE, json!({"path": path})),
            (WRITE_FILE, json!({"path": path, "content": "changed"})),
            (WRITE_FILE, json!({"path": path, "content": "changed", "append": true})),
            (STR_REPLACE, json!({"path": path, "old_str": "secret", "new_str": "changed"})),
            (GLOB, json!({"pattern": "**", "path": path})),
            (GREP, json!({"pattern": ".", "path": path})),
            (PRESENT_FILES, json!({"filepaths": [path]})),
        ];
        for (name, arguments) in calls {
            let outcome = agent.call(name, arguments).await;
            assert_eq!(code(&outcome), "file.path", "{name} {path:?}: {outcome:?}");
        }
    }
    assert_eq!(tree(fixture.folder.path()), before);
    assert_eq!(std::fs::read_to_string(outside).unwrap(), "secret");
}

#[tokio::test]
async fn paths_that_stay_inside_are_resolved_as_text() {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    let cases = [
        ("a.txt", "workspace/a.txt"),
        ("./b.txt", "workspace/b.txt"),
        ("c//d/./e.txt", "workspace/c/d/e.txt"),
        ("missing/../f.txt", "workspace/f.txt"),
        ("../outputs/g.txt", "outputs/g.txt"),
        ("/mnt/user-data/outputs/h.txt", "outputs/h.txt"),
        ("//mnt//user-data/workspace/i.txt", "workspace/i.txt"),
        ("/mnt/user-data/workspace/../outputs/j.txt", "outputs/j.txt"),
        ("mnt/user-data/k.txt", "workspace/mnt/user-data/k.txt"),
        ("...", "workspace/..."),
        ("..l", "workspace/..l"),
        // Characters that look like `.` and `/` are ordinary ones.
        ("\u{2024}\u{2024}\u{2215}m.txt", "workspace/\u{2024}\u{2024}\u{2215}m.txt"),
        ("\u{ff0f}etc\u{ff0f}n.txt", "workspace/\u{ff0f}etc\u{ff0f}n.txt"),
        ("%2e%2e%2fo.txt", "workspace/%2e%2e%2fo.txt"),
        ("$HOME/p.txt", "workspace/$HOME/p.txt"),
    ];
    for (path, on_host) in cases {
        done(agent.write(path, on_host).await);
        assert_eq!(std::fs::read_to_string(fixture.on_host(on_host)).unwrap(), on_host, "{path}");
        assert_eq!(agent.read(path).await, on_host);
    }
    assert!(!fixture.on_host("workspace/missing").exists());
    let deep = "d/".repeat(limits::WORKSPACE_DEPTH);
    assert_eq!(code(&agent.write(&format!("{deep}x"), "").await), "file.path");
}

#[tokio::test]
async fn uploads_can_be_read_and_not_written() {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    let path = fixture.workspace.add_upload("C:\\Users\\me\\list.csv", b"a,b".to_vec()).await.unwrap();
    assert_eq!(path.to_string(), "/mnt/user-data/uploads/list.csv");
    assert_eq!(agent.read("../uploads/list.csv").await, "a,b");
    assert_eq!(fixture.workspace.read(&path).await.unwrap(), b"a,b");
    for path in ["/mnt/user-data/uploads/list.csv", "../uploads/new.csv", "/mnt/user-data/uploads"] {
        assert_eq!(code(&agent.write(path, "a,b").await), "file.read_only");
        assert_eq!(code(&agent.append(path, "x").await), "file.read_only");
        assert_eq!(code(&agent.replace(path, "a", "x").await), "file.read_only");
    }
    for name in ["", "..", "a/..", "a\0", "/"] {
        assert!(fixture.workspace.add_upload(name, Vec::new()).await.is_err(), "{name:?}");
    }
    assert_eq!(std::fs::read_dir(fixture.on_host("uploads")).unwrap().count(), 1);
}

#[cfg(unix)]
#[tokio::test]
async fn symbolic_links_are_not_followed() {
    use std::os::unix::fs::symlink;
    let fixture = Fixture::new();
    let agent = fixture.agent();
    let outside = fixture.folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret.txt"), "secret").unwrap();
    done(agent.write("real/file.txt", "real").await);
    fixture.workspace.add_upload("upload.txt", b"upload".to_vec()).await.unwrap();
    let links = [
        ("folder", outside.clone()),
        ("file", outside.join("secret.txt")),
        ("new", outside.join("new.txt")),
        ("inside", PathBuf::from("real")),
        ("inside_file", PathBuf::from("real/file.txt")),
        ("upload", PathBuf::from("../uploads/upload.txt")),
        ("loop", PathBuf::from("loop")),
        ("self", PathBuf::from("/proc/self")),
    ];
    for (name, target) in &links {
        symlink(target, fixture.on_host("workspace").join(name)).unwrap();
        symlink(target, fixture.on_host("outputs").join(name)).unwrap();
    }
    for (name, _) in &links {
        for path in [(*name).to_owned(), format!("{name}/secret.txt"), format!("{name}/x/y.txt")] {
            let calls = [
                (LS, json!({"path": path})),
                (READ_FILE, json!({"path": path})),
                (WRITE_FILE, json!({"path": path, "content": "changed"})),
                (WRITE_FILE, json!({"path": path, "content": "changed", "append": true})),
                (STR_REPLACE, json!({"path": path, "old_str": "e", "new_str": "x"})),
                (GREP, json!({"pattern": ".", "path": path})),
                (GLOB, json!({"pattern": "**", "path": path})),
                (PRESENT_FILES, json!({"filepaths": [format!("../outputs/{path}")]})),
            ];
            for (tool, arguments) in calls {
                let outcome = agent.call(tool, arguments).await;
                assert_eq!(code(&outcome), "file.link", "{tool} {path}: {outcome:?}");
            }
        }
    }
    // Searches from above do not enter them.
    assert_eq!(agent.text(GLOB, json!({"pattern": "**"})).await, "/mnt/user-data/workspace/real/file.txt");
    assert_eq!(agent.text(GREP, json!({"pattern": "secret"})).await, "(Nothing matches.)");
    assert!(agent.text(LS, json!({"path": "."})).await.contains("folder (a symbolic link, not followed)"));
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(std::fs::read_to_string(outside.join("secret.txt")).unwrap(), "secret");
}

#[cfg(unix)]
#[tokio::test]
async fn an_area_that_is_a_link_is_not_opened() {
    let fixture = Fixture::new();
    let outside = fixture.folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::create_dir(fixture.workspace.folder()).unwrap();
    std::os::unix::fs::symlink(&outside, fixture.on_host("workspace")).unwrap();
    assert_eq!(code(&fixture.agent().write("a", "a").await), "file.system");
    assert_eq!(std::fs::read_dir(outside).unwrap().count(), 0);
}

#[cfg(unix)]
#[tokio::test]
async fn a_hard_link_gets_a_file_of_its_own_when_it_is_written() {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    done(agent.write("a.txt", "old").await);
    std::fs::write(fixture.on_host("uploads/u.txt"), "upload").unwrap();
    std::fs::hard_link(fixture.on_host("uploads/u.txt"), fixture.on_host("workspace/u.txt")).unwrap();
    agent.read("u.txt").await;
    done(agent.append("u.txt", "x").await);
    assert_eq!(std::fs::read_to_string(fixture.on_host("uploads/u.txt")).unwrap(), "upload");
    assert_eq!(agent.read("u.txt").await, "uploadx");
}

#[cfg(unix)]
#[tokio::test]
async fn pipes_and_folders_are_no_files_and_do_not_block() {
    let fixture = Fixture::new();
    let agent = fixture.agent();
    done(agent.write("d/f", "x").await);
    let pipe = fixture.on_host("workspace/pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in ["pipe", "d", "/mnt/user-data/workspace", "/mnt/user-data"] {
        let outcome = agent.call(READ_FILE, json!({"path": path})).await;
        assert_eq!(code(&outcome), "file.not_a_file", "{path}");
    }
    assert_eq!(code(&agent.write("pipe", "x").await), "file.not_a_file");
    assert_eq!(code(&agent.write("d", "x").await), "file.not_a_file");
    assert_eq!(code(&agent.write("d/f/g", "x").await), "file.not_a_folder");
    assert_eq!(code(&agent.call(LS, json!({"path": "d/f"})).await), "file.not_a_folder");
    assert_eq!(agent.text(GREP, json!({"pattern": "x"})).await, "/mnt/user-data/workspace/d/f:1: x");
    assert!(agent.text(LS, json!({"path": "."})).await.contains("pipe (not a regular file)"));
}

fn names() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => Just("a".to_owned()),
        2 => Just("b".to_owned()),
        4 => Just("..".to_owned()),
        1 => Just(".".to_owned()),
        1 => Just(String::new()),
        2 => Just("link".to_owned()),
        1 => Just("outside".to_owned()),
        1 => Just("workspace".to_owned()),
        1 => Just("uploads".to_owned()),
        1 => Just("outputs".to_owned()),
        1 => Just("mnt".to_owned()),
        1 => Just("user-data".to_owned()),
        1 => "\\PC{1,6}",
    ];
    let parts = prop::collection::vec(part, 1..7).prop_map(|parts| parts.join("/"));
    (prop_oneof![Just(""), Just("/"), Just("/mnt/user-data/workspace/"), Just("/mnt/user-data/outputs/")], parts)
        .prop_map(|(start, rest)| format!("{start}{rest}"))
}

#[derive(Clone, Debug)]
enum Step {
    Write(String, bool),
    Read(String),
    Replace(String),
    /// A command makes a link, as far as the folder exists.
    Link(String, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (names(), any::<bool>()).prop_map(|(path, append)| Step::Write(path, append)),
        2 => names().prop_map(Step::Read),
        2 => names().prop_map(Step::Replace),
        2 => (names(), any::<bool>()).prop_map(|(path, outside)| Step::Link(path, outside)),
    ];
    prop::collection::vec(step, 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]
    #[test]
    fn no_sequence_of_calls_creates_or_changes_a_file_outside_the_folder(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let fixture = Fixture::new();
            let outside = fixture.folder.path().join("outside");
            std::fs::create_dir(&outside).unwrap();
            std::fs::write(outside.join("a"), "ab").unwrap();
            fixture.workspace.add_upload("a", b"ab".to_vec()).await.unwrap();
            let agent = fixture.agent();
            for step in &steps {
                match step {
                    Step::Write(path, append) => {
                        let arguments = json!({"path": path, "content": "ab", "append": append});
                        agent.call(WRITE_FILE, arguments).await;
                    }
                    Step::Read(path) => {
                        agent.call(READ_FILE, json!({"path": path})).await;
                    }
                    Step::Replace(path) => {
                        agent.replace(path, "a", "c").await;
                    }
                    Step::Link(path, to_outside) => {
                        let Ok(path) = VirtualPath::parse(path) else { continue };
                        let Some(area) = path.area().filter(|area| area.is_writable()) else { continue };
                        let Some((last, above)) = path.names().split_last() else { continue };
                        let folder = above.iter().fold(fixture.on_host(area.as_str()), |at, name| at.join(name));
                        // Not through a link that leads elsewhere: a sandboxed command cannot write there either.
                        let start = fixture.on_host(area.as_str()).canonicalize().unwrap();
                        let is_inside = folder.canonicalize().is_ok_and(|real| real.starts_with(start));
                        let target = if *to_outside { outside.clone() } else { fixture.on_host("uploads") };
                        #[cfg(unix)]
                        if is_inside {
                            let _ = std::os::unix::fs::symlink(target, folder.join(last));
                        }
                        #[cfg(not(unix))]
                        let _ = (last, is_inside, target);
                    }
                }
            }
            let folder = fixture.folder.path();
            let strangers: Vec<_> = tree(folder)
                .into_iter()
                .filter(|path| !path.starts_with(fixture.workspace.folder()) && !path.starts_with(&outside))
                .collect();
            prop_assert!(strangers.is_empty(), "{:?}", strangers);
            prop_assert_eq!(tree(&outside), vec![outside.join("a")]);
            prop_assert_eq!(std::fs::read_to_string(outside.join("a")).unwrap(), "ab");
            prop_assert_eq!(tree(&fixture.on_host("uploads")), vec![fixture.on_host("uploads/a")]);
            prop_assert_eq!(std::fs::read_to_string(fixture.on_host("uploads/a")).unwrap(), "ab");
            prop_assert_eq!(tree(&fixture.on_host("unfinished")), vec![fixture.on_host("unfinished/lock")]);
            Ok(())
        })?;
    }

    #[test]
    fn a_path_is_either_refused_or_inside_an_area(path in "\\PC{0,40}|(/?(\\.\\.|[a-z.]{0,4}|mnt|user-data)){0,12}") {
        if let Ok(parsed) = VirtualPath::parse(&path) {
            prop_assert!(parsed.names().iter().all(|name| !matches!(name.as_str(), "" | "." | "..") && !name.contains('/')));
            prop_assert_eq!(VirtualPath::parse(&parsed.to_string()).unwrap(), parsed);
        }
    }
}

//! Tests: `bash` in a plain wrapper and in bubblewrap, where that is installed.

use std::{ffi::OsStr, time::Duration};

use segue_base::manual_clock::ManualClock;
use tokio::task::JoinHandle;

use super::*;
use crate::{
    ToolCallContext,
    workspace::{bash::Capture, folder::Free},
};

/// A sandbox that only passes the command on.
fn plain() -> Sandbox {
    Sandbox::new(vec!["env".to_owned()]).unwrap()
}

impl Fixture {
    fn agent_with(&self, sandbox: Sandbox) -> Agent {
        std::fs::create_dir_all(self.on_host("workspace")).unwrap();
        Agent::new(WorkspaceTools::new(self.workspace.clone()).sandbox(Some(sandbox)))
    }
}

impl Agent {
    async fn bash(&self, command: &str) -> ToolOutcome {
        self.call(BASH, json!({"command": command})).await
    }
    /// A call in the background, with a clock that the test advances.
    fn start(&self, command: &str, clock: &ManualClock) -> JoinHandle<ToolOutcome> {
        let arguments = json!({"description": "a test", "command": command});
        let tools = self.set.clone();
        let context = ToolCallContext { cx: clock.context(Duration::from_secs(3_600)), ..context() };
        tokio::spawn(async move { invoke(&tools, BASH, arguments, &context, None).await })
    }
}

/// A named pipe in the workspace, by which a command tells the test how far it is.
struct Pipe(PathBuf);

impl Pipe {
    fn new(fixture: &Fixture, name: &str) -> Self {
        let path = fixture.on_host("workspace").join(name);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        Self(path)
    }
    /// Waits until a command opens the pipe and all its processes have closed it.
    async fn closed(&self) -> String {
        let path = self.0.clone();
        tokio::task::spawn_blocking(move || std::fs::read_to_string(path).unwrap()).await.unwrap()
    }
}

#[tokio::test]
async fn commands_are_refused_without_a_sandbox_and_the_text_says_how_to_allow_them() {
    let fixture = Fixture::new();
    let outcome = fixture.agent().bash("echo x").await;
    assert_eq!(code(&outcome), "refused");
    assert!(outcome.for_model().contains("Debian package `bubblewrap`"), "{}", outcome.for_model());
    assert!(tree(fixture.folder.path()).is_empty());
}

#[tokio::test]
async fn twelve_sub_agents_run_commands_in_one_workspace() {
    let fixture = Fixture::new();
    let agent = fixture.agent_with(plain());
    let calls = (0..12).map(|number| {
        let mut context = context();
        context.caller.session = Some(format!("{number}").into());
        let command = format!("echo text {number} > {number}.txt; cat {number}.txt");
        let (set, arguments) = (agent.set.clone(), json!({"description": "a test", "command": command}));
        async move { invoke(&set, BASH, arguments, &context, None).await }
    });
    for (number, outcome) in futures::future::join_all(calls).await.into_iter().enumerate() {
        assert_eq!(done(outcome), format!("text {number}\n(exit status 0)"));
    }
    assert_eq!(tree(&fixture.on_host("workspace")).len(), 12);
}

#[tokio::test]
async fn the_result_has_both_outputs_in_order_and_the_exit_status() {
    let fixture = Fixture::new();
    let agent = fixture.agent_with(plain());
    let cases = [
        ("echo one; echo two >&2; echo three", "one\ntwo\nthree\n(exit status 0)"),
        ("echo no; exit 3", "no\n(exit status 3)"),
        ("true", "(no output)\n(exit status 0)"),
        ("kill -TERM $$", "(no output)\n(ended by signal 15)"),
        ("cat", "(no output)\n(exit status 0)"),
        ("[[ a == a ]] && echo bash", "bash\n(exit status 0)"),
    ];
    for (command, expected) in cases {
        assert_eq!(done(agent.bash(command).await), expected, "{command}");
    }
    let ToolOutcome::Done(output) = agent.bash("exit 3").await else { panic!() };
    assert_eq!(output.meta.get("exit_status"), Some(&json!(3)));
    for command in ["", "  ", "a\0b", &"x".repeat(limits::SANDBOX_COMMAND + 1)] {
        assert_eq!(code(&agent.bash(command).await), "bad_arguments", "{command:?}");
    }
}

#[tokio::test]
async fn commands_and_file_tools_see_the_same_files() {
    let fixture = Fixture::new();
    let agent = fixture.agent_with(plain());
    done(agent.write("a.txt", "one\n").await);
    assert_eq!(done(agent.bash("cat a.txt; echo two >> a.txt").await), "one\n(exit status 0)");
    assert_eq!(agent.read("a.txt").await, "one\ntwo\n");
    done(agent.bash("echo three >> a.txt").await);
    assert_eq!(code(&agent.write("a.txt", "mine").await), "file.changed");
}

#[tokio::test]
async fn the_environment_of_a_command_is_scrubbed() {
    let fixture = Fixture::new();
    // The test itself has more variables.
    assert!(segue_base::environment::all().len() > 3);
    let text = done(fixture.agent_with(plain()).bash("env").await);
    let mut names: Vec<_> = text.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.sort_unstable();
    // The last three are those of the shell.
    names.retain(|name| !matches!(*name, "PWD" | "SHLVL" | "_"));
    assert_eq!(names, ["HOME", "LANG", "PATH"]);
    assert!(text.contains("HOME=/mnt/user-data/workspace\n"), "{text}");
}

#[tokio::test]
async fn the_middle_of_a_long_output_is_left_out() {
    let fixture = Fixture::new();
    let text = done(fixture.agent_with(plain()).bash("seq 1 300000").await);
    let length = text.chars().count();
    assert!(length > limits::SANDBOX_OUTPUT - 200 && length <= limits::SANDBOX_OUTPUT + 20, "{length}");
    assert!(text.starts_with("1\n2\n3\n") && text.ends_with("299999\n300000\n(exit status 0)"), "{text}");
    // 1,988,895 bytes in all.
    assert!(text.contains("[… 1968") && text.contains(" characters left out …]"), "{}", &text[9_900..10_000]);
    let exact = "x".repeat(limits::SANDBOX_OUTPUT);
    let text = done(fixture.agent_with(plain()).bash(&format!("printf %s {exact}")).await);
    assert_eq!(text, format!("{exact}\n(exit status 0)"));
}

#[test]
fn the_output_of_a_command_takes_bounded_memory() {
    let mut capture = Capture::default();
    for _ in 0..1_000 {
        capture.push(&[b'x'; 16 * 1024]);
        assert!(capture.kept() <= 2 * limits::SANDBOX_CAPTURE);
    }
    assert_eq!(capture.kept(), 2 * limits::SANDBOX_CAPTURE);
}

#[test]
fn no_part_of_a_secret_remains_where_output_is_left_out() {
    // Its mark is so much shorter that the places where the capture was cut are shown.
    let secret: String = (0..60).map(|number| format!("<{number:02}>")).collect();
    let fixture = Fixture::with(|settings| settings.secrets = vec![Secret::new(secret.as_str())]);
    for shift in 0..secret.len() {
        let mut capture = Capture::default();
        capture.push("-".repeat(shift).as_bytes());
        for _ in 0..2_000 {
            capture.push(secret.as_bytes());
            capture.push(b"\n");
        }
        let text = capture.text(&fixture.workspace.inner);
        assert!(text.contains("[secret]\n[secret]\n"));
        assert!(!text.contains('<') && !text.contains('>'), "{shift}: {text}");
    }
}

#[tokio::test]
async fn what_a_command_leaves_in_the_background_ends_with_it() {
    let fixture = Fixture::new();
    let agent = fixture.agent_with(plain());
    let pipe = Pipe::new(&fixture, "pipe");
    let (outcome, _) = tokio::join!(agent.bash("exec 3>pipe; sleep 1000 & echo started"), pipe.closed());
    assert_eq!(done(outcome), "started\n(exit status 0)");
}

#[tokio::test]
async fn a_command_is_killed_at_its_time_limit_and_its_output_so_far_is_shown() {
    let fixture = Fixture::new();
    let agent = fixture.agent_with(plain().time_limit(Duration::from_secs(5)));
    let (ready, ended) = (Pipe::new(&fixture, "ready"), Pipe::new(&fixture, "ended"));
    let clock = ManualClock::new();
    let call = agent.start("exec 4>ended; echo partial; echo > ready; sleep 1000 & wait", &clock);
    let end = tokio::spawn(async move { ended.closed().await });
    ready.closed().await;
    clock.advance(Duration::from_millis(4_900));
    tokio::task::yield_now().await;
    assert!(!call.is_finished());
    clock.advance(Duration::from_millis(100));
    let outcome = call.await.unwrap();
    let expected =
        "partial\n(Stopped after 5 s, the most that a command may take. What it had done until then remains.)";
    let ToolOutcome::Done(output) = &outcome else { panic!("{outcome:?}") };
    assert_eq!(output.meta.get("timed_out"), Some(&json!(true)));
    assert_eq!(outcome.for_model(), expected);
    // Its children are killed too.
    end.await.unwrap();
}

#[tokio::test]
async fn a_cancelled_command_is_killed_with_its_children() {
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.on_host("workspace")).unwrap();
    let stop = CancellationToken::new();
    let tools = WorkspaceTools::new(fixture.workspace.clone()).sandbox(Some(plain())).stopped_by(stop.clone());
    let agent = Agent::new(tools);
    let (ready, ended) = (Pipe::new(&fixture, "ready"), Pipe::new(&fixture, "ended"));
    // The clock stands still: nothing but the token ends the call.
    let call = agent.start("trap '' TERM; exec 4>ended; echo > ready; sleep 1000 & wait", &ManualClock::new());
    let end = tokio::spawn(async move { ended.closed().await });
    ready.closed().await;
    assert!(!call.is_finished());
    stop.cancel();
    let outcome = call.await.unwrap();
    let ToolOutcome::Unknown(failure) = &outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.kind, crate::FailureKind::Cancelled);
    end.await.unwrap();
    assert_eq!(code(&agent.bash("echo > new").await), "cancelled");
    assert!(!fixture.on_host("workspace/new").exists());
}

#[tokio::test]
async fn dropping_the_call_kills_the_command() {
    let fixture = Fixture::new();
    let agent = fixture.agent_with(plain());
    let (ready, ended) = (Pipe::new(&fixture, "ready"), Pipe::new(&fixture, "ended"));
    let call = agent.start("exec 4>ended; echo > ready; sleep 1000 & wait", &ManualClock::new());
    let end = tokio::spawn(async move { ended.closed().await });
    ready.closed().await;
    call.abort();
    end.await.unwrap();
}

#[tokio::test]
async fn removing_the_workspace_ends_its_commands() {
    let fixture = Fixture::new();
    let agent = fixture.agent_with(plain());
    let ready = Pipe::new(&fixture, "ready");
    let call = agent.start("echo > ready; while :; do echo > file; done", &ManualClock::new());
    ready.closed().await;
    fixture.workspace.remove().await.unwrap();
    assert!(matches!(call.await.unwrap(), ToolOutcome::Unknown(_)));
    assert!(tree(fixture.folder.path()).is_empty());
}

#[tokio::test]
async fn no_more_commands_run_at_once_than_allowed() {
    let fixture = Fixture::new();
    let agent = fixture.agent_with(plain().parallel(1));
    let (ready, go) = (Pipe::new(&fixture, "ready"), Pipe::new(&fixture, "go"));
    let clock = ManualClock::new();
    let first = agent.start("echo > ready; cat go > /dev/null; echo first >> order", &clock);
    ready.closed().await;
    let second = agent.start("echo second >> order", &clock);
    let late = tokio::spawn({
        let agent = Agent::new(agent.tools.clone());
        let clock = clock.clone();
        async move { agent.start("echo third >> order", &clock).await.unwrap() }
    });
    // One waits until its time in the queue is over and is not started.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert!(!second.is_finished());
    clock.advance(limits::SANDBOX_QUEUE);
    for call in [second.await.unwrap(), late.await.unwrap()] {
        assert_eq!(code(&call), "timeout");
        assert!(call.for_model().contains("was not started"), "{call:?}");
    }
    let fourth = agent.start("echo fourth >> order", &clock);
    tokio::task::spawn_blocking(move || std::fs::write(go.0, "go").unwrap()).await.unwrap();
    done(first.await.unwrap());
    done(fourth.await.unwrap());
    assert_eq!(std::fs::read_to_string(fixture.on_host("workspace/order")).unwrap(), "first\nfourth\n");
}

#[tokio::test]
async fn a_command_cannot_write_a_file_larger_than_the_space_that_is_left() {
    let fixture = Fixture::with(|settings| settings.max_bytes = 100_000);
    let agent = fixture.agent_with(plain());
    let text = done(agent.bash("head -c 10000000 /dev/zero > big; echo status $?").await);
    assert!(text.contains("status 153"), "{text}");
    assert_eq!(std::fs::metadata(fixture.on_host("workspace/big")).unwrap().len(), 100_000 / 512 * 512);
}

#[tokio::test]
async fn a_command_that_fills_the_workspace_is_reported_and_may_empty_it_again() {
    let fixture = Fixture::with(|settings| settings.max_bytes = 100_000);
    let agent = fixture.agent_with(plain());
    let text = done(agent.bash("for i in 1 2; do head -c 80000 /dev/zero > $i; done").await);
    assert!(text.contains("The files take 160000 bytes in 2 files and folders, more than is allowed."), "{text}");
    assert_eq!(code(&agent.write("a", "a").await), "file.quota");
    assert_eq!(done(agent.bash("rm 1").await), "(no output)\n(exit status 0)");
    done(agent.write("a", "a").await);
}

#[tokio::test]
async fn a_running_command_is_stopped_when_the_workspace_is_over_its_limit() {
    let fixture = Fixture::with(|settings| settings.max_bytes = 100_000);
    let agent = fixture.agent_with(plain());
    let ready = Pipe::new(&fixture, "ready");
    let clock = ManualClock::new();
    let command = "for i in 1 2; do head -c 80000 /dev/zero > $i; done; echo > ready; sleep 1000";
    let call = agent.start(command, &clock);
    ready.closed().await;
    clock.advance(limits::SANDBOX_CHECK);
    let text = done(call.await.unwrap());
    assert!(text.contains("(Stopped: the files took more than the 100000 bytes that are allowed."), "{text}");
}

#[tokio::test]
async fn a_running_command_is_stopped_when_there_are_too_many_files_and_the_next_may_remove_them() {
    let fixture = Fixture::new();
    let agent = fixture.agent_with(plain());
    let (ready, clock) = (Pipe::new(&fixture, "ready"), ManualClock::new());
    let many = limits::WORKSPACE_ENTRIES + 1;
    let call = agent.start(&format!("mkdir d; seq 1 {many} | (cd d; xargs touch); echo > ready; sleep 1000"), &clock);
    ready.closed().await;
    clock.advance(limits::SANDBOX_CHECK);
    let text = done(call.await.unwrap());
    assert!(text.contains("(Stopped: there were more than the 20000 files and folders that are allowed."), "{text}");
    assert!(text.contains("take 0 bytes in 20003 files and folders, more than is allowed"), "{text}");
    // Looked at while it removes them: this is no growth.
    let call = agent.start("rm d/1*; echo > ready; rm -r d; echo > ready", &clock);
    ready.closed().await;
    clock.advance(limits::SANDBOX_CHECK);
    ready.closed().await;
    assert_eq!(done(call.await.unwrap()), "(no output)\n(exit status 0)");
    done(agent.write("a", "a").await);
}

#[tokio::test]
async fn folders_below_those_that_are_counted_end_a_command_and_are_removed() {
    let fixture = Fixture::new();
    let agent = fixture.agent_with(plain());
    let (ready, clock) = (Pipe::new(&fixture, "ready"), ManualClock::new());
    let deep = format!("for i in $(seq {}); do mkdir d; cd d; done; echo x > x", limits::WORKSPACE_NESTED + 5);
    let call = agent.start(&format!("({deep}); echo > ready; sleep 1000"), &clock);
    ready.closed().await;
    clock.advance(limits::SANDBOX_CHECK);
    let text = done(call.await.unwrap());
    assert!(text.contains("(Stopped: folders were nested in more than 64 levels"), "{text}");
    // One that ends before it is looked at.
    done(agent.bash("rm -r d").await);
    let text = done(agent.start(&deep, &ManualClock::new()).await.unwrap());
    let end = "(exit status 0)\n(Folders below level 64 were removed, with all that was in them.)";
    assert!(text.ends_with(end), "{text}");
    let usage = fixture.workspace.usage().await.unwrap();
    assert_eq!((usage.entries, usage.too_deep), (limits::WORKSPACE_NESTED as u64 + 1, false), "and the pipe");
    done(agent.write("a", "a").await);
}

#[test]
fn a_fall_of_the_room_on_the_file_system_is_compared_with_what_the_files_may_still_take() {
    let usage = Usage { bytes: 60, entries: limits::WORKSPACE_ENTRIES - 40, too_deep: false };
    let free = |bytes, entries| Some(Free { bytes, entries });
    let now = [free(1_000, 1_000), free(990, 990), free(989, 1_000), free(1_000, 989), free(2_000, 2_000), None];
    let expected = [false, false, true, true, false, false];
    assert_eq!(now.map(|now| usage.may_be_full(free(1_000, 1_000), now, 100)), expected);
    assert!(!usage.may_be_full(None, free(0, 0), 100), "the system does not say it");
}

#[tokio::test]
async fn a_sandbox_that_does_not_start_is_no_result_of_the_command() {
    let fixture = Fixture::new();
    let commands: [&[&str]; 2] =
        [&["/missing/sandbox-program"], &["sh", "-c", "echo no namespaces at /srv/x >&2; exit 1", "sandbox"]];
    for command in commands {
        let sandbox = Sandbox::new(command.iter().map(|part| (*part).to_owned()).collect()).unwrap();
        let outcome = fixture.agent_with(sandbox.clone()).bash("echo x").await;
        assert_eq!(code(&outcome), "sandbox.not_started");
        assert!(!outcome.for_model().contains("/srv") && !outcome.for_model().contains("missing"), "{outcome:?}");
        let error = sandbox.check(&fixture.workspace, &context()).await.unwrap_err();
        assert!(error.to_string().contains(command[0]) && error.to_string().contains("user namespaces"), "{error}");
    }
    plain().check(&fixture.workspace, &context()).await.unwrap();
    assert_eq!(Sandbox::new(Vec::new()).unwrap_err(), SandboxError::Empty);
    assert_eq!(Sandbox::new(vec![" ".to_owned()]).unwrap_err(), SandboxError::Empty);
}

#[test]
fn a_missing_bubblewrap_is_named_with_its_package() {
    let empty = tempfile::tempdir().unwrap();
    let error = SandboxPreset::new().command(empty.path().as_os_str()).unwrap_err();
    assert_eq!(error, SandboxError::NotInstalled);
    assert!(error.to_string().contains("apt-get install bubblewrap"), "{error}");
    assert_eq!(SandboxPreset::new().command(OsStr::new("")).unwrap_err(), SandboxError::NotInstalled);
}

#[test]
fn the_arguments_of_bubblewrap_name_the_folders_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("bwrap"), "").unwrap();
    let preset = SandboxPreset::new().read_only("/opt/tools");
    let command = preset.command(folder.path().as_os_str()).unwrap();
    assert_eq!(command[0], folder.path().join("bwrap").to_string_lossy());
    let arguments = Sandbox::new(command).unwrap().arguments(Path::new("/srv/run"));
    let joined = format!(" {} ", arguments.join(" "));
    for part in [
        " --unshare-all ",
        " --die-with-parent ",
        " --new-session ",
        " --ro-bind /opt/tools /opt/tools ",
        " --bind /srv/run/workspace /mnt/user-data/workspace ",
        " --ro-bind /srv/run/uploads /mnt/user-data/uploads ",
        " --bind /srv/run/outputs /mnt/user-data/outputs ",
    ] {
        assert!(joined.contains(part), "{part} in {joined}");
    }
    assert!(joined.ends_with(" --chdir /mnt/user-data/workspace -- "), "{joined}");
    assert!(!joined.contains("--share-net") && !joined.contains(" / / "), "{joined}");
    let network = SandboxPreset::new().network(true).command(folder.path().as_os_str()).unwrap();
    assert!(network.contains(&"--share-net".to_owned()));
}

/// Bubblewrap, if it is installed and this system lets it start anything at all. Then the preset must start too.
async fn bubblewrap(fixture: &Fixture) -> Option<Sandbox> {
    let simplest = ["--unshare-all", "--ro-bind", "/", "/", "true"];
    let output = std::process::Command::new("bwrap").args(simplest).output().ok()?;
    if !output.status.success() {
        return None;
    }
    let sandbox = SandboxPreset::new().sandbox(OsStr::new("/usr/local/bin:/usr/bin:/bin")).unwrap();
    sandbox.check(&fixture.workspace, &context()).await.unwrap();
    Some(sandbox)
}

#[tokio::test]
async fn in_bubblewrap_a_small_project_is_built_and_tested() {
    let fixture = Fixture::new();
    let Some(sandbox) = bubblewrap(&fixture).await else { return };
    let agent = fixture.agent_with(sandbox);
    let makefile = "all: greeting\n\ngreeting: greeting.in\n\tsed s/NAME/World/ greeting.in > greeting\n\ncheck: greeting\n\tgrep -q 'Hello World' greeting\n\tcp greeting /mnt/user-data/outputs/\n\t@echo tests passed\n";
    done(agent.write("project/Makefile", makefile).await);
    done(agent.write("project/greeting.in", "Hello NAME\n").await);
    let has_make = done(agent.bash("command -v make").await).starts_with('/');
    let build = if has_make {
        "cd project && make && make check"
    } else {
        "cd project && sed s/NAME/World/ greeting.in > greeting && cp greeting /mnt/user-data/outputs/ && echo tests passed"
    };
    let text = done(agent.bash(build).await);
    assert!(text.ends_with("tests passed\n(exit status 0)"), "{text}");
    assert_eq!(agent.read("/mnt/user-data/outputs/greeting").await, "Hello World\n");
    done(agent.call(PRESENT_FILES, json!({"filepaths": ["/mnt/user-data/outputs/greeting"]})).await);
    agent.read("project/greeting.in").await;
    done(agent.replace("project/greeting.in", "Hello", "Goodbye").await);
    if has_make {
        let text = done(agent.bash(build).await);
        assert!(text.contains("Error 1") && text.ends_with("(exit status 2)"), "{text}");
    }
    if done(agent.bash("command -v python3").await).starts_with('/') {
        done(agent.write("shop/prices.py", "def total(prices):\n    return sum(prices)\n").await);
        let test = "import unittest\nfrom prices import total\n\nclass Totals(unittest.TestCase):\n    def test_sum(self):\n        \
                    self.assertEqual(total([1, 2]), 3)\n";
        done(agent.write("shop/test_prices.py", test).await);
        let text = done(agent.bash("cd shop && python3 -m unittest").await);
        assert!(text.contains("Ran 1 test in") && text.ends_with("\nOK\n(exit status 0)"), "{text}");
    }
}

#[tokio::test]
async fn in_bubblewrap_a_configured_command_may_show_the_whole_run() {
    let fixture = Fixture::new();
    if bubblewrap(&fixture).await.is_none() {
        return;
    }
    // The first is that of docs/errors/T0701.md.
    let commands = [
        "bwrap --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 --dev /dev --proc /proc \
         --tmpfs /tmp --unshare-all --die-with-parent --new-session --bind {workspace} /mnt/user-data --chdir \
         /mnt/user-data/workspace --",
        "bwrap --ro-bind / / --dev /dev --proc /proc --unshare-all --die-with-parent --tmpfs /mnt --bind {workspace} \
         /mnt/user-data --chdir /mnt/user-data/workspace --",
    ];
    for command in commands {
        let fixture = Fixture::new();
        let sandbox = Sandbox::new(command.split_whitespace().map(str::to_owned).collect()).unwrap();
        fixture.workspace.add_upload("numbers.txt", b"1\n2\n3\n".to_vec()).await.unwrap();
        let agent = fixture.agent_with(sandbox);
        let count = "wc -l < ../uploads/numbers.txt > ../outputs/count.txt; pwd";
        assert_eq!(done(agent.bash(count).await), "/mnt/user-data/workspace\n(exit status 0)");
        assert_eq!(agent.read("../outputs/count.txt").await, "3\n");
        // The folder of the run, which such a command can find out, is masked.
        let found = done(agent.bash("grep ' /mnt/user-data ' /proc/self/mountinfo | cut -d ' ' -f 4").await);
        assert!(found.starts_with('/'), "{found}");
        assert!(!found.contains(&fixture.folder.path().display().to_string()), "{found}");
        // An area that a command exchanges for a link stays the one that is open.
        done(agent.bash("cd ..; mv outputs moved; ln -s /tmp outputs").await);
        assert_eq!(agent.read("../outputs/count.txt").await, "3\n");
    }
}

#[tokio::test]
async fn in_bubblewrap_a_command_reaches_nothing_but_its_run() {
    let fixture = Fixture::new();
    let Some(sandbox) = bubblewrap(&fixture).await else { return };
    fixture.workspace.add_upload("list.csv", b"a,b\n".to_vec()).await.unwrap();
    let outside = fixture.folder.path().join("outside.txt");
    std::fs::write(&outside, "secret").unwrap();
    let agent = fixture.agent_with(sandbox);
    let outside = outside.display();
    let refused = [
        format!("cat {outside}"),
        format!("echo x > {outside}"),
        "ls /home".to_owned(),
        "cat /etc/shadow".to_owned(),
        "echo x > /usr/x".to_owned(),
        "echo x > /x".to_owned(),
        "echo x > /mnt/user-data/x".to_owned(),
        "echo x > /dev/x".to_owned(),
        "mkdir /dev/shm/d && head -c 70000000 /dev/zero > /dev/shm/d/x".to_owned(),
        "mv /mnt/user-data/workspace /mnt/user-data/w".to_owned(),
        "echo x > /mnt/user-data/uploads/list.csv".to_owned(),
        "rm /mnt/user-data/uploads/list.csv".to_owned(),
        "mount -t tmpfs none /tmp".to_owned(),
        "echo x > /dev/tcp/127.0.0.1/22".to_owned(),
        format!("ls /proc/{}", std::process::id()),
    ];
    for command in &refused {
        let text = done(agent.bash(command).await);
        assert!(!text.ends_with("(exit status 0)") && !text.contains("secret"), "{command}: {text}");
    }
    assert_eq!(std::fs::read_to_string(fixture.on_host("uploads/list.csv")).unwrap(), "a,b\n");
    let interfaces = done(agent.bash("tail -n +3 /proc/net/dev | cut -d: -f1").await);
    assert_eq!(interfaces.trim(), "lo\n(exit status 0)");
    let allowed = [
        ("pwd", "/mnt/user-data/workspace"),
        ("cat /mnt/user-data/uploads/list.csv", "a,b"),
        ("echo x > /tmp/x && cat /tmp/x", "x"),
        ("echo x > /dev/shm/x && cat /dev/shm/x && echo > /dev/null", "x"),
        ("touch new && stat -c %a new", "600"),
        ("ls /mnt/user-data", "outputs\nuploads\nworkspace"),
        ("cd && pwd", "/mnt/user-data/workspace"),
    ];
    for (command, expected) in allowed {
        assert_eq!(done(agent.bash(command).await), format!("{expected}\n(exit status 0)"), "{command}");
    }
    // A link that a command makes is not followed by the file tools.
    done(agent.bash(&format!("ln -s {outside} link; ln -s / root")).await);
    assert_eq!(code(&agent.call(READ_FILE, json!({"path": "link"})).await), "file.link");
    assert_eq!(code(&agent.call(LS, json!({"path": "root/etc"})).await), "file.link");
}

#[tokio::test]
async fn in_bubblewrap_a_folder_below_a_private_one_is_shown_and_can_only_be_read() {
    let (fixture, shown) = (Fixture::new(), tempfile::tempdir_in("/tmp").unwrap());
    if bubblewrap(&fixture).await.is_none() {
        return;
    }
    std::fs::write(shown.path().join("a.txt"), "shown\n").unwrap();
    let preset = SandboxPreset::new().read_only(shown.path());
    let agent = fixture.agent_with(preset.sandbox(OsStr::new("/usr/local/bin:/usr/bin:/bin")).unwrap());
    let folder = shown.path().display();
    assert_eq!(done(agent.bash(&format!("cat {folder}/a.txt; ls -A /tmp | wc -l")).await), "shown\n1\n(exit status 0)");
    let text = done(agent.bash(&format!("echo x > /tmp/x && echo private; echo x > {folder}/x")).await);
    assert!(text.starts_with("private\n") && text.ends_with("(exit status 1)"), "{text}");
}

#[tokio::test]
async fn in_bubblewrap_a_cancelled_command_is_killed_with_all_that_left_its_group() {
    let fixture = Fixture::new();
    let Some(sandbox) = bubblewrap(&fixture).await else { return };
    let stop = CancellationToken::new();
    let tools = WorkspaceTools::new(fixture.workspace.clone()).sandbox(Some(sandbox)).stopped_by(stop.clone());
    let (ready, ended) = (Pipe::new(&fixture, "ready"), Pipe::new(&fixture, "ended"));
    let command = "exec 4>ended; echo > ready; setsid sleep 1000 & setsid sleep 1000 & wait";
    let call = Agent::new(tools).start(command, &ManualClock::new());
    let end = tokio::spawn(async move { ended.closed().await });
    ready.closed().await;
    stop.cancel();
    assert!(matches!(call.await.unwrap(), ToolOutcome::Unknown(_)));
    end.await.unwrap();
}

//! Missions as an operator runs them: several processes on one store, signals, and a terminal.

use std::{
    io::{BufRead, BufReader, Lines, Read},
    path::Path,
    process::{Child, ChildStdout, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use rustix::process::{Pid, Signal, kill_process};
use segue::{
    Assistant, CallContext, ChatRequest, ChatStream, Llm, LlmError, ModelProfile,
    clock::Clock,
    ids::RunId,
    missions::{RunEnd, RunEngine, StartRun},
    store::{
        StoreError,
        runs::{
            ForwardingRunStore, MemoryRunStore, RunBatch, RunFilter, RunStatus, RunStore, RunStoreError, UnitBatch,
        },
    },
    testing::ManualClock,
};
use segue_engine::mission::event::{AssignmentOutcome, RunEvent, RunEventKind};
use serde_json::Value as Json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{HEAD, calls, segue, write_project};
use crate::support::{
    program::{ProgramOutput, command, run_in},
    project_files::CONFIG,
};

const STORE: [&str; 2] = ["--store", "sqlite:runs.db"];

/// A project whose model never answers the objective `Wait.`; a run of it ends only by what the test does.
fn write_waiting_project(folder: &Path) {
    write_project(folder, "", "", "    wait: {objective: Wait.}\n");
    let script = "rules:\n  - when: {purpose: commander, user: 'Wait'}\n    fail: silence\n";
    std::fs::write(folder.join("script.yml"), script).unwrap();
    let endpoints = "model_groups:\n  - id: main\n    models: [{provider: scripted, script: script.yml, timeout: 3600, first_token_timeout: 3600, idle_timeout: 3600}]\n";
    std::fs::write(folder.join("endpoints.yml"), endpoints).unwrap();
}

/// The program while it works on a run. It is killed when this value is dropped.
struct Driver {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Driver {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut command = command();
        command.current_dir(folder).arg("mission").args(arguments).args(STORE);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Reads events until one of this name.
    fn read_until(&mut self, name: &str) -> Json {
        loop {
            let line = self.lines.next().unwrap_or_else(|| panic!("no event {name}")).unwrap();
            let event: Json = serde_json::from_str(&line).unwrap();
            if event["event"] == name {
                return event;
            }
        }
    }

    /// Reads lines of standard error until one with this text.
    fn read_message(&mut self, text: &str) -> String {
        let mut lines = BufReader::new(self.child.stderr.take().unwrap()).lines();
        lines.by_ref().map(Result::unwrap).find(|line| line.contains(text)).unwrap_or_else(|| panic!("no {text}"))
    }

    fn send(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// The exit code, and the rest of the output.
    fn end(mut self) -> (Option<i32>, Vec<Json>) {
        let rest = self.lines.by_ref().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn with_store(folder: &Path, arguments: &[&str]) -> ProgramOutput {
    segue(folder, &[arguments, &STORE].concat(), &[])
}

fn status_of(folder: &Path, run: &str) -> String {
    let shown = with_store(folder, &["show", run]);
    assert_eq!(shown.code, 0, "{}", shown.err);
    serde_json::from_str::<Json>(&shown.out).unwrap()["status"].as_str().unwrap().to_owned()
}

#[test]
fn another_process_cancels_a_run_that_waits_for_its_model() {
    let folder = tempfile::tempdir().unwrap();
    write_waiting_project(folder.path());
    let mut driver = Driver::start(folder.path(), &["run", "m", "--input", "topic=x"]);
    let run = driver.read_until("mission_started")["run"].as_str().unwrap().to_owned();
    driver.read_until("task_started");
    assert_eq!(status_of(folder.path(), &run), "running");
    let cancelled = with_store(folder.path(), &["cancel", &run]);
    assert_eq!(cancelled.code, 0, "{}", cancelled.err);
    assert!(cancelled.err.contains("is cancelled"), "{}", cancelled.err);
    let (code, events) = driver.end();
    assert_eq!(code, Some(3));
    assert_eq!(events.last().unwrap()["event"], "mission_stopped");
    assert_eq!(status_of(folder.path(), &run), "cancelled");
    let again = with_store(folder.path(), &["cancel", &run]);
    assert!(again.err.contains("has ended already: cancelled"), "{}", again.err);
}

#[test]
fn the_first_interrupt_stops_a_run_so_that_it_can_be_resumed() {
    let folder = tempfile::tempdir().unwrap();
    write_waiting_project(folder.path());
    for signal in [Signal::INT, Signal::TERM] {
        let mut driver = Driver::start(folder.path(), &["run", "m", "--input", "topic=x"]);
        let run = driver.read_until("mission_started")["run"].as_str().unwrap().to_owned();
        driver.read_until("task_started");
        driver.send(signal);
        let (code, events) = driver.end();
        assert_eq!(code, Some(3));
        assert_eq!(events.last().unwrap()["event"], "mission_stopped");
        assert_eq!(status_of(folder.path(), &run), "stopped");
        let mut resumed = Driver::start(folder.path(), &["resume", &run]);
        resumed.read_until("mission_resumed");
        resumed.send(signal);
        let (code, _) = resumed.end();
        assert_eq!(code, Some(3));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_interrupt_ends_the_process_although_a_write_runs() {
    let called = Arc::new(Notify::new());
    let calls = called.clone();
    // A stop waits for the end of a write, and this one never ends.
    let address = super::tool_server(Arc::new(move || {
        calls.notify_one();
        Box::pin(std::future::pending())
    }))
    .await;
    let folder = tempfile::tempdir().unwrap();
    let servers = format!("mcp_servers: [{{name: shop, type: http, url: '{address}'}}]\n");
    write_project(folder.path(), "shop", &servers, "    buy: {objective: Order a cup.}\n");
    let mut driver = Driver::start(folder.path(), &["run", "m", "--input", "topic=x"]);
    let run = driver.read_until("mission_started")["run"].as_str().unwrap().to_owned();
    called.notified().await;
    driver.send(Signal::INT);
    driver.read_message("press Ctrl-C again");
    driver.send(Signal::INT);
    assert_eq!(driver.end().0, Some(3));
    assert_eq!(status_of(folder.path(), &run), "running", "nobody has stopped it");
}

#[test]
fn a_second_process_follows_a_run_and_its_interrupt_leaves_the_run_alone() {
    let folder = tempfile::tempdir().unwrap();
    write_waiting_project(folder.path());
    let mut driver = Driver::start(folder.path(), &["run", "m", "--input", "topic=x"]);
    let run = driver.read_until("mission_started")["run"].as_str().unwrap().to_owned();
    driver.read_until("task_started");
    let mut second = Driver::start(folder.path(), &["resume", &run]);
    let message = second.read_message("works on run");
    assert!(message.contains(&format!("process {}", driver.child.id())), "{message}");
    second.send(Signal::INT);
    assert_eq!(second.end().0, Some(3));
    assert_eq!(status_of(folder.path(), &run), "running");
    // One that stays sees the end.
    let mut third = Driver::start(folder.path(), &["resume", &run]);
    third.read_message("works on run");
    driver.send(Signal::INT);
    assert_eq!(driver.end().0, Some(3));
    let (code, events) = third.end();
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!((code, names.last()), (Some(3), Some(&"mission_stopped")));
    assert!(!names.contains(&"task_started"), "what happened before is not printed again: {names:?}");
}

#[test]
fn a_run_whose_process_was_killed_is_shown_as_interrupted_and_resumed_at_once() {
    let folder = tempfile::tempdir().unwrap();
    write_project(folder.path(), "", "", super::TWO_TASKS);
    let run = ["run", "m", "--store", "sqlite:runs.db", "--input", "topic=x"];
    let crashed = segue(folder.path(), &run, &[("SEGUE_FAILPOINT", "run_claimed@2")]);
    let id = serde_json::from_str::<Json>(crashed.lines()[0]).unwrap()["run"].as_str().unwrap().to_owned();
    for arguments in [&["list"][..], &["show", &id]] {
        let shown = with_store(folder.path(), arguments);
        assert!(shown.out.contains("\"interrupted\":true"), "{}", shown.out);
    }
    let resumed = with_store(folder.path(), &["resume", &id]);
    assert_eq!(resumed.code, 0, "{}\n{}", resumed.out, resumed.err);
    assert!(!resumed.err.contains("works on run"), "{}", resumed.err);
    let counts = super::counts(&resumed);
    assert_eq!(counts[&("write".into(), "task_completed".into())], 1, "{counts:?}");
    assert!(!counts.contains_key(&("gather".into(), "task_completed".into())), "it was completed before: {counts:?}");
    let log = std::fs::metadata(folder.path().join("runs.db-wal"));
    assert!(log.is_err(), "the log is merged into the store at a clean end");
}

#[test]
fn a_run_that_is_cancelled_is_never_resumed_whatever_it_was_before() {
    let folder = tempfile::tempdir().unwrap();
    write_waiting_project(folder.path());
    let arguments = ["run", "m", "--store", "sqlite:runs.db", "--input", "topic=x"];
    segue(folder.path(), &arguments, &[("SEGUE_FAILPOINT", "run_claimed@1")]);
    let listed = with_store(folder.path(), &["list"]);
    let killed = serde_json::from_str::<Json>(listed.lines()[0]).unwrap()["id"].as_str().unwrap().to_owned();
    let mut driver = Driver::start(folder.path(), &["run", "m", "--input", "topic=x"]);
    let stopped = driver.read_until("mission_started")["run"].as_str().unwrap().to_owned();
    driver.read_until("task_started");
    driver.send(Signal::INT);
    assert_eq!(driver.end().0, Some(3));
    for id in [killed, stopped] {
        let cancelled = with_store(folder.path(), &["cancel", &id]);
        assert!(cancelled.err.contains("is cancelled"), "{}", cancelled.err);
        assert_eq!(status_of(folder.path(), &id), "cancelled");
        let resumed = with_store(folder.path(), &["resume", &id]);
        assert_eq!(resumed.code, 2, "{}", resumed.err);
        assert!(resumed.err.contains("S0206"), "{}", resumed.err);
        assert_eq!(status_of(folder.path(), &id), "cancelled");
    }
}

#[test]
fn a_run_that_is_started_again_with_its_key_is_named_and_needs_the_same_inputs() {
    let folder = tempfile::tempdir().unwrap();
    write_project(folder.path(), "", "", super::TWO_TASKS);
    let start = |topic: &str| with_store(folder.path(), &["run", "m", "--idempotency-key", "k", "--input", topic]);
    assert_eq!(start("topic=x").code, 0);
    let again = start("topic=x");
    assert_eq!(again.code, 0, "{}", again.err);
    assert!(again.err.contains("is already completed"), "{}", again.err);
    let other = start("topic=y");
    assert_eq!(other.code, 2, "{}", other.err);
    assert!(other.err.contains("with other inputs"), "{}", other.err);
}

/// A store of runs that another process locks from the first answer of a model on.
struct LockedStore {
    inner: MemoryRunStore,
    clock: Arc<ManualClock>,
    /// Until when; nothing before the lock.
    until: Mutex<Option<Duration>>,
}

impl LockedStore {
    fn check(&self) -> Result<(), RunStoreError> {
        match *self.until.lock().unwrap() {
            Some(until) if self.clock.elapsed() < until => {
                Err(StoreError::Unavailable("database is locked".into()).into())
            }
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl ForwardingRunStore for LockedStore {
    fn inner(&self) -> &dyn RunStore {
        &self.inner
    }
    async fn append(&self, batch: UnitBatch) -> Result<u64, RunStoreError> {
        self.check()?;
        self.inner().append(batch).await
    }
    async fn append_run(&self, batch: RunBatch) -> Result<u64, RunStoreError> {
        self.check()?;
        self.inner().append_run(batch).await
    }
}

/// A model that completes each task, and locks the store before its first answer.
struct LockingModel {
    profile: ModelProfile,
    store: Arc<LockedStore>,
    lock: Duration,
    calls: AtomicUsize,
}

#[async_trait]
impl Llm for LockingModel {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }
    async fn chat(&self, _: ChatRequest, _: &CallContext) -> Result<ChatStream, LlmError> {
        if self.calls.fetch_add(1, Ordering::SeqCst) == 0 {
            *self.store.until.lock().unwrap() = Some(self.store.clock.elapsed() + self.lock);
        }
        Ok(ChatStream::from_response(calls(&[("task_complete", serde_json::json!({}))])))
    }
}

#[tokio::test]
async fn a_store_that_is_locked_for_a_while_neither_ends_a_run_nor_costs_an_answer() {
    let mission = format!("{HEAD}  tasks: {{paint: {{objective: Paint.}}}}\n");
    for (lock, is_short) in [(Duration::from_secs(14), true), (Duration::from_secs(7 * 24 * 3600), false)] {
        let clock = Arc::new(ManualClock::new());
        let store =
            Arc::new(LockedStore { inner: MemoryRunStore::new(), clock: clock.clone(), until: Mutex::default() });
        let profile = ModelProfile::for_model("test", "");
        let model = Arc::new(LockingModel { profile, store: store.clone(), lock, calls: AtomicUsize::new(0) });
        let files = [CONFIG, ("domain.yml", ""), ("missions/m.yml", &*mission)];
        let builder = Assistant::builder_from_texts(files).unwrap_or_else(|error| panic!("{error:?}"));
        let engine = builder.model(model.clone()).clock(clock.clone()).build_missions(store).unwrap();
        let run = engine.start(StartRun::new("m")).await.unwrap();
        let (stop, mut ignore) = (CancellationToken::new(), |_: &RunEvent| {});
        let drive = engine.drive(&run, &stop, &mut ignore);
        tokio::pin!(drive);
        let end = loop {
            tokio::select! {
                biased;
                end = &mut drive => break end,
                () = tokio::task::yield_now() => clock.advance(Duration::from_millis(100)),
            }
        };
        if is_short {
            assert_eq!(end.unwrap(), RunEnd::Completed);
            assert_eq!(model.calls.load(Ordering::SeqCst), 1);
        } else {
            assert_eq!(end.unwrap_err().code(), "S0103");
            assert_eq!(engine.control().holder(&run).await.unwrap(), None, "another process can go on at once");
        }
    }
}

#[tokio::test]
async fn an_answered_run_is_running_while_it_is_worked_on_and_its_questions_have_numbers() {
    let mission = format!("{HEAD}  tasks: {{a: {{objective: A.}}, b: {{objective: B.}}}}\n");
    let store: Arc<dyn RunStore> = Arc::new(MemoryRunStore::new());
    let (seen, reader) = (Arc::new(Mutex::new(Vec::new())), store.clone());
    let statuses = seen.clone();
    let (builder, _) = super::builder_of(&mission, move |request| {
        let runs = futures::FutureExt::now_or_never(reader.runs(RunFilter::default(), 1)).unwrap().unwrap();
        statuses.lock().unwrap().push(runs[0].status);
        match super::last(request).contains("yes") {
            true => super::done("asked"),
            false => calls(&[("ask", serde_json::json!({"question": "Which?", "short_summary": "q"}))]),
        }
    });
    let engine = builder.build_missions(store).unwrap();
    let run = engine.start(StartRun::new("m")).await.unwrap();
    let stop = CancellationToken::new();
    assert_eq!(engine.drive(&run, &stop, &mut |_| {}).await.unwrap(), RunEnd::Waiting);
    let control = engine.control();
    let questions = control.questions(Some(run.clone())).await.unwrap();
    let second = questions[1].key.id.as_str();
    control.answer(&run, "1", "yes", "e1", None).await.unwrap();
    // The number of a question does not change when another one is answered.
    for wrong in ["0", "3", "", "tool.0", "none"] {
        assert!(control.answer(&run, wrong, "yes", "e2", None).await.is_err(), "{wrong}");
    }
    let within_the_run = second.trim_start_matches(run.as_str());
    for named in [within_the_run, "2"] {
        control.answer(&run, named, "yes", "e2", None).await.unwrap_or_else(|error| {
            assert!(error.to_string().contains("answered before"), "{error}");
            "yes".into()
        });
    }
    seen.lock().unwrap().clear();
    assert_eq!(engine.drive(&run, &stop, &mut |_| {}).await.unwrap(), RunEnd::Completed);
    let seen = seen.lock().unwrap();
    assert!(seen.last() == Some(&RunStatus::Running), "{seen:?}");
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_fails_a_run_after_a_minute() {
    let mission = format!("{HEAD}  tasks: {{paint: {{objective: Paint.}}}}\n");
    let clock = Arc::new(ManualClock::new());
    let files = [CONFIG, ("domain.yml", ""), ("missions/m.yml", &*mission)];
    let builder = Assistant::builder_from_texts(files).unwrap_or_else(|error| panic!("{error:?}"));
    let model = UnreachableModel(ModelProfile::for_model("test", ""));
    let builder = builder.model(Arc::new(model)).clock(clock.clone());
    let engine = builder.build_missions(Arc::new(MemoryRunStore::new())).unwrap();
    let run = engine.start(StartRun::new("m")).await.unwrap();
    let (stop, mut ignore) = (CancellationToken::new(), |_: &RunEvent| {});
    let drive = engine.drive(&run, &stop, &mut ignore);
    tokio::pin!(drive);
    let end = loop {
        tokio::select! {
            biased;
            end = &mut drive => break end,
            // Work on other threads has its time before the clock moves, also on a busy machine.
            _ = tokio::task::spawn_blocking(|| ()) => clock.advance(Duration::from_millis(100)),
        }
    };
    assert_eq!(end.unwrap(), RunEnd::Failed);
    assert!(clock.elapsed() < Duration::from_secs(90), "{:?}", clock.elapsed());
}

/// A model whose server cannot be reached. In turn, the router says so, or that it does not call the server for now.
struct UnreachableModel(ModelProfile);

#[async_trait]
impl Llm for UnreachableModel {
    fn profile(&self) -> &ModelProfile {
        &self.0
    }
    async fn chat(&self, _: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
        let after = Some(Duration::from_secs(8));
        let kind = match cx.clock.elapsed().as_secs() % 2 {
            0 => segue::llm::LlmErrorKind::Unreachable,
            _ => segue::llm::LlmErrorKind::Overloaded { after },
        };
        Err(kind.into())
    }
}

/// A model that answers a request for the first time when it is cancelled, and later at once.
struct HangingModel {
    profile: ModelProfile,
    asked: Notify,
    calls: AtomicUsize,
}

#[async_trait]
impl Llm for HangingModel {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }
    async fn chat(&self, _: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
        if self.calls.fetch_add(1, Ordering::SeqCst) == 0 {
            self.asked.notify_one();
            cx.cancel.cancelled().await;
            return Err(segue::llm::LlmErrorKind::Cancelled.into());
        }
        Ok(ChatStream::from_response(calls(&[("task_complete", serde_json::json!({}))])))
    }
}

/// A run in memory that works on its only task, whose model hangs.
async fn hanging_run(clock: Arc<ManualClock>) -> (RunEngine, Arc<dyn RunStore>, RunId, Arc<HangingModel>) {
    let mission = format!("{HEAD}  tasks: {{paint: {{objective: Paint.}}}}\n");
    let files = [CONFIG, ("domain.yml", ""), ("missions/m.yml", &*mission)];
    let profile = ModelProfile::for_model("test", "");
    let model = Arc::new(HangingModel { profile, asked: Notify::new(), calls: AtomicUsize::new(0) });
    let builder = Assistant::builder_from_texts(files).unwrap_or_else(|error| panic!("{error:?}"));
    let store: Arc<dyn RunStore> = Arc::new(MemoryRunStore::new());
    let engine = builder.model(model.clone()).clock(clock).build_missions(store.clone()).unwrap();
    let run = engine.start(StartRun::new("m")).await.unwrap();
    (engine, store, run, model)
}

#[tokio::test]
async fn a_run_that_is_cancelled_elsewhere_ends_within_two_seconds() {
    let clock = Arc::new(ManualClock::new());
    let (engine, store, run, model) = hanging_run(clock.clone()).await;
    let stop = CancellationToken::new();
    let mut ignore = |_: &RunEvent| {};
    let drive = engine.drive(&run, &stop, &mut ignore);
    tokio::pin!(drive);
    tokio::select! {
        end = &mut drive => panic!("{end:?}"),
        () = model.asked.notified() => {}
    }
    store.signal(&run, segue::store::runs::Signal::Cancel, clock.now()).await.unwrap();
    let began = clock.elapsed();
    let end = loop {
        tokio::select! {
            biased;
            end = &mut drive => break end,
            () = tokio::task::yield_now() => clock.advance(Duration::from_millis(1)),
        }
    };
    assert_eq!(end.unwrap(), RunEnd::Cancelled);
    assert!(clock.elapsed() - began <= Duration::from_secs(2), "{:?}", clock.elapsed() - began);
}

#[tokio::test]
async fn a_run_that_was_to_be_stopped_when_its_process_ended_can_be_resumed() {
    let clock = Arc::new(ManualClock::new());
    let (engine, store, run, model) = hanging_run(clock.clone()).await;
    {
        let stop = CancellationToken::new();
        let mut ignore = |_: &RunEvent| {};
        tokio::select! {
            end = engine.drive(&run, &stop, &mut ignore) => panic!("{end:?}"),
            () = model.asked.notified() => {}
        }
    }
    // The driver has ended like a killed process: its unit is held until the lease is over.
    store.signal(&run, segue::store::runs::Signal::Stop, clock.now()).await.unwrap();
    assert!(engine.control().holder(&run).await.unwrap().is_some());
    assert!(engine.resume(&run).await.is_err());
    clock.advance(Duration::from_secs(120));
    engine.resume(&run).await.unwrap();
    let end = engine.drive(&run, &CancellationToken::new(), &mut |_| {}).await.unwrap();
    assert_eq!(end, RunEnd::Completed);
}

/// A model that fails the task `Judge.` when the agent of the task `Paint.` works, and does not answer the agent.
struct FailingModel {
    profile: ModelProfile,
    agent_works: Notify,
}

#[async_trait]
impl Llm for FailingModel {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }
    async fn chat(&self, request: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
        if request.purpose.as_str() == "agent" {
            self.agent_works.notify_one();
            cx.cancel.cancelled().await;
            return Err(segue::llm::LlmErrorKind::Cancelled.into());
        }
        let call = match request.messages[1].text() {
            "Paint." => ("call_agent", serde_json::json!({"name": "helper", "task": "paint it"})),
            _ => {
                self.agent_works.notified().await;
                ("task_complete", serde_json::json!({"succeed": false, "reason": "no"}))
            }
        };
        Ok(ChatStream::from_response(calls(&[call])))
    }
}

#[tokio::test]
async fn an_agent_that_works_when_another_task_fails_has_an_end_in_the_events() {
    let mission = format!("{HEAD}  tasks:\n    paint: {{objective: Paint.}}\n    judge: {{objective: Judge.}}\n");
    let files = [CONFIG, ("domain.yml", ""), ("missions/m.yml", &*mission)];
    let model = FailingModel { profile: ModelProfile::for_model("test", ""), agent_works: Notify::new() };
    let builder = Assistant::builder_from_texts(files).unwrap_or_else(|error| panic!("{error:?}"));
    let engine = builder.model(Arc::new(model)).build_missions(Arc::new(MemoryRunStore::new())).unwrap();
    let run = engine.start(StartRun::new("m")).await.unwrap();
    let mut events = Vec::new();
    let end = engine.drive(&run, &CancellationToken::new(), &mut |event| events.push(event.clone())).await.unwrap();
    assert_eq!(end, RunEnd::Failed);
    super::assert_pairs(&events);
    let ended = events.iter().find(|event| matches!(event.event.kind, RunEventKind::AgentCompleted { .. }));
    let kind = &ended.expect("the agent has an end").event.kind;
    assert!(matches!(kind, RunEventKind::AgentCompleted { outcome: AssignmentOutcome::Cancelled, .. }), "{kind:?}");
}

// ---- a terminal ----

/// What a terminal of this width shows, one line each. Panics if a line is longer than the width.
fn screen(output: &str, width: usize) -> Vec<String> {
    let (mut rows, mut row) = (vec![String::new()], 0_usize);
    let mut chars = output.chars();
    while let Some(c) = chars.next() {
        match c {
            '\r' => {}
            '\n' => {
                row += 1;
                rows.resize(rows.len().max(row + 1), String::new());
            }
            '\u{1b}' => {
                assert_eq!(chars.next(), Some('['));
                let mut number = String::new();
                let command = loop {
                    match chars.next().unwrap() {
                        digit if digit.is_ascii_digit() => number.push(digit),
                        command => break command,
                    }
                };
                match command {
                    'A' => row = row.checked_sub(number.parse().unwrap()).expect("it stays on the screen"),
                    'J' => {
                        rows.truncate(row);
                        rows.push(String::new());
                    }
                    'm' => {}
                    other => panic!("unknown sequence {other}"),
                }
            }
            c => rows[row].push(c),
        }
    }
    assert!(rows.iter().all(|line| line.chars().count() <= width), "{rows:?}");
    while rows.last().is_some_and(String::is_empty) {
        rows.pop();
    }
    rows
}

/// Runs the program with standard output in a terminal of this size. Returns its exit code and what it wrote.
fn in_terminal(
    folder: &Path,
    arguments: &[&str],
    (columns, rows): (u16, u16),
    environment: &[(&str, &str)],
) -> (Option<i32>, String) {
    use rustix::{fs, pty, termios};
    let master = pty::openpt(pty::OpenptFlags::RDWR | pty::OpenptFlags::NOCTTY).unwrap();
    pty::grantpt(&master).unwrap();
    pty::unlockpt(&master).unwrap();
    let size = termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    termios::tcsetwinsize(&master, size).unwrap();
    let name = pty::ptsname(&master, Vec::new()).unwrap();
    let slave = fs::open(name, fs::OFlags::RDWR | fs::OFlags::NOCTTY, fs::Mode::empty()).unwrap();
    let mut command = command();
    command.current_dir(folder).arg("mission").args(arguments).env_remove("NO_COLOR").envs(environment.iter().copied());
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::from(slave)).spawn().unwrap();
    // Its own copy of the terminal is closed with the command; then reading ends with an error when the child has ended.
    drop(command);
    let (mut output, mut terminal) = (Vec::new(), std::fs::File::from(master));
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = terminal.read(&mut buffer) {
        output.extend_from_slice(&buffer[..length]);
    }
    (child.wait().unwrap().code(), String::from_utf8(output).unwrap())
}

#[test]
fn a_terminal_shows_a_tree_that_is_drawn_in_place_and_fits_its_size() {
    let folder = tempfile::tempdir().unwrap();
    write_project(folder.path(), "", "", super::TWO_TASKS);
    let run = ["run", "m", "--store", "memory", "--input", "topic=x"];
    let (code, output) = in_terminal(folder.path(), &run, (80, 24), &[]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("▸") && output.contains("\u{1b}[2A\r"), "the tree changes in place: {output}");
    assert!(output.contains("\u{1b}[32m✓"), "{output}");
    let shown = screen(&output, 80);
    assert!(shown[0].starts_with("m (") && shown[0].ends_with("): 2 of 2 tasks"), "{shown:?}");
    assert_eq!(shown[1..], ["  ✓ gather", "  ✓ write"]);
    let (_, narrow) = in_terminal(folder.path(), &run, (9, 3), &[("NO_COLOR", "1")]);
    assert!(!narrow.contains('m') || !narrow.contains("\u{1b}[3"), "no colours: {narrow}");
    let shown = screen(&narrow, 9);
    assert_eq!(shown.len(), 2, "one line is left for the cursor: {shown:?}");
}

#[test]
fn the_tree_of_a_resumed_run_has_what_was_done_before() {
    let folder = tempfile::tempdir().unwrap();
    write_project(
        folder.path(),
        "",
        "",
        "    gather: {objective: Find.}\n    choose: {objective: Choose., depends_on: [gather]}\n",
    );
    let ran = with_store(folder.path(), &["run", "m", "--input", "topic=x"]);
    assert_eq!(ran.code, 4, "{}", ran.err);
    let run = serde_json::from_str::<Json>(ran.lines()[0]).unwrap()["run"].as_str().unwrap().to_owned();
    assert_eq!(with_store(folder.path(), &["answer", &run, "blue"]).code, 0);
    let (code, output) = in_terminal(folder.path(), &[&["resume", &run], &STORE[..]].concat(), (80, 24), &[]);
    assert_eq!(code, Some(0), "{output}");
    // The first tree that is drawn.
    let first = screen(output.split("\u{1b}[3A").next().unwrap(), 80);
    assert_eq!(first[1], "  ✓ gather", "{output}");
    assert_eq!(screen(&output, 80)[1..3], ["  ✓ gather", "  ✓ choose"]);
}

#[test]
fn runs_are_listed_and_shown_for_people_in_a_terminal_and_as_json_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    write_project(folder.path(), "", "", super::TWO_TASKS);
    let ran = with_store(folder.path(), &["run", "m", "--input", "topic=x"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let id = serde_json::from_str::<Json>(ran.lines()[0]).unwrap()["run"].as_str().unwrap().to_owned();
    let later = [("SEGUE_TEST_CLOCK_AHEAD", "7300")];
    let (code, list) = in_terminal(folder.path(), &[&["list"], &STORE[..]].concat(), (80, 24), &later);
    assert_eq!(code, Some(0), "{list}");
    let lines = screen(&list, 80);
    assert!(lines[0].starts_with("run "), "{lines:?}");
    let words: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!(words[..3], [&id[..8], "completed", "m"], "as much of the id as is unique");
    assert!(lines[1].contains("2 h ago") && lines[1].contains(" 2/2 "), "{lines:?}");
    let (_, shown) = in_terminal(folder.path(), &[&["show", &id], &STORE[..]].concat(), (80, 24), &later);
    let shown = screen(&shown, 80);
    assert_eq!(shown[1..3], ["  ✓ gather", "  ✓ write"]);
    assert!(shown[3].starts_with("completed, took "), "{shown:?}");
    let listed = with_store(folder.path(), &["list"]);
    let row: Json = serde_json::from_str(listed.lines()[0]).unwrap();
    assert_eq!((&row["id"], &row["tasks"]["total"], &row["tasks"]["completed"]), (&id.into(), &2.into(), &2.into()));
}

// ---- what people do with runs ----

#[test]
fn an_answer_with_an_event_id_may_be_sent_again_and_a_long_one_is_read_from_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    write_project(folder.path(), "", "", "    choose: {objective: Choose.}\n");
    let ran = with_store(folder.path(), &["run", "m", "--input", "topic=x"]);
    assert_eq!(ran.code, 4, "{}", ran.err);
    let run = serde_json::from_str::<Json>(ran.lines()[0]).unwrap()["run"].as_str().unwrap().to_owned();
    let answer = ["mission", "answer", &run, "-", "--event-id", "mail-1", "--store", "sqlite:runs.db"];
    let first = run_in(folder.path(), &answer, "a long\nanswer\n");
    assert_eq!(first.code, 0, "{}", first.err);
    let again = run_in(folder.path(), &answer, "a long\nanswer\n");
    assert_eq!((again.code, &again.err), (0, &first.err));
    let other = with_store(folder.path(), &["answer", &run, "red", "--event-id", "mail-2"]);
    assert_eq!(other.code, 2, "{}", other.err);
    let resumed = with_store(folder.path(), &["resume", &run]);
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    assert!(resumed.out.contains("result: a long\\nanswer"), "{}", resumed.out);
    let answered = with_store(folder.path(), &["show", &run, "--events"]).lines().len()
        - ran.lines().len()
        - resumed.lines().len();
    assert_eq!(answered, 1, "each command prints what happened while it worked: {}", resumed.out);
    let followed = with_store(folder.path(), &["show", &run, "--follow"]);
    let (last, all) = (resumed.lines(), followed.lines());
    assert_eq!((followed.code, &all[all.len() - last.len()..]), (0, &last[..]));
}

#[test]
fn a_project_without_runs_says_so() {
    let folder = tempfile::tempdir().unwrap();
    write_project(folder.path(), "", "", super::TWO_TASKS);
    let none = segue(folder.path(), &["list"], &[]);
    assert_eq!((none.code, none.out.as_str()), (0, ""), "{}", none.err);
    assert!(none.err.contains("there are no runs yet; `segue mission run"), "{}", none.err);
    assert!(!folder.path().join(".segue").exists(), "nothing is created");
}

#[test]
fn tasks_that_a_router_did_not_choose_are_counted_apart() {
    let folder = tempfile::tempdir().unwrap();
    let tasks = "    judge: {objective: Judge., router: [{to: good, if: 'inputs.topic == \"x\"'}, {to: bad}]}\n    good: {objective: Praise.}\n    bad: {objective: Scold.}\n";
    write_project(folder.path(), "", "", tasks);
    let ran = with_store(folder.path(), &["run", "m", "--input", "topic=x"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let run = serde_json::from_str::<Json>(ran.lines()[0]).unwrap()["run"].as_str().unwrap().to_owned();
    let counts = serde_json::json!({"completed": 2, "total": 2, "not_chosen": 1});
    let shown: Json = serde_json::from_str(&with_store(folder.path(), &["show", &run]).out).unwrap();
    let listed: Json = serde_json::from_str(with_store(folder.path(), &["list"]).lines()[0]).unwrap();
    assert_eq!((&shown["task_counts"], &listed["tasks"]), (&counts, &counts));
    let (_, shown) = in_terminal(folder.path(), &[&["show", &run], &STORE[..]].concat(), (80, 24), &[]);
    assert!(screen(&shown, 80)[0].ends_with("2 of 2 tasks, 1 not chosen"), "{shown}");
}

#[test]
fn the_beginning_of_an_id_is_enough_if_it_names_one_run() {
    let folder = tempfile::tempdir().unwrap();
    write_project(folder.path(), "", "", "    choose: {objective: Choose.}\n  concurrency: {max_parallel: 50}\n");
    let mut runs: Vec<String> = (0..17)
        .map(|_| {
            let ran = with_store(folder.path(), &["run", "m", "--input", "topic=x"]);
            assert_eq!(ran.code, 4, "{}", ran.err);
            serde_json::from_str::<Json>(ran.lines()[0]).unwrap()["run"].as_str().unwrap().to_owned()
        })
        .collect();
    runs.sort();
    // Of seventeen ids of hexadecimal digits, two begin with the same one.
    let twins = runs.windows(2).find(|pair| pair[0][..1] == pair[1][..1]).unwrap();
    let (one, other) = (&twins[0], &twins[1]);
    let shared = one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let ambiguous = with_store(folder.path(), &["show", &one[..shared]]);
    assert_eq!(ambiguous.code, 2, "{}", ambiguous.err);
    for part in [&**one, other, "[N0107]"] {
        assert!(ambiguous.err.contains(part), "{part}: {}", ambiguous.err);
    }
    let alone = |run: &str| {
        let others = runs.iter().filter(|other| *other != run);
        let shared = others.map(|other| run.chars().zip(other.chars()).take_while(|(a, b)| a == b).count());
        run[..=shared.max().unwrap()].to_owned()
    };
    let short = alone(one);
    let shown = with_store(folder.path(), &["show", &short]);
    assert_eq!(serde_json::from_str::<Json>(&shown.out).unwrap()["run"], **one, "{}", shown.err);
    let listed = with_store(folder.path(), &["list", "--run", &short]);
    assert_eq!(listed.lines().len(), 1, "{}", listed.out);
    assert_eq!(with_store(folder.path(), &["answer", &short, "blue"]).code, 0);
    assert_eq!(with_store(folder.path(), &["resume", &short]).code, 0);
    let cancelled = with_store(folder.path(), &["cancel", &alone(other)]);
    assert!(cancelled.err.contains(&format!("run {other} is cancelled")), "{}", cancelled.err);
    // Last, because the id of the new run may begin with one of these.
    let rerun = with_store(folder.path(), &["rerun", &short]);
    assert_eq!(rerun.code, 4, "{}", rerun.err);
}

#[test]
fn doctor_lists_the_runs_to_look_at_and_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let doctor = |more: &[&str]| {
        let mut command = command();
        command.current_dir(folder.path()).args(["doctor", "list"]).args(STORE).args(more);
        ProgramOutput::from(command.env("SEGUE_TEST_CLOCK_AHEAD", "120").output().unwrap())
    };
    write_project(folder.path(), "", "", "    choose: {objective: Choose.}\n");
    let id =
        |ran: &ProgramOutput| serde_json::from_str::<Json>(ran.lines()[0]).unwrap()["run"].as_str().unwrap().to_owned();
    let waiting = id(&with_store(folder.path(), &["run", "m", "--input", "topic=x"]));
    let crash = ["run", "m", "--store", "sqlite:runs.db", "--input", "topic=x"];
    // The process ends when the unit is claimed and has not asked yet.
    assert_eq!(segue(folder.path(), &crash, &[("SEGUE_FAILPOINT", "run_append_ready@2")]).code, -1);
    let newest: Json = serde_json::from_str(with_store(folder.path(), &["list"]).lines()[0]).unwrap();
    let lost = newest["id"].as_str().unwrap().to_owned();
    let damaged = id(&with_store(folder.path(), &["run", "m", "--input", "topic=x"]));
    let damage = format!(
        "UPDATE run_events SET event = '{{}}' WHERE run = (SELECT number FROM runs WHERE id = '{damaged}') AND seq = 2"
    );
    rusqlite::Connection::open(folder.path().join("runs.db")).unwrap().execute_batch(&damage).unwrap();
    let text = doctor(&[]);
    assert_eq!(text.code, 0, "{}", text.err);
    assert!(text.out.contains("runs of missions: 1 running, 2 waiting\n  expired leases: 1\n"), "{}", text.out);
    for (run, advice) in [
        (&waiting, format!("waits for 1 answer(s); read the questions with `segue mission show {waiting}`")),
        (&lost, format!("has ended or hangs; continue it with `segue mission resume {lost}`")),
        (&damaged, format!("or end the run with `segue mission cancel {damaged}` [S0102]")),
    ] {
        let line =
            text.lines().into_iter().find(|line| line.contains(&**run)).unwrap_or_else(|| panic!("{}", text.out));
        assert!(line.contains(&advice), "{line}");
    }
    let json: Json = serde_json::from_str(&doctor(&["--format", "json"]).out).unwrap();
    assert_eq!(json["runs"]["by_status"]["waiting"], 2);
    assert_eq!(json["runs"]["problems"].as_array().unwrap().len(), 3);
    // A process that is to continue it finds that nobody can, and ends it.
    let resumed = with_store(folder.path(), &["resume", &damaged]);
    assert!(resumed.code == 3 && resumed.err.contains("[S0102]"), "{}", resumed.err);
    let listed = with_store(folder.path(), &["list", "--run", &damaged]);
    assert_eq!(serde_json::from_str::<Json>(&listed.out).unwrap()["status"], "failed");
    let cancelled = with_store(folder.path(), &["cancel", &damaged]);
    assert!(cancelled.err.contains("is cancelled"), "{}", cancelled.err);
}

#[test]
fn exit_codes_and_error_codes_say_how_a_run_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    write_project(folder.path(), "", "", "    wait: {objective: Fail.}\n");
    let script = "rules:\n  - when: {purpose: commander}\n    calls: [{name: task_complete, arguments: {succeed: false, reason: no luck}}]\n";
    std::fs::write(folder.path().join("script.yml"), script).unwrap();
    let failed = with_store(folder.path(), &["run", "m", "--input", "topic=x"]);
    assert_eq!(failed.code, 1, "{}", failed.err);
    assert!(failed.err.contains("no luck [task.reported]"), "{}", failed.err);
    let page = run_in(folder.path(), &["explain", "task.reported"], "");
    assert!(page.out.starts_with("# N0203"), "{}", page.out);
    for (arguments, code, error) in [
        (&["run", "n"][..], 2, "N0101"),
        (&["run", "m"], 2, "N0102"),
        (&["show", "none"], 2, "S0204"),
        (&["cancel", "none"], 2, "S0204"),
        (&["resume", "none"], 2, "S0204"),
        (&["answer", "none", "x"], 2, "S0204"),
    ] {
        let output = with_store(folder.path(), arguments);
        assert_eq!(output.code, code, "{arguments:?}: {}", output.err);
        assert!(output.err.contains(&format!("[{error}]")), "{arguments:?}: {}", output.err);
    }
    // No store: the command cannot run.
    let missing = segue(folder.path(), &["list", "--store", "sqlite:none.db"], &[]);
    assert_eq!(missing.code, 3, "{}", missing.err);
}

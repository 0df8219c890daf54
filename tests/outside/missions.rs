//! The missions. Each driver starts one run after the other, each in a process of its own, on one store of runs. Processes are killed at
//! random times and other ones continue their runs, some of them two at a time. The drivers answer questions, in two processes at once
//! now and then, and resume runs that failed.

use std::{
    collections::HashMap,
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::Value as Json;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::{
    random::{Random, hash_percent},
    server::ProjectCopy,
    violations::Violations,
};

/// The longest time of a process that works on a run without a fault. It is a bound for a machine that is very busy.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(240);
/// How long a run may not go on before it counts as stuck: longer than a lock of its store.
const STUCK: Duration = Duration::from_secs(60);
/// How long a question is open: `timeout_seconds` in the mission, and a little more.
const QUESTION_TIMEOUT: Duration = Duration::from_millis(6_500);
/// How long the store of runs is locked by another program.
pub(crate) const LOCK: Duration = Duration::from_secs(15);
/// How many runs are left with an open question: they count for `max_parallel`.
const MOST_LEFT_WAITING: usize = 20;
/// How often the processes of one run are killed at most, so that it ends.
const KILLS_OF_A_RUN: u64 = 8;
/// How often a run that failed is resumed.
const RESUMES_OF_A_RUN: u64 = 2;

/// A run that a driver has started.
#[derive(Clone, Debug)]
pub(crate) struct StartedRun {
    /// The beginning of all references of the run.
    pub(crate) reference: String,
    /// Whether a driver has left it with an open question.
    pub(crate) is_left_waiting: bool,
}

/// The settings and results that all drivers share.
pub(crate) struct MissionWorkload {
    pub(crate) project: Arc<ProjectCopy>,
    pub(crate) seed: u64,
    /// Whether drivers start no more runs.
    pub(crate) is_stopping: AtomicBool,
    pub(crate) kills: AtomicU64,
    /// The number of processes that were started beside another one for the same run.
    pub(crate) second_processes: AtomicU64,
    pub(crate) resumes: AtomicU64,
    pub(crate) locks: AtomicU64,
    pub(crate) runs: Mutex<Vec<StartedRun>>,
    /// The accepted answers, by the reference of their question.
    pub(crate) answers: Mutex<HashMap<String, String>>,
    pub(crate) violations: Arc<Violations>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessEnd {
    Killed,
    Exited(i32),
    /// It ran longer than [`PROCESS_TIMEOUT`], and was killed.
    TimedOut,
}

/// What a process has printed.
struct ProcessOutput {
    end: ProcessEnd,
    out: Vec<String>,
    err: Vec<String>,
}

impl MissionWorkload {
    pub(crate) fn new(project: Arc<ProjectCopy>, seed: u64, violations: Arc<Violations>) -> Self {
        Self {
            project,
            seed,
            is_stopping: AtomicBool::new(false),
            kills: AtomicU64::new(0),
            second_processes: AtomicU64::new(0),
            resumes: AtomicU64::new(0),
            locks: AtomicU64::new(0),
            runs: Mutex::default(),
            answers: Mutex::default(),
            violations,
        }
    }

    /// Runs `segue mission` with `arguments`, and kills it after `kill_after` unless it has ended.
    async fn process(&self, arguments: &[&str], kill_after: Option<Duration>) -> ProcessOutput {
        let store = format!("sqlite:{}", self.project.runs_database().display());
        let folder = self.project.path("").display().to_string();
        let arguments = [&["mission"], arguments, &["--store", &store]].concat();
        let mut command = self.project.command(&arguments);
        command.current_dir(folder).stdout(Stdio::piped());
        let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn().unwrap();
        let out = tokio::spawn(lines(child.stdout.take().unwrap()));
        let err = tokio::spawn(lines(child.stderr.take().unwrap()));
        let end = match tokio::time::timeout(kill_after.unwrap_or(PROCESS_TIMEOUT), child.wait()).await {
            Ok(status) => ProcessEnd::Exited(status.unwrap().code().unwrap_or(-1)),
            Err(_) => {
                let _ = child.kill().await;
                if kill_after.is_some() {
                    self.kills.fetch_add(1, Ordering::SeqCst);
                    ProcessEnd::Killed
                } else {
                    ProcessEnd::TimedOut
                }
            }
        };
        ProcessOutput { end, out: out.await.unwrap(), err: err.await.unwrap() }
    }

    fn left_waiting(&self) -> usize {
        self.runs.lock().unwrap().iter().filter(|run| run.is_left_waiting).count()
    }

    /// Answers a question with `yes` or `no`, which depends on the reference in it; now and then with both in two processes at once.
    async fn answer(&self, run: &str, id: &str, question: &str, random: &mut Random) {
        let reference = reference_in(question).unwrap_or_default();
        let (text, other) = if hash_percent((&reference, "consent")) < 75 { ("yes", "no") } else { ("no", "yes") };
        let answer =
            |text: &'static str| async move { self.process(&["answer", run, text, "--question", id], None).await };
        let outputs = match random.chance(20) {
            true => <[ProcessOutput; 2]>::from(tokio::join!(answer(text), answer(other))).into(),
            false => vec![answer(text).await],
        };
        let accepted = outputs.iter().filter(|output| output.end == ProcessEnd::Exited(0)).collect::<Vec<_>>();
        if accepted.len() > 1 {
            self.violations.add(format!("two answers to one question of {run} were accepted: {question}"));
        }
        let accepted = accepted.iter().flat_map(|output| &output.err).find_map(|line| {
            let (_, rest) = line.split_once("answered: ")?;
            Some(rest.split(';').next().unwrap_or_default().to_owned())
        });
        match accepted {
            Some(answer) => drop(self.answers.lock().unwrap().insert(reference, answer)),
            // Another process has answered it, its time was over, or the store was locked: then it is asked again.
            None if outputs.iter().all(|output| output.end == ProcessEnd::Exited(3)) => {}
            None => self.violations.add(format!(
                "no answer to `{question}` of {run} was accepted: {:?}",
                outputs.iter().map(|output| (output.end, &output.err)).collect::<Vec<_>>()
            )),
        }
    }
}

/// The first reference in a text.
fn reference_in(text: &str) -> Option<String> {
    let rest = &text[text.find("ref-")?..];
    Some(rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect())
}

async fn lines(stream: impl AsyncRead + Unpin) -> Vec<String> {
    let mut lines = BufReader::new(stream).lines();
    let mut all = Vec::new();
    while let Ok(Some(line)) = lines.next_line().await {
        all.push(line.strip_prefix("segue: ").unwrap_or(&line).to_owned());
    }
    all
}

/// Runs missions until the workload stops.
pub(crate) async fn run_driver(workload: Arc<MissionWorkload>, number: u64) {
    let mut random = Random::new(workload.seed, 2_000_000 + number);
    for n in 0u64.. {
        if workload.is_stopping.load(Ordering::SeqCst) {
            return;
        }
        let reference = format!("ref-m-{:x}p{number}n{n}", workload.seed & 0xffff);
        run_mission(&workload, &reference, &mut random).await;
    }
}

/// Locks the store of runs now and then until the workload stops.
pub(crate) async fn lock_store(workload: Arc<MissionWorkload>) {
    let mut random = Random::new(workload.seed, 3_000_000);
    while !workload.is_stopping.load(Ordering::SeqCst) {
        tokio::time::sleep(random.duration_ms(15_000, 60_000)).await;
        let project = workload.project.clone();
        let lock = move || project.lock(&project.runs_database(), LOCK);
        if tokio::task::spawn_blocking(lock).await.unwrap() {
            workload.locks.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Starts a run and works on it until it has ended, or waits for an answer that nobody gives.
async fn run_mission(workload: &MissionWorkload, reference: &str, random: &mut Random) {
    workload.runs.lock().unwrap().push(StartedRun { reference: reference.to_owned(), is_left_waiting: false });
    let input = format!("reference={reference}");
    let start = ["run", "payments", "--input", &input, "--idempotency-key", reference];
    let (mut main, mut failed): (Option<String>, Option<String>) = (None, None);
    let (mut kills, mut resumes) = (0, 0);
    // Since when, and how often one after the other, processes could not go on.
    let (mut stuck_since, mut stuck) = (Instant::now(), 0);
    loop {
        let resumed = failed.take();
        let arguments: Vec<&str> = match (&resumed, &main) {
            (Some(run), _) => vec!["resume", run],
            (None, Some(run)) if random.chance(50) => vec!["resume", run],
            _ => start.to_vec(),
        };
        let is_stopping = workload.is_stopping.load(Ordering::SeqCst);
        let may_kill = kills < KILLS_OF_A_RUN && !is_stopping;
        let kill_after = (may_kill && random.chance(50)).then(|| random.duration_ms(30, 2_500));
        let first = workload.process(&arguments, kill_after);
        let output = match &main {
            Some(run) if !is_stopping && random.chance(20) => {
                workload.second_processes.fetch_add(1, Ordering::SeqCst);
                let kill_other = may_kill.then(|| random.duration_ms(30, 2_500));
                let second = ["resume", run];
                tokio::join!(first, workload.process(&second, kill_other)).0
            }
            _ => first.await,
        };
        let started = output.out.iter().filter_map(|line| serde_json::from_str::<Json>(line).ok());
        let mut started = started.filter(|event| event["event"] == "mission_started" && event["mission"] == "payments");
        if let Some(run) = started.find_map(|event| event["run"].as_str().map(str::to_owned)) {
            main = Some(run);
        }
        if output.end != ProcessEnd::Exited(3) {
            (stuck_since, stuck) = (Instant::now(), 0);
        }
        match output.end {
            ProcessEnd::Killed => kills += 1,
            ProcessEnd::Exited(0) => return,
            ProcessEnd::Exited(1) => {
                // The process that saw it fail may have been killed: then the next one says that it is failed already.
                let named = output.err.iter().find_map(|line| {
                    let run = line.strip_prefix("run ")?.split(' ').next()?;
                    (line.contains(" failed: ") || line.contains(" is already failed")).then_some(run)
                });
                let Some(run) = named else {
                    workload.violations.add(format!("{reference}: a process failed: {:?}", output.err));
                    return;
                };
                if resumes == RESUMES_OF_A_RUN {
                    return;
                }
                resumes += 1;
                workload.resumes.fetch_add(1, Ordering::SeqCst);
                failed = Some(run.to_owned());
            }
            ProcessEnd::Exited(4) => {
                let open: Vec<_> = output.err.iter().filter_map(|line| question(line)).collect();
                if open.is_empty() {
                    workload.violations.add(format!("{reference}: it waits without a question: {:?}", output.err));
                    return;
                }
                if random.chance(10) {
                    // Nobody answers in time.
                    tokio::time::sleep(QUESTION_TIMEOUT).await;
                    continue;
                }
                if random.chance(3) && workload.left_waiting() < MOST_LEFT_WAITING {
                    workload.runs.lock().unwrap().iter_mut().filter(|run| run.reference == reference).for_each(|run| {
                        run.is_left_waiting = true;
                    });
                    return;
                }
                let run =
                    output.err.iter().find_map(|line| line.split("segue mission answer ").nth(1)?.split(' ').next());
                for (id, text) in open {
                    workload.answer(run.unwrap_or_default(), id, text, random).await;
                }
            }
            // Another process has resumed it.
            ProcessEnd::Exited(2) if output.err.iter().any(|line| line.contains("[S0206]")) => {}
            // The store was locked: the run goes on.
            ProcessEnd::Exited(3) => {
                tokio::time::sleep(Duration::from_millis(500)).await;
                stuck += 1;
                if stuck > 20 && stuck_since.elapsed() > STUCK {
                    workload.violations.add(format!("{reference}: no process ends the run: {:?}", output.err));
                    return;
                }
            }
            end => {
                let last = output.out.iter().rev().take(3).collect::<Vec<_>>();
                workload
                    .violations
                    .add(format!("{reference}: a process ended with {end:?}: {:?}; {last:?}", output.err));
                return;
            }
        }
    }
}

/// The id and the text of a question in a line of the output: `question 1 (ID): TEXT`.
fn question(line: &str) -> Option<(&str, &str)> {
    let rest = line.strip_prefix("question ")?.split_once('(')?.1;
    rest.split_once("): ")
}

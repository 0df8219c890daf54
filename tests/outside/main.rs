//! Fault injection: a real `segue run` process under load from many HTTP clients, with a model server and a payment server that fail.
//! The process is killed at random times, its clock jumps, its disk fills up, and a second process tries to open its store. After the run
//! the harness checks that no message is lost, no payment is made twice, no conversation is stuck, and every conversation replays to the
//! same events.
//!
//! `cargo test --test outside` takes about three minutes. Environment variables: `SEGUE_OUTSIDE_SECONDS`, `SEGUE_OUTSIDE_KILLS` and
//! `SEGUE_OUTSIDE_MESSAGES` are the minimum of a run, `SEGUE_OUTSIDE_PEOPLE` is the number of clients, and `SEGUE_OUTSIDE_SEED` repeats
//! the random choices of an earlier run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::print_stderr, clippy::print_stdout, clippy::disallowed_methods)]

mod checks;
mod clients;
mod faults;
#[path = "../support/folder.rs"]
mod folder;
mod model_server;
mod payment_server;
mod random;
mod server;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use clients::Workload;
use faults::{FaultCounts, FaultInjector};
use model_server::ModelServer;
use payment_server::PaymentServer;
use random::Random;
use server::ProjectCopy;

/// The settings of a run. It ends when all three minimums are reached.
struct RunConfig {
    seed: u64,
    clients: u64,
    min_duration: Duration,
    min_kills: u64,
    min_messages: u64,
    /// The failpoint of a seeded defect; the run ends as soon as the defect is detected.
    defect: Option<&'static str>,
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seed() -> u64 {
    number("SEGUE_OUTSIDE_SEED")
        .unwrap_or_else(|| u64::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos()))
}

/// Runs the server under faults and checks the guarantees. Returns the violations.
async fn run(config: RunConfig) -> Vec<String> {
    segue::http::install_tls();
    let start = Instant::now();
    let (model, payments) = (Arc::new(ModelServer::default()), Arc::new(PaymentServer::default()));
    let (model_url, payments_url) =
        (model_server::start(model.clone()).await, payment_server::start(payments.clone()).await);
    let environment = config.defect.map(|defect| ("SEGUE_FAILPOINT".to_owned(), defect.to_owned()));
    let project = Arc::new(ProjectCopy::new(&model_url, &payments_url, environment.into_iter().collect()));
    let base = format!("http://{}", project.address);
    let workload = Arc::new(Workload {
        url: format!("{base}/webhooks/rest/webhook"),
        seed: config.seed,
        answer_timeout: Duration::from_secs(if config.defect.is_some() { 45 } else { 100 }),
        is_stopping: AtomicBool::new(false),
        streamed_messages: AtomicU64::new(0),
        repeated_messages: AtomicU64::new(0),
        rejections: AtomicU64::new(0),
        answers: Mutex::default(),
        violations: Mutex::default(),
    });
    let mut injector = FaultInjector {
        project: project.clone(),
        workload: workload.clone(),
        random: Random::new(config.seed, 1),
        counts: FaultCounts::default(),
        clock_offset: Duration::ZERO,
        slowest_start: Duration::ZERO,
        peak_memory: 0,
    };
    let Some(server) = injector.start().await else { return workload.violations.lock().unwrap().clone() };
    let clients: Vec<_> =
        (0..config.clients).map(|number| tokio::spawn(clients::run_client(workload.clone(), number))).collect();
    let liveness = tokio::spawn(faults::poll_liveness(workload.clone(), base));
    let is_detected = || config.defect.is_some() && !workload.violations.lock().unwrap().is_empty();
    let is_over = |counts: &FaultCounts| {
        let kills = counts.get("kills").copied().unwrap_or_default();
        let messages = workload.answers.lock().unwrap().len() as u64;
        let is_complete =
            start.elapsed() >= config.min_duration && kills >= config.min_kills && messages >= config.min_messages;
        is_detected() || is_complete
    };
    let server = injector.run(server, is_over).await;
    workload.is_stopping.store(true, Ordering::SeqCst);
    model.is_fault_free.store(true, Ordering::SeqCst);
    let is_detected = is_detected();
    if is_detected || server.is_none() {
        clients.iter().for_each(tokio::task::JoinHandle::abort);
    }
    for client in clients {
        let _ = client.await;
    }
    let _ = liveness.await;
    if let Some(server) = server.filter(|_| !is_detected) {
        match server.terminate(faults::STOP_TIMEOUT).await {
            Some(status) if status.success() => {}
            other => workload.violation(format!("the last clean stop ended with {other:?}")),
        }
        let (stored, conversations) = checks::check_store(&workload, &project).await;
        let counts = checks::check_payments(&workload, &payments, &stored);
        println!("payments: {counts:?}; {conversations} conversations replayed");
    }
    println!(
        "seed {}: {} messages answered ({} streamed, {} repeated, {} rejections), {:?}, {} model requests, slowest start {:?}, \
         peak memory {} MB, {} s",
        config.seed,
        workload.answers.lock().unwrap().len(),
        workload.streamed_messages.load(Ordering::SeqCst),
        workload.repeated_messages.load(Ordering::SeqCst),
        workload.rejections.load(Ordering::SeqCst),
        injector.counts,
        model.requests.load(Ordering::SeqCst),
        injector.slowest_start,
        injector.peak_memory / 1_000_000,
        start.elapsed().as_secs(),
    );
    workload.violations.lock().unwrap().clone()
}

/// Under kills, clock jumps, full disks, second processes, incomplete requests and failing servers no message is lost, no payment is made
/// twice, and no conversation is stuck.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lost_message_and_no_duplicate_payment_under_kills_and_faults() {
    let config = RunConfig {
        seed: seed(),
        clients: number("SEGUE_OUTSIDE_PEOPLE").unwrap_or(60),
        min_duration: Duration::from_secs(number("SEGUE_OUTSIDE_SECONDS").unwrap_or(150)),
        min_kills: number("SEGUE_OUTSIDE_KILLS").unwrap_or(0),
        min_messages: number("SEGUE_OUTSIDE_MESSAGES").unwrap_or(0),
        defect: None,
    };
    println!("seed {}", config.seed);
    let violations = run(config).await;
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
}

/// The seeded defects: failpoints that disable one protection each.
const DEFECTS: [&str; 11] = [
    "defect:interrupted-first",
    "defect:clock-first",
    "defect:no-owner",
    "defect:recover-first",
    "defect:no-head-timeout",
    "defect:slow-stop",
    "defect:store-failure-is-ok",
    "defect:unknown-is-failed",
    "defect:no-key",
    "defect:any-origin",
    "defect:write-again",
];

/// Each seeded defect causes a violation. Takes up to two minutes per defect, so it runs only with `SEGUE_FULL=1`. With
/// `SEGUE_OUTSIDE_DEFECT` only defects whose names end with that text run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seeded_defects_are_detected() {
    if std::env::var("SEGUE_FULL").is_err() {
        return;
    }
    let selected = std::env::var("SEGUE_OUTSIDE_DEFECT").ok();
    let is_selected = |defect: &str| selected.as_deref().is_none_or(|selected| defect.ends_with(selected));
    let mut undetected = Vec::new();
    for defect in DEFECTS.into_iter().filter(|defect| is_selected(defect)) {
        let config = RunConfig {
            seed: seed(),
            clients: 80,
            min_duration: Duration::from_secs(number("SEGUE_OUTSIDE_SECONDS").unwrap_or(120)),
            min_kills: 0,
            min_messages: 0,
            defect: Some(defect),
        };
        let violations = run(config).await;
        println!("{defect}: {}", violations.first().map_or("NOT DETECTED", String::as_str));
        if violations.is_empty() {
            undetected.push(defect);
        }
    }
    assert!(undetected.is_empty(), "not detected: {undetected:?}");
}

//! Fault injection: a real `segue run` process under load from many HTTP clients, and processes that run missions, with a model server
//! and a payment server that fail. The processes are killed at random times, the clock jumps, the disk fills up, stores are locked, and a
//! second process tries to open the store of conversations. After the run the harness checks that no message is lost, no payment is made
//! twice or concealed, no conversation or mission is stuck, and every conversation replays to the same events.
//!
//! `cargo test --test outside` takes about three minutes. Environment variables: `SEGUE_OUTSIDE_SECONDS`, `SEGUE_OUTSIDE_KILLS`,
//! `SEGUE_OUTSIDE_MESSAGES` and `SEGUE_OUTSIDE_MISSIONS` are the minimum of a run, `SEGUE_OUTSIDE_PEOPLE` is the number of clients,
//! `SEGUE_OUTSIDE_DRIVERS` that of missions at the same time, and `SEGUE_OUTSIDE_SEED` repeats the random choices of an earlier run.
//! `SEGUE_OUTSIDE_BINARY` is another program to test, and `SEGUE_OUTSIDE_FAULT` says that it has a planted fault.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::print_stderr, clippy::print_stdout, clippy::disallowed_methods)]

mod checks;
mod clients;
mod faults;
#[path = "../support/folder.rs"]
mod folder;
mod mission_checks;
mod missions;
mod model_request;
mod model_server;
mod payment_server;
mod random;
mod server;
mod violations;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use clients::Workload;
use faults::{FaultCounts, FaultInjector};
use missions::MissionWorkload;
use model_server::ModelServer;
use payment_server::PaymentServer;
use random::Random;
use server::ProjectCopy;
use violations::Violations;

/// The settings of a run. It ends when all three minimums are reached.
struct RunConfig {
    seed: u64,
    clients: u64,
    min_duration: Duration,
    min_kills: u64,
    min_messages: u64,
    /// The number of missions that run at the same time.
    drivers: u64,
    min_missions: u64,
    /// Whether the program has a planted fault: the run ends as soon as the fault is detected.
    has_fault: bool,
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seed() -> u64 {
    number("SEGUE_OUTSIDE_SEED")
        .unwrap_or_else(|| u64::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos()))
}

/// A limit of time: longer than `usual`, because a busy machine must not look like a violation. With a planted fault it is `usual`.
fn patient(usual: Duration) -> Duration {
    if std::env::var_os("SEGUE_OUTSIDE_FAULT").is_some() { usual } else { usual * 4 }
}

/// Runs the server under faults and checks the guarantees. Returns the violations.
async fn run(config: RunConfig) -> Vec<String> {
    segue::http::install_tls();
    let start = Instant::now();
    let violations = Arc::new(Violations::default());
    let payments = Arc::new(PaymentServer::default());
    let model = Arc::new(ModelServer::new(payments.clone(), violations.clone()));
    let (model_url, payments_url) =
        (model_server::start(model.clone()).await, payment_server::start(payments.clone()).await);
    let project = Arc::new(ProjectCopy::new(&model_url, &payments_url));
    let base = format!("http://{}", project.address);
    let workload = Arc::new(Workload {
        url: format!("{base}/webhooks/rest/webhook"),
        seed: config.seed,
        answer_timeout: patient(Duration::from_secs(45)),
        is_stopping: AtomicBool::new(false),
        streamed_messages: AtomicU64::new(0),
        repeated_messages: AtomicU64::new(0),
        rejections: AtomicU64::new(0),
        answers: Mutex::default(),
        violations: violations.clone(),
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
    let Some(server) = injector.start().await else { return violations.all() };
    let clients: Vec<_> =
        (0..config.clients).map(|number| tokio::spawn(clients::run_client(workload.clone(), number))).collect();
    let missions = Arc::new(MissionWorkload::new(project.clone(), config.seed, violations.clone()));
    let drivers: Vec<_> =
        (0..config.drivers).map(|number| tokio::spawn(missions::run_driver(missions.clone(), number))).collect();
    let locker = tokio::spawn(missions::lock_store(missions.clone()));
    let liveness = tokio::spawn(faults::poll_liveness(workload.clone(), base));
    let is_detected = || config.has_fault && !violations.is_empty();
    let is_over = |counts: &FaultCounts| {
        let kills = counts.get("kills").copied().unwrap_or_default();
        let messages = workload.answers.lock().unwrap().len() as u64;
        let runs = missions.runs.lock().unwrap().len() as u64;
        let is_complete = start.elapsed() >= config.min_duration
            && kills >= config.min_kills
            && messages >= config.min_messages
            && runs >= config.min_missions;
        is_detected() || is_complete
    };
    let server = injector.run(server, is_over).await;
    workload.is_stopping.store(true, Ordering::SeqCst);
    missions.is_stopping.store(true, Ordering::SeqCst);
    model.is_fault_free.store(true, Ordering::SeqCst);
    let is_detected = is_detected();
    if is_detected || server.is_none() {
        clients.iter().chain(&drivers).for_each(tokio::task::JoinHandle::abort);
    }
    locker.abort();
    for client in clients.into_iter().chain(drivers) {
        let _ = client.await;
    }
    let _ = liveness.await;
    if let Some(server) = server.filter(|_| !is_detected) {
        match server.terminate(patient(faults::STOP_TIMEOUT)).await {
            Some(status) if status.success() => {}
            other => workload.violation(format!("the last clean stop ended with {other:?}")),
        }
        let (stored, conversations) = checks::check_store(&workload, &project).await;
        let counts = checks::check_payments(&workload, &payments, &stored);
        println!("payments: {counts:?}; {conversations} conversations replayed");
        let counts = mission_checks::check_missions(&missions, &payments).await;
        println!("missions: {counts:?}");
        let (told, untold) = *model.told.lock().unwrap();
        println!("agents told of earlier payments: {told} times, not told: {untold}");
    }
    println!(
        "seed {}: {} messages answered ({} streamed, {} repeated, {} rejections), {:?}, {} model requests, slowest start {:?}, \
         peak memory {} MB, {} missions ({} kills, {} second processes, {} resumed, {} locks), {} s",
        config.seed,
        workload.answers.lock().unwrap().len(),
        workload.streamed_messages.load(Ordering::SeqCst),
        workload.repeated_messages.load(Ordering::SeqCst),
        workload.rejections.load(Ordering::SeqCst),
        injector.counts,
        model.requests.load(Ordering::SeqCst),
        injector.slowest_start,
        injector.peak_memory / 1_000_000,
        missions.runs.lock().unwrap().len(),
        missions.kills.load(Ordering::SeqCst),
        missions.second_processes.load(Ordering::SeqCst),
        missions.resumes.load(Ordering::SeqCst),
        missions.locks.load(Ordering::SeqCst),
        start.elapsed().as_secs(),
    );
    if !config.has_fault && !violations.is_empty() {
        project.keep();
    }
    violations.all()
}

/// Under kills, clock jumps, full disks, locked stores, second processes, incomplete requests and failing servers no message is lost, no
/// payment is made twice or concealed, and no conversation or mission is stuck. With `SEGUE_OUTSIDE_FAULT` the program has a planted fault,
/// and the test passes if the fault is detected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lost_message_and_no_duplicate_payment_under_kills_and_faults() {
    let fault = std::env::var("SEGUE_OUTSIDE_FAULT").ok();
    let config = RunConfig {
        seed: seed(),
        clients: number("SEGUE_OUTSIDE_PEOPLE").unwrap_or(40),
        min_duration: Duration::from_secs(number("SEGUE_OUTSIDE_SECONDS").unwrap_or(130)),
        min_kills: number("SEGUE_OUTSIDE_KILLS").unwrap_or(0),
        min_messages: number("SEGUE_OUTSIDE_MESSAGES").unwrap_or(0),
        drivers: number("SEGUE_OUTSIDE_DRIVERS").unwrap_or(3),
        min_missions: number("SEGUE_OUTSIDE_MISSIONS").unwrap_or(0),
        has_fault: fault.is_some(),
    };
    println!("seed {}", config.seed);
    let violations = run(config).await;
    match fault {
        None => assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n")),
        Some(fault) => assert!(!violations.is_empty(), "the planted fault {fault} is not detected"),
    }
}

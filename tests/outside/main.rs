//! The program from outside: a real server, real requests, and a model server and a payment server that fail. The server is
//! killed at random, its clock jumps, its disk fills up, a second process tries to take its store. Then it is checked that no
//! message was lost, no payment made twice, no conversation is stuck, and every replay is equal.
//!
//! `cargo test --test outside` runs three minutes. `SEGUE_OUTSIDE_SECONDS`, `SEGUE_OUTSIDE_KILLS` and
//! `SEGUE_OUTSIDE_MESSAGES` say how much is wanted at least, `SEGUE_OUTSIDE_SEED` repeats a run's choices.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::print_stderr, clippy::print_stdout, clippy::disallowed_methods)]

mod check;
mod clients;
#[path = "../support/folder.rs"]
mod folder;
mod model;
mod payments;
mod random;
mod server;
mod trouble;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use clients::Crowd;
use random::Random;
use server::Ground;
use trouble::Trouble;

/// How much of it.
struct Plan {
    seed: u64,
    people: u64,
    /// At least so long.
    time: Duration,
    /// At least so many.
    kills: u64,
    /// At least so many, and no more than a few hundred above.
    messages: u64,
    /// Conversations that are replayed.
    replays: usize,
    /// The defect that is planted, by the name of its fail point.
    defect: Option<&'static str>,
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seed() -> u64 {
    number("SEGUE_OUTSIDE_SEED")
        .unwrap_or_else(|| u64::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos()))
}

/// Runs a plan; what must never happen and did.
async fn run(plan: Plan) -> Vec<String> {
    segue::http::install_tls();
    let began = Instant::now();
    let (model, payments) = (Arc::new(model::Model::default()), Arc::new(payments::Payments::default()));
    let (model_address, payments_address) =
        (model::start(model.clone()).await, payments::start(payments.clone()).await);
    let environment = plan.defect.map(|defect| ("SEGUE_FAILPOINT".to_owned(), defect.to_owned()));
    let ground = Arc::new(Ground::new(&model_address, &payments_address, environment.into_iter().collect()));
    let base = format!("http://{}", ground.address);
    let crowd = Arc::new(Crowd {
        url: format!("{base}/webhooks/rest/webhook"),
        seed: plan.seed,
        patience: Duration::from_secs(if plan.defect.is_some() { 45 } else { 100 }),
        enough: AtomicBool::new(false),
        most: u64::MAX,
        begun: AtomicU64::new(0),
        streamed: AtomicU64::new(0),
        repeated: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        answered: Mutex::default(),
        wrong: Mutex::default(),
    });
    let mut trouble = Trouble {
        ground: ground.clone(),
        crowd: crowd.clone(),
        random: Random::new(plan.seed, 1),
        done: Default::default(),
        ahead: Duration::ZERO,
        slowest: Duration::ZERO,
        memory: 0,
    };
    let Some(server) = trouble.start().await else { return crowd.wrong.lock().unwrap().clone() };
    let people: Vec<_> = (0..plan.people).map(|number| tokio::spawn(clients::person(crowd.clone(), number))).collect();
    let asking = tokio::spawn(trouble::ask_whether_it_lives(crowd.clone(), base));
    let caught = plan.defect.is_some();
    let is_over = |done: &trouble::Done| {
        let kills = done.get("kills").copied().unwrap_or_default();
        let messages = crowd.answered.lock().unwrap().len() as u64;
        let has_wrong = !crowd.wrong.lock().unwrap().is_empty();
        (caught && has_wrong) || (began.elapsed() >= plan.time && kills >= plan.kills && messages >= plan.messages)
    };
    let server = trouble.make(server, is_over).await;
    crowd.enough.store(true, Ordering::SeqCst);
    model.calm.store(true, Ordering::SeqCst);
    let stopped = caught && !crowd.wrong.lock().unwrap().is_empty();
    if stopped || server.is_none() {
        people.iter().for_each(tokio::task::JoinHandle::abort);
    }
    for person in people {
        let _ = person.await;
    }
    let _ = asking.await;
    if let Some(server) = server.filter(|_| !stopped) {
        match server.terminate(trouble::STOP).await {
            Some(status) if status.success() => {}
            other => crowd.wrong(format!("the last stop ended with {other:?}")),
        }
        let (stored, replayed) = check::store(&crowd, &ground, plan.replays).await;
        let counts = check::payments(&crowd, &payments, &stored);
        println!("payments: {counts:?}; {replayed} conversations replayed");
    }
    println!(
        "seed {}: {} messages answered ({} streamed, {} repeated, {} refusals), {:?}, {} model requests, slowest start {:?}, \
         most memory {} MB, {} s",
        plan.seed,
        crowd.answered.lock().unwrap().len(),
        crowd.streamed.load(Ordering::SeqCst),
        crowd.repeated.load(Ordering::SeqCst),
        crowd.refused.load(Ordering::SeqCst),
        trouble.done,
        model.requests.load(Ordering::SeqCst),
        trouble.slowest,
        trouble.memory / 1_000_000,
        began.elapsed().as_secs(),
    );
    crowd.wrong.lock().unwrap().clone()
}

/// Kills, jumps of the clock, full disks, second processes, half requests and failing servers: nothing is lost, nothing is
/// done twice, nobody is stuck.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_and_nothing_is_done_twice() {
    let plan = Plan {
        seed: seed(),
        people: number("SEGUE_OUTSIDE_PEOPLE").unwrap_or(60),
        time: Duration::from_secs(number("SEGUE_OUTSIDE_SECONDS").unwrap_or(150)),
        kills: number("SEGUE_OUTSIDE_KILLS").unwrap_or(0),
        messages: number("SEGUE_OUTSIDE_MESSAGES").unwrap_or(0),
        replays: usize::MAX,
        defect: None,
    };
    println!("seed {}", plan.seed);
    let wrong = run(plan).await;
    assert!(wrong.is_empty(), "{} things went wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The defects that the harness must notice, by the names of their fail points.
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

/// Each planted defect is noticed. Minutes for each of them: only with `SEGUE_FULL=1`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planted_defects_are_noticed() {
    if std::env::var("SEGUE_FULL").is_err() {
        return;
    }
    let wanted = std::env::var("SEGUE_OUTSIDE_DEFECT").ok();
    let mut missed = Vec::new();
    for defect in DEFECTS.into_iter().filter(|defect| wanted.as_deref().is_none_or(|wanted| defect.ends_with(wanted))) {
        let plan = Plan {
            seed: seed(),
            people: 80,
            time: Duration::from_secs(number("SEGUE_OUTSIDE_SECONDS").unwrap_or(120)),
            kills: 0,
            messages: 0,
            replays: usize::MAX,
            defect: Some(defect),
        };
        let wrong = run(plan).await;
        println!("{defect}: {}", wrong.first().map_or("NOT NOTICED", String::as_str));
        if wrong.is_empty() {
            missed.push(defect);
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}

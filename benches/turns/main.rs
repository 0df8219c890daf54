//! The figures of decisions.md 12, in one run: `cargo bench`. `-- --quick` measures less often, `-- --only NAME` one group,
//! `-- --strict` fails when a "must" is missed, `-- --profile text|tool|talk|flow [--memory]` lets a
//! profiler see hardly anything but Segue's turns.
//!
//! CPU time is that of this process alone; the scripted model is another process (`model`). The floor (`floor`) runs beside
//! Segue (`assistant`) in every repetition, so that a busy machine slows both.
// A bench reads clocks, prints, and stops at the first thing that is wrong; none of it is shipped.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod assistant;
mod figures;
mod floor;
mod floor_store;
mod flows;
mod harbour;
mod idle;
mod length;
mod machine;
mod model;
mod side;
mod start;
mod stream;
mod turns;

use std::path::PathBuf;

use figures::Table;
use model::ModelServer;
use tokio::runtime::Runtime;

/// That of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    /// Times that each figure is measured; at least three, for a median.
    pub(crate) repetitions: usize,
    /// Rounds of one measurement.
    pub(crate) rounds: usize,
    /// Conversations whose memory is weighed together.
    pub(crate) idle: usize,
    /// Events of a long conversation.
    pub(crate) events: u64,
}

const THOROUGH: Effort = Effort { repetitions: 9, rounds: 6, idle: 10_000, events: 10_000 };
const QUICK: Effort = Effort { repetitions: 3, rounds: 2, idle: 2_000, events: 2_000 };

/// What every group of figures needs.
pub(crate) struct Bench {
    pub(crate) effort: Effort,
    pub(crate) runtime: Runtime,
    pub(crate) model: ModelServer,
    /// The bench project.
    pub(crate) root: PathBuf,
    /// For stores and generated projects; gone at the end.
    pub(crate) folder: tempfile::TempDir,
}

type Group = (&'static str, fn(&Bench) -> Table);

const GROUPS: &[Group] = &[
    ("turns", turns::turns),
    ("flow", turns::flow),
    ("stream", stream::deltas),
    ("length", length::length),
    ("idle", idle::idle),
    ("load", flows::load),
    ("start", start::start),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    if has(model::ARGUMENT) {
        return model::serve();
    }
    if let Some(at) = arguments.iter().position(|argument| argument == idle::ARGUMENT) {
        return idle::weigh(&arguments[at + 1..]);
    }
    let only = arguments.iter().position(|argument| argument == "--only").and_then(|at| arguments.get(at + 1));
    let bench = Bench::new(if has("--quick") { QUICK } else { THOROUGH });
    if let Some(at) = arguments.iter().position(|argument| argument == "--profile") {
        let keep = if has("--memory") { assistant::Keep::Memory } else { assistant::Keep::Normal };
        return turns::profile(&bench, arguments.get(at + 1).map_or("", String::as_str), keep);
    }
    let mut missed = Vec::new();
    for (name, group) in GROUPS {
        if only.is_none_or(|only| only == name) {
            let table = group(&bench);
            table.print();
            missed.extend(table.missed().map(|figure| figure.name.clone()));
        }
    }
    if !missed.is_empty() {
        println!("\nMissed: {}", missed.join("; "));
        if has("--strict") {
            std::process::exit(1);
        }
    }
}

impl Bench {
    fn new(effort: Effort) -> Self {
        segue::http::install_tls();
        let folder = tempfile::tempdir().unwrap();
        let model = ModelServer::start();
        let root = harbour::write(folder.path(), model.address);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        Self { effort, runtime, model, root, folder }
    }
}

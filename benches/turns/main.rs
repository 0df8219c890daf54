//! What a turn costs, in one table: `cargo bench --bench turns`. `-- --quick` measures less often, `-- --only NAME` the figures whose
//! names hold NAME, `-- --profile text|tool|talk|flow` lets a profiler see hardly anything but Segue's turns.
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
mod harbour;
mod model;
mod side;
mod start;
mod turns;

use std::path::PathBuf;

use figures::Table;
use model::ModelServer;
use tokio::runtime::Runtime;

/// That of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What every figure needs.
pub(crate) struct Bench {
    /// Times that each figure is measured; at least three, for a median.
    pub(crate) repetitions: usize,
    /// Rounds of one measurement.
    pub(crate) rounds: usize,
    pub(crate) runtime: Runtime,
    pub(crate) model: ModelServer,
    /// The bench project.
    pub(crate) root: PathBuf,
    /// For stores; gone at the end.
    pub(crate) folder: tempfile::TempDir,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let after = |name: &str| {
        arguments.iter().position(|argument| argument == name).and_then(|at| arguments.get(at + 1)).map(String::as_str)
    };
    if has(model::ARGUMENT) {
        return model::serve();
    }
    let bench = Bench::new(if has("--quick") { (3, 2) } else { (9, 6) });
    let mut table = Table::new(after("--only"));
    match after("--profile") {
        Some(what) => turns::profile(&bench, what, &mut table),
        None => {
            turns::turns(&bench, &mut table);
            turns::flow(&bench, &mut table);
            turns::first_delta(&bench, &mut table);
            start::cold(&bench, &mut table);
        }
    }
    table.print();
}

impl Bench {
    fn new((repetitions, rounds): (usize, usize)) -> Self {
        segue::http::install_tls();
        let folder = tempfile::tempdir().unwrap();
        let model = ModelServer::start();
        let root = harbour::write(folder.path(), model.address);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        Self { repetitions, rounds, runtime, model, root, folder }
    }
}

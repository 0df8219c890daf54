//! The CPU time of turns, as a table: `cargo bench --bench turns`. `-- --quick` measures fewer repetitions, `-- --only NAME` only the
//! figures whose names contain NAME. `-- --profile text|tool|conversation|flow` runs many turns of Segue for a profiler.
//!
//! The CPU time is that of this process; the model server is another process (`model_server`). Each repetition measures the baseline
//! (`baseline`) and Segue (`assistant`) one after the other, so that a busy machine affects both.
// Not part of the product: a bench reads clocks, prints, and panics on errors.
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
mod baseline;
mod baseline_store;
mod cold_start;
mod model_server;
mod project;
mod result_table;
mod subject;
mod turns;

use std::path::PathBuf;

use model_server::ModelServer;
use result_table::ResultTable;
use tokio::runtime::Runtime;

/// The allocator of the `segue` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The settings and resources of all measurements.
pub(crate) struct Bench {
    /// The number of measured values of each figure; at least three, for a median.
    pub(crate) repetitions: usize,
    /// The number of rounds in one measurement.
    pub(crate) rounds: usize,
    pub(crate) runtime: Runtime,
    pub(crate) model: ModelServer,
    /// The folder of the bench project.
    pub(crate) root: PathBuf,
    /// A temporary folder for stores.
    pub(crate) folder: tempfile::TempDir,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let value_of = |name: &str| {
        arguments.iter().position(|argument| argument == name).and_then(|at| arguments.get(at + 1)).map(String::as_str)
    };
    if has(model_server::ARGUMENT) {
        return model_server::serve();
    }
    let bench = Bench::new(if has("--quick") { (3, 2) } else { (9, 6) });
    let mut table = ResultTable::new(value_of("--only"));
    match value_of("--profile") {
        Some(load) => turns::profile(&bench, load, &mut table),
        None => {
            turns::turns(&bench, &mut table);
            turns::flow(&bench, &mut table);
            turns::first_delta(&bench, &mut table);
            cold_start::measure(&bench, &mut table);
        }
    }
    table.print();
}

impl Bench {
    fn new((repetitions, rounds): (usize, usize)) -> Self {
        segue::http::install_tls();
        let folder = tempfile::tempdir().unwrap();
        let model = ModelServer::start();
        let root = project::write(folder.path(), model.address);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        Self { repetitions, rounds, runtime, model, root, folder }
    }
}

//! The cost of missions, as a table: `cargo bench --bench missions`. Each figure is measured in a process of its own with a model that
//! answers at once; CPU time, peak memory and the size of the database are those of that process. `-- --iterations 10000` sets the
//! length of the long runs, `-- --quick` measures short ones, `-- --only NAME` some of the figures.
//!
//! The cost of one iteration must not depend on how many there are: the bench fails if an iteration of the long run stores more events
//! than one of the short run, and says so if it takes more than twice its CPU time.
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

use std::{
    fmt::Write as _,
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use segue::{
    Assistant, CallContext, ChatRequest, ChatResponse, ChatStream, Llm, LlmError, ModelProfile,
    llm::{ToolArguments, ToolCall},
    missions::{RunEnd, RunEngine, StartRun},
    store::{StoreLocation, open_stores},
};
use serde_json::{Map, Value as Json, json};
use tokio_util::sync::CancellationToken;

/// The allocator of the `segue` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The argument of a process that measures one figure.
const MEASURE: &str = "--measure";
/// Iterations of a short run, with which a long one is compared.
const SHORT: u32 = 100;
/// How many times the CPU time of an iteration in a short run one in a long run may take.
const GROWTH_MAX: f64 = 2.0;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value_of = |name: &str| {
        arguments.iter().position(|argument| argument == name).and_then(|at| arguments.get(at + 1)).map(String::as_str)
    };
    if let Some(figure) = value_of(MEASURE) {
        return measure(&serde_json::from_str(figure).expect("a figure"));
    }
    let default = if arguments.iter().any(|argument| argument == "--quick") { 1_000 } else { 10_000 };
    let long = value_of("--iterations").map_or(default, |number| number.parse().expect("a number"));
    let only = value_of("--only").unwrap_or_default();
    println!(
        "| figure | store | count | CPU µs each | elapsed ms | events each | database bytes each | peak MiB |\n\
         | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    );
    let mut exceeded = Vec::new();
    for shape in [Shape::Chain, Shape::Parallel, Shape::Sequential] {
        for store in ["memory", "sqlite"] {
            if !format!("{} {store}", shape.name()).contains(only) {
                continue;
            }
            let lengths = if shape == Shape::Chain { [10, 100] } else { [SHORT, long] };
            let [short, long] = lengths.map(|count| in_process(shape, store, count));
            if long.events > short.events * 1.1 {
                exceeded.push(format!(
                    "{} {store}: {} events each, {} in a short run",
                    shape.name(),
                    long.events,
                    short.events
                ));
            }
            if shape != Shape::Chain && long.cpu > short.cpu * GROWTH_MAX {
                println!("{} {store}: {:.0} µs each, {:.0} in a short run", shape.name(), long.cpu, short.cpu);
            }
        }
    }
    assert!(exceeded.is_empty(), "the number of events grows with the length of the run: {}", exceeded.join("; "));
}

/// A kind of mission.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Tasks one after the other.
    Chain,
    /// One task with parallel iterations, ten at a time.
    Parallel,
    /// One task whose items are worked on one after the other, each in a fresh session.
    Sequential,
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Self::Chain => "task",
            Self::Parallel => "parallel iteration",
            Self::Sequential => "sequential iteration",
        }
    }
    fn of(name: &str) -> Self {
        [Self::Chain, Self::Parallel, Self::Sequential].into_iter().find(|shape| shape.name() == name).expect("a shape")
    }
    fn mission(self, count: u32) -> String {
        let mut text = "mission:\n  name: m\n  description: bench\n  agents: [helper]\n  commander: {plan: optional, max_turns: 100000}\n  local_agents: {helper: {description: helps}}\n  inputs: {rows: {type: list}}\n  datasets: {rows: {bind_to: rows, schema: {n: {type: integer, required: true}}}}\n  tasks:\n".to_owned();
        match self {
            Self::Chain => {
                for at in 0..count {
                    let after = if at == 0 { String::new() } else { format!(", depends_on: [t{}]", at - 1) };
                    writeln!(text, "    t{at}: {{objective: Work{after}}}").unwrap();
                }
            }
            Self::Parallel => text.push_str(
                "    read:\n      objective: 'Read {{ item.n }}'\n      iterator: {dataset: rows, parallel: true, concurrency_limit: 10}\n      output: {n: {type: integer, required: true}}\n",
            ),
            Self::Sequential => text.push_str(
                "    read:\n      objective: Read\n      iterator: {dataset: rows, session: fresh}\n      output: {n: {type: integer, required: true}}\n",
            ),
        }
        text
    }
}

/// What one process measured, for each task or iteration.
struct Figure {
    cpu: f64,
    events: f64,
}

/// Measures in a process of its own, and prints the row.
fn in_process(shape: Shape, store: &str, count: u32) -> Figure {
    let figure = json!({"shape": shape.name(), "store": store, "count": count}).to_string();
    let output = Command::new(std::env::current_exe().unwrap()).args([MEASURE, &figure]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let measured: Json = serde_json::from_str(&text).unwrap();
    let each = |name: &str| measured[name].as_f64().unwrap() / f64::from(count);
    let figure = Figure { cpu: each("cpu_us"), events: each("events") };
    println!(
        "| {} | {store} | {count} | {:.0} | {:.0} | {:.1} | {:.0} | {:.0} |",
        shape.name(),
        figure.cpu,
        measured["elapsed_ms"].as_f64().unwrap(),
        figure.events,
        each("bytes"),
        measured["peak_kib"].as_f64().unwrap() / 1024.0,
    );
    figure
}

/// A model that ends every task at once.
struct InstantModel(ModelProfile);

#[async_trait]
impl Llm for InstantModel {
    fn profile(&self) -> &ModelProfile {
        &self.0
    }
    async fn chat(&self, request: ChatRequest, _: &CallContext) -> Result<ChatStream, LlmError> {
        let call = |id: &str, name: &str, arguments: Json| ToolCall {
            id: id.into(),
            name: name.into(),
            arguments: ToolArguments::json(arguments),
        };
        let offers = |name: &str| request.tools.iter().any(|tool| &*tool.name == name);
        let output = || call("b", "submit_output", json!({"output": {"n": 1}}));
        let complete = || call("c", "task_complete", json!({"summary": "done"}));
        let is_over = request.messages.iter().rev().take(2).any(|message| message.text().contains("\"exhausted\""));
        let tool_calls = match (offers("dataset_next"), offers("submit_output")) {
            (true, _) if is_over => vec![complete()],
            (true, _) => vec![call("a", "dataset_next", json!({})), output()],
            (false, true) => vec![output(), complete()],
            (false, false) => vec![complete()],
        };
        let answer = ChatResponse { tool_calls, ..ChatResponse::default() };
        Ok(ChatStream::from_response(answer))
    }
}

/// Runs one mission, and prints what it took as JSON.
fn measure(figure: &Json) {
    let (shape, count) = (Shape::of(figure["shape"].as_str().unwrap()), figure["count"].as_u64().unwrap() as u32);
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("runs.db");
    let location = match figure["store"].as_str() {
        Some("sqlite") => StoreLocation::Sqlite { path: database.clone(), synchronous_full: false },
        _ => StoreLocation::Memory,
    };
    let mission = shape.mission(count);
    let files = [
        ("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"),
        ("domain.yml", ""),
        ("missions/m.yml", &*mission),
    ];
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (elapsed, cpu, events) = runtime.block_on(async {
        let builder = Assistant::builder_from_texts(files).unwrap_or_else(|error| panic!("{error:?}"));
        let model = InstantModel(ModelProfile::for_model("bench", ""));
        let runs = open_stores(&location).unwrap().runs;
        let engine = builder.model(Arc::new(model)).build_missions(runs).unwrap();
        run(&engine, count).await
    });
    let bytes = |name: &Path| name.metadata().map_or(0, |metadata| metadata.len());
    let stored = bytes(&database) + bytes(&folder.path().join("runs.db-wal"));
    println!(
        "{}",
        json!({"elapsed_ms": elapsed.as_secs_f64() * 1e3, "cpu_us": cpu.as_secs_f64() * 1e6, "events": events, "bytes": stored, "peak_kib": peak_memory()})
    );
}

async fn run(engine: &RunEngine, count: u32) -> (Duration, Duration, u64) {
    let rows: Vec<Json> = (0..count).map(|n| json!({ "n": n })).collect();
    let inputs = Map::from_iter([("rows".to_owned(), Json::from(rows))]);
    let (began, cpu) = (Instant::now(), cpu_time::ProcessTime::now());
    let run = engine.start(StartRun::new("m").inputs(inputs)).await.unwrap();
    let mut events = 0;
    let end = engine.drive(&run, &CancellationToken::new(), &mut |_| events += 1).await.unwrap();
    let (elapsed, cpu) = (began.elapsed(), cpu.elapsed());
    let failure = engine.status(&run).await.unwrap().state.failure;
    assert_eq!((end, failure), (RunEnd::Completed, None));
    (elapsed, cpu, events)
}

/// The most memory that this process had, in KiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}

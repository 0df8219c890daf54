//! A burst of messages to a real server. Accepted messages must be answered in time and the others rejected at once; the memory of the
//! server is printed. `cargo bench --bench burst`; `-- --messages 20000 --connections 2000 --delay 2 --senders 0 --sqlite`.
//!
//! `segue run` is another process, with a model server that takes `--delay` seconds for each answer. With `--senders 0` each message has a
//! sender of its own; otherwise that many senders share the messages. One more user, who is not among these senders, sends a message
//! each second and repeats a rejected one after its `Retry-After`. The bench fails if an accepted message is answered after more than
//! 30 s, if a rejection has no `Retry-After`, or, with `--senders`, if the other user waits more than 3 s longer than the model takes.
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
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Router, body::Body, http::header::CONTENT_TYPE, response::Response};

/// The options of the command line.
#[derive(Clone, Copy)]
struct Options {
    messages: usize,
    connections: usize,
    /// Seconds that the model takes for an answer.
    delay: f64,
    /// The number of senders; 0 for one sender per message.
    senders: usize,
    sqlite: bool,
}

impl Options {
    fn from_arguments() -> Self {
        let mut options = Self { messages: 20_000, connections: 2_000, delay: 2.0, senders: 0, sqlite: false };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut number = || arguments.next().and_then(|value| value.parse::<f64>().ok()).expect("a number");
            match argument.as_str() {
                "--messages" => options.messages = number() as usize,
                "--connections" => options.connections = number() as usize,
                "--delay" => options.delay = number(),
                "--senders" => options.senders = number() as usize,
                "--sqlite" => options.sqlite = true,
                // Cargo adds this argument.
                "--bench" => {}
                other => panic!("unknown option {other}; see the first lines of benches/burst/main.rs"),
            }
        }
        options
    }
}

/// Starts a model server that answers with the command for the only flow, after `delay`. Returns its base URL.
async fn start_model_server(delay: Duration) -> String {
    const ANSWER: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"start flow greet\"}}]}\n\n\
                          data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let answer = move || async move {
        tokio::time::sleep(delay).await;
        Response::builder().header(CONTENT_TYPE, "text/event-stream").body(Body::from(ANSWER)).unwrap()
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    address
}

/// The `segue run` process. Dropping it kills the process.
struct Server {
    child: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(folder: &Path, model: &str, sqlite: bool) -> Self {
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write(
            "config.yml",
            "recipe: default.v1\nlanguage: en\npipeline: [{name: CompactLLMCommandGenerator, llm: {model_group: main}}]\n\
             policies: [{name: FlowPolicy}]\n",
        );
        std::fs::create_dir_all(folder.join("flows")).unwrap();
        write("domain.yml", "responses: {utter_hello: [{text: Hello!}]}\n");
        write(
            "flows/all.yml",
            "flows: {greet: {description: greets, run_pattern_completed: false, steps: [{action: utter_hello}]}}\n",
        );
        write(
            "endpoints.yml",
            &format!(
                "model_groups: [{{id: main, models: [{{provider: self-hosted, model: m, api_base: '{model}'}}]}}]\n"
            ),
        );
        let store = if sqlite { "sqlite:conversations.db" } else { "memory" };
        let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
        command.current_dir(folder).args(["run", ".", "--port", "0", "--store", store]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let address = lines
            .find_map(|line| Some(line.split_once("listening on ")?.1.split_whitespace().next()?.to_owned()))
            .expect("the server logs its address");
        std::thread::spawn(move || {
            lines.filter(|line| line.contains("WARN") || line.contains("ERROR")).for_each(|line| println!("  {line}"))
        });
        Self { child, address }
    }

    /// The resident memory in MiB; `None` where there is no `/proc`.
    fn memory(&self) -> Option<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let kib = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok())?;
        Some(kib / 1024.0)
    }
}

/// The outcome of one request.
struct Outcome {
    /// The HTTP status; 0 without a response.
    status: u16,
    duration: Duration,
    /// `Retry-After` in seconds.
    retry_after: Option<u64>,
}

/// Sends one message and waits for the response.
async fn send(client: &reqwest::Client, address: &str, sender: &str) -> Outcome {
    let body = format!("{{\"sender\": \"{sender}\", \"message\": \"hello\"}}");
    let start = Instant::now();
    let response = client.post(format!("{address}/webhooks/rest/webhook")).body(body).send().await;
    let Ok(response) = response else { return Outcome { status: 0, duration: start.elapsed(), retry_after: None } };
    let status = response.status().as_u16();
    let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    let text = response.text().await.unwrap_or_default();
    assert!(status != 200 || text.contains("Hello!"), "an accepted message has no reply: {text}");
    Outcome { status, duration: start.elapsed(), retry_after }
}

/// Runs the other user until `is_over`. Returns, for each message, the time until its answer and the number of rejections.
async fn run_other_user(client: reqwest::Client, address: String, is_over: Arc<AtomicBool>) -> Vec<(Duration, usize)> {
    let mut messages = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let start = Instant::now();
        let mut rejections = 0;
        while let Outcome { status: 429 | 503, retry_after, .. } = send(&client, &address, "other").await {
            rejections += 1;
            tokio::time::sleep(Duration::from_secs(retry_after.unwrap_or(1))).await;
        }
        messages.push((start.elapsed(), rejections));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    messages
}

/// A quantile in seconds.
fn quantile(sorted: &[Duration], fraction: f64) -> f64 {
    let index = ((sorted.len() as f64 * fraction) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(index).map_or(f64::NAN, Duration::as_secs_f64)
}

/// Runs the burst and prints the results. Returns whether the server keeps the limits.
async fn run_burst(options: Options) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let model = start_model_server(Duration::from_secs_f64(options.delay)).await;
    let server = Arc::new(Server::start(folder.path(), &model, options.sqlite));
    segue::http::install_tls();
    let client = || reqwest::Client::builder().pool_max_idle_per_host(usize::MAX).no_proxy().build().unwrap();
    // Warm-up: the first turn is slower than the others.
    send(&client(), &server.address, "first").await;
    let before = server.memory();
    let is_over = Arc::new(AtomicBool::new(false));
    let other_user = tokio::spawn(run_other_user(client(), server.address.clone(), is_over.clone()));
    let peak = tokio::spawn({
        let (server, is_over) = (server.clone(), is_over.clone());
        async move {
            let mut peak: Option<f64> = None;
            while !is_over.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(50)).await;
                let now = server.memory();
                peak = if now > peak { now } else { peak };
            }
            peak
        }
    });
    let next = Arc::new(AtomicUsize::new(0));
    let outcomes = Arc::new(Mutex::new(Vec::with_capacity(options.messages)));
    let start = Instant::now();
    let burst_client = client();
    let workers: Vec<_> = (0..options.connections)
        .map(|_| {
            let (client, address) = (burst_client.clone(), server.address.clone());
            let (next, outcomes) = (next.clone(), outcomes.clone());
            tokio::spawn(async move {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= options.messages {
                        return;
                    }
                    let sender = if options.senders == 0 { n } else { n % options.senders };
                    let outcome = send(&client, &address, &format!("u{sender}")).await;
                    outcomes.lock().unwrap().push(outcome);
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    let duration = start.elapsed();
    is_over.store(true, Ordering::Relaxed);
    let (other_user, peak) = (other_user.await.unwrap(), peak.await.unwrap());
    let after = server.memory();
    let mut by_status: BTreeMap<u16, Vec<Duration>> = BTreeMap::new();
    let mut without_retry_after = 0;
    for outcome in outcomes.lock().unwrap().iter() {
        by_status.entry(outcome.status).or_default().push(outcome.duration);
        without_retry_after += usize::from(outcome.status != 200 && outcome.retry_after.is_none());
    }
    println!(
        "{} messages over {} connections, model {} s, {}: {:.1} s",
        options.messages,
        options.connections,
        options.delay,
        if options.senders == 0 { "one sender per message".to_owned() } else { format!("{} senders", options.senders) },
        duration.as_secs_f64()
    );
    println!("| status | messages | p50 s | p99 s | max s |\n| --- | --- | --- | --- | --- |");
    let mut slowest = Duration::ZERO;
    for (status, mut durations) in by_status {
        durations.sort_unstable();
        if status == 200 {
            slowest = durations.last().copied().unwrap_or_default();
        }
        let status = if status == 0 { "no response".to_owned() } else { status.to_string() };
        println!(
            "| {status} | {} | {:.3} | {:.3} | {:.3} |",
            durations.len(),
            quantile(&durations, 0.5),
            quantile(&durations, 0.99),
            quantile(&durations, 1.0)
        );
    }
    let longest_wait = other_user.iter().map(|(wait, _)| *wait).max().unwrap_or_default();
    let rejections: usize = other_user.iter().map(|(_, rejections)| rejections).sum();
    println!(
        "the other user: {} messages, longest wait {:.2} s, {rejections} rejections; rejections without Retry-After: \
         {without_retry_after}",
        other_user.len(),
        longest_wait.as_secs_f64()
    );
    let mib = |memory: Option<f64>| memory.map_or("?".to_owned(), |mib| format!("{mib:.0} MiB"));
    println!("memory of the server: {} before, {} peak, {} after", mib(before), mib(peak), mib(after));
    let other_user_is_answered = options.senders == 0 || longest_wait <= Duration::from_secs_f64(options.delay + 3.0);
    without_retry_after == 0 && slowest <= Duration::from_secs(30) && other_user_is_answered
}

fn main() {
    let options = Options::from_arguments();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if !runtime.block_on(run_burst(options)) {
        println!("the server exceeds the limits");
        std::process::exit(1);
    }
}

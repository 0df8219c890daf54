//! A burst of messages against the real server: what is accepted is answered in time, the rest is refused at once, and memory stays
//! flat. `cargo bench --bench burst`; `-- --messages 20000 --connections 2000 --delay 2 --senders 0 --sqlite`.
//!
//! The program `segue run` is another process, with a model that takes `--delay` seconds for each answer. `--senders 0` gives each
//! message a sender of its own; any other number shares them out among so many senders. Beside the burst one more user, who is not
//! among those senders, writes once a second, and again as soon as a refusal says. It fails when an accepted message is answered later
//! than 30 s, when a refusal comes without `Retry-After`, or, with `--senders`, when the other user waits more than 3 s longer than
//! the model takes.
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

/// What is asked for on the command line.
#[derive(Clone, Copy)]
struct Wanted {
    messages: usize,
    connections: usize,
    delay: f64,
    senders: usize,
    sqlite: bool,
}

impl Wanted {
    fn read() -> Self {
        let mut wanted = Self { messages: 20_000, connections: 2_000, delay: 2.0, senders: 0, sqlite: false };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut number = || arguments.next().and_then(|value| value.parse::<f64>().ok()).expect("a number");
            match argument.as_str() {
                "--messages" => wanted.messages = number() as usize,
                "--connections" => wanted.connections = number() as usize,
                "--delay" => wanted.delay = number(),
                "--senders" => wanted.senders = number() as usize,
                "--sqlite" => wanted.sqlite = true,
                // Cargo adds it.
                "--bench" => {}
                other => panic!("{other} is not known; see the head of benches/burst/main.rs"),
            }
        }
        wanted
    }
}

/// A model that starts the one flow there is, after its delay. Its address.
async fn model(delay: Duration) -> String {
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

/// The server as a process; it ends with this value.
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
        let store = if sqlite { "sqlite:talks.db" } else { "memory" };
        let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
        command.current_dir(folder).args(["run", ".", "--port", "0", "--store", store]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| Some(line.split_once("listening on ")?.1.trim().to_owned())).unwrap();
        std::thread::spawn(move || {
            lines.filter(|line| line.contains("WARN") || line.contains("ERROR")).for_each(|line| println!("  {line}"))
        });
        Self { child, address }
    }

    /// Its resident memory, in MiB; nothing where the system does not tell.
    fn memory(&self) -> Option<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let kib = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok())?;
        Some(kib / 1024.0)
    }
}

/// What became of one message.
struct Told {
    status: u16,
    took: Duration,
    retry: Option<u64>,
}

async fn say(client: &reqwest::Client, address: &str, sender: &str) -> Told {
    let body = format!("{{\"sender\": \"{sender}\", \"message\": \"hello\"}}");
    let begun = Instant::now();
    let answer = client.post(format!("{address}/webhooks/rest/webhook")).body(body).send().await;
    let Ok(answer) = answer else { return Told { status: 0, took: begun.elapsed(), retry: None } };
    let status = answer.status().as_u16();
    let retry = answer.headers().get("retry-after").and_then(|after| after.to_str().ok()?.parse().ok());
    let text = answer.text().await.unwrap_or_default();
    assert!(status != 200 || text.contains("Hello!"), "an accepted message got no answer: {text}");
    Told { status, took: begun.elapsed(), retry }
}

/// The other user: writes once a second, again as soon as a refusal says, and notes how long each message took to its answer, and
/// how often it was refused.
async fn beside(client: reqwest::Client, address: String, over: Arc<AtomicBool>) -> Vec<(Duration, usize)> {
    let mut waits = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let mut refusals = 0;
        while let Told { status: 429 | 503, retry, .. } = say(&client, &address, "quiet").await {
            refusals += 1;
            tokio::time::sleep(Duration::from_secs(retry.unwrap_or(1))).await;
        }
        waits.push((begun.elapsed(), refusals));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    waits
}

fn part(sorted: &[Duration], part: f64) -> f64 {
    let at = ((sorted.len() as f64 * part) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(f64::NAN, Duration::as_secs_f64)
}

async fn burst(wanted: Wanted) -> bool {
    let folder = std::env::temp_dir().join(format!("segue-burst-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let model = model(Duration::from_secs_f64(wanted.delay)).await;
    let server = Arc::new(Server::start(&folder, &model, wanted.sqlite));
    segue::http::install_tls();
    let client = || reqwest::Client::builder().pool_max_idle_per_host(usize::MAX).no_proxy().build().unwrap();
    // The first turn is slower than others; nobody is interested in it here.
    say(&client(), &server.address, "first").await;
    let before = server.memory();
    let over = Arc::new(AtomicBool::new(false));
    let quiet = tokio::spawn(beside(client(), server.address.clone(), over.clone()));
    let peak = tokio::spawn({
        let (server, over) = (server.clone(), over.clone());
        async move {
            let mut peak: Option<f64> = None;
            while !over.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(50)).await;
                let now = server.memory();
                peak = if now > peak { now } else { peak };
            }
            peak
        }
    });
    let (next, told) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::with_capacity(wanted.messages))));
    let begun = Instant::now();
    let crowd = client();
    let workers: Vec<_> = (0..wanted.connections)
        .map(|_| {
            let (client, next, told, address) = (crowd.clone(), next.clone(), told.clone(), server.address.clone());
            tokio::spawn(async move {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= wanted.messages {
                        return;
                    }
                    let sender = if wanted.senders == 0 { n } else { n % wanted.senders };
                    let one = say(&client, &address, &format!("u{sender}")).await;
                    told.lock().unwrap().push(one);
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    let lasted = begun.elapsed();
    over.store(true, Ordering::Relaxed);
    let (quiet, peak) = (quiet.await.unwrap(), peak.await.unwrap());
    let after = server.memory();
    let told = std::mem::take(&mut *told.lock().unwrap());
    let mut by_status: BTreeMap<u16, Vec<Duration>> = BTreeMap::new();
    let mut without = 0;
    for one in &told {
        by_status.entry(one.status).or_default().push(one.took);
        without += usize::from(one.status != 200 && one.retry.is_none());
    }
    println!(
        "{} messages over {} connections, model {} s, {}: {:.1} s",
        wanted.messages,
        wanted.connections,
        wanted.delay,
        if wanted.senders == 0 { "each of its own sender".to_owned() } else { format!("{} senders", wanted.senders) },
        lasted.as_secs_f64()
    );
    println!("| status | messages | p50 s | p99 s | max s |\n| --- | --- | --- | --- | --- |");
    let mut slowest = Duration::ZERO;
    for (status, mut took) in by_status {
        took.sort_unstable();
        if status == 200 {
            slowest = took.last().copied().unwrap_or_default();
        }
        let status = if status == 0 { "no answer".to_owned() } else { status.to_string() };
        println!(
            "| {status} | {} | {:.3} | {:.3} | {:.3} |",
            took.len(),
            part(&took, 0.5),
            part(&took, 0.99),
            part(&took, 1.0)
        );
    }
    let waited = quiet.iter().map(|(wait, _)| *wait).max().unwrap_or_default();
    let refused: usize = quiet.iter().map(|(_, refusals)| refusals).sum();
    println!(
        "the other user: {} messages, longest wait {:.2} s, refused {refused} times; refusals without Retry-After: {without}",
        quiet.len(),
        waited.as_secs_f64()
    );
    let mib = |memory: Option<f64>| memory.map_or("?".to_owned(), |mib| format!("{mib:.0} MiB"));
    println!("memory of the server: {} before, {} at most, {} after", mib(before), mib(peak), mib(after));
    drop(server);
    let _ = std::fs::remove_dir_all(&folder);
    let quiet_is_answered = wanted.senders == 0 || waited <= Duration::from_secs_f64(wanted.delay + 3.0);
    without == 0 && slowest <= Duration::from_secs(30) && quiet_is_answered
}

fn main() {
    let wanted = Wanted::read();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if !runtime.block_on(burst(wanted)) {
        println!("the limits do not hold");
        std::process::exit(1);
    }
}

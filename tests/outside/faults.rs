//! The faults that are injected while clients send messages: kills with a restart and a clock jump, clean stops, full disks, a second
//! process on the same store, incomplete requests, cross-origin requests, and commands of an operator.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    clients::Workload,
    patient,
    random::Random,
    server::{ProjectCopy, START_TIMEOUT, Server},
};

/// An incomplete request: its headers do not end.
const PARTIAL_REQUEST: &[u8] =
    b"POST /webhooks/rest/webhook HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\nx-slow: ";
/// The number of connections with an incomplete request at the same time; more than the server may have open files.
const PARTIAL_REQUESTS: usize = 600;

/// The longest time until the server closes a connection with an incomplete request: its own limit, and some seconds for a busy machine.
const PARTIAL_REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The longest time of a clean stop, with any open connections.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// The number of injected faults, by kind.
pub(crate) type FaultCounts = BTreeMap<&'static str, u64>;

/// Injects faults into a server.
pub(crate) struct FaultInjector {
    pub(crate) project: Arc<ProjectCopy>,
    pub(crate) workload: Arc<Workload>,
    pub(crate) random: Random,
    pub(crate) counts: FaultCounts,
    /// By how much the wall clock of the next server process is ahead.
    pub(crate) clock_offset: Duration,
    /// The longest time from the start of a process until it listened.
    pub(crate) slowest_start: Duration,
    /// The largest resident memory of a server process, in bytes.
    pub(crate) peak_memory: u64,
}

impl FaultInjector {
    /// Starts a server and waits until it listens. `None` and a violation if it does not listen within [`START_TIMEOUT`].
    pub(crate) async fn start(&mut self) -> Option<Server> {
        let mut server = self.project.start(self.clock_offset);
        match server.wait_until_listening().await {
            Some(duration) => {
                self.slowest_start = self.slowest_start.max(duration);
                Some(server)
            }
            None => {
                let log = self.project.log.lock().unwrap();
                let tail = log.iter().rev().take(5).rev().cloned().collect::<Vec<_>>().join("\n");
                self.workload.violation(format!("the server does not listen within {START_TIMEOUT:?}:\n{tail}"));
                None
            }
        }
    }

    fn count(&mut self, kind: &'static str) {
        *self.counts.entry(kind).or_default() += 1;
    }

    fn count_of(&self, kind: &'static str) -> u64 {
        self.counts.get(kind).copied().unwrap_or_default()
    }

    /// Injects faults until `is_over` returns true. Returns the running server; `None` if a server did not start.
    pub(crate) async fn run(&mut self, mut server: Server, is_over: impl Fn(&FaultCounts) -> bool) -> Option<Server> {
        while !is_over(&self.counts) {
            tokio::time::sleep(self.random.duration_ms(150, 1_200)).await;
            self.peak_memory = self.peak_memory.max(server.memory().unwrap_or_default());
            match self.random.below(100) {
                0..68 => {
                    server.kill();
                    self.count("kills");
                    if self.random.chance(60) {
                        self.clock_offset += Duration::from_secs(61);
                    }
                    server = self.start().await?;
                }
                68..74 => {
                    let start = Instant::now();
                    match server.terminate(patient(STOP_TIMEOUT)).await {
                        Some(status) if status.success() => {}
                        other => self
                            .workload
                            .violation(format!("a clean stop ended with {other:?} after {:?}", start.elapsed())),
                    }
                    self.count("clean stops");
                    server = self.start().await?;
                }
                74..81 => self.fill_disk(&server).await,
                81..86 => self.start_second_process().await,
                86..91 => self.send_partial_requests().await,
                91..95 => self.send_cross_origin_request().await,
                95 => self.lock_store().await,
                _ => self.run_operator_commands().await,
            }
        }
        Some(server)
    }

    /// Simulates a full disk for a while: no file of the server may grow.
    async fn fill_disk(&mut self, server: &Server) {
        // 1 KiB: every write that appends to a file of the store fails.
        if server.limit_file_size(Some(1024)) {
            tokio::time::sleep(self.random.duration_ms(200, 1_500)).await;
            server.limit_file_size(None);
            self.count("full disks");
        }
    }

    /// Locks the store, as another program may do, for a while.
    async fn lock_store(&mut self) {
        let project = self.project.clone();
        let lock = move || project.lock(&project.database(), crate::missions::LOCK);
        if tokio::task::spawn_blocking(lock).await.unwrap() {
            self.count("store locks");
        }
    }

    /// Starts a second server on the same store, which must end with an error.
    async fn start_second_process(&mut self) {
        let project = self.project.clone();
        let result =
            tokio::task::spawn_blocking(move || project.run_second_server(patient(Duration::from_secs(8)))).await;
        match result.unwrap() {
            Some(status) if !status.success() => {}
            other => self.workload.violation(format!("a second process on the same store was not rejected: {other:?}")),
        }
        self.count("second processes");
    }

    /// Opens many connections that send an incomplete request and then nothing. Every third time it waits, without another fault, until
    /// the server closes all of them.
    async fn send_partial_requests(&mut self) {
        let address = self.project.address;
        let all_closed = tokio::spawn(async move {
            let mut connections = Vec::new();
            while connections.len() < PARTIAL_REQUESTS {
                // A server at its limit of connections does not accept this one.
                let connect = tokio::time::timeout(Duration::from_secs(1), TcpStream::connect(address));
                let Ok(Ok(mut stream)) = connect.await else { break };
                let _ = stream.write_all(PARTIAL_REQUEST).await;
                connections.push(stream);
            }
            let close = async {
                for stream in &mut connections {
                    let _ = stream.read(&mut [0; 64]).await;
                }
            };
            tokio::time::timeout(patient(PARTIAL_REQUEST_TIMEOUT), close).await.is_ok()
        });
        if self.count_of("partial requests").is_multiple_of(3) && !all_closed.await.unwrap() {
            self.workload
                .violation(format!("connections with incomplete requests are open after {PARTIAL_REQUEST_TIMEOUT:?}"));
        }
        self.count("partial requests");
    }

    /// Sends a message as a browser does for a web page of another origin: without a preflight request.
    async fn send_cross_origin_request(&mut self) {
        let reference = format!("ref-d-cross-origin-{}", self.count_of("cross-origin requests"));
        let body = serde_json::json!({"sender": "victim", "message": reference, "message_id": reference});
        let request = reqwest::Client::new()
            .post(&self.workload.url)
            .header("origin", "https://elsewhere.example")
            .header("content-type", "text/plain")
            .body(body.to_string())
            .timeout(Duration::from_secs(20));
        if let Ok(response) = request.send().await
            && response.status() != reqwest::StatusCode::FORBIDDEN
            && response.status() != reqwest::StatusCode::SERVICE_UNAVAILABLE
            && response.status() != reqwest::StatusCode::TOO_MANY_REQUESTS
        {
            self.workload.violation(format!("a cross-origin request was not rejected: status {}", response.status()));
        }
        self.count("cross-origin requests");
    }

    /// Runs `segue doctor list` and `segue backup` while the server runs. Both must succeed.
    async fn run_operator_commands(&mut self) {
        let project = self.project.clone();
        let number = self.count_of("backups");
        let failed = tokio::task::spawn_blocking(move || {
            let store = format!("sqlite:{}", project.database().display());
            let backup = project.path(&format!("backup-{number}.db")).display().to_string();
            let folder = project.path("").display().to_string();
            let commands = [
                vec!["doctor", "list", "--store", &store, &folder],
                vec!["backup", &backup, "--store", &store, &folder],
            ];
            let results = commands.map(|arguments| project.run(&arguments, patient(Duration::from_secs(30))));
            let _ = std::fs::remove_file(&backup);
            results
                .into_iter()
                .find(|result| result.as_ref().is_none_or(|(status, _)| status.code().is_none_or(|code| code >= 2)))
        });
        if let Some(failed) = failed.await.unwrap() {
            self.workload.violation(format!("an operator's command failed while the server ran: {failed:?}"));
        }
        self.count("backups");
    }
}

/// Polls `/livez` until the workload stops. Eight timeouts of two seconds, or on a busy machine more, without a response between
/// them are a violation; refused connections do not count.
pub(crate) async fn poll_liveness(workload: Arc<Workload>, base: String) {
    let client = reqwest::Client::new();
    let mut timeouts = 0;
    while !workload.is_stopping.load(Ordering::SeqCst) {
        let request = client.get(format!("{base}/livez")).timeout(Duration::from_secs(2));
        match request.send().await {
            Ok(response) if response.status().is_success() => timeouts = 0,
            Ok(response) if response.status() == reqwest::StatusCode::NOT_FOUND => {
                workload.violation("there is no /livez".to_owned());
                return;
            }
            Err(error) if error.is_timeout() => timeouts += 1,
            _ => {}
        }
        if patient(Duration::from_secs(2)) * 8 == Duration::from_secs(2) * timeouts {
            workload.violation("/livez did not answer many requests within two seconds each".to_owned());
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

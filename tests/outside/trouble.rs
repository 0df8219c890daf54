//! What happens to the server while people write: it is killed and started again with its clock ahead, its disk fills up, a
//! second process is started on its store, clients send half a request, a page of another origin writes.

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
    clients::Crowd,
    random::Random,
    server::{Ground, START, Server},
};

/// Headers of a request that never ends.
const HALF: &[u8] = b"POST /webhooks/rest/webhook HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\nx-slow: ";
/// Connections that send half a request at once; more than a server has files.
const HALVES: usize = 600;

/// How long a server may wait for the rest of a request: its limit, and some seconds for a machine that is busy.
const HALF_REQUEST: Duration = Duration::from_secs(20);

/// How long a server may take to end cleanly, whoever is connected.
pub(crate) const STOP: Duration = Duration::from_secs(20);

/// Counts of what was done.
pub(crate) type Done = BTreeMap<&'static str, u64>;

/// Whoever makes trouble, and the server it is made for.
pub(crate) struct Trouble {
    pub(crate) ground: Arc<Ground>,
    pub(crate) crowd: Arc<Crowd>,
    pub(crate) random: Random,
    pub(crate) done: Done,
    /// How far the wall clock of the next server is ahead.
    pub(crate) ahead: Duration,
    /// The longest time until a server listened.
    pub(crate) slowest: Duration,
    /// The most memory that a server had, in bytes.
    pub(crate) memory: u64,
}

impl Trouble {
    /// Starts a server.
    pub(crate) async fn start(&mut self) -> Option<Server> {
        let mut server = self.ground.start(self.ahead);
        match server.listens().await {
            Some(took) => {
                self.slowest = self.slowest.max(took);
                Some(server)
            }
            None => {
                let log = self.ground.log.lock().unwrap();
                let tail = log.iter().rev().take(5).rev().cloned().collect::<Vec<_>>().join("\n");
                self.crowd.wrong(format!("a server did not listen within {START:?} after a start:\n{tail}"));
                None
            }
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.done.entry(what).or_default() += 1;
    }

    /// Makes trouble until `is_over`; the server that runs then.
    pub(crate) async fn make(&mut self, mut server: Server, is_over: impl Fn(&Done) -> bool) -> Option<Server> {
        while !is_over(&self.done) {
            tokio::time::sleep(self.random.millis(150, 1_200)).await;
            self.memory = self.memory.max(server.memory().unwrap_or_default());
            match self.random.below(100) {
                0..68 => {
                    server.kill();
                    self.count("kills");
                    if self.random.chance(60) {
                        self.ahead += Duration::from_secs(61);
                    }
                    server = self.start().await?;
                }
                68..74 => {
                    let began = Instant::now();
                    match server.terminate(STOP).await {
                        Some(status) if status.success() => {}
                        other => {
                            self.crowd.wrong(format!("a clean stop ended with {other:?} after {:?}", began.elapsed()))
                        }
                    }
                    self.count("clean stops");
                    server = self.start().await?;
                }
                74..81 => self.fill_the_disk(&server).await,
                81..86 => self.second_process().await,
                86..91 => self.half_requests().await,
                91..96 => self.foreign_page().await,
                _ => self.operator().await,
            }
        }
        Some(server)
    }

    /// No file may grow for a while.
    async fn fill_the_disk(&mut self, server: &Server) {
        // A kibibyte: every write that appends to a file of the store fails.
        if server.limit_files(Some(1024)) {
            tokio::time::sleep(self.random.millis(200, 1_500)).await;
            server.limit_files(None);
            self.count("full disks");
        }
    }

    /// A second server on the same store must refuse.
    async fn second_process(&mut self) {
        let ground = self.ground.clone();
        let ended = tokio::task::spawn_blocking(move || ground.second(Duration::from_secs(8))).await.unwrap();
        match ended {
            Some(status) if !status.success() => {}
            other => self.crowd.wrong(format!("a second process on the same store was not refused: {other:?}")),
        }
        self.count("second processes");
    }

    /// Many connections that send half a request and then nothing. Each third time it is seen to that the server, which nobody
    /// kills meanwhile, closes them.
    async fn half_requests(&mut self) {
        let address = self.ground.address;
        let holding = tokio::spawn(async move {
            let mut held = Vec::new();
            while held.len() < HALVES {
                // A server that takes no more connections lets this one wait.
                let connecting = tokio::time::timeout(Duration::from_secs(1), TcpStream::connect(address));
                let Ok(Ok(mut stream)) = connecting.await else { break };
                let _ = stream.write_all(HALF).await;
                held.push(stream);
            }
            let closed = async {
                for stream in &mut held {
                    let _ = stream.read(&mut [0; 64]).await;
                }
            };
            let closes = tokio::time::timeout(HALF_REQUEST, closed).await.is_ok();
            drop(held);
            closes
        });
        if self.done.get("half requests").copied().unwrap_or_default().is_multiple_of(3) && !holding.await.unwrap() {
            self.crowd.wrong(format!("half requests were kept for {HALF_REQUEST:?}"));
        }
        self.count("half requests");
    }

    /// A page of another origin writes to the channel, as a browser lets it.
    async fn foreign_page(&mut self) {
        let reference = format!("ref-d-foreign-{}", self.done.get("foreign pages").copied().unwrap_or_default());
        let body = serde_json::json!({"sender": "victim", "message": reference, "message_id": reference});
        let request = reqwest::Client::new()
            .post(&self.crowd.url)
            .header("origin", "https://elsewhere.example")
            .header("content-type", "text/plain")
            .body(body.to_string())
            .timeout(Duration::from_secs(20));
        if let Ok(response) = request.send().await
            && response.status() != reqwest::StatusCode::FORBIDDEN
            && response.status() != reqwest::StatusCode::SERVICE_UNAVAILABLE
            && response.status() != reqwest::StatusCode::TOO_MANY_REQUESTS
        {
            self.crowd.wrong(format!("a page of another origin was answered with {}", response.status()));
        }
        self.count("foreign pages");
    }

    /// An operator lists what is stuck and makes a copy beside the running server.
    async fn operator(&mut self) {
        let ground = self.ground.clone();
        let number = self.done.get("backups").copied().unwrap_or_default();
        let failed = tokio::task::spawn_blocking(move || {
            let store = format!("sqlite:{}", ground.database().display());
            let copy = ground.path(&format!("copy-{number}.db")).display().to_string();
            let folder = ground.path("").display().to_string();
            let runs =
                [vec!["doctor", "list", "--store", &store, &folder], vec!["backup", &copy, "--store", &store, &folder]];
            let results = runs.map(|arguments| ground.run(&arguments, Duration::from_secs(30)));
            let _ = std::fs::remove_file(&copy);
            results
                .into_iter()
                .find(|result| !result.as_ref().is_some_and(|(status, _)| status.code().is_some_and(|code| code < 2)))
        });
        if let Some(failed) = failed.await.unwrap() {
            self.crowd.wrong(format!("an operator's command failed beside the server: {failed:?}"));
        }
        self.count("backups");
    }
}

/// Asks the server all the time whether it lives: it must say so within two seconds whenever it listens.
pub(crate) async fn ask_whether_it_lives(crowd: Arc<Crowd>, base: String) {
    let client = reqwest::Client::new();
    let mut silent = 0;
    while !crowd.enough.load(Ordering::SeqCst) {
        let request = client.get(format!("{base}/livez")).timeout(Duration::from_secs(2));
        match request.send().await {
            Ok(response) if response.status().is_success() => silent = 0,
            Ok(response) if response.status() == reqwest::StatusCode::NOT_FOUND => {
                crowd.wrong("there is no /livez".to_owned());
                return;
            }
            Err(error) if error.is_timeout() => silent += 1,
            _ => {}
        }
        if silent == 8 {
            crowd.wrong("a server that listens did not answer /livez for 16 seconds".to_owned());
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

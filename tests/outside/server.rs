//! The program under test as an operator runs it: a process on a folder, killed and started again, with little disk or few
//! files when that is asked for.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// How long a server may take until it listens, whatever an earlier one has left.
pub(crate) const START: Duration = Duration::from_secs(10);
/// Open files that a server may have.
const FILES: u32 = 512;

/// A folder with the project and its store, and the address that its servers have, one after the other.
pub(crate) struct Ground {
    folder: tempfile::TempDir,
    /// Where servers listen.
    pub(crate) address: SocketAddr,
    environment: Vec<(String, String)>,
    /// The newest lines of all servers' logs.
    pub(crate) log: Arc<Mutex<Vec<String>>>,
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    listens: Arc<AtomicBool>,
}

impl Ground {
    /// A copy of the project that asks these addresses, for servers with this environment.
    pub(crate) fn new(model: &str, payments: &str, environment: Vec<(String, String)>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        crate::folder::copy_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outside/project"), folder.path());
        let endpoints = folder.path().join("endpoints.yml");
        let text = fs::read_to_string(&endpoints).unwrap();
        fs::write(&endpoints, text.replace("MODEL_ADDRESS", model).replace("PAYMENTS_ADDRESS", payments)).unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        Self { folder, address, environment, log: Arc::default() }
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The store.
    pub(crate) fn database(&self) -> PathBuf {
        self.path("talks.db")
    }

    /// The program with `arguments`, in this environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        // A full disk is a limit of the file size: writes fail when the signal that says so is ignored.
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("trap '' XFSZ; ulimit -n {FILES}; exec \"$0\" \"$@\""))
            .arg(env!("CARGO_BIN_EXE_segue"))
            .args(arguments)
            .env_remove("RUST_LOG")
            .env("LOG_LEVEL", "info")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    fn run_arguments(&self, port: u16) -> Vec<String> {
        let store = format!("sqlite:{}", self.database().display());
        let folder = self.folder.path().display().to_string();
        ["run", "--port", &port.to_string(), "--store", &store, &folder].map(str::to_owned).into()
    }

    /// Starts a server whose wall clock is `ahead` of this machine's.
    pub(crate) fn start(&self, ahead: Duration) -> Server {
        let arguments = self.run_arguments(self.address.port());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut command = self.command(&arguments);
        command.env("SEGUE_TEST_CLOCK_AHEAD", ahead.as_secs().to_string());
        let mut child = command.spawn().unwrap();
        let listens = Arc::new(AtomicBool::new(false));
        let (log, told) = (self.log.clone(), listens.clone());
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if line.contains("listening on") {
                    told.store(true, Ordering::SeqCst);
                }
                keep(&log, line);
            }
        });
        Server { child, listens }
    }

    /// Starts a second server on the same store, at another port, and waits for its end; `None` when it goes on.
    pub(crate) fn second(&self, patience: Duration) -> Option<ExitStatus> {
        let arguments = self.run_arguments(0);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.run(&arguments, patience).map(|(status, _)| status)
    }

    /// Runs the program to its end; `None` when it goes on beyond `patience`.
    pub(crate) fn run(&self, arguments: &[&str], patience: Duration) -> Option<(ExitStatus, String)> {
        let mut child = self.command(arguments).spawn().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let status = wait(&mut child, patience);
        if status.is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let text = reader.join().unwrap_or_default();
        status.map(|status| (status, text))
    }
}

/// Keeps a line of a log, at most the newest thousand.
fn keep(log: &Mutex<Vec<String>>, line: String) {
    let mut log = log.lock().unwrap();
    if log.len() >= 1_000 {
        log.drain(..500);
    }
    log.push(line);
}

fn wait(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if began.elapsed() > patience {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Server {
    /// Waits until it listens; how long that took, or `None` when it ended or took longer than [`START`].
    pub(crate) async fn listens(&mut self) -> Option<Duration> {
        let began = Instant::now();
        while began.elapsed() < START {
            if self.listens.load(Ordering::SeqCst) {
                return Some(began.elapsed());
            }
            if self.child.try_wait().unwrap().is_some() {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        None
    }
    /// Ends it as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
    /// Asks it to end and waits; its status, or `None` when it goes on beyond `patience`.
    pub(crate) async fn terminate(mut self, patience: Duration) -> Option<ExitStatus> {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        tokio::task::spawn_blocking(move || wait(&mut self.child, patience)).await.unwrap()
    }
    /// Lets no file grow beyond `bytes`, as a full disk would; `None` lifts the limit.
    pub(crate) fn limit_files(&self, bytes: Option<u64>) -> bool {
        let limit = bytes.map_or("unlimited".to_owned(), |bytes| bytes.to_string());
        let mut command = Command::new("prlimit");
        command.args(["--pid", &self.child.id().to_string(), &format!("--fsize={limit}:")]);
        command.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }
    /// Its resident memory, in bytes.
    pub(crate) fn memory(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib * 1024)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

//! The server under test: a `segue run` process on a copy of the project, with a limit of open files and, on request, of the file size.

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

/// The longest time from the start of a process until it listens, including the recovery of what a killed process left.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(10);
/// The limit of open files of a process.
const MAX_OPEN_FILES: u32 = 512;

/// A temporary folder with the project and its store, and the address at which its servers listen, one after another.
pub(crate) struct ProjectCopy {
    folder: tempfile::TempDir,
    /// The address of the server.
    pub(crate) address: SocketAddr,
    /// The newest log lines of all servers, at most 1000.
    pub(crate) log: Arc<Mutex<Vec<String>>>,
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    is_listening: Arc<AtomicBool>,
}

impl ProjectCopy {
    /// Copies the project, with the addresses of the model server and the payment server.
    pub(crate) fn new(model: &str, payments: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        crate::folder::copy_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outside/project"), folder.path());
        let endpoints = folder.path().join("endpoints.yml");
        let text = fs::read_to_string(&endpoints).unwrap();
        fs::write(&endpoints, text.replace("MODEL_ADDRESS", model).replace("PAYMENTS_ADDRESS", payments)).unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        Self { folder, address, log: Arc::default() }
    }

    /// Copies the folder, so that a violation can be examined.
    pub(crate) fn keep(&self) {
        let copy = tempfile::tempdir().unwrap().keep();
        crate::folder::copy_folder(self.folder.path(), &copy);
        println!("the project and its stores are in {}", copy.display());
    }

    /// The path of a file in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The database file of the store.
    pub(crate) fn database(&self) -> PathBuf {
        self.path("conversations.db")
    }

    /// The database file of the runs of missions.
    pub(crate) fn runs_database(&self) -> PathBuf {
        self.path("runs.db")
    }

    /// A command that runs `segue` with `arguments`.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        // A limit of the file size simulates a full disk. The process ignores SIGXFSZ, so that writes beyond the limit fail with an error.
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("trap '' XFSZ; ulimit -n {MAX_OPEN_FILES}; exec \"$0\" \"$@\""))
            .arg(binary())
            .args(arguments)
            .env_remove("RUST_LOG")
            .env("LOG_LEVEL", "info")
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

    /// Starts a server whose wall clock is ahead by `clock_offset`.
    pub(crate) fn start(&self, clock_offset: Duration) -> Server {
        let arguments = self.run_arguments(self.address.port());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut command = self.command(&arguments);
        command.env("SEGUE_TEST_CLOCK_AHEAD", clock_offset.as_secs().to_string());
        let mut child = command.spawn().unwrap();
        let is_listening = Arc::new(AtomicBool::new(false));
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        std::thread::spawn({
            let (log, is_listening) = (self.log.clone(), is_listening.clone());
            move || {
                for line in lines.map_while(Result::ok) {
                    if line.contains("listening on") {
                        is_listening.store(true, Ordering::SeqCst);
                    }
                    append(&log, line);
                }
            }
        });
        Server { child, is_listening }
    }

    /// Starts a second server on the same store, at another port, and returns its exit status; `None` if it runs longer than `timeout`.
    pub(crate) fn run_second_server(&self, timeout: Duration) -> Option<ExitStatus> {
        let arguments = self.run_arguments(0);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.run(&arguments, timeout).map(|(status, _)| status)
    }

    /// Locks a database for writing, as another program may do, for `duration`. Returns whether it could be locked.
    pub(crate) fn lock(&self, database: &Path, duration: Duration) -> bool {
        let Ok(connection) = rusqlite::Connection::open(database) else { return false };
        let _ = connection.busy_timeout(Duration::from_secs(5));
        let is_locked = connection.execute_batch("BEGIN IMMEDIATE").is_ok();
        if is_locked {
            std::thread::sleep(duration);
            let _ = connection.execute_batch("ROLLBACK");
        }
        is_locked
    }

    /// Runs `segue` and returns its exit status and standard error; `None` if it runs longer than `timeout`.
    pub(crate) fn run(&self, arguments: &[&str], timeout: Duration) -> Option<(ExitStatus, String)> {
        let mut child = self.command(arguments).spawn().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let status = wait(&mut child, timeout);
        if status.is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let text = reader.join().unwrap_or_default();
        status.map(|status| (status, text))
    }
}

/// The program under test: that of `SEGUE_OUTSIDE_BINARY`, or the one of this build.
fn binary() -> PathBuf {
    std::env::var_os("SEGUE_OUTSIDE_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_segue").into()).into()
}

/// Appends a line to a log; removes the oldest ones from a log of 1000 lines.
fn append(log: &Mutex<Vec<String>>, line: String) {
    let mut log = log.lock().unwrap();
    if log.len() >= 1_000 {
        log.drain(..500);
    }
    log.push(line);
}

/// Waits for the end of a process; `None` if it runs longer than `timeout`.
fn wait(child: &mut Child, timeout: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if start.elapsed() > timeout {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Server {
    /// Waits until the server listens. Returns the waiting time; `None` if the process ends or needs longer than [`START_TIMEOUT`].
    pub(crate) async fn wait_until_listening(&mut self) -> Option<Duration> {
        let start = Instant::now();
        while start.elapsed() < crate::patient(START_TIMEOUT) {
            if self.is_listening.load(Ordering::SeqCst) {
                return Some(start.elapsed());
            }
            if self.child.try_wait().unwrap().is_some() {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        None
    }
    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
    /// Sends SIGTERM and waits. Returns the exit status; `None` if the process runs longer than `timeout`.
    pub(crate) async fn terminate(mut self, timeout: Duration) -> Option<ExitStatus> {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        tokio::task::spawn_blocking(move || wait(&mut self.child, timeout)).await.unwrap()
    }
    /// Limits the size of files that the process writes, to simulate a full disk; `None` removes the limit. Returns whether the limit
    /// was set, which needs `prlimit` (Linux).
    pub(crate) fn limit_file_size(&self, bytes: Option<u64>) -> bool {
        let limit = bytes.map_or("unlimited".to_owned(), |bytes| bytes.to_string());
        let mut command = Command::new("prlimit");
        command.args(["--pid", &self.child.id().to_string(), &format!("--fsize={limit}:")]);
        command.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }
    /// The resident memory in bytes; `None` where there is no `/proc`.
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

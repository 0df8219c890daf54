//! `segue run` as a child process.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    time::Duration,
};

use segue::clock::{Clock, SystemClock};

use crate::program::command;

/// A server process. It is killed when this value is dropped.
pub(crate) struct ServerProcess {
    pub(crate) child: Child,
    /// Its address, with the scheme and without a path.
    pub(crate) address: String,
}

/// The lines that a server process writes to its log.
pub(crate) type LogLines = std::io::Lines<BufReader<ChildStderr>>;

/// How long a server may take for something that usually takes a moment. After this time a test fails.
pub(crate) const SERVER_TIMEOUT: Duration = Duration::from_secs(120);

impl ServerProcess {
    /// Runs the command until it listens. Returns the process and the rest of its log, which must be read: otherwise the process
    /// blocks when the pipe is full. `None` if the process exits before it listens.
    pub(crate) fn listening(mut command: Command) -> Option<(Self, LogLines)> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut server = Self { child, address: String::new() };
        let mut lines = BufReader::new(server.child.stderr.take().unwrap()).lines();
        server.address = loop {
            let line = lines.next()?.ok()?;
            if let Some((_, address)) = line.split_once("listening on ") {
                break address.split_whitespace().next().unwrap().to_owned();
            }
        };
        Some((server, lines))
    }

    /// Runs the command until it listens and discards the rest of its log. `None` if the process exits before it listens.
    pub(crate) fn start(command: Command) -> Option<Self> {
        let (server, lines) = Self::listening(command)?;
        std::thread::spawn(move || lines.for_each(drop));
        Some(server)
    }

    /// Waits until the process exits by itself.
    pub(crate) fn wait_for_exit(&mut self) {
        let deadline = SystemClock.deadline(SERVER_TIMEOUT);
        while self.child.try_wait().unwrap().is_none() {
            assert!(SystemClock.elapsed() < deadline.0, "the process does not exit");
            std::thread::yield_now();
        }
    }

    /// Kills the process and waits for its exit.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGTERM and waits for the exit; the exit code must be 0.
    #[cfg(unix)]
    pub(crate) fn terminate(&mut self) {
        let sent = Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(sent.success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }

    /// Kills the process: there is no SIGTERM on this platform.
    #[cfg(not(unix))]
    pub(crate) fn terminate(&mut self) {
        self.kill();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts `segue run` for the project `courier` in `folder`. Returns the process and its address.
pub(crate) fn start_courier(folder: &Path, arguments: &[&str]) -> (ServerProcess, String) {
    start_project(&crate::project("courier"), folder, arguments)
}

/// Starts `segue run` for a project in `folder`. Returns the process and its address.
pub(crate) fn start_project(project: &str, folder: &Path, arguments: &[&str]) -> (ServerProcess, String) {
    let mut command = command();
    command.current_dir(folder).arg("run").arg(project).args(["--port", "0"]).args(arguments);
    let server = ServerProcess::start(command).expect("the server listens");
    let address = server.address.clone();
    (server, address)
}

/// An HTTP client that ignores this machine's environment, for example its proxies.
pub(crate) fn client() -> reqwest::Client {
    segue::http::HttpClients::new().client().unwrap().clone()
}

//! `segue run` as a child process, with a copy of a project of `tests/projects` and a store that outlives the process.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// A copy of a project in a temporary folder.
pub(crate) struct ProjectCopy {
    folder: tempfile::TempDir,
}

/// A running `segue run`. Dropping it kills the process, as a crash would.
pub(crate) struct Server {
    child: Child,
    /// Host and port.
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ProjectCopy {
    /// Copies the project `tests/projects/<project>`.
    pub(crate) fn new(project: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        crate::folder::copy_folder(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/projects").join(project),
            folder.path(),
        );
        Self { folder }
    }
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
    /// Starts a server on a free port. `None` if the process ends before it listens.
    pub(crate) fn server(&self, environment: &[(&str, &str)]) -> Option<Server> {
        self.server_on(0, environment)
    }
    /// Starts a server on a given port; 0 is a free one. `None` if the process ends before it listens.
    pub(crate) fn server_on(&self, port: u16, environment: &[(&str, &str)]) -> Option<Server> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
        command
            .args(["run", "--port", &port.to_string(), "--store"])
            .arg(self.store())
            .arg(self.folder.path())
            .envs(environment.iter().copied())
            .env("SEGUE_FAILPOINT_PROOF", self.path("proof"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut server = Server { child: command.spawn().unwrap(), address: String::new() };
        let mut lines = BufReader::new(server.child.stderr.take().unwrap()).lines();
        server.address = loop {
            let line = lines.next()?.ok()?;
            if let Some((_, rest)) = line.split_once("listening on http://") {
                break rest.split(|c: char| c.is_whitespace() || c == '"').next().unwrap().to_owned();
            }
        };
        // The rest of the log must be read: the server would block on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Some(server)
    }
    /// The argument of `--store`.
    fn store(&self) -> String {
        format!("sqlite:{}", self.path("conversations.db").display())
    }
    /// Runs another command of `segue` on the project and its store. Returns standard output and standard error.
    pub(crate) fn segue(&self, arguments: &[&str], environment: &[(&str, &str)]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
        command.args(arguments).args(["--store", &self.store()]).arg(self.folder.path());
        let output = command.envs(environment.iter().copied()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    }
}

impl Server {
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
    pub(crate) fn port(&self) -> u16 {
        self.address.rsplit(':').next().unwrap().parse().unwrap()
    }
}

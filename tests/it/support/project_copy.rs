//! A copy of a project with an SQLite store of its own, and the processes that run on it one after another.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value as Json, json};

use crate::{
    program::command,
    support::server_process::{SERVER_TIMEOUT, ServerProcess},
};

/// A temporary folder with a copy of a project of `tests/projects`. It holds the store (`talks.db`) and what the booking tool wrote.
pub(crate) struct ProjectCopy {
    folder: tempfile::TempDir,
}

impl ProjectCopy {
    pub(crate) fn new(project: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        crate::folder::copy_folder(Path::new(&crate::project(project)), folder.path());
        Self { folder }
    }
    /// The path of a file of the copy.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
    /// Replaces a text in a file of the copy.
    pub(crate) fn replace(&self, file: &str, old: &str, new: &str) {
        let text = fs::read_to_string(self.path(file)).unwrap();
        assert!(text.contains(old), "{file} has no {old}");
        fs::write(self.path(file), text.replace(old, new)).unwrap();
    }
    /// Starts `segue run` with an armed failpoint, if one is given. `None` if the process exits before it listens.
    pub(crate) fn start_server(&self, failpoint: Option<&str>) -> Option<ServerProcess> {
        self.start_server_ahead(failpoint, 0)
    }
    /// The same with a wall clock that is `seconds` ahead of this machine's.
    pub(crate) fn start_server_ahead(&self, failpoint: Option<&str>, seconds: u32) -> Option<ServerProcess> {
        let mut command = command();
        command
            .args(["run", "--port", "0", "--store", &self.store()])
            .arg(self.folder.path())
            .env("SEGUE_TEST_BOOKINGS", self.path("bookings.json"))
            .env("SEGUE_FAILPOINT_PROOF", self.path("proof"))
            .env("SEGUE_TEST_CLOCK_AHEAD", seconds.to_string());
        if let Some(failpoint) = failpoint {
            command.env("SEGUE_FAILPOINT", failpoint);
        }
        ServerProcess::start(command)
    }
    /// The failpoint at which a process crashed, if one did.
    pub(crate) fn crashed_at(&self) -> Option<String> {
        fs::read_to_string(self.path("proof")).ok()
    }
    /// Forgets the crash, so that the next crash can be distinguished from it.
    pub(crate) fn forget_crash(&self) {
        fs::remove_file(self.path("proof")).unwrap();
    }
    /// How many bookings the tool has made.
    pub(crate) fn bookings(&self) -> usize {
        let Ok(text) = fs::read_to_string(self.path("bookings.json")) else { return 0 };
        let json: Json = serde_json::from_str(&text).unwrap();
        let list = json.get("bookings").unwrap_or(&json);
        list.as_array().map(Vec::len).or_else(|| list.as_object().map(|map| map.len())).unwrap()
    }
    /// Runs `segue` with these arguments on the project and its store. Returns the exit code and everything that it printed.
    pub(crate) fn run_segue(&self, arguments: &[&str]) -> (i32, String) {
        let output = command()
            .args(arguments)
            .args(["--store", &self.store()])
            .arg(self.folder.path())
            .env("SEGUE_TEST_BOOKINGS", self.path("bookings.json"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap_or(-1), text)
    }
    /// The stored turns of the conversation `anna`, as `segue trace` prints them.
    pub(crate) fn trace(&self) -> (Vec<Json>, String) {
        let (code, text) = self.run_segue(&["trace", "anna", "--format", "json"]);
        assert_eq!(code, 0, "{text}");
        (serde_json::from_str(&text).unwrap(), text)
    }
    /// A replay of the conversation gives the stored events.
    pub(crate) fn assert_replays(&self, conversation: &str) {
        let (code, difference) = self.run_segue(&["replay", conversation]);
        assert_eq!(code, 0, "{conversation}: {difference}");
    }
    /// The value of the option `--store`.
    pub(crate) fn store(&self) -> String {
        format!("sqlite:{}", self.path("talks.db").display())
    }
}

/// Posts a message of the conversation `anna` with the id `m1` and returns the texts of the replies; `None` if the server crashes before
/// it responds.
pub(crate) async fn post(server: &ServerProcess, text: &str) -> Option<Vec<String>> {
    post_to(server, (text, "m1"), "").await
}

/// The same with another message id.
pub(crate) async fn post_with_id(server: &ServerProcess, text: &str, id: &str) -> Option<Vec<String>> {
    post_to(server, (text, id), "").await
}

/// The same with a query of the REST channel, such as `?stream=deltas`.
pub(crate) async fn post_to(server: &ServerProcess, (text, id): (&str, &str), query: &str) -> Option<Vec<String>> {
    segue::http::install_tls();
    let body = json!({"sender": "anna", "message": text, "message_id": id});
    let client = segue::http::HttpClients::new();
    let request = client.client().unwrap().post(format!("{}/webhooks/rest/webhook{query}", server.address));
    let request = request.json(&body).timeout(SERVER_TIMEOUT);
    let replies: Json = request.send().await.ok()?.json().await.ok()?;
    Some(replies.as_array()?.iter().filter_map(|reply| reply["text"].as_str().map(str::to_owned)).collect())
}

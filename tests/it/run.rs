//! `segue run` as a process.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
};

use crate::{program::command, project};

/// A server that does not outlive its test.
pub(crate) struct Server(pub(crate) Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The server, and its address once it listens.
pub(crate) fn started(folder: &std::path::Path, arguments: &[&str]) -> (Server, String) {
    let mut command = command();
    command.current_dir(folder).arg("run").arg(project("courier")).args(["--port", "0"]).args(arguments);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut server = Server(child);
    let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines();
    let address = lines
        .by_ref()
        .map(Result::unwrap)
        .find_map(|line| line.split_once("listening on ").map(|(_, address)| address.to_owned()))
        .expect("it says where it listens");
    // Whatever it says later is read, so that it never waits for a reader.
    std::thread::spawn(move || lines.for_each(drop));
    (server, address.split_whitespace().next().unwrap().to_owned())
}

#[tokio::test]
async fn it_answers_keeps_conversations_and_ends_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let client = client();
    let store = ["--store", "sqlite:talks.db"];
    let say = async |address: &str, text: &str| -> serde_json::Value {
        let body = serde_json::json!({"sender": "u1", "message": text}).to_string();
        let answer = client.post(format!("{address}/webhooks/rest/webhook")).body(body).send().await.unwrap();
        serde_json::from_str(&answer.text().await.unwrap()).unwrap()
    };

    let (mut server, address) = started(folder.path(), &store);
    let health = client.get(format!("{address}/health")).send().await.unwrap();
    assert_eq!(health.status(), 200);
    let health: serde_json::Value = serde_json::from_str(&health.text().await.unwrap()).unwrap();
    assert_eq!((&health["status"], &health["store"]), (&"ok".into(), &"up".into()));
    assert_eq!(say(&address, "track it").await[0]["text"], "Which parcel?");
    end(&mut server.0);

    let (mut server, address) = started(folder.path(), &store);
    assert_eq!(say(&address, "number X7").await[0]["text"], "Parcel X7 is under way.");
    end(&mut server.0);
}

/// Asks a process to end and waits; it must say that it ended well.
#[cfg(unix)]
pub(crate) fn end(child: &mut Child) {
    let asked = std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(asked.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[cfg(not(unix))]
pub(crate) fn end(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A client without anything of this machine's environment.
pub(crate) fn client() -> reqwest::Client {
    segue::http::Outbound::new().client().unwrap().clone()
}

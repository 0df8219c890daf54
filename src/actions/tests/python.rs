//! Python modules of actions: a shell script replaces Python. It writes the port on which it should listen, and the test listens there.

use std::{fs, path::Path};

use tempfile::TempDir;

use super::*;

/// A folder with an interpreter that runs `script`; `$4` is the port.
fn place(script: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("#!/bin/sh\ncd {}\n{script}\n", folder.path().display());
    // Written by a child: a child of another test that is just starting has all files that this process has open, and a program
    // that somebody has open for writing does not start.
    let mut writes = std::process::Command::new("sh");
    writes.arg("-c").arg("printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"").arg(folder.path().join("python")).arg(text);
    assert!(writes.status().unwrap().success());
    folder
}

fn module(python: &Path, clock: &Paced) -> Arc<dyn ActionServer> {
    let path = crate::environment::variable("PATH").unwrap();
    let around = around(clock, &[("SEGUE_PYTHON", python.to_str().unwrap()), ("PATH", &path)]);
    let def = ActionEndpointDef { module: Some("actions".to_owned()), ..ActionEndpointDef::default() };
    open(&def, &project(), around)
}

fn lines(folder: &TempDir, name: &str) -> Vec<String> {
    let text = fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Lets the other tasks run until this is true.
async fn until(mut holds: impl FnMut() -> bool) {
    let comes = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), comes).await.expect("it comes");
}

/// A child that writes its port and runs until a file exists.
const LIVES: &str = "echo \"$4\" >> ports; echo started >&2; while [ ! -e \"die-$4\" ]; do read line || exit 0; done";

/// Responds like the child, on the port that it wrote last.
async fn serve(folder: &TempDir, lives: usize) -> (Server, String) {
    until(|| lines(folder, "ports").len() >= lives).await;
    let port = lines(folder, "ports").pop().unwrap();
    let answers = |heard: &Heard| {
        let health = heard.line.starts_with("GET /health");
        if health { Some(answer(200, r#"{"status": "ok"}"#)) } else { fine(heard) }
    };
    (Server::on(&format!("127.0.0.1:{port}"), Some(Arc::new(answers))).await, port)
}

#[tokio::test]
async fn child_starts_at_first_use_and_ends_on_close() {
    let folder = place(&format!("{LIVES}; echo ended >> end"));
    let clock = Paced::default();
    let server = module(&folder.path().join("python"), &clock);
    assert_eq!(
        (server.status(), lines(&folder, "ports").len()),
        (Health::Unknown, 0),
        "nothing runs before it is needed"
    );
    let (outcome, (_serving, _)) = tokio::join!(run(&*server, &clock, "action_a"), serve(&folder, 1));
    assert!(matches!(outcome, ActionOutcome::ServerResponse(_)), "{outcome:?}");
    assert_eq!(server.status(), Health::Up);
    run(&*server, &clock, "action_a").await;
    assert_eq!(lines(&folder, "ports").len(), 1, "one child for all calls");
    server.close(&clock.0.context(Duration::from_secs(60))).await;
    assert!(matches!(server.status(), Health::Down { .. }));
    let error = error(run(&*server, &clock, "action_a").await);
    assert_eq!((error.code.as_str(), error.may_have_run), ("unreachable", false));
}

#[tokio::test]
async fn ended_child_is_restarted_with_growing_pauses() {
    // It dies when it reads a line; no line is written, so the script watches for a file instead.
    let folder = place("echo \"$4\" >> ports; while [ ! -e \"die-$4\" ]; do :; done; echo the last words >&2; exit 3");
    let clock = Paced::default();
    let server = module(&folder.path().join("python"), &clock);
    let (_, (first, port)) = tokio::join!(run(&*server, &clock, "action_a"), serve(&folder, 1));
    let die = |port: &str| fs::write(folder.path().join(format!("die-{port}")), "").unwrap();
    die(&port);
    drop(first);
    // The first restart has no pause.
    let (_second, port) = serve(&folder, 2).await;
    until(|| server.status() == Health::Up).await;
    die(&port);
    until(|| matches!(server.status(), Health::Down { .. })).await;
    let error = error(run(&*server, &clock, "action_a").await);
    assert!(error.code == "unreachable" && error.message.contains("the last words"), "{error:?}");
    assert_eq!(lines(&folder, "ports").len(), 2, "a pause begins");
    clock.0.advance(limits::ACTION_BACKOFF[1]);
    let (_third, port) = serve(&folder, 3).await;
    until(|| server.status() == Health::Up).await;
    // After a long run the pauses start again.
    clock.0.advance(limits::ACTION_STABLE);
    die(&port);
    let (_fourth, port) = serve(&folder, 4).await;
    until(|| server.status() == Health::Up).await;
    die(&port);
    server.close(&clock.0.context(Duration::from_secs(60))).await;
}

#[tokio::test]
async fn missing_python_or_library_is_reported_with_the_fix() {
    let lacks = place("echo started >> starts; echo \"python: No module named rasa_sdk\" >&2; exit 1");
    let clock = Paced::default();
    for (python, cure) in
        [(lacks.path().join("nowhere"), "SEGUE_PYTHON"), (lacks.path().join("python"), "-m pip install rasa-sdk")]
    {
        let server = module(&python, &clock);
        let error = error(run(&*server, &clock, "action_a").await);
        assert_eq!((error.code.as_str(), error.may_have_run), ("unreachable", false));
        assert!(error.message.contains(cure) && error.message.contains("url"), "{}", error.message);
        server.close(&clock.0.context(Duration::from_secs(60))).await;
    }
}

#[tokio::test]
async fn child_that_never_became_ready_is_restarted_at_the_next_use() {
    let folder = place("echo started >> starts; exit 1");
    let clock = Paced::default();
    let server = module(&folder.path().join("python"), &clock);
    assert_eq!(error(run(&*server, &clock, "action_a").await).code, "unreachable");
    until(|| server.status() == Health::Unknown).await; // the first pause is none
    assert_eq!(lines(&folder, "starts").len(), 1, "it is not needed");
    assert_eq!(error(run(&*server, &clock, "action_a").await).code, "unreachable");
    assert_eq!(lines(&folder, "starts").len(), 2);
    assert_eq!(error(run(&*server, &clock, "action_a").await).code, "unreachable");
    assert_eq!(lines(&folder, "starts").len(), 2, "during the pause it fails at once");
    server.close(&clock.0.context(Duration::from_secs(60))).await;
}

#[tokio::test]
async fn unresponsive_child_is_ended() {
    let folder = place(LIVES);
    let clock = Paced::default();
    let server = module(&folder.path().join("python"), &clock);
    let mut running = std::pin::pin!(run(&*server, &clock, "action_a"));
    until(|| {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(running.as_mut().poll(&mut context).is_pending());
        !lines(&folder, "ports").is_empty()
    })
    .await;
    clock.0.advance(limits::ACTION_START);
    let error = error(running.await);
    assert_eq!(error.code, "unreachable", "{error:?}");
    until(|| server.status() != Health::Up && lines(&folder, "ports").len() == 1).await;
    server.close(&clock.0.context(Duration::from_secs(60))).await;
}

#[tokio::test]
async fn check_python_reports_missing_python_or_library() {
    let clock = Paced::default();
    let def = ActionEndpointDef { module: Some("actions".to_owned()), ..ActionEndpointDef::default() };
    for (script, wanted) in [("exit 0", None), ("exit 1", Some("pip install rasa-sdk"))] {
        let folder = place(script);
        let around = around(&clock, &[("SEGUE_PYTHON", folder.path().join("python").to_str().unwrap())]);
        let trouble = check_python(&def, &around).await;
        assert_eq!(trouble.is_some(), wanted.is_some(), "{trouble:?}");
        assert!(wanted.is_none_or(|wanted| trouble.unwrap().contains(wanted)));
        let elsewhere = ActionEndpointDef { url: Some("http://x".to_owned()), ..def.clone() };
        assert_eq!(check_python(&elsewhere, &around).await, None, "a `url` needs no Python");
    }
    assert!(check_python(&def, &around(&clock, &[("SEGUE_PYTHON", "/nowhere")])).await.is_some());
}

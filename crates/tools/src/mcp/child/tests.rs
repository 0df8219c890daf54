//! Child processes: what they inherit, what is kept of them, and that none stays behind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use std::sync::Arc;

use super::*;
use segue_base::{clock::SystemClock, http::HttpClients, limits};

fn around(environment: &[(&str, &str)]) -> McpEnvironment {
    let path = std::env::var_os("PATH").unwrap().into_string().unwrap();
    let given = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    McpEnvironment {
        clock: Arc::new(SystemClock),
        http: HttpClients::new(),
        program: "segue".into(),
        directory: Some("/".into()),
        environment: given.chain([("PATH".to_owned(), path)]).collect(),
        logins: None,
    }
}

fn shell(script: &str, env: &[(String, String)], around: &McpEnvironment) -> SpawnedChild {
    start("sh", &["-c".to_owned(), script.to_owned()], env, around).unwrap()
}

#[tokio::test]
async fn a_child_inherits_little_and_gets_what_its_entry_says() {
    let around = around(&[("OPENAI_API_KEY", "secret"), ("LANG", "C"), ("HOME", "/home/x")]);
    let env = [("TOKEN".to_owned(), "t".to_owned()), ("LANG".to_owned(), "de".to_owned())];
    let mut started = shell("env; pwd", &env, &around);
    let mut text = String::new();
    started.output.read_to_string(&mut text).await.unwrap();
    let has = |line: &str| text.lines().any(|found| found == line);
    assert!(has("TOKEN=t") && has("LANG=de") && has("HOME=/home/x") && has("/"), "{text}");
    assert!(!text.contains("secret"), "{text}");
    started.child.terminate().await;
}

#[tokio::test]
async fn standard_error_is_drained_and_its_end_is_kept() {
    // Far more than a pipe holds: a child whose errors nobody reads would stand still.
    let script = "i=0; while [ $i -lt 4000 ]; do echo 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' >&2; \
                  i=$((i+1)); done; echo the end >&2; exec 2>&-; echo done; read line";
    let mut started = shell(script, &[], &around(&[]));
    let mut line = String::new();
    BufReader::new(&mut started.output).read_line(&mut line).await.unwrap();
    assert_eq!(line, "done\n");
    while !started.errors.last(100).ends_with("the end") {
        tokio::task::yield_now().await;
    }
    assert!(started.errors.last(usize::MAX).len() <= limits::MCP_STDERR);
    drop(started.input);
    started.child.terminate().await;
}

#[tokio::test]
async fn a_childs_children_end_with_it() {
    // The grandchild holds the pipe open as long as it lives.
    let SpawnedChild { child, mut output, input, .. } = shell("sleep 1000 & echo started; wait", &[], &around(&[]));
    let mut first = [0; 8];
    output.read_exact(&mut first).await.unwrap();
    drop(child);
    assert_eq!(output.read_to_end(&mut Vec::new()).await.unwrap(), 0);
    drop(input);
}

#[tokio::test]
async fn a_child_that_ignores_everything_is_killed() {
    let SpawnedChild { child, mut output, input, .. } =
        shell("trap '' TERM; echo on; while :; do sleep 9; done", &[], &around(&[]));
    let mut first = [0; 3];
    output.read_exact(&mut first).await.unwrap();
    drop(input);
    child.terminate().await;
    assert_eq!(output.read_to_end(&mut Vec::new()).await.unwrap(), 0);
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let Err(reason) = start("no-such-program", &[], &[], &around(&[])) else { panic!("it started") };
    assert!(reason.starts_with("`no-such-program` cannot be started: "), "{reason}");
}

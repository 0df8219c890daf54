//! Tests of child processes: environment, standard error, termination.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use std::sync::Arc;

use super::*;
use segue_base::{clock::SystemClock, limits};

fn mcp_environment(variables: &[(&str, &str)]) -> McpEnvironment {
    let path = std::env::var_os("PATH").unwrap().into_string().unwrap();
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    McpEnvironment {
        directory: Some("/".into()),
        variables: variables.chain([("PATH".to_owned(), path)]).collect(),
        ..McpEnvironment::new(Arc::new(SystemClock), "segue")
    }
}

fn shell(script: &str, env: &[(String, String)], environment: &McpEnvironment) -> SpawnedChild {
    start("sh", &["-c".to_owned(), script.to_owned()], env, environment).unwrap()
}

#[tokio::test]
async fn a_child_inherits_only_listed_variables_and_gets_those_of_its_entry() {
    let environment = mcp_environment(&[("OPENAI_API_KEY", "secret"), ("LANG", "C"), ("HOME", "/home/x")]);
    let env = [("TOKEN".to_owned(), "t".to_owned()), ("LANG".to_owned(), "de".to_owned())];
    let mut spawned = shell("env; pwd", &env, &environment);
    let mut text = String::new();
    spawned.output.read_to_string(&mut text).await.unwrap();
    let has = |line: &str| text.lines().any(|found| found == line);
    assert!(has("TOKEN=t") && has("LANG=de") && has("HOME=/home/x") && has("/"), "{text}");
    assert!(!text.contains("secret"), "{text}");
    spawned.child.terminate().await;
}

#[tokio::test]
async fn standard_error_is_drained_and_its_end_is_stored() {
    // More than a pipe buffers: the child would block if its standard error were not read.
    let script = "i=0; while [ $i -lt 4000 ]; do echo 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' >&2; \
                  i=$((i+1)); done; echo the end >&2; exec 2>&-; echo done; read line";
    let mut spawned = shell(script, &[], &mcp_environment(&[]));
    let mut line = String::new();
    BufReader::new(&mut spawned.output).read_line(&mut line).await.unwrap();
    assert_eq!(line, "done\n");
    while !spawned.errors.last(100).ends_with("the end") {
        tokio::task::yield_now().await;
    }
    assert!(spawned.errors.last(usize::MAX).len() <= limits::MCP_STDERR);
    drop(spawned.input);
    spawned.child.terminate().await;
}

#[tokio::test]
async fn grandchildren_end_with_the_child() {
    // The grandchild keeps the pipe open until it ends.
    let SpawnedChild { child, mut output, input, .. } =
        shell("sleep 1000 & echo started; wait", &[], &mcp_environment(&[]));
    let mut first = [0; 8];
    output.read_exact(&mut first).await.unwrap();
    drop(child);
    assert_eq!(output.read_to_end(&mut Vec::new()).await.unwrap(), 0);
    drop(input);
}

#[tokio::test]
async fn a_child_that_ignores_sigterm_is_killed() {
    let SpawnedChild { child, mut output, input, .. } =
        shell("trap '' TERM; echo on; while :; do sleep 9; done", &[], &mcp_environment(&[]));
    let mut first = [0; 3];
    output.read_exact(&mut first).await.unwrap();
    drop(input);
    child.terminate().await;
    assert_eq!(output.read_to_end(&mut Vec::new()).await.unwrap(), 0);
}

#[tokio::test]
async fn start_error_names_the_missing_program() {
    let Err(reason) = start("no-such-program", &[], &[], &mcp_environment(&[])) else { panic!("it started") };
    assert!(reason.starts_with("`no-such-program` cannot be started: "), "{reason}");
}

//! Segue's MCP client with the reference server `server-everything` and with a server on the Python SDK, over stdio and HTTP.

use std::{
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use segue::{
    clock::SystemClock,
    context::CallContext,
    environment,
    tools::{
        FailureKind, Health, Progress, ToolCallContext, ToolHandler, ToolOutcome, ToolSource,
        mcp::{McpEnvironment, McpServer},
    },
};
use segue_engine::project::{McpServerDef, McpTransport};
use serde_json::{Value as Json, json};

use crate::processes::{ChildProcess, everything, everything_http, fastmcp, fastmcp_http, free_port};

/// The longest wait for a server. Starting an interpreter on a busy machine takes seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The definition of an MCP server, as in `endpoints.yml`.
pub(crate) fn entry(transport: McpTransport) -> McpServerDef {
    McpServerDef {
        connect_timeout: Some(TIMEOUT),
        trust_annotations: true,
        effects: [("grow".to_owned(), "idempotent".to_owned())].into_iter().collect(),
        ..McpServerDef::new("interop", transport)
    }
}

fn client(transport: McpTransport) -> McpServer {
    let def = entry(transport);
    let environment = McpEnvironment {
        variables: environment::all().into(),
        ..McpEnvironment::new(Arc::new(SystemClock), environment::program())
    };
    McpServer::new(&def, environment)
}

fn over_stdio(command: &Command) -> McpServer {
    let text = |argument: &std::ffi::OsStr| argument.to_str().unwrap().to_owned();
    client(McpTransport::Stdio {
        command: text(command.get_program()),
        args: command.get_args().map(text).collect(),
        env: Vec::new(),
    })
}

fn over_http(port: u16) -> McpServer {
    client(McpTransport::Http { url: format!("http://127.0.0.1:{port}/mcp") })
}

fn everything_on(port: u16) -> ChildProcess {
    let mut server = ChildProcess::start(&mut everything_http(port));
    server.wait_for_line("listening on port");
    server
}

/// Starts the Python server. Returns it with its port.
fn fastmcp_on(port: u16) -> (ChildProcess, u16) {
    let mut server = ChildProcess::start(&mut fastmcp_http(port));
    let port = server.port();
    (server, port)
}

pub(crate) fn context() -> ToolCallContext {
    ToolCallContext::new(CallContext::new(Arc::new(SystemClock), TIMEOUT), "c", "k")
}

fn context_with_timeout(timeout: Duration) -> ToolCallContext {
    context().with_timeout(timeout)
}

async fn names(server: &McpServer) -> Vec<String> {
    let catalog = server.list(&context().cx).await.unwrap();
    assert!(catalog.excluded.is_empty(), "{catalog:?}");
    catalog.tools.iter().map(|tool| tool.info().name.to_string()).collect()
}

pub(crate) async fn tool(server: &McpServer, name: &str) -> Arc<dyn ToolHandler> {
    let catalog = server.list(&context().cx).await.unwrap();
    catalog.tools.iter().find(|tool| &*tool.info().name == name).unwrap().clone()
}

pub(crate) async fn call(server: &McpServer, name: &str, arguments: Json) -> ToolOutcome {
    tool(server, name).await.call(arguments, &context()).await
}

/// Whether a call has failed or has an unknown outcome, and the kind of failure.
fn failure(outcome: &ToolOutcome) -> (&'static str, FailureKind) {
    match outcome {
        ToolOutcome::Failed(failure) => ("failed", failure.kind),
        ToolOutcome::Unknown(failure) => ("unknown", failure.kind),
        other => panic!("{other:?}"),
    }
}

/// Checks the tools of the reference server.
async fn check_reference_server(server: &McpServer) {
    let names = names(server).await;
    for name in ["echo", "get-sum", "get-structured-content", "get-tiny-image", "trigger-long-running-operation"] {
        assert!(names.iter().any(|found| found == name), "{name} is missing in {names:?}");
    }
    assert_eq!(server.status(), Health::Up);
    assert_eq!(call(server, "echo", json!({"message": "grüße"})).await.for_model(), "Echo: grüße");
    let weather = call(server, "get-structured-content", json!({"location": "Chicago"})).await;
    let ToolOutcome::Done(output) = &weather else { panic!("{weather:?}") };
    assert!(output.structured.as_ref().unwrap()["temperature"].is_number(), "{output:?}");
    let image = call(server, "get-tiny-image", json!({})).await.for_model();
    assert!(image.contains("(an image, image/png; not shown)"), "{image}");
    let wrong = call(server, "get-sum", json!({"a": "one"})).await;
    assert_eq!(failure(&wrong).0, "failed", "{wrong:?}");
    check_progress(server).await;
    let slow = tool(server, "trigger-long-running-operation").await;
    let timeout = context_with_timeout(Duration::from_millis(300));
    let outcome = slow.call(json!({"duration": 50, "steps": 5}), &timeout).await;
    assert_eq!(failure(&outcome).1, FailureKind::Timeout);
    assert_eq!(call(server, "echo", json!({"message": "still here"})).await.for_model(), "Echo: still here");
}

/// Checks the progress notifications of a long call.
async fn check_progress(server: &McpServer) {
    let received: Arc<Mutex<Vec<Progress>>> = Arc::default();
    let sink = received.clone();
    let on_progress = move |progress| sink.lock().unwrap().push(progress);
    let cx = context().with_progress(on_progress);
    let long = tool(server, "trigger-long-running-operation").await;
    let outcome = long.call(json!({"duration": 1, "steps": 4}), &cx).await;
    assert!(matches!(outcome, ToolOutcome::Done(_)), "{outcome:?}");
    let received = received.lock().unwrap();
    assert!(!received.is_empty() && received.iter().all(|progress| progress.total == Some(4.0)), "{received:?}");
}

/// Checks the tools of `fastmcp_server.py`.
async fn check_python_server(server: &McpServer) {
    assert!(names(server).await.iter().any(|name| name == "quote"));
    let quote = call(server, "quote", json!({"item": "tea", "count": 2})).await;
    assert_eq!(quote.for_model(), r#"{"item":"tea","pence":500,"currency":"GBP"}"#);
    let lookup = call(server, "lookup", json!({"key": "known"})).await;
    let ToolOutcome::Done(output) = &lookup else { panic!("{lookup:?}") };
    assert_eq!(output.structured.as_ref().unwrap()["found"], true, "a dictionary is not wrapped");
    assert_eq!(call(server, "total", json!({"numbers": [1, 2, 3]})).await.for_model(), "6");
    assert_eq!(call(server, "describe", json!({"thing": "boat"})).await.for_model(), "A boat of the usual kind.");
    let error = call(server, "refuse", json!({"reason": "sold out"})).await;
    assert_eq!(failure(&error), ("failed", FailureKind::ToolError));
    assert!(error.for_model().contains("sold out"));
    let hang = tool(server, "hang").await;
    let outcome = hang.call(json!({}), &context_with_timeout(Duration::from_millis(500))).await;
    assert_eq!(failure(&outcome), ("unknown", FailureKind::Timeout));
    let next = call(server, "total", json!({"numbers": [4]})).await;
    assert_eq!(next.for_model(), "4", "a call without an answer does not block other calls");
}

/// Checks the notification `notifications/tools/list_changed`.
async fn check_list_changes(server: &McpServer) {
    assert!(!names(server).await.iter().any(|name| name == "sprout"));
    let mut changes = server.changes();
    changes.mark_unchanged();
    call(server, "grow", json!({"name": "sprout"})).await;
    tokio::time::timeout(TIMEOUT, changes.changed()).await.expect("a change of the list").unwrap();
    assert_eq!(call(server, "sprout", json!({"text": "hi"})).await.for_model(), "sprout: hi");
    changes.mark_unchanged();
    call(server, "shrink", json!({"name": "sprout"})).await;
    tokio::time::timeout(TIMEOUT, changes.changed()).await.expect("a change of the list").unwrap();
    assert!(!names(server).await.iter().any(|name| name == "sprout"));
}

#[tokio::test]
async fn reference_server_works_over_stdio() {
    let server = over_stdio(&everything());
    check_reference_server(&server).await;
    server.close(&context().cx).await;
}

#[tokio::test]
async fn reference_server_works_over_http() {
    let port = free_port();
    let _process = everything_on(port);
    let server = over_http(port);
    check_reference_server(&server).await;
    server.close(&context().cx).await;
}

#[tokio::test]
async fn python_server_works_over_stdio() {
    let server = over_stdio(&fastmcp());
    check_python_server(&server).await;
    check_list_changes(&server).await;
    server.close(&context().cx).await;
}

#[tokio::test]
async fn python_server_works_over_http() {
    let (_process, port) = fastmcp_on(0);
    let server = over_http(port);
    check_python_server(&server).await;
    server.close(&context().cx).await;
}

#[tokio::test]
async fn list_change_is_notified_over_http() {
    let (_process, port) = fastmcp_on(0);
    let server = over_http(port);
    check_list_changes(&server).await;
}

#[tokio::test]
async fn stdio_server_restarts_after_a_crash_during_a_call() {
    let server = over_stdio(&fastmcp());
    let outcome = call(&server, "die", json!({})).await;
    assert_eq!(failure(&outcome), ("unknown", FailureKind::Unavailable));
    assert_eq!(call(&server, "total", json!({"numbers": [7]})).await.for_model(), "7");
    assert_eq!(server.status(), Health::Up);
}

#[tokio::test]
async fn http_client_reconnects_after_a_crash_of_the_server_during_a_call() {
    let (process, port) = fastmcp_on(0);
    let server = over_http(port);
    let clock = SystemClock;
    let start = segue::clock::Clock::elapsed(&clock);
    let outcome = call(&server, "die", json!({})).await;
    assert_eq!(failure(&outcome), ("unknown", FailureKind::Unavailable));
    let duration = segue::clock::Clock::elapsed(&clock) - start;
    assert!(duration < TIMEOUT / 6, "the call fails before its deadline: {duration:?}");
    drop(process);
    let (_process, _) = fastmcp_on(port);
    assert_eq!(call(&server, "total", json!({"numbers": [7]})).await.for_model(), "7");
}

#[tokio::test]
async fn client_starts_a_new_session_after_a_restart_of_the_server() {
    let port = free_port();
    let process = everything_on(port);
    let server = over_http(port);
    let echo = tool(&server, "echo").await;
    assert_eq!(echo.call(json!({"message": "1"}), &context()).await.for_model(), "Echo: 1");
    drop(process);
    let _process = everything_on(port);
    // The reference server annotates `echo` as read-only, so the call may be repeated in the new session.
    assert_eq!(echo.info().effect, segue::tools::EffectClass::Read);
    assert_eq!(echo.call(json!({"message": "2"}), &context()).await.for_model(), "Echo: 2");
    assert_eq!(server.status(), Health::Up);
}

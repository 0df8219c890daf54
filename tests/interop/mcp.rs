//! The MCP client against servers of others: the reference server and one on the Python SDK, over pipes and over HTTP.

use std::{
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use indexmap::IndexMap;
use segue::{
    clock::SystemClock,
    context::CallContext,
    environment,
    http::HttpClients,
    tools::{
        FailureKind, Progress, SourceStatus, ToolCallContext, ToolCaller, ToolHandler, ToolOutcome, ToolSource,
        mcp::{McpEnvironment, McpServer},
    },
};
use segue_engine::{
    finding::SourceLocation,
    project::{McpServerDef, McpTransport},
};
use serde_json::{Map, Value as Json, json};

use crate::parts::{Part, everything, everything_http, fastmcp, fastmcp_http, free_port};

/// Starting an interpreter on a busy machine takes long.
const PATIENCE: Duration = Duration::from_secs(60);

/// An entry of `endpoints.yml`.
pub(crate) fn entry(transport: McpTransport) -> McpServerDef {
    McpServerDef {
        name: "foreign".into(),
        transport,
        headers: Vec::new(),
        oauth: None,
        meta_static: Map::new(),
        meta_slots: Vec::new(),
        meta_metadata: Vec::new(),
        connect_timeout: Some(PATIENCE),
        tool_timeout: None,
        tool_timeout_total: None,
        progress_messages: false,
        protocol_version: None,
        elicitation: IndexMap::new(),
        sampling: false,
        offers: Vec::new(),
        trust_annotations: true,
        effects: [("grow".to_owned(), "idempotent".to_owned())].into_iter().collect(),
        pin: false,
        place: SourceLocation::default(),
    }
}

fn client(transport: McpTransport) -> McpServer {
    let def = entry(transport);
    let around = McpEnvironment {
        clock: Arc::new(SystemClock),
        http: HttpClients::new(),
        program: environment::program(),
        directory: None,
        environment: environment::all().into(),
        logins: None,
    };
    McpServer::new(&def, around)
}

fn over_pipes(command: &Command) -> McpServer {
    let text = |part: &std::ffi::OsStr| part.to_str().unwrap().to_owned();
    client(McpTransport::Stdio {
        command: text(command.get_program()),
        args: command.get_args().map(text).collect(),
        env: Vec::new(),
    })
}

fn over_http(port: u16) -> McpServer {
    client(McpTransport::Http { url: format!("http://127.0.0.1:{port}/mcp") })
}

fn everything_on(port: u16) -> Part {
    let mut part = Part::start(&mut everything_http(port));
    part.line_with("listening on port");
    part
}

fn fastmcp_on(port: u16) -> (Part, u16) {
    let mut part = Part::start(&mut fastmcp_http(port));
    let port = part.port();
    (part, port)
}

pub(crate) fn context() -> ToolCallContext {
    ToolCallContext {
        cx: CallContext::new(Arc::new(SystemClock), PATIENCE),
        metadata: Arc::new(Map::new()),
        caller: ToolCaller { conversation: "c".into(), agent: None, flow: None },
        meta: Arc::new(Map::new()),
        progress: None,
        idempotency_key: "k".into(),
        effect: None,
        inquired: None,
    }
}

fn within(limit: Duration) -> ToolCallContext {
    let cx = context();
    ToolCallContext { cx: cx.cx.with_timeout(limit), ..cx }
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

fn ended(outcome: &ToolOutcome) -> (&'static str, FailureKind) {
    match outcome {
        ToolOutcome::Failed(failure) => ("failed", failure.kind),
        ToolOutcome::Unknown(failure) => ("unknown", failure.kind),
        other => panic!("{other:?}"),
    }
}

/// What every tool of the reference server does, whatever is between us.
async fn everything_works(server: &McpServer) {
    let names = names(server).await;
    for name in ["echo", "get-sum", "get-structured-content", "get-tiny-image", "trigger-long-running-operation"] {
        assert!(names.iter().any(|found| found == name), "{name} is missing in {names:?}");
    }
    assert_eq!(server.status(), SourceStatus::Up);
    assert_eq!(call(server, "echo", json!({"message": "grüße"})).await.for_model(), "Echo: grüße");
    let weather = call(server, "get-structured-content", json!({"location": "Chicago"})).await;
    let ToolOutcome::Done(output) = &weather else { panic!("{weather:?}") };
    assert!(output.structured.as_ref().unwrap()["temperature"].is_number(), "{output:?}");
    let image = call(server, "get-tiny-image", json!({})).await.for_model();
    assert!(image.contains("(an image, image/png; not shown)"), "{image}");
    let wrong = call(server, "get-sum", json!({"a": "one"})).await;
    assert_eq!(ended(&wrong).0, "failed", "{wrong:?}");
    news_of_a_long_call(server).await;
    let cut_off = tool(server, "trigger-long-running-operation").await;
    let outcome = cut_off.call(json!({"duration": 50, "steps": 5}), &within(Duration::from_millis(300))).await;
    assert_eq!(ended(&outcome).1, FailureKind::Timeout);
    assert_eq!(call(server, "echo", json!({"message": "still here"})).await.for_model(), "Echo: still here");
}

async fn news_of_a_long_call(server: &McpServer) {
    let news: Arc<Mutex<Vec<Progress>>> = Arc::default();
    let sink = news.clone();
    let cx = ToolCallContext { progress: Some(Arc::new(move |piece| sink.lock().unwrap().push(piece))), ..context() };
    let long = tool(server, "trigger-long-running-operation").await;
    let outcome = long.call(json!({"duration": 1, "steps": 4}), &cx).await;
    assert!(matches!(outcome, ToolOutcome::Done(_)), "{outcome:?}");
    let news = news.lock().unwrap();
    assert!(!news.is_empty() && news.iter().all(|piece| piece.total == Some(4.0)), "{news:?}");
}

/// What our server on the Python SDK does, whatever is between us.
async fn fastmcp_works(server: &McpServer) {
    assert!(names(server).await.iter().any(|name| name == "quote"));
    let quote = call(server, "quote", json!({"item": "tea", "count": 2})).await;
    assert_eq!(quote.for_model(), r#"{"item":"tea","pence":500,"currency":"GBP"}"#);
    let lookup = call(server, "lookup", json!({"key": "known"})).await;
    let ToolOutcome::Done(output) = &lookup else { panic!("{lookup:?}") };
    assert_eq!(output.structured.as_ref().unwrap()["found"], true, "a dictionary is not wrapped");
    assert_eq!(call(server, "total", json!({"numbers": [1, 2, 3]})).await.for_model(), "6");
    assert_eq!(call(server, "describe", json!({"thing": "boat"})).await.for_model(), "A boat of the usual kind.");
    let refused = call(server, "refuse", json!({"reason": "sold out"})).await;
    assert_eq!(ended(&refused), ("failed", FailureKind::ToolError));
    assert!(refused.for_model().contains("sold out"));
    let hang = tool(server, "hang").await;
    let outcome = hang.call(json!({}), &within(Duration::from_millis(500))).await;
    assert_eq!(ended(&outcome), ("unknown", FailureKind::Timeout));
    let again = call(server, "total", json!({"numbers": [4]})).await;
    assert_eq!(again.for_model(), "4", "a hang hurts nobody else");
}

/// A list that changes under a client.
async fn the_list_changes(server: &McpServer) {
    assert!(!names(server).await.iter().any(|name| name == "sprout"));
    let mut changes = server.changes();
    changes.mark_unchanged();
    call(server, "grow", json!({"name": "sprout"})).await;
    tokio::time::timeout(PATIENCE, changes.changed()).await.expect("the change is told").unwrap();
    assert_eq!(call(server, "sprout", json!({"text": "hi"})).await.for_model(), "sprout: hi");
    changes.mark_unchanged();
    call(server, "shrink", json!({"name": "sprout"})).await;
    tokio::time::timeout(PATIENCE, changes.changed()).await.expect("the change is told").unwrap();
    assert!(!names(server).await.iter().any(|name| name == "sprout"));
}

#[tokio::test]
async fn the_reference_server_over_pipes() {
    let server = over_pipes(&everything());
    everything_works(&server).await;
    server.close(&context().cx).await;
}

#[tokio::test]
async fn the_reference_server_over_http() {
    let port = free_port();
    let _part = everything_on(port);
    let server = over_http(port);
    everything_works(&server).await;
    server.close(&context().cx).await;
}

#[tokio::test]
async fn the_python_server_over_pipes() {
    let server = over_pipes(&fastmcp());
    fastmcp_works(&server).await;
    the_list_changes(&server).await;
    server.close(&context().cx).await;
}

#[tokio::test]
async fn the_python_server_over_http() {
    let (_part, port) = fastmcp_on(0);
    let server = over_http(port);
    fastmcp_works(&server).await;
    server.close(&context().cx).await;
}

#[tokio::test]
async fn a_changed_list_is_told_over_http() {
    let (_part, port) = fastmcp_on(0);
    let server = over_http(port);
    the_list_changes(&server).await;
}

#[tokio::test]
async fn a_child_that_dies_in_mid_call_is_started_again() {
    let server = over_pipes(&fastmcp());
    let outcome = call(&server, "die", json!({})).await;
    assert_eq!(ended(&outcome), ("unknown", FailureKind::Unavailable));
    assert_eq!(call(&server, "total", json!({"numbers": [7]})).await.for_model(), "7");
    assert_eq!(server.status(), SourceStatus::Up);
}

#[tokio::test]
async fn a_server_that_dies_in_mid_call_is_found_again_over_http() {
    let (part, port) = fastmcp_on(0);
    let server = over_http(port);
    let asked = SystemClock;
    let before = segue::clock::Clock::elapsed(&asked);
    let outcome = call(&server, "die", json!({})).await;
    assert_eq!(ended(&outcome), ("unknown", FailureKind::Unavailable));
    let took = segue::clock::Clock::elapsed(&asked) - before;
    assert!(took < PATIENCE / 6, "nobody waits for the deadline: {took:?}");
    drop(part);
    let (_part, _) = fastmcp_on(port);
    assert_eq!(call(&server, "total", json!({"numbers": [7]})).await.for_model(), "7");
}

#[tokio::test]
async fn a_server_that_was_restarted_forgot_our_session() {
    let port = free_port();
    let part = everything_on(port);
    let server = over_http(port);
    let echo = tool(&server, "echo").await;
    assert_eq!(echo.call(json!({"message": "1"}), &context()).await.for_model(), "Echo: 1");
    drop(part);
    let _part = everything_on(port);
    // The reference server says of `echo` that it only reads, so that it may be repeated.
    assert_eq!(echo.info().effect, segue::tools::EffectClass::Read);
    assert_eq!(echo.call(json!({"message": "2"}), &context()).await.for_model(), "Echo: 2");
    assert_eq!(server.status(), SourceStatus::Up);
}

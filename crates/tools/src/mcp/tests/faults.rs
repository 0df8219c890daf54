//! Tests of failing calls and connections: timeouts, lost connections, invalid messages, reconnection.
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value as Json, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use super::fake::{
    FakeConnection, FakeLog, answer_handshake, entry, environment, server, server_with, tool, tool_entry, with_tools,
};
use crate::{
    FailureKind, Health, ToolCallContext, ToolHandler, ToolOutcome, ToolOutput, ToolSource,
    fixture::{PausedClock, context},
    mcp::{McpServer, Pipes},
};
use segue_base::limits;

/// A server with the tools `w` (a write) and `r` (a read).
fn server_with_two_tools(on_call: impl Fn(&Json, &FakeConnection) + Send + Sync + 'static) -> (McpServer, FakeLog) {
    let change = |def: &mut segue_engine::project::McpServerDef| {
        def.effects.insert("r".into(), "read".into());
    };
    server_with(change, with_tools(json!([tool_entry("w"), tool_entry("r")]), on_call))
}

fn context_with_timeout(limit: Duration) -> ToolCallContext {
    let cx = context();
    ToolCallContext { cx: cx.cx.with_timeout(limit), ..cx }
}

fn status_and_kind(outcome: &ToolOutcome) -> (&'static str, FailureKind) {
    match outcome {
        ToolOutcome::Failed(failure) => ("failed", failure.kind),
        ToolOutcome::Unknown(failure) => ("unknown", failure.kind),
        other => panic!("{other:?}"),
    }
}

fn done(text: &str) -> ToolOutcome {
    ToolOutcome::Done(ToolOutput::text(text))
}

fn text(text: &str) -> Json {
    json!({"content": [{"type": "text", "text": text}]})
}

/// Calls the tool `name` with the argument `n`, by which the script distinguishes calls.
async fn call(server: &McpServer, name: &str, n: u64, cx: &ToolCallContext) -> ToolOutcome {
    tool(server, name, &context()).await.call(json!({"n": n}), cx).await
}

/// Sleeps on the paused clock.
async fn sleep(time: Duration) {
    let clock = context().cx.clock;
    clock.sleep(clock.deadline(time)).await;
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_timed_out_call_is_cancelled_and_its_late_response_is_ignored() {
    let hanging: Mutex<Option<Json>> = Mutex::new(None);
    let (server, log) = server_with_two_tools(move |message, out| match message["params"]["arguments"]["n"].as_u64() {
        Some(1 | 2) => *hanging.lock().unwrap() = Some(message.clone()),
        _ => {
            let late = hanging.lock().unwrap().take().unwrap();
            out.respond(&late, text("late"));
            out.respond(message, text("own"));
        }
    });
    assert_eq!(
        status_and_kind(&call(&server, "r", 1, &context_with_timeout(SECOND)).await),
        ("failed", FailureKind::Timeout)
    );
    assert_eq!(
        status_and_kind(&call(&server, "w", 2, &context_with_timeout(SECOND)).await),
        ("unknown", FailureKind::Timeout)
    );
    assert_eq!(call(&server, "r", 3, &context()).await, done("own"));
    let calls = log.all(|message| message["method"] == "tools/call");
    let cancelled = log.of("notifications/cancelled");
    assert_eq!(
        cancelled.iter().map(|params| &params["requestId"]).collect::<Vec<_>>(),
        [&calls[0]["id"], &calls[1]["id"]]
    );
    assert_eq!(log.sessions(), 1, "the session is kept while the server responds to pings");
    assert!(!log.of("ping").is_empty() || !log.all(|message| message["method"] == "ping").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_ping_after_a_timeout_causes_a_reconnection() {
    let (server, log) = server(|message, out| match message["method"].as_str() {
        Some("on_ping") => {}
        Some("tools/list") => out.respond(message, json!({"tools": [tool_entry("w")]})),
        Some("tools/call") if message["params"]["arguments"]["n"] == 2 => out.respond(message, text("alive")),
        _ => answer_handshake(message, out),
    });
    assert_eq!(
        status_and_kind(&call(&server, "w", 1, &context_with_timeout(SECOND)).await),
        ("unknown", FailureKind::Timeout)
    );
    sleep(limits::MCP_PING + SECOND).await;
    assert!(matches!(server.status(), Health::Down { .. }));
    assert_eq!(call(&server, "w", 2, &context()).await, done("alive"));
    assert_eq!(log.sessions(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_ends_a_running_write_at_once_and_the_next_call_reconnects() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let (server, log) = server_with_two_tools(move |message, out| {
        if count.fetch_add(1, Ordering::SeqCst) == 0 { out.disconnect() } else { out.respond(message, text("again")) }
    });
    let cx = context();
    let before = cx.cx.clock.elapsed();
    assert_eq!(status_and_kind(&call(&server, "w", 1, &cx).await), ("unknown", FailureKind::Unavailable));
    assert!(cx.cx.clock.elapsed() - before < SECOND, "the call does not wait for its deadline");
    assert_eq!(calls.load(Ordering::SeqCst), 1, "a write is never repeated");
    assert_eq!(call(&server, "w", 2, &context()).await, done("again"));
    assert_eq!(log.sessions(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_read_is_resent_once_after_a_lost_connection() {
    for (losses, expected) in [(1, None), (9, Some(("failed", FailureKind::Unavailable)))] {
        let calls = Arc::new(AtomicUsize::new(0));
        let count = calls.clone();
        let (server, log) = server_with_two_tools(move |message, out| {
            if count.fetch_add(1, Ordering::SeqCst) < losses {
                out.disconnect()
            } else {
                out.respond(message, text("again"))
            }
        });
        let outcome = call(&server, "r", 1, &context()).await;
        match expected {
            None => assert_eq!(outcome, done("again")),
            Some(expected) => assert_eq!(status_and_kind(&outcome), expected),
        }
        assert_eq!((calls.load(Ordering::SeqCst), log.sessions()), (2, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_lost_between_calls_is_noticed_before_the_next_write() {
    let (server, log) = server_with_two_tools(|message, out| {
        out.respond(message, text("ok"));
        out.disconnect();
    });
    for n in 1..=3 {
        assert_eq!(call(&server, "w", n, &context()).await, done("ok"), "call {n}");
    }
    assert_eq!(log.sessions(), 3);
}

#[tokio::test(start_paused = true)]
async fn dropping_or_cancelling_a_call_sends_a_cancellation() {
    let (server, log) = server_with_two_tools(|_, _| {});
    let cx = context();
    let read = tool(&server, "r", &cx).await;
    let mut dropped = read.call(json!({}), &cx);
    tokio::select! {
        biased;
        _ = &mut dropped => panic!("the server does not respond"),
        () = log.wait_for("tools/call", 1) => {}
    }
    drop(dropped);
    log.wait_for("notifications/cancelled", 1).await;
    let cancel = async {
        log.wait_for("tools/call", 2).await;
        cx.cx.cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(read.call(json!({}), &cx), cancel);
    assert_eq!(status_and_kind(&outcome), ("failed", FailureKind::Cancelled));
    log.wait_for("notifications/cancelled", 2).await;
}

#[tokio::test(start_paused = true)]
async fn requests_of_the_server_are_rejected_without_permission() {
    let (server, log) = server_with_two_tools(|message, out| {
        for (id, method) in ["sampling/createMessage", "roots/list", "elicitation/create"].iter().enumerate() {
            let params = match *method {
                "sampling/createMessage" => json!({
                    "messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 9
                }),
                "elicitation/create" => json!({
                    "message": "Password?", "requestedSchema": {"type": "object", "properties": {"p": {"type": "string"}}}
                }),
                _ => json!({}),
            };
            out.send(&json!({"jsonrpc": "2.0", "id": 900 + id, "method": method, "params": params}));
        }
        out.respond(message, text("ok"));
    });
    assert_eq!(call(&server, "w", 1, &context()).await, done("ok"));
    let responses = || log.all(|message| message["method"].is_null() && message["id"].as_u64() >= Some(900));
    for _ in 0..1000 {
        if responses().len() == 3 {
            break;
        }
        tokio::task::yield_now().await;
    }
    let responses = responses();
    assert_eq!(responses.len(), 3);
    for response in responses {
        assert!(response["error"]["code"] == -32601 || response["result"]["action"] == "decline", "{response}");
    }
    let capabilities = &log.of("initialize")[0]["capabilities"];
    assert_eq!(*capabilities, json!({}));
}

#[tokio::test(start_paused = true)]
async fn invalid_lines_are_ignored_up_to_a_limit_that_ends_the_session() {
    let (server, log) =
        server_with_two_tools(|message, out| match message["params"]["arguments"]["n"].as_u64().unwrap() {
            1 => {
                out.raw(
                b"a line of a log\n{\"half\": \n[]\n{\"jsonrpc\":\"2.0\",\"id\":\"unknown\",\"result\":{}}\n\xff\xfe\n",
            );
                out.send(&json!({"jsonrpc": "2.0", "id": 12345, "result": {"content": []}}));
                out.respond(message, text("ok"));
                out.respond(message, text("twice"));
            }
            2 => out.raw("noise\n".repeat(limits::MCP_NOISE / 6 + 1).as_bytes()),
            _ => {
                let (out, chunk) = (out.clone(), vec![b'{'; 256 * 1024]);
                (0..=limits::MCP_LINE / chunk.len()).for_each(|_| out.raw(&chunk));
            }
        });
    assert_eq!(call(&server, "w", 1, &context()).await, done("ok"));
    assert_eq!(log.sessions(), 1);
    assert_eq!(status_and_kind(&call(&server, "w", 2, &context()).await), ("unknown", FailureKind::Unavailable));
    assert_eq!(status_and_kind(&call(&server, "w", 3, &context()).await), ("unknown", FailureKind::Unavailable));
    assert_eq!(log.sessions(), 2);
}

#[tokio::test(start_paused = true)]
async fn reconnection_backs_off_and_is_limited() {
    let (server, log) = server(|_, out| out.disconnect());
    let cx = context();
    for _ in 0..3 {
        server.list(&cx.cx).await.unwrap_err();
    }
    assert_eq!(log.sessions(), 3, "the first pauses are short");
    let error = server.list(&cx.cx).await.unwrap_err();
    assert!(error.reason.contains("the next attempt is in"), "{error}");
    assert!(matches!(server.status(), Health::Down { .. }));
    for _ in 0..20 {
        sleep(25 * SECOND).await;
        let _ = server.list(&context().cx).await;
    }
    let attempts = log.sessions();
    assert_eq!(attempts, limits::MCP_RECONNECTS + 1, "the first connection and the reconnections");
    let error = server.list(&context().cx).await.unwrap_err();
    assert!(error.reason.contains("no more are made for now"), "{error}");
    sleep(limits::MCP_RECONNECT_WINDOW).await;
    let _ = server.list(&context().cx).await;
    assert_eq!(log.sessions(), attempts + 1);
}

#[tokio::test(start_paused = true)]
async fn the_handshake_times_out() {
    let (server, _) = server(|_, _| {});
    let cx = context();
    let before = cx.cx.clock.elapsed();
    let error = server.list(&cx.cx).await.unwrap_err();
    assert!(error.reason.contains("did not complete the handshake within 10s"), "{error}");
    let took = cx.cx.clock.elapsed() - before;
    assert!(took >= limits::MCP_INITIALISE && took < limits::MCP_INITIALISE + SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_without_time_left_is_not_sent() {
    let (server, log) = server_with_two_tools(|message, out| out.respond(message, text("ok")));
    let write = tool(&server, "w", &context()).await;
    let cx = ToolCallContext { cx: context().cx.with_timeout(Duration::ZERO), ..context() };
    assert_eq!(status_and_kind(&write.call(json!({}), &cx).await), ("failed", FailureKind::Timeout));
    assert_eq!(log.of("tools/call").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_closed_server_is_unavailable() {
    let (server, log) = server_with_two_tools(|message, out| out.respond(message, text("ok")));
    let cx = context();
    let write = tool(&server, "w", &cx).await;
    server.close(&cx.cx).await;
    assert_eq!(status_and_kind(&write.call(json!({}), &cx).await), ("failed", FailureKind::Unavailable));
    assert_eq!(log.sessions(), 1);
    let (unused, log) = server_with_two_tools(|_, _| {});
    unused.close(&cx.cx).await;
    unused.list(&cx.cx).await.unwrap_err();
    assert_eq!(log.sessions(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_initialize_is_sent_server_discover() {
    let (server, log) = server(|message, out| match message["method"].as_str() {
        Some("on_initialize") => {
            let error = json!({"code": -32601, "message": "no such method"});
            out.send(&json!({"jsonrpc": "2.0", "id": message["id"], "error": error}));
        }
        Some("server/discover") => out.respond(
            message,
            json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "new", "version": "1"}, "ttlMs": 0, "cacheScope": "private"
            }),
        ),
        Some("tools/list") => out.respond(
            message,
            json!({"resultType": "complete", "tools": [tool_entry("w")], "ttlMs": 0, "cacheScope": "private"}),
        ),
        Some("tools/call") => {
            out.respond(message, json!({"resultType": "complete", "content": [{"type": "text", "text": "new"}]}));
        }
        _ => {}
    });
    assert_eq!(call(&server, "w", 1, &context()).await, done("new"));
    assert_eq!(log.sessions(), 2);
}

#[tokio::test(start_paused = true)]
async fn tool_timeout_of_the_entry_is_the_idle_timeout_of_the_tool() {
    let change = |def: &mut segue_engine::project::McpServerDef| def.tool_timeout = Some(40 * SECOND);
    let (server, _) = server_with(change, with_tools(json!([tool_entry("w")]), |_, _| {}));
    let tool: Arc<dyn ToolHandler> = tool(&server, "w", &context()).await;
    assert_eq!(tool.idle_timeout(), Some(40 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_the_queue_wait_and_time_out_without_being_sent() {
    let (server, log) = server_with_two_tools(|_, _| {});
    let write = tool(&server, "w", &context()).await;
    let (long_timeout, short_timeout) = (context_with_timeout(30 * SECOND), context_with_timeout(SECOND));
    let first = futures::future::join_all((0..limits::MCP_QUEUE).map(|_| write.call(json!({}), &long_timeout)));
    let others = async {
        log.wait_for("tools/call", limits::MCP_QUEUE).await;
        let outcomes =
            futures::future::join_all((0..2 * limits::MCP_QUEUE).map(|_| write.call(json!({}), &short_timeout))).await;
        assert_eq!(log.of("tools/call").len(), limits::MCP_QUEUE);
        outcomes
    };
    let (first, others) = tokio::join!(first, others);
    assert!(first.iter().all(|outcome| status_and_kind(outcome) == ("unknown", FailureKind::Timeout)));
    assert!(
        others.iter().all(|outcome| status_and_kind(outcome) == ("failed", FailureKind::Timeout)),
        "the calls were not sent"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stable_session_resets_the_reconnection_backoff() {
    let sessions_until_failure = async |lifetime: Duration| {
        let (server, _) = server_with_two_tools(|message, out| {
            out.respond(message, text("ok"));
            if message["params"]["arguments"]["n"] == 2 {
                out.disconnect();
            }
        });
        let write = tool(&server, "w", &context()).await;
        for session in 0..9 {
            for n in 1..=2 {
                if write.call(json!({"n": n}), &context()).await != done("ok") {
                    return session;
                }
                sleep(if n == 1 { lifetime } else { Duration::from_millis(1) }).await;
            }
        }
        9
    };
    assert_eq!(sessions_until_failure(limits::MCP_STABLE).await, 9);
    assert!(sessions_until_failure(limits::MCP_STABLE - SECOND).await < 9, "losing a young session is a failure");
}

/// The server reads the call and nothing after it, and the pipe buffers almost nothing, so the cancellation cannot be sent.
#[tokio::test(start_paused = true)]
async fn a_cancellation_that_cannot_be_sent_times_out() {
    let pipes: Pipes = Arc::new(|| {
        let ((client_write, server_read), (client_read, mut server_write)) =
            (tokio::io::duplex(16), tokio::io::duplex(1024 * 1024));
        tokio::spawn(async move {
            let mut lines = BufReader::with_capacity(16, server_read).lines();
            while let Some(line) = lines.next_line().await.unwrap() {
                let message: Json = serde_json::from_str(&line).unwrap();
                let result = match message["method"].as_str() {
                    Some("initialize") => json!({
                        "protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                        "serverInfo": {"name": "deaf", "version": "1"}
                    }),
                    Some("tools/list") => json!({"tools": [tool_entry("w")]}),
                    Some("tools/call") => std::future::pending().await,
                    _ => continue,
                };
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
                server_write.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
            }
        });
        (Box::new(client_read), Box::new(client_write))
    });
    let entry = entry(segue_engine::project::McpTransport::Http { url: String::new() });
    let server = McpServer::in_process(&entry, pipes, environment(PausedClock::shared()));
    let write = tool(&server, "w", &context()).await;
    assert_eq!(
        status_and_kind(&write.call(json!({}), &context_with_timeout(SECOND)).await),
        ("unknown", FailureKind::Timeout)
    );
    assert_eq!(server.status(), Health::Up);
    // The cancellation times out, then the ping, then the session is dropped.
    sleep(limits::MCP_CANCEL + limits::MCP_PING + SECOND).await;
    assert!(matches!(server.status(), Health::Down { .. }), "{:?}", server.status());
}

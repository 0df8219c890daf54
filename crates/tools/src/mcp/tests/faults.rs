//! Calls and connections that go wrong.
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value as Json, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use super::fake::{Heard, Out, around, entry, listed, server, server_with, tool, usual, with_tools};
use crate::{
    FailureKind, SourceStatus, ToolCallContext, ToolHandler, ToolOutcome, ToolOutput, ToolSource,
    fixture::{PausedClock, context},
    mcp::{McpServer, Pipes},
};
use segue_base::limits;

/// A server with the tools `w` (a write) and `r` (a read).
fn two(on_call: impl Fn(&Json, &Out) + Send + Sync + 'static) -> (McpServer, Heard) {
    let change = |def: &mut segue_engine::project::McpServerDef| {
        def.effects.insert("r".into(), "read".into());
    };
    server_with(change, with_tools(json!([listed("w"), listed("r")]), on_call))
}

fn within(limit: Duration) -> ToolCallContext {
    let cx = context();
    ToolCallContext { cx: cx.cx.with_timeout(limit), ..cx }
}

fn ended(outcome: &ToolOutcome) -> (&'static str, FailureKind) {
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

/// Calls `name` with the argument `n`, so that a script knows which call it is.
async fn call(server: &McpServer, name: &str, n: u64, cx: &ToolCallContext) -> ToolOutcome {
    tool(server, name, &context()).await.call(json!({"n": n}), cx).await
}

/// Lets this much of the paused time go by.
async fn pass(time: Duration) {
    let clock = context().cx.clock;
    clock.sleep(clock.deadline(time)).await;
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_hanging_call_is_called_off_and_its_late_answer_reaches_nobody() {
    let hanging: Mutex<Option<Json>> = Mutex::new(None);
    let (server, heard) = two(move |message, out| match message["params"]["arguments"]["n"].as_u64() {
        Some(1 | 2) => *hanging.lock().unwrap() = Some(message.clone()),
        _ => {
            let late = hanging.lock().unwrap().take().unwrap();
            out.answer(&late, text("late"));
            out.answer(message, text("mine"));
        }
    });
    assert_eq!(ended(&call(&server, "r", 1, &within(SECOND)).await), ("failed", FailureKind::Timeout));
    assert_eq!(ended(&call(&server, "w", 2, &within(SECOND)).await), ("unknown", FailureKind::Timeout));
    assert_eq!(call(&server, "r", 3, &context()).await, done("mine"));
    let calls = heard.all(|message| message["method"] == "tools/call");
    let off = heard.of("notifications/cancelled");
    assert_eq!(off.iter().map(|params| &params["requestId"]).collect::<Vec<_>>(), [&calls[0]["id"], &calls[1]["id"]]);
    assert_eq!(heard.sessions(), 1, "whoever answers pings keeps the session");
    assert!(!heard.of("ping").is_empty() || !heard.all(|message| message["method"] == "ping").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_no_ping_after_a_hang_is_connected_anew() {
    let (server, heard) = server(|message, out| match message["method"].as_str() {
        Some("on_ping") => {}
        Some("tools/list") => out.answer(message, json!({"tools": [listed("w")]})),
        Some("tools/call") if message["params"]["arguments"]["n"] == 2 => out.answer(message, text("alive")),
        _ => usual(message, out),
    });
    assert_eq!(ended(&call(&server, "w", 1, &within(SECOND)).await), ("unknown", FailureKind::Timeout));
    pass(limits::MCP_PING + SECOND).await;
    assert!(matches!(server.status(), SourceStatus::Down { .. }));
    assert_eq!(call(&server, "w", 2, &context()).await, done("alive"));
    assert_eq!(heard.sessions(), 2);
}

#[tokio::test(start_paused = true)]
async fn death_in_mid_call_ends_all_calls_at_once_and_the_next_one_connects() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let (server, heard) =
        two(
            move |message, out| {
                if count.fetch_add(1, Ordering::SeqCst) == 0 { out.die() } else { out.answer(message, text("again")) }
            },
        );
    let cx = context();
    let before = cx.cx.clock.elapsed();
    assert_eq!(ended(&call(&server, "w", 1, &cx).await), ("unknown", FailureKind::Unavailable));
    assert!(cx.cx.clock.elapsed() - before < SECOND, "nobody waits for a deadline");
    assert_eq!(calls.load(Ordering::SeqCst), 1, "a write is never repeated");
    assert_eq!(call(&server, "w", 2, &context()).await, done("again"));
    assert_eq!(heard.sessions(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lost_read_is_repeated_once_and_no_more() {
    for (deaths, expected) in [(1, None), (9, Some(("failed", FailureKind::Unavailable)))] {
        let calls = Arc::new(AtomicUsize::new(0));
        let count = calls.clone();
        let (server, heard) = two(move |message, out| {
            if count.fetch_add(1, Ordering::SeqCst) < deaths { out.die() } else { out.answer(message, text("again")) }
        });
        let outcome = call(&server, "r", 1, &context()).await;
        match expected {
            None => assert_eq!(outcome, done("again")),
            Some(expected) => assert_eq!(ended(&outcome), expected),
        }
        assert_eq!((calls.load(Ordering::SeqCst), heard.sessions()), (2, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn death_between_calls_is_noticed_before_the_next_write_leaves() {
    let (server, heard) = two(|message, out| {
        out.answer(message, text("ok"));
        out.die();
    });
    for n in 1..=3 {
        assert_eq!(call(&server, "w", n, &context()).await, done("ok"), "call {n}");
    }
    assert_eq!(heard.sessions(), 3);
}

#[tokio::test(start_paused = true)]
async fn dropping_or_stopping_a_call_calls_it_off() {
    let (server, heard) = two(|_, _| {});
    let cx = context();
    let read = tool(&server, "r", &cx).await;
    let mut dropped = read.call(json!({}), &cx);
    tokio::select! {
        biased;
        _ = &mut dropped => panic!("nobody answers"),
        () = heard.wait_for("tools/call", 1) => {}
    }
    drop(dropped);
    heard.wait_for("notifications/cancelled", 1).await;
    let stopped = async {
        heard.wait_for("tools/call", 2).await;
        cx.cx.cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(read.call(json!({}), &cx), stopped);
    assert_eq!(ended(&outcome), ("failed", FailureKind::Cancelled));
    heard.wait_for("notifications/cancelled", 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_gets_nothing_of_us() {
    let (server, heard) = two(|message, out| {
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
        out.answer(message, text("ok"));
    });
    assert_eq!(call(&server, "w", 1, &context()).await, done("ok"));
    let answers = || heard.all(|message| message["method"].is_null() && message["id"].as_u64() >= Some(900));
    for _ in 0..1000 {
        if answers().len() == 3 {
            break;
        }
        tokio::task::yield_now().await;
    }
    let answers = answers();
    assert_eq!(answers.len(), 3);
    for answer in answers {
        assert!(answer["error"]["code"] == -32601 || answer["result"]["action"] == "decline", "{answer}");
    }
    let offered = &heard.of("initialize")[0]["capabilities"];
    assert_eq!(*offered, json!({}));
}

#[tokio::test(start_paused = true)]
async fn bytes_that_are_no_messages_are_dropped_or_end_the_session() {
    let (server, heard) = two(|message, out| match message["params"]["arguments"]["n"].as_u64().unwrap() {
        1 => {
            out.raw(
                b"a line of a log\n{\"half\": \n[]\n{\"jsonrpc\":\"2.0\",\"id\":\"unknown\",\"result\":{}}\n\xff\xfe\n",
            );
            out.send(&json!({"jsonrpc": "2.0", "id": 12345, "result": {"content": []}}));
            out.answer(message, text("ok"));
            out.answer(message, text("twice"));
        }
        2 => out.raw("noise\n".repeat(limits::MCP_INVALID_LINES + 1).as_bytes()),
        _ => {
            let (out, piece) = (out.clone(), vec![b'{'; 256 * 1024]);
            (0..=limits::MCP_LINE / piece.len()).for_each(|_| out.raw(&piece));
        }
    });
    assert_eq!(call(&server, "w", 1, &context()).await, done("ok"));
    assert_eq!(heard.sessions(), 1);
    assert_eq!(ended(&call(&server, "w", 2, &context()).await), ("unknown", FailureKind::Unavailable));
    assert_eq!(ended(&call(&server, "w", 3, &context()).await), ("unknown", FailureKind::Unavailable));
    assert_eq!(heard.sessions(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_reached_is_tried_less_and_less() {
    let (server, heard) = server(|_, out| out.die());
    let cx = context();
    for _ in 0..3 {
        server.list(&cx.cx).await.unwrap_err();
    }
    assert_eq!(heard.sessions(), 3, "the first pauses are short");
    let error = server.list(&cx.cx).await.unwrap_err();
    assert!(error.reason.contains("the next try is in"), "{error}");
    assert!(matches!(server.status(), SourceStatus::Down { .. }));
    for _ in 0..20 {
        pass(25 * SECOND).await;
        let _ = server.list(&context().cx).await;
    }
    let tries = heard.sessions();
    assert_eq!(tries, limits::MCP_RECONNECTS + 1, "the first connection and five more");
    let error = server.list(&context().cx).await.unwrap_err();
    assert!(error.reason.contains("and rests"), "{error}");
    pass(limits::MCP_RECONNECT_WINDOW).await;
    let _ = server.list(&context().cx).await;
    assert_eq!(heard.sessions(), tries + 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_slow_to_begin_is_given_up_in_time() {
    let (server, _) = server(|_, _| {});
    let cx = context();
    let before = cx.cx.clock.elapsed();
    let error = server.list(&cx.cx).await.unwrap_err();
    assert!(error.reason.contains("not ready to work in 10s"), "{error}");
    let took = cx.cx.clock.elapsed() - before;
    assert!(took >= limits::MCP_INITIALISE && took < limits::MCP_INITIALISE + SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_wait_for_the_connection_did_not_call() {
    let (server, heard) = two(|message, out| out.answer(message, text("ok")));
    let write = tool(&server, "w", &context()).await;
    let cx = ToolCallContext { cx: context().cx.with_timeout(Duration::ZERO), ..context() };
    assert_eq!(ended(&write.call(json!({}), &cx).await), ("failed", FailureKind::Timeout));
    assert_eq!(heard.of("tools/call").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_closed_server_answers_no_more() {
    let (server, heard) = two(|message, out| out.answer(message, text("ok")));
    let cx = context();
    let write = tool(&server, "w", &cx).await;
    server.close(&cx.cx).await;
    assert_eq!(ended(&write.call(json!({}), &cx).await), ("failed", FailureKind::Unavailable));
    assert_eq!(heard.sessions(), 1);
    let (never_used, heard) = two(|_, _| {});
    never_used.close(&cx.cx).await;
    never_used.list(&cx.cx).await.unwrap_err();
    assert_eq!(heard.sessions(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_the_handshake_is_asked_what_it_can() {
    let (server, heard) = server(|message, out| match message["method"].as_str() {
        Some("on_initialize") => {
            let error = json!({"code": -32601, "message": "no such method"});
            out.send(&json!({"jsonrpc": "2.0", "id": message["id"], "error": error}));
        }
        Some("server/discover") => out.answer(
            message,
            json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "new", "version": "1"}, "ttlMs": 0, "cacheScope": "private"
            }),
        ),
        Some("tools/list") => out.answer(
            message,
            json!({"resultType": "complete", "tools": [listed("w")], "ttlMs": 0, "cacheScope": "private"}),
        ),
        Some("tools/call") => {
            out.answer(message, json!({"resultType": "complete", "content": [{"type": "text", "text": "new"}]}));
        }
        _ => {}
    });
    assert_eq!(call(&server, "w", 1, &context()).await, done("new"));
    assert_eq!(heard.sessions(), 2);
}

/// Not a test of ours alone: the tool keeps its limit for whoever calls it.
#[tokio::test(start_paused = true)]
async fn the_entrys_time_for_calls_is_the_tools_limit() {
    let change = |def: &mut segue_engine::project::McpServerDef| def.tool_timeout = Some(40 * SECOND);
    let (server, _) = server_with(change, with_tools(json!([listed("w")]), |_, _| {}));
    let tool: Arc<dyn ToolHandler> = tool(&server, "w", &context()).await;
    assert_eq!(tool.limit(), Some(40 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_the_queue_wait_and_never_left_when_their_time_is_over() {
    let (server, heard) = two(|_, _| {});
    let write = tool(&server, "w", &context()).await;
    let (patient, hasty) = (within(30 * SECOND), within(SECOND));
    let first = futures::future::join_all((0..limits::MCP_QUEUE).map(|_| write.call(json!({}), &patient)));
    let others = async {
        heard.wait_for("tools/call", limits::MCP_QUEUE).await;
        let outcomes =
            futures::future::join_all((0..2 * limits::MCP_QUEUE).map(|_| write.call(json!({}), &hasty))).await;
        assert_eq!(heard.of("tools/call").len(), limits::MCP_QUEUE);
        outcomes
    };
    let (first, others) = tokio::join!(first, others);
    assert!(first.iter().all(|outcome| ended(outcome) == ("unknown", FailureKind::Timeout)));
    assert!(others.iter().all(|outcome| ended(outcome) == ("failed", FailureKind::Timeout)), "they did not call");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_lived_long_begins_the_pauses_anew() {
    let lives = async |life: Duration| {
        let (server, _) = two(|message, out| {
            out.answer(message, text("ok"));
            if message["params"]["arguments"]["n"] == 2 {
                out.die();
            }
        });
        let write = tool(&server, "w", &context()).await;
        for lived in 0..9 {
            for n in 1..=2 {
                if write.call(json!({"n": n}), &context()).await != done("ok") {
                    return lived;
                }
                pass(if n == 1 { life } else { Duration::from_millis(1) }).await;
            }
        }
        9
    };
    assert_eq!(lives(limits::MCP_STABLE).await, 9);
    assert!(lives(limits::MCP_STABLE - SECOND).await < 9, "a short life is a failure");
}

/// The far side reads the call and nothing more, and the pipe holds next to nothing: the notice that nobody waits any
/// more cannot leave.
#[tokio::test(start_paused = true)]
async fn a_notice_that_cannot_leave_is_given_up() {
    let pipes: Pipes = Arc::new(|| {
        let ((near_write, far_read), (near_read, mut far_write)) =
            (tokio::io::duplex(16), tokio::io::duplex(1024 * 1024));
        tokio::spawn(async move {
            let mut lines = BufReader::with_capacity(16, far_read).lines();
            while let Some(line) = lines.next_line().await.unwrap() {
                let message: Json = serde_json::from_str(&line).unwrap();
                let result = match message["method"].as_str() {
                    Some("initialize") => json!({
                        "protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                        "serverInfo": {"name": "deaf", "version": "1"}
                    }),
                    Some("tools/list") => json!({"tools": [listed("w")]}),
                    Some("tools/call") => std::future::pending().await,
                    _ => continue,
                };
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
                far_write.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
            }
        });
        (Box::new(near_read), Box::new(near_write))
    });
    let entry = entry(segue_engine::project::McpTransport::Http { url: String::new() });
    let server = McpServer::in_process(&entry, pipes, around(PausedClock::shared()));
    let write = tool(&server, "w", &context()).await;
    assert_eq!(ended(&write.call(json!({}), &within(SECOND)).await), ("unknown", FailureKind::Timeout));
    assert_eq!(server.status(), SourceStatus::Up);
    // First the notice, then a ping, has its time; then the session is given up.
    pass(limits::MCP_CANCEL + limits::MCP_PING + SECOND).await;
    assert!(matches!(server.status(), SourceStatus::Down { .. }), "{:?}", server.status());
}

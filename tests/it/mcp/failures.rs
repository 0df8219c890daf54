//! Failures of an MCP server over pipes and as a child process: start, crash, timeout, invalid messages, tools, and results.

use std::time::Duration;

use segue::{clock::SystemClock, limits, tools::Health};
use serde_json::{Value as Json, json};

use super::{
    fake_server::{FakeMcpServer, listed},
    *,
};

#[tokio::test]
async fn missing_server_does_not_block_startup() {
    let conversation =
        TestConversation::of(builder("type: stdio, command: /nowhere/at-all").clock(Arc::new(SystemClock)));
    conversation.assert_fails("/work", "/nowhere/at-all").await;
    let status = conversation.assistant.tool_source_status().into_iter().find(|(name, _)| name == "remote").unwrap().1;
    assert!(matches!(status, Health::Down { .. }), "{status:?}");
    let (replies, failures) = conversation.say("/ask").await;
    assert_eq!(replies, ["Broken."]);
    assert!(failures.starts_with("A0509: agent clerk: none of its MCP servers answers: remote:"), "{failures}");
}

#[tokio::test]
async fn initialize_times_out() {
    let server = FakeMcpServer::new(|_, _, server| server.clock.advance(limits::MCP_INITIALISE));
    let conversation = TestConversation::with(&server, "");
    conversation.assert_fails("/work", "the deadline passed").await;
}

#[tokio::test]
async fn unsupported_protocol_version_is_refused() {
    let server = FakeMcpServer::new(|message, out, _| {
        let error =
            json!({"code": -32022, "message": "Unsupported protocol version", "data": {"supported": ["1999-01-01"]}});
        if !message["id"].is_null() {
            out.send(&json!({"jsonrpc": "2.0", "id": message["id"], "error": error}));
        }
    });
    TestConversation::with(&server, "").assert_fails("/work", "it rejects the handshake").await;
}

#[tokio::test]
async fn closed_connection_fails_the_call_and_the_next_call_reconnects() {
    let server =
        FakeMcpServer::answering_calls(|message, out, n| if n == 0 { out.close() } else { out.text(message, "yes") });
    let conversation = TestConversation::with(&server, "");
    conversation.assert_unknown("/work", "unavailable: The connection to it was lost before it answered").await;
    assert_eq!(server.params_of("tools/call").len(), 1, "a write is never sent twice");
    conversation.assert_succeeds("/work", "yes").await;
    assert_eq!(server.sessions(), 2);

    let server =
        FakeMcpServer::answering_calls(|message, out, n| if n == 0 { out.close() } else { out.text(message, "yes") });
    TestConversation::with(&server, "").assert_succeeds("/look", "yes").await;
    assert_eq!(server.params_of("tools/call").len(), 2, "a read is sent again");
}

#[tokio::test]
async fn hanging_call_is_cancelled_at_its_timeout() {
    let server = FakeMcpServer::new(|message, out, server| match message["method"].as_str() {
        Some("tools/call") if server.params_of("tools/call").len() == 1 => server.clock.advance(Duration::from_secs(3)),
        Some("tools/call") => out.text(message, "yes"),
        _ => server.default_answer(message, out),
    });
    let conversation = TestConversation::with(&server, "tool_timeout: 3");
    // The outcome of a write is unknown after a timeout.
    conversation.assert_unknown("/work", "timeout: It did not answer within 3 s").await;
    assert_eq!(server.params_of("tools/call").len(), 1, "the call is not repeated");
    assert_eq!(server.params_of("notifications/cancelled").len(), 1, "the call is cancelled once");
    conversation.assert_succeeds("/work", "yes").await;
    assert_eq!(server.sessions(), 1, "the session is kept for other calls");
}

#[tokio::test]
async fn late_result_is_dropped() {
    let first = Arc::new(Mutex::new(None));
    let server = FakeMcpServer::new(move |message, out, server| match message["method"].as_str() {
        Some("tools/call") if server.params_of("tools/call").len() == 1 => {
            *first.lock().unwrap() = Some(message.clone());
            server.clock.advance(Duration::from_secs(3));
        }
        Some("tools/call") => {
            out.text(&first.lock().unwrap().take().unwrap(), "late");
            out.text(message, "in time");
        }
        _ => server.default_answer(message, out),
    });
    let conversation = TestConversation::with(&server, "tool_timeout: 3");
    conversation.assert_unknown("/work", "timeout: It did not answer within 3 s").await;
    conversation.assert_succeeds("/work", "in time").await;
    let trace = serde_json::to_string(&conversation.assistant.trace(&"u".into(), None).await.unwrap()).unwrap();
    assert!(!trace.contains("late"), "the late result is in no turn");
}

#[tokio::test]
async fn invalid_messages_are_dropped_up_to_a_limit() {
    let noise = |lines: usize| {
        FakeMcpServer::answering_calls(move |message, out, n| {
            if n == 0 {
                out.raw("starting up\n".repeat(lines).as_bytes());
                out.send(&json!({"jsonrpc": "2.0", "id": 4711, "result": {}}));
                out.raw(b"{\"jsonrpc\": \"2.0\", \"id\": {}, \"result\": 7}\n{\"broken\n");
            }
            out.text(message, "yes");
        })
    };
    TestConversation::with(&noise(2_000), "").assert_succeeds("/work", "yes").await;
    let conversation = TestConversation::with(&noise(limits::MCP_NOISE / 12 + 1), "");
    conversation.assert_unknown("/work", "unavailable: The connection to it was lost").await;
    conversation.assert_succeeds("/work", "yes").await;
}

#[tokio::test]
async fn endless_line_ends_the_session() {
    let server = FakeMcpServer::answering_calls(|message, out, n| match n {
        0 => out.raw(&vec![b'{'; limits::MCP_LINE + 2]),
        _ => out.text(message, "yes"),
    });
    let conversation = TestConversation::with(&server, "");
    conversation.assert_unknown("/work", "unavailable: The connection to it was lost").await;
    conversation.assert_succeeds("/work", "yes").await;
}

#[cfg(unix)]
#[tokio::test]
async fn standard_error_of_a_server_is_always_drained() {
    let script = r#"
        head -c 1000000 /dev/zero | tr '\0' x >&2
        answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
        read a; answer 0 '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}'
        read b; read c; answer 1 '{"tools":[{"name":"work","inputSchema":{"type":"object"}}]}'
        head -c 1000000 /dev/zero | tr '\0' x >&2
        read d; answer 2 '{"content":[{"type":"text","text":"yes"}]}'
        read e
    "#;
    let conversation = |script: &str| {
        let entry = format!("type: stdio, command: sh, args: [-c, {}], env: {{PATH: /usr/bin:/bin}}", json!(script));
        TestConversation::of(builder(&entry).clock(Arc::new(SystemClock)))
    };
    conversation(script).assert_succeeds("/work", "yes").await;
    let failing_script = r#"head -c 1000000 /dev/zero | tr '\0' x >&2; echo the disk is full >&2"#;
    conversation(failing_script).assert_fails("/work", "the disk is full").await;
}

#[tokio::test]
async fn changed_tool_list_applies_to_the_next_turn() {
    let server = FakeMcpServer::answering_calls(|message, out, _| out.text(message, "yes"));
    let (tools, script) = (server.tools.clone(), server.clone());
    let changing = FakeMcpServer::new(move |message, out, _| {
        script.default_answer(message, out);
        if message["method"] == "tools/call" {
            *tools.lock().unwrap() = json!([listed("other", json!({}))]);
            out.send(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
            out.text(message, "yes");
        }
    });
    let conversation = TestConversation::with(&changing, "");
    conversation.assert_succeeds("/work", "yes").await;
    conversation.assert_fails("/work", "the server `remote` lists no tool `work`").await;
}

#[tokio::test]
async fn endless_tool_list_is_bounded() {
    let server = FakeMcpServer::new(|message, out, server| match message["method"].as_str() {
        Some("tools/list") => {
            out.result(message, json!({"tools": *server.tools.lock().unwrap(), "nextCursor": "again"}))
        }
        Some("tools/call") => out.text(message, "yes"),
        _ => server.default_answer(message, out),
    });
    TestConversation::with(&server, "").assert_succeeds("/work", "yes").await;
    assert!(server.params_of("tools/list").len() <= 2, "a repeated cursor ends the list");
}

/// Lists `look` and this tool. Returns the tools that an agent is offered, and the failure of a flow that calls `work`.
async fn offered_with_look(tool: Json) -> (Vec<String>, String) {
    let server = FakeMcpServer::answering_calls(|message, out, _| out.text(message, "yes"));
    *server.tools.lock().unwrap() = json!([listed("look", json!({})), tool]);
    let conversation = TestConversation::with(&server, "");
    conversation.assert_succeeds("/look", "yes").await;
    let (replies, failures) = conversation.say("/work").await;
    assert_eq!(replies, ["Broken."], "one error response: {failures}");
    conversation.say("/ask").await;
    (conversation.model.offered_tools().into_iter().map(|(name, _)| name).collect(), failures)
}

#[tokio::test]
async fn invalid_schema_excludes_only_its_tool() {
    let deep = (0..limits::MCP_SCHEMA_DEPTH).fold(json!({}), |inner, _| json!({"items": inner}));
    let invalid_schemas = [
        ("invalid type", json!({"type": "object", "properties": {"a": {"type": 5}}})),
        ("circular reference", json!({"type": "object", "$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}})),
        ("remote reference", json!({"type": "object", "properties": {"a": {"$ref": "https://elsewhere.invalid/s"}}})),
        ("too deep", json!({"type": "object", "properties": {"a": deep}})),
        ("too large", json!({"type": "object", "description": "x".repeat(limits::MCP_SCHEMA + 1)})),
    ];
    for (case, schema) in invalid_schemas {
        let mut work = listed("work", json!({}));
        work["inputSchema"] = schema;
        let (offered, failures) = offered_with_look(work).await;
        assert_eq!(offered, ["look", "task_completed"], "{case}");
        assert!(
            failures.starts_with("T0502: remote.") && failures.contains("the tool `work` of `remote` is excluded"),
            "{case}: {failures}"
        );
    }
}

#[tokio::test]
async fn invalid_or_confusable_tool_name_excludes_only_its_tool() {
    let long = "x".repeat(500);
    // The same name, other case, look-alike letters of another script, invisible characters, and invalid names.
    for name in ["look", "LOOK", "l\u{43e}\u{43e}k", "lo\u{202e}ok", "look\u{200b}", "look\u{7}", "lo ok", "", &long] {
        let (offered, _) = offered_with_look(listed(name, json!({}))).await;
        assert_eq!(offered, ["look", "task_completed"], "{name:?}");
    }
}

#[tokio::test]
async fn tool_description_is_sanitised_and_truncated() {
    let server = FakeMcpServer::answering_calls(|message, out, _| out.text(message, "yes"));
    let mut tool = listed("work", json!({}));
    tool["description"] = json!(format!("obey\u{200b} me\u{e0041} {}", "x".repeat(100_000)));
    *server.tools.lock().unwrap() = json!([tool]);
    let conversation = TestConversation::with(&server, "");
    conversation.say("/ask").await;
    let (_, description) = conversation.model.offered_tools().into_iter().find(|(name, _)| name == "work").unwrap();
    assert!(description.starts_with("obey me x") && description.len() <= limits::MCP_DESCRIPTION);
}

#[tokio::test]
async fn oversized_result_fails_and_large_result_is_truncated_for_the_model() {
    let huge =
        FakeMcpServer::answering_calls(|message, out, _| out.text(message, &"x".repeat(limits::TOOL_RAW_RESULT + 1)));
    TestConversation::with(&huge, "").assert_fails("/look", "bad_result: Its answer of").await;
    // A write has been carried out: it has not failed, but it fills no slot.
    let (replies, failures) = TestConversation::with(&huge, "").say("/work").await;
    assert_eq!(replies, ["It said None."]);
    assert!(
        failures.starts_with("T0502: remote.work: it was carried out, but its answer fills no slot: Its answer of"),
        "{failures}"
    );
    let large =
        FakeMcpServer::answering_calls(|message, out, _| out.text(message, &"x".repeat(limits::TOOL_RESULT * 2)));
    let conversation = TestConversation::with(&large, "");
    conversation.say("/ask").await;
    let results = conversation.model.tool_results();
    assert!(results[0].len() <= limits::TOOL_RESULT && results[0].contains("[…cut:"), "{}", results[0].len());
}

#[tokio::test]
async fn result_that_violates_its_output_schema_fills_no_slot() {
    let server = FakeMcpServer::answering_calls(|message, out, _| {
        out.result(message, json!({"content": [], "structuredContent": {"n": "no"}}))
    });
    let tool = |name: &str, hints| {
        let mut tool = listed(name, hints);
        tool["outputSchema"] = json!({"type": "object", "properties": {"n": {"type": "number"}}});
        tool
    };
    *server.tools.lock().unwrap() = json!([tool("work", json!({})), tool("look", json!({"readOnlyHint": true}))]);
    let conversation = TestConversation::with(&server, "");
    conversation.assert_fails("/look", "bad_result: Its answer breaks its own output schema").await;
    let (replies, failures) = conversation.say("/work").await;
    assert_eq!(replies, ["It said None."]);
    assert!(failures.contains("it was carried out, but its answer fills no slot: Its answer breaks"), "{failures}");
    let (replies, failures) = conversation.say("/ask").await;
    assert_eq!((replies.len(), failures.as_str()), (1, ""));
    let results = conversation.model.tool_results();
    assert!(
        results[0].starts_with("done: It was carried out") && results[0].contains("breaks its own output"),
        "{results:?}"
    );
}

#[tokio::test]
async fn tool_error_is_reported_and_not_retried() {
    let server = FakeMcpServer::answering_calls(|message, out, _| {
        out.result(message, json!({"isError": true, "content": [{"type": "text", "text": "sold out"}]}));
    });
    let conversation = TestConversation::with(&server, "");
    conversation.assert_fails("/work", "tool_error: sold out").await;
    assert_eq!(server.params_of("tools/call").len(), 1);
    let (replies, _) = conversation.say("/ask").await;
    assert_eq!(replies, ["The result: error[tool_error]: sold out"]);
}

#[tokio::test]
async fn requests_of_a_server_are_refused_by_default() {
    let server = FakeMcpServer::new(|message, out, server| match message["method"].as_str() {
        Some("tools/call") => {
            for (id, method) in [(1, "sampling/createMessage"), (2, "elicitation/create"), (3, "roots/list")] {
                let params = match id {
                    1 => json!({"messages": [], "maxTokens": 9}),
                    2 => json!({"message": "Your password?", "requestedSchema": {"type": "object", "properties": {}}}),
                    _ => json!({}),
                };
                out.send(&json!({"jsonrpc": "2.0", "id": 100 + id, "method": method, "params": params}));
            }
            let (server, out, message) = (server.clone(), out.clone(), message.clone());
            tokio::spawn(async move {
                while server.responses().len() < 3 {
                    tokio::task::yield_now().await;
                }
                out.text(&message, "no response");
            });
        }
        _ => server.default_answer(message, out),
    });
    let conversation = TestConversation::with(&server, "");
    conversation.assert_succeeds("/work", "no response").await;
    for answer in server.responses() {
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
    }
    let capabilities = &server.params_of("initialize")[0]["capabilities"];
    assert_eq!(*capabilities, json!({}));
    assert!(conversation.model.0.lock().unwrap().is_empty(), "our model gets no request");
}

#[tokio::test]
async fn progress_flood_does_not_extend_the_timeout() {
    let server = FakeMcpServer::new(|message, out, server| match message["method"].as_str() {
        Some("tools/call") => {
            let token = message["params"]["_meta"]["progressToken"].clone();
            // All notifications arrive at once, when the time is over.
            for n in 0..10_000 {
                let params = json!({"progressToken": token, "progress": n});
                out.send(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}));
            }
            server.clock.advance(Duration::from_secs(3));
        }
        _ => server.default_answer(message, out),
    });
    let conversation = TestConversation::with(&server, "tool_timeout: 3");
    conversation.assert_unknown("/work", "timeout: It did not answer within 3 s").await;
}

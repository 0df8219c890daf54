//! The rows of the fault matrix, over pipes.

use std::time::Duration;

use segue::{clock::SystemClock, limits, tools::Health};
use serde_json::{Value as Json, json};

use super::{
    far::{Far, listed},
    *,
};

#[tokio::test]
async fn m1_a_server_that_is_not_there_keeps_nobody_from_starting() {
    let talk = Talk::of(builder("type: stdio, command: /nowhere/at-all").clock(Arc::new(SystemClock)));
    talk.breaks("/work", "/nowhere/at-all").await;
    let status = talk.assistant.sources().into_iter().find(|(name, _)| name == "far").unwrap().1;
    assert!(matches!(status, Health::Down { .. }), "{status:?}");
    let (replies, told) = talk.say("/ask").await;
    assert_eq!(replies, ["Broken."]);
    assert!(told.starts_with("A0509: agent clerk: none of its MCP servers answers: far:"), "{told}");
}

#[tokio::test]
async fn m2_a_server_that_never_begins_is_given_up_in_time() {
    let far = Far::new(|_, _, far| far.clock.advance(limits::MCP_INITIALISE));
    let talk = Talk::with(&far, "");
    talk.breaks("/work", "the deadline passed").await;
}

#[tokio::test]
async fn m3_a_server_of_another_time_is_refused_with_its_reason() {
    let far = Far::new(|message, out, _| {
        let error =
            json!({"code": -32022, "message": "Unsupported protocol version", "data": {"supported": ["1999-01-01"]}});
        if !message["id"].is_null() {
            out.send(&json!({"jsonrpc": "2.0", "id": message["id"], "error": error}));
        }
    });
    Talk::with(&far, "").breaks("/work", "it rejects the handshake").await;
}

#[tokio::test]
async fn m4_death_in_mid_call_is_told_at_once_and_the_next_call_finds_a_new_session() {
    let far = Far::calls(|message, out, n| if n == 0 { out.die() } else { out.text(message, "yes") });
    let talk = Talk::with(&far, "");
    talk.is_in_doubt("/work", "unavailable: The connection to it was lost before it answered").await;
    assert_eq!(far.of("tools/call").len(), 1, "what writes is never sent twice");
    talk.works("/work", "yes").await;
    assert_eq!(far.sessions(), 2);

    let far = Far::calls(|message, out, n| if n == 0 { out.die() } else { out.text(message, "yes") });
    Talk::with(&far, "").works("/look", "yes").await;
    assert_eq!(far.of("tools/call").len(), 2, "what only reads is sent once more");
}

#[tokio::test]
async fn m5_a_call_that_hangs_is_called_off_at_its_deadline() {
    let far = Far::new(|message, out, far| match message["method"].as_str() {
        Some("tools/call") if far.of("tools/call").len() == 1 => far.clock.advance(Duration::from_secs(3)),
        Some("tools/call") => out.text(message, "yes"),
        _ => far.usual(message, out),
    });
    let talk = Talk::with(&far, "tool_timeout: 3");
    // What writes may have happened: the message says so.
    talk.is_in_doubt("/work", "timeout: It did not answer within 3 s").await;
    assert_eq!(far.of("tools/call").len(), 1, "not repeated");
    assert_eq!(far.of("notifications/cancelled").len(), 1, "called off, once");
    talk.works("/work", "yes").await;
    assert_eq!(far.sessions(), 1, "the session answers others: it is kept");
}

#[tokio::test]
async fn m21_an_answer_after_the_deadline_reaches_nobody() {
    let first = Arc::new(Mutex::new(None));
    let far = Far::new(move |message, out, far| match message["method"].as_str() {
        Some("tools/call") if far.of("tools/call").len() == 1 => {
            *first.lock().unwrap() = Some(message.clone());
            far.clock.advance(Duration::from_secs(3));
        }
        Some("tools/call") => {
            out.text(&first.lock().unwrap().take().unwrap(), "late");
            out.text(message, "in time");
        }
        _ => far.usual(message, out),
    });
    let talk = Talk::with(&far, "tool_timeout: 3");
    talk.is_in_doubt("/work", "timeout: It did not answer within 3 s").await;
    talk.works("/work", "in time").await;
    let heard = serde_json::to_string(&talk.assistant.trace(&"u".into(), None).await.unwrap()).unwrap();
    assert!(!heard.contains("late"), "it stands in no turn");
}

#[tokio::test]
async fn m7_noise_is_dropped_and_too_much_of_it_ends_the_session() {
    let noise = |lines: usize| {
        Far::calls(move |message, out, n| {
            if n == 0 {
                out.raw("starting up\n".repeat(lines).as_bytes());
                out.send(&json!({"jsonrpc": "2.0", "id": 4711, "result": {}}));
                out.raw(b"{\"jsonrpc\": \"2.0\", \"id\": {}, \"result\": 7}\n{\"broken\n");
            }
            out.text(message, "yes");
        })
    };
    Talk::with(&noise(limits::MCP_INVALID_LINES - 2), "").works("/work", "yes").await;
    let talk = Talk::with(&noise(limits::MCP_INVALID_LINES + 1), "");
    talk.is_in_doubt("/work", "unavailable: The connection to it was lost").await;
    talk.works("/work", "yes").await;
}

#[tokio::test]
async fn m8_a_line_without_end_ends_the_session() {
    let far = Far::calls(|message, out, n| match n {
        0 => out.raw(&vec![b'{'; limits::MCP_LINE + 2]),
        _ => out.text(message, "yes"),
    });
    let talk = Talk::with(&far, "");
    talk.is_in_doubt("/work", "unavailable: The connection to it was lost").await;
    talk.works("/work", "yes").await;
}

#[cfg(unix)]
#[tokio::test]
async fn m9_a_server_that_floods_its_standard_error_is_not_blocked() {
    let script = r#"
        head -c 1000000 /dev/zero | tr '\0' x >&2
        answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
        read a; answer 0 '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}'
        read b; read c; answer 1 '{"tools":[{"name":"work","inputSchema":{"type":"object"}}]}'
        head -c 1000000 /dev/zero | tr '\0' x >&2
        read d; answer 2 '{"content":[{"type":"text","text":"yes"}]}'
        read e
    "#;
    let talk = |script: &str| {
        let entry = format!("type: stdio, command: sh, args: [-c, {}], env: {{PATH: /usr/bin:/bin}}", json!(script));
        Talk::of(builder(&entry).clock(Arc::new(SystemClock)))
    };
    talk(script).works("/work", "yes").await;
    let fails = r#"head -c 1000000 /dev/zero | tr '\0' x >&2; echo the cellar is full >&2"#;
    talk(fails).breaks("/work", "the cellar is full").await;
}

#[tokio::test]
async fn m10_a_list_that_changed_counts_from_the_next_turn() {
    let far = Far::calls(|message, out, _| out.text(message, "yes"));
    let (tools, script) = (far.tools.clone(), far.clone());
    let changing = Far::new(move |message, out, far| {
        script.usual(message, out);
        if message["method"] == "tools/call" {
            *tools.lock().unwrap() = json!([listed("other", json!({}))]);
            out.send(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
            out.text(message, "yes");
        }
        let _ = far;
    });
    let talk = Talk::with(&changing, "");
    talk.works("/work", "yes").await;
    talk.breaks("/work", "the server `far` lists no tool `work`").await;
}

#[tokio::test]
async fn m11_a_list_without_end_comes_to_one() {
    let far = Far::new(|message, out, far| match message["method"].as_str() {
        Some("tools/list") => out.answer(message, json!({"tools": *far.tools.lock().unwrap(), "nextCursor": "again"})),
        Some("tools/call") => out.text(message, "yes"),
        _ => far.usual(message, out),
    });
    Talk::with(&far, "").works("/work", "yes").await;
    assert!(far.of("tools/list").len() <= 2, "the same cursor twice is the end");
}

/// Lists `look` and this tool, and gives the names an agent is offered and what the operator hears of a flow that calls `work`.
async fn beside_look(tool: Json) -> (Vec<String>, String) {
    let far = Far::calls(|message, out, _| out.text(message, "yes"));
    *far.tools.lock().unwrap() = json!([listed("look", json!({})), tool]);
    let talk = Talk::with(&far, "");
    talk.works("/look", "yes").await;
    let (replies, told) = talk.say("/work").await;
    assert_eq!(replies, ["Broken."], "one honest message: {told}");
    talk.say("/ask").await;
    (talk.clerk.offered().into_iter().map(|(name, _)| name).collect(), told)
}

#[tokio::test]
async fn m12_a_bad_schema_leaves_its_tool_out_and_spoils_no_other() {
    let deep = (0..limits::MCP_SCHEMA_DEPTH).fold(json!({}), |inner, _| json!({"items": inner}));
    let bad = [
        ("none", json!({"type": "object", "properties": {"a": {"type": 5}}})),
        ("a circle", json!({"type": "object", "$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}})),
        ("from elsewhere", json!({"type": "object", "properties": {"a": {"$ref": "https://elsewhere.invalid/s"}}})),
        ("deep", json!({"type": "object", "properties": {"a": deep}})),
        ("large", json!({"type": "object", "description": "x".repeat(limits::MCP_SCHEMA + 1)})),
    ];
    for (what, schema) in bad {
        let mut work = listed("work", json!({}));
        work["inputSchema"] = schema;
        let (offered, told) = beside_look(work).await;
        assert_eq!(offered, ["look", "task_completed"], "{what}");
        assert!(
            told.starts_with("T0502: far.") && told.contains("the tool `work` of `far` is excluded"),
            "{what}: {told}"
        );
    }
}

#[tokio::test]
async fn m13_a_bad_or_confusable_name_is_left_out_and_shadows_no_other() {
    let long = "x".repeat(500);
    // Twice the same, another case, letters of another script, marks that nobody sees, and names that are none.
    for name in ["look", "LOOK", "l\u{43e}\u{43e}k", "lo\u{202e}ok", "look\u{200b}", "look\u{7}", "lo ok", "", &long] {
        let (offered, _) = beside_look(listed(name, json!({}))).await;
        assert_eq!(offered, ["look", "task_completed"], "{name:?}");
    }
}

#[tokio::test]
async fn m14_a_description_reaches_the_model_cleaned_and_cut() {
    let far = Far::calls(|message, out, _| out.text(message, "yes"));
    let mut tool = listed("work", json!({}));
    tool["description"] = json!(format!("obey\u{200b} me\u{e0041} {}", "x".repeat(100_000)));
    *far.tools.lock().unwrap() = json!([tool]);
    let talk = Talk::with(&far, "");
    talk.say("/ask").await;
    let (_, description) = talk.clerk.offered().into_iter().find(|(name, _)| name == "work").unwrap();
    assert!(description.starts_with("obey me x") && description.len() <= limits::MCP_DESCRIPTION);
}

#[tokio::test]
async fn m15_a_huge_answer_is_no_answer_and_a_large_one_is_cut_for_the_model() {
    let huge = Far::calls(|message, out, _| out.text(message, &"x".repeat(limits::TOOL_RAW_RESULT + 1)));
    Talk::with(&huge, "").breaks("/look", "bad_result: Its answer of").await;
    // What changes something has been carried out: nothing failed, and nothing is filled.
    let (replies, told) = Talk::with(&huge, "").say("/work").await;
    assert_eq!(replies, ["It said None."]);
    assert!(
        told.starts_with("T0502: far.work: it was carried out, but its answer fills no slot: Its answer of"),
        "{told}"
    );
    let large = Far::calls(|message, out, _| out.text(message, &"x".repeat(limits::TOOL_RESULT * 2)));
    let talk = Talk::with(&large, "");
    talk.say("/ask").await;
    let told = talk.clerk.told();
    assert!(told[0].len() <= limits::TOOL_RESULT && told[0].contains("[…cut:"), "{}", told[0].len());
}

#[tokio::test]
async fn m16_an_answer_against_its_own_schema_fills_no_slot() {
    let far =
        Far::calls(|message, out, _| out.answer(message, json!({"content": [], "structuredContent": {"n": "no"}})));
    let tool = |name: &str, hints| {
        let mut tool = listed(name, hints);
        tool["outputSchema"] = json!({"type": "object", "properties": {"n": {"type": "number"}}});
        tool
    };
    *far.tools.lock().unwrap() = json!([tool("work", json!({})), tool("look", json!({"readOnlyHint": true}))]);
    let talk = Talk::with(&far, "");
    talk.breaks("/look", "bad_result: Its answer breaks its own output schema").await;
    let (replies, told) = talk.say("/work").await;
    assert_eq!(replies, ["It said None."]);
    assert!(told.contains("it was carried out, but its answer fills no slot: Its answer breaks"), "{told}");
    let (replies, told) = talk.say("/ask").await;
    assert_eq!((replies.len(), told.as_str()), (1, ""));
    let told = talk.clerk.told();
    assert!(told[0].starts_with("done: It was carried out") && told[0].contains("breaks its own output"), "{told:?}");
}

#[tokio::test]
async fn m17_a_tools_own_error_is_told_and_nothing_is_repeated() {
    let far = Far::calls(|message, out, _| {
        out.answer(message, json!({"isError": true, "content": [{"type": "text", "text": "sold out"}]}));
    });
    let talk = Talk::with(&far, "");
    talk.breaks("/work", "tool_error: sold out").await;
    assert_eq!(far.of("tools/call").len(), 1);
    let (replies, _) = talk.say("/ask").await;
    assert_eq!(replies, ["I was told: error[tool_error]: sold out"]);
}

#[tokio::test]
async fn m18_what_a_server_asks_is_refused_unless_its_entry_allows_it() {
    let far = Far::new(|message, out, far| match message["method"].as_str() {
        Some("tools/call") => {
            for (id, method) in [(1, "sampling/createMessage"), (2, "elicitation/create"), (3, "roots/list")] {
                let params = match id {
                    1 => json!({"messages": [], "maxTokens": 9}),
                    2 => json!({"message": "Your password?", "requestedSchema": {"type": "object", "properties": {}}}),
                    _ => json!({}),
                };
                out.send(&json!({"jsonrpc": "2.0", "id": 100 + id, "method": method, "params": params}));
            }
            let (far, out, message) = (far.clone(), out.clone(), message.clone());
            tokio::spawn(async move {
                while far.answers().len() < 3 {
                    tokio::task::yield_now().await;
                }
                out.text(&message, "without help");
            });
        }
        _ => far.usual(message, out),
    });
    let talk = Talk::with(&far, "");
    talk.works("/work", "without help").await;
    for answer in far.answers() {
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
    }
    let capabilities = &far.of("initialize")[0]["capabilities"];
    assert_eq!(*capabilities, json!({}));
    assert!(talk.clerk.0.lock().unwrap().is_empty(), "our model was not asked");
}

#[tokio::test]
async fn m20_a_flood_of_progress_extends_no_deadline() {
    let far = Far::new(|message, out, far| match message["method"].as_str() {
        Some("tools/call") => {
            let token = message["params"]["_meta"]["progressToken"].clone();
            // It comes all at once, when the time is over.
            for n in 0..10_000 {
                let params = json!({"progressToken": token, "progress": n});
                out.send(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}));
            }
            far.clock.advance(Duration::from_secs(3));
        }
        _ => far.usual(message, out),
    });
    let talk = Talk::with(&far, "tool_timeout: 3");
    talk.is_in_doubt("/work", "timeout: It did not answer within 3 s").await;
}

//! Tests of tool lists: pages, limits, excluded tools, changes.
use serde_json::{Value as Json, json};

use super::fake::{answer_handshake, entry, server, server_with, tool, tool_entry, with_tools};
use crate::{EffectClass, Health, ToolCatalog, ToolOutcome, ToolOutput, ToolSource, fixture::context};
use segue_base::limits;

fn names(catalog: &ToolCatalog) -> Vec<String> {
    catalog.tools.iter().map(|tool| tool.info().name.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn pages_are_read_in_order_and_the_list_is_cached() {
    let (server, log) = server(|message, out| {
        answer_handshake(message, out);
        if message["method"] == "tools/list" {
            match message["params"]["cursor"].as_str() {
                None => out.respond(message, json!({"tools": [tool_entry("b"), tool_entry("a")], "nextCursor": "2"})),
                Some("2") => out.respond(message, json!({"tools": [tool_entry("c")], "nextCursor": "3"})),
                Some(_) => out.respond(message, json!({"tools": [tool_entry("d")], "nextCursor": ""})),
            }
        }
    });
    assert_eq!(server.status(), Health::Unknown);
    let catalog = server.list(&context().cx).await.unwrap();
    assert_eq!(names(&catalog), ["b", "a", "c", "d"]);
    assert_eq!(server.status(), Health::Up);
    server.list(&context().cx).await.unwrap();
    assert_eq!(log.of("tools/list").len(), 3, "the second list is cached");
    assert_eq!(log.sessions(), 1);
}

#[tokio::test(start_paused = true)]
async fn endless_lists_are_truncated() {
    let endless = |cursor: fn(usize) -> Json, tools: usize| {
        server(move |message, out| {
            answer_handshake(message, out);
            if message["method"] == "tools/list" {
                let page: usize = message["params"]["cursor"].as_str().map_or(0, |text| text.parse().unwrap());
                let tools: Vec<_> = (0..tools).map(|n| tool_entry(&format!("t{page}_{n}"))).collect();
                out.respond(message, json!({"tools": tools, "nextCursor": cursor(page)}));
            }
        })
    };
    let (repeating, log) = endless(|_| json!("7"), 1);
    let catalog = repeating.list(&context().cx).await.unwrap();
    assert_eq!(log.of("tools/list").len(), 2);
    assert!(catalog.excluded[0].1.contains("repeats a cursor"), "{catalog:?}");

    let (pages, log) = endless(|page| json!((page + 1).to_string()), 1);
    let catalog = pages.list(&context().cx).await.unwrap();
    assert_eq!(log.of("tools/list").len(), limits::MCP_PAGES);
    assert_eq!((catalog.tools.len(), catalog.excluded.len()), (limits::MCP_PAGES, 1));

    let (tools, _) = endless(|page| json!((page + 1).to_string()), 100);
    let catalog = tools.list(&context().cx).await.unwrap();
    assert_eq!(catalog.tools.len(), limits::MCP_TOOLS);
    assert!(catalog.excluded[0].1.contains("only the first 128 tools"));
}

#[tokio::test(start_paused = true)]
async fn invalid_tools_are_excluded_with_the_reason() {
    let schema = |schema: Json| json!({"name": "bad", "inputSchema": schema});
    let bad = [
        (json!({"name": "has space", "inputSchema": {}}), "its name"),
        (json!({"name": "x".repeat(500), "inputSchema": {}}), "its name"),
        (json!({"name": "cyrillic_\u{0430}", "inputSchema": {}}), "its name"),
        (json!({"description": "nameless", "inputSchema": {}}), "its name"),
        (json!({"name": "GOOD", "inputSchema": {}}), "only in case"),
        (schema(json!({"type": "string"})), "not describe an object"),
        (schema(json!({"type": "object", "properties": {"a": {"$ref": "http://x/y"}}})), "refers to another document"),
        (schema(json!({"type": "object", "properties": 1})), "is invalid"),
        (schema(json!("text")), "not describe an object"),
        (
            json!({"name": "long_task", "inputSchema": {}, "execution": {"taskSupport": "required"}}),
            "only run as a task",
        ),
    ];
    let tools: Vec<_> = [tool_entry("good")]
        .into_iter()
        .chain(bad.iter().map(|(tool, _)| tool.clone()))
        .chain([json!({"name": "bare"}), tool_entry("last")])
        .collect();
    let (server, _) = server(with_tools(json!(tools), |_, _| {}));
    let catalog = server.list(&context().cx).await.unwrap();
    assert_eq!(names(&catalog), ["good", "bare", "last"]);
    for ((_, expected), (name, reason)) in bad.iter().zip(&catalog.excluded) {
        assert!(reason.contains(expected), "{name}: {reason}");
    }
    assert_eq!(*catalog.tools[1].info().parameters, json!({"type": "object", "properties": {}}));
}

#[tokio::test(start_paused = true)]
async fn descriptions_are_cleaned_and_truncated() {
    let description = format!("a\u{200b}b\u{e0041}c {}", "é".repeat(limits::MCP_DESCRIPTION));
    let (server, _) = server(with_tools(json!([{"name": "a", "description": description}]), |_, _| {}));
    let tool = tool(&server, "a", &context()).await;
    let text = &tool.info().description;
    assert!(text.starts_with("abc é") && text.len() <= limits::MCP_DESCRIPTION, "{}", text.len());
    assert_eq!(&*tool.info().source, "fake");
    assert!(!tool.info().strict);
}

#[tokio::test(start_paused = true)]
async fn configured_effects_override_annotations_and_the_default_is_write() {
    let hinted = |name: &str, hints: Json| json!({"name": name, "annotations": hints});
    let tools = json!([
        hinted("reads", json!({"readOnlyHint": true})),
        hinted("again", json!({"readOnlyHint": false, "idempotentHint": true})),
        hinted("harmless", json!({"destructiveHint": false})),
        hinted("claims", json!({"readOnlyHint": true})),
        tool_entry("silent"),
        tool_entry("stated"),
    ]);
    let effects = |trust: bool| {
        let tools = tools.clone();
        async move {
            let change = |def: &mut segue_engine::project::McpServerDef| {
                def.trust_annotations = trust;
                def.effects.insert("claims".into(), "write".into());
                def.effects.insert("stated".into(), "idempotent".into());
            };
            let (server, _) = server_with(change, with_tools(tools, |_, _| {}));
            let catalog = server.list(&context().cx).await.unwrap();
            catalog.tools.iter().map(|tool| tool.info().effect).collect::<Vec<_>>()
        }
    };
    use EffectClass::{Idempotent, Read, Write};
    assert_eq!(effects(true).await, [Read, Idempotent, Write, Write, Write, Idempotent]);
    assert_eq!(effects(false).await, [Write, Write, Write, Write, Write, Idempotent]);
}

#[tokio::test(start_paused = true)]
async fn a_changed_list_is_read_at_the_next_listing() {
    let (server, log) = server(|message, out| {
        answer_handshake(message, out);
        match message["method"].as_str() {
            Some("tools/list") => {
                let grown = message["id"].as_i64().unwrap() > 2;
                let tools = if grown { json!([tool_entry("new")]) } else { json!([tool_entry("old")]) };
                out.respond(message, json!({"tools": tools}));
            }
            Some("tools/call") => {
                out.send(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
                out.respond(message, json!({"content": [{"type": "text", "text": "done"}]}));
            }
            _ => {}
        }
    });
    let cx = context();
    let old = tool(&server, "old", &cx).await;
    let mut changes = server.changes();
    changes.mark_unchanged();
    assert_eq!(old.call(json!({}), &cx).await, ToolOutcome::Done(ToolOutput::text("done")));
    changes.changed().await.unwrap();
    assert_eq!(log.of("tools/list").len(), 1, "the list is not read again before the next listing");
    old.call(json!({}), &cx).await;
    assert_eq!(log.of("tools/call")[1]["name"], "old", "tools of the old list can still be called");
    assert_eq!(names(&server.list(&cx.cx).await.unwrap()), ["new"]);
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_is_valid_and_a_json_rpc_error_is_an_error() {
    let (empty, _) = server(with_tools(json!([]), |_, _| {}));
    assert!(empty.list(&context().cx).await.unwrap().tools.is_empty());
    let (failing, log) = server(|message, out| {
        answer_handshake(message, out);
        if message["method"] == "tools/list" {
            out.send(&json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32000, "message": "no"}}));
        }
    });
    let error = failing.list(&context().cx).await.unwrap_err();
    assert_eq!(error.source_name, "fake");
    assert!(error.reason.contains("does not list its tools"), "{error}");
    failing.list(&context().cx).await.unwrap_err();
    assert_eq!(log.sessions(), 1, "a JSON-RPC error does not cause a reconnection");
}

#[tokio::test(start_paused = true)]
async fn client_works_with_the_server_of_the_rmcp_library() {
    use std::sync::Arc;

    use rmcp::{
        ErrorData, RoleServer, ServerHandler, ServiceExt,
        model::{
            CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult,
            PaginatedRequestParams, Tool,
        },
        service::RequestContext,
    };
    struct Echo;
    impl ServerHandler for Echo {
        async fn list_tools(
            &self,
            _: Option<PaginatedRequestParams>,
            _: RequestContext<RoleServer>,
        ) -> Result<ListToolsResult, ErrorData> {
            let schema = json!({"type": "object", "properties": {"say": {"type": "string"}}, "required": ["say"]});
            let tool = Tool::new("echo", "says it again", schema.as_object().unwrap().clone());
            Ok(ListToolsResult::with_all_items(vec![tool]))
        }
        async fn call_tool(
            &self,
            request: CallToolRequestParams,
            _: RequestContext<RoleServer>,
        ) -> Result<CallToolResponse, ErrorData> {
            let text = request.arguments.unwrap()["say"].as_str().unwrap().to_owned();
            Ok(CallToolResponse::Complete(CallToolResult::success(vec![ContentBlock::text(text)])))
        }
    }
    let pipes: crate::mcp::Pipes = Arc::new(|| {
        let (client_end, server_end) = tokio::io::duplex(4096);
        tokio::spawn(async move { Echo.serve(server_end).await.unwrap().waiting().await });
        let (read, write) = tokio::io::split(client_end);
        (Box::new(read), Box::new(write))
    });
    let def = entry(segue_engine::project::McpTransport::Http { url: String::new() });
    let environment = super::fake::environment(crate::fixture::PausedClock::shared());
    let server = crate::mcp::McpServer::in_process(&def, pipes, environment);
    let echo = tool(&server, "echo", &context()).await;
    assert_eq!(echo.call(json!({"say": "hello"}), &context()).await, ToolOutcome::Done(ToolOutput::text("hello")));
    server.close(&context().cx).await;
}

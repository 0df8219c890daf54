//! Lists of tools: pages, caps, what is left out, changes.
use serde_json::{Value as Json, json};

use super::fake::{entry, listed, server, server_with, tool, usual, with_tools};
use crate::{EffectClass, SourceStatus, ToolCatalog, ToolOutcome, ToolOutput, ToolSource, fixture::context};
use segue_base::limits;

fn names(catalog: &ToolCatalog) -> Vec<String> {
    catalog.tools.iter().map(|tool| tool.info().name.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn pages_are_followed_in_order_and_the_list_is_kept() {
    let (server, heard) = server(|message, out| {
        usual(message, out);
        if message["method"] == "tools/list" {
            match message["params"]["cursor"].as_str() {
                None => out.answer(message, json!({"tools": [listed("b"), listed("a")], "nextCursor": "2"})),
                Some("2") => out.answer(message, json!({"tools": [listed("c")], "nextCursor": "3"})),
                Some(_) => out.answer(message, json!({"tools": [listed("d")], "nextCursor": ""})),
            }
        }
    });
    assert_eq!(server.status(), SourceStatus::Unknown);
    let catalog = server.list(&context().cx).await.unwrap();
    assert_eq!(names(&catalog), ["b", "a", "c", "d"]);
    assert_eq!(server.status(), SourceStatus::Up);
    server.list(&context().cx).await.unwrap();
    assert_eq!(heard.of("tools/list").len(), 3, "the second list comes from memory");
    assert_eq!(heard.sessions(), 1);
}

#[tokio::test(start_paused = true)]
async fn lists_without_end_come_to_one() {
    let endless = |cursor: fn(usize) -> Json, tools: usize| {
        server(move |message, out| {
            usual(message, out);
            if message["method"] == "tools/list" {
                let page: usize = message["params"]["cursor"].as_str().map_or(0, |text| text.parse().unwrap());
                let tools: Vec<_> = (0..tools).map(|n| listed(&format!("t{page}_{n}"))).collect();
                out.answer(message, json!({"tools": tools, "nextCursor": cursor(page)}));
            }
        })
    };
    let (circle, heard) = endless(|_| json!("7"), 1);
    let catalog = circle.list(&context().cx).await.unwrap();
    assert_eq!(heard.of("tools/list").len(), 2);
    assert!(catalog.excluded[0].1.contains("the same cursor came twice"), "{catalog:?}");

    let (pages, heard) = endless(|page| json!((page + 1).to_string()), 1);
    let catalog = pages.list(&context().cx).await.unwrap();
    assert_eq!(heard.of("tools/list").len(), limits::MCP_PAGES);
    assert_eq!((catalog.tools.len(), catalog.excluded.len()), (limits::MCP_PAGES, 1));

    let (tools, _) = endless(|page| json!((page + 1).to_string()), 100);
    let catalog = tools.list(&context().cx).await.unwrap();
    assert_eq!(catalog.tools.len(), limits::MCP_TOOLS);
    assert!(catalog.excluded[0].1.contains("only the first 128 tools"));
}

#[tokio::test(start_paused = true)]
async fn one_bad_tool_spoils_no_other() {
    let schema = |schema: Json| json!({"name": "bad", "inputSchema": schema});
    let bad = [
        (json!({"name": "has space", "inputSchema": {}}), "its name"),
        (json!({"name": "x".repeat(500), "inputSchema": {}}), "its name"),
        (json!({"name": "cyrillic_\u{0430}", "inputSchema": {}}), "its name"),
        (json!({"description": "nameless", "inputSchema": {}}), "its name"),
        (json!({"name": "GOOD", "inputSchema": {}}), "by case alone"),
        (schema(json!({"type": "string"})), "no object"),
        (schema(json!({"type": "object", "properties": {"a": {"$ref": "http://x/y"}}})), "points elsewhere"),
        (schema(json!({"type": "object", "properties": 1})), "not valid"),
        (schema(json!("text")), "no object"),
        (json!({"name": "long_task", "inputSchema": {}, "execution": {"taskSupport": "required"}}), "task only"),
    ];
    let tools: Vec<_> = [listed("good")]
        .into_iter()
        .chain(bad.iter().map(|(tool, _)| tool.clone()))
        .chain([json!({"name": "bare"}), listed("last")])
        .collect();
    let (server, _) = server(with_tools(json!(tools), |_, _| {}));
    let catalog = server.list(&context().cx).await.unwrap();
    assert_eq!(names(&catalog), ["good", "bare", "last"]);
    for ((_, expected), (name, why)) in bad.iter().zip(&catalog.excluded) {
        assert!(why.contains(expected), "{name}: {why}");
    }
    assert_eq!(*catalog.tools[1].info().parameters, json!({"type": "object", "properties": {}}));
}

#[tokio::test(start_paused = true)]
async fn descriptions_are_cleaned_and_cut() {
    let description = format!("a\u{200b}b\u{e0041}c {}", "é".repeat(limits::MCP_DESCRIPTION));
    let (server, _) = server(with_tools(json!([{"name": "a", "description": description}]), |_, _| {}));
    let tool = tool(&server, "a", &context()).await;
    let text = &tool.info().description;
    assert!(text.starts_with("abc é") && text.len() <= limits::MCP_DESCRIPTION, "{}", text.len());
    assert_eq!(&*tool.info().source, "fake");
    assert!(!tool.info().strict);
}

#[tokio::test(start_paused = true)]
async fn the_authors_word_goes_before_the_servers_and_nothing_means_write() {
    let hinted = |name: &str, hints: Json| json!({"name": name, "annotations": hints});
    let tools = json!([
        hinted("reads", json!({"readOnlyHint": true})),
        hinted("again", json!({"readOnlyHint": false, "idempotentHint": true})),
        hinted("harmless", json!({"destructiveHint": false})),
        hinted("claims", json!({"readOnlyHint": true})),
        listed("silent"),
        listed("stated"),
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
async fn a_changed_list_counts_from_the_next_run() {
    let (server, heard) = server(|message, out| {
        usual(message, out);
        match message["method"].as_str() {
            Some("tools/list") => {
                let grown = message["id"].as_i64().unwrap() > 2;
                let tools = if grown { json!([listed("new")]) } else { json!([listed("old")]) };
                out.answer(message, json!({"tools": tools}));
            }
            Some("tools/call") => {
                out.send(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
                out.answer(message, json!({"content": [{"type": "text", "text": "done"}]}));
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
    assert_eq!(heard.of("tools/list").len(), 1, "nobody lists before somebody asks");
    old.call(json!({}), &cx).await;
    assert_eq!(heard.of("tools/call")[1]["name"], "old", "a run keeps the tools that it began with");
    assert_eq!(names(&server.list(&cx.cx).await.unwrap()), ["new"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_tools_is_no_failure_and_one_that_refuses_is() {
    let (empty, _) = server(with_tools(json!([]), |_, _| {}));
    assert!(empty.list(&context().cx).await.unwrap().tools.is_empty());
    let (refusing, heard) = server(|message, out| {
        usual(message, out);
        if message["method"] == "tools/list" {
            out.send(&json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32000, "message": "no"}}));
        }
    });
    let error = refusing.list(&context().cx).await.unwrap_err();
    assert_eq!(error.source_name, "fake");
    assert!(error.reason.contains("does not list its tools"), "{error}");
    refusing.list(&context().cx).await.unwrap_err();
    assert_eq!(heard.sessions(), 1, "an error of the protocol is no reason to connect anew");
}

#[tokio::test(start_paused = true)]
async fn the_librarys_own_server_understands_us() {
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
            let said = request.arguments.unwrap()["say"].as_str().unwrap().to_owned();
            Ok(CallToolResponse::Complete(CallToolResult::success(vec![ContentBlock::text(said)])))
        }
    }
    let pipes: crate::mcp::Pipes = Arc::new(|| {
        let (near, far) = tokio::io::duplex(4096);
        tokio::spawn(async move { Echo.serve(far).await.unwrap().waiting().await });
        let (read, write) = tokio::io::split(near);
        (Box::new(read), Box::new(write))
    });
    let def = entry(segue_engine::project::McpTransport::Http { url: String::new() });
    let around = super::fake::around(crate::fixture::PausedClock::shared());
    let server = crate::mcp::McpServer::in_process(&def, pipes, around);
    let echo = tool(&server, "echo", &context()).await;
    assert_eq!(echo.call(json!({"say": "hello"}), &context()).await, ToolOutcome::Done(ToolOutput::text("hello")));
    server.close(&context().cx).await;
}

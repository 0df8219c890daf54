//! The limits of the MCP server.

use super::*;
use crate::limits;

#[tokio::test]
async fn too_many_active_calls_of_a_session_are_refused() {
    /// An action that never finishes.
    struct PendingAction;
    #[async_trait]
    impl Action for PendingAction {
        async fn run(&self, _: &Conversation, cx: &CallContext) -> ActionOutcome {
            let _ = cx.wait(std::future::pending::<()>()).await;
            ActionOutcome::Done { events: Vec::new() }
        }
    }
    let assistant = builder(Arc::new(ScriptedLlm::strict([""; 0])))
        .action("action_break", Arc::new(PendingAction))
        .build()
        .unwrap();
    let client = Arc::new(client(&assistant, McpServerSettings::default()).await);
    let calls = (0..=limits::MCP_SERVED_CALLS).map(|_| {
        let client = client.clone();
        Box::pin(async move { call(&client, "broken", json!({})).await })
    });
    let (refused, ..) = futures::future::select_all(calls).await;
    assert_eq!(refused.is_error, Some(true));
    assert!(texts(&refused).contains("Too many calls"), "{refused:?}");
}

#[tokio::test]
async fn only_the_newest_conversations_are_listed_and_pages_are_limited() {
    let client = client(&assistant(&[]), McpServerSettings::default()).await;
    let first = conversation_id(&call(&client, "order", json!({})).await).to_owned();
    for _ in 0..limits::MCP_SERVED_CONVERSATIONS {
        call(&client, "order", json!({})).await;
    }
    let page = client.list_resources(None).await.unwrap();
    assert_eq!(page.resources.len(), limits::MCP_SERVED_PAGE);
    let all = client.list_all_resources().await.unwrap();
    assert_eq!(all.len(), limits::MCP_SERVED_CONVERSATIONS);
    assert!(!all.iter().any(|one| one.uri.contains(&first)));
}

#[tokio::test]
async fn number_of_elicitation_requests_per_call_is_limited() {
    let host = Host::default();
    // A refused value is asked for again.
    *host.answers.lock().unwrap() = vec![json!({"size": "none of them"}); 3 * limits::MCP_SERVED_QUESTIONS];
    let server = mcp_server(&assistant(&[]), McpServerSettings { elicits: true, ..McpServerSettings::default() });
    let client = connect(&server, host.clone()).await;
    let open = call(&client, "order", json!({})).await;
    assert_eq!(data(&open)["question"]["slot"], "size");
    assert_eq!(host.forms.lock().unwrap().len(), limits::MCP_SERVED_QUESTIONS);
}

#[tokio::test]
async fn number_of_form_fields_is_limited() {
    let many = limits::MCP_SERVED_FIELDS + 2;
    let lines = |line: fn(usize) -> String| (0..many).map(line).collect::<String>();
    let slots = lines(|n| format!("  s{n}: {{type: text, mappings: [{{type: from_llm}}]}}\n"));
    let asks = lines(|n| format!("  utter_ask_s{n}: [{{text: 'Number {n}?'}}]\n"));
    let steps = lines(|n| format!("      - {{collect: s{n}}}\n"));
    let domain = format!("slots:\n{slots}responses:\n{asks}");
    let flows =
        format!("flows:\n  all:\n    description: Asks.\n    run_pattern_completed: false\n    steps:\n{steps}");
    let files = [("config.yml", CONFIG), ("domain.yml", &domain), ("flows/all.yml", &flows)];
    let assistant = Assistant::builder_from_texts(files)
        .unwrap()
        .model(Arc::new(ScriptedLlm::strict([""; 0])))
        .store(Arc::new(MemoryStore::default()))
        .build()
        .unwrap();
    let host = Host::default();
    let all: serde_json::Map<String, Json> = (0..many).map(|n| (format!("s{n}"), json!(format!("v{n}")))).collect();
    *host.answers.lock().unwrap() = vec![Json::Object(all.clone()), Json::Object(all)];
    let server = mcp_server(&assistant, McpServerSettings { elicits: true, ..McpServerSettings::default() });
    let done = call(&connect(&server, host.clone()).await, "all", json!({})).await;
    assert_eq!(data(&done)["waiting_for_input"], false);
    let forms = host.forms.lock().unwrap().clone();
    let fields: Vec<usize> = forms.iter().map(|(_, schema)| schema["properties"].as_object().unwrap().len()).collect();
    assert_eq!(fields, [limits::MCP_SERVED_FIELDS, 2]);
}

#[tokio::test]
async fn long_transcript_keeps_the_newest_lines() {
    let assistant = assistant(&[]);
    let client = client(&assistant, McpServerSettings::default()).await;
    let first = call(&client, "order", json!({})).await;
    let id = conversation_id(&first).to_owned();
    let long = "é".repeat(1_500);
    for _ in 0..60 {
        call(&client, "converse", json!({"message": format!("/{long}"), "conversation_id": &id})).await;
    }
    call(&client, "converse", json!({"message": "/the_last", "conversation_id": &id})).await;
    let uri = client.list_all_resources().await.unwrap()[0].uri.clone();
    let text = read(&client, &uri).await.unwrap();
    assert!(
        text.len() <= limits::TOOL_RESULT + 8 && text.starts_with('…') && text.contains("/the_last"),
        "{}",
        text.len()
    );
}

#[tokio::test]
async fn elicitation_ends_after_its_timeout() {
    /// A host that never responds to an elicitation request.
    struct UnansweredHost;
    impl ClientHandler for UnansweredHost {
        fn get_info(&self) -> ClientConfig {
            let capabilities = ClientCapabilities::builder().enable_elicitation().build();
            ClientConfig::new(capabilities, Implementation::new("host", "1"))
        }
        async fn create_elicitation(
            &self,
            _: ElicitRequestParams,
            _: RequestContext<RoleClient>,
        ) -> Result<ElicitResult, rmcp::ErrorData> {
            std::future::pending().await
        }
    }
    let clock = crate::testing::ManualClock::auto_advancing();
    let model = Arc::new(ScriptedLlm::strict([""; 0]));
    let assistant = builder(model).clock(Arc::new(clock.clone())).build().unwrap();
    let server = mcp_server(&assistant, McpServerSettings { elicits: true, ..McpServerSettings::default() });
    let (client_end, server_end) = tokio::io::duplex(64 * 1024);
    tokio::spawn(async move { Box::pin(server.serve(tokio::io::split(server_end), CancellationToken::new())).await });
    let client = UnansweredHost.serve(client_end).await.unwrap();
    let open = client.call_tool(params("order", json!({}), "")).await.unwrap();
    assert_eq!(data(&open)["question"]["slot"], "size");
    assert!(clock.slept().contains(&limits::MCP_SERVED_ANSWER), "{:?}", clock.slept());
}

#[tokio::test]
async fn message_longer_than_the_limit_ends_the_session() {
    let client = client(&assistant(&["start flow greet"]), McpServerSettings::default()).await;
    let long = "x".repeat(limits::MCP_SERVED_LINE);
    assert!(client.call_tool(params("converse", json!({"message": long}), "")).await.is_err());
    assert!(client.is_transport_closed());
}

//! Everything here has a limit.

use super::*;
use crate::limits;

#[tokio::test]
async fn a_session_has_so_many_calls_under_way() {
    struct Silent;
    impl Action for Silent {
        fn run<'a>(
            &'a self,
            _: &'a Conversation,
            cx: &'a CallContext,
        ) -> futures::future::BoxFuture<'a, ActionOutcome> {
            Box::pin(async move {
                let _ = cx.wait(std::future::pending::<()>()).await;
                ActionOutcome::Done { events: Vec::new() }
            })
        }
    }
    let assistant =
        builder(Arc::new(ScriptedLlm::strict([""; 0]))).action("action_break", Arc::new(Silent)).build().unwrap();
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
async fn only_the_newest_talks_are_listed_and_each_page_is_bounded() {
    let client = client(&assistant(&[]), McpServerSettings::default()).await;
    let first = talk(&call(&client, "order", json!({})).await).to_owned();
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
async fn a_call_puts_so_many_questions() {
    let host = Host::default();
    // What is refused is asked again.
    *host.answers.lock().unwrap() = vec![json!({"size": "none of them"}); 3 * limits::MCP_SERVED_QUESTIONS];
    let server = serving(&assistant(&[]), McpServerSettings { elicits: true, ..McpServerSettings::default() });
    let client = at(&server, host.clone()).await;
    let open = call(&client, "order", json!({})).await;
    assert_eq!(data(&open)["question"]["slot"], "size");
    assert_eq!(host.asked.lock().unwrap().len(), limits::MCP_SERVED_QUESTIONS);
}

#[tokio::test]
async fn a_form_has_so_many_fields() {
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
    let server = serving(&assistant, McpServerSettings { elicits: true, ..McpServerSettings::default() });
    let done = call(&at(&server, host.clone()).await, "all", json!({})).await;
    assert_eq!(data(&done)["waiting_for_input"], false);
    let asked = host.asked.lock().unwrap().clone();
    let fields: Vec<usize> = asked.iter().map(|(_, schema)| schema["properties"].as_object().unwrap().len()).collect();
    assert_eq!(fields, [limits::MCP_SERVED_FIELDS, 2]);
}

#[tokio::test]
async fn a_transcript_holds_the_newest() {
    let assistant = assistant(&[]);
    let client = client(&assistant, McpServerSettings::default()).await;
    let first = call(&client, "order", json!({})).await;
    let id = talk(&first).to_owned();
    let long = "é".repeat(1_500);
    for _ in 0..60 {
        call(&client, "converse", json!({"message": format!("/{long}"), "conversation_id": &id})).await;
    }
    call(&client, "converse", json!({"message": "/the_last", "conversation_id": &id})).await;
    let address = client.list_all_resources().await.unwrap()[0].uri.clone();
    let text = read(&client, &address).await.unwrap();
    assert!(
        text.len() <= limits::TOOL_RESULT + 8 && text.starts_with('…') && text.contains("/the_last"),
        "{}",
        text.len()
    );
}

#[tokio::test]
async fn a_person_who_does_not_answer_is_waited_for_so_long() {
    /// A host that shows the form and hears nothing.
    struct Patient;
    impl ClientHandler for Patient {
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
    let server = serving(&assistant, McpServerSettings { elicits: true, ..McpServerSettings::default() });
    let (here, there) = tokio::io::duplex(64 * 1024);
    tokio::spawn(async move { Box::pin(server.serve(tokio::io::split(there), CancellationToken::new())).await });
    let client = Patient.serve(here).await.unwrap();
    let open = client.call_tool(params("order", json!({}), "")).await.unwrap();
    assert_eq!(data(&open)["question"]["slot"], "size");
    assert!(clock.slept().contains(&limits::MCP_SERVED_ANSWER), "{:?}", clock.slept());
}

#[tokio::test]
async fn a_message_that_is_too_long_ends_the_session() {
    let client = client(&assistant(&["start flow greet"]), McpServerSettings::default()).await;
    let long = "x".repeat(limits::MCP_SERVED_LINE);
    assert!(client.call_tool(params("converse", json!({"message": long}), "")).await.is_err());
    assert!(client.is_transport_closed());
}

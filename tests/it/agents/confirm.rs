//! A call that needs a yes waits in the store: another process asks for nothing again, runs exactly what was shown, and a replay
//! of the talk is the same to the byte.

use std::sync::{Arc, Mutex};

use segue::{
    Assistant, DiscardReplies, IncomingMessage, Store, Tool, ToolCallContext, ToolInfo, ToolOutcome, ToolOutput,
    Toolbox,
    llm::{ChatResponse, FinishReason, ToolArguments, ToolCall},
    store::SqliteStore,
    testing::ScriptedLlm,
};
use serde_json::{Value as Json, json};

const FILES: [(&str, &str); 5] = [
    (
        "config.yml",
        "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n",
    ),
    ("endpoints.yml", "mcp_servers: [{name: boats, type: http, url: \"http://127.0.0.1:9/mcp\"}]\n"),
    (
        "domain.yml",
        "responses:\n  utter_agent_confirm_pay:\n    - text: 'Pay {amount} to {to}?'\n      buttons: [{title: Do it, payload: 'yes'}]\n",
    ),
    ("data/flows.yml", "flows: {book: {description: book a boat, steps: [{call: booker}]}}\n"),
    (
        "sub_agents/booker/config.yml",
        "agent: {name: booker, description: books}\nconfiguration: {confirm: writes}\nconnections: {mcp_servers: [{name: boats}]}\n",
    ),
];

type Calls = Arc<Mutex<Vec<(String, Json, String)>>>;

fn boats(calls: &Calls) -> Arc<Toolbox> {
    let tool = |name: &'static str| {
        let calls = calls.clone();
        let spec = ToolInfo::new(name, "changes something").parameters(json!({"type": "object"})).source("boats");
        let run = move |arguments: Json, cx: ToolCallContext| {
            calls.lock().unwrap().push((name.to_owned(), arguments, cx.idempotency_key.to_string()));
            std::future::ready(ToolOutcome::Done(ToolOutput::structured(json!({"reference": "NW-1"}))))
        };
        Tool::from_fn(spec, run)
    };
    Arc::new(Toolbox::new("boats", [tool("book"), tool("pay")]))
}

fn calls(text: &str, calls: &[(&str, Json)]) -> ChatResponse {
    let calls = calls.iter().enumerate().map(|(at, (name, arguments))| ToolCall {
        id: format!("c{at}").into(),
        name: (*name).into(),
        arguments: ToolArguments::json(arguments.clone()),
    });
    ChatResponse {
        text: text.into(),
        tool_calls: calls.collect(),
        finish: FinishReason::ToolCalls,
        ..ChatResponse::default()
    }
}

fn assistant(store: Arc<dyn Store>, model: Vec<ChatResponse>, ran: &Calls) -> Assistant {
    let builder = Assistant::builder_from_texts(FILES).unwrap().store(store).source(boats(ran));
    builder.model(Arc::new(ScriptedLlm::strict(model))).seeds(|| 7).build().unwrap()
}

async fn say(assistant: &Assistant, text: &str) -> Vec<String> {
    let report = assistant.receive(IncomingMessage::text("u", text, "test"), Box::new(DiscardReplies)).await.unwrap();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    report.replies.iter().filter_map(|reply| reply.reply.text.as_deref().map(str::to_owned)).collect()
}

#[tokio::test]
async fn a_yes_after_a_restart_runs_the_call_once_as_it_was_shown() {
    let folder = tempfile::tempdir().unwrap();
    let open = || -> Arc<dyn Store> { Arc::new(SqliteStore::open(&folder.path().join("talk.db"), false).unwrap()) };
    let ran = Calls::default();
    let wanted = json!({"boat": "NW-1", "people": 2, "note": "a\u{202e}b"});
    let first =
        assistant(open(), vec![ChatResponse::text("start flow book"), calls("", &[("book", wanted.clone())])], &ran);
    let told = say(&first, "book NW-1 for two").await;
    let shown = "Please check before I do this:\n- book: boat = NW-1, people = 2, note = a⟨U+202E⟩b\nShall I go ahead?";
    assert_eq!(told, [shown]);
    assert!(ran.lock().unwrap().is_empty());
    drop(first);

    let second = assistant(open(), vec![calls("Booked. Bye!", &[("task_completed", json!({}))])], &ran);
    let told = say(&second, "yes please").await;
    assert_eq!(told.first().map(String::as_str), Some("Booked. Bye!"));
    let calls = ran.lock().unwrap().clone();
    assert_eq!(calls.iter().map(|(name, given, _)| (name.as_str(), given)).collect::<Vec<_>>(), [("book", &wanted)]);
    assert!(second.replay(&"u".into()).await.unwrap().is_none());
    assert_eq!(ran.lock().unwrap().len(), 1, "a replay performs nothing");
}

#[tokio::test]
async fn a_response_of_its_own_shows_the_arguments_of_one_tool() {
    let ran = Calls::default();
    let script = vec![
        ChatResponse::text("start flow book"),
        calls("", &[("pay", json!({"to": "Ada", "amount": 12.5}))]),
        ChatResponse::text("As you wish. What else?"),
    ];
    let talk = assistant(Arc::new(segue::MemoryStore::default()), script, &ran);
    assert_eq!(say(&talk, "pay Ada").await, ["Pay 12.5 to Ada?"]);
    assert_eq!(say(&talk, "no").await, ["As you wish. What else?"]);
    assert!(ran.lock().unwrap().is_empty());
}

//! A tool call that waits for a confirmation is stored. Another process does not ask again, runs exactly the call that was shown, and a
//! replay of the conversation gives the same events.

use std::sync::{Arc, Mutex};

use segue::{
    Assistant, DiscardReplies, IncomingMessage, Store, Tool, ToolCallContext, ToolInfo, ToolOutcome, ToolOutput,
    Toolbox, llm::ChatResponse, store::SqliteStore, testing::ScriptedLlm,
};
use serde_json::{Value as Json, json};

use super::tool_calls;
use crate::support::project_files::{BOATS_ENDPOINT, CONFIG};

const FILES: [(&str, &str); 5] = [
    CONFIG,
    BOATS_ENDPOINT,
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

/// The calls that ran: name, arguments, idempotency key.
type Calls = Arc<Mutex<Vec<(String, Json, String)>>>;

/// The tools `book` and `pay`, which record their calls.
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

fn assistant(store: Arc<dyn Store>, model: Vec<ChatResponse>, ran: &Calls) -> Assistant {
    let builder = Assistant::builder_from_texts(FILES).unwrap().store(store).source(boats(ran));
    builder.model(Arc::new(ScriptedLlm::strict(model))).seeds(|| 7).build().unwrap()
}

async fn say(assistant: &Assistant, text: &str) -> Vec<String> {
    let report = assistant
        .receive(IncomingMessage::new("u", text).input_channel("test"), Box::new(DiscardReplies))
        .await
        .unwrap();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    report.replies.iter().filter_map(|reply| reply.reply.text.as_deref().map(str::to_owned)).collect()
}

#[tokio::test]
async fn confirmation_after_a_restart_runs_the_shown_call_once() {
    let folder = tempfile::tempdir().unwrap();
    let open = || -> Arc<dyn Store> { Arc::new(SqliteStore::open(&folder.path().join("talk.db"), false).unwrap()) };
    let ran = Calls::default();
    let book_arguments = json!({"boat": "NW-1", "people": 2, "note": "a\u{202e}b"});
    let first = assistant(
        open(),
        vec![ChatResponse::text("start flow book"), tool_calls("", &[("book", book_arguments.clone())])],
        &ran,
    );
    let replies = say(&first, "book NW-1 for two").await;
    let question =
        "Please check before I do this:\n- book: boat = NW-1, people = 2, note = a⟨U+202E⟩b\nShall I go ahead?";
    assert_eq!(replies, [question]);
    assert!(ran.lock().unwrap().is_empty());
    drop(first);

    let second = assistant(open(), vec![tool_calls("Booked. Bye!", &[("task_completed", json!({}))])], &ran);
    let replies = say(&second, "yes please").await;
    assert_eq!(replies.first().map(String::as_str), Some("Booked. Bye!"));
    let calls = ran.lock().unwrap().clone();
    assert_eq!(
        calls.iter().map(|(name, given, _)| (name.as_str(), given)).collect::<Vec<_>>(),
        [("book", &book_arguments)]
    );
    assert!(second.replay(&"u".into()).await.unwrap().is_none());
    assert_eq!(ran.lock().unwrap().len(), 1, "a replay runs no tool");
}

#[tokio::test]
async fn confirmation_response_of_a_tool_shows_its_arguments() {
    let ran = Calls::default();
    let script = vec![
        ChatResponse::text("start flow book"),
        tool_calls("", &[("pay", json!({"to": "Ada", "amount": 12.5}))]),
        ChatResponse::text("As you wish. What else?"),
    ];
    let assistant = assistant(Arc::new(segue::MemoryStore::default()), script, &ran);
    assert_eq!(say(&assistant, "pay Ada").await, ["Pay 12.5 to Ada?"]);
    assert_eq!(say(&assistant, "no").await, ["As you wish. What else?"]);
    assert!(ran.lock().unwrap().is_empty());
}

//! Imports from all kinds of sources.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{fs, sync::Arc};

use segue_engine::conversation::{Event, HistoryItem};
use serde_json::{Value as Json, json};

use super::*;
use crate::{limits, store::MemoryStore};

fn project() -> Project {
    let domain = "slots: {amount: {type: float}}\nresponses: {utter_ask_amount: [{text: How much?}], utter_done: [{text: Done.}]}\n";
    let flows = "flows: {send: {description: sends, steps: [{collect: amount}, {action: utter_done}]}}\n";
    let loaded = crate::project::from_texts([("domain.yml", domain), ("data/flows.yml", flows)]);
    loaded.project.unwrap_or_else(|| panic!("{:?}", loaded.findings))
}

/// Every type of event of the tracker format, and an unknown one.
fn every_event() -> Vec<Json> {
    vec![
        json!({"event": "action", "name": "action_session_start", "policy": null, "confidence": 1.0}),
        json!({"event": "session_started"}),
        json!({"event": "action", "name": "action_listen"}),
        json!({"event": "user", "text": "send 50", "input_channel": "rest", "message_id": "m1", "parse_data": {"intent": {"name": null}, "commands": [{"command": "start flow", "flow": "send"}]}, "metadata": {"model_id": "x"}}),
        json!({"event": "user", "text": null, "parse_data": {"text": " hi "}}),
        json!({"event": "stack", "update": "[{\"op\": \"add\", \"path\": \"/0\", \"value\": {\"flow_id\": \"send\"}}]"}),
        json!({"event": "flow_started", "flow_id": "send", "metadata": {"assistant_id": "a"}}),
        json!({"event": "flow_started", "flow_id": "gone"}),
        json!({"event": "flow_completed", "flow_id": "gone", "step_id": "0_collect_x"}),
        json!({"event": "flow_interrupted", "flow_id": "send", "step_id": "s"}),
        json!({"event": "flow_resumed", "flow_id": "send", "step_id": "s"}),
        json!({"event": "flow_cancelled", "flow_id": "send", "step_id": "s"}),
        json!({"event": "flow_completed"}),
        json!({"event": "slot", "name": "amount", "value": 50.0, "filled_by": "LLM"}),
        json!({"event": "slot", "name": "amount", "value": 60.0, "metadata": {"filled_by": "NLU"}}),
        json!({"event": "slot", "name": "colour", "value": "red", "filled_by": "a module"}),
        json!({"event": "slot", "value": 1}),
        json!({"event": "bot", "text": "How much?", "data": {"buttons": [{"title": "5", "payload": "/5", "type": "x"}, {"strange": 1}], "image": null, "elements": null, "custom": {"a": 1}}, "metadata": {"utter_action": "utter_ask_amount", "utter_source": "ContextualResponseRephraser"}}),
        json!({"event": "bot", "text": null, "data": null}),
        json!({"event": "agent_started", "flow_id": "send", "agent_id": "a", "context_id": null}),
        json!({"event": "agent_interrupted", "flow_id": "send", "agent_id": "a"}),
        json!({"event": "agent_resumed", "flow_id": "send", "agent_id": "a"}),
        json!({"event": "agent_cancelled", "flow_id": "send", "agent_id": "a", "reason": "x"}),
        json!({"event": "agent_completed", "flow_id": "send", "agent_id": "a", "status": "completed"}),
        json!({"event": "session_ended", "metadata": {"_reason": "user"}}),
        json!({"event": "session_paused", "reason": "x"}),
        json!({"event": "conversation_inactive"}),
        json!({"event": "followup", "name": "action_x"}),
        json!({"event": "pause"}),
        json!({"event": "resume"}),
        json!({"event": "rewind"}),
        json!({"event": "undo"}),
        json!({"event": "export", "path": "x"}),
        json!({"event": "reminder", "intent": "x", "date_time": "2026-01-01T00:00:00"}),
        json!({"event": "cancel_reminder", "name": "x"}),
        json!({"event": "active_loop", "name": null}),
        json!({"event": "loop_interrupted", "is_interrupted": true}),
        json!({"event": "action_execution_rejected", "name": "x"}),
        json!({"event": "entities", "entities": []}),
        json!({"event": "agent", "text": "a human", "data": {}}),
        json!({"event": "routing_session_ended"}),
        json!({"event": "brand_new", "x": 1}),
        json!({"no": "kind"}),
    ]
}

fn written(lines: &[Json]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
    fs::write(&path, text.join("\n")).unwrap();
    (folder, path.display().to_string())
}

/// The converted events after they were serialised and parsed, as a store does.
fn stored_events(from: &str) -> Vec<Event> {
    let rows = read(from).unwrap().by_sender.into_values().flatten();
    rows.map(|row| {
        let written = serde_json::to_string(&super::convert::convert(row).event).unwrap();
        serde_json::from_str(&written).unwrap()
    })
    .collect()
}

async fn import(from: &str, store: &Arc<dyn Store>) -> ImportReport {
    import_conversations(read(from).unwrap(), &project(), store).await.unwrap()
}

#[tokio::test]
async fn every_type_of_event_is_imported_and_a_second_run_changes_nothing() {
    let lines: Vec<Json> = every_event()
        .into_iter()
        .enumerate()
        .map(|(at, mut event)| {
            event["sender_id"] = "u1".into();
            event["timestamp"] = (1_700_000_000.0 + at as f64).into();
            event
        })
        .collect();
    let (_folder, path) = written(&lines);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let report = import(&path, &store).await;
    assert_eq!((report.conversations, report.events), (1, lines.len()));
    assert_eq!(report.skipped_rows, Vec::<String>::new());
    assert_eq!(report.unknown_slots, BTreeMap::from([("colour".to_owned(), 1)]));
    assert_eq!(report.unknown_flows, BTreeMap::from([("gone".to_owned(), 1)]));
    for kind in ["brand_new", "(no kind)", "stack", "reminder", "followup", "pause"] {
        assert_eq!(report.unsupported_events.get(kind), Some(&1), "{kind}: {report:?}");
    }
    for kind in ["user", "bot", "agent_completed", "session_ended", "flow_started"] {
        assert_eq!(report.unsupported_events.get(kind), None, "{kind}");
    }
    let stored = store.load(&"u1".into()).await.unwrap();
    let conversation = stored.snapshot.unwrap();
    assert_eq!(conversation.slots.get("amount"), Some(&json!(60.0)));
    let said: Vec<&str> = conversation
        .history
        .iter()
        .filter_map(|item| match item {
            HistoryItem::User { text, .. } | HistoryItem::Bot { text, .. } => Some(&**text),
            _ => None,
        })
        .collect();
    assert!(said.contains(&"send 50") && said.contains(&"hi"), "{said:?}");
    assert!(said.iter().any(|text| text.starts_with("How much?")), "{said:?}");
    // Without the snapshot the events give the same conversation: unsupported events have no effect.
    let bytes: Vec<Event> = stored_events(&path);
    let mut folded = Conversation::new("u1".into());
    bytes.iter().for_each(|event| folded.apply(event));
    assert_eq!(folded, conversation);
    let again = import(&path, &store).await;
    assert_eq!((again.conversations, again.existing), (0, vec!["u1".to_owned()]));
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_sqlite_tracker_store_is_read_in_the_order_of_its_ids() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tracker.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE events (id INTEGER PRIMARY KEY, sender_id VARCHAR(255) NOT NULL, type_name VARCHAR(255) NOT NULL,
             timestamp FLOAT, intent_name VARCHAR(255), action_name VARCHAR(255), data TEXT);",
        )
        .unwrap();
    let insert = |sender: &str, at: f64, data: &str| {
        let query = "INSERT INTO events (sender_id, type_name, timestamp, data) VALUES (?, 'x', ?, ?)";
        connection.execute(query, rusqlite::params![sender, at, data]).unwrap();
    };
    insert("b", 3.0, r#"{"event": "user", "text": "later"}"#);
    insert("a", 1.0, r#"{"event": "user", "text": "first", "timestamp": 1.0}"#);
    insert("a", 2.5, r#"{"event": "flow_started", "flow_id": "send"}"#);
    insert("a", 2.0, "not json");
    drop(connection);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let report = import(&format!("sqlite:///{}", path.display()), &store).await;
    assert_eq!((report.conversations, report.events, report.in_progress), (2, 3, 1));
    assert!(report.skipped_rows[0].contains("events.id 4"), "{:?}", report.skipped_rows);
    let conversation = store.load(&"a".into()).await.unwrap().snapshot.unwrap();
    assert_eq!(&*conversation.latest_message.unwrap().text, "first");
    assert!(matches!(read("sqlite:///nowhere.db"), Err(ImportError::Unreadable { .. })));
}

#[test]
fn file_urls_and_paths_are_read() {
    let (_folder, path) = written(&[json!({"event": "user", "text": "hi", "sender_id": "u"})]);
    for from in [format!("file://{path}"), format!("file://localhost{path}"), path.clone()] {
        assert_eq!(read(&from).unwrap().by_sender.len(), 1, "{from}");
    }
    let Err(ImportError::Unreadable { path, .. }) = read("file://nowhere/here.jsonl") else { panic!() };
    assert_eq!(path, "nowhere/here.jsonl");
}

#[tokio::test]
async fn rows_of_the_events_table_are_read_and_other_lines_skipped() {
    let row = json!({"id": 1, "sender_id": "u", "type_name": "user", "timestamp": 5.0, "data": "{\"event\": \"user\", \"text\": \"x\"}"});
    let (_folder, path) = written(&[row, json!({"event": "user", "text": "nobody"}), json!([1]), json!("x")]);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let report = import(&path, &store).await;
    assert_eq!((report.conversations, report.events, report.skipped_rows.len()), (1, 1, 3));
    assert!(report.skipped_rows[0].starts_with("line 2"), "{:?}", report.skipped_rows);
    let stored = store.load(&"u".into()).await.unwrap();
    assert_eq!(stored.snapshot.unwrap().latest_message.unwrap().input_channel.as_ref(), "");
    assert!(matches!(read("postgresql://host/db"), Err(ImportError::UnknownSource(_))));
    assert!(matches!(read("tracker.csv"), Err(ImportError::UnknownSource(_))));
}

#[test]
fn imports_beyond_the_limits_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.jsonl");
    fs::write(&path, format!("{{\"a\": \"{}\"}}", "x".repeat(limits::IMPORT_LINE))).unwrap();
    assert!(matches!(read(&path.display().to_string()), Err(ImportError::Unreadable { .. })));
    let mut collector = super::source::full_collector(limits::IMPORT_EVENTS);
    assert!(matches!(collector(), Err(ImportError::TooManyEvents(_))));
    let strange: Vec<Json> = (0..limits::IMPORT_REPORTED + 5).map(|_| json!(1)).collect();
    let (_folder, path) = written(&strange);
    assert_eq!(read(&path).unwrap().skipped_rows.len(), limits::IMPORT_REPORTED);
}

//! Reminders and triggers: what happens without a user is fired at its time, once, and survives a restart.

use std::{path::Path, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use segue::{
    Assistant, DiscardReplies, IncomingMessage,
    context::CallContext,
    conversation::{Conversation, Event, EventKind, ExternalTrigger, ReplyEvent, ReplySink, TriggerAction},
    limits,
    runtime::{Action, OutboxSink, TurnReport},
    store::{MemoryStore, SqliteStore, Store},
    testing::{ManualClock, ScriptedLlm},
};
use segue_engine::{conversation::ActionOutcome, limits as engine};
use serde_json::{Value as Json, json};

const FILES: [(&str, &str); 3] = [
    (
        "config.yml",
        "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n",
    ),
    (
        "domain.yml",
        "intents: [time_is_up]\nactions: [action_remind]\nslots: {plant: {type: text, mappings: [{type: from_entity, entity: plant}]}}\n\
         responses:\n  utter_water: [{text: 'Water the {plant}.'}]\n  utter_ask_plant: [{text: Which plant?}]\n",
    ),
    (
        "flows/all.yml",
        "flows:\n  remind: {description: reminds, run_pattern_completed: false, steps: [{action: action_remind}]}\n  \
         water: {description: water, if: false, run_pattern_completed: false, nlu_trigger: [{intent: time_is_up}], \
         steps: [{collect: plant}, {action: utter_water}]}\n",
    ),
];

/// Sets the reminders it is made with.
struct Reminds(Vec<Json>);

impl Action for Reminds {
    fn run<'a>(&'a self, _: &'a Conversation, cx: &'a CallContext) -> BoxFuture<'a, ActionOutcome> {
        let at = cx.clock.now();
        let event = |json: &Json| Event {
            at,
            kind: serde_json::from_value::<EventKind>(json.clone()).unwrap(),
            location: Default::default(),
        };
        let events = self.0.iter().map(event).collect();
        Box::pin(std::future::ready(ActionOutcome::Done { events }))
    }
}

fn reminder(name: &str, second: u32, plant: &str) -> Json {
    let date_time = format!("1970-01-01T00:{:02}:{:02}", second / 60, second % 60);
    json!({"event": "reminder", "name": name, "intent": "time_is_up", "date_time": date_time,
           "kill_on_user_msg": false, "entities": {"plant": plant}})
}

fn assistant(store: Arc<dyn Store>, clock: &ManualClock, sets: Vec<Json>) -> Assistant {
    let model = Arc::new(ScriptedLlm::strict(vec!["start flow remind"; 4]));
    let builder = Assistant::builder_from_texts(FILES).unwrap().model(model).clock(Arc::new(clock.clone()));
    builder.action("action_remind", Arc::new(Reminds(sets))).store(store).build().unwrap()
}

async fn say(assistant: &Assistant, id: &str) -> TurnReport {
    assistant.receive(IncomingMessage::text(id, "remind me", "test"), Box::new(DiscardReplies)).await.unwrap()
}

fn nowhere(_: &segue::ids::ConversationId, _: &str) -> Box<dyn ReplySink> {
    Box::new(OutboxSink)
}

/// What waits in the outbox of a conversation.
async fn said(assistant: &Assistant, id: &str) -> Vec<String> {
    let waiting = assistant.store().pending_replies(&id.into()).await.unwrap();
    waiting.iter().map(|reply| reply.reply.text.as_deref().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn reminders_come_at_their_times_and_once() {
    let clock = ManualClock::new();
    let sets = vec![reminder("late", 90, "rose"), reminder("soon", 30, "fern")];
    let assistant = assistant(Arc::new(MemoryStore::new()), &clock, sets);
    say(&assistant, "u").await;
    assert_eq!(assistant.fire_due_reminders(&nowhere).await.unwrap().map(|at| at.as_micros()), Some(30_000_000));
    assert_eq!(said(&assistant, "u").await, [""; 0]);
    clock.advance(Duration::from_secs(30));
    assert_eq!(assistant.fire_due_reminders(&nowhere).await.unwrap().map(|at| at.as_micros()), Some(90_000_000));
    assert_eq!(said(&assistant, "u").await, ["Water the fern."]);
    clock.advance(Duration::from_secs(600));
    assert_eq!(assistant.fire_due_reminders(&nowhere).await.unwrap(), None);
    assert_eq!(assistant.fire_due_reminders(&nowhere).await.unwrap(), None);
    assert_eq!(said(&assistant, "u").await, ["Water the fern.", "Water the rose."]);
    assert!(assistant.replay(&"u".into()).await.unwrap().is_none(), "every event comes out the same");
}

#[tokio::test]
async fn reminders_survive_a_restart_and_two_who_fire_fire_each_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talks.db");
    let open = |path: &Path| Arc::new(SqliteStore::open(path, false).unwrap());
    let clock = ManualClock::new();
    say(&assistant(open(&path), &clock, vec![reminder("a", 5, "fern"), reminder("b", 5, "rose")]), "u").await;
    // Nobody runs while they become due.
    clock.advance(Duration::from_secs(3600));
    let store = open(&path);
    let (one, other) = (assistant(store.clone(), &clock, vec![]), assistant(store, &clock, vec![]));
    let (first, second) = tokio::join!(one.fire_due_reminders(&nowhere), other.fire_due_reminders(&nowhere));
    first.and(second).unwrap();
    let mut heard = said(&one, "u").await;
    heard.sort();
    assert_eq!(heard, ["Water the fern.", "Water the rose."]);
    assert_eq!(one.store().next_reminders(9).await.unwrap(), []);
}

#[tokio::test]
async fn a_reminder_that_was_set_anew_comes_at_its_new_time() {
    let clock = ManualClock::new();
    let assistant = assistant(Arc::new(MemoryStore::new()), &clock, vec![reminder("a", 30, "fern")]);
    say(&assistant, "u").await;
    clock.advance(Duration::from_secs(31));
    assistant.fire_due_reminders(&nowhere).await.unwrap();
    // The same name and the same time once more: it is due at once.
    say(&assistant, "u").await;
    assistant.fire_due_reminders(&nowhere).await.unwrap();
    assert_eq!(said(&assistant, "u").await, ["Water the fern.", "Water the fern."]);
}

#[tokio::test]
async fn a_turn_that_sets_a_reminder_wakes_who_waits_for_timers() {
    let clock = ManualClock::new();
    let assistant = assistant(Arc::new(MemoryStore::new()), &clock, vec![reminder("a", 3, "fern")]);
    let mut timers = std::pin::pin!(assistant.run_reminders(&nowhere));
    assert!(futures::poll!(&mut timers).is_pending());
    assert_eq!(clock.slept().last(), Some(&limits::REMINDER_POLL_INTERVAL), "with nothing to do it looks now and then");
    say(&assistant, "u").await;
    assert!(futures::poll!(&mut timers).is_pending());
    assert_eq!(clock.slept().last(), Some(&Duration::from_secs(3)));
    clock.advance(Duration::from_secs(3));
    for _ in 0..limits::REMINDERS_AT_ONCE {
        assert!(futures::poll!(&mut timers).is_pending());
        tokio::task::yield_now().await;
    }
    assert_eq!(said(&assistant, "u").await, ["Water the fern."]);
}

#[tokio::test]
async fn many_conversations_are_fired_in_portions() {
    let clock = ManualClock::new();
    let store = Arc::new(MemoryStore::new());
    let crowd = limits::REMINDERS_AT_ONCE + 3;
    let assistant = {
        let model = Arc::new(ScriptedLlm::strict(vec!["start flow remind"; crowd]));
        let builder = Assistant::builder_from_texts(FILES).unwrap().model(model).clock(Arc::new(clock.clone()));
        builder.action("action_remind", Arc::new(Reminds(vec![reminder("a", 1, "fern")]))).store(store).build().unwrap()
    };
    for n in 0..crowd {
        say(&assistant, &format!("u{n}")).await;
    }
    clock.advance(Duration::from_secs(1));
    assert_eq!(assistant.fire_due_reminders(&nowhere).await.unwrap(), None);
    for n in 0..crowd {
        assert_eq!(said(&assistant, &format!("u{n}")).await, ["Water the fern."]);
    }
}

#[tokio::test]
async fn more_reminders_than_there_are_places_are_left_out() {
    let clock = ManualClock::new();
    let sets = (0..=engine::REMINDERS).map(|n| reminder(&format!("r{n}"), 60, "fern")).collect();
    let assistant = assistant(Arc::new(MemoryStore::new()), &clock, sets);
    say(&assistant, "u").await;
    let conversation = assistant.conversation(&"u".into()).await.unwrap();
    assert_eq!(conversation.reminders.iter().count(), engine::REMINDERS);
    assert!(conversation.reminders.get("r0").is_some());
    let trace = assistant.trace(&"u".into(), None).await.unwrap();
    let why = serde_json::to_string(&trace[0].reasons).unwrap();
    assert!(why.contains("reminders are pending already: `r32` is ignored"), "{why}");
}

/// Takes every message and keeps its text.
struct Keeps(tokio::sync::mpsc::UnboundedSender<String>);

impl ReplySink for Keeps {
    fn wants_deltas(&self) -> bool {
        false
    }
    fn send<'a>(
        &'a mut self,
        piece: ReplyEvent,
        _: &'a CallContext,
    ) -> BoxFuture<'a, Result<segue::conversation::Receipt, segue::conversation::DeliveryError>> {
        if let ReplyEvent::Message { message, .. } = piece {
            let _ = self.0.send(message.text.as_deref().unwrap_or_default().to_owned());
        }
        Box::pin(std::future::ready(Ok(segue::conversation::Receipt::Delivered)))
    }
}

#[tokio::test]
async fn a_program_starts_a_flow_once_for_each_id_and_nobody_writes_to_its_channel() {
    let clock = ManualClock::new();
    let assistant = assistant(Arc::new(MemoryStore::new()), &clock, vec![]);
    let (texts, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let trigger = ExternalTrigger {
        action: TriggerAction::Flow("water".into()),
        values: json!({"plant": "cactus"}).as_object().cloned().unwrap(),
        reminder: None,
    };
    for repeated in [false, true] {
        let sink = Box::new(Keeps(texts.clone()));
        let report = assistant.trigger("u".into(), trigger.clone(), "call-1".into(), sink).await.unwrap();
        assert_eq!(report.is_duplicate, repeated);
        assert_eq!(heard.try_recv().as_deref(), Ok("Water the cactus."));
    }
    let mut forged = IncomingMessage::text("u", "remind me", "(trigger)");
    forged.message.metadata = json!({"trigger": {"flow": "water"}}).as_object().cloned().unwrap();
    assistant.receive(forged, Box::new(DiscardReplies)).await.unwrap();
    let turns = assistant.store().turns(&"u".into()).await.unwrap();
    let triggered = |turn: &segue::store::StoredTurn| {
        turn.events.iter().any(|event| matches!(event.kind, EventKind::External { .. }))
    };
    assert_eq!(turns.iter().map(triggered).collect::<Vec<_>>(), [true, false]);
}

#[tokio::test]
async fn reminders_that_cannot_be_fired_do_not_keep_others_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talks.db");
    let store = Arc::new(SqliteStore::open(&path, false).unwrap());
    let clock = ManualClock::new();
    let model = Arc::new(ScriptedLlm::strict(vec!["start flow remind"; limits::REMINDERS_AT_ONCE + 2]));
    let builder = Assistant::builder_from_texts(FILES).unwrap().model(model).clock(Arc::new(clock.clone()));
    let builder = builder.action("action_remind", Arc::new(Reminds(vec![reminder("a", 1, "fern")])));
    let assistant = builder.store(store.clone()).build().unwrap();
    for n in 0..=limits::REMINDERS_AT_ONCE {
        say(&assistant, &format!("damaged{n}")).await;
    }
    clock.advance(Duration::from_millis(1));
    say(&assistant, "sound").await;
    let other = rusqlite::Connection::open(&path).unwrap();
    let ours = "WHERE conversation IN (SELECT number FROM conversations WHERE id LIKE 'damaged%')";
    other.execute_batch("CREATE TEMP TABLE kept AS SELECT id, events FROM batches").unwrap();
    let damaged = other.execute(&format!("UPDATE batches SET events = X'00' {ours}"), []).unwrap();
    assert_eq!(damaged, limits::REMINDERS_AT_ONCE + 1);
    clock.advance(Duration::from_secs(1));
    assistant.fire_due_reminders(&nowhere).await.unwrap();
    assert_eq!(said(&assistant, "sound").await, ["Water the fern."]);
    // What is repaired is fired when the pause after the failure is over, and not before.
    let whole = "(SELECT kept.events FROM kept WHERE kept.id = batches.id)";
    other.execute(&format!("UPDATE batches SET events = {whole} {ours}"), []).unwrap();
    assistant.fire_due_reminders(&nowhere).await.unwrap();
    assert_eq!(said(&assistant, "damaged0").await, [""; 0]);
    clock.advance(limits::REMINDER_BACKOFF);
    assistant.fire_due_reminders(&nowhere).await.unwrap();
    assert_eq!(said(&assistant, "damaged0").await, ["Water the fern."]);
    assert_eq!(assistant.store().next_reminders(1).await.unwrap(), []);
}

//! Reminders and triggers: they start turns without a user. A reminder fires once, at its time, also after a restart.

use std::{path::Path, sync::Arc, time::Duration};

use segue::{
    Assistant, DiscardReplies, IncomingMessage, async_trait,
    context::CallContext,
    conversation::{Conversation, Event, EventKind, ExternalTrigger, ReplySink, TriggerAction, TurnEvent},
    limits,
    runtime::{Action, OutboxSink, TurnReport},
    store::{MemoryStore, SqliteStore, Store},
    testing::{ManualClock, ScriptedLlm},
};
use segue_engine::{conversation::ActionOutcome, limits as engine};
use serde_json::{Value as Json, json};

use crate::support::project_files::CONFIG;

const FILES: [(&str, &str); 3] = [
    CONFIG,
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

/// An action that sets these reminders.
struct SetReminders(Vec<Json>);

#[async_trait]
impl Action for SetReminders {
    async fn run(&self, _: &Conversation, cx: &CallContext) -> ActionOutcome {
        let at = cx.clock.now();
        let event = |json: &Json| Event {
            at,
            kind: serde_json::from_value::<EventKind>(json.clone()).unwrap(),
            location: Default::default(),
        };
        let events = self.0.iter().map(event).collect();
        ActionOutcome::Done { events }
    }
}

fn reminder(name: &str, second: u32, plant: &str) -> Json {
    let date_time = format!("1970-01-01T00:{:02}:{:02}", second / 60, second % 60);
    json!({"event": "reminder", "name": name, "intent": "time_is_up", "date_time": date_time,
           "kill_on_user_msg": false, "entities": {"plant": plant}})
}

fn assistant(store: Arc<dyn Store>, clock: &ManualClock, reminders: Vec<Json>) -> Assistant {
    let model = Arc::new(ScriptedLlm::strict(vec!["start flow remind"; 4]));
    let builder = Assistant::builder_from_texts(FILES).unwrap().model(model).clock(Arc::new(clock.clone()));
    builder.action("action_remind", Arc::new(SetReminders(reminders))).store(store).build().unwrap()
}

async fn say(assistant: &Assistant, id: &str) -> TurnReport {
    assistant
        .receive(IncomingMessage::new(id, "remind me").input_channel("test"), Box::new(DiscardReplies))
        .await
        .unwrap()
}

/// A reply sink for every conversation: the outbox.
fn outbox(_: &segue::ids::ConversationId, _: &str) -> Box<dyn ReplySink> {
    Box::new(OutboxSink)
}

/// The texts in the outbox of a conversation.
async fn outbox_texts(assistant: &Assistant, id: &str) -> Vec<String> {
    let pending = assistant.store().pending_replies(&id.into()).await.unwrap();
    pending.iter().map(|reply| reply.reply.text.as_deref().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn reminders_fire_once_at_their_times() {
    let clock = ManualClock::new();
    let reminders = vec![reminder("late", 90, "rose"), reminder("soon", 30, "fern")];
    let assistant = assistant(Arc::new(MemoryStore::new()), &clock, reminders);
    say(&assistant, "u").await;
    assert_eq!(assistant.fire_due_reminders(&outbox).await.unwrap().map(|at| at.as_micros()), Some(30_000_000));
    assert_eq!(outbox_texts(&assistant, "u").await, [""; 0]);
    clock.advance(Duration::from_secs(30));
    assert_eq!(assistant.fire_due_reminders(&outbox).await.unwrap().map(|at| at.as_micros()), Some(90_000_000));
    assert_eq!(outbox_texts(&assistant, "u").await, ["Water the fern."]);
    clock.advance(Duration::from_secs(600));
    assert_eq!(assistant.fire_due_reminders(&outbox).await.unwrap(), None);
    assert_eq!(assistant.fire_due_reminders(&outbox).await.unwrap(), None);
    assert_eq!(outbox_texts(&assistant, "u").await, ["Water the fern.", "Water the rose."]);
    assert!(assistant.replay(&"u".into()).await.unwrap().is_none(), "a replay gives the same events");
}

#[tokio::test]
async fn reminders_survive_a_restart_and_fire_once_with_two_processes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talks.db");
    let open = |path: &Path| Arc::new(SqliteStore::open(path, false).unwrap());
    let clock = ManualClock::new();
    say(&assistant(open(&path), &clock, vec![reminder("a", 5, "fern"), reminder("b", 5, "rose")]), "u").await;
    // No process runs when they become due.
    clock.advance(Duration::from_secs(3600));
    let store = open(&path);
    let (first_process, second_process) = (assistant(store.clone(), &clock, vec![]), assistant(store, &clock, vec![]));
    let (first, second) =
        tokio::join!(first_process.fire_due_reminders(&outbox), second_process.fire_due_reminders(&outbox));
    first.and(second).unwrap();
    let mut texts = outbox_texts(&first_process, "u").await;
    texts.sort();
    assert_eq!(texts, ["Water the fern.", "Water the rose."]);
    assert_eq!(first_process.store().next_reminders(9).await.unwrap(), []);
}

#[tokio::test]
async fn reminder_that_is_set_again_fires_again() {
    let clock = ManualClock::new();
    let assistant = assistant(Arc::new(MemoryStore::new()), &clock, vec![reminder("a", 30, "fern")]);
    say(&assistant, "u").await;
    clock.advance(Duration::from_secs(31));
    assistant.fire_due_reminders(&outbox).await.unwrap();
    // Set again with the same name and time: it is due at once.
    say(&assistant, "u").await;
    assistant.fire_due_reminders(&outbox).await.unwrap();
    assert_eq!(outbox_texts(&assistant, "u").await, ["Water the fern.", "Water the fern."]);
}

#[tokio::test]
async fn new_reminder_wakes_the_timer_loop() {
    let clock = ManualClock::new();
    let assistant = assistant(Arc::new(MemoryStore::new()), &clock, vec![reminder("a", 3, "fern")]);
    let mut timers = std::pin::pin!(assistant.run_reminders(&outbox));
    assert!(futures::poll!(&mut timers).is_pending());
    assert_eq!(clock.slept().last(), Some(&limits::REMINDER_POLL_INTERVAL), "without reminders it polls");
    say(&assistant, "u").await;
    assert!(futures::poll!(&mut timers).is_pending());
    assert_eq!(clock.slept().last(), Some(&Duration::from_secs(3)));
    clock.advance(Duration::from_secs(3));
    for _ in 0..limits::REMINDERS_AT_ONCE {
        assert!(futures::poll!(&mut timers).is_pending());
        tokio::task::yield_now().await;
    }
    assert_eq!(outbox_texts(&assistant, "u").await, ["Water the fern."]);
}

#[tokio::test]
async fn due_reminders_of_many_conversations_fire_in_batches() {
    let clock = ManualClock::new();
    let store = Arc::new(MemoryStore::new());
    let count = limits::REMINDERS_AT_ONCE + 3;
    let assistant = {
        let model = Arc::new(ScriptedLlm::strict(vec!["start flow remind"; count]));
        let builder = Assistant::builder_from_texts(FILES).unwrap().model(model).clock(Arc::new(clock.clone()));
        builder
            .action("action_remind", Arc::new(SetReminders(vec![reminder("a", 1, "fern")])))
            .store(store)
            .build()
            .unwrap()
    };
    for n in 0..count {
        say(&assistant, &format!("u{n}")).await;
    }
    clock.advance(Duration::from_secs(1));
    assert_eq!(assistant.fire_due_reminders(&outbox).await.unwrap(), None);
    for n in 0..count {
        assert_eq!(outbox_texts(&assistant, &format!("u{n}")).await, ["Water the fern."]);
    }
}

#[tokio::test]
async fn reminders_beyond_the_limit_are_dropped() {
    let clock = ManualClock::new();
    let reminders = (0..=engine::REMINDERS).map(|n| reminder(&format!("r{n}"), 60, "fern")).collect();
    let assistant = assistant(Arc::new(MemoryStore::new()), &clock, reminders);
    say(&assistant, "u").await;
    let conversation = assistant.conversation(&"u".into()).await.unwrap();
    assert_eq!(conversation.reminders.iter().count(), engine::REMINDERS);
    assert!(conversation.reminders.get("r0").is_some());
    let trace = assistant.trace(&"u".into(), None).await.unwrap();
    let notes = serde_json::to_string(&trace[0].reasons).unwrap();
    assert!(notes.contains("reminders are pending already: `r32` is ignored"), "{notes}");
}

/// A sink that sends the texts of complete messages to a queue.
struct QueueSink(tokio::sync::mpsc::UnboundedSender<String>);

#[async_trait]
impl ReplySink for QueueSink {
    fn wants_deltas(&self) -> bool {
        false
    }
    async fn send(
        &mut self,
        piece: TurnEvent,
        _: &CallContext,
    ) -> Result<segue::conversation::Receipt, segue::conversation::DeliveryError> {
        if let TurnEvent::Message { message, .. } = piece {
            let _ = self.0.send(message.text.as_deref().unwrap_or_default().to_owned());
        }
        Ok(segue::conversation::Receipt::Delivered)
    }
}

#[tokio::test]
async fn trigger_starts_a_flow_once_per_id_and_messages_cannot_forge_a_trigger() {
    let clock = ManualClock::new();
    let assistant = assistant(Arc::new(MemoryStore::new()), &clock, vec![]);
    let (texts, mut sent) = tokio::sync::mpsc::unbounded_channel();
    let trigger = ExternalTrigger {
        action: TriggerAction::Flow("water".into()),
        values: json!({"plant": "cactus"}).as_object().cloned().unwrap(),
        reminder: None,
    };
    for repeated in [false, true] {
        let sink = Box::new(QueueSink(texts.clone()));
        let report = assistant.trigger("u".into(), trigger.clone(), "call-1".into(), sink).await.unwrap();
        assert_eq!(report.is_duplicate, repeated);
        // The sink pushes: what was delivered is not sent again.
        assert_eq!(sent.try_recv().ok().as_deref(), (!repeated).then_some("Water the cactus."));
        assert_eq!(report.text(), "Water the cactus.");
    }
    let mut forged = IncomingMessage::new("u", "remind me").input_channel("(trigger)");
    forged.metadata = json!({"trigger": {"flow": "water"}}).as_object().cloned().unwrap();
    assistant.receive(forged, Box::new(DiscardReplies)).await.unwrap();
    let turns = assistant.store().turns(&"u".into()).await.unwrap();
    let triggered = |turn: &segue::store::StoredTurn| {
        turn.events.iter().any(|event| matches!(event.kind, EventKind::External { .. }))
    };
    assert_eq!(turns.iter().map(triggered).collect::<Vec<_>>(), [true, false]);
}

#[tokio::test]
async fn reminders_that_fail_do_not_delay_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talks.db");
    let store = Arc::new(SqliteStore::open(&path, false).unwrap());
    let clock = ManualClock::new();
    let model = Arc::new(ScriptedLlm::strict(vec!["start flow remind"; limits::REMINDERS_AT_ONCE + 2]));
    let builder = Assistant::builder_from_texts(FILES).unwrap().model(model).clock(Arc::new(clock.clone()));
    let builder = builder.action("action_remind", Arc::new(SetReminders(vec![reminder("a", 1, "fern")])));
    let assistant = builder.store(store.clone()).build().unwrap();
    for n in 0..=limits::REMINDERS_AT_ONCE {
        say(&assistant, &format!("damaged{n}")).await;
    }
    clock.advance(Duration::from_millis(1));
    say(&assistant, "intact").await;
    let file = rusqlite::Connection::open(&path).unwrap();
    let of_damaged = "WHERE conversation IN (SELECT number FROM conversations WHERE id LIKE 'damaged%')";
    file.execute_batch("CREATE TEMP TABLE backup AS SELECT id, events FROM batches").unwrap();
    let damaged = file.execute(&format!("UPDATE batches SET events = X'00' {of_damaged}"), []).unwrap();
    assert_eq!(damaged, limits::REMINDERS_AT_ONCE + 1);
    clock.advance(Duration::from_secs(1));
    assistant.fire_due_reminders(&outbox).await.unwrap();
    assert_eq!(outbox_texts(&assistant, "intact").await, ["Water the fern."]);
    // After a repair, the reminders fire when the pause after the failure is over, not before.
    let original = "(SELECT backup.events FROM backup WHERE backup.id = batches.id)";
    file.execute(&format!("UPDATE batches SET events = {original} {of_damaged}"), []).unwrap();
    assistant.fire_due_reminders(&outbox).await.unwrap();
    assert_eq!(outbox_texts(&assistant, "damaged0").await, [""; 0]);
    clock.advance(limits::REMINDER_BACKOFF);
    assistant.fire_due_reminders(&outbox).await.unwrap();
    assert_eq!(outbox_texts(&assistant, "damaged0").await, ["Water the fern."]);
    assert_eq!(assistant.store().next_reminders(1).await.unwrap(), []);
}

#[tokio::test]
async fn a_message_that_was_written_before_a_reminder_asked_does_not_answer_its_question() {
    let answers = ["start flow remind", "set slot plant cactus", "set slot plant cactus"];
    let (clock, store) = (ManualClock::new(), Arc::new(MemoryStore::new()));
    let domain = FILES[1].1.replace("entity: plant}]", "entity: plant}, {type: from_llm}]");
    let files = [FILES[0], (FILES[1].0, &*domain), FILES[2]];
    let builder = Assistant::builder_from_texts(files).unwrap().model(Arc::new(ScriptedLlm::strict(answers)));
    let asks = json!({"event": "reminder", "name": "a", "intent": "time_is_up", "date_time": "1970-01-01T00:00:03", "kill_on_user_msg": false});
    let builder = builder.action("action_remind", Arc::new(SetReminders(vec![asks])));
    let assistant = builder.clock(Arc::new(clock.clone())).store(store as Arc<dyn Store>).build().unwrap();
    assistant.say("u", "remind me").await.unwrap();
    clock.advance(Duration::from_secs(3));
    assistant.fire_due_reminders(&outbox).await.unwrap();
    assert_eq!(outbox_texts(&assistant, "u").await, ["Which plant?"]);
    // The question comes with the answer to a message that was written before it.
    let report = assistant.say("u", "the cactus looks sad").await.unwrap();
    assert_eq!(report.texts(), ["Which plant?", "Which plant?"]);
    assert_eq!(assistant.say("u", "the cactus").await.unwrap().texts(), ["Water the cactus."]);
    assert_eq!(assistant.replay(&"u".into()).await.unwrap().map(|difference| difference.event), None);
}

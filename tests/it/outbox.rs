//! The outbox: delivered replies are not sent again, undelivered replies wait for their channel.

use std::sync::{Arc, Mutex};

use segue::{
    Assistant, IncomingMessage, async_trait,
    channels::Inbox,
    context::CallContext,
    conversation::{Conversation, DeliveryError, ExternalTrigger, Receipt, ReplySink, TriggerAction, TurnEvent},
    limits,
    runtime::{Action, OutboxSink, TurnReport},
    store::{InboxMessage, MemoryStore, Store},
    testing::{CollectingSink, ManualClock, ScriptedLlm},
};
use segue_engine::conversation::{ActionOutcome, UserMessage};

use crate::support::project_files::CONFIG;

const FILES: [(&str, &str); 3] = [
    CONFIG,
    ("domain.yml", "actions: [action_work]\nresponses:\n  utter_hi: [{text: Hi.}]\n"),
    (
        "flows/all.yml",
        "flows:\n  hello: {description: greets, run_pattern_completed: false, steps: [{action: utter_hi}, {action: action_work}]}\n",
    ),
];

/// An action. The replies before it are sent first, because an action may take long.
struct WorkAction;

#[async_trait]
impl Action for WorkAction {
    async fn run(&self, _: &Conversation, _: &CallContext) -> ActionOutcome {
        ActionOutcome::Done { events: Vec::new() }
    }
}

fn assistant(store: Arc<dyn Store>) -> Assistant {
    let model = Arc::new(ScriptedLlm::strict(vec!["start flow hello"]));
    let builder = Assistant::builder_from_texts(FILES).unwrap().model(model);
    builder.action("action_work", Arc::new(WorkAction)).store(store).build().unwrap()
}

/// A sink that returns this receipt for every complete message, and records the texts.
struct FixedReceiptSink(Receipt, Arc<Mutex<Vec<String>>>);

#[async_trait]
impl ReplySink for FixedReceiptSink {
    fn wants_deltas(&self) -> bool {
        true
    }
    async fn send(&mut self, piece: TurnEvent, _: &CallContext) -> Result<Receipt, DeliveryError> {
        if let TurnEvent::Message { message, .. } = piece {
            self.1.lock().unwrap().push(message.text.as_deref().unwrap_or_default().to_owned());
        }
        Ok(self.0)
    }
}

#[tokio::test]
async fn skipped_replies_are_delivered_after_the_commit() {
    for (receipt, expected) in [(Receipt::Delivered, vec!["Hi."]), (Receipt::Skipped, vec!["Hi.", "Hi."])] {
        let (assistant, sent) = (assistant(Arc::new(MemoryStore::new())), Arc::default());
        let sink = Box::new(FixedReceiptSink(receipt, Arc::clone(&sent)));
        assistant.receive(IncomingMessage::new("u", "hello").input_channel("test"), sink).await.unwrap();
        assert_eq!(*sent.lock().unwrap(), expected, "{receipt:?}");
        assert_eq!(assistant.store().pending_replies(&"u".into()).await.unwrap(), [], "{receipt:?}");
    }
}

#[tokio::test]
async fn replies_of_a_recovered_turn_wait_in_the_outbox() {
    let store = Arc::new(MemoryStore::new());
    let inbound = InboxMessage {
        tenant: "".into(),
        account: "".into(),
        conversation: "u".into(),
        message: UserMessage {
            via: "".into(),
            holds_writes: false,
            before_question: false,
            text: "hello".into(),
            message_id: "m".into(),
            input_channel: "test".into(),
            metadata: Default::default(),
        },
        at: Default::default(),
        seed: 1,
    };
    store.accept(inbound).await.unwrap();
    let assistant = assistant(store);
    assert_eq!(assistant.recover().await.unwrap(), 1);
    assert_eq!(assistant.store().pending_replies(&"u".into()).await.unwrap().len(), 1, "there was no sink");
    let mut sink = CollectingSink::without_streaming();
    assert_eq!(assistant.deliver_pending(&"u".into(), &mut sink).await.unwrap(), 1);
    assert_eq!(sink.collected().texts(), ["Hi."]);
    assert_eq!(assistant.deliver_pending(&"u".into(), &mut sink).await.unwrap(), 0);
}

/// A sink that also delivers earlier replies (`takes_earlier`). It records the texts, or fails.
#[derive(Clone, Default)]
struct EarlierRepliesSink {
    sent: Arc<Mutex<Vec<String>>>,
    fails: bool,
}

#[async_trait]
impl ReplySink for EarlierRepliesSink {
    fn wants_deltas(&self) -> bool {
        false
    }
    fn accepts_earlier_replies(&self) -> bool {
        true
    }
    async fn send(&mut self, piece: TurnEvent, _: &CallContext) -> Result<Receipt, DeliveryError> {
        match piece {
            _ if self.fails => Err(DeliveryError::Temporary("no connection".into())),
            TurnEvent::Message { message, .. } => {
                self.sent.lock().unwrap().push(message.text.as_deref().unwrap_or_default().to_owned());
                Ok(Receipt::Delivered)
            }
            _ => Ok(Receipt::Skipped),
        }
    }
}

const REMINDER: &str = "flows:
  hello: {description: greets, run_pattern_completed: false, steps: [{action: utter_hi}]}
  remind: {description: reminds, run_pattern_completed: false, steps: [{action: utter_water}]}
";

/// An assistant with a flow `remind` that a trigger starts, and its clock.
fn assistant_with_trigger() -> (Assistant, ManualClock) {
    let clock = ManualClock::new();
    let files = [
        FILES[0],
        ("domain.yml", "responses:\n  utter_hi: [{text: Hi.}]\n  utter_water: [{text: Water it.}]\n"),
        ("flows/all.yml", REMINDER),
    ];
    let model = Arc::new(ScriptedLlm::strict(vec!["start flow hello"; 4]));
    let builder = Assistant::builder_from_texts(files).unwrap().model(model).clock(Arc::new(clock.clone()));
    (builder.build().unwrap(), clock)
}

async fn remind(assistant: &Assistant) {
    let trigger =
        ExternalTrigger { action: TriggerAction::Flow("remind".into()), values: Default::default(), reminder: None };
    assistant.trigger("u".into(), trigger, "".into(), Box::new(OutboxSink)).await.unwrap();
}

/// The number of replies in the outbox.
async fn pending_count(assistant: &Assistant) -> usize {
    assistant.store().pending_replies(&"u".into()).await.unwrap().len()
}

async fn hello(assistant: &Assistant, sink: &EarlierRepliesSink) -> TurnReport {
    assistant.receive(IncomingMessage::new("u", "hello").input_channel("test"), Box::new(sink.clone())).await.unwrap()
}

#[tokio::test]
async fn pending_replies_are_delivered_once_before_the_next_reply() {
    let (assistant, _) = assistant_with_trigger();
    let sink = EarlierRepliesSink::default();
    hello(&assistant, &sink).await;
    remind(&assistant).await;
    assert_eq!(pending_count(&assistant).await, 1);
    let report = hello(&assistant, &sink).await;
    assert_eq!(*sink.sent.lock().unwrap(), ["Hi.", "Water it.", "Hi."]);
    let texts = |replies: &[segue::store::StoredReply]| {
        replies.iter().map(|reply| reply.reply.text.as_deref().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        (texts(&report.earlier_replies), texts(&report.replies)),
        (vec!["Water it.".into()], vec!["Hi.".into()])
    );
    assert_eq!(pending_count(&assistant).await, 0);
    assert!(hello(&assistant, &sink).await.earlier_replies.is_empty());
}

#[tokio::test]
async fn pending_replies_are_kept_if_delivery_fails_or_the_channel_takes_no_earlier_replies() {
    let (assistant, _) = assistant_with_trigger();
    remind(&assistant).await;
    hello(&assistant, &EarlierRepliesSink { fails: true, ..EarlierRepliesSink::default() }).await;
    assert_eq!(pending_count(&assistant).await, 2, "the reply of the failed delivery waits too");
    let plain = CollectingSink::without_streaming();
    let collected = plain.collected();
    assistant.receive(IncomingMessage::new("u", "hello").input_channel("test"), Box::new(plain)).await.unwrap();
    assert_eq!((collected.texts(), pending_count(&assistant).await), (vec!["Hi.".to_owned()], 2));
    let sink = EarlierRepliesSink::default();
    hello(&assistant, &sink).await;
    assert_eq!(*sink.sent.lock().unwrap(), ["Water it.", "Hi.", "Hi."]);
}

#[tokio::test]
async fn pending_replies_expire() {
    for (age, expected) in [(limits::OUTBOX_AGE / 2, vec!["Water it.", "Hi."]), (limits::OUTBOX_AGE, vec!["Hi."])] {
        let (assistant, clock) = assistant_with_trigger();
        remind(&assistant).await;
        clock.advance(age);
        let sink = EarlierRepliesSink::default();
        hello(&assistant, &sink).await;
        assert_eq!(*sink.sent.lock().unwrap(), expected);
        assert_eq!(pending_count(&assistant).await, 0);
        // Recovery at start drops expired replies as well.
        remind(&assistant).await;
        clock.advance(age);
        assistant.recover().await.unwrap();
        assert_eq!(pending_count(&assistant).await, usize::from(age < limits::OUTBOX_AGE));
    }
}

#[tokio::test]
async fn push_channel_gets_pending_replies_at_once_and_after_a_failure() {
    let (assistant, clock) = assistant_with_trigger();
    let sink = EarlierRepliesSink::default();
    let inbox = Inbox::new(assistant.clone(), "push");
    // What flows see as the channel decides nothing: a caller may have chosen it.
    let message = IncomingMessage::new("u", "hello").input_channel("elsewhere");
    inbox.receive(message, Box::new(CollectingSink::without_streaming())).await.unwrap();
    let is_down = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let sink_for = |_: &segue::ids::ConversationId, channel: &str| -> Option<Box<dyn ReplySink>> {
        assert_eq!(channel, "push");
        let fails = is_down.load(std::sync::atomic::Ordering::SeqCst);
        Some(Box::new(EarlierRepliesSink { fails, ..sink.clone() }))
    };
    let mut deliveries = std::pin::pin!(assistant.deliver_outbox(&sink_for));
    assert!(futures::poll!(&mut deliveries).is_pending());
    remind(&assistant).await;
    assert!(futures::poll!(&mut deliveries).is_pending());
    assert_eq!(pending_count(&assistant).await, 1, "the channel cannot deliver it yet");
    is_down.store(false, std::sync::atomic::Ordering::SeqCst);
    clock.advance(limits::REMINDER_POLL_INTERVAL);
    assert!(futures::poll!(&mut deliveries).is_pending());
    assert_eq!(*sink.sent.lock().unwrap(), ["Water it."]);
    assert_eq!(pending_count(&assistant).await, 0);
    remind(&assistant).await;
    assert!(futures::poll!(&mut deliveries).is_pending());
    assert_eq!(pending_count(&assistant).await, 0);
}

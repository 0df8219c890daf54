//! What a channel has is not offered to it again, and what it has not waits for it.

use std::sync::{Arc, Mutex};

use futures::future::{BoxFuture, ready};
use segue::{
    Assistant, IncomingMessage,
    context::CallContext,
    conversation::{Conversation, DeliveryError, ExternalTrigger, Receipt, ReplyEvent, ReplySink, TriggerAction},
    limits,
    runtime::{Action, OutboxSink, TurnReport},
    store::{InboxMessage, MemoryStore, Store},
    testing::{CollectingSink, ManualClock, ScriptedLlm},
};
use segue_engine::conversation::{ActionOutcome, UserMessage};

const FILES: [(&str, &str); 3] = [
    (
        "config.yml",
        "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n",
    ),
    ("domain.yml", "actions: [action_work]\nresponses:\n  utter_hi: [{text: Hi.}]\n"),
    (
        "flows/all.yml",
        "flows:\n  hello: {description: greets, run_pattern_completed: false, steps: [{action: utter_hi}, {action: action_work}]}\n",
    ),
];

/// Something that may take long: what was said before it leaves first.
struct Works;

impl Action for Works {
    fn run<'a>(&'a self, _: &'a Conversation, _: &'a CallContext) -> BoxFuture<'a, ActionOutcome> {
        Box::pin(ready(ActionOutcome::Done { events: Vec::new() }))
    }
}

fn assistant(store: Arc<dyn Store>) -> Assistant {
    let model = Arc::new(ScriptedLlm::strict(vec!["start flow hello"]));
    let builder = Assistant::builder_from_texts(FILES).unwrap().model(model);
    builder.action("action_work", Arc::new(Works)).store(store).build().unwrap()
}

/// Answers every whole message alike, and counts them.
struct Answers(Receipt, Arc<Mutex<Vec<String>>>);

impl ReplySink for Answers {
    fn wants_deltas(&self) -> bool {
        true
    }
    fn send<'a>(&'a mut self, piece: ReplyEvent, _: &'a CallContext) -> BoxFuture<'a, Result<Receipt, DeliveryError>> {
        if let ReplyEvent::Message { message, .. } = piece {
            self.1.lock().unwrap().push(message.text.as_deref().unwrap_or_default().to_owned());
        }
        Box::pin(ready(Ok(self.0)))
    }
}

#[tokio::test]
async fn what_a_channel_skips_comes_when_its_turn_is_stored() {
    for (receipt, expected) in [(Receipt::Delivered, vec!["Hi."]), (Receipt::Skipped, vec!["Hi.", "Hi."])] {
        let (assistant, seen) = (assistant(Arc::new(MemoryStore::new())), Arc::default());
        let sink = Box::new(Answers(receipt, Arc::clone(&seen)));
        assistant.receive(IncomingMessage::text("u", "hello", "test"), sink).await.unwrap();
        assert_eq!(*seen.lock().unwrap(), expected, "{receipt:?}");
        assert_eq!(assistant.store().pending_replies(&"u".into()).await.unwrap(), [], "{receipt:?}");
    }
}

#[tokio::test]
async fn what_is_said_in_a_turn_that_is_finished_after_a_crash_waits_for_its_channel() {
    let store = Arc::new(MemoryStore::new());
    let inbound = InboxMessage {
        tenant: "".into(),
        account: "".into(),
        conversation: "u".into(),
        message: UserMessage {
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
    assert_eq!(assistant.store().pending_replies(&"u".into()).await.unwrap().len(), 1, "nobody was there to take it");
    let mut sink = CollectingSink::without_streaming();
    assert_eq!(assistant.deliver_pending(&"u".into(), &mut sink).await.unwrap(), 1);
    assert_eq!(sink.collected().texts(), ["Hi."]);
    assert_eq!(assistant.deliver_pending(&"u".into(), &mut sink).await.unwrap(), 0);
}

/// A channel whose answers carry what waited: the texts that it was sent, unless it breaks.
#[derive(Clone, Default)]
struct Carries {
    sent: Arc<Mutex<Vec<String>>>,
    breaks: bool,
}

impl ReplySink for Carries {
    fn wants_deltas(&self) -> bool {
        false
    }
    fn accepts_earlier_replies(&self) -> bool {
        true
    }
    fn send<'a>(&'a mut self, piece: ReplyEvent, _: &'a CallContext) -> BoxFuture<'a, Result<Receipt, DeliveryError>> {
        let taken = match piece {
            _ if self.breaks => Err(DeliveryError::Temporary("the line is cut".into())),
            ReplyEvent::Message { message, .. } => {
                self.sent.lock().unwrap().push(message.text.as_deref().unwrap_or_default().to_owned());
                Ok(Receipt::Delivered)
            }
            _ => Ok(Receipt::Skipped),
        };
        Box::pin(ready(taken))
    }
}

const REMINDER: &str = "flows:
  hello: {description: greets, run_pattern_completed: false, steps: [{action: utter_hi}]}
  remind: {description: reminds, run_pattern_completed: false, steps: [{action: utter_water}]}
";

/// An assistant whose flow `remind` a program starts, and its time.
fn reminding() -> (Assistant, ManualClock) {
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

async fn waiting(assistant: &Assistant) -> usize {
    assistant.store().pending_replies(&"u".into()).await.unwrap().len()
}

async fn hello(assistant: &Assistant, sink: &Carries) -> TurnReport {
    assistant.receive(IncomingMessage::text("u", "hello", "test"), Box::new(sink.clone())).await.unwrap()
}

#[tokio::test]
async fn what_waits_goes_out_before_the_next_answer_and_once() {
    let (assistant, _) = reminding();
    let sink = Carries::default();
    hello(&assistant, &sink).await;
    remind(&assistant).await;
    assert_eq!(waiting(&assistant).await, 1);
    let report = hello(&assistant, &sink).await;
    assert_eq!(*sink.sent.lock().unwrap(), ["Hi.", "Water it.", "Hi."]);
    let texts = |replies: &[segue::store::StoredReply]| {
        replies.iter().map(|reply| reply.reply.text.as_deref().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        (texts(&report.earlier_replies), texts(&report.replies)),
        (vec!["Water it.".into()], vec!["Hi.".into()])
    );
    assert_eq!(waiting(&assistant).await, 0);
    assert!(hello(&assistant, &sink).await.earlier_replies.is_empty());
}

#[tokio::test]
async fn what_waits_is_kept_where_the_channel_breaks_or_takes_no_earlier_replies() {
    let (assistant, _) = reminding();
    remind(&assistant).await;
    hello(&assistant, &Carries { breaks: true, ..Carries::default() }).await;
    assert_eq!(waiting(&assistant).await, 2, "its own reply waits too");
    let plain = CollectingSink::without_streaming();
    let collected = plain.collected();
    assistant.receive(IncomingMessage::text("u", "hello", "test"), Box::new(plain)).await.unwrap();
    assert_eq!((collected.texts(), waiting(&assistant).await), (vec!["Hi.".to_owned()], 2));
    let sink = Carries::default();
    hello(&assistant, &sink).await;
    assert_eq!(*sink.sent.lock().unwrap(), ["Water it.", "Hi.", "Hi."]);
}

#[tokio::test]
async fn replies_that_nobody_asks_for_are_given_up() {
    for (age, expected) in [(limits::OUTBOX_AGE / 2, vec!["Water it.", "Hi."]), (limits::OUTBOX_AGE, vec!["Hi."])] {
        let (assistant, clock) = reminding();
        remind(&assistant).await;
        clock.advance(age);
        let sink = Carries::default();
        hello(&assistant, &sink).await;
        assert_eq!(*sink.sent.lock().unwrap(), expected);
        assert_eq!(waiting(&assistant).await, 0);
        // The sweep at the start gives them up as well.
        remind(&assistant).await;
        clock.advance(age);
        assistant.recover().await.unwrap();
        assert_eq!(waiting(&assistant).await, usize::from(age < limits::OUTBOX_AGE));
    }
}

#[tokio::test]
async fn a_channel_that_reaches_its_users_is_given_what_waits_at_once() {
    let (assistant, clock) = reminding();
    let sink = Carries::default();
    assistant
        .receive(IncomingMessage::text("u", "hello", "push"), Box::new(CollectingSink::without_streaming()))
        .await
        .unwrap();
    let broken = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let reach = |_: &segue::ids::ConversationId, channel: &str| -> Option<Box<dyn ReplySink>> {
        // The channel of a trigger is none that anybody reads.
        assert!(matches!(channel, "push" | "(trigger)"), "{channel}");
        let breaks = broken.load(std::sync::atomic::Ordering::SeqCst);
        Some(Box::new(Carries { breaks, ..sink.clone() }))
    };
    let mut deliveries = std::pin::pin!(assistant.deliver_outbox(&reach));
    assert!(futures::poll!(&mut deliveries).is_pending());
    remind(&assistant).await;
    assert!(futures::poll!(&mut deliveries).is_pending());
    assert_eq!(waiting(&assistant).await, 1, "the channel does not take it now");
    broken.store(false, std::sync::atomic::Ordering::SeqCst);
    clock.advance(limits::REMINDER_POLL_INTERVAL);
    assert!(futures::poll!(&mut deliveries).is_pending());
    assert_eq!(*sink.sent.lock().unwrap(), ["Water it."]);
    assert_eq!(waiting(&assistant).await, 0);
    remind(&assistant).await;
    assert!(futures::poll!(&mut deliveries).is_pending());
    assert_eq!(waiting(&assistant).await, 0);
}

//! What a channel has is not offered to it again, and what it has not waits for it.

use std::sync::{Arc, Mutex};

use futures::future::{BoxFuture, ready};
use segue::{
    Assistant, Incoming,
    conversation::{Conversation, DeliveryError, Receipt, ReplyPiece, ReplySink},
    cx::Cx,
    runtime::Action,
    store::{Inbound, MemoryStore, Store},
    testing::{CollectingSink, ScriptedLlm},
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
    fn run<'a>(&'a self, _: &'a Conversation, _: &'a Cx) -> BoxFuture<'a, ActionOutcome> {
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
    fn streams(&self) -> bool {
        true
    }
    fn send<'a>(&'a mut self, piece: ReplyPiece, _: &'a Cx) -> BoxFuture<'a, Result<Receipt, DeliveryError>> {
        if let ReplyPiece::Message { message, .. } = piece {
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
        assistant.receive(Incoming::text("u", "hello", "test"), sink).await.unwrap();
        assert_eq!(*seen.lock().unwrap(), expected, "{receipt:?}");
        assert_eq!(assistant.store().undelivered(&"u".into()).await.unwrap(), [], "{receipt:?}");
    }
}

#[tokio::test]
async fn what_is_said_in_a_turn_that_is_finished_after_a_crash_waits_for_its_channel() {
    let store = Arc::new(MemoryStore::new());
    let inbound = Inbound {
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
    assert_eq!(assistant.store().undelivered(&"u".into()).await.unwrap().len(), 1, "nobody was there to take it");
    let mut sink = CollectingSink::whole();
    assert_eq!(assistant.flush(&"u".into(), &mut sink).await.unwrap(), 1);
    assert_eq!(sink.collected().texts(), ["Hi."]);
    assert_eq!(assistant.flush(&"u".into(), &mut sink).await.unwrap(), 0);
}

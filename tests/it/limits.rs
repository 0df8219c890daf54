//! Limits of a turn and of a mailbox, reached on purpose.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use segue::{
    BoxFuture,
    conversation::{ActionOutcome, Conversation},
    cx::Cx,
    limits,
    runtime::{Action, Assistant, Incoming, ReceiveError},
    testing::{CollectingSink, ScriptedLlm, World},
};
use tokio::sync::Semaphore;

const CONFIG: &str =
    "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n";

/// Counts its runs, and waits for a permit each time.
struct Counted {
    runs: AtomicU32,
    gate: Semaphore,
}

impl Action for Counted {
    fn run<'a>(&'a self, _: &'a Conversation, _: &'a Cx) -> BoxFuture<'a, ActionOutcome> {
        Box::pin(async move {
            self.runs.fetch_add(1, Ordering::SeqCst);
            let _permit = self.gate.acquire().await.unwrap();
            ActionOutcome::Done { events: Vec::new() }
        })
    }
}

fn world(steps: usize, answers: &[&str], permits: usize) -> (World, Arc<Counted>) {
    let flow = format!(
        "flows: {{work: {{description: works, run_pattern_completed: false, steps: [{}]}}}}",
        vec!["{action: action_work}"; steps].join(", ")
    );
    let domain = "actions: [action_work]\n";
    let files = [("config.yml", CONFIG), ("domain.yml", domain), ("flows/work.yml", flow.as_str())];
    let action = Arc::new(Counted { runs: AtomicU32::new(0), gate: Semaphore::new(permits) });
    let model = ScriptedLlm::strict(answers.iter().copied());
    let builder = Assistant::builder_from_texts(files).unwrap().model(Arc::new(model));
    (World::of(builder.action("action_work", action.clone())).unwrap(), action)
}

#[tokio::test]
async fn a_turn_ends_with_one_honest_message_when_its_effects_are_spent() {
    let (world, action) = world(70, &["start flow work"], 1);
    let said = world.say("work").await.unwrap();
    assert_eq!(said.len(), 1, "{said:?}");
    let runs = action.runs.load(Ordering::SeqCst);
    assert!((limits::TURN_EFFECTS - 2..limits::TURN_EFFECTS).contains(&runs), "{runs} actions ran");
    let turns = world.assistant.store().turns(&"u".into()).await.unwrap();
    let events = serde_json::to_string(&turns[0].events).unwrap();
    assert!(events.contains("pattern_internal_error"), "{events}");
}

#[tokio::test]
async fn a_full_mailbox_refuses_before_anything_is_accepted() {
    let answers = vec!["start flow work"; limits::MAILBOX];
    let (world, action) = world(1, &answers, 0);
    let send = |n: usize| {
        let assistant = world.assistant.clone();
        async move {
            let incoming = Incoming::text("u", format!("work {n}"), "test");
            assistant.receive(incoming, Box::new(CollectingSink::whole())).await
        }
    };
    let waiting: Vec<_> = (0..limits::MAILBOX).map(|n| tokio::spawn(send(n))).collect();
    while action.runs.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    // All places are taken once every message was accepted; only then is one more refused.
    let refused = send(99).await.expect_err("a ninth message got a turn");
    assert!(matches!(refused, ReceiveError::Busy(_)), "{refused}");
    assert_eq!(refused.code(), "R0101");
    action.gate.add_permits(limits::MAILBOX);
    for turn in waiting {
        turn.await.unwrap().unwrap();
    }
    assert_eq!(world.assistant.store().turns(&"u".into()).await.unwrap().len(), limits::MAILBOX);
}

//! An agent written in Rust: a flow calls it by name, it works on one message at a time, and says how it ended.
//!
//! `cargo run --example custom_agent`

use std::{error::Error, sync::Arc};

use segue::{
    Agent, AgentCard, AgentOutcome, AgentStatus, AgentTask, Assistant, BotKind, BotMessage, BoxFuture, Cx, Event,
    EventKind, EventPlace, Incoming, NoSink, Reply, ReplyPiece, ReplySink,
};
use serde_json::{Map, Value};

/// Says everything again, until it hears "enough".
struct Echo {
    card: AgentCard,
}

impl Agent for Echo {
    fn card(&self) -> &AgentCard {
        &self.card
    }
    fn run<'a>(&'a self, task: AgentTask<'a>, out: &'a mut dyn ReplySink, cx: &'a Cx) -> BoxFuture<'a, AgentOutcome> {
        Box::pin(async move {
            let heard = &task.call.user_message;
            let (status, kind, text) = if heard.contains("enough") {
                (AgentStatus::Finished, BotKind::FinalResponse, "Bye!".to_owned())
            } else {
                (AgentStatus::AwaitingUser, BotKind::InputRequired, format!("You said: {heard}"))
            };
            // What is said may leave at once, and must also stand in the outcome with the same id: the outcome is what is
            // stored. The key of the step makes the id the same when the turn is run again after a crash.
            let id: Arc<str> = format!("{}/echo", cx.key).into();
            let reply = Reply::text(text);
            let piece = ReplyPiece::Message { id: id.clone(), message: Box::new(reply.clone()), kind };
            // A channel that is gone does not end the turn: what was said is stored.
            let _ = out.send(piece, cx).await;
            let agent = Some(task.definition.name.clone());
            let said = BotMessage { reply, kind, agent, reply_id: Some(id), ..BotMessage::default() };
            let event = Event { at: cx.clock.now(), kind: EventKind::bot(said), place: EventPlace::default() };
            AgentOutcome { status, events: vec![event], data: Value::Null, metadata: Map::new() }
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/projects/desk");
    let card = AgentCard { name: "echo".into(), description: "Says everything again.".into() };
    let assistant = Assistant::builder(folder)?.agent("echo", Arc::new(Echo { card })).build()?;

    for (message, answer) in [
        ("Let me talk to the echo", "You said: Let me talk to the echo"),
        ("one two", "You said: one two"),
        ("enough", "Bye!"),
    ] {
        let report = assistant.receive(Incoming::text("u1", message, "example"), Box::new(NoSink)).await?;
        let first = report.replies.first().and_then(|reply| reply.reply.text.as_deref());
        assert_eq!(first, Some(answer), "{:?}", report.failures);
    }
    Ok(())
}

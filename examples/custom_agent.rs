//! A custom agent in Rust. A flow calls it by name; it handles one message at a time and returns its result.
//!
//! `cargo run --example custom_agent`

use std::{error::Error, sync::Arc};

use segue::prelude::*;

/// Repeats each message until one contains "enough".
struct Echo;

#[async_trait]
impl Agent for Echo {
    async fn run(&self, run: &mut AgentRun<'_>) -> AgentResult {
        if run.user_message().contains("enough") {
            return run.finish("Bye!").await; // sends the reply and completes the agent; the flow continues
        }
        run.ask(format!("You said: {}", run.user_message())).await // sends the reply; the next message comes to this agent
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let project = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/projects/rust_examples");
    let assistant = Assistant::builder(project)?.agent("echo", Arc::new(Echo)).build()?;

    for (message, answer) in [
        ("Let me talk to the echo", "You said: Let me talk to the echo"),
        ("one two", "You said: one two"),
        ("enough", "Bye!"),
    ] {
        assert!(assistant.say("ada", message).await?.text().starts_with(answer));
    }
    Ok(())
}

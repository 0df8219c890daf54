//! An agent written in Rust: a flow calls it by name, it works on one message at a time, and says how it ended.
//!
//! `cargo run --example custom_agent`

use std::{error::Error, sync::Arc};

use segue::prelude::*;

/// Says everything again, until it hears "enough".
struct Echo;

#[async_trait]
impl Agent for Echo {
    async fn run(&self, run: &mut AgentRun<'_>) -> AgentResult {
        if run.user_message().contains("enough") {
            return run.finish("Bye!").await; // said and stored, and the flow goes on
        }
        run.ask(format!("You said: {}", run.user_message())).await // said and stored, and the next message comes here again
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let project = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/projects/desk");
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

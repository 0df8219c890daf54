//! A tool written in Rust. It stands for a tool of an MCP server of `endpoints.yml`, so the project does not know the difference.
//!
//! `cargo run --example custom_tool`

use std::{error::Error, time::Duration};

use segue::prelude::*;

#[derive(Deserialize, JsonSchema)]
struct ForecastArgs {
    /// Name of the town
    place: String,
}

/// A real one would ask a service, and give up when the time is over.
async fn weather(_place: &str, _patience: Duration) -> std::io::Result<&'static str> {
    Ok("clear")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let run = |args: ForecastArgs, call: ToolCallContext| async move {
        // Any error becomes a failed call, which the model is told of.
        let sky = weather(&args.place, call.remaining()).await?;
        Ok(json!({ "place": args.place, "sky": sky }))
    };
    // Changes nothing: it may be called again after a crash. A tool that says nothing counts as a write.
    let forecast = Tool::new("forecast", "Tells tomorrow's weather in a town", run).effect(EffectClass::Read);

    let project = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/projects/desk");
    let assistant = Assistant::builder(project)?.tool("weather", forecast).build()?;
    let turn = assistant.say("ada", "How is the weather in Bergen?").await?;
    assert_eq!(turn.texts(), ["Let me look.", "It will be clear in Bergen."]);
    Ok(())
}

//! A custom tool in Rust. It replaces the tools of an MCP server of `endpoints.yml`, so that the project need not change.
//!
//! `cargo run --example custom_tool`

use std::{error::Error, time::Duration};

use segue::prelude::*;

#[derive(Deserialize, JsonSchema)]
struct ForecastArgs {
    /// Name of the town
    place: String,
}

/// A real function would call a service within `timeout`.
async fn weather(_place: &str, _timeout: Duration) -> std::io::Result<&'static str> {
    Ok("clear")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let run = |args: ForecastArgs, call: ToolCallContext| async move {
        // An error becomes a failed tool call, which the model sees.
        let sky = weather(&args.place, call.remaining()).await?;
        Ok(json!({ "place": args.place, "sky": sky }))
    };
    // A read may be repeated after a crash. A tool without an effect class is a write, which is never repeated.
    let forecast = Tool::new("forecast", "Returns tomorrow's weather in a town", run).effect(EffectClass::Read);

    let project = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/projects/rust_examples");
    let assistant = Assistant::builder(project)?.tool("weather", forecast).build()?;
    let turn = assistant.say("ada", "How is the weather in Bergen?").await?;
    assert_eq!(turn.texts(), ["Let me look.", "It will be clear in Bergen."]);
    Ok(())
}

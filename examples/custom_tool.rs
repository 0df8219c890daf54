//! A tool written in Rust. It stands for an MCP server of `endpoints.yml`, so the project does not know the difference.
//!
//! `cargo run --example custom_tool`

use std::{error::Error, sync::Arc};

use segue::{Assistant, BoxFuture, Effect, Incoming, NoSink, Tool, ToolCx, ToolOutcome, ToolOutput, ToolSpec, Toolbox};
use serde_json::{Value, json};

/// Knows the weather, everywhere.
struct Forecast {
    spec: ToolSpec,
}

impl Forecast {
    fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {"place": {"type": "string", "description": "a town"}},
            "required": ["place"],
        });
        let spec = ToolSpec {
            name: "forecast".into(),
            description: "Tells tomorrow's weather in a town.".into(),
            parameters: Arc::new(parameters),
            strict: false,
            // Changes nothing: it may be called again after a crash. A tool that says nothing counts as a write.
            effect: Effect::Read,
            source: "weather".into(),
        };
        Self { spec }
    }
}

impl Tool for Forecast {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }
    /// The arguments were checked against the schema before. A failure is an outcome, never a panic: the model is told.
    fn call<'a>(&'a self, arguments: Value, cx: &'a ToolCx) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            // Work that may take long waits through the context, so that deadline and cancellation hold.
            let looked = cx.cx.wait(async { json!({"place": arguments.get("place"), "sky": "clear"}) }).await;
            match looked {
                Ok(weather) => ToolOutcome::Done(ToolOutput {
                    content: vec![json!({"type": "text", "text": weather.to_string()})],
                    structured: Some(weather),
                    ..ToolOutput::default()
                }),
                Err(stopped) => ToolOutcome::failed(segue::FailureKind::Timeout, stopped.to_string()),
            }
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/projects/desk");
    let tools: [Arc<dyn Tool>; 1] = [Arc::new(Forecast::new())];
    let assistant = Assistant::builder(folder)?.source(Arc::new(Toolbox::new("weather", tools))).build()?;

    let question = Incoming::text("u1", "How is the weather in Bergen?", "example");
    let report = assistant.receive(question, Box::new(NoSink)).await?;
    let texts: Vec<_> = report.replies.iter().filter_map(|reply| reply.reply.text.as_deref()).collect();
    assert_eq!(texts, ["Let me look.", "It will be clear in Bergen."]);
    assert!(report.failures.is_empty());
    Ok(())
}

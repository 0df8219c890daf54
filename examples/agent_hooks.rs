//! Hooks in Rust for an open agent: a tool of its own that knows what no model knows, and a yes before it does anything.
//!
//! `cargo run --example agent_hooks`

use std::{
    error::Error,
    sync::{Arc, Mutex},
};

use segue::{
    AgentHooks, Assistant, Effect, Incoming, NoSink, Tool, ToolCx, ToolOutcome, ToolOutput, ToolSpec,
    agents::hooks::{AgentInput, HookCx, HookError},
    async_trait,
    tools::registry::FunctionTool,
};
use serde_json::{Value, json};

/// What was paid, by whom.
type Paid = Arc<Mutex<Vec<(Value, Value)>>>;

/// The hooks of the agent `payer`: its `config.yml` says `module: payments`.
struct Payments {
    paid: Paid,
}

#[async_trait]
impl AgentHooks for Payments {
    /// What the backend knows goes to tools; no model sees it.
    async fn process_input(&self, mut input: AgentInput, _: &HookCx) -> Result<AgentInput, HookError> {
        input.metadata.insert("account".to_owned(), json!("DE-17"));
        Ok(input)
    }

    fn custom_tools(&self) -> Vec<Arc<dyn Tool>> {
        let spec = ToolSpec {
            name: "pay".into(),
            description: "Pays an amount in EUR to somebody.".into(),
            parameters: Arc::new(json!({
                "type": "object",
                "properties": {"to": {"type": "string"}, "amount": {"type": "number"}},
                "required": ["to", "amount"],
            })),
            strict: false,
            // The agent's `confirm: writes` shows each call to the user before it runs.
            effect: Effect::Write,
            source: "custom".into(),
        };
        let paid = self.paid.clone();
        let run = move |arguments: Value, cx: ToolCx| {
            let account = cx.metadata.get("account").cloned().unwrap_or_default();
            if let Ok(mut paid) = paid.lock() {
                paid.push((account, arguments));
            }
            std::future::ready(ToolOutcome::Done(ToolOutput::structured(json!({"paid": true}))))
        };
        FunctionTool::new(spec, run).map(|tool| Arc::new(tool) as Arc<dyn Tool>).into_iter().collect()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/projects/desk");
    let paid = Paid::default();
    let assistant = Assistant::builder(folder)?.hooks("payments", Arc::new(Payments { paid: paid.clone() })).build()?;

    let talk = [
        ("Please pay 12 EUR to Ada", "Please check before I do this:\n- pay: to = Ada, amount = 12\nShall I go ahead?"),
        ("yes", "Done, I have paid it."),
    ];
    for (message, answer) in talk {
        let report = assistant.receive(Incoming::text("u1", message, "example"), Box::new(NoSink)).await?;
        let first = report.replies.first().and_then(|reply| reply.reply.text.as_deref());
        assert_eq!(first, Some(answer), "{:?}", report.failures);
    }
    let paid = paid.lock().map(|paid| paid.clone()).unwrap_or_default();
    assert_eq!(paid, [(json!("DE-17"), json!({"to": "Ada", "amount": 12}))]);
    Ok(())
}

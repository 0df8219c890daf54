//! Hooks in Rust for an open agent: a tool of its own that knows what no model knows, and a yes before it does anything.
//!
//! `cargo run --example agent_hooks`

use std::{error::Error, sync::Arc};

use segue::prelude::*;

/// The hooks of the agent `payer`: its `config.yml` says `module: payments`, and `confirm: writes`.
struct Payments;

#[derive(Deserialize, JsonSchema)]
struct PayArgs {
    /// Who gets the money
    to: String,
    amount: f64,
}

#[async_trait]
impl AgentHooks for Payments {
    /// What the backend knows goes to tools; no model sees it.
    async fn process_input(&self, input: &mut AgentInput, _: &HookContext) -> HookResult {
        input.metadata.insert("account".into(), "DE-17".into());
        Ok(())
    }

    fn custom_tools(&self) -> Vec<Tool> {
        let pay = |args: PayArgs, call: ToolCallContext| async move {
            let account = call.metadata.get("account");
            Ok(json!({ "paid": args.amount, "to": args.to, "from": account }))
        };
        vec![Tool::new("pay", "Pays an amount in EUR to somebody", pay)]
    }

    fn task_completed_tool(&self, default: ToolSpec) -> ToolSpec {
        default.description("Call this once when the payment is done.")
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let project = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/projects/desk");
    let assistant = Assistant::builder(project)?.hooks("payments", Arc::new(Payments)).build()?;

    // No model words this question, and none reads the answer.
    let turn = assistant.say("ada", "Please pay 12 EUR to Ada").await?;
    assert_eq!(turn.text(), "Please check before I do this:\n- pay: to = Ada, amount = 12\nShall I go ahead?");
    assert!(assistant.say("ada", "yes").await?.text().starts_with("Done, I have paid it."));
    Ok(())
}

//! Hooks in Rust for an open agent: a custom tool with data that the model does not see, and a confirmation before each write.
//!
//! `cargo run --example agent_hooks`

use std::{error::Error, sync::Arc};

use segue::prelude::*;

/// The hooks of the agent `payer`: its `config.yml` says `module: payments`, and `confirm: writes`.
struct Payments;

#[derive(Deserialize, JsonSchema)]
struct PayArgs {
    /// The recipient of the money
    to: String,
    amount: f64,
}

#[async_trait]
impl AgentHooks for Payments {
    /// Adds metadata for tools. The model does not see it.
    async fn process_input(&self, input: &mut AgentInput, _: &HookContext) -> HookResult {
        input.metadata.insert("account".into(), "DE-17".into());
        Ok(())
    }

    fn custom_tools(&self) -> Vec<Tool> {
        let pay = |args: PayArgs, call: ToolCallContext| async move {
            let account = call.metadata.get("account");
            Ok(json!({ "paid": args.amount, "to": args.to, "from": account }))
        };
        vec![Tool::new("pay", "Pays an amount in EUR to a recipient", pay)]
    }

    fn task_completed_tool(&self, default: ToolSpec) -> ToolSpec {
        default.description("Call this once when the payment is done.")
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let project = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/projects/rust_examples");
    let assistant = Assistant::builder(project)?.hooks("payments", Arc::new(Payments)).build()?;

    // The confirmation is generated from the tool call, and its answer is read, without a model.
    let turn = assistant.say("ada", "Please pay 12 EUR to Ada").await?;
    assert_eq!(turn.text(), "Please check before I do this:\n- pay: to = Ada, amount = 12\nShall I go ahead?");
    assert!(assistant.say("ada", "yes").await?.text().starts_with("Done, I have paid it."));
    Ok(())
}

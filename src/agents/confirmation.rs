//! Tool calls that wait for the user's confirmation: what a run does with them once the user has replied.

use segue_engine::conversation::UnconfirmedCall;

use super::{AgentRequest, policy};
use crate::{
    context::CallContext,
    llm::{ChatMessage, ToolArguments, ToolCall},
    prompts::PromptSet,
    react::{LoopEnd, ReactLoop},
};

/// Handles the user's reply to calls that were shown for confirmation: a confirmation runs them exactly as shown, anything else
/// does not run them. `None` means that the run continues with its first model call.
pub(super) async fn resume_confirmed_calls(
    run: &mut ReactLoop<'_>,
    request: &AgentRequest<'_>,
    prompts: &PromptSet,
    cx: &CallContext,
) -> Option<LoopEnd> {
    let unconfirmed = UnconfirmedCall::of(&request.call.metadata);
    if unconfirmed.is_empty() {
        return None;
    }
    let outcome = match request.call.confirmed {
        Some(true) => {
            // The calls of earlier turns of the task are part of the same request, and providers reject a repeated id.
            let turn = request.conversation.turns;
            let call = |(at, unconfirmed): (usize, &UnconfirmedCall)| ToolCall {
                id: format!("held_{turn}_{at}").into(),
                name: unconfirmed.tool.clone(),
                arguments: ToolArguments::json(unconfirmed.arguments.clone()),
            };
            let calls = unconfirmed.iter().enumerate().map(call).collect();
            // Boxed, like the other rare paths: otherwise its future would enlarge that of every turn.
            return Box::pin(run.run_confirmed(calls, &cx.step("held"))).await;
        }
        Some(false) => "declined",
        None => "unanswered",
    };
    let tools: Vec<String> = unconfirmed.iter().map(|call| call.tool.to_string()).collect();
    let text = policy::text_for_model(prompts, minijinja::context! { outcome, tools });
    run.state.messages.push(ChatMessage::system(text));
    None
}

//! Tool calls that wait for the user's confirmation: what a run does with them once the user has replied.

use segue_engine::conversation::{AgentStatus, UnconfirmedCall};

use super::{
    agent_loop::{AgentLoop, RunEnd},
    answer_stream::StreamedText,
    decision::{self, NextAction},
    policy,
    tool_calls::CallOrigin,
};
use crate::{
    context::CallContext,
    conversation::ReplySink,
    llm::{ChatMessage, ChatResponse, ToolArguments, ToolCall},
};

impl AgentLoop<'_> {
    /// Handles the user's reply to calls that were shown for confirmation: a confirmation runs them exactly as shown, anything else
    /// does not run them.
    pub(super) async fn resume_confirmed_calls(&mut self, out: &mut dyn ReplySink, cx: &CallContext) -> Option<RunEnd> {
        let unconfirmed = UnconfirmedCall::of(&self.request.call.metadata);
        if unconfirmed.is_empty() {
            return None;
        }
        let tools: Vec<String> = unconfirmed.iter().map(|call| call.tool.to_string()).collect();
        let outcome = match self.request.call.confirmed {
            Some(true) => {
                let cx = cx.step("held");
                // The calls of earlier turns of the task are part of the same request, and providers reject a repeated id.
                let turn = self.request.conversation.turns;
                let call = |(at, unconfirmed): (usize, &UnconfirmedCall)| ToolCall {
                    id: format!("held_{turn}_{at}").into(),
                    name: unconfirmed.tool.clone(),
                    arguments: ToolArguments::json(unconfirmed.arguments.clone()),
                };
                let answer = ChatResponse {
                    tool_calls: unconfirmed.iter().enumerate().map(call).collect(),
                    ..ChatResponse::default()
                };
                self.transcript.push(answer.to_message());
                let no_text = StreamedText::complete(&cx, "".into());
                let origin = CallOrigin { confirmed: true, text_shown: false };
                // Boxed, like the other rare paths: otherwise its future would enlarge that of every turn.
                return match Box::pin(self.call_tools(&answer.tool_calls, origin, &no_text, out, &cx)).await {
                    Ok(NextAction::Finish(status)) => Some(status.into()),
                    Ok(NextAction::AwaitConfirmation) => Some(AgentStatus::AwaitingUser.into()),
                    Ok(NextAction::Continue | NextAction::RequestClosingMessage) => None,
                    Err(error) => Some(decision::failed_status(decision::CODE_HOOK_FAILED, error.to_string()).into()),
                };
            }
            Some(false) => "declined",
            None => "unanswered",
        };
        let text = policy::text_for_model(self.prompts, minijinja::context! { outcome, tools });
        self.transcript.push(ChatMessage::system(text));
        None
    }
}

//! Tool calls that wait for the user's confirmation: what a run does with them once the user has replied.

use std::sync::Arc;

use segue_engine::conversation::{AgentStatus, BotKind, UnconfirmedCall};
use serde_json::Map;

use super::{
    tool_calls::CallOrigin,
    policy,
    agent_loop::{RunEnd, AgentLoop},
    answer_stream::{ModelTurn, StreamedText},
    decision::{self, NextAction},
};
use crate::{
    context::CallContext,
    conversation::ReplySink,
    limits,
    llm::{ChatMessage, ChatResponse, FinishReason, ToolArguments, ToolCall},
};

/// The response that replaces a claim that no tool result supports.
const UNGROUNDED_RESPONSE: &str = "utter_agent_unproven";

impl AgentLoop<'_> {
    /// Handles the user's reply to calls that were shown for confirmation: a confirmation runs them exactly as shown, anything else
    /// does not run them.
    pub(super) async fn resume_confirmed_calls(&mut self, out: &mut dyn ReplySink, cx: &CallContext) -> Option<RunEnd> {
        let held = UnconfirmedCall::of(&self.request.call.metadata);
        if held.is_empty() {
            return None;
        }
        let tools: Vec<String> = held.iter().map(|call| call.tool.to_string()).collect();
        let outcome = match self.request.call.confirmed {
            Some(true) => {
                let cx = cx.step("held");
                // The calls of earlier turns of the task are part of the same request, and providers reject a repeated id.
                let turn = self.request.conversation.turns;
                let call = |(at, held): (usize, &UnconfirmedCall)| ToolCall {
                    id: format!("held_{turn}_{at}").into(),
                    name: held.tool.clone(),
                    arguments: ToolArguments::json(held.arguments.clone()),
                };
                let answer =
                    ChatResponse { tool_calls: held.iter().enumerate().map(call).collect(), ..ChatResponse::default() };
                self.transcript.push(answer.to_message());
                let no_text = StreamedText::whole(&cx, "".into());
                let origin = CallOrigin { confirmed: true, text_shown: false };
                // Boxed, like the other rare paths: otherwise its future would enlarge that of every turn.
                return match Box::pin(self.call_tools(&answer.tool_calls, origin, &no_text, out, &cx)).await {
                    Ok(NextAction::Finish(status)) => Some(status.into()),
                    Ok(NextAction::AwaitConfirmation) => Some(AgentStatus::AwaitingUser.into()),
                    Ok(NextAction::Continue | NextAction::RequestClosingMessage) => None,
                    Err(error) => Some(decision::failed(decision::CODE_HOOK_FAILED, error.to_string()).into()),
                };
            }
            Some(false) => "declined",
            None => "unanswered",
        };
        let text = policy::text_for_model(self.prompts, minijinja::context! { outcome, tools });
        self.transcript.push(ChatMessage::system(text));
        None
    }

    /// Handles a sentence that was withheld because no tool result supports it. `None` means that the model is called again.
    pub(super) async fn enforce_grounding(&mut self, turn: ModelTurn, out: &mut dyn ReplySink, cx: &CallContext) -> Option<ModelTurn> {
        let ModelTurn::Answer(answer, mut streamed) = turn else { return Some(turn) };
        if answer.finish == FinishReason::ContentFilter {
            // The model is not called again, and the withheld text is not sent.
            return Some(ModelTurn::Answer(answer, streamed));
        }
        let Some(sentence) = streamed.ungrounded.clone() else {
            if answer.tool_calls.is_empty() {
                self.report_ungrounded(&streamed.text);
            }
            return Some(ModelTurn::Answer(answer, streamed));
        };
        self.report_claim(&sentence);
        if !answer.tool_calls.is_empty() {
            return Some(ModelTurn::Answer(answer, streamed));
        }
        if self.state.repairs < limits::AGENT_REPAIRS {
            self.state.repairs += 1;
            Box::pin(streamed.send_end(BotKind::Intermediate, out, cx)).await;
            self.recorder.record_text(&streamed, BotKind::Intermediate, false, cx);
            self.transcript.push(answer.to_message());
            decision::push_grounding_request(&mut self.transcript, self.prompts, &sentence);
            return None;
        }
        if let Some(honest) = self.request.host.render_response(UNGROUNDED_RESPONSE, &Map::new(), 0) {
            let source: Arc<str> = format!("agent:{}", self.request.call.agent).into();
            Box::pin(streamed.append(&honest, &source, out, cx)).await;
        }
        Some(ModelTurn::Answer(answer, streamed))
    }

    /// Reports an unsupported claim in a text that was sent; the text itself stays unchanged.
    pub(super) fn report_ungrounded(&self, text: &str) {
        let claim = self.grounding.and_then(|check| check.first_ungrounded(text, self.policy.effects()));
        if let Some(sentence) = claim {
            self.report_claim(sentence);
        }
    }

    fn report_claim(&self, sentence: &str) {
        let message = format!("agent {} says what no tool result of its task shows: {sentence}", self.request.call.agent);
        self.request.host.report_warning(decision::CODE_UNGROUNDED_CLAIM, message);
    }
}

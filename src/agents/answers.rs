//! What must be settled before a run goes on: the user's word on calls that they were shown, and sentences that nothing proves.

use std::sync::Arc;

use segue_engine::conversation::{AgentStatus, BotKind, UnconfirmedCall};
use serde_json::Map;

use super::{
    calls::Manner,
    gate,
    run::{End, Run},
    speech::{Heard, Spoken},
    step::{self, After},
};
use crate::{
    context::CallContext,
    conversation::ReplySink,
    limits,
    llm::{ChatMessage, ChatResponse, FinishReason, ToolArguments, ToolCall},
};

/// The response that stands in for a claim that nothing proves.
const HONEST: &str = "utter_agent_unproven";

impl Run<'_> {
    /// What the user said to calls that they were shown: a yes runs them, just as they were shown; anything else does not.
    pub(super) async fn take_answer(&mut self, out: &mut dyn ReplySink, cx: &CallContext) -> Option<End> {
        let held = UnconfirmedCall::of(&self.task.call.metadata);
        if held.is_empty() {
            return None;
        }
        let tools: Vec<String> = held.iter().map(|call| call.tool.to_string()).collect();
        let outcome = match self.task.call.confirmed {
            Some(true) => {
                let cx = cx.step("held");
                // The calls of earlier turns of the task stand in the same request, and no vendor takes an id twice.
                let turn = self.task.conversation.turns;
                let call = |(at, held): (usize, &UnconfirmedCall)| ToolCall {
                    id: format!("held_{turn}_{at}").into(),
                    name: held.tool.clone(),
                    arguments: ToolArguments::json(held.arguments.clone()),
                };
                let answer =
                    ChatResponse { tool_calls: held.iter().enumerate().map(call).collect(), ..ChatResponse::default() };
                self.session.push(answer.to_message());
                let silence = Spoken::whole(&cx, "".into());
                let manner = Manner { confirmed: true, spoke: false };
                // Boxed, as are the other ways that few turns go: their futures would be part of every turn's.
                return match Box::pin(self.call(&answer.tool_calls, manner, &silence, out, &cx)).await {
                    Ok(After::Finish(status)) => Some(status.into()),
                    Ok(After::Ask) => Some(AgentStatus::AwaitingUser.into()),
                    Ok(After::GoOn | After::AskClosing) => None,
                    Err(error) => Some(step::failed(step::HOOK, error.to_string()).into()),
                };
            }
            Some(false) => "declined",
            None => "unanswered",
        };
        let text = gate::words(self.prompts, minijinja::context! { outcome, tools });
        self.session.push(ChatMessage::system(text));
        None
    }

    /// Sees to a sentence that was held back because nothing proves it. `None` asks the model again.
    pub(super) async fn proven(&mut self, heard: Heard, out: &mut dyn ReplySink, cx: &CallContext) -> Option<Heard> {
        let Heard::Answer(answer, mut spoken) = heard else { return Some(heard) };
        if answer.finish == FinishReason::ContentFilter {
            // Nobody is asked again, and what was held back is not said.
            return Some(Heard::Answer(answer, spoken));
        }
        let Some(sentence) = spoken.unproven.clone() else {
            if answer.tool_calls.is_empty() {
                self.watch(&spoken.text);
            }
            return Some(Heard::Answer(answer, spoken));
        };
        self.unproven(&sentence);
        if !answer.tool_calls.is_empty() {
            return Some(Heard::Answer(answer, spoken));
        }
        if self.step.repairs < limits::AGENT_REPAIRS {
            self.step.repairs += 1;
            Box::pin(spoken.end(BotKind::Intermediate, out, cx)).await;
            self.ledger.said(&spoken, BotKind::Intermediate, false, cx);
            self.session.push(answer.to_message());
            step::ask_proof(&mut self.session, self.prompts, &sentence);
            return None;
        }
        if let Some(honest) = self.task.desk.words(HONEST, &Map::new(), 0) {
            let source: Arc<str> = format!("agent:{}", self.task.call.agent).into();
            Box::pin(spoken.add(&honest, &source, out, cx)).await;
        }
        Some(Heard::Answer(answer, spoken))
    }

    /// Looks for a claim in what was said, where that is only recorded.
    pub(super) fn watch(&self, text: &str) {
        let claim = self.claims.and_then(|claims| claims.unproven(text, self.gate.effects()));
        if let Some(sentence) = claim {
            self.unproven(sentence);
        }
    }

    fn unproven(&self, sentence: &str) {
        let matter = format!("agent {} says what no tool result of its task shows: {sentence}", self.task.call.agent);
        self.task.desk.warn(step::UNPROVEN, matter);
    }
}

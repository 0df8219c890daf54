//! Rephrasing of responses as an effect: recorded, and done before the responses are sent or stored.

use std::sync::Arc;

use segue_engine::conversation::{BotMessage, Conversation, Event, EventKind};
use serde::{Deserialize, Serialize};

use crate::{
    context::CallContext,
    conversation::Reply,
    effect::EffectClass,
    journal::{JournaledModel, Step, StepResult, request_hash},
    llm::Llm,
    rephrasing::{REPHRASER, RephraseRequest, Rephrasing},
    runtime::{
        project_runtime::ProjectRuntime,
        turn::{TurnFailures, TurnRecord, TurnSink},
    },
    store::{StoredReply, TurnNumber},
};

/// The recorded answer of an NLG server.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecordedNlgAnswer {
    #[serde(rename = "worded")]
    Reply(Box<Reply>),
    Failed(String),
}

/// The input of rephrasing, besides the events.
pub(in crate::runtime) struct RephraseContext<'a> {
    pub(in crate::runtime) runtime: &'a ProjectRuntime,
    pub(in crate::runtime) rephrasing: &'a Rephrasing,
    pub(in crate::runtime) turn: TurnNumber,
    pub(in crate::runtime) record: &'a TurnRecord,
    /// The replies of this turn before these events.
    pub(in crate::runtime) earlier_replies: &'a [StoredReply],
}

impl RephraseContext<'_> {
    /// Rephrases the messages among `events` that need it. `conversation` is the state before the events; each event is applied to it
    /// with its final text.
    pub(in crate::runtime) async fn rephrase_responses(
        &self,
        conversation: &mut Conversation,
        events: &mut [Event],
        sink: &mut TurnSink<'_>,
        failures: &mut TurnFailures,
        cx: &CallContext,
    ) {
        let mut new_replies: Vec<StoredReply> = Vec::new();
        for event in events {
            if let EventKind::Bot(bot) = &mut event.kind {
                let id = StoredReply::id_of(self.turn, self.earlier_replies.len() + new_replies.len(), bot);
                if bot.rephrase.is_some() {
                    // Channels that show deltas get the earlier replies first.
                    sink.send_early(self.earlier_replies, cx).await;
                    sink.send_early(&new_replies, cx).await;
                    let project = &self.runtime.project;
                    let request = RephraseRequest { project, conversation, message: bot, id: id.clone() };
                    let step = cx.step(format_args!("word.{}", new_replies.len()));
                    let is_by_server = self.rephrasing.is_server();
                    let rephrased = match is_by_server {
                        true => self.ask_server(&request, &step).await,
                        false => self.rephrase(&request, sink, &step).await,
                    };
                    apply_rephrasing(bot, rephrased, is_by_server, failures);
                }
                new_replies.push(StoredReply::new(id, bot.reply.clone(), bot.kind));
            }
            conversation.apply(event);
        }
    }

    async fn rephrase(
        &self,
        request: &RephraseRequest<'_>,
        sink: &mut TurnSink<'_>,
        cx: &CallContext,
    ) -> Result<Reply, String> {
        let inner = self.runtime.rephrasing_model.clone();
        let llm: Arc<dyn Llm> = Arc::new(JournaledModel::new(inner, self.record.journal.clone()));
        let text = self.rephrasing.rephrase(request, &llm, sink, cx).await?;
        Ok(Reply { text: Some(text), ..request.message.reply.clone() })
    }

    async fn ask_server(&self, request: &RephraseRequest<'_>, cx: &CallContext) -> Result<Reply, String> {
        let body = self.rephrasing.nlg_request(request);
        let hash = request_hash(&body.to_string());
        let step = Step { key: &cx.key, kind: "nlg", class: EffectClass::Read, request: &hash };
        let generate = async {
            match self.rephrasing.generate(&body, cx).await {
                Ok(reply) => RecordedNlgAnswer::Reply(Box::new(reply)),
                Err(reason) => RecordedNlgAnswer::Failed(reason),
            }
        };
        let answered = self.record.journal.once(step, generate).await.and_then(StepResult::into_outcome);
        match answered.map_err(|error| error.to_string())? {
            RecordedNlgAnswer::Reply(reply) => Ok(*reply),
            RecordedNlgAnswer::Failed(reason) => Err(reason),
        }
    }
}

/// Replaces the text of a message; after a failure it keeps its original text.
fn apply_rephrasing(
    bot: &mut BotMessage,
    rephrased: Result<Reply, String>,
    is_by_server: bool,
    failures: &mut TurnFailures,
) {
    bot.rephrase = None;
    match rephrased {
        Ok(reply) => {
            bot.reply = reply;
            bot.utter_source = (!is_by_server).then(|| REPHRASER.into());
        }
        Err(reason) => {
            let name = bot.utter_action.as_deref().unwrap_or_default();
            let code = if is_by_server { "R0511" } else { "R0510" };
            failures.push((code.into(), format!("{name}: {reason}; the original text was sent")));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    /// Stored journals contain these names.
    #[test]
    fn names_of_stored_nlg_answers_do_not_change() {
        let stored = json!([{"worded": Reply::default()}, {"failed": "timeout"}]);
        let read: Vec<RecordedNlgAnswer> = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), stored);
    }
}

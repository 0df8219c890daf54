//! Responses in other words, as an effect of a turn: recorded, and before anybody hears them.

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

/// What came of a question to a response server.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecordedNlgAnswer {
    Worded(Box<Reply>),
    Failed(String),
}

/// What rephrasing needs besides the events.
pub(in crate::runtime) struct RephraseContext<'a> {
    pub(in crate::runtime) runtime: &'a ProjectRuntime,
    pub(in crate::runtime) rephrasing: &'a Rephrasing,
    pub(in crate::runtime) turn: TurnNumber,
    pub(in crate::runtime) record: &'a TurnRecord,
    /// What was said before in this turn.
    pub(in crate::runtime) said: &'a [StoredReply],
}

impl RephraseContext<'_> {
    /// Words the messages among `events` anew that want it. `conversation` is as it was before them, and is afterwards as they
    /// left it: an event counts as it was heard.
    pub(in crate::runtime) async fn rephrase_responses(
        &self,
        conversation: &mut Conversation,
        events: &mut [Event],
        sink: &mut TurnSink<'_>,
        failures: &mut TurnFailures,
        cx: &CallContext,
    ) {
        let mut here: Vec<StoredReply> = Vec::new();
        for event in events {
            if let EventKind::Bot(bot) = &mut event.kind {
                let id = StoredReply::id_of(self.turn, self.said.len() + here.len(), bot);
                if bot.rephrase.is_some() {
                    // What was said before stands before this on every channel that shows pieces.
                    sink.send_early(self.said, cx).await;
                    sink.send_early(&here, cx).await;
                    let project = &self.runtime.project;
                    let request = RephraseRequest { project, conversation, message: bot, id: id.clone() };
                    let step = cx.step(format_args!("word.{}", here.len()));
                    let by_server = self.rephrasing.is_server();
                    let rephrased = match by_server {
                        true => self.ask_server(&request, &step).await,
                        false => self.rephrase(&request, sink, &step).await,
                    };
                    apply_rephrasing(bot, rephrased, by_server, failures);
                }
                here.push(StoredReply { id, reply: bot.reply.clone(), kind: bot.kind });
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
        let asked = async {
            match self.rephrasing.generate(&body, cx).await {
                Ok(reply) => RecordedNlgAnswer::Worded(Box::new(reply)),
                Err(reason) => RecordedNlgAnswer::Failed(reason),
            }
        };
        let answered = self.record.journal.once(step, asked).await.and_then(StepResult::into_outcome);
        match answered.map_err(|error| error.to_string())? {
            RecordedNlgAnswer::Worded(reply) => Ok(*reply),
            RecordedNlgAnswer::Failed(reason) => Err(reason),
        }
    }
}

/// Puts the new words into the message; after a failure it says what its author wrote.
fn apply_rephrasing(
    bot: &mut BotMessage,
    rephrased: Result<Reply, String>,
    by_server: bool,
    failures: &mut TurnFailures,
) {
    bot.rephrase = None;
    match rephrased {
        Ok(reply) => {
            bot.reply = reply;
            bot.utter_source = (!by_server).then(|| REPHRASER.into());
        }
        Err(reason) => {
            let name = bot.utter_action.as_deref().unwrap_or_default();
            let code = if by_server { "R0511" } else { "R0510" };
            failures.push((code.into(), format!("{name}: {reason}; it was said as it is written")));
        }
    }
}

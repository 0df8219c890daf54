//! Responses in other words, as an effect of a turn: recorded, and before anybody hears them.

use std::sync::Arc;

use segue_engine::conversation::{BotMessage, Conversation, Event, EventKind};
use serde::{Deserialize, Serialize};

use super::{effects::Failures, parts::Parts, replies::TurnSink, turn_record::TurnRecord};
use crate::{
    conversation::Reply,
    cx::Cx,
    effect::Effect,
    journal::{JournaledModel, Once, Step, request_hash},
    llm::Llm,
    store::{StoredReply, TurnNumber},
    wording::{Moment, REPHRASER, Wording},
};

/// What came of a question to a response server.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answered {
    Worded(Box<Reply>),
    Failed(String),
}

/// One turn's part in wording: what it needs besides the events.
pub(super) struct Scene<'a> {
    pub(super) parts: &'a Parts,
    pub(super) number: TurnNumber,
    pub(super) record: &'a TurnRecord,
    /// What was said before in this turn.
    pub(super) said: &'a [StoredReply],
}

/// Words the messages among `events` anew that want it. `conversation` is as it was before them, and is afterwards as they
/// left it: an event counts as it was heard.
pub(super) async fn reword(
    scene: &Scene<'_>,
    wording: &Wording,
    conversation: &mut Conversation,
    events: &mut [Event],
    sink: &mut TurnSink<'_>,
    failures: &mut Failures,
    cx: &Cx,
) {
    let mut here: Vec<StoredReply> = Vec::new();
    for event in events {
        if let EventKind::Bot(bot) = &mut event.kind {
            let id = StoredReply::id_of(scene.number, scene.said.len() + here.len(), bot);
            if bot.wording.is_some() {
                // What was said before stands before this on every channel that shows pieces.
                sink.catch_up(scene.said, cx).await;
                sink.catch_up(&here, cx).await;
                let moment = Moment { project: &scene.parts.project, conversation, message: bot, id: id.clone() };
                let step = cx.step(format_args!("word.{}", here.len()));
                let worded = match wording.is_server() {
                    true => ask(scene, wording, &moment, &step).await,
                    false => rephrase(scene, wording, &moment, sink, &step).await,
                };
                take(bot, worded, wording.is_server(), failures);
            }
            here.push(StoredReply { id, reply: bot.reply.clone(), kind: bot.kind });
        }
        conversation.apply(event);
    }
}

/// Puts the new words into the message; after a failure it says what its author wrote.
fn take(bot: &mut BotMessage, worded: Result<Reply, String>, by_server: bool, failures: &mut Failures) {
    bot.wording = None;
    match worded {
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

async fn rephrase(
    scene: &Scene<'_>,
    wording: &Wording,
    moment: &Moment<'_>,
    sink: &mut TurnSink<'_>,
    cx: &Cx,
) -> Result<Reply, String> {
    let inner = scene.parts.wording_model.clone();
    let llm: Arc<dyn Llm> = Arc::new(JournaledModel::new(inner, scene.record.journal.clone()));
    let text = wording.rephrase(moment, &llm, sink, cx).await?;
    Ok(Reply { text: Some(text), ..moment.message.reply.clone() })
}

async fn ask(scene: &Scene<'_>, wording: &Wording, moment: &Moment<'_>, cx: &Cx) -> Result<Reply, String> {
    let question = wording.question(moment);
    let hash = request_hash(&question.to_string());
    let step = Step { key: &cx.key, kind: "nlg", class: Effect::Read, request: &hash };
    let asked = async {
        match wording.ask(&question, cx).await {
            Ok(reply) => Answered::Worded(Box::new(reply)),
            Err(reason) => Answered::Failed(reason),
        }
    };
    let answered = scene.record.journal.once(step, asked).await.and_then(Once::known);
    match answered.map_err(|error| error.to_string())? {
        Answered::Worded(reply) => Ok(*reply),
        Answered::Failed(reason) => Err(reason),
    }
}

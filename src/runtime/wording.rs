//! Responses in other words, as an effect of a turn: behind the recorded door, and before anybody hears them.

use std::sync::Arc;

use segue_engine::conversation::{BotMessage, Conversation, Event, EventKind};
use serde::{Deserialize, Serialize};

use super::{
    effects::Failures,
    parts::Parts,
    recorded::{Door, RecordedLlm},
    replies::TurnSink,
};
use crate::{
    conversation::Reply,
    cx::Cx,
    effect::Effect,
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
    pub(super) door: &'a Door,
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
    let llm: Arc<dyn Llm> = Arc::new(RecordedLlm::new(inner, scene.door.clone()));
    let text = wording.rephrase(moment, &llm, sink, cx).await?;
    Ok(Reply { text: Some(text), ..moment.message.reply.clone() })
}

async fn ask(scene: &Scene<'_>, wording: &Wording, moment: &Moment<'_>, cx: &Cx) -> Result<Reply, String> {
    let question = wording.question(moment);
    let hash = super::hash::text(&question.to_string()).to_string();
    let answered = match scene.door.begin::<Answered>(cx, "nlg", Effect::Read, &hash).await {
        Ok(Some(answered)) => answered,
        Ok(None) => {
            let answered = match wording.ask(&question, cx).await {
                Ok(reply) => Answered::Worded(Box::new(reply)),
                Err(reason) => Answered::Failed(reason),
            };
            scene.door.finish(cx, &answered).await.map_err(|shut| shut.to_string())?;
            answered
        }
        Err(shut) => return Err(shut.to_string()),
    };
    match answered {
        Answered::Worded(reply) => Ok(*reply),
        Answered::Failed(reason) => Err(reason),
    }
}

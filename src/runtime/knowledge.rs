//! A question from documents: looked for through the recorded door, answered by a recorded model.

use segue_engine::conversation::{BotMessage, SearchCall, SearchOutcome};

use super::{effects::Failures, recorded::Door, replies::TurnSink, stop::Scene};
use crate::{
    cx::Cx,
    effect::Effect,
    knowledge::{AnswerTask, Looked},
};

/// Answers the newest question, or says why not.
pub(super) async fn search(
    call: &SearchCall,
    scene: &Scene<'_>,
    sink: &mut TurnSink<'_>,
    failures: &mut Failures,
    cx: &Cx,
) -> SearchOutcome {
    let Scene { parts, conversation, door, .. } = *scene;
    let (Some(knowledge), Some(config)) = (&parts.knowledge, &parts.project.config.search) else {
        let reason = "no documents are configured".to_owned();
        return SearchOutcome::Failed { reason, said: None };
    };
    let looked = match look(scene, &cx.step("passages")).await {
        Ok(looked) => looked,
        Err(reason) => {
            failures.push(("U0503".into(), reason.clone()));
            return SearchOutcome::Failed { reason, said: None };
        }
    };
    let step = cx.step("answer");
    let llm = scene.recorded(&parts.knowledge_model);
    let task = AnswerTask { project: &parts.project, config, conversation, at: call.at, llm };
    let mut outcome = knowledge.answer(task, &looked, sink, &step).await;
    if let SearchOutcome::Failed { reason, said } = &mut outcome {
        failures.push(("U0503".into(), reason.clone()));
        remember(said, door, &cx.step("said")).await;
    }
    outcome
}

/// What was seen of an answer that broke off depends on the channel and on the pieces, which no record of the model holds: it has a
/// record of its own.
async fn remember(said: &mut Option<Box<BotMessage>>, door: &Door, cx: &Cx) {
    match door.begin::<Option<Box<BotMessage>>>(cx, "said", Effect::Read, "").await {
        Ok(Some(recorded)) => *said = recorded,
        Ok(None) => {
            let _ = door.finish(cx, said).await;
        }
        Err(_) => {}
    }
}

/// What was found; from the record where it holds it.
async fn look(scene: &Scene<'_>, cx: &Cx) -> Result<Looked, String> {
    let Scene { parts, conversation, door, .. } = *scene;
    let (Some(knowledge), Some(config)) = (&parts.knowledge, &parts.project.config.search) else {
        return Err("no documents are configured".to_owned());
    };
    let looked = match door.begin::<Result<Looked, String>>(cx, "passages", Effect::Read, "").await {
        Ok(Some(recorded)) => recorded,
        Ok(None) => {
            let looked = knowledge.find(config, conversation, cx).await.map_err(|error| error.to_string());
            door.finish(cx, &looked).await.map_err(|shut| shut.to_string())?;
            looked
        }
        Err(shut) => Err(shut.to_string()),
    };
    if let Ok(looked) = &looked {
        door.meter.looked(&cx.key, looked);
    }
    looked
}

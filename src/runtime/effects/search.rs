//! A question from documents: looked for and answered by a model, both recorded.

use segue_engine::{
    conversation::{BotMessage, SearchCall, SearchOutcome},
    dialogue::InputKind,
};

use super::{EffectHandler, EffectOutput};
use crate::{
    context::CallContext,
    effect::EffectClass,
    journal::{Step, StepResult},
    knowledge::{AnswerTask, SearchResult},
    runtime::turn::{TurnContext, TurnRecord},
};

/// Handles [`Next::Search`](segue_engine::dialogue::Next::Search).
pub(super) struct Search;

impl EffectHandler for Search {
    type Effect = SearchCall;
    const INTERRUPTIBLE: bool = true;

    async fn perform(
        call: SearchCall,
        turn: &TurnContext<'_>,
        out: &mut EffectOutput<'_, '_>,
        cx: &CallContext,
    ) -> InputKind {
        InputKind::SearchOutcome(search(&call, turn, out, cx).await)
    }
}

/// Answers the newest question, or says why not.
async fn search(
    call: &SearchCall,
    turn: &TurnContext<'_>,
    out: &mut EffectOutput<'_, '_>,
    cx: &CallContext,
) -> SearchOutcome {
    let TurnContext { runtime, conversation, record, .. } = *turn;
    let (Some(knowledge), Some(config)) = (&runtime.knowledge, &runtime.project.config.search) else {
        let reason = "no documents are configured".to_owned();
        return SearchOutcome::Failed { reason, partial: None };
    };
    let looked = match look(turn, &cx.step("passages")).await {
        Ok(looked) => looked,
        Err(reason) => {
            out.failures.push(("U0503".into(), reason.clone()));
            return SearchOutcome::Failed { reason, partial: None };
        }
    };
    let step = cx.step("answer");
    let llm = turn.journaled(&runtime.knowledge_model);
    let task = AnswerTask { project: &runtime.project, config, conversation, at: call.at, llm };
    let mut outcome = knowledge.answer(task, &looked, out.sink, &step).await;
    if let SearchOutcome::Failed { reason, partial: said } = &mut outcome {
        out.failures.push(("U0503".into(), reason.clone()));
        remember(said, record, &cx.step("said")).await;
    }
    outcome
}

/// What was seen of an answer that broke off depends on the channel and on the pieces, which no record of the model holds: it has a
/// record of its own.
async fn remember(said: &mut Option<Box<BotMessage>>, record: &TurnRecord, cx: &CallContext) {
    let step = Step { key: &cx.key, kind: "said", class: EffectClass::Read, request: "" };
    if let Ok(StepResult::Replayed(recorded)) = record.journal.once(step, async { said.clone() }).await {
        *said = recorded;
    }
}

/// What was found; from the record where it holds it.
async fn look(turn: &TurnContext<'_>, cx: &CallContext) -> Result<SearchResult, String> {
    let TurnContext { runtime, conversation, record, .. } = *turn;
    let (Some(knowledge), Some(config)) = (&runtime.knowledge, &runtime.project.config.search) else {
        return Err("no documents are configured".to_owned());
    };
    let step = Step { key: &cx.key, kind: "passages", class: EffectClass::Read, request: "" };
    let work = async { knowledge.find(config, conversation, cx).await.map_err(|error| error.to_string()) };
    let looked: Result<SearchResult, String> =
        match record.journal.once(step, work).await.and_then(StepResult::into_outcome) {
            Ok(looked) => looked,
            Err(error) => Err(error.to_string()),
        };
    if let Ok(looked) = &looked {
        record.usage.looked(&cx.key, looked);
    }
    looked
}

//! Document search: finds passages and answers with a model; both are recorded.

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

/// Answers the latest question from documents.
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
    let found = match find_passages(turn, &cx.step("passages")).await {
        Ok(found) => found,
        Err(reason) => {
            out.failures.push(("U0503".into(), reason.clone()));
            return SearchOutcome::Failed { reason, partial: None };
        }
    };
    let step = cx.step("answer");
    let llm = turn.journaled(&runtime.knowledge_model);
    let task = AnswerTask { project: &runtime.project, config, conversation, at: call.at, llm };
    let mut outcome = knowledge.answer(task, &found, out.sink, &step).await;
    if let SearchOutcome::Failed { reason, partial } = &mut outcome {
        out.failures.push(("U0503".into(), reason.clone()));
        record_partial(partial, record, &cx.step("said")).await;
    }
    outcome
}

/// Records the part of a failed answer that was shown. It depends on the channel and the deltas, which the record of the model does not
/// contain.
async fn record_partial(partial: &mut Option<Box<BotMessage>>, record: &TurnRecord, cx: &CallContext) {
    let step = Step { key: &cx.key, kind: "said", class: EffectClass::Read, request: "" };
    if let Ok(StepResult::Replayed(recorded)) = record.journal.once(step, async { partial.clone() }).await {
        *partial = recorded;
    }
}

/// The passages for the question, from the record if it has them.
async fn find_passages(turn: &TurnContext<'_>, cx: &CallContext) -> Result<SearchResult, String> {
    let TurnContext { runtime, conversation, record, .. } = *turn;
    let (Some(knowledge), Some(config)) = (&runtime.knowledge, &runtime.project.config.search) else {
        return Err("no documents are configured".to_owned());
    };
    let step = Step { key: &cx.key, kind: "passages", class: EffectClass::Read, request: "" };
    let work = async { knowledge.find(config, conversation, cx).await.map_err(|error| error.to_string()) };
    let found: Result<SearchResult, String> =
        match record.journal.once(step, work).await.and_then(StepResult::into_outcome) {
            Ok(found) => found,
            Err(error) => Err(error.to_string()),
        };
    if let Ok(found) = &found {
        record.usage.record_search(&cx.key, found);
    }
    found
}

//! A message becomes commands: by rules where that is enough, else by one call of a model.

use segue_engine::dialogue::InputKind;

use super::{EffectHandler, EffectOutput};
use crate::{
    context::CallContext,
    effect::EffectClass,
    journal::{Step, StepResult},
    runtime::turn::TurnContext,
    understanding::FlowSelection,
};

/// Handles [`Next::Understand`](segue_engine::dialogue::Next::Understand).
pub(super) struct Understand;

impl EffectHandler for Understand {
    type Effect = ();
    const INTERRUPTIBLE: bool = true;

    async fn perform((): (), turn: &TurnContext<'_>, out: &mut EffectOutput<'_, '_>, cx: &CallContext) -> InputKind {
        let TurnContext { runtime, conversation, record, .. } = *turn;
        if runtime.project.config.generator.is_none() {
            // A pipeline without a generator understands structured messages alone; a waiting agent gets everything else.
            return InputKind::Commands(Vec::new());
        }
        let (generator, project) = (&runtime.command_generator, &runtime.project);
        let step = cx.step("flows");
        let choice = choose_flows(turn, &step).await;
        if let Some(choice) = &choice {
            let shown = || generator.flows_in_prompt(choice, project, conversation);
            record.usage.chose(&step.key, choice, shown);
        }
        let at = cx.clock.now();
        let step = cx.step("understand");
        let llm = turn.journaled(&runtime.command_model);
        let understanding =
            generator.generate_with_flows(choice.as_ref(), project, conversation, at, &llm, &step).await;
        record.usage.read(&step.key, &understanding.notes);
        out.failures.extend(understanding.failures.into_iter().map(|reason| ("U0501".into(), reason)));
        InputKind::Commands(understanding.commands)
    }
}

/// The flows that fit the message, when there are more than the prompt may show. Recorded: a replay asks no service.
async fn choose_flows(turn: &TurnContext<'_>, cx: &CallContext) -> Option<FlowSelection> {
    let TurnContext { runtime, conversation, record, .. } = *turn;
    if !runtime.command_generator.needs_flow_retrieval(&runtime.project, conversation) {
        return None;
    }
    let step = Step { key: &cx.key, kind: "flows", class: EffectClass::Read, request: "" };
    let choose = runtime.command_generator.select_flows(&runtime.project, conversation, cx);
    // Where the journal fails, the call of the model that follows stops there too.
    record.journal.once(step, choose).await.and_then(StepResult::into_outcome).ok()
}

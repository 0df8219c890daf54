//! Understanding: from a message to commands, with one call of a model.

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
            // A pipeline without a command generator only reads structured messages; an open agent gets all other messages.
            return InputKind::Commands(Vec::new());
        }
        let (generator, project) = (&runtime.command_generator, &runtime.project);
        let step = cx.step("flows");
        let selection = select_flows(turn, &step).await;
        if let Some(selection) = &selection {
            let in_prompt = || generator.flows_in_prompt(selection, project, conversation);
            record.usage.record_flows(&step.key, selection, in_prompt);
        }
        let at = cx.clock.now();
        let step = cx.step("understand");
        let llm = turn.journaled(&runtime.command_model);
        let understanding =
            generator.generate_with_flows(selection.as_ref(), project, conversation, at, &llm, &step).await;
        record.usage.record_commands_read(&step.key, &understanding.notes);
        out.failures.extend(understanding.failures.into_iter().map(|reason| ("U0501".into(), reason)));
        InputKind::Commands(understanding.commands)
    }
}

/// The flows that match the message, if there are more than a prompt may contain. Recorded, so that a replay needs no embeddings.
async fn select_flows(turn: &TurnContext<'_>, cx: &CallContext) -> Option<FlowSelection> {
    let TurnContext { runtime, conversation, record, .. } = *turn;
    if !runtime.command_generator.needs_flow_retrieval(&runtime.project, conversation) {
        return None;
    }
    let step = Step { key: &cx.key, kind: "flows", class: EffectClass::Read, request: "" };
    let select = runtime.command_generator.select_flows(&runtime.project, conversation, cx);
    // If the journal fails, it also stops the model call that follows.
    record.journal.once(step, select).await.and_then(StepResult::into_outcome).ok()
}

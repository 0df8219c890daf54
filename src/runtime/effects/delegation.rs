//! An agent that may start sub-agents gets the tool `task`, and what it reads about it. What its sub-agents do is recorded in the turn,
//! below the call that started them.

use std::sync::Arc;

use segue_engine::conversation::ModelUsage;

use crate::{
    agents::{self, AgentRequest},
    context::CallContext,
    delegation::{
        AgentDelegation, BackgroundParts, DelegationParent, LeadPrompt, Ledger, RunCounts, delegates_only,
        with_delegation,
    },
    effect::EffectClass,
    journal::{Step, StepResult},
    react::Budget,
    runtime::turn::TurnContext,
    tools::tool_set::ToolSet,
};

/// Adds the delegation tools to a run. `unrecorded`: its tools, whose calls are not recorded.
pub(super) async fn enable<'a>(
    task: AgentRequest<'a>,
    unrecorded: ToolSet,
    delegation: &AgentDelegation,
    turn: &TurnContext<'_>,
    cx: &CallContext,
) -> Result<AgentRequest<'a>, String> {
    let TurnContext { runtime, record, .. } = *turn;
    let AgentDelegation { settings, models } = delegation;
    let prompts = &runtime.prompts;
    let mut ledger = Ledger::read(&task.call.metadata);
    let running = ledger.running();
    if !running.is_empty() {
        // Which of them this process knows is recorded, so that a turn that runs again shows its model the same ledger.
        let key = cx.step("delegations").key;
        let step = Step { key: &key, kind: "note", class: EffectClass::Read, request: "" };
        let lost = async { runtime.delegations.unknown(&running) };
        let lost = record.journal.once(step, lost).await.and_then(StepResult::into_outcome);
        ledger.end_lost(&lost.map_err(|error| error.to_string())?, prompts);
    }
    let inherited = agents::inheritable_tools(&task);
    let background = settings.background.then(|| {
        Arc::new(BackgroundParts {
            llm: runtime.model_of(task.definition),
            models: Arc::new(models.clone()),
            tools: unrecorded.only(|name| inherited.get(name).is_some()),
            clock: runtime.clock.clone(),
        })
    });
    let (usage, budget) = (record.usage.clone(), Budget::new(settings.budget_limits()));
    let parent = DelegationParent {
        delegations: runtime.delegations.clone(),
        settings: settings.clone(),
        prompts: prompts.clone(),
        conversation: task.conversation.id.as_str().into(),
        turn: task.conversation.turns,
        llm: task.llm.clone(),
        models: Arc::new(models.iter().map(|(kind, model)| (kind.clone(), turn.journaled(model))).collect()),
        tools: inherited,
        tool_timeout: task.definition.tool_timeout,
        mcp_meta: task.mcp_meta.clone(),
        skills: task.definition.skills.clone(),
        narrowing: task.narrowing.clone(),
        journal: record.journal.clone(),
        count_replayed: Arc::new(move |used: ModelUsage| usage.record_sampling(&[used], false)),
        background,
        budget: budget.clone(),
        counts: Arc::new(RunCounts::new(settings, ledger.total())),
        depth: settings.depth.max(1),
    };
    let lead = LeadPrompt::new(settings, ledger, budget, task.definition.enable_filler_messages, prompts)?;
    let only_delegates = delegates_only(&task.tools);
    let own = task.tools.clone().only(|name| !only_delegates.contains(name));
    let tools = with_delegation(own, parent);
    Ok(AgentRequest { tools, delegation: Some(Arc::new(lead)), ..task })
}

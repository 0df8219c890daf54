//! An agent that may start sub-agents gets the tool `task`, and what it reads about it. What its sub-agents do is recorded in the turn,
//! below the call that started them.

use std::sync::Arc;

use futures::future::BoxFuture;
use segue_engine::{
    conversation::ModelUsage,
    project::{AgentDef, OnToolError},
};

use super::tool_list;
use crate::{
    agents::{self, AgentRequest},
    context::CallContext,
    delegation::{
        AgentDelegation, Background, DelegateParts, DelegationParent, LeadPrompt, Ledger, LostWrites, OpenParts,
        RunCounts, delegates_only, with_delegation,
    },
    effect::EffectClass,
    journal::{Step, StepResult},
    react::Budget,
    runtime::{project_runtime::ProjectRuntime, turn::TurnContext},
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
    if let (false, Some(tasks)) = (running.is_empty(), &runtime.background) {
        // How they ended is recorded, so that a turn that runs again shows its model the same ledger.
        let key = cx.step("delegates").key;
        let step = Step { key: &key, kind: "note", class: EffectClass::Read, request: "" };
        let settled = tasks.settled(task.conversation.id.as_str(), &running);
        let settled = record.journal.once(step, settled).await.and_then(StepResult::into_outcome);
        ledger.settle(&settled.map_err(|error| error.to_string())?, prompts);
    }
    let inherited = agents::inheritable_tools(&task.definition.rules, task.tools.clone());
    let background = runtime.background.as_ref().filter(|_| settings.background).map(|tasks| {
        Arc::new(Background {
            tasks: tasks.clone(),
            agent: task.definition.name.as_str().into(),
            parts: parts_of(
                task.definition,
                delegation,
                unrecorded.only(|name| inherited.get(name).is_some()),
                runtime,
            ),
        })
    });
    let (usage, budget) = (record.usage.clone(), Budget::new(settings.budget));
    let lost = LostWrites::default();
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
        fails_on_tool_error: task.definition.on_tool_error == OnToolError::Fail,
        mcp_meta: task.mcp_meta.clone(),
        skills: task.definition.skills.clone(),
        narrowing: task.narrowing.clone(),
        journal: record.journal.clone(),
        count_replayed: Arc::new(move |used: ModelUsage| usage.record_sampling(&[used], false)),
        background,
        budget: budget.clone(),
        shared: None,
        counts: Arc::new(RunCounts::new(settings, ledger.total())),
        lost: lost.clone(),
        depth: settings.depth.max(1),
    };
    let lead = LeadPrompt::new(settings, ledger, budget, task.definition.enable_filler_messages, prompts)?;
    let lead = LeadPrompt { lost, ..lead };
    let only_delegates = delegates_only(&task.tools);
    let own = task.tools.clone().only(|name| !only_delegates.contains(name));
    let tools = with_delegation(own, parent);
    Ok(AgentRequest { tools, delegation: Some(Arc::new(lead)), ..task })
}

fn parts_of(
    definition: &AgentDef,
    delegation: &AgentDelegation,
    tools: ToolSet,
    runtime: &ProjectRuntime,
) -> DelegateParts {
    DelegateParts {
        settings: delegation.settings.clone(),
        llm: runtime.model_of(definition),
        models: Arc::new(delegation.models.clone()),
        tools,
        tool_timeout: definition.tool_timeout,
        fails_on_tool_error: definition.on_tool_error == OnToolError::Fail,
        skills: definition.skills.clone(),
        mcp_meta: runtime.static_meta(),
    }
}

/// Opens what delegates in the background work with, in a process that did not start them.
pub(in crate::runtime) struct ProjectParts(pub(in crate::runtime) ProjectRuntime);

impl OpenParts for ProjectParts {
    fn open<'a>(&'a self, agent: &'a str, cx: &'a CallContext) -> BoxFuture<'a, Option<DelegateParts>> {
        Box::pin(async move {
            let runtime = &self.0;
            let (definition, delegation) = (runtime.project.agent(agent)?, runtime.delegation.get(agent)?);
            let tools = tool_list::live(definition, runtime, cx).await;
            Some(parts_of(definition, delegation, tools, runtime))
        })
    }
}

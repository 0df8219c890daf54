//! Agents of a mission that may start sub-agents. What a sub-agent does is recorded in the journal of the unit, below the call that started
//! it; its model calls count for the budgets of the mission, which are compared after each of them.

use std::{collections::HashMap, sync::Arc};

use segue_engine::{
    ids::AgentName,
    project::{BudgetLimits, OnToolError},
};
use serde_json::{Map, Value as Json};

use super::{parts::MissionAgent, slice::UnitRun};
use crate::{
    agents,
    delegation::{
        AgentDelegation, DelegationParent, LeadPrompt, Ledger, LostWrites, PARENT_TOOLS, RunCounts, SharedBudget,
        delegates_only, with_delegation,
    },
    llm::Llm,
    react::{Budget, ToolNarrowing},
    tools::{ToolHandler, WrappedTool, tool_set::ToolSet},
};

/// What an agent of a mission may delegate, during one assignment.
pub(super) struct Delegation<'a> {
    own: &'a AgentDelegation,
    /// The budget of the agent's own delegation: the sub-agents spend from it too.
    pub(super) budget: Arc<Budget>,
}

/// Opens the delegation of an agent, if it has one.
pub(super) fn open<'a>(unit: &'a UnitRun, name: &AgentName) -> Option<Delegation<'a>> {
    let own = unit.parts.delegation.get(name.as_str())?;
    Some(Delegation { own, budget: Budget::new(own.settings.budget) })
}

/// Names that no other tool of the agent may have.
pub(super) fn reserved(unit: &UnitRun, name: &AgentName) -> &'static [&'static str] {
    if unit.parts.delegation.contains_key(name.as_str()) { &PARENT_TOOLS } else { &[] }
}

/// What an agent that may start sub-agents reads about it.
pub(super) fn policy(unit: &UnitRun, name: &AgentName) -> Option<Arc<str>> {
    let own = unit.parts.delegation.get(name.as_str())?;
    let budget = Budget::new(BudgetLimits::default());
    match LeadPrompt::new(&own.settings, Ledger::default(), budget, false, &unit.parts.prompts) {
        Ok(lead) => Some(lead.policy),
        Err(error) => {
            tracing::error!("a prompt of delegation cannot be rendered: {error}");
            None
        }
    }
}

impl Delegation<'_> {
    /// The tools with `task`.
    pub(super) fn with_task(
        &self,
        unit: &UnitRun,
        agent: &MissionAgent,
        model: &Arc<dyn Llm>,
        tools: ToolSet,
        narrowing: &ToolNarrowing,
    ) -> ToolSet {
        let journaled = |model: &Arc<dyn Llm>| -> Arc<dyn Llm> { Arc::new(unit.journaled(model.clone())) };
        let AgentDelegation { settings, models } = self.own;
        let models: HashMap<Arc<str>, Arc<dyn Llm>> =
            models.iter().map(|(kind, model)| (kind.clone(), journaled(model))).collect();
        let servers = unit.parts.project.endpoints.mcp_servers.iter();
        let meta = servers.filter(|(_, server)| !server.meta_static.is_empty());
        let meta: Map<String, Json> =
            meta.map(|(name, server)| (name.to_string(), Json::Object(server.meta_static.clone()))).collect();
        let parent = DelegationParent {
            delegations: unit.parts.delegations.clone(),
            settings: settings.clone(),
            prompts: unit.parts.prompts.clone(),
            conversation: unit.run.as_str().into(),
            turn: 0,
            llm: journaled(model),
            models: Arc::new(models),
            tools: inheritable(unit, agent, tools.clone()),
            tool_timeout: agent.definition.as_ref().and_then(|definition| definition.tool_timeout),
            fails_on_tool_error: agent
                .definition
                .as_ref()
                .is_some_and(|definition| definition.on_tool_error == OnToolError::Fail),
            mcp_meta: Arc::new(meta),
            skills: agent.skills.clone(),
            narrowing: narrowing.clone(),
            journal: unit.effects.clone(),
            count_replayed: Arc::new(|_| {}),
            background: None,
            budget: self.budget.clone(),
            shared: unit.budgets().map(|budgets| Arc::new(budgets) as Arc<dyn SharedBudget>),
            counts: Arc::new(RunCounts::new(settings, 0)),
            // The events of a run have the calls of sub-agents.
            lost: LostWrites::default(),
            depth: settings.depth.max(1),
        };
        let only_delegates = delegates_only(&tools);
        with_delegation(tools.only(|name| !only_delegates.contains(name)), parent)
    }
}

/// The tools that sub-agents may inherit, with the rules of the run around them.
fn inheritable(unit: &UnitRun, agent: &MissionAgent, tools: ToolSet) -> ToolSet {
    let tools = match &agent.definition {
        Some(definition) => agents::inheritable_tools(&definition.rules, tools),
        None => tools,
    };
    let rules = unit.rules.clone();
    tools.with_wrapper(move |_, tool| Arc::new(WrappedTool::new(tool, rules.clone())) as Arc<dyn ToolHandler>)
}

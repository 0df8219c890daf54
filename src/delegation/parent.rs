//! What a delegate gets from the run that starts it.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use minijinja::context;
use segue_engine::{conversation::ModelUsage, project::AgentSkills};
use serde_json::{Map, Value as Json};
use tokio::sync::Semaphore;

use super::{
    background::Background,
    executor::Delegations,
    ledger::Ledger,
    loop_host::BudgetCheck,
    types::{DelegationSettings, TASK, TASK_CANCEL, TASK_RESULT, TASK_STATUS},
    writes::LostWrites,
};
use crate::{
    journal::EffectJournal,
    llm::Llm,
    prompts::PromptSet,
    react::{Budget, ToolNarrowing},
    tools::tool_set::ToolSet,
};

/// The names of the tools of an agent that may delegate; no other tool may have them.
pub(crate) const PARENT_TOOLS: [&str; 4] = [TASK, TASK_STATUS, TASK_RESULT, TASK_CANCEL];

/// The run of an agent that may delegate. Cheap to clone.
#[derive(Clone)]
pub(crate) struct DelegationParent {
    /// Those of the process.
    pub(crate) delegations: Arc<Delegations>,
    pub(crate) settings: Arc<DelegationSettings>,
    pub(crate) prompts: Arc<PromptSet>,
    /// The conversation or the mission run: what admission is fair between.
    pub(crate) conversation: Arc<str>,
    /// The number of the turn, for idempotency keys.
    pub(crate) turn: u64,
    /// The model of the parent; its calls are recorded.
    pub(crate) llm: Arc<dyn Llm>,
    /// The models of types that have one of their own, recorded.
    pub(crate) models: Arc<HashMap<Arc<str>, Arc<dyn Llm>>>,
    /// The tools of the parent that it may pass on; their calls are recorded.
    pub(crate) tools: ToolSet,
    /// The time limit of one tool call, if the parent sets one.
    pub(crate) tool_timeout: Option<Duration>,
    /// Whether a failed tool call ends the run of a sub-agent (`on_tool_error: fail` of the agent).
    pub(crate) fails_on_tool_error: bool,
    /// `_meta` for MCP calls by server name.
    pub(crate) mcp_meta: Arc<Map<String, Json>>,
    /// The skills of the parent; `None`: none.
    pub(crate) skills: Option<Arc<AgentSkills>>,
    /// Which of its tools loaded skills leave.
    pub(crate) narrowing: ToolNarrowing,
    /// Where calls are recorded.
    pub(crate) journal: EffectJournal,
    /// Counts what a delegate used whose report was read from the record, so that a turn that runs again counts the same.
    pub(crate) count_replayed: Arc<dyn Fn(ModelUsage) + Send + Sync>,
    /// For delegates that outlive the turn, if there may be any.
    pub(crate) background: Option<Arc<Background>>,
    /// The budget of this run: its delegates spend from it too.
    pub(crate) budget: Arc<Budget>,
    /// The budgets that others spend from as well while it works.
    pub(crate) shared: Option<Arc<dyn SharedBudget>>,
    /// How many delegates this run started.
    pub(crate) counts: Arc<RunCounts>,
    /// Where delegates leave what they changed if their reports are lost.
    pub(crate) lost: LostWrites,
    /// Levels of delegation that are left.
    pub(crate) depth: u32,
}

/// Budgets that loops elsewhere spend from too, as the tasks of a mission do from that of its run.
#[async_trait]
pub(crate) trait SharedBudget: Send + Sync {
    /// What is left now, after everything that was spent so far is counted. `None`: the work has stopped.
    async fn check(&self) -> Option<BudgetCheck>;
}

impl DelegationParent {
    /// The model of a type.
    pub(super) fn model_of(&self, kind: &str) -> Arc<dyn Llm> {
        self.models.get(kind).unwrap_or(&self.llm).clone()
    }
}

/// The delegates of one run.
pub(crate) struct RunCounts {
    /// Delegates that the conversation started before this run.
    before: u32,
    started: AtomicU32,
    /// Delegates of this run that may work at the same time, first in, first out.
    pub(super) gate: Arc<Semaphore>,
}

impl RunCounts {
    /// For a run with these settings, in a conversation that started `before` delegates earlier.
    pub(crate) fn new(settings: &DelegationSettings, before: u32) -> Self {
        let places = usize::try_from(settings.max_concurrent.max(1)).unwrap_or(1);
        Self { before, started: AtomicU32::new(0), gate: Arc::new(Semaphore::new(places)) }
    }

    /// Counts one more delegate. `Err`: the limit that forbids it, and whether it is that of the conversation. Calls are counted in
    /// their order, those from the record too, so that a turn that runs again refuses the same ones.
    pub(super) fn start(&self, settings: &DelegationSettings) -> Result<(), (u32, bool)> {
        let started = self.started.fetch_add(1, Ordering::SeqCst);
        if started >= settings.max_total {
            return Err((settings.max_total, false));
        }
        match settings.per_conversation {
            Some(limit) if self.before.saturating_add(started) >= limit => Err((limit, true)),
            _ => Ok(()),
        }
    }
}

/// What an agent that may delegate reads about it, and its ledger.
#[derive(Clone, Debug)]
pub(crate) struct LeadPrompt {
    /// Types and policy; stable.
    pub(crate) policy: Arc<str>,
    /// Its delegates so far.
    pub(crate) ledger: Ledger,
    /// The budget of its run.
    pub(crate) budget: Arc<Budget>,
    /// Where its delegates leave what they changed if their reports are lost.
    pub(crate) lost: LostWrites,
}

impl LeadPrompt {
    /// For an agent with these settings.
    ///
    /// # Errors
    /// The problem of a prompt that the project replaced.
    pub(crate) fn new(
        settings: &DelegationSettings,
        ledger: Ledger,
        budget: Arc<Budget>,
        has_fillers: bool,
        prompts: &PromptSet,
    ) -> Result<Self, String> {
        let variables = context! {
            types => settings.listed(),
            max_concurrent => settings.max_concurrent,
            max_total => settings.max_total,
            per_conversation => settings.per_conversation,
            background => settings.background,
            budget_tokens => settings.budget.tokens,
            budget_cost => settings.budget.cost,
            enable_filler_messages => has_fillers,
        };
        let policy = prompts.render(&prompts.agent_delegation, variables).map_err(|error| error.to_string())?;
        Ok(Self { policy: policy.trim().into(), ledger, budget, lost: LostWrites::default() })
    }
}

//! What the stages and the effects of one turn need.

use std::sync::Arc;

use segue_engine::{
    conversation::{AgentCall, Conversation, Event},
    project::AgentDef,
    time::Timestamp,
};

use super::{SharedTexts, UsageMeter};
use crate::{
    agents::AgentRequest,
    clock::Clock,
    journal::{EffectJournal, Journal, JournaledModel, TurnClock},
    llm::Llm,
    runtime::{
        effects::{EventHistory, TurnAgentHost},
        project_runtime::ProjectRuntime,
    },
    store::{InboxMessage, TurnNumber},
    tools::tool_set::ToolSet,
};

/// A message that is stored and has a turn.
#[derive(Clone, Copy)]
pub(in crate::runtime) struct AcceptedMessage<'a> {
    pub(in crate::runtime) turn: TurnNumber,
    pub(in crate::runtime) inbound: &'a InboxMessage,
}

/// What an effect is performed with.
pub(in crate::runtime) struct TurnContext<'a> {
    pub(in crate::runtime) runtime: &'a ProjectRuntime,
    /// The conversation as the engine left it before this effect.
    pub(in crate::runtime) conversation: &'a Conversation,
    pub(in crate::runtime) number: TurnNumber,
    /// Events of earlier turns, read when they are wanted.
    pub(in crate::runtime) history: &'a EventHistory,
    /// Events of this turn.
    pub(in crate::runtime) events: &'a [Event],
    pub(in crate::runtime) record: &'a TurnRecord,
}

impl<'a> TurnContext<'a> {
    /// The model, with every call recorded.
    pub(in crate::runtime) fn journaled(&self, model: &Arc<dyn Llm>) -> Arc<dyn Llm> {
        Arc::new(JournaledModel::new(model.clone(), self.record.journal.clone()))
    }

    /// A run of an agent that has neither tools nor hooks yet.
    pub(in crate::runtime) fn agent_task(
        &self,
        call: &'a AgentCall,
        definition: &'a Arc<AgentDef>,
        host: &'a TurnAgentHost<'_>,
    ) -> AgentRequest<'a> {
        let Self { runtime, conversation, .. } = *self;
        AgentRequest {
            project: &runtime.project,
            conversation,
            call,
            definition,
            llm: self.journaled(&runtime.model_of(definition)),
            tools: ToolSet::default(),
            metadata: runtime.metadata(conversation),
            mcp_meta: Arc::default(),
            hooks: None,
            user_message_changed: false,
            slots: None,
            host,
        }
    }
}

/// What a turn records and counts while it runs. Cheap to clone.
#[derive(Clone)]
pub(in crate::runtime) struct TurnRecord {
    /// Where effects are recorded.
    pub(in crate::runtime) journal: EffectJournal,
    /// What the turn used, for budgets and traces.
    pub(in crate::runtime) usage: Arc<UsageMeter>,
    /// Texts that the record names by their hash.
    pub(in crate::runtime) texts: Arc<SharedTexts>,
}

impl TurnRecord {
    /// That of a turn which begins at `at`.
    pub(in crate::runtime) fn new(
        records: Arc<dyn Journal>,
        clock: Arc<dyn Clock>,
        at: Timestamp,
        usage: UsageMeter,
        texts: SharedTexts,
    ) -> Self {
        let usage = Arc::new(usage);
        let journal = EffectJournal::new(records, Arc::new(TurnClock::new(clock, at)), usage.clone());
        Self { journal, usage, texts: Arc::new(texts) }
    }
    /// The turn's clock.
    pub(in crate::runtime) fn clock(&self) -> Arc<dyn Clock> {
        self.journal.clock().clone()
    }
    /// Wall time as the turn sees it.
    pub(in crate::runtime) fn now(&self) -> Timestamp {
        self.journal.clock().now()
    }
}

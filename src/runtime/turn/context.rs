//! The contexts that the stages and effects of a turn receive.

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
    journal::{EffectJournal, HeldWrites, Journal, JournaledModel, TurnClock},
    llm::Llm,
    react::ToolNarrowing,
    runtime::{
        effects::{EventHistory, TurnAgentHost},
        project_runtime::ProjectRuntime,
    },
    store::{InboxMessage, TurnNumber},
    tools::tool_set::ToolSet,
};

/// A stored message with its turn number.
#[derive(Clone, Copy)]
pub(in crate::runtime) struct AcceptedMessage<'a> {
    pub(in crate::runtime) turn: TurnNumber,
    pub(in crate::runtime) inbound: &'a InboxMessage,
    /// Whether it was written before its sender got the question that is open.
    pub(in crate::runtime) before_question: bool,
}

impl<'a> AcceptedMessage<'a> {
    /// A message that was written with the state of the conversation before it.
    pub(in crate::runtime) fn new(turn: TurnNumber, inbound: &'a InboxMessage) -> Self {
        Self { turn, inbound, before_question: false }
    }
}

/// The input of an effect, besides its parameters.
pub(in crate::runtime) struct TurnContext<'a> {
    pub(in crate::runtime) runtime: &'a ProjectRuntime,
    /// The conversation before this effect.
    pub(in crate::runtime) conversation: &'a Conversation,
    pub(in crate::runtime) number: TurnNumber,
    /// Events of earlier turns, read on first use.
    pub(in crate::runtime) history: &'a EventHistory,
    /// Events of this turn so far.
    pub(in crate::runtime) events: &'a [Event],
    pub(in crate::runtime) record: &'a TurnRecord,
}

impl<'a> TurnContext<'a> {
    /// A model whose calls are recorded in the journal.
    pub(in crate::runtime) fn journaled(&self, model: &Arc<dyn Llm>) -> Arc<dyn Llm> {
        Arc::new(JournaledModel::new(model.clone(), self.record.journal.clone()))
    }

    /// The request of an agent run, without tools and hooks.
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
            delegation: None,
            narrowing: ToolNarrowing::default(),
            host,
        }
    }
}

/// Journal, usage and shared texts of a turn. Cheap to clone.
#[derive(Clone)]
pub(in crate::runtime) struct TurnRecord {
    /// Records effects.
    pub(in crate::runtime) journal: EffectJournal,
    /// Counts model calls and tokens, and collects the trace.
    pub(in crate::runtime) usage: Arc<UsageMeter>,
    /// Texts that the records reference by hash.
    pub(in crate::runtime) texts: Arc<SharedTexts>,
}

impl TurnRecord {
    /// The record of a turn whose message arrived at `at`.
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
    /// Holds the writes of the turn back.
    pub(in crate::runtime) fn with_held_writes(mut self, held: Option<HeldWrites>) -> Self {
        self.journal = self.journal.with_held_writes(held);
        self
    }
    /// The turn's clock.
    pub(in crate::runtime) fn clock(&self) -> Arc<dyn Clock> {
        self.journal.clock().clone()
    }
    /// The wall time of the turn: that of the newest recorded outcome.
    pub(in crate::runtime) fn now(&self) -> Timestamp {
        self.journal.clock().now()
    }
}

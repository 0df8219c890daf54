//! When a run is over: the finishing tool of open agents, the conditions of task agents, and what is recorded then.

use minijinja::context;
use segue_engine::{
    condition::Scope,
    conversation::{
        AgentKind, AgentOutcome, AgentStatus, BotKind, BotMessage, Event, EventKind, FilledBy, FlowLocation, Reply,
    },
    ids::SlotName,
};
use serde_json::{Map, Value as Json, json};
use std::sync::Arc;

use super::{AgentRequest, profile::Profile, session::Session, slot_tools, slots::RunSlots, speech::Spoken};
use crate::{context::CallContext, effect::EffectClass, llm::ToolSpec, prompts::PromptSet};

/// The name of the finishing tool. The loop knows it by this name alone.
pub(super) const TASK_COMPLETED: &str = "task_completed";

/// The tools that belong to the profile, not to a server.
pub(super) fn built_in_tools(profile: &Profile, slots: &RunSlots<'_>, prompts: &PromptSet) -> Vec<ToolSpec> {
    match profile.kind {
        AgentKind::Open => vec![task_completed(prompts)],
        AgentKind::Task => profile
            .exit_slots
            .iter()
            .filter(|name| slots.is_visible(name))
            .filter_map(|name| Some(slot_tools::spec(slots.definition(name)?, prompts)))
            .collect(),
    }
}

fn task_completed(prompts: &PromptSet) -> ToolSpec {
    ToolSpec {
        name: TASK_COMPLETED.into(),
        description: prompts.render(&prompts.tool_task_completed, context! {}).unwrap_or_default().trim().into(),
        parameters: Arc::new(
            json!({"type": "object", "properties": {}, "required": [], "additionalProperties": false}),
        ),
        strict: true,
    }
}

/// What has happened in a run so far; becomes its outcome.
pub(super) struct Ledger<'a> {
    task: &'a AgentRequest<'a>,
    events: Vec<Event>,
    results: Vec<Json>,
    /// What the frame keeps for the next turn of the task.
    pub(super) metadata: Map<String, Json>,
    /// Slots that hooks set: they stand among the events already.
    pub(super) hooked: Vec<Arc<str>>,
}

impl<'a> Ledger<'a> {
    /// An empty one.
    pub(super) fn new(task: &'a AgentRequest<'a>) -> Self {
        Self::after(task, Vec::new())
    }
    /// One in which something stands already.
    pub(super) fn after(task: &'a AgentRequest<'a>, events: Vec<Event>) -> Self {
        Self { task, events, results: Vec::new(), metadata: Map::new(), hooked: Vec::new() }
    }
    /// What happened so far.
    pub(super) fn into_events(self) -> Vec<Event> {
        self.events
    }
    /// Adds an event.
    pub(super) fn event(&mut self, kind: EventKind, cx: &CallContext) {
        let call = self.task.call;
        let place = FlowLocation { active_flow: Some(call.flow_id.clone()), step_id: Some(call.step_id.clone()) };
        self.events.push(Event { at: cx.clock.now(), kind, location: place });
    }
    /// Adds a text that the user saw.
    pub(super) fn said(&mut self, spoken: &Spoken, kind: BotKind, in_exchange: bool, cx: &CallContext) {
        if spoken.text.is_empty() {
            return;
        }
        let bot = BotMessage {
            reply: Reply::text(spoken.text.clone()),
            utter_action: None,
            kind,
            agent: Some(self.task.call.agent.clone()),
            reply_id: Some(spoken.id.clone()),
            in_exchange,
            truncated: spoken.cut,
            ..BotMessage::default()
        };
        self.event(EventKind::bot(bot), cx);
    }
    /// Adds a tool's result for programs.
    pub(super) fn result(&mut self, name: &str, result: Json) {
        let parts = [("name".to_owned(), Json::from(name)), ("result".to_owned(), result)];
        self.results.push(Json::Object(Map::from_iter(parts)));
    }
    /// Closes the run. Exchanges go before the last words, so that a later prompt shows them in the order they happened.
    pub(super) fn close(
        mut self,
        status: AgentStatus,
        profile: &Profile,
        slots: &RunSlots<'_>,
        session: &Session,
        last: Option<(&Spoken, BotKind)>,
        cx: &CallContext,
    ) -> AgentOutcome {
        let effect = |tool: &str| self.task.tools.get(tool).map(|entry| entry.spec.effect);
        let exchanges = session.exchanges(|tool| effect(tool).is_some_and(|effect| effect != EffectClass::Read));
        // One that is stopped may be asked to go on.
        let goes_on = matches!(status, AgentStatus::AwaitingUser | AgentStatus::Cancelled { .. });
        // A hook may keep a finished one open.
        let may_go_on = goes_on || self.task.hooks.is_some() && status == AgentStatus::Finished;
        if may_go_on && !exchanges.is_empty() {
            let agent_id = self.task.call.agent.clone();
            self.event(EventKind::AgentExchanges { agent_id, exchanges: Arc::new(exchanges) }, cx);
        }
        self.slots(&status, profile, slots, cx);
        if let Some((spoken, kind)) = last {
            self.said(spoken, kind, false, cx);
        }
        let data = Json::Array(self.results);
        AgentOutcome { status, events: self.events, data, metadata: self.metadata }
    }

    /// A finished task sets every exit slot, changed or not; any other end sets those that changed.
    fn slots(&mut self, status: &AgentStatus, profile: &Profile, slots: &RunSlots<'_>, cx: &CallContext) {
        for name in profile.exit_slots.iter().filter(|name| !self.hooked.contains(name)).cloned().collect::<Vec<_>>() {
            let name = &name;
            let changed = slots.recorded().contains_key(name);
            if !changed && *status != AgentStatus::Finished {
                continue;
            }
            let value = slots.slot(name).cloned().unwrap_or(Json::Null);
            let event = EventKind::Slot {
                name: SlotName::new(name.clone()),
                value,
                filled_by: Some(FilledBy::Agent),
                reset: false,
            };
            self.event(event, cx);
        }
    }
}

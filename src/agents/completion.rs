//! The built-in tools that complete a run, and the recorder that turns a run into its outcome.

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

use super::{AgentRequest, profile::Profile, slot_tools, slots::RunSlots, transcript::lasting_exchanges};
use crate::{
    context::CallContext,
    conversation::{ReplySink, TurnEvent},
    effect::EffectClass,
    llm::{ChatMessage, ToolSpec},
    prompts::PromptSet,
    react::StreamedText,
};

/// The name of the tool with which an open agent completes its task.
pub(super) const TASK_COMPLETED: &str = "task_completed";

/// The built-in tools of a profile: `task_completed` for open agents, slot tools for task agents.
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

/// Collects the events and results of a run, and builds its outcome.
pub(super) struct RunRecorder<'a> {
    request: &'a AgentRequest<'a>,
    events: Vec<Event>,
    results: Vec<Json>,
    /// Metadata for the agent's frame, for the next turn of the task.
    pub(super) metadata: Map<String, Json>,
    /// The question of a run that waits for its answer, if it is more than the text of the model.
    pub(super) question: Option<Reply>,
    /// Slots that hooks set; their events exist already.
    pub(super) slots_set_by_hooks: Vec<Arc<str>>,
}

impl<'a> RunRecorder<'a> {
    /// An empty recorder.
    pub(super) fn new(request: &'a AgentRequest<'a>) -> Self {
        Self::with_events(request, Vec::new())
    }
    /// A recorder that starts with these events.
    pub(super) fn with_events(request: &'a AgentRequest<'a>, events: Vec<Event>) -> Self {
        Self {
            request,
            events,
            results: Vec::new(),
            metadata: Map::new(),
            question: None,
            slots_set_by_hooks: Vec::new(),
        }
    }
    /// The events so far.
    pub(super) fn into_events(self) -> Vec<Event> {
        self.events
    }
    /// Adds an event.
    pub(super) fn record(&mut self, kind: EventKind, cx: &CallContext) {
        let call = self.request.call;
        let place = FlowLocation { active_flow: Some(call.flow_id.clone()), step_id: Some(call.step_id.clone()) };
        self.events.push(Event { at: cx.clock.now(), kind, location: place });
    }
    /// Adds an event for a text that the user saw.
    pub(super) fn record_text(&mut self, streamed: &StreamedText, kind: BotKind, in_exchange: bool, cx: &CallContext) {
        if streamed.text.is_empty() {
            return;
        }
        let bot = BotMessage {
            reply: Reply::text(streamed.text.clone()),
            utter_action: None,
            kind,
            agent: Some(self.request.call.agent.clone()),
            reply_id: Some(streamed.id.clone()),
            in_exchange,
            truncated: streamed.truncated,
            ..BotMessage::default()
        };
        self.record(EventKind::bot(bot), cx);
    }
    /// Adds an event for a message that is not the text of a model response.
    pub(super) fn record_message(&mut self, reply: Reply, kind: BotKind, cx: &CallContext) {
        let agent = Some(self.request.call.agent.clone());
        self.record(EventKind::bot(BotMessage { reply, kind, agent, ..BotMessage::default() }), cx);
    }
    /// Sends a message, and adds its event. The key of `cx` is its id.
    pub(super) async fn send(&mut self, reply: Reply, kind: BotKind, out: &mut dyn ReplySink, cx: &CallContext) {
        let id: Arc<str> = cx.key.as_str().into();
        let event = TurnEvent::Message { id: id.clone(), message: Box::new(reply.clone()), kind };
        // A lost channel does not end the run: the message is stored with the turn and delivered from there.
        let _ = out.send(event, cx).await;
        let agent = Some(self.request.call.agent.clone());
        self.record(EventKind::bot(BotMessage { reply, kind, agent, reply_id: Some(id), ..BotMessage::default() }), cx);
    }
    /// Adds the structured result of a tool.
    pub(super) fn record_result(&mut self, name: &str, result: Json) {
        let parts = [("name".to_owned(), Json::from(name)), ("result".to_owned(), result)];
        self.results.push(Json::Object(Map::from_iter(parts)));
    }
    /// Builds the outcome. Exchanges come before the final message, so that a later prompt shows them in the order of time.
    pub(super) fn close(
        mut self,
        status: AgentStatus,
        profile: &Profile,
        slots: &RunSlots<'_>,
        messages: &[Arc<ChatMessage>],
        last: Option<(&StreamedText, BotKind)>,
        cx: &CallContext,
    ) -> AgentOutcome {
        let effect = |tool: &str| self.request.tools.get(tool).map(|entry| entry.info.effect);
        let changes = |tool: &str| effect(tool).is_some_and(|effect| effect != EffectClass::Read);
        let exchanges = lasting_exchanges(messages, changes);
        // A cancelled run may be resumed.
        let resumes = matches!(status, AgentStatus::AwaitingUser | AgentStatus::Cancelled { .. });
        // A hook may keep a finished task open.
        let may_resume = resumes || self.request.hooks.is_some() && status == AgentStatus::Finished;
        if may_resume && !exchanges.is_empty() {
            let agent_id = self.request.call.agent.clone();
            self.record(EventKind::AgentExchanges { agent_id, exchanges: Arc::new(exchanges) }, cx);
        }
        self.record_slots(&status, profile, slots, cx);
        if let Some((streamed, kind)) = last {
            self.record_text(streamed, kind, false, cx);
        }
        if let Some(question) = self.question.take().filter(|_| status == AgentStatus::AwaitingUser) {
            self.record_message(question, BotKind::InputRequired, cx);
        }
        let data = Json::Array(self.results);
        AgentOutcome { status, events: self.events, data, metadata: self.metadata }
    }

    /// A finished task sets every exit slot, changed or not; any other end sets those that changed.
    fn record_slots(&mut self, status: &AgentStatus, profile: &Profile, slots: &RunSlots<'_>, cx: &CallContext) {
        for name in profile
            .exit_slots
            .iter()
            .filter(|name| !self.slots_set_by_hooks.contains(name))
            .cloned()
            .collect::<Vec<_>>()
        {
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
            self.record(event, cx);
        }
    }
}

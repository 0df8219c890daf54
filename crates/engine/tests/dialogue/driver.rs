//! Runs a conversation through the dialogue engine and records its inputs and events.

use std::{ops::Range, sync::Arc};

use segue_engine::{
    conversation::{
        Command, Conversation, Event, EventKind, ExternalTrigger, FilledBy, Frame, FrameKind, Position, UserMessage,
    },
    dialogue::{Input, InputKind, Next, Reason, advance},
    ids::{AgentName, ConversationId, FlowId, MessageId, SlotName},
    project::Project,
    time::Timestamp,
};
use serde_json::{Map, Value as Json};

/// One input and its result.
#[derive(Clone)]
pub(crate) struct InputRecord {
    /// The project at that time.
    pub(crate) project: Arc<Project>,
    pub(crate) input: Input,
    /// The stack before the input.
    pub(crate) before: Vec<Frame>,
    /// The indices of its events in [`Driver::all`].
    pub(crate) events: Range<usize>,
    pub(crate) reasons: Vec<Reason>,
    pub(crate) next: Next,
}

/// A conversation under test.
#[derive(Clone)]
pub(crate) struct Driver {
    pub(crate) project: Arc<Project>,
    pub(crate) conversation: Conversation,
    /// All events.
    pub(crate) all: Vec<Event>,
    /// Events of the current turn.
    pub(crate) events: Vec<Event>,
    /// Reasons of the current turn.
    pub(crate) reasons: Vec<Reason>,
    pub(crate) next: Next,
    /// All inputs.
    pub(crate) log: Vec<InputRecord>,
    newest: usize,
    clock: i64,
    pub(crate) seed: u64,
    /// Whether the next message was written before its sender got the open question.
    pub(crate) before_question: bool,
}

impl Driver {
    pub(crate) fn new(project: Arc<Project>) -> Self {
        Self {
            project,
            conversation: Conversation::new(ConversationId::from("c")),
            all: Vec::new(),
            events: Vec::new(),
            reasons: Vec::new(),
            next: Next::Listen,
            log: Vec::new(),
            newest: 0,
            clock: 1_700_000_000_000_000,
            seed: 7,
            before_question: false,
        }
    }

    /// Copies the time and the pending request of another conversation.
    pub(crate) fn clock_like(&mut self, other: &Self) {
        self.clock = other.clock;
        self.next = other.next.clone();
    }

    /// Advances the time by minutes.
    pub(crate) fn wait(&mut self, minutes: f64) {
        self.clock += (minutes * 60e6) as i64;
    }

    /// Passes one input to the engine.
    pub(crate) fn input(&mut self, kind: InputKind) -> &Next {
        self.clock += 1_000_000;
        let input = Input { at: Timestamp::from_micros(self.clock), seed: self.seed, kind };
        let before = self.conversation.stack.frames().to_vec();
        let done = advance(&self.project, &mut self.conversation, input.clone());
        self.newest = done.events.len();
        let from = self.all.len();
        self.all.extend(done.events.iter().cloned());
        let (project, events) = (self.project.clone(), from..self.all.len());
        self.log.push(InputRecord {
            project,
            input,
            before,
            events,
            reasons: done.reasons.clone(),
            next: done.next.clone(),
        });
        self.events.extend(done.events);
        self.reasons.extend(done.reasons);
        self.next = done.next;
        &self.next
    }

    /// Starts a turn with a user message.
    pub(crate) fn user(&mut self, text: &str) -> &Next {
        self.user_with(text, "rest", Map::new())
    }

    pub(crate) fn user_with(&mut self, text: &str, channel: &str, metadata: Map<String, Json>) -> &Next {
        self.events.clear();
        self.reasons.clear();
        let message_id = MessageId::from(format!("m{}", self.clock));
        let message = UserMessage {
            via: "".into(),
            holds_writes: false,
            before_question: self.before_question,
            text: text.into(),
            message_id,
            input_channel: channel.into(),
            metadata,
        };
        self.input(InputKind::Message(message))
    }

    /// Starts a turn with a trigger.
    pub(crate) fn trigger(&mut self, trigger: ExternalTrigger) -> &Next {
        self.events.clear();
        self.reasons.clear();
        self.input(InputKind::Trigger(trigger))
    }

    /// Passes the commands of the command generator, one per line.
    pub(crate) fn understood(&mut self, lines: &[&str]) -> &Next {
        let commands = lines.iter().map(|line| command(line)).collect();
        self.input(InputKind::Commands(commands))
    }

    /// The events of the newest input.
    pub(crate) fn latest(&self) -> &[Event] {
        &self.all[self.all.len() - self.newest..]
    }

    /// The replies of this turn: the name of the response, or the text if there is none.
    pub(crate) fn said(&self) -> Vec<String> {
        self.events.iter().filter_map(said).collect()
    }

    /// The texts of the replies of this turn.
    pub(crate) fn texts(&self) -> Vec<String> {
        let text = |event: &Event| match &event.kind {
            EventKind::Bot(bot) => bot.reply.text.as_deref().map(str::to_owned),
            _ => None,
        };
        self.events.iter().filter_map(text).collect()
    }

    /// The stack, bottom first, as `flow@step`; patterns without `pattern_`, agents as `agent:name(state)`.
    pub(crate) fn stack(&self) -> Vec<String> {
        self.conversation.stack.frames().iter().map(frame).collect()
    }

    /// The kinds of this turn's events with the names in them.
    pub(crate) fn happened(&self) -> Vec<String> {
        self.events.iter().map(happened).collect()
    }
}

fn said(event: &Event) -> Option<String> {
    match &event.kind {
        EventKind::Bot(bot) => {
            Some(bot.utter_action.as_deref().or(bot.reply.text.as_deref()).unwrap_or_default().to_owned())
        }
        _ => None,
    }
}

fn frame(frame: &Frame) -> String {
    let name = frame.flow_id.as_str();
    match &frame.kind {
        FrameKind::Agent(agent) => {
            let state = serde_json::to_value(agent.state).unwrap();
            format!("agent:{}({})", agent.agent_id, state.as_str().unwrap())
        }
        _ => {
            let step = match &frame.at {
                Position::At(step) => step.as_str().to_owned(),
                other => format!("{other:?}"),
            };
            let own = format!("{name}_");
            let step = step.strip_prefix(&own).map_or(step.clone(), |s| {
                s.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches('_').to_owned()
            });
            format!("{}@{step}", name.strip_prefix("pattern_").unwrap_or(name))
        }
    }
}

fn happened(event: &Event) -> String {
    let json = serde_json::to_value(event).unwrap();
    let kind = json["event"].as_str().unwrap();
    let name = ["name", "agent_id", "flow_id", "tool_name"].iter().find_map(|key| json[key].as_str());
    match (&event.kind, name) {
        (EventKind::Slot { value, reset, .. }, Some(name)) => {
            format!("slot {name}={value}{}", if *reset { " reset" } else { "" })
        }
        (_, Some(name)) => format!("{kind} {name}"),
        (_, None) => kind.to_owned(),
    }
}

/// Parses a command in the short form of the tests.
pub(crate) fn command(line: &str) -> Command {
    let names = |rest: &str| rest.split_whitespace().map(FlowId::from).collect::<Vec<_>>();
    if let Some(flow) = line.strip_prefix("start flow ") {
        return Command::StartFlow { flow: FlowId::from(flow) };
    }
    if let Some(rest) = line.strip_prefix("set slot ") {
        let (name, value) = rest.split_once(' ').unwrap();
        let value = serde_json::from_str(value).unwrap_or_else(|_| Json::from(value));
        return Command::SetSlot { name: SlotName::from(name), value, extractor: FilledBy::Llm };
    }
    if let Some(rest) = line.strip_prefix("clarify") {
        return Command::Clarify { options: names(rest) };
    }
    if let Some(agent) = line.strip_prefix("restart agent ") {
        return Command::RestartAgent { agent_id: AgentName::from(agent) };
    }
    if let Some(reason) = line.strip_prefix("cannot handle") {
        return Command::CannotHandle { reason: reason.trim().to_owned() };
    }
    match line {
        "cancel flow" => Command::CancelFlow,
        "continue agent" => Command::ContinueAgent,
        "search" => Command::Search,
        "chitchat" => Command::ChitChat,
        "skip" => Command::SkipQuestion,
        "repeat" => Command::RepeatBotMessages,
        "handoff" => Command::HumanHandoff,
        "noop" => Command::Noop,
        other => panic!("no command: {other}"),
    }
}

//! Drives a conversation through the engine and keeps everything that happened.

use std::{ops::Range, sync::Arc};

use segue_engine::{
    conversation::{
        Command, Conversation, Event, EventKind, FilledBy, Frame, FrameKind, Position, Trigger, UserMessage,
    },
    dialogue::{Input, InputKind, Next, Reason, advance},
    ids::{AgentName, ConversationId, FlowId, MessageId, SlotName},
    project::Project,
    time::Timestamp,
};
use serde_json::{Map, Value as Json};

/// One input, and what came of it.
#[derive(Clone)]
pub(crate) struct Taken {
    /// The project as it was then.
    pub(crate) project: Arc<Project>,
    pub(crate) input: Input,
    /// The stack before it.
    pub(crate) before: Vec<Frame>,
    /// Its events, as places in everything since the beginning.
    pub(crate) events: Range<usize>,
    pub(crate) why: Vec<Reason>,
    pub(crate) next: Next,
}

/// A conversation under test.
#[derive(Clone)]
pub(crate) struct Driver {
    pub(crate) project: Arc<Project>,
    pub(crate) conversation: Conversation,
    /// Everything since the beginning.
    pub(crate) all: Vec<Event>,
    /// Events of the present turn.
    pub(crate) events: Vec<Event>,
    /// Reasons of the present turn.
    pub(crate) why: Vec<Reason>,
    pub(crate) next: Next,
    /// Every input since the beginning.
    pub(crate) log: Vec<Taken>,
    newest: usize,
    clock: i64,
    pub(crate) seed: u64,
}

impl Driver {
    pub(crate) fn new(project: Arc<Project>) -> Self {
        Self {
            project,
            conversation: Conversation::new(ConversationId::from("c")),
            all: Vec::new(),
            events: Vec::new(),
            why: Vec::new(),
            next: Next::Listen,
            log: Vec::new(),
            newest: 0,
            clock: 1_700_000_000_000_000,
            seed: 7,
        }
    }

    /// Takes over the time, and what is awaited, of another conversation.
    pub(crate) fn clock_like(&mut self, other: &Self) {
        self.clock = other.clock;
        self.next = other.next.clone();
    }

    /// Lets minutes pass.
    pub(crate) fn wait(&mut self, minutes: f64) {
        self.clock += (minutes * 60e6) as i64;
    }

    /// Takes one input.
    pub(crate) fn input(&mut self, kind: InputKind) -> &Next {
        self.clock += 1_000_000;
        let input = Input { at: Timestamp::from_micros(self.clock), seed: self.seed, kind };
        let before = self.conversation.stack.frames().to_vec();
        let done = advance(&self.project, &mut self.conversation, input.clone());
        self.newest = done.events.len();
        let from = self.all.len();
        self.all.extend(done.events.iter().cloned());
        let (project, events) = (self.project.clone(), from..self.all.len());
        self.log.push(Taken { project, input, before, events, why: done.why.clone(), next: done.next.clone() });
        self.events.extend(done.events);
        self.why.extend(done.why);
        self.next = done.next;
        &self.next
    }

    /// Begins a turn.
    pub(crate) fn user(&mut self, text: &str) -> &Next {
        self.user_with(text, "rest", Map::new())
    }

    pub(crate) fn user_with(&mut self, text: &str, channel: &str, metadata: Map<String, Json>) -> &Next {
        self.events.clear();
        self.why.clear();
        let message_id = MessageId::from(format!("m{}", self.clock));
        let message = UserMessage { text: text.into(), message_id, input_channel: channel.into(), metadata };
        self.input(InputKind::Message(message))
    }

    /// Something comes that no user wrote.
    pub(crate) fn trigger(&mut self, trigger: Trigger) -> &Next {
        self.events.clear();
        self.why.clear();
        self.input(InputKind::Trigger(trigger))
    }

    /// The answer of the command generator, one command a line.
    pub(crate) fn understood(&mut self, lines: &[&str]) -> &Next {
        let commands = lines.iter().map(|line| command(line)).collect();
        self.input(InputKind::Understood(commands))
    }

    /// The events of the newest input.
    pub(crate) fn latest(&self) -> &[Event] {
        &self.all[self.all.len() - self.newest..]
    }

    /// What the user saw in this turn: the response's name, or the text where there is none.
    pub(crate) fn said(&self) -> Vec<String> {
        self.events.iter().filter_map(said).collect()
    }

    /// The texts that the user saw in this turn.
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

    /// The kinds of this turn's events with what they name.
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

/// A command as tests write it.
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

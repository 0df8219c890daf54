//! From a task's state to the outcome of a run.

use std::sync::Arc;

use segue_engine::{
    conversation::{AgentOutcome, AgentStatus, BotKind, BotMessage, Event, EventKind, FilledBy, FlowLocation, Reply},
    project::RemoteDef,
    template::from_json,
};
use serde_json::{Map, Value as Json, json};

use super::{super::AgentRequest, Came, FAILED, state_words};
use crate::{
    a2a::model::{Artifact, Message, Part, Task, TaskState, text_of},
    context::CallContext,
    limits,
};

/// What the next invocation must know; lives in the agent's frame.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    /// The other side's name for this conversation.
    pub(super) context_id: Option<String>,
    /// The task that is open, and only one that is.
    pub(super) task_id: Option<String>,
    /// Whether that task works on while the user talks.
    pub(super) is_working: bool,
    /// Messages that were exchanged about it.
    pub(super) exchanges: u64,
}

/// Whether a key of the frame's metadata is this memory's.
pub(in crate::agents) fn is_own(key: &str) -> bool {
    matches!(key, "context_id" | "task_id" | "working" | "exchanges")
}

impl Memory {
    /// From the frame, or from what an earlier task left.
    pub(super) fn of(metadata: &Map<String, Json>) -> Self {
        let text =
            |key: &str| metadata.get(key).and_then(Json::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
        Self {
            context_id: text("context_id"),
            task_id: text("task_id"),
            is_working: metadata.get("working").and_then(Json::as_bool).unwrap_or_default(),
            exchanges: metadata.get("exchanges").and_then(Json::as_u64).unwrap_or_default(),
        }
    }
    /// For the frame.
    pub(super) fn keep(self) -> Map<String, Json> {
        let mut metadata = Map::new();
        metadata.extend(self.context_id.map(|id| ("context_id".to_owned(), Json::from(id))));
        if let Some(id) = self.task_id {
            metadata.insert("task_id".into(), Json::from(id));
            metadata.insert("exchanges".into(), Json::from(self.exchanges));
            if self.is_working {
                metadata.insert("working".into(), Json::Bool(true));
            }
        }
        metadata
    }
    /// Takes the names that an answer gives.
    pub(super) fn heard(&mut self, context: Option<&str>, task: Option<&str>) {
        let some = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        self.context_id = some(context).or(self.context_id.take());
        self.task_id = some(task).or(self.task_id.take());
    }
    /// The task is over, or was never one.
    pub(super) fn forget_task(&mut self) {
        (self.task_id, self.is_working) = (None, false);
    }
    /// The open task as far as it is known.
    pub(super) fn task(&self) -> Task {
        Task::new(self.task_id.as_deref().unwrap_or_default(), self.context_id.as_deref().unwrap_or_default())
    }
}

/// How a run ends.
pub(super) struct Ending {
    /// The status.
    pub(super) status: AgentStatus,
    /// The last text for the user.
    pub(super) text: String,
    /// What it made, for programs.
    pub(super) results: Results,
}

/// What a task made.
#[derive(Default)]
pub(super) struct Results {
    /// Name, the artifact's own name, kind and content of each part that is for programs; in order.
    parts: Vec<Made>,
}

struct Made {
    /// Artifact and part by number; `None` for a part of what was said.
    artifact: Option<usize>,
    part: usize,
    /// What the artifact is called.
    named: Option<String>,
    kind: &'static str,
    content: Json,
}

impl Ending {
    /// It asks the user.
    pub(super) fn asks(text: String) -> Self {
        Self { status: AgentStatus::AwaitingUser, text, results: Results::default() }
    }
    /// It is done.
    pub(super) fn done(text: String) -> Self {
        Self { status: AgentStatus::Finished, text, results: Results::default() }
    }
    /// It failed; the user hears the words for that, never these.
    pub(super) fn failed(code: &str, reason: String) -> Self {
        let status = AgentStatus::Failed { code: code.into(), reason };
        Self { status, text: String::new(), results: Results::default() }
    }
}

/// Whether a task that failed may be begun anew: only when whoever runs it says so.
pub(super) fn is_repeatable(came: &Came) -> bool {
    let Came::Task(task) = came else { return false };
    let says = |metadata: &Map<String, Json>| metadata.get("retryable").and_then(Json::as_bool).unwrap_or_default();
    let said = task.status.message.as_ref().is_some_and(|message| says(&message.metadata));
    task.status.state == TaskState::Failed && (said || says(&task.metadata))
}

/// A task that stands still.
pub(super) fn of_task(task: &Task) -> Ending {
    let said = task.status.message.as_ref();
    let text = said.map(|message| text_of(&message.parts)).unwrap_or_default();
    let results = Results::of(task);
    match task.status.state {
        TaskState::InputRequired | TaskState::AuthRequired => Ending { results, ..Ending::asks(text) },
        TaskState::Completed => Ending { results, ..Ending::done(whole_text(said, &task.artifacts)) },
        state => {
            let words = if text.is_empty() { "it says nothing about it" } else { &text };
            let words: String = words.chars().take(limits::A2A_REASON_TEXT).collect();
            Ending::failed(FAILED, format!("{}: {words}", state_words(state)))
        }
    }
}

/// What parts of a message hold for programs.
pub(super) fn of_parts(parts: &[Part]) -> Results {
    let mut results = Results::default();
    results.take(None, None, parts);
    results
}

/// What was said at the end, then the text of every artifact, each once.
fn whole_text(said: Option<&Message>, artifacts: &[Artifact]) -> String {
    let said = said.map(|message| text_of(&message.parts));
    let made = artifacts.iter().map(|artifact| text_of(&artifact.parts));
    let mut texts: Vec<String> = Vec::new();
    for text in said.into_iter().chain(made) {
        if !text.trim().is_empty() && !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts.join("\n")
}

impl Results {
    fn of(task: &Task) -> Self {
        let mut results = Self::default();
        for (at, artifact) in task.artifacts.iter().enumerate() {
            let named = artifact.name.clone().unwrap_or_else(|| artifact.id.clone());
            results.take(Some(at), Some(named), &artifact.parts);
        }
        if let Some(said) = &task.status.message {
            results.take(None, None, &said.parts);
        }
        results
    }

    fn take(&mut self, artifact: Option<usize>, named: Option<String>, parts: &[Part]) {
        for (part, content) in parts.iter().enumerate() {
            let (kind, content) = match content {
                Part::Text(_) => continue,
                Part::Data(data) => ("data", data.clone()),
                Part::File(file) => {
                    let mut content = json!({
                        "uri": file.uri, "name": file.name, "mime_type": file.media_type,
                    });
                    // Bytes in place are kept while they are few: a conversation is no store of files.
                    let bytes = file.bytes.as_ref().filter(|bytes| bytes.len() <= limits::A2A_FILE);
                    if let (Some(bytes), Some(fields)) = (bytes, content.as_object_mut()) {
                        fields.insert("bytes".into(), Json::from(bytes.as_str()));
                    }
                    ("file", content)
                }
            };
            self.parts.push(Made { artifact, part, named: named.clone(), kind, content });
        }
    }

    /// The name of such a result: `<agent>_<artifact>_<part>`.
    pub(super) fn listed(&self, agent: &str) -> Json {
        let list = self.parts.iter().map(|made| {
            let artifact = made.artifact.map_or_else(|| "message".to_owned(), |at| at.to_string());
            json!({"name": format!("{agent}_{artifact}_{}", made.part), "type": made.kind, "result": made.content})
        });
        Json::Array(list.collect())
    }

    /// What `output_mapping` sees as `result`: all data as one map (the later wins), data by the name of its artifact, files.
    fn seen(&self, agent: &str, text: &str, state: &str) -> Json {
        let (mut data, mut artifacts, mut files) = (Map::new(), Map::new(), Vec::new());
        for made in &self.parts {
            match (made.kind, &made.content) {
                ("file", file) => files.push(file.clone()),
                (_, content) => {
                    if let Json::Object(fields) = content {
                        data.extend(fields.clone());
                    }
                    artifacts.extend(made.named.clone().map(|name| (name, content.clone())));
                }
            }
        }
        json!({"text": text, "state": state, "data": data, "artifacts": artifacts, "files": files, "results": self.listed(agent)})
    }
}

/// Id and text of what was said.
type Said = (Arc<str>, Arc<str>);

/// Closes a run.
pub(super) fn close(
    task: &AgentRequest<'_>,
    ending: Ending,
    memory: Memory,
    remote: &RemoteDef,
    meanwhile: &[Said],
    last: Option<(Said, BotKind)>,
    cx: &CallContext,
) -> AgentOutcome {
    let call = task.call;
    let agent = call.agent.as_str();
    let place = FlowLocation { active_flow: Some(call.flow_id.clone()), step_id: Some(call.step_id.clone()) };
    let event = |kind: EventKind| Event { at: cx.clock.now(), kind, location: place.clone() };
    let bot = |(id, text): &Said, kind: BotKind| {
        event(EventKind::bot(BotMessage {
            reply: Reply::text(text.clone()),
            kind,
            agent: Some(call.agent.clone()),
            reply_id: Some(id.clone()),
            ..BotMessage::default()
        }))
    };
    let mut events: Vec<Event> = meanwhile.iter().map(|said| bot(said, BotKind::Intermediate)).collect();
    let mut status = ending.status;
    let state = match status {
        AgentStatus::Finished => "completed",
        AgentStatus::AwaitingUser | AgentStatus::Yielded => "input_required",
        AgentStatus::Failed { .. } | AgentStatus::Cancelled { .. } => "failed",
    };
    if state != "failed" && !ending.results.parts.is_empty() || state == "completed" {
        match mapped(task, remote, &ending.results.seen(agent, &ending.text, state), state == "completed") {
            Ok(values) => events.extend(values.into_iter().map(|(name, value)| {
                event(EventKind::Slot { name, value, filled_by: Some(FilledBy::Agent), reset: false })
            })),
            Err(reason) => status = AgentStatus::Failed { code: super::ANSWER.into(), reason },
        }
    }
    let is_heard = !matches!(status, AgentStatus::Failed { .. });
    events.extend(last.filter(|_| is_heard).map(|(said, kind)| bot(&said, kind)));
    AgentOutcome { status, events, data: ending.results.listed(agent), metadata: memory.keep() }
}

type Values = Vec<(segue_engine::ids::SlotName, Json)>;

/// Evaluates every mapping before the first slot is set: half a result is none. Before the end what is not there yet is left
/// as it is.
fn mapped(task: &AgentRequest<'_>, remote: &RemoteDef, result: &Json, is_last: bool) -> Result<Values, String> {
    let context = minijinja::Value::from_pairs([("result", from_json(result))]);
    let mut values = Vec::with_capacity(remote.output.len());
    for (slot, expression) in &remote.output {
        match task.project.templates.eval_expression(expression, context.clone()) {
            Ok(value) if value.is_null() && !is_last => {}
            Ok(value) => values.push((slot.clone(), value)),
            Err(_) if !is_last => {}
            Err(error) => return Err(format!("the value for `{slot}` could not be made: {error}")),
        }
    }
    Ok(values)
}

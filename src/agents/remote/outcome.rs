//! Conversion of the state of a remote task to the outcome of a run.

use std::sync::Arc;

use segue_engine::{
    conversation::{AgentOutcome, AgentStatus, BotKind, BotMessage, Event, EventKind, FilledBy, FlowLocation, Reply},
    project::RemoteDef,
    template::from_json,
};
use serde_json::{Map, Value as Json, json};

use super::{super::AgentRequest, CODE_TASK_FAILED, RemoteReply, describe_state};
use crate::{
    a2a::model::{Artifact, Message, Part, Task, TaskState, text_of},
    context::CallContext,
    limits,
};

/// The state of the remote task for the next invocation, kept in the agent's frame.
#[derive(Clone, Debug, Default)]
pub(super) struct RemoteTaskState {
    /// The A2A `contextId` of the conversation.
    pub(super) context_id: Option<String>,
    /// The id of the task, only while it is open.
    pub(super) task_id: Option<String>,
    /// Whether the task continues in the background.
    pub(super) is_working: bool,
    /// Number of messages that were exchanged about it.
    pub(super) exchanges: u64,
}

/// Whether a key of the frame's metadata belongs to this state.
pub(in crate::agents) fn is_own_key(key: &str) -> bool {
    matches!(key, "context_id" | "task_id" | "working" | "exchanges")
}

impl RemoteTaskState {
    /// Reads the state from the metadata of the frame or of an earlier task.
    pub(super) fn from_metadata(metadata: &Map<String, Json>) -> Self {
        let text =
            |key: &str| metadata.get(key).and_then(Json::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
        Self {
            context_id: text("context_id"),
            task_id: text("task_id"),
            is_working: metadata.get("working").and_then(Json::as_bool).unwrap_or_default(),
            exchanges: metadata.get("exchanges").and_then(Json::as_u64).unwrap_or_default(),
        }
    }
    /// The metadata for the frame.
    pub(super) fn into_metadata(self) -> Map<String, Json> {
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
    /// Takes the ids of a reply.
    pub(super) fn update_ids(&mut self, context: Option<&str>, task: Option<&str>) {
        let some = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        self.context_id = some(context).or(self.context_id.take());
        self.task_id = some(task).or(self.task_id.take());
    }
    /// Forgets the task: it has ended, or there is none.
    pub(super) fn forget_task(&mut self) {
        (self.task_id, self.is_working) = (None, false);
    }
    /// The open task with its ids.
    pub(super) fn task(&self) -> Task {
        Task::new(self.task_id.as_deref().unwrap_or_default(), self.context_id.as_deref().unwrap_or_default())
    }
}

/// The result of a run.
pub(super) struct RemoteResult {
    /// The status.
    pub(super) status: AgentStatus,
    /// The last text for the user.
    pub(super) text: String,
    /// Its structured results.
    pub(super) results: ResultParts,
}

/// The structured results of a task.
#[derive(Default)]
pub(super) struct ResultParts {
    /// Data and file parts, in order.
    parts: Vec<ResultPart>,
}

struct ResultPart {
    /// The index of the artifact; `None` for a part of a message.
    artifact: Option<usize>,
    part: usize,
    /// The name of the artifact.
    artifact_name: Option<String>,
    kind: &'static str,
    content: Json,
}

impl RemoteResult {
    /// The agent waits for input of the user.
    pub(super) fn input_required(text: String) -> Self {
        Self { status: AgentStatus::AwaitingUser, text, results: ResultParts::default() }
    }
    /// The agent has completed its task.
    pub(super) fn completed(text: String) -> Self {
        Self { status: AgentStatus::Finished, text, results: ResultParts::default() }
    }
    /// A failure. The reason is for operators, the user gets the error response.
    pub(super) fn failed(code: &str, reason: String) -> Self {
        let status = AgentStatus::Failed { code: code.into(), reason };
        Self { status, text: String::new(), results: ResultParts::default() }
    }
}

/// Whether a failed task may be started again: only if the agent marks it as `retryable`.
pub(super) fn is_repeatable(reply: &RemoteReply) -> bool {
    let RemoteReply::Task(task) = reply else { return false };
    let is_retryable =
        |metadata: &Map<String, Json>| metadata.get("retryable").and_then(Json::as_bool).unwrap_or_default();
    let is_retryable_message = task.status.message.as_ref().is_some_and(|message| is_retryable(&message.metadata));
    task.status.state == TaskState::Failed && (is_retryable_message || is_retryable(&task.metadata))
}

/// The result of a task that waits or has ended.
pub(super) fn task_result(task: &Task) -> RemoteResult {
    let message = task.status.message.as_ref();
    let text = message.map(|message| text_of(&message.parts)).unwrap_or_default();
    let results = ResultParts::from_task(task);
    match task.status.state {
        TaskState::InputRequired | TaskState::AuthRequired => {
            RemoteResult { results, ..RemoteResult::input_required(text) }
        }
        TaskState::Completed => {
            RemoteResult { results, ..RemoteResult::completed(joined_text(message, &task.artifacts)) }
        }
        state => {
            let reason = if text.is_empty() { "it gave no reason" } else { &text };
            let reason: String = reason.chars().take(limits::A2A_REASON_TEXT).collect();
            RemoteResult::failed(CODE_TASK_FAILED, format!("{}: {reason}", describe_state(state)))
        }
    }
}

/// The structured results in the parts of a message.
pub(super) fn result_parts(parts: &[Part]) -> ResultParts {
    let mut results = ResultParts::default();
    results.add(None, None, parts);
    results
}

/// The final message, then the text of every artifact, without duplicates.
fn joined_text(message: Option<&Message>, artifacts: &[Artifact]) -> String {
    let message_text = message.map(|message| text_of(&message.parts));
    let part = artifacts.iter().map(|artifact| text_of(&artifact.parts));
    let mut texts: Vec<String> = Vec::new();
    for text in message_text.into_iter().chain(part) {
        if !text.trim().is_empty() && !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts.join("\n")
}

impl ResultParts {
    fn from_task(task: &Task) -> Self {
        let mut results = Self::default();
        for (at, artifact) in task.artifacts.iter().enumerate() {
            let artifact_name = artifact.name.clone().unwrap_or_else(|| artifact.id.clone());
            results.add(Some(at), Some(artifact_name), &artifact.parts);
        }
        if let Some(message) = &task.status.message {
            results.add(None, None, &message.parts);
        }
        results
    }

    fn add(&mut self, artifact: Option<usize>, artifact_name: Option<String>, parts: &[Part]) {
        for (part, content) in parts.iter().enumerate() {
            let (kind, content) = match content {
                Part::Text(_) => continue,
                Part::Data(data) => ("data", data.clone()),
                Part::File(file) => {
                    let mut content = json!({
                        "uri": file.uri, "name": file.name, "mime_type": file.media_type,
                    });
                    // Inline bytes are kept only up to a limit, because the conversation is not a file store.
                    let bytes = file.bytes.as_ref().filter(|bytes| bytes.len() <= limits::A2A_FILE);
                    if let (Some(bytes), Some(fields)) = (bytes, content.as_object_mut()) {
                        fields.insert("bytes".into(), Json::from(bytes.as_str()));
                    }
                    ("file", content)
                }
            };
            self.parts.push(ResultPart { artifact, part, artifact_name: artifact_name.clone(), kind, content });
        }
    }

    /// The results as a list; the name of each is `<agent>_<artifact>_<part>`.
    pub(super) fn to_list(&self, agent: &str) -> Json {
        let list = self.parts.iter().map(|part| {
            let artifact = part.artifact.map_or_else(|| "message".to_owned(), |at| at.to_string());
            json!({"name": format!("{agent}_{artifact}_{}", part.part), "type": part.kind, "result": part.content})
        });
        Json::Array(list.collect())
    }

    /// The variable `result` of `output_mapping`: all data merged into one map (later data wins), data by artifact name, and files.
    fn for_mapping(&self, agent: &str, text: &str, state: &str) -> Json {
        let (mut data, mut artifacts, mut files) = (Map::new(), Map::new(), Vec::new());
        for part in &self.parts {
            match (part.kind, &part.content) {
                ("file", file) => files.push(file.clone()),
                (_, content) => {
                    if let Json::Object(fields) = content {
                        data.extend(fields.clone());
                    }
                    artifacts.extend(part.artifact_name.clone().map(|name| (name, content.clone())));
                }
            }
        }
        json!({"text": text, "state": state, "data": data, "artifacts": artifacts, "files": files, "results": self.to_list(agent)})
    }
}

/// Id and text of a message that was sent.
type SentText = (Arc<str>, Arc<str>);

/// Builds the outcome of a run.
pub(super) fn build(
    request: &AgentRequest<'_>,
    result: RemoteResult,
    task_state: RemoteTaskState,
    remote: &RemoteDef,
    meanwhile: &[SentText],
    last: Option<(SentText, BotKind)>,
    cx: &CallContext,
) -> AgentOutcome {
    let call = request.call;
    let agent = call.agent.as_str();
    let place = FlowLocation { active_flow: Some(call.flow_id.clone()), step_id: Some(call.step_id.clone()) };
    let event = |kind: EventKind| Event { at: cx.clock.now(), kind, location: place.clone() };
    let bot = |(id, text): &SentText, kind: BotKind| {
        event(EventKind::bot(BotMessage {
            reply: Reply::text(text.clone()),
            kind,
            agent: Some(call.agent.clone()),
            reply_id: Some(id.clone()),
            ..BotMessage::default()
        }))
    };
    let mut events: Vec<Event> = meanwhile.iter().map(|said| bot(said, BotKind::Intermediate)).collect();
    let mut status = result.status;
    let state = match status {
        AgentStatus::Finished => "completed",
        AgentStatus::AwaitingUser | AgentStatus::Yielded => "input_required",
        AgentStatus::Failed { .. } | AgentStatus::Cancelled { .. } => "failed",
    };
    if state != "failed" && !result.results.parts.is_empty() || state == "completed" {
        match map_output(request, remote, &result.results.for_mapping(agent, &result.text, state), state == "completed")
        {
            Ok(values) => events.extend(values.into_iter().map(|(name, value)| {
                event(EventKind::Slot { name, value, filled_by: Some(FilledBy::Agent), reset: false })
            })),
            Err(reason) => status = AgentStatus::Failed { code: super::CODE_BAD_ANSWER.into(), reason },
        }
    }
    let is_shown = !matches!(status, AgentStatus::Failed { .. });
    events.extend(last.filter(|_| is_shown).map(|(said, kind)| bot(&said, kind)));
    AgentOutcome { status, events, data: result.results.to_list(agent), metadata: task_state.into_metadata() }
}

type Values = Vec<(segue_engine::ids::SlotName, Json)>;

/// Evaluates every mapping before the first slot is set, so that slots are set completely or not at all. Before the task is complete, a
/// mapping without a value leaves its slot unchanged.
fn map_output(request: &AgentRequest<'_>, remote: &RemoteDef, result: &Json, is_last: bool) -> Result<Values, String> {
    let context = minijinja::Value::from_pairs([("result", from_json(result))]);
    let mut values = Vec::with_capacity(remote.output.len());
    for (slot, expression) in &remote.output {
        match request.project.templates.eval_expression(expression, context.clone()) {
            Ok(value) if value.is_null() && !is_last => {}
            Ok(value) => values.push((slot.clone(), value)),
            Err(_) if !is_last => {}
            Err(error) => return Err(format!("`output_mapping` has no value for `{slot}`: {error}")),
        }
    }
    Ok(values)
}

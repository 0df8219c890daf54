//! Tasks, read from the store. The id of a task contains its context, so that its conversation is found without an index. A turn belongs
//! to the task that the metadata of its message or trigger names.

use indexmap::IndexMap;
use segue_engine::{
    conversation::{Conversation, Event, EventKind, UserMessage},
    ids::MessageId,
};
use serde_json::{Map, Value as Json, json};

use super::{
    A2aRequestError, A2aServer,
    push::PushConfig,
    task_result::{self, TaskResult},
};
use crate::{
    a2a::model::{Artifact, Message, Part, Role, Status, Task, TaskState},
    limits,
    store::{StoreError, TurnEvents, Version},
};

/// The key of this channel's data in the metadata of a message, and in the values of a trigger.
pub(super) const METADATA_KEY: &str = "a2a";
/// The key in this data that marks the first message of a task: no earlier turn belongs to the task.
const FIRST_MESSAGE: &str = "first";

/// A new task id: a random part that cannot be guessed, a dot, and the context.
pub(super) fn new_id(context: &str) -> String {
    format!("{}.{context}", uuid::Uuid::new_v4().simple())
}

/// The context in a task id; `None` if the id has another form.
pub(super) fn context_of(task: &str) -> Option<&str> {
    let (random, context) = task.split_once('.')?;
    (random.len() == 32 && random.bytes().all(|byte| byte.is_ascii_hexdigit()) && !context.is_empty())
        .then_some(context)
}

/// The data of this channel in the metadata of a message, which may represent a trigger.
pub(super) fn a2a_metadata(message: &UserMessage) -> Option<&Map<String, Json>> {
    let metadata = &message.metadata;
    let data = metadata.get(METADATA_KEY).or_else(|| metadata.get("trigger")?.get("values")?.get(METADATA_KEY))?;
    data.as_object()
}

/// The data of this channel in the message or trigger that started a turn.
fn turn_metadata(turn: &TurnEvents) -> Option<&Map<String, Json>> {
    turn.events.iter().find_map(|event| match &event.kind {
        EventKind::User(message) => a2a_metadata(message),
        EventKind::External { trigger } => trigger.values.get(METADATA_KEY)?.as_object(),
        _ => None,
    })
}

fn message_of(turn: &TurnEvents) -> Option<&UserMessage> {
    turn.events.iter().find_map(|event| match &event.kind {
        EventKind::User(message) => Some(message),
        _ => None,
    })
}

fn task_of(turn: &TurnEvents) -> Option<&str> {
    turn_metadata(turn)?.get("task_id")?.as_str()
}

/// The task of a turn, if the message with this id started it.
pub(super) fn task_of_message<'a>(turn: &'a TurnEvents, message: &MessageId) -> Option<&'a str> {
    message_of(turn).filter(|first| first.message_id == *message).and_then(|_| task_of(turn))
}

/// A task, read from the turns of its conversation.
pub(super) struct StoredTask {
    /// The task.
    pub(super) task: Task,
    /// The push notification settings in its turns; only earlier versions stored them there.
    pub(super) push_configs: Vec<PushConfig>,
}

impl A2aServer {
    /// Reads a task; its state is `working` if it runs in this process.
    pub(super) async fn read_task(&self, id: &str) -> Result<StoredTask, A2aRequestError> {
        let mut stored = self.read_task_after_its_turn(id).await?;
        self.mark_running(&mut stored);
        Ok(stored)
    }

    /// Reads a task as its last turn has left it, whether it still counts as running or not. The turns since its first one are read. Earlier
    /// ones are needed only if other turns followed the task, because then the conversation after the task is computed from all events.
    pub(super) async fn read_task_after_its_turn(&self, id: &str) -> Result<StoredTask, A2aRequestError> {
        let context = context_of(id).ok_or_else(|| A2aRequestError::task_not_found(id))?;
        let turns = self.turns_since(id, context).await?;
        let task = match self.conversation_after_task(&turns, id, context).await? {
            Some(conversation) => self.task_from_turns(&turns, id, context, Some(conversation)),
            None => self.task_from_turns(&self.turns(context).await?, id, context, None),
        };
        task.ok_or_else(|| A2aRequestError::task_not_found(id))
    }

    /// Sets the state of a task that runs in this process.
    fn mark_running(&self, StoredTask { task, .. }: &mut StoredTask) {
        if self.0.task_runs.is_running(&self.task_key(&task.id)) {
            task.status = Status { state: TaskState::Working, message: None, timestamp: task.status.timestamp.take() };
            task.artifacts.clear();
        }
    }

    /// All turns of a context, oldest first.
    pub(super) async fn turns(&self, context: &str) -> Result<Vec<TurnEvents>, A2aRequestError> {
        let mut turns = self.turns_before(context, None, usize::MAX).await?;
        turns.reverse();
        Ok(turns)
    }

    /// The turns of a context since the first one of a task, oldest first.
    async fn turns_since(&self, id: &str, context: &str) -> Result<Vec<TurnEvents>, A2aRequestError> {
        let mut turns: Vec<TurnEvents> = Vec::new();
        let is_first = |turn: &TurnEvents| {
            turn_metadata(turn).is_some_and(|metadata| metadata.contains_key(FIRST_MESSAGE))
                && task_of(turn) == Some(id)
        };
        // The pages grow: most tasks are short, and most requests are for the newest task.
        let mut page_size = 1;
        while !turns.last().is_some_and(&is_first) {
            page_size = (page_size * 2).min(limits::A2A_TURNS);
            let page = self.turns_before(context, turns.last().map(|turn| turn.version), page_size).await?;
            if page.is_empty() {
                break;
            }
            let count = page.iter().position(&is_first).map_or(page.len(), |index| index + 1);
            turns.extend(page.into_iter().take(count));
        }
        turns.reverse();
        Ok(turns)
    }

    /// The newest turns of a context before a version, at most `max`, newest first.
    async fn turns_before(
        &self,
        context: &str,
        before: Option<Version>,
        max: usize,
    ) -> Result<Vec<TurnEvents>, A2aRequestError> {
        let id = self.conversation_id(context);
        self.0.assistant.store().latest_turns(&id, before, max).await.map_err(|error| read_error(&error))
    }

    /// The present conversation, if it is also the conversation after the latest turn of a task: no turn followed except push notification
    /// settings. Otherwise `None`.
    async fn conversation_after_task(
        &self,
        turns: &[TurnEvents],
        id: &str,
        context: &str,
    ) -> Result<Option<Conversation>, A2aRequestError> {
        let Some(last) = turns.iter().rposition(|turn| task_of(turn) == Some(id) && is_task_turn(turn)) else {
            return Ok(None);
        };
        let is_push_setting =
            |turn: &TurnEvents| turn_metadata(turn).is_some_and(|metadata| metadata.contains_key("push"));
        if !turns.iter().skip(last + 1).all(is_push_setting) {
            return Ok(None);
        }
        let present = self.0.assistant.conversation_at(&self.conversation_id(context)).await;
        let (conversation, version) = present.map_err(|error| read_error(&error))?;
        // Another turn may have been committed since the turns were read.
        Ok((turns.last().map(|turn| turn.version) == Some(version)).then_some(conversation))
    }

    /// The tasks of a context, newest first. The events are applied once for all tasks.
    pub(super) async fn tasks_of_context(&self, context: &str) -> Result<Vec<StoredTask>, A2aRequestError> {
        let turns = self.turns(context).await?;
        // The index of the latest turn of each task, in the order of their first turns.
        let mut latest: IndexMap<&str, usize> = IndexMap::new();
        for (index, turn) in turns.iter().enumerate() {
            if let Some(id) = task_of(turn) {
                let latest_index = latest.entry(id).or_insert(index);
                *latest_index = if is_task_turn(turn) { index } else { *latest_index };
            }
        }
        let mut conversation = Conversation::new(self.conversation_id(context));
        let mut tasks = Vec::with_capacity(latest.len());
        for (index, turn) in turns.iter().enumerate() {
            turn.events.iter().for_each(|event| conversation.apply(event));
            let Some((order, id, _)) =
                task_of(turn).and_then(|id| latest.get_full(id)).filter(|(.., latest_index)| **latest_index == index)
            else {
                continue;
            };
            let mut task = self.task_from_turns(&turns, id, context, Some(conversation.clone()));
            task.iter_mut().for_each(|task| self.mark_running(task));
            tasks.extend(task.map(|task| (order, task)));
        }
        tasks.sort_unstable_by_key(|(order, _)| std::cmp::Reverse(*order));
        Ok(tasks.into_iter().map(|(_, task)| task).collect())
    }

    /// Derives a task from turns of its context; `None` if none of them belongs to it. `conversation` is the conversation after the latest
    /// turn of the task. Without it, `turns` must be all turns of the context, from which it is computed.
    fn task_from_turns(
        &self,
        turns: &[TurnEvents],
        id: &str,
        context: &str,
        conversation: Option<Conversation>,
    ) -> Option<StoredTask> {
        let last = turns.iter().rposition(|turn| task_of(turn) == Some(id) && is_task_turn(turn))?;
        let mut computed = Conversation::new(self.conversation_id(context));
        let mut task = Task::new(id, context);
        let mut push_configs = Vec::new();
        for (index, turn) in turns.iter().enumerate() {
            let is_own = task_of(turn) == Some(id);
            if is_own
                && let Some(config) = turn_metadata(turn).and_then(|data| PushConfig::from_stored(data.get("push")?))
            {
                push_configs.retain(|other: &PushConfig| other.id != config.id);
                if !config.url.is_empty() {
                    push_configs.push(config);
                }
            }
            if index > last {
                continue;
            }
            if conversation.is_none() {
                turn.events.iter().for_each(|event| computed.apply(event));
            }
            if is_own && is_task_turn(turn) {
                if let Some(message) = message_of(turn).filter(|message| !message.text.is_empty()) {
                    task.history.push(history_message(message, &task));
                }
                // Before its latest turn, the task waited for input: otherwise it would have had no further turn. The replies of the latest
                // turn are in the status message instead.
                let parts = if index == last {
                    Vec::new()
                } else {
                    task_result::reply_parts(&turn.events, TaskState::InputRequired)
                };
                if !parts.is_empty() {
                    task.history.push(agent_message(&task, parts, turn.turn.0));
                }
                task.status.timestamp = turn.events.first().map(|event| to_iso8601(event.at));
            }
        }
        let is_superseded = turns
            .iter()
            .skip(last + 1)
            .any(|turn| task_of(turn).is_some_and(|other| other != id) && is_task_turn(turn));
        let latest = turns.get(last)?;
        let result = self.task_result(conversation.as_ref().unwrap_or(&computed), &latest.events);
        apply_result(&mut task, result, latest.turn.0);
        if is_superseded && task.status.state.is_interrupted() {
            task.status.state = TaskState::Canceled;
        }
        Some(StoredTask { task, push_configs })
    }

    pub(super) fn task_result(&self, conversation: &Conversation, events: &[Event]) -> TaskResult {
        task_result::task_result(&self.0.assistant.project(), conversation, events, self.0.include_repair)
    }
}

/// Whether a turn is a turn of a task. Earlier versions also stored turns that only contain a push notification setting.
fn is_task_turn(turn: &TurnEvents) -> bool {
    turn_metadata(turn).is_some_and(|metadata| metadata.get("push").is_none())
}

fn read_error(error: &StoreError) -> A2aRequestError {
    tracing::error!(code = error.code(), "an A2A task cannot be read: {error}");
    A2aRequestError::internal("the task cannot be read at present")
}

/// Sets state, message and artifacts of a task to the result of a turn.
pub(super) fn apply_result(task: &mut Task, result: TaskResult, turn: u64) {
    let TaskResult { state, mut parts, data } = result;
    task.artifacts.clear();
    if state == TaskState::Completed {
        let parts = vec![Part::Data(data.clone())];
        let artifact = Artifact { id: "result".into(), name: Some("result".into()), parts, ..Artifact::default() };
        task.artifacts.push(artifact);
    }
    parts.push(Part::Data(data));
    task.status.state = state;
    task.status.message = Some(agent_message(task, parts, turn));
}

/// A message of the assistant in a task. Its id is the same every time the task is read.
fn agent_message(task: &Task, parts: Vec<Part>, turn: u64) -> Message {
    Message {
        id: format!("{}-{turn}", task.id.split('.').next().unwrap_or_default()),
        context_id: Some(task.context_id.clone()),
        task_id: Some(task.id.clone()),
        role: Role::Agent,
        parts,
        metadata: Map::new(),
    }
}

/// A message of the user in the history of a task.
pub(super) fn history_message(message: &UserMessage, task: &Task) -> Message {
    let mut entry = Message::text(Role::User, message.message_id.as_str(), &*message.text);
    (entry.context_id, entry.task_id) = (Some(task.context_id.clone()), Some(task.id.clone()));
    entry
}

/// The metadata of a message in its conversation: that of the A2A message, and the data of this channel.
pub(super) fn message_metadata(task: &str, message: &Message) -> Map<String, Json> {
    let mut own = Map::from_iter([("task_id".to_owned(), json!(task))]);
    if message.task_id.is_none() {
        own.insert(FIRST_MESSAGE.to_owned(), json!(true));
    }
    let data: Vec<Json> = message
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Data(data) => Some(data.clone()),
            Part::Text(_) | Part::File(_) => None,
        })
        .collect();
    if !data.is_empty() {
        own.insert("data".into(), Json::Array(data));
    }
    let mut metadata = message.metadata.clone();
    // A caller must not set these two keys: the runtime uses `trigger` for the messages that represent a trigger.
    metadata.shift_remove("trigger");
    metadata.insert(METADATA_KEY.to_owned(), Json::Object(own));
    metadata
}

/// A time in ISO 8601, in UTC with milliseconds.
pub(super) fn to_iso8601(at: segue_engine::time::Timestamp) -> String {
    chrono::DateTime::from_timestamp_micros(at.as_micros())
        .map(|time| time.to_rfc3339_opts(chrono::SecondsFormat::Millis, true))
        .unwrap_or_default()
}

/// Truncates the history of a task to its newest messages: at most `max`, and never more than [`limits::A2A_HISTORY_SHOWN`].
pub(super) fn truncate_history(task: &mut Task, max: Option<usize>) {
    let max = max.unwrap_or(usize::MAX).min(limits::A2A_HISTORY_SHOWN);
    task.history.drain(..task.history.len().saturating_sub(max));
}

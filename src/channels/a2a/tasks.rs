//! Tasks as the store knows them. A task's id holds its conversation, so that nothing has to be remembered to find it; a turn
//! belongs to the task that its message, or whatever else began it, names.

use segue_engine::conversation::{Conversation, Event, UserMessage};
use serde_json::{Map, Value as Json, json};

use super::{
    A2aAgent, Refusal,
    push::Config,
    standing::{self, Standing},
};
use crate::{
    a2a::{
        codes,
        model::{Artifact, Message, Part, Role, Status, Task, TaskState},
    },
    limits,
    store::StoredTurn,
};

/// The key in a message's metadata under which the protocol's names stand.
pub(super) const KEY: &str = "a2a";

/// A new task's id: a part that nobody can guess, then the context.
pub(super) fn new_id(context: &str) -> String {
    format!("{}.{context}", uuid::Uuid::new_v4().simple())
}

/// The context within a task's id.
pub(super) fn context_of(task: &str) -> Option<&str> {
    let (own, context) = task.split_once('.')?;
    (own.len() == 32 && own.bytes().all(|byte| byte.is_ascii_hexdigit()) && !context.is_empty()).then_some(context)
}

/// What stands beside a message or a trigger of this channel.
pub(super) fn marks(message: &UserMessage) -> Option<&Map<String, Json>> {
    let beside = &message.metadata;
    let own = beside.get(KEY).or_else(|| beside.get("trigger")?.get("values")?.get(KEY))?;
    own.as_object()
}

fn task_of(turn: &StoredTurn) -> Option<&str> {
    marks(&turn.inbound.message)?.get("task_id")?.as_str()
}

/// A task, read from the store.
pub(super) struct Found {
    /// As the protocol has it.
    pub(super) task: Task,
    /// Where reports of it go, as far as it was stored.
    pub(super) pushes: Vec<Config>,
}

impl A2aAgent {
    /// A task as the store knows it; one that runs is working.
    pub(super) async fn found(&self, id: &str) -> Result<Found, Refusal> {
        let context = context_of(id).ok_or_else(|| Refusal::no_task(id))?;
        let turns = self.turns(context).await?;
        self.in_turns(&turns, id, context).ok_or_else(|| Refusal::no_task(id))
    }

    pub(super) async fn turns(&self, context: &str) -> Result<Vec<StoredTurn>, Refusal> {
        let turns = self.0.assistant.store().turns(&self.conversation_of(context)).await;
        turns.map_err(|error| {
            tracing::error!(code = error.code(), "a task cannot be read: {error}");
            Refusal::new(codes::INTERNAL, "the task cannot be read now")
        })
    }

    /// The tasks of a context, the newest first.
    pub(super) async fn of_context(&self, context: &str) -> Result<Vec<Found>, Refusal> {
        let turns = self.turns(context).await?;
        let mut ids: Vec<String> = Vec::new();
        for id in turns.iter().filter_map(task_of) {
            if !ids.iter().any(|known| known == id) {
                ids.push(id.to_owned());
            }
        }
        Ok(ids.iter().rev().filter_map(|id| self.in_turns(&turns, id, context)).collect())
    }

    fn in_turns(&self, turns: &[StoredTurn], id: &str, context: &str) -> Option<Found> {
        let last = turns.iter().rposition(|turn| task_of(turn) == Some(id) && is_work(turn))?;
        let mut conversation = Conversation::new(self.conversation_of(context));
        let mut task = Task::named(id, context);
        let mut pushes = Vec::new();
        let mut standing: Option<Standing> = None;
        for (at, turn) in turns.iter().enumerate() {
            let own = task_of(turn) == Some(id);
            if own && let Some(config) = marks(&turn.inbound.message).and_then(|marks| Config::kept(marks.get("push")?))
            {
                pushes.retain(|known: &Config| known.id != config.id);
                if !config.url.is_empty() {
                    pushes.push(config);
                }
            }
            if at > last {
                continue;
            }
            turn.events.iter().for_each(|event| conversation.apply(event));
            if own && is_work(turn) {
                let message = &turn.inbound.message;
                if !message.text.is_empty() && message.metadata.get("trigger").is_none() {
                    task.history.push(heard(message, &task));
                }
                // Accepted and not walked yet, or taken down in between: it is under way.
                standing = (!turn.events.is_empty()).then(|| self.standing(&conversation, &turn.events));
                let said = standing.as_ref().map(|standing| standing.said.clone()).unwrap_or_default();
                if !said.is_empty() && at != last {
                    task.history.push(said_as(&task, said, turn.turn.0));
                }
                task.status.timestamp = Some(iso(turn.inbound.at));
            }
        }
        let superseded =
            turns.iter().skip(last + 1).any(|turn| task_of(turn).is_some_and(|other| other != id) && is_work(turn));
        match standing {
            Some(standing) => {
                let number = turns.get(last).map_or(0, |turn| turn.turn.0);
                settle(&mut task, standing, number);
                if superseded && task.status.state.waits() {
                    task.status.state = TaskState::Canceled;
                }
            }
            None => task.status.state = TaskState::Working,
        }
        if self.0.courses.runs(&self.name_of(id)) {
            task.status = Status { state: TaskState::Working, message: None, timestamp: task.status.timestamp.take() };
            task.artifacts.clear();
        }
        Some(Found { task, pushes })
    }

    pub(super) fn standing(&self, conversation: &Conversation, events: &[Event]) -> Standing {
        standing::look(self.0.assistant.project(), conversation, events, self.0.include_repair)
    }
}

/// Whether a turn is work on its task, and not a note about it.
fn is_work(turn: &StoredTurn) -> bool {
    marks(&turn.inbound.message).is_some_and(|marks| marks.get("push").is_none())
}

/// Puts what a turn came to into its task.
pub(super) fn settle(task: &mut Task, standing: Standing, turn: u64) {
    let Standing { state, mut said, data } = standing;
    task.artifacts.clear();
    if state == TaskState::Completed {
        let parts = vec![Part::Data(data.clone())];
        let result = Artifact { id: "result".into(), name: Some("result".into()), parts, ..Artifact::default() };
        task.artifacts.push(result);
    }
    said.push(Part::Data(data));
    task.status.state = state;
    task.status.message = Some(said_as(task, said, turn));
}

/// A message of ours about a task. Its id is the same whenever the task is read.
fn said_as(task: &Task, parts: Vec<Part>, turn: u64) -> Message {
    Message {
        id: format!("{}-{turn}", task.id.split('.').next().unwrap_or_default()),
        context_id: Some(task.context_id.clone()),
        task_id: Some(task.id.clone()),
        role: Role::Agent,
        parts,
        metadata: Map::new(),
    }
}

fn heard(message: &UserMessage, task: &Task) -> Message {
    let mut heard = Message::text(Role::User, message.message_id.as_str(), &*message.text);
    (heard.context_id, heard.task_id) = (Some(task.context_id.clone()), Some(task.id.clone()));
    heard
}

/// What a message carries to its conversation.
pub(super) fn marked(task: &str, message: &Message) -> Map<String, Json> {
    let mut own = Map::from_iter([("task_id".to_owned(), json!(task))]);
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
    // Only this channel says what stands there.
    metadata.shift_remove("trigger");
    metadata.insert(KEY.to_owned(), Json::Object(own));
    metadata
}

/// A time in the form of ISO 8601.
pub(super) fn iso(at: segue_engine::time::Timestamp) -> String {
    chrono::DateTime::from_timestamp_micros(at.as_micros())
        .map(|time| time.to_rfc3339_opts(chrono::SecondsFormat::Millis, true))
        .unwrap_or_default()
}

/// Shortens what was said before to what the caller wants.
pub(super) fn cut_history(task: &mut Task, wanted: Option<usize>) {
    let most = wanted.unwrap_or(usize::MAX).min(limits::A2A_HISTORY_SHOWN);
    task.history.drain(..task.history.len().saturating_sub(most));
}

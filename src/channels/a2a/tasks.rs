//! Tasks as the store knows them. A task's id holds its conversation, so that nothing has to be remembered to find it; a turn
//! belongs to the task that its message, or whatever else began it, names.

use indexmap::IndexMap;
use segue_engine::{
    conversation::{Conversation, Event, EventKind, UserMessage},
    ids::MessageId,
};
use serde_json::{Map, Value as Json, json};

use super::{
    A2aRequestError, A2aServer,
    push::Config,
    standing::{self, Standing},
};
use crate::{
    a2a::{
        codes,
        model::{Artifact, Message, Part, Role, Status, Task, TaskState},
    },
    limits,
    store::{StoreError, TurnEvents, Version},
};

/// The key in a message's metadata under which the protocol's names stand.
pub(super) const KEY: &str = "a2a";
/// The mark of the message with which a task begins: nothing of it stands before.
const FIRST: &str = "first";

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

/// What stands beside whatever began a turn.
fn marks_of(turn: &TurnEvents) -> Option<&Map<String, Json>> {
    turn.events.iter().find_map(|event| match &event.kind {
        EventKind::User(message) => marks(message),
        EventKind::External { trigger } => trigger.values.get(KEY)?.as_object(),
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
    marks_of(turn)?.get("task_id")?.as_str()
}

/// The task of a turn that a message of this id began.
pub(super) fn named_by<'a>(turn: &'a TurnEvents, message: &MessageId) -> Option<&'a str> {
    message_of(turn).filter(|own| own.message_id == *message).and_then(|_| task_of(turn))
}

/// A task, read from the store.
pub(super) struct Found {
    /// As the protocol has it.
    pub(super) task: Task,
    /// Where reports of it go, as far as it was stored.
    pub(super) pushes: Vec<Config>,
}

impl A2aServer {
    /// A task as the store knows it; one that runs is working. Turns are read back to its first; what was before is needed
    /// only for a task after which something else happened.
    pub(super) async fn found(&self, id: &str) -> Result<Found, A2aRequestError> {
        let context = context_of(id).ok_or_else(|| A2aRequestError::no_task(id))?;
        let turns = self.turns_since(id, context).await?;
        let found = match self.after(&turns, id, context).await? {
            Some(now) => self.in_turns(&turns, id, context, Some(now)),
            None => self.in_turns(&self.turns(context).await?, id, context, None),
        };
        found.ok_or_else(|| A2aRequestError::no_task(id))
    }

    /// All turns of a context, oldest first.
    pub(super) async fn turns(&self, context: &str) -> Result<Vec<TurnEvents>, A2aRequestError> {
        let mut turns = self.turns_before(context, None, usize::MAX).await?;
        turns.reverse();
        Ok(turns)
    }

    /// The newest turns of a context back to the one with which a task began, oldest first.
    async fn turns_since(&self, id: &str, context: &str) -> Result<Vec<TurnEvents>, A2aRequestError> {
        let mut turns: Vec<TurnEvents> = Vec::new();
        let begins = |turn: &TurnEvents| {
            marks_of(turn).is_some_and(|marks| marks.contains_key(FIRST)) && task_of(turn) == Some(id)
        };
        // Most tasks are short, and the newest is asked for most.
        let mut most = 1;
        while !turns.last().is_some_and(&begins) {
            most = (most * 2).min(limits::A2A_TURNS);
            let page = self.turns_before(context, turns.last().map(|turn| turn.version), most).await?;
            if page.is_empty() {
                break;
            }
            let first = page.iter().position(&begins).map_or(page.len(), |at| at + 1);
            turns.extend(page.into_iter().take(first));
        }
        turns.reverse();
        Ok(turns)
    }

    async fn turns_before(
        &self,
        context: &str,
        before: Option<Version>,
        most: usize,
    ) -> Result<Vec<TurnEvents>, A2aRequestError> {
        let id = self.conversation_of(context);
        self.0.assistant.store().latest_turns(&id, before, most).await.map_err(|error| unreadable(&error))
    }

    /// The conversation, where nothing but notes came after the latest turn of a task: then it is as that turn left it.
    async fn after(
        &self,
        turns: &[TurnEvents],
        id: &str,
        context: &str,
    ) -> Result<Option<Conversation>, A2aRequestError> {
        let Some(last) = turns.iter().rposition(|turn| task_of(turn) == Some(id) && is_work(turn)) else {
            return Ok(None);
        };
        let is_note = |turn: &TurnEvents| marks_of(turn).is_some_and(|marks| marks.contains_key("push"));
        if !turns.iter().skip(last + 1).all(is_note) {
            return Ok(None);
        }
        let now = self.0.assistant.conversation_at(&self.conversation_of(context)).await;
        let (conversation, version) = now.map_err(|error| unreadable(&error))?;
        // Another turn may have ended in between.
        Ok((turns.last().map(|turn| turn.version) == Some(version)).then_some(conversation))
    }

    /// The tasks of a context, the newest first. The turns are folded once, for all of them.
    pub(super) async fn of_context(&self, context: &str) -> Result<Vec<Found>, A2aRequestError> {
        let turns = self.turns(context).await?;
        // The latest turn of each, in the order of their first.
        let mut latest: IndexMap<&str, usize> = IndexMap::new();
        for (at, turn) in turns.iter().enumerate() {
            if let Some(id) = task_of(turn) {
                let known = latest.entry(id).or_insert(at);
                *known = if is_work(turn) { at } else { *known };
            }
        }
        let mut folded = Conversation::new(self.conversation_of(context));
        let mut found = Vec::with_capacity(latest.len());
        for (at, turn) in turns.iter().enumerate() {
            turn.events.iter().for_each(|event| folded.apply(event));
            let Some((order, id, _)) =
                task_of(turn).and_then(|id| latest.get_full(id)).filter(|(.., last)| **last == at)
            else {
                continue;
            };
            found.extend(self.in_turns(&turns, id, context, Some(folded.clone())).map(|task| (order, task)));
        }
        found.sort_unstable_by_key(|(order, _)| std::cmp::Reverse(*order));
        Ok(found.into_iter().map(|(_, task)| task).collect())
    }

    /// A task in turns of its context. `now` is the conversation after its latest one; without it, these are all turns.
    fn in_turns(&self, turns: &[TurnEvents], id: &str, context: &str, now: Option<Conversation>) -> Option<Found> {
        let last = turns.iter().rposition(|turn| task_of(turn) == Some(id) && is_work(turn))?;
        let mut folded = Conversation::new(self.conversation_of(context));
        let mut task = Task::new(id, context);
        let mut pushes = Vec::new();
        for (at, turn) in turns.iter().enumerate() {
            let own = task_of(turn) == Some(id);
            if own && let Some(config) = marks_of(turn).and_then(|marks| Config::kept(marks.get("push")?)) {
                pushes.retain(|known: &Config| known.id != config.id);
                if !config.url.is_empty() {
                    pushes.push(config);
                }
            }
            if at > last {
                continue;
            }
            if now.is_none() {
                turn.events.iter().for_each(|event| folded.apply(event));
            }
            if own && is_work(turn) {
                if let Some(message) = message_of(turn).filter(|message| !message.text.is_empty()) {
                    task.history.push(heard(message, &task));
                }
                // A task that went on was waiting.
                let said = if at == last { Vec::new() } else { standing::said(&turn.events, TaskState::InputRequired) };
                if !said.is_empty() {
                    task.history.push(said_as(&task, said, turn.turn.0));
                }
                task.status.timestamp = turn.events.first().map(|event| iso(event.at));
            }
        }
        let superseded =
            turns.iter().skip(last + 1).any(|turn| task_of(turn).is_some_and(|other| other != id) && is_work(turn));
        let latest = turns.get(last)?;
        settle(&mut task, self.standing(now.as_ref().unwrap_or(&folded), &latest.events), latest.turn.0);
        if superseded && task.status.state.is_interrupted() {
            task.status.state = TaskState::Canceled;
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
fn is_work(turn: &TurnEvents) -> bool {
    marks_of(turn).is_some_and(|marks| marks.get("push").is_none())
}

fn unreadable(error: &StoreError) -> A2aRequestError {
    tracing::error!(code = error.code(), "a task cannot be read: {error}");
    A2aRequestError::new(codes::INTERNAL_ERROR, "the task cannot be read now")
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
    if message.task_id.is_none() {
        own.insert(FIRST.to_owned(), json!(true));
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

//! Running tasks of this process and their updates: for callers who subscribe at the start, join later, or reconnect.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use indexmap::IndexMap;
use serde_json::Map;
use tokio::sync::watch;

use super::{A2aRequestError, task_result};
use crate::{
    a2a::model::{Message, Role, Status, StatusUpdate, Task, TaskState, Update},
    context::CallContext,
    conversation::{BotKind, DeliveryError, Receipt, ReplySink, TurnEvent},
    limits,
};

/// The running tasks, and the newest finished runs, at most [`limits::A2A_TASK_RUNS`] in total unless more are running. The key is that
/// of [`A2aServer::task_key`](super::A2aServer::task_key).
#[derive(Default)]
pub(super) struct TaskRuns(Mutex<IndexMap<String, Arc<TaskRun>>>);

/// One turn of a task.
pub(super) struct TaskRun {
    /// Distinguishes the event ids of this run from those of other runs.
    id: String,
    /// The conversation and the id of the message that started the run; empty if none did.
    message_key: String,
    updates: Mutex<TaskUpdates>,
    /// Changes with every update, to wake up subscribers.
    changed: watch::Sender<usize>,
}

#[derive(Default)]
struct TaskUpdates {
    updates: Vec<Update>,
    /// The task after the turn, once the run has finished.
    result: Option<Result<Task, A2aRequestError>>,
}

impl TaskRuns {
    fn all(&self) -> MutexGuard<'_, IndexMap<String, Arc<TaskRun>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Starts a run of a task; it replaces the previous run of the task.
    ///
    /// # Errors
    /// The run that the same message has started, if it is still running.
    pub(super) fn start(
        &self,
        task: &str,
        message_key: &str,
        updates: Vec<Update>,
    ) -> Result<Arc<TaskRun>, Arc<TaskRun>> {
        let run = Arc::new(TaskRun {
            id: uuid::Uuid::new_v4().simple().to_string(),
            message_key: message_key.to_owned(),
            updates: Mutex::new(TaskUpdates { updates, result: None }),
            changed: watch::Sender::new(0),
        });
        let mut all = self.all();
        let is_same = |running: &&Arc<TaskRun>| running.message_key == message_key && !running.is_finished();
        if let Some(running) = all.values().find(is_same).filter(|_| !message_key.is_empty()) {
            return Err(running.clone());
        }
        all.shift_remove(task);
        all.insert(task.to_owned(), run.clone());
        let surplus = all.len().saturating_sub(limits::A2A_TASK_RUNS);
        let oldest_finished: Vec<String> =
            all.iter().filter(|(_, run)| run.is_finished()).map(|(task, _)| task.clone()).take(surplus).collect();
        for task in oldest_finished {
            all.shift_remove(&task);
        }
        Ok(run)
    }
    /// Whether a task is running in this process.
    pub(super) fn is_running(&self, task: &str) -> bool {
        self.all().get(task).is_some_and(|run| !run.is_finished())
    }
    /// The newest run of a task, running or finished.
    pub(super) fn latest(&self, task: &str) -> Option<Arc<TaskRun>> {
        self.all().get(task).cloned()
    }
    /// The number of running tasks.
    pub(super) fn running_count(&self) -> usize {
        self.all().values().filter(|run| !run.is_finished()).count()
    }
}

impl TaskRun {
    fn updates(&self) -> MutexGuard<'_, TaskUpdates> {
        self.updates.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn is_finished(&self) -> bool {
        self.updates().result.is_some()
    }
    /// Publishes an update to all subscribers. After [`limits::A2A_UPDATES`] updates, further ones are dropped, except those of
    /// [`finish`](Self::finish).
    pub(super) fn publish(&self, update: Update) {
        let mut state = self.updates();
        if state.result.is_none() && state.updates.len() < limits::A2A_UPDATES {
            state.updates.push(update);
            let count = state.updates.len();
            drop(state);
            self.changed.send_replace(count);
        }
    }
    /// Finishes the run with its last updates and the task after the turn.
    pub(super) fn finish(&self, last: Vec<Update>, result: Result<Task, A2aRequestError>) {
        let mut state = self.updates();
        state.updates.extend(last);
        state.result = Some(result);
        drop(state);
        self.changed.send_modify(|count| *count += 1);
    }
    /// The task as the first update contains it; `None` if the first update contains no task.
    pub(super) fn initial_task(&self) -> Option<Task> {
        match self.updates().updates.first() {
            Some(Update::Task(task)) => Some(task.clone()),
            _ => None,
        }
    }
    /// Waits until the run has finished: the task after the turn. *Cancellation*: the run continues.
    pub(super) async fn wait_for_result(&self) -> Result<Task, A2aRequestError> {
        let mut changed = self.changed.subscribe();
        loop {
            if let Some(result) = self.updates().result.clone() {
                return result;
            }
            // This cannot fail: `self` owns the sender.
            let _ = changed.changed().await;
        }
    }
    /// The updates after the event with the id `last_event_id`; all updates if there is no id, or if it is not of this run.
    pub(super) fn subscribe(self: &Arc<Self>, last_event_id: Option<&str>) -> UpdateStream {
        let last = last_event_id.and_then(|id| id.strip_prefix(&self.id)?.strip_prefix('-')?.parse::<usize>().ok());
        UpdateStream {
            next: last.map_or(0, |last| last.saturating_add(1)),
            run: self.clone(),
            changed: self.changed.subscribe(),
        }
    }
    /// The event id of the update at this index.
    pub(super) fn event_id(&self, index: usize) -> String {
        format!("{}-{index}", self.id)
    }
}

/// The updates of a run, for one subscriber.
pub(super) struct UpdateStream {
    run: Arc<TaskRun>,
    /// The index of the next update.
    next: usize,
    changed: watch::Receiver<usize>,
}

impl UpdateStream {
    /// Waits for the next update, with its event id; `None` after the last one. If the run failed, the error follows the updates once.
    /// *Cancellation*: no update is lost.
    pub(super) async fn next(&mut self) -> Option<Result<(String, Update), A2aRequestError>> {
        loop {
            {
                let state = self.run.updates();
                if let Some(update) = state.updates.get(self.next) {
                    let index = self.next;
                    self.next += 1;
                    return Some(Ok((self.run.event_id(index), update.clone())));
                }
                match &state.result {
                    Some(Err(error)) if self.next != usize::MAX => {
                        self.next = usize::MAX;
                        return Some(Err(error.clone()));
                    }
                    Some(_) => return None,
                    None => {}
                }
            }
            let _ = self.changed.changed().await;
        }
    }
}

/// The sink of a task's turn. It publishes fillers and intermediate messages as status updates; the answer is not published here, but
/// with the end of the run.
pub(super) struct TaskSink {
    pub(super) run: Arc<TaskRun>,
    pub(super) task: String,
    pub(super) context: String,
}

#[async_trait]
impl ReplySink for TaskSink {
    fn wants_deltas(&self) -> bool {
        true
    }
    async fn send(&mut self, event: TurnEvent, _: &CallContext) -> Result<Receipt, DeliveryError> {
        let progress = match event {
            TurnEvent::Message { id, message, kind }
            | TurnEvent::MessageEnd { id, message, kind, interrupted: false } => {
                matches!(kind, BotKind::Filler | BotKind::Intermediate).then_some((id, message))
            }
            _ => None,
        };
        let receipt = if progress.is_some() { Receipt::Delivered } else { Receipt::Skipped };
        if let Some((id, reply)) = progress {
            let message = Message {
                id: id.to_string(),
                context_id: Some(self.context.clone()),
                task_id: Some(self.task.clone()),
                role: Role::Agent,
                parts: task_result::parts_of_reply(&reply),
                metadata: Map::new(),
            };
            self.run.publish(working_update(&self.task, &self.context, Some(message)));
        }
        Ok(receipt)
    }
}

/// A status update with the state `working`.
pub(super) fn working_update(task: &str, context: &str, message: Option<Message>) -> Update {
    Update::Status(StatusUpdate {
        task_id: task.to_owned(),
        context_id: context.to_owned(),
        status: Status { state: TaskState::Working, message, timestamp: None },
        last: false,
        metadata: Map::new(),
    })
}

//! Tasks that run in this process, and what was said of them: for whoever listens from the beginning, joins later, or comes back
//! after a connection broke.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use indexmap::IndexMap;
use serde_json::Map;
use tokio::sync::watch;

use super::{A2aRequestError, standing};
use crate::{
    a2a::model::{Message, Role, Status, StatusUpdate, Task, TaskState, Update},
    context::CallContext,
    conversation::{BotKind, DeliveryError, Receipt, ReplyEvent, ReplySink},
    limits,
};

/// All courses: those that run, and the newest that ended.
#[derive(Default)]
pub(super) struct Courses(Mutex<IndexMap<String, Arc<Course>>>);

/// One turn of a task.
pub(super) struct Course {
    /// Tells cursors of this course from others.
    name: String,
    /// Conversation and id of the message that began it; empty where none did.
    message: String,
    told: Mutex<Told>,
    /// Rings when something was told.
    bell: watch::Sender<usize>,
}

#[derive(Default)]
struct Told {
    updates: Vec<Update>,
    end: Option<Result<Task, A2aRequestError>>,
}

impl Courses {
    fn all(&self) -> MutexGuard<'_, IndexMap<String, Arc<Course>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// A new course of a task; the one before it is forgotten. A message begins one course: while that runs, it is the error.
    pub(super) fn begin(&self, task: &str, message: &str, updates: Vec<Update>) -> Result<Arc<Course>, Arc<Course>> {
        let course = Arc::new(Course {
            name: uuid::Uuid::new_v4().simple().to_string(),
            message: message.to_owned(),
            told: Mutex::new(Told { updates, end: None }),
            bell: watch::Sender::new(0),
        });
        let mut all = self.all();
        let is_its = |running: &&Arc<Course>| running.message == message && !running.has_ended();
        if let Some(running) = all.values().find(is_its).filter(|_| !message.is_empty()) {
            return Err(running.clone());
        }
        all.shift_remove(task);
        all.insert(task.to_owned(), course.clone());
        let surplus = all.len().saturating_sub(limits::A2A_TASK_RUNS);
        let ended: Vec<String> =
            all.iter().filter(|(_, course)| course.has_ended()).map(|(id, _)| id.clone()).take(surplus).collect();
        for id in ended {
            all.shift_remove(&id);
        }
        Ok(course)
    }
    /// Whether a task runs here now.
    pub(super) fn runs(&self, task: &str) -> bool {
        self.all().get(task).is_some_and(|course| !course.has_ended())
    }
    /// The newest course of a task.
    pub(super) fn of(&self, task: &str) -> Option<Arc<Course>> {
        self.all().get(task).cloned()
    }
    /// How many run.
    pub(super) fn running(&self) -> usize {
        self.all().values().filter(|course| !course.has_ended()).count()
    }
}

impl Course {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn has_ended(&self) -> bool {
        self.told().end.is_some()
    }
    /// Tells everybody who listens. Beyond [`limits::A2A_UPDATES`] only the end is told.
    pub(super) fn tell(&self, update: Update) {
        let mut told = self.told();
        if told.end.is_none() && told.updates.len() < limits::A2A_UPDATES {
            told.updates.push(update);
            let count = told.updates.len();
            drop(told);
            self.bell.send_replace(count);
        }
    }
    /// The end: what comes last, and how the task stands.
    pub(super) fn end(&self, last: Vec<Update>, task: Result<Task, A2aRequestError>) {
        let mut told = self.told();
        told.updates.extend(last);
        told.end = Some(task);
        drop(told);
        self.bell.send_modify(|count| *count += 1);
    }
    /// The task as it was told first.
    pub(super) fn task(&self) -> Option<Task> {
        match self.told().updates.first() {
            Some(Update::Task(task)) => Some(task.clone()),
            _ => None,
        }
    }
    /// Waits for the end. *Cancellation*: the course goes on.
    pub(super) async fn ended(&self) -> Result<Task, A2aRequestError> {
        let mut bell = self.bell.subscribe();
        loop {
            if let Some(end) = self.told().end.clone() {
                return end;
            }
            // The sender lives as long as the course, which is borrowed here.
            let _ = bell.changed().await;
        }
    }
    /// Hears a course from a cursor on; from its beginning without one of it.
    pub(super) fn listen(self: &Arc<Self>, cursor: Option<&str>) -> Listening {
        let own = cursor.and_then(|cursor| cursor.strip_prefix(&self.name)?.strip_prefix('-')?.parse::<usize>().ok());
        Listening { at: own.map_or(0, |at| at.saturating_add(1)), course: self.clone(), bell: self.bell.subscribe() }
    }
    /// The cursor of an update.
    pub(super) fn cursor(&self, at: usize) -> String {
        format!("{}-{at}", self.name)
    }
}

/// Somebody who hears a course.
pub(super) struct Listening {
    course: Arc<Course>,
    at: usize,
    bell: watch::Receiver<usize>,
}

impl Listening {
    /// What comes next, with its cursor; `None` after the end. *Cancellation*: nothing is lost.
    pub(super) async fn next(&mut self) -> Option<Result<(String, Update), A2aRequestError>> {
        loop {
            {
                let told = self.course.told();
                if let Some(update) = told.updates.get(self.at) {
                    let at = self.at;
                    self.at += 1;
                    return Some(Ok((self.course.cursor(at), update.clone())));
                }
                match &told.end {
                    // An end that was refused has nothing to show but that; it is told once.
                    Some(Err(refusal)) if self.at != usize::MAX => {
                        self.at = usize::MAX;
                        return Some(Err(refusal.clone()));
                    }
                    Some(_) => return None,
                    None => {}
                }
            }
            let _ = self.bell.changed().await;
        }
    }
}

/// Shows what is said to fill the time as states of the task; the answer itself comes with the end.
pub(super) struct Teller {
    pub(super) course: Arc<Course>,
    pub(super) task: String,
    pub(super) context: String,
}

impl ReplySink for Teller {
    fn wants_deltas(&self) -> bool {
        true
    }
    fn send<'a>(&'a mut self, piece: ReplyEvent, _: &'a CallContext) -> BoxFuture<'a, Result<Receipt, DeliveryError>> {
        let said = match piece {
            ReplyEvent::Message { id, message, kind } | ReplyEvent::End { id, message, kind, interrupted: false } => {
                matches!(kind, BotKind::Filler | BotKind::Intermediate).then_some((id, message))
            }
            _ => None,
        };
        // The answer goes with the end of the course, so that it is not told here.
        let receipt = if said.is_some() { Receipt::Delivered } else { Receipt::Skipped };
        if let Some((id, message)) = said {
            let said = Message {
                id: id.to_string(),
                context_id: Some(self.context.clone()),
                task_id: Some(self.task.clone()),
                role: Role::Agent,
                parts: standing::parts(&message),
                metadata: Map::new(),
            };
            self.course.tell(working(&self.task, &self.context, Some(said)));
        }
        Box::pin(std::future::ready(Ok(receipt)))
    }
}

/// The state of a task that is under way.
pub(super) fn working(task: &str, context: &str, message: Option<Message>) -> Update {
    Update::Status(StatusUpdate {
        task_id: task.to_owned(),
        context_id: context.to_owned(),
        status: Status { state: TaskState::Working, message, timestamp: None },
        last: false,
        metadata: Map::new(),
    })
}

//! From a message of another agent to a turn, and from the turn to the task.

use std::sync::Arc;

use segue_engine::{
    conversation::{EventKind, ExternalTrigger, TriggerAction},
    ids::{ConversationId, MessageId},
};
use serde_json::{Map, Value as Json, json};
use sha2::{Digest, Sha256};

use super::{
    A2aRequestError, A2aServer,
    course::{Course, Teller, working},
    push::Config,
    tasks::{self, context_of, iso, marked, settle},
};
use crate::{
    a2a::{
        codes,
        model::{ArtifactUpdate, Message, Part, Role, Status, StatusUpdate, Task, TaskState, Update},
    },
    channels::Arrival,
    context::CallContext,
    conversation::DiscardReplies,
    limits,
    runtime::TurnReport,
};

/// A message, and how its answer is wanted.
pub(super) struct Asked {
    /// The message.
    pub(super) message: Message,
    /// Where changes are reported.
    pub(super) push: Option<Config>,
}

/// A message that was taken.
pub(super) struct Begun {
    /// The task as it stands now.
    pub(super) task: Task,
    /// What comes.
    pub(super) course: Arc<Course>,
}

/// The names of one piece of work.
#[derive(Clone)]
struct Names {
    task: String,
    context: String,
    message: String,
    conversation: ConversationId,
}

impl A2aServer {
    /// Takes a message: from here on its turn goes on, whether anybody waits or not.
    pub(super) async fn begin(&self, asked: Asked) -> Result<Begun, A2aRequestError> {
        let Asked { message, push } = asked;
        let text = words(&message)?;
        for (name, value) in [("messageId", Some(&message.id)), ("contextId", message.context_id.as_ref())] {
            if value.is_some_and(|value| value.len() > limits::WIRE_ID / 2) {
                return Err(A2aRequestError::params(format!("`{name}` is too long")));
            }
        }
        if self.0.courses.running() >= limits::A2A_TASK_RUNS {
            return Err(A2aRequestError::new(codes::INTERNAL_ERROR, "too much is under way; try again later"));
        }
        if let (Some(config), Some(pushes)) = (&push, &self.0.pushes) {
            pushes.check(&config.url).await.map_err(A2aRequestError::params)?;
        } else if push.is_some() {
            return Err(A2aRequestError::new(
                codes::PUSH_NOTIFICATION_NOT_SUPPORTED,
                "changes are not reported by this agent",
            ));
        }
        let metadata = serde_json::to_string(&message.metadata).map_or(0, |json| json.len());
        if metadata > limits::METADATA {
            return Err(A2aRequestError::params(format!(
                "`metadata` has {metadata} bytes; {} are taken",
                limits::METADATA
            )));
        }
        let mut names = self.names(&message).await?;
        if let Some(course) = self.repeated(&names, message.task_id.is_some()).await? {
            return Ok(course);
        }
        if let Some(task) = self.accepted(&names).await? {
            // Another process, or this one before it was started anew, works on it: its task is shown, and no other.
            names.task = task;
        }
        let inbox = self.0.inbox.for_caller(self.1.id.as_ref());
        inbox.admits(&names.conversation).map_err(|error| A2aRequestError::overloaded(&error))?;
        let mut task = Task::new(&names.task, &names.context);
        task.status.timestamp = Some(iso(self.0.assistant.clock().now()));
        let heard = Message {
            context_id: Some(names.context.clone()),
            task_id: Some(names.task.clone()),
            ..Message::text(Role::User, names.message.as_str(), text.as_str())
        };
        task.history.push(heard);
        let key = format!("{}\n{}", names.conversation, names.message);
        let first = vec![Update::Task(task.clone()), working(&names.task, &names.context, None)];
        let course = match self.0.courses.begin(&self.name_of(&names.task), &key, first) {
            Ok(course) => course,
            Err(running) => return self.joined(running, push),
        };
        if let (Some(config), Some(pushes)) = (&push, &self.0.pushes) {
            pushes.add(&self.name_of(&names.task), config.clone());
        } else if let Some(pushes) = self.0.pushes.as_ref().filter(|_| message.task_id.is_none()) {
            pushes.nothing_stored(&self.name_of(&names.task));
        }
        let (this, own) = (self.clone(), course.clone());
        let metadata = marked(&names.task, &message);
        let has_push = push.is_some();
        self.0
            .assistant
            .background_tasks()
            .spawn(async move { this.walk(names, text, metadata, has_push, &own).await });
        task.status.state = TaskState::Working;
        Ok(Begun { task, course })
    }

    /// A message that comes again while its task runs: the caller hears that task.
    fn joined(&self, course: Arc<Course>, push: Option<Config>) -> Result<Begun, A2aRequestError> {
        // It is the first that a course tells.
        let task =
            course.task().ok_or_else(|| A2aRequestError::new(codes::INTERNAL_ERROR, "send the message again later"))?;
        let task = Task { status: Status { state: TaskState::Working, ..task.status.clone() }, ..task };
        if let (Some(config), Some(pushes)) = (push, &self.0.pushes) {
            pushes.add(&self.name_of(&task.id), config);
            let (this, id) = (self.clone(), task.id.clone());
            self.0.assistant.background_tasks().spawn(async move { this.keep_pushes(&id).await });
        }
        Ok(Begun { task, course })
    }

    /// The task of a message that was accepted and is not answered yet.
    async fn accepted(&self, names: &Names) -> Result<Option<String>, A2aRequestError> {
        let open = self.0.assistant.store().unfinished_turns(&names.conversation).await;
        let open = open.map_err(|error| A2aRequestError::new(codes::INTERNAL_ERROR, error.to_string()))?;
        let own =
            open.iter().map(|open| &open.inbound.message).find(|message| message.message_id.as_str() == names.message);
        Ok(own.and_then(|message| Some(tasks::marks(message)?.get("task_id")?.as_str()?.to_owned())))
    }

    /// The names that a message gives, or new ones. A task must be open to take a message.
    async fn names(&self, message: &Message) -> Result<Names, A2aRequestError> {
        if message.id.trim().is_empty() {
            return Err(A2aRequestError::params("a message needs a `messageId`"));
        }
        let (task, context) = match &message.task_id {
            None => {
                let context = message.context_id.clone().filter(|id| !id.trim().is_empty());
                let context = context.unwrap_or_else(|| self.context_for(&message.id));
                (tasks::new_id(&context), context)
            }
            Some(id) => {
                let context = context_of(id).ok_or_else(|| A2aRequestError::no_task(id))?;
                if message.context_id.as_ref().is_some_and(|given| given != context) {
                    return Err(A2aRequestError::params("the task belongs to another context"));
                }
                (id.clone(), context.to_owned())
            }
        };
        let conversation = self.conversation_of(&context);
        Ok(Names { task, context, message: message.id.clone(), conversation })
    }

    /// A new context. Where the message has an id that nobody happens to use again, it is made of that: a message that is sent once
    /// more finds the context that it began.
    fn context_for(&self, message: &str) -> String {
        if message.len() < limits::A2A_MESSAGE_KEY {
            return uuid::Uuid::new_v4().to_string();
        }
        let hash = Sha256::digest(format!("{}\n{message}", self.prefix()));
        let bytes = hash.first_chunk().copied().unwrap_or_default();
        uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
    }

    /// A message that came before is answered as before; one for a task that takes none is refused.
    async fn repeated(&self, names: &Names, is_named: bool) -> Result<Option<Begun>, A2aRequestError> {
        let store = self.0.assistant.store();
        let id = MessageId::from(names.message.as_str());
        let answered = store.replies_to_message(&names.conversation, &id).await;
        let known = answered.map_err(|error| A2aRequestError::new(codes::INTERNAL_ERROR, error.to_string()))?.is_some();
        if known {
            let turns = self.turns(&names.context).await?;
            let of = turns.iter().find_map(|turn| tasks::named_by(turn, &id));
            let task = self.found(of.unwrap_or(&names.task)).await?.task;
            let course = self.0.courses.of(&self.name_of(&task.id)).unwrap_or_else(|| {
                let (Ok(course) | Err(course)) = self.0.courses.begin(&self.name_of(&task.id), "", Vec::new());
                course.end(vec![Update::Task(task.clone())], Ok(task.clone()));
                course
            });
            return Ok(Some(Begun { task, course }));
        }
        if is_named && !self.0.courses.runs(&self.name_of(&names.task)) && !self.is_open(names).await? {
            let words = "the task is over, or another one took its place; send the message without its id";
            return Err(A2aRequestError::new(codes::UNSUPPORTED_OPERATION, words));
        }
        Ok(None)
    }

    /// Whether a task waits for a message. The newest task of a conversation is known without reading its past.
    async fn is_open(&self, names: &Names) -> Result<bool, A2aRequestError> {
        let read = self.0.assistant.conversation(&names.conversation).await;
        let conversation = read.map_err(|error| A2aRequestError::new(codes::INTERNAL_ERROR, error.to_string()))?;
        let newest =
            conversation.latest_message.as_ref().and_then(|message| tasks::marks(message)?.get("task_id")?.as_str());
        if newest == Some(&names.task) && !conversation.stack.is_empty() {
            return Ok(true);
        }
        Ok(self.found(&names.task).await?.task.status.state.is_interrupted())
    }

    async fn walk(
        &self,
        names: Names,
        text: String,
        metadata: Map<String, Json>,
        has_push: bool,
        course: &Arc<Course>,
    ) {
        let arrival = Arrival {
            sender: names.conversation.to_string(),
            text,
            message_id: names.message.clone(),
            input_channel: None,
            metadata,
        };
        let teller = Teller { course: course.clone(), task: names.task.clone(), context: names.context.clone() };
        let received = self.0.inbox.for_caller(self.1.id.as_ref()).receive(arrival, Box::new(teller)).await;
        let came = match received {
            Ok(report) => self.came(&names, &report).await,
            Err(error) if error.retry_after().is_some() => Err(A2aRequestError::overloaded(&error)),
            Err(error) => {
                let code = error.code();
                tracing::error!(conversation = %names.conversation, channel = super::NAME, code, "{error}");
                Err(A2aRequestError::new(
                    codes::INTERNAL_ERROR,
                    format!("something went wrong; send it again [{code}]"),
                ))
            }
        };
        let last = came.as_ref().map(last_updates).unwrap_or_default();
        course.end(last, came.clone());
        if has_push {
            self.keep_pushes(&names.task).await;
        }
        if let Ok(task) = &came {
            self.report(task).await;
        }
    }

    /// The task after its turn.
    async fn came(&self, names: &Names, report: &TurnReport) -> Result<Task, A2aRequestError> {
        let internal = |error: crate::store::StoreError| A2aRequestError::new(codes::INTERNAL_ERROR, error.to_string());
        let conversation = self.0.assistant.conversation(&names.conversation).await.map_err(internal)?;
        let own = conversation.latest_message.as_ref().is_some_and(|last| last.message_id.as_str() == names.message);
        if report.is_duplicate || !own {
            return self.found(&names.task).await.map(|found| found.task);
        }
        let events =
            self.0.assistant.store().latest_events(&names.conversation, limits::A2A_EVENTS).await.map_err(internal)?;
        let from = events.iter().rposition(|event| matches!(&event.kind, EventKind::User(_))).unwrap_or_default();
        let events = events.get(from..).unwrap_or_default();
        let mut task = Task::new(&names.task, &names.context);
        settle(&mut task, self.standing(&conversation, events), report.turn.0);
        task.status.timestamp = Some(iso(self.0.assistant.clock().now()));
        if let Some(message) = &conversation.latest_message {
            let mut heard = Message::text(Role::User, names.message.as_str(), &*message.text);
            (heard.context_id, heard.task_id) = (Some(task.context_id.clone()), Some(task.id.clone()));
            task.history.push(heard);
        }
        Ok(task)
    }

    /// Waits for the end of a course, as long as a caller may.
    pub(super) async fn waited(&self, begun: Begun) -> Result<Task, A2aRequestError> {
        let Some(limit) = self.0.task_timeout else { return begun.course.ended().await };
        let cx = CallContext::new(self.0.assistant.clock().clone(), limit);
        // It goes on; the caller can ask for it.
        cx.wait(begun.course.ended()).await.unwrap_or(Ok(begun.task))
    }

    /// Stops a task: its flow ends as if the user had stopped it.
    pub(super) async fn cancel(&self, id: &str) -> Result<Task, A2aRequestError> {
        let not = |words: &str| A2aRequestError::new(codes::TASK_NOT_CANCELABLE, words);
        let mut found = self.found(id).await?;
        if let Some(course) = self.0.courses.of(&self.name_of(id)).filter(|_| self.0.courses.runs(&self.name_of(id))) {
            // A turn ends by itself, within its limits; then it is stopped.
            course.ended().await?;
            found = self.found(id).await?;
        }
        if found.task.status.state.is_terminal() {
            return Err(not("the task is over"));
        }
        let values = Map::from_iter([(tasks::KEY.to_owned(), json!({"task_id": id}))]);
        let what = TriggerAction::Cancel { reason: "the caller stopped the task".to_owned() };
        let trigger = ExternalTrigger { action: what, values, reminder: None };
        let conversation = self.conversation_of(&found.task.context_id);
        let stopped =
            self.0.assistant.trigger(conversation, trigger, MessageId::from(""), Box::new(DiscardReplies)).await;
        stopped.map_err(|error| {
            A2aRequestError::new(codes::INTERNAL_ERROR, format!("it cannot be stopped now [{}]", error.code()))
        })?;
        let task = self.found(id).await?.task;
        if !task.status.state.is_terminal() {
            return Err(not("nothing is under way that could be stopped"));
        }
        self.report(&task).await;
        Ok(task)
    }
}

/// The words of a message; there must be some.
fn words(message: &Message) -> Result<String, A2aRequestError> {
    let texts = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.trim()),
        Part::Data(_) | Part::File(_) => None,
    });
    let text = texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n");
    if text.is_empty() {
        return Err(A2aRequestError::new(codes::CONTENT_TYPE_NOT_SUPPORTED, "a message needs a part with text"));
    }
    Ok(text)
}

/// What a stream ends with: what was made, then the state.
fn last_updates(task: &Task) -> Vec<Update> {
    let made = task.artifacts.iter().map(|artifact| {
        Update::Artifact(ArtifactUpdate {
            task_id: task.id.clone(),
            context_id: task.context_id.clone(),
            artifact: artifact.clone(),
            append: false,
            last_chunk: true,
        })
    });
    let state = Update::Status(StatusUpdate {
        task_id: task.id.clone(),
        context_id: task.context_id.clone(),
        status: task.status.clone(),
        last: true,
        metadata: Map::new(),
    });
    made.chain([state]).collect()
}

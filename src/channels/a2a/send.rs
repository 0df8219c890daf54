//! The operations that change a task: a message of another agent starts a turn, whose result is the task; and cancellation.

use std::sync::Arc;

use segue_engine::{
    conversation::{EventKind, ExternalTrigger, TriggerAction},
    ids::{ConversationId, MessageId},
};
use serde_json::{Map, Value as Json, json};
use sha2::{Digest, Sha256};

use super::{
    A2aRequestError, A2aServer,
    push::{self, PushConfig},
    task_run::{TaskRun, TaskSink, working_update},
    tasks::{self, apply_result, context_of, message_metadata, to_iso8601},
};
use crate::{
    a2a::{
        codes,
        model::{ArtifactUpdate, Message, Part, Role, Status, StatusUpdate, Task, TaskState, Update},
    },
    context::CallContext,
    conversation::DiscardReplies,
    limits,
    runtime::{IncomingMessage, TurnReport},
};

/// The parameters of a request that sends a message.
pub(super) struct SendParams {
    /// The message.
    pub(super) message: Message,
    /// The push notification setting for the task, if the request contains one.
    pub(super) push_config: Option<PushConfig>,
}

/// The task of an accepted message.
pub(super) struct StartedTask {
    /// The task at its start.
    pub(super) task: Task,
    /// Its updates and its result.
    pub(super) run: Arc<TaskRun>,
}

/// The ids of a message and of what it belongs to.
#[derive(Clone)]
struct TaskIds {
    task: String,
    context: String,
    message: String,
    conversation: ConversationId,
}

impl A2aServer {
    /// Starts the turn of a message in the background. It continues even if the caller disconnects. A repeated message starts no turn: the
    /// task of the first one is returned.
    ///
    /// # Errors
    /// The message is invalid or was not accepted.
    pub(super) async fn start_task(&self, params: SendParams) -> Result<StartedTask, A2aRequestError> {
        let SendParams { message, push_config } = params;
        let text = message_text(&message)?;
        for (name, value) in [("messageId", Some(&message.id)), ("contextId", message.context_id.as_ref())] {
            if value.is_some_and(|value| value.len() > limits::WIRE_ID / 2) {
                return Err(A2aRequestError::invalid_params(format!("`{name}` is too long")));
            }
        }
        if self.0.task_runs.running_count() >= limits::A2A_TASK_RUNS {
            return Err(A2aRequestError::internal("too many tasks are running; try again later"));
        }
        match (&push_config, &self.0.push) {
            (Some(config), Some(push)) => push.check_url(&config.url).await.map_err(A2aRequestError::invalid_params)?,
            (Some(_), None) => return Err(push::not_supported()),
            (None, _) => {}
        }
        let metadata = serde_json::to_string(&message.metadata).map_or(0, |json| json.len());
        if metadata > limits::METADATA {
            let message = format!("`metadata` has {metadata} bytes; this agent accepts {}", limits::METADATA);
            return Err(A2aRequestError::invalid_params(message));
        }
        let mut ids = self.task_ids(&message)?;
        if let Some(task) = self.task_of_repeated_message(&ids).await? {
            return Ok(task);
        }
        if message.task_id.is_some() {
            self.check_task_accepts_messages(&ids).await?;
        }
        if let Some(task) = self.task_of_unfinished_turn(&ids).await? {
            // The message was accepted by another process, or by this one before a restart: it belongs to the task of that turn.
            ids.task = task;
        }
        let inbox = self.0.inbox.for_caller(self.1.id.as_ref());
        inbox.check_admission(&ids.conversation).map_err(|error| A2aRequestError::not_accepted(&error))?;
        let mut task = Task::new(&ids.task, &ids.context);
        task.status.timestamp = Some(to_iso8601(self.0.assistant.clock().now()));
        let user_message = Message {
            context_id: Some(ids.context.clone()),
            task_id: Some(ids.task.clone()),
            ..Message::text(Role::User, ids.message.as_str(), text.as_str())
        };
        task.history.push(user_message);
        let message_key = format!("{}\n{}", ids.conversation, ids.message);
        let first = vec![Update::Task(task.clone()), working_update(&ids.task, &ids.context, None)];
        let run = match self.0.task_runs.start(&self.task_key(&ids.task), &message_key, first) {
            Ok(run) => run,
            Err(running) => return self.join_running_task(running, push_config),
        };
        let has_push_config = push_config.is_some();
        match (push_config, &self.0.push) {
            (Some(config), Some(push)) => push.add(&self.task_key(&ids.task), config),
            (None, Some(push)) if message.task_id.is_none() => push.add_new_task(&self.task_key(&ids.task)),
            _ => {}
        }
        let (this, own_run) = (self.clone(), run.clone());
        let metadata = message_metadata(&ids.task, &message);
        self.0
            .assistant
            .background_tasks()
            .spawn(async move { this.run_task(ids, text, metadata, has_push_config, &own_run).await });
        task.status.state = TaskState::Working;
        Ok(StartedTask { task, run })
    }

    /// The running task of a message that is sent again.
    fn join_running_task(
        &self,
        run: Arc<TaskRun>,
        push_config: Option<PushConfig>,
    ) -> Result<StartedTask, A2aRequestError> {
        let task = run.initial_task().ok_or_else(|| A2aRequestError::internal("send the message again later"))?;
        let task = Task { status: Status { state: TaskState::Working, ..task.status.clone() }, ..task };
        if let (Some(config), Some(push)) = (push_config, &self.0.push) {
            push.add(&self.task_key(&task.id), config);
            let (this, id) = (self.clone(), task.id.clone());
            self.0.assistant.background_tasks().spawn(async move { this.save_push_configs(&id).await });
        }
        Ok(StartedTask { task, run })
    }

    /// The task of a message that was accepted earlier and whose turn has not finished.
    async fn task_of_unfinished_turn(&self, ids: &TaskIds) -> Result<Option<String>, A2aRequestError> {
        let turns = self.0.assistant.store().unfinished_turns(&ids.conversation).await;
        let turns = turns.map_err(|error| A2aRequestError::internal(error.to_string()))?;
        let message =
            turns.iter().map(|turn| &turn.inbound.message).find(|message| message.message_id.as_str() == ids.message);
        Ok(message.and_then(|message| Some(tasks::a2a_metadata(message)?.get("task_id")?.as_str()?.to_owned())))
    }

    /// The ids in a message; new ones for those that it does not contain.
    fn task_ids(&self, message: &Message) -> Result<TaskIds, A2aRequestError> {
        if message.id.trim().is_empty() {
            return Err(A2aRequestError::invalid_params("a message needs a `messageId`"));
        }
        let (task, context) = match &message.task_id {
            None => {
                let context = message.context_id.clone().filter(|id| !id.trim().is_empty());
                let context = context.unwrap_or_else(|| self.new_context(&message.id));
                (tasks::new_id(&context), context)
            }
            Some(id) => {
                let context = context_of(id).ok_or_else(|| A2aRequestError::task_not_found(id))?;
                if message.context_id.as_ref().is_some_and(|given| given != context) {
                    return Err(A2aRequestError::invalid_params("the task belongs to another context"));
                }
                (id.clone(), context.to_owned())
            }
        };
        let conversation = self.conversation_id(&context);
        Ok(TaskIds { task, context, message: message.id.clone(), conversation })
    }

    /// The id of a new context. If the id of the message is long enough to be unique, the context is derived from it, so that a repeated
    /// message gets the context of the first one.
    fn new_context(&self, message: &str) -> String {
        if message.len() < limits::A2A_MESSAGE_KEY {
            return uuid::Uuid::new_v4().to_string();
        }
        let hash = Sha256::digest(format!("{}\n{message}", self.prefix()));
        let bytes = hash.first_chunk().copied().unwrap_or_default();
        uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
    }

    /// The task of a message that has been answered before, if it has.
    async fn task_of_repeated_message(&self, ids: &TaskIds) -> Result<Option<StartedTask>, A2aRequestError> {
        let store = self.0.assistant.store();
        let id = MessageId::from(ids.message.as_str());
        let replies = store.replies_to_message(&ids.conversation, &id).await;
        if replies.map_err(|error| A2aRequestError::internal(error.to_string()))?.is_none() {
            return Ok(None);
        }
        let turns = self.turns(&ids.context).await?;
        let task_id = turns.iter().find_map(|turn| tasks::task_of_message(turn, &id));
        let task = self.read_task(task_id.unwrap_or(&ids.task)).await?.task;
        let key = self.task_key(&task.id);
        let run = self.0.task_runs.latest(&key).unwrap_or_else(|| {
            let (Ok(run) | Err(run)) = self.0.task_runs.start(&key, "", Vec::new());
            run.finish(vec![Update::Task(task.clone())], Ok(task.clone()));
            run
        });
        Ok(Some(StartedTask { task, run }))
    }

    /// Checks that an existing task is running or waits for input.
    async fn check_task_accepts_messages(&self, ids: &TaskIds) -> Result<(), A2aRequestError> {
        if self.0.task_runs.is_running(&self.task_key(&ids.task)) || self.is_waiting(ids).await? {
            return Ok(());
        }
        let message = "the task has ended or was replaced by another one; send the message without its id";
        Err(A2aRequestError::new(codes::UNSUPPORTED_OPERATION, message))
    }

    /// Whether a task waits for input. For the newest task of a conversation, the snapshot answers this without reading the turns.
    async fn is_waiting(&self, ids: &TaskIds) -> Result<bool, A2aRequestError> {
        let conversation = self.0.assistant.conversation(&ids.conversation).await;
        let conversation = conversation.map_err(|error| A2aRequestError::internal(error.to_string()))?;
        let newest = conversation
            .latest_message
            .as_ref()
            .and_then(|message| tasks::a2a_metadata(message)?.get("task_id")?.as_str());
        if newest == Some(&ids.task) && !conversation.stack.is_empty() {
            return Ok(true);
        }
        Ok(self.read_task(&ids.task).await?.task.status.state.is_interrupted())
    }

    /// Runs the turn of a message, finishes `run`, and sends push notifications.
    async fn run_task(
        &self,
        ids: TaskIds,
        text: String,
        metadata: Map<String, Json>,
        has_push_config: bool,
        run: &Arc<TaskRun>,
    ) {
        let message = IncomingMessage::new(ids.conversation.clone(), text);
        let message = message.message_id(ids.message.clone()).metadata(metadata);
        let sink = TaskSink { run: run.clone(), task: ids.task.clone(), context: ids.context.clone() };
        let received = self.0.inbox.for_caller(self.1.id.as_ref()).receive(message, Box::new(sink)).await;
        let result = match received {
            Ok(report) => self.task_after_turn(&ids, &report).await,
            Err(error) if error.retry_after().is_some() => Err(A2aRequestError::not_accepted(&error)),
            Err(error) => {
                let code = error.code();
                tracing::error!(conversation = %ids.conversation, channel = super::NAME, code, "{error}");
                let advice = error.advice().replace("`message_id`", "`messageId`");
                Err(A2aRequestError::internal(format!("an internal error occurred: {advice} [{code}]")))
            }
        };
        let last = result.as_ref().map(last_updates).unwrap_or_default();
        run.finish(last, result.clone());
        if has_push_config {
            self.save_push_configs(&ids.task).await;
        }
        if let Ok(task) = &result {
            self.notify(task).await;
        }
    }

    /// The task after a turn.
    async fn task_after_turn(&self, ids: &TaskIds, report: &TurnReport) -> Result<Task, A2aRequestError> {
        let internal = |error: crate::store::StoreError| A2aRequestError::internal(error.to_string());
        let conversation = self.0.assistant.conversation(&ids.conversation).await.map_err(internal)?;
        let is_latest =
            conversation.latest_message.as_ref().is_some_and(|latest| latest.message_id.as_str() == ids.message);
        if report.is_duplicate || !is_latest {
            // The run of this message counts as running until its result is there.
            return self.read_task_after_its_turn(&ids.task).await.map(|stored| stored.task);
        }
        let events =
            self.0.assistant.store().latest_events(&ids.conversation, limits::A2A_EVENTS).await.map_err(internal)?;
        let start = events.iter().rposition(|event| matches!(&event.kind, EventKind::User(_))).unwrap_or_default();
        let events = events.get(start..).unwrap_or_default();
        let mut task = Task::new(&ids.task, &ids.context);
        apply_result(&mut task, self.task_result(&conversation, events), report.turn.0);
        task.status.timestamp = Some(to_iso8601(self.0.assistant.clock().now()));
        if let Some(message) = &conversation.latest_message {
            task.history.push(tasks::history_message(message, &task));
        }
        Ok(task)
    }

    /// Waits for the result of a task, at most for the configured `task_timeout_seconds`; then the task is still `working`, and the caller
    /// can poll it. *Cancellation*: the task continues.
    pub(super) async fn wait_for_result(&self, started: StartedTask) -> Result<Task, A2aRequestError> {
        let Some(limit) = self.0.task_timeout else { return started.run.wait_for_result().await };
        let cx = CallContext::new(self.0.assistant.clock().clone(), limit);
        cx.wait(started.run.wait_for_result()).await.unwrap_or(Ok(started.task))
    }

    /// Cancels a task: its flow ends as if the user had cancelled it. A running turn is finished first.
    ///
    /// # Errors
    /// There is no such task, it has ended, or nothing can be cancelled.
    pub(super) async fn cancel(&self, id: &str) -> Result<Task, A2aRequestError> {
        let not_cancelable = |message: &str| A2aRequestError::new(codes::TASK_NOT_CANCELABLE, message);
        let mut stored = self.read_task(id).await?;
        let key = self.task_key(id);
        if let Some(run) = self.0.task_runs.latest(&key).filter(|_| self.0.task_runs.is_running(&key)) {
            run.wait_for_result().await?;
            stored = self.read_task(id).await?;
        }
        if stored.task.status.state.is_terminal() {
            return Err(not_cancelable("the task has ended"));
        }
        let values = Map::from_iter([(tasks::METADATA_KEY.to_owned(), json!({"task_id": id}))]);
        let action = TriggerAction::Cancel { reason: "the caller cancelled the task".to_owned() };
        let trigger = ExternalTrigger { action, values, reminder: None };
        let conversation = self.conversation_id(&stored.task.context_id);
        let cancelled =
            self.0.assistant.trigger(conversation, trigger, MessageId::from(""), Box::new(DiscardReplies)).await;
        cancelled.map_err(|error| {
            A2aRequestError::internal(format!("the task cannot be cancelled at present [{}]", error.code()))
        })?;
        let task = self.read_task(id).await?.task;
        if !task.status.state.is_terminal() {
            return Err(not_cancelable("nothing is running that can be cancelled"));
        }
        self.notify(&task).await;
        Ok(task)
    }
}

/// The text parts of a message.
///
/// # Errors
/// The message contains no text.
fn message_text(message: &Message) -> Result<String, A2aRequestError> {
    let texts = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.trim()),
        Part::Data(_) | Part::File(_) => None,
    });
    let text = texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n");
    if text.is_empty() {
        return Err(A2aRequestError::new(codes::CONTENT_TYPE_NOT_SUPPORTED, "a message needs a text part"));
    }
    Ok(text)
}

/// The last updates of a stream: the artifacts of the task, then its state.
fn last_updates(task: &Task) -> Vec<Update> {
    let artifacts = task.artifacts.iter().map(|artifact| {
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
    artifacts.chain([state]).collect()
}

//! The operations of A2A, which both bindings share.

use serde_json::{Value as Json, json};

use super::{
    A2aRequestError, A2aServer,
    push::PushConfig,
    send::SendParams,
    stream::UpdateSource,
    tasks::{context_of, truncate_history},
};
use crate::{
    a2a::{
        A2aWireFormat, Operation, codes, decode, encode,
        model::{Task, Update},
    },
    limits,
};

/// A request for one operation, from either binding.
pub(super) struct OperationRequest {
    pub(super) operation: Operation,
    pub(super) format: A2aWireFormat,
    /// The id of the task, if the operation is about one.
    pub(super) task: Option<String>,
    /// The id of the push notification setting, if the operation is about one.
    pub(super) push_config: Option<String>,
    /// All parameters.
    pub(super) params: Json,
    /// The `Last-Event-ID` of a client that resumes a stream.
    pub(super) last_event_id: Option<String>,
}

impl OperationRequest {
    /// A request whose ids are in its parameters, as in JSON-RPC.
    pub(super) fn from_params(
        operation: Operation,
        format: A2aWireFormat,
        params: Json,
        last_event_id: Option<&str>,
    ) -> Self {
        let text =
            |key: &str| params.get(key).and_then(Json::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
        let is_push_config =
            matches!(operation, Operation::SetPush | Operation::GetPush | Operation::ListPush | Operation::DeletePush);
        // In the push notification operations, `id` is the task in 0.3, and the setting in 1.0.
        let (task, push_config) = match (is_push_config, format) {
            (false, _) => (text("id"), None),
            (true, A2aWireFormat::ProtoJsonV1_0) => (text("taskId"), text("id")),
            (true, _) => (text("taskId").or_else(|| text("id")), text("pushNotificationConfigId")),
        };
        Self { operation, format, task, push_config, last_event_id: last_event_id.map(str::to_owned), params }
    }

    fn task_id(&self) -> Result<&str, A2aRequestError> {
        self.task.as_deref().ok_or_else(|| A2aRequestError::invalid_params("the id of the task is missing"))
    }

    /// The parameters of an operation that sends a message.
    fn send_params(&self) -> Result<SendParams, A2aRequestError> {
        let json = self.params.get("message").ok_or_else(|| A2aRequestError::invalid_params("`message` is missing"))?;
        let message = decode::message(json, self.format).map_err(A2aRequestError::invalid_params)?;
        if let Some(id) = message.task_id.as_deref().filter(|id| context_of(id).is_none()) {
            return Err(A2aRequestError::task_not_found(id));
        }
        let configuration = self.params.get("configuration").unwrap_or(&Json::Null);
        let push_config = ["taskPushNotificationConfig", "pushNotificationConfig", "pushNotification"]
            .into_iter()
            .find_map(|key| configuration.get(key))
            .filter(|config| config.is_object());
        let push_config = push_config.map(|json| PushConfig::from_json(json, self.format.version())).transpose()?;
        Ok(SendParams { message, push_config })
    }
}

/// The response of an operation.
pub(super) enum OperationResponse {
    /// One JSON value.
    Json(Json),
    /// A stream of updates.
    Stream(UpdateSource),
}

impl A2aServer {
    /// Performs an operation.
    pub(super) async fn perform(&self, request: OperationRequest) -> Result<OperationResponse, A2aRequestError> {
        let format = request.format;
        let task_response = |mut task: Task| {
            truncate_history(&mut task, history_length(&request.params));
            OperationResponse::Json(encode::task(&task, format))
        };
        match request.operation {
            Operation::Send => {
                let is_blocking = is_blocking(&request.params);
                let history_length = history_length(request.params.get("configuration").unwrap_or(&Json::Null));
                let started = self.start_task(request.send_params()?).await?;
                let mut task = if is_blocking { self.wait_for_result(started).await? } else { started.task };
                truncate_history(&mut task, history_length);
                Ok(OperationResponse::Json(encode::update(&Update::Task(task), format)))
            }
            Operation::Stream => {
                let started = self.start_task(request.send_params()?).await?;
                Ok(OperationResponse::Stream(UpdateSource::Run(started.run.subscribe(None))))
            }
            Operation::Get => Ok(task_response(self.read_task(request.task_id()?).await?.task)),
            Operation::Cancel => Ok(task_response(self.cancel(request.task_id()?).await?)),
            Operation::Subscribe => self.subscribe(request.task_id()?, request.last_event_id.as_deref(), format).await,
            Operation::List => self.list(&request.params).await,
            Operation::SetPush => {
                let id = request.task_id()?;
                let json = request.params.pointer("/config/pushNotificationConfig");
                let json = json.or_else(|| request.params.get("pushNotificationConfig")).unwrap_or(&request.params);
                let config = PushConfig::from_json(json, format.version())?;
                self.set_push_config(id, config.clone()).await?;
                Ok(OperationResponse::Json(config.to_json(id, format)))
            }
            Operation::GetPush => {
                let id = request.task_id()?;
                let configs = self.push_configs(id).await?;
                let config =
                    configs.iter().find(|config| request.push_config.as_ref().is_none_or(|id| config.id == *id));
                let config = config.ok_or_else(|| {
                    A2aRequestError::new(codes::TASK_NOT_FOUND, "the task has no such push notification setting")
                })?;
                Ok(OperationResponse::Json(config.to_json(id, format)))
            }
            Operation::ListPush => {
                let id = request.task_id()?;
                let configs = self.push_configs(id).await?;
                let configs: Vec<Json> = configs.iter().map(|config| config.to_json(id, format)).collect();
                Ok(OperationResponse::Json(if format == A2aWireFormat::JsonRpcV0_3 {
                    json!(configs)
                } else {
                    json!({"configs": configs})
                }))
            }
            Operation::DeletePush => {
                let config = request.push_config.as_deref().ok_or_else(|| {
                    A2aRequestError::invalid_params("the id of the push notification setting is missing")
                })?;
                self.set_push_config(request.task_id()?, PushConfig::removed(config)).await?;
                Ok(OperationResponse::Json(if format == A2aWireFormat::JsonRpcV0_3 { Json::Null } else { json!({}) }))
            }
            Operation::ExtendedCard => Err(A2aRequestError::new(
                codes::EXTENDED_AGENT_CARD_NOT_CONFIGURED,
                "this agent has no card except the public one",
            )),
        }
    }

    /// Subscribes to a task: to the updates of its run if it is running, or if the client resumes the stream of a finished run; otherwise
    /// the stream contains the stored task.
    async fn subscribe(
        &self,
        id: &str,
        last_event_id: Option<&str>,
        format: A2aWireFormat,
    ) -> Result<OperationResponse, A2aRequestError> {
        // If this process has a run of the task, the task exists, and the store need not be read.
        let key = self.task_key(id);
        let runs = &self.0.task_runs;
        if let Some(run) = runs.latest(&key).filter(|_| runs.is_running(&key) || last_event_id.is_some()) {
            return Ok(OperationResponse::Stream(UpdateSource::Run(run.subscribe(last_event_id))));
        }
        let task = self.read_task(id).await?.task;
        if task.status.state.is_terminal() && format == A2aWireFormat::ProtoJsonV1_0 {
            let message = "the task has ended and has no further updates";
            return Err(A2aRequestError::new(codes::UNSUPPORTED_OPERATION, message));
        }
        Ok(OperationResponse::Stream(UpdateSource::Single(Box::new(Update::Task(task)))))
    }

    /// Lists the tasks of one context, or of the caller's newest contexts.
    async fn list(&self, params: &Json) -> Result<OperationResponse, A2aRequestError> {
        let text = |key: &str| params.get(key).and_then(Json::as_str).filter(|text| !text.is_empty());
        let page_size =
            params.get("pageSize").and_then(parse_number).unwrap_or(limits::A2A_LISTED).clamp(1, limits::A2A_LISTED);
        // A page token is the number of tasks on earlier pages.
        let offset = text("pageToken").map_or(Ok(0), str::parse::<usize>);
        let offset = offset.map_err(|_| A2aRequestError::invalid_params("`pageToken` is invalid"))?;
        let contexts: Vec<String> = match text("contextId") {
            Some(context) => vec![context.to_owned()],
            None => {
                let store = self.0.assistant.store();
                let ids = store.conversations(limits::CONVERSATIONS_LISTED).await;
                let ids = ids.map_err(|error| A2aRequestError::internal(error.to_string()))?;
                let prefix = self.prefix();
                let contexts = ids.iter().filter_map(|id| id.as_str().strip_prefix(&prefix).map(str::to_owned));
                contexts.take(limits::A2A_LISTED).collect()
            }
        };
        let mut tasks = Vec::new();
        for context in contexts {
            tasks.extend(self.tasks_of_context(&context).await?.into_iter().map(|stored| stored.task));
        }
        if let Some(state) = text("status") {
            tasks.retain(|task| A2aWireFormat::ProtoJsonV1_0.state(task.status.state) == state);
        }
        let total = tasks.len();
        tasks.drain(..offset.min(total));
        tasks.truncate(page_size);
        let next = offset.saturating_add(page_size);
        let next_page = if next < total { next.to_string() } else { String::new() };
        let include_artifacts = params.get("includeArtifacts").and_then(Json::as_bool).unwrap_or_default();
        let history_length = history_length(params).or(Some(0));
        let tasks: Vec<Json> = tasks
            .into_iter()
            .map(|mut task| {
                truncate_history(&mut task, history_length);
                if !include_artifacts {
                    task.artifacts.clear();
                }
                encode::task(&task, A2aWireFormat::ProtoJsonV1_0)
            })
            .collect();
        let response = json!({"tasks": tasks, "pageSize": page_size, "totalSize": total, "nextPageToken": next_page});
        Ok(OperationResponse::Json(response))
    }
}

/// A number, which a query string contains as text.
fn parse_number(json: &Json) -> Option<usize> {
    let text = || json.as_str().and_then(|text| text.parse().ok());
    json.as_u64().and_then(|number| usize::try_from(number).ok()).or_else(text)
}

fn history_length(json: &Json) -> Option<usize> {
    json.get("historyLength").and_then(parse_number)
}

/// Whether the caller waits for the result: `blocking` of 0.3, or the opposite of `returnImmediately` of 1.0. The default is true.
fn is_blocking(params: &Json) -> bool {
    let flag = |key: &str| params.pointer(&format!("/configuration/{key}")).and_then(Json::as_bool);
    flag("blocking").unwrap_or_else(|| !flag("returnImmediately").unwrap_or_default())
}

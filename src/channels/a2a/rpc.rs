//! JSON-RPC: one path, the method says what is wanted and in which generation; and the operations themselves, which plain HTTP
//! shares.

use axum::http::{HeaderMap, Response, StatusCode};
use serde_json::{Map, Value as Json, json};

use super::{
    A2aRequestError, A2aServer, json as json_answer,
    push::Config,
    stream::{self, Show, Wrap},
    tasks::{context_of, cut_history},
    unknown_version,
    work::Asked,
};
use crate::{
    a2a::{
        A2aVersion, A2aWireFormat, Operation, codes, decode, encode,
        model::{Task, Update},
    },
    channels::Body,
    limits,
};

/// Answers a request.
pub(super) async fn answer(agent: &A2aServer, body: &[u8], headers: &HeaderMap) -> Response<Body> {
    let request: Json = match serde_json::from_slice(body) {
        Ok(request) => request,
        Err(problem) => {
            let refusal = A2aRequestError::new(codes::PARSE_ERROR, format!("the body is no JSON: {problem}"));
            return json_answer(StatusCode::OK, &error(&Json::Null, &refusal));
        }
    };
    let id = request.get("id").filter(|id| id.is_string() || id.is_i64() || id.is_u64()).cloned().unwrap_or(Json::Null);
    match answered(agent, request, &id, headers).await {
        Ok(response) => response,
        Err(refusal) => refusal.told(json_answer(StatusCode::OK, &error(&id, &refusal))),
    }
}

async fn answered(
    agent: &A2aServer,
    request: Json,
    id: &Json,
    headers: &HeaderMap,
) -> Result<Response<Body>, A2aRequestError> {
    let invalid = |words: &str| A2aRequestError::new(codes::INVALID_REQUEST, words);
    let Json::Object(mut fields) = request else { return Err(invalid("a request is one JSON object")) };
    if fields.get("jsonrpc").and_then(Json::as_str) != Some("2.0") {
        return Err(invalid("`jsonrpc` must be \"2.0\""));
    }
    if fields.get("id").is_some_and(|given| !given.is_null() && id.is_null()) {
        return Err(invalid("`id` must be a text or a whole number"));
    }
    let method = fields.get("method").and_then(Json::as_str).ok_or_else(|| invalid("`method` is missing"))?;
    let (operation, generation) = Operation::from_method(method)
        .ok_or_else(|| A2aRequestError::new(codes::METHOD_NOT_FOUND, format!("there is no method `{method}`")))?;
    if let Some(refusal) = unknown_version(headers) {
        return Err(refusal);
    }
    let params = match fields.shift_remove("params") {
        None | Some(Json::Null) => Json::Object(Map::new()),
        Some(params @ Json::Object(_)) => params,
        Some(_) => return Err(A2aRequestError::params("`params` must be an object")),
    };
    let dialect =
        if generation == A2aVersion::V0_3 { A2aWireFormat::JsonRpcV0_3 } else { A2aWireFormat::ProtoJsonV1_0 };
    let cursor = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let call = Call::of(operation, dialect, params, cursor);
    match agent.perform(call).await? {
        Reply::Json(result) => Ok(json_answer(StatusCode::OK, &json!({"jsonrpc": "2.0", "id": id, "result": result}))),
        Reply::Stream(show) => Ok(stream::answer(show, Wrap::Rpc(id.clone()), dialect, agent.0.assistant.clock())),
    }
}

/// An error as an answer.
pub(super) fn error(id: &Json, refusal: &A2aRequestError) -> Json {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": refusal.code, "message": refusal.message}})
}

/// One operation with its parameters, from either binding.
pub(super) struct Call {
    pub(super) operation: Operation,
    pub(super) dialect: A2aWireFormat,
    /// The task, where it is about one.
    pub(super) task: Option<String>,
    /// The id of a report, where it is about one.
    pub(super) report: Option<String>,
    /// All parameters.
    pub(super) params: Json,
    /// Where a broken stream goes on.
    pub(super) cursor: Option<String>,
}

impl Call {
    fn of(operation: Operation, dialect: A2aWireFormat, params: Json, cursor: Option<&str>) -> Self {
        let text =
            |key: &str| params.get(key).and_then(Json::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
        let is_report =
            matches!(operation, Operation::SetPush | Operation::GetPush | Operation::ListPush | Operation::DeletePush);
        // What the older generation calls `id` is the task; the newer one means the report where it is about one.
        let (task, report) = match (is_report, dialect) {
            (false, _) => (text("id"), None),
            (true, A2aWireFormat::ProtoJsonV1_0) => (text("taskId"), text("id")),
            (true, _) => (text("taskId").or_else(|| text("id")), text("pushNotificationConfigId")),
        };
        Self { operation, dialect, task, report, cursor: cursor.map(str::to_owned), params }
    }
}

/// What an operation gives.
pub(super) enum Reply {
    Json(Json),
    Stream(Show),
}

impl A2aServer {
    /// Performs an operation.
    pub(super) async fn perform(&self, call: Call) -> Result<Reply, A2aRequestError> {
        let dialect = call.dialect;
        let task = || call.task.as_deref().ok_or_else(|| A2aRequestError::params("the id of a task is missing"));
        let shown = |mut one: Task, wanted: Option<usize>| {
            cut_history(&mut one, wanted);
            Reply::Json(encode::task(&one, dialect))
        };
        match call.operation {
            Operation::Send => {
                let blocks = blocks(&call.params);
                let wanted = history(call.params.get("configuration").unwrap_or(&Json::Null));
                let begun = self.begin(asked(&call)?).await?;
                let mut task = if blocks { self.waited(begun).await? } else { begun.task };
                cut_history(&mut task, wanted);
                Ok(Reply::Json(encode::update(&Update::Task(task), dialect)))
            }
            Operation::Stream => {
                let begun = self.begin(asked(&call)?).await?;
                Ok(Reply::Stream(Show::Course(begun.course.listen(None))))
            }
            Operation::Get => Ok(shown(self.found(task()?).await?.task, history(&call.params))),
            Operation::Cancel => Ok(shown(self.cancel(task()?).await?, history(&call.params))),
            Operation::Subscribe => self.subscribe(task()?, call.cursor.as_deref(), dialect).await,
            Operation::List => self.list(&call.params).await,
            Operation::SetPush => {
                let id = task()?;
                let given = call.params.pointer("/config/pushNotificationConfig");
                let given = given.or_else(|| call.params.get("pushNotificationConfig")).unwrap_or(&call.params);
                let config = Config::read(given, dialect.version())?;
                self.set_push(id, config.clone()).await?;
                Ok(Reply::Json(config.shown(id, dialect)))
            }
            Operation::GetPush => {
                let (id, configs) = (task()?, self.pushes_of(task()?).await?);
                let mut named = configs.iter().filter(|config| call.report.as_ref().is_none_or(|id| config.id == *id));
                let config = named
                    .next()
                    .ok_or_else(|| A2aRequestError::new(codes::TASK_NOT_FOUND, "nothing is reported there"))?;
                Ok(Reply::Json(config.shown(id, dialect)))
            }
            Operation::ListPush => {
                let id = task()?;
                let all: Vec<Json> = self.pushes_of(id).await?.iter().map(|config| config.shown(id, dialect)).collect();
                Ok(Reply::Json(if dialect == A2aWireFormat::JsonRpcV0_3 {
                    json!(all)
                } else {
                    json!({"configs": all})
                }))
            }
            Operation::DeletePush => {
                let report =
                    call.report.as_deref().ok_or_else(|| A2aRequestError::params("the id of the report is missing"))?;
                self.set_push(task()?, Config::gone(report)).await?;
                Ok(Reply::Json(if dialect == A2aWireFormat::JsonRpcV0_3 { Json::Null } else { json!({}) }))
            }
            Operation::ExtendedCard => Err(A2aRequestError::new(
                codes::EXTENDED_AGENT_CARD_NOT_CONFIGURED,
                "there is no card but the public one",
            )),
        }
    }

    /// A task that runs is heard from the cursor on; one that stands still is shown as it stands.
    async fn subscribe(
        &self,
        id: &str,
        cursor: Option<&str>,
        dialect: A2aWireFormat,
    ) -> Result<Reply, A2aRequestError> {
        // A course of this process says by itself that there is such a task.
        let course =
            self.0.courses.of(&self.name_of(id)).filter(|_| self.0.courses.runs(&self.name_of(id)) || cursor.is_some());
        if let Some(course) = course {
            return Ok(Reply::Stream(Show::Course(course.listen(cursor))));
        }
        let task = self.found(id).await?.task;
        if task.status.state.is_terminal() && dialect == A2aWireFormat::ProtoJsonV1_0 {
            return Err(A2aRequestError::new(
                codes::UNSUPPORTED_OPERATION,
                "the task is over: nothing more comes of it",
            ));
        }
        Ok(Reply::Stream(Show::Only(vec![Update::Task(task)])))
    }

    /// Tasks of a context, or of the newest ones.
    async fn list(&self, params: &Json) -> Result<Reply, A2aRequestError> {
        let text = |key: &str| params.get(key).and_then(Json::as_str).filter(|text| !text.is_empty());
        let size = params.get("pageSize").and_then(number).unwrap_or(limits::A2A_LISTED).clamp(1, limits::A2A_LISTED);
        // How many were listed before.
        let from = text("pageToken").map_or(Ok(0), str::parse::<usize>);
        let from = from.map_err(|_| A2aRequestError::params("`pageToken` is none that was given here"))?;
        let contexts: Vec<String> = match text("contextId") {
            Some(context) => vec![context.to_owned()],
            None => {
                let store = self.0.assistant.store();
                let ids = store.conversations(limits::CONVERSATIONS_LISTED).await;
                let ids = ids.map_err(|error| A2aRequestError::new(codes::INTERNAL_ERROR, error.to_string()))?;
                let prefix = self.prefix();
                let own = ids.iter().filter_map(|id| id.as_str().strip_prefix(&prefix).map(str::to_owned));
                own.take(limits::A2A_LISTED).collect()
            }
        };
        let mut tasks = Vec::new();
        for context in contexts {
            tasks.extend(self.of_context(&context).await?.into_iter().map(|found| found.task));
        }
        if let Some(state) = text("status") {
            tasks.retain(|task| A2aWireFormat::ProtoJsonV1_0.state(task.status.state) == state);
        }
        let total = tasks.len();
        tasks.drain(..from.min(total));
        tasks.truncate(size);
        let next = from.saturating_add(size);
        let next = if next < total { next.to_string() } else { String::new() };
        let artifacts = params.get("includeArtifacts").and_then(Json::as_bool).unwrap_or_default();
        let wanted = history(params).or(Some(0));
        let shown: Vec<Json> = tasks
            .into_iter()
            .map(|mut task| {
                cut_history(&mut task, wanted);
                if !artifacts {
                    task.artifacts.clear();
                }
                encode::task(&task, A2aWireFormat::ProtoJsonV1_0)
            })
            .collect();
        Ok(Reply::Json(json!({"tasks": shown, "pageSize": size, "totalSize": total, "nextPageToken": next})))
    }
}

fn number(json: &Json) -> Option<usize> {
    let text = || json.as_str().and_then(|text| text.parse().ok());
    json.as_u64().and_then(|number| usize::try_from(number).ok()).or_else(text)
}

fn history(json: &Json) -> Option<usize> {
    json.get("historyLength").and_then(number)
}

/// Whether the caller waits for the end: `blocking` of the older generation, not `returnImmediately` of the newer.
fn blocks(params: &Json) -> bool {
    let flag = |key: &str| params.pointer(&format!("/configuration/{key}")).and_then(Json::as_bool);
    flag("blocking").unwrap_or_else(|| !flag("returnImmediately").unwrap_or_default())
}

fn asked(call: &Call) -> Result<Asked, A2aRequestError> {
    let given = call.params.get("message").ok_or_else(|| A2aRequestError::params("`message` is missing"))?;
    let message = decode::message(given, call.dialect).map_err(A2aRequestError::params)?;
    if message.task_id.as_deref().is_some_and(|id| context_of(id).is_none()) {
        return Err(A2aRequestError::no_task(message.task_id.as_deref().unwrap_or_default()));
    }
    let how = call.params.get("configuration").unwrap_or(&Json::Null);
    let push = ["taskPushNotificationConfig", "pushNotificationConfig", "pushNotification"]
        .into_iter()
        .find_map(|key| how.get(key))
        .filter(|config| config.is_object());
    let push = push.map(|config| Config::read(config, call.dialect.version())).transpose()?;
    Ok(Asked { message, push })
}

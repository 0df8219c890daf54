//! The gRPC binding. Parameters and responses are the same JSON as over HTTP+JSON, converted from and to the protocol
//! buffers.

mod v0_3;
mod v1_0;

use futures::{StreamExt, stream::BoxStream};
use prost::Message;
use segue_base::{
    context::CallContext,
    grpc::{Code, GrpcClient, GrpcError},
    limits,
    secret::Secret,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value as Json, json};

use super::{
    card::AgentInterface,
    error::{A2aError, A2aErrorKind},
    events::{TaskEventStream, code_of},
    transport::{A2aConnection, AgentResponse, Request, wait_error},
    version::{A2aVersion, Operation, codes},
};

/// Sends a request and reads the response, or the start of a stream. After a failed authentication it is sent once more
/// with a new token, if there can be one: such a status says that nothing was done.
pub(super) async fn call(wire: &A2aConnection, request: &Request, cx: &CallContext) -> Result<AgentResponse, A2aError> {
    let mut refused: Option<Secret> = None;
    loop {
        let header = match cx.wait(wire.credentials.header(refused.as_ref())).await {
            Ok(header) => header.map_err(|why| A2aError::new(A2aErrorKind::Authentication, why.to_string()))?,
            Err(stopped) => return Err(wait_error(stopped, "no token")),
        };
        let answered = call_once(wire, request, header.as_ref(), cx).await;
        let unknown = matches!(&answered, Err(A2aError { kind: A2aErrorKind::Status(401 | 403), .. }));
        match header {
            Some((_, value)) if unknown && refused.is_none() && wire.credentials.may_change() => refused = Some(value),
            _ => return answered,
        }
    }
}

async fn call_once(
    wire: &A2aConnection,
    request: &Request,
    header: Option<&(String, Secret)>,
    cx: &CallContext,
) -> Result<AgentResponse, A2aError> {
    let AgentInterface { url, version, .. } = &wire.interface;
    let unfit = |text: String| A2aError::new(A2aErrorKind::Card, format!("the agent cannot be called: {text}"));
    let mut caller = GrpcClient::new(wire.client.clone(), url).map_err(unfit)?;
    if let Some((name, value)) = header {
        caller = caller.with_header(name, value).map_err(unfit)?;
    }
    if *version == A2aVersion::V1_0 {
        caller = caller.with_header("a2a-version", &Secret::new("1.0")).map_err(unfit)?;
    }
    let asking = GrpcRequest { caller, wire, params: params(&wire.interface, request), cx };
    match version {
        A2aVersion::V1_0 => asking.call_v1_0(request.operation).await,
        A2aVersion::V0_3 => asking.call_v0_3(request.operation).await,
    }
}

/// All parameters of a request, task and tenant included.
fn params(interface: &AgentInterface, request: &Request) -> Json {
    let mut params: Map<String, Json> = request.body.clone();
    if let Some(task) = &request.task {
        match interface.version {
            A2aVersion::V1_0 => params.insert("id".into(), task.as_str().into()),
            A2aVersion::V0_3 => params.insert("name".into(), json!(format!("tasks/{task}"))),
        };
    }
    if let Some(tenant) = &interface.tenant {
        params.insert("tenant".into(), tenant.as_str().into());
    }
    Json::Object(params)
}

struct GrpcRequest<'a> {
    caller: GrpcClient,
    wire: &'a A2aConnection,
    params: Json,
    cx: &'a CallContext,
}

impl GrpcRequest<'_> {
    async fn call_v1_0(self, operation: Operation) -> Result<AgentResponse, A2aError> {
        use v1_0::{GetTaskRequest, ListTasksRequest, ListTasksResponse, SendMessageRequest, StreamResponse};
        use v1_0::{Task, TaskRequest};
        match operation {
            Operation::Send => {
                self.unary::<SendMessageRequest, StreamResponse>("/lf.a2a.v1.A2AService/SendMessage").await
            }
            Operation::Stream => {
                self.stream::<SendMessageRequest, StreamResponse>("/lf.a2a.v1.A2AService/SendStreamingMessage").await
            }
            Operation::Get => self.unary::<GetTaskRequest, Task>("/lf.a2a.v1.A2AService/GetTask").await,
            Operation::List => {
                self.unary::<ListTasksRequest, ListTasksResponse>("/lf.a2a.v1.A2AService/ListTasks").await
            }
            Operation::Cancel => self.unary::<TaskRequest, Task>("/lf.a2a.v1.A2AService/CancelTask").await,
            Operation::Subscribe => {
                self.stream::<TaskRequest, StreamResponse>("/lf.a2a.v1.A2AService/SubscribeToTask").await
            }
            other => Err(unknown(other)),
        }
    }

    async fn call_v0_3(self, operation: Operation) -> Result<AgentResponse, A2aError> {
        use v0_3::{SendMessageRequest, StreamResponse, Task, TaskRequest};
        match operation {
            Operation::Send => self.unary::<SendMessageRequest, StreamResponse>("/a2a.v1.A2AService/SendMessage").await,
            Operation::Stream => {
                self.stream::<SendMessageRequest, StreamResponse>("/a2a.v1.A2AService/SendStreamingMessage").await
            }
            Operation::Get => self.unary::<TaskRequest, Task>("/a2a.v1.A2AService/GetTask").await,
            Operation::Cancel => self.unary::<TaskRequest, Task>("/a2a.v1.A2AService/CancelTask").await,
            Operation::Subscribe => {
                self.stream::<TaskRequest, StreamResponse>("/a2a.v1.A2AService/TaskSubscription").await
            }
            other => Err(unknown(other)),
        }
    }

    fn message<Q: DeserializeOwned>(&self) -> Result<Q, A2aError> {
        let unfit =
            |error| A2aError::new(A2aErrorKind::Card, format!("the message cannot be encoded for gRPC: {error}"));
        serde_json::from_value(self.params.clone()).map_err(unfit)
    }

    async fn unary<Q, A>(&self, path: &'static str) -> Result<AgentResponse, A2aError>
    where
        Q: Message + DeserializeOwned + 'static,
        A: Message + Default + Serialize + 'static,
    {
        let answer: A =
            self.caller.unary(path, self.message::<Q>()?, limits::A2A_ANSWER, self.cx).await.map_err(call_error)?;
        json_of(&answer).map(AgentResponse::Complete)
    }

    async fn stream<Q, A>(&self, path: &'static str) -> Result<AgentResponse, A2aError>
    where
        Q: Message + DeserializeOwned + 'static,
        A: Message + Default + Serialize + 'static,
    {
        let pieces = self.caller.server_streaming::<Q, A>(path, self.message()?, limits::A2A_EVENT, self.cx).await;
        let events: BoxStream<'static, Result<Json, A2aError>> =
            pieces.map_err(call_error)?.map(|piece| json_of(&piece.map_err(stream_error)?)).boxed();
        Ok(AgentResponse::Stream(TaskEventStream::from_messages(events, self.wire.interface.wire_format())))
    }
}

fn unknown(operation: Operation) -> A2aError {
    A2aError::new(A2aErrorKind::Protocol(codes::METHOD_NOT_FOUND), format!("{operation:?} is not supported over gRPC"))
}

fn json_of(message: &impl Serialize) -> Result<Json, A2aError> {
    let unreadable =
        |error| A2aError::new(A2aErrorKind::InvalidResponse, format!("the response cannot be decoded: {error}"));
    serde_json::to_value(message).map_err(unreadable)
}

/// The error of a failed call.
fn call_error(error: GrpcError) -> A2aError {
    match error {
        GrpcError::Unreachable(why) => A2aError::new(A2aErrorKind::Unreachable, format!("it does not answer: {why}")),
        GrpcError::Broken(why) => {
            A2aError::new(A2aErrorKind::ConnectionLost, format!("the response was truncated: {why}"))
        }
        GrpcError::TooLarge => A2aError::new(A2aErrorKind::TooLarge, "the response is larger than the limit"),
        GrpcError::DeadlineExceeded => A2aError::new(A2aErrorKind::TimedOut, "no response: the deadline passed"),
        GrpcError::Cancelled => A2aError::new(A2aErrorKind::Cancelled, "no response: the call was cancelled"),
        GrpcError::Refused { code, message, reason } => {
            let text: String = message.chars().take(limits::A2A_REASON_TEXT).collect();
            let kind = kind(code, &message, reason.as_deref());
            A2aError::new(kind, format!("it responds with gRPC status {code:?}: {text}"))
        }
    }
}

/// The error at the end of a stream. A bare status may come from a gateway, and the task may continue: it counts as a
/// lost connection.
fn stream_error(error: GrpcError) -> A2aError {
    let is_bare = matches!(&error,
        GrpcError::Refused { message, reason, .. } if protocol_code(message, reason.as_deref()).is_none());
    let error = call_error(error);
    if is_bare { A2aError { kind: A2aErrorKind::ConnectionLost, ..error } } else { error }
}

/// The error code of the protocol: version 1.0 sends it as a reason in the status details, version 0.3 at the start of
/// the message.
fn protocol_code(message: &str, reason: Option<&str>) -> Option<i64> {
    reason.and_then(code_of).or_else(|| NAMES.iter().find_map(|(name, code)| code_of_name(message, name, *code)))
}

/// The error kind of a status. A bare status is ambiguous, and the client itself creates some: `Internal` for an
/// undecodable response, `Unavailable` or `Internal` for a gateway without gRPC. The message may have arrived by then.
fn kind(code: Code, message: &str, reason: Option<&str>) -> A2aErrorKind {
    if let Some(code) = protocol_code(message, reason) {
        return A2aErrorKind::Protocol(code);
    }
    match code {
        Code::Unauthenticated => A2aErrorKind::Status(401),
        Code::PermissionDenied => A2aErrorKind::Status(403),
        Code::ResourceExhausted => A2aErrorKind::Status(429),
        Code::DeadlineExceeded => A2aErrorKind::TimedOut,
        Code::NotFound => A2aErrorKind::Protocol(codes::TASK_NOT_FOUND),
        Code::InvalidArgument => A2aErrorKind::Protocol(codes::INVALID_PARAMS),
        // The method does not exist: another protocol version, or no agent at all.
        Code::Unimplemented => A2aErrorKind::Status(404),
        Code::FailedPrecondition => A2aErrorKind::Protocol(codes::UNSUPPORTED_OPERATION),
        Code::Internal => A2aErrorKind::InvalidResponse,
        Code::Ok | Code::Cancelled | Code::Aborted | Code::DataLoss | Code::Unavailable => A2aErrorKind::ConnectionLost,
        Code::Unknown | Code::AlreadyExists | Code::OutOfRange => A2aErrorKind::Status(500),
    }
}

fn code_of_name(message: &str, name: &str, code: i64) -> Option<i64> {
    message.strip_prefix(name)?.starts_with(':').then_some(code)
}

/// Error names of the Python SDK for version 0.3 (<https://github.com/a2aproject/a2a-python>).
const NAMES: &[(&str, i64)] = &[
    ("JSONParseError", codes::PARSE_ERROR),
    ("InvalidRequestError", codes::INVALID_REQUEST),
    ("MethodNotFoundError", codes::METHOD_NOT_FOUND),
    ("InvalidParamsError", codes::INVALID_PARAMS),
    ("InternalError", codes::INTERNAL_ERROR),
    ("TaskNotFoundError", codes::TASK_NOT_FOUND),
    ("TaskNotCancelableError", codes::TASK_NOT_CANCELABLE),
    ("PushNotificationNotSupportedError", codes::PUSH_NOTIFICATION_NOT_SUPPORTED),
    ("UnsupportedOperationError", codes::UNSUPPORTED_OPERATION),
    ("ContentTypeNotSupportedError", codes::CONTENT_TYPE_NOT_SUPPORTED),
    ("InvalidAgentResponseError", codes::INVALID_AGENT_RESPONSE),
];

/// Task states by number, the same in both versions except for one spelling.
mod state {
    use serde::{Deserializer, Serializer};

    use segue_base::grpc::well_known::{enum_name, enum_number};

    const NAMES: [&str; 9] = [
        "TASK_STATE_UNSPECIFIED",
        "TASK_STATE_SUBMITTED",
        "TASK_STATE_WORKING",
        "TASK_STATE_COMPLETED",
        "TASK_STATE_FAILED",
        "TASK_STATE_CANCELED",
        "TASK_STATE_INPUT_REQUIRED",
        "TASK_STATE_REJECTED",
        "TASK_STATE_AUTH_REQUIRED",
    ];

    pub(super) fn serialize<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(enum_name(*number, &NAMES))
    }
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
        enum_number(deserializer, &NAMES, |name| name.replace("CANCELLED", "CANCELED"))
    }
}

/// Roles by number.
mod role {
    use serde::{Deserializer, Serializer};

    use segue_base::grpc::well_known::{enum_name, enum_number};

    const NAMES: [&str; 3] = ["ROLE_UNSPECIFIED", "ROLE_USER", "ROLE_AGENT"];

    pub(super) fn serialize<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(enum_name(*number, &NAMES))
    }
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
        enum_number(deserializer, &NAMES, |name| name)
    }
}

#[cfg(test)]
mod tests;

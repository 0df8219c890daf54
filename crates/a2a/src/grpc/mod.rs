//! Asking an agent by gRPC: the same parameters and answers as over plain HTTP, whose JSON is made from the same messages.

mod new;
mod old;

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
    dialect::{A2aVersion, Operation, codes},
    events::{TaskEventStream, code_of},
    fault::{A2aError, A2aErrorKind},
    wire::{Answered, Request, Wire, stopped_as},
};

/// Asks, and reads the answer or its first sign. A refusal of who we are is tried once more with another token where there can
/// be one: it says that nothing was done.
pub(super) async fn ask(wire: &Wire, request: &Request, cx: &CallContext) -> Result<Answered, A2aError> {
    let mut refused: Option<Secret> = None;
    loop {
        let header = match cx.wait(wire.credentials.header(refused.as_ref())).await {
            Ok(header) => header.map_err(|why| A2aError::new(A2aErrorKind::Identity, why.to_string()))?,
            Err(stopped) => return Err(stopped_as(stopped, "no token")),
        };
        let answered = asked(wire, request, header.as_ref(), cx).await;
        let unknown = matches!(&answered, Err(A2aError { kind: A2aErrorKind::Status(401 | 403), .. }));
        match header {
            Some((_, value)) if unknown && refused.is_none() && wire.credentials.may_change() => refused = Some(value),
            _ => return answered,
        }
    }
}

async fn asked(
    wire: &Wire,
    request: &Request,
    header: Option<&(String, Secret)>,
    cx: &CallContext,
) -> Result<Answered, A2aError> {
    let AgentInterface { url, generation, .. } = &wire.interface;
    let unfit = |words: String| A2aError::new(A2aErrorKind::Card, format!("the agent cannot be asked: {words}"));
    let mut caller = GrpcClient::new(wire.client.clone(), url).map_err(unfit)?;
    if let Some((name, value)) = header {
        caller = caller.with_header(name, value).map_err(unfit)?;
    }
    if *generation == A2aVersion::New {
        caller = caller.with_header("a2a-version", &Secret::new("1.0")).map_err(unfit)?;
    }
    let asking = Asking { caller, wire, params: params(&wire.interface, request), cx };
    match generation {
        A2aVersion::New => asking.newer(request.operation).await,
        A2aVersion::Old => asking.older(request.operation).await,
    }
}

/// All parameters of a request, the task and the tenant among them.
fn params(interface: &AgentInterface, request: &Request) -> Json {
    let mut params: Map<String, Json> = request.body.clone();
    if let Some(task) = &request.task {
        match interface.generation {
            A2aVersion::New => params.insert("id".into(), task.as_str().into()),
            A2aVersion::Old => params.insert("name".into(), json!(format!("tasks/{task}"))),
        };
    }
    if let Some(tenant) = &interface.tenant {
        params.insert("tenant".into(), tenant.as_str().into());
    }
    Json::Object(params)
}

struct Asking<'a> {
    caller: GrpcClient,
    wire: &'a Wire,
    params: Json,
    cx: &'a CallContext,
}

impl Asking<'_> {
    async fn newer(self, operation: Operation) -> Result<Answered, A2aError> {
        use new::{GetTaskRequest, ListTasksRequest, ListTasksResponse, SendMessageRequest, StreamResponse};
        use new::{Task, TaskRequest};
        match operation {
            Operation::Send => {
                self.whole::<SendMessageRequest, StreamResponse>("/lf.a2a.v1.A2AService/SendMessage").await
            }
            Operation::Stream => {
                self.stream::<SendMessageRequest, StreamResponse>("/lf.a2a.v1.A2AService/SendStreamingMessage").await
            }
            Operation::Get => self.whole::<GetTaskRequest, Task>("/lf.a2a.v1.A2AService/GetTask").await,
            Operation::List => {
                self.whole::<ListTasksRequest, ListTasksResponse>("/lf.a2a.v1.A2AService/ListTasks").await
            }
            Operation::Cancel => self.whole::<TaskRequest, Task>("/lf.a2a.v1.A2AService/CancelTask").await,
            Operation::Subscribe => {
                self.stream::<TaskRequest, StreamResponse>("/lf.a2a.v1.A2AService/SubscribeToTask").await
            }
            other => Err(unknown(other)),
        }
    }

    async fn older(self, operation: Operation) -> Result<Answered, A2aError> {
        use old::{SendMessageRequest, StreamResponse, Task, TaskRequest};
        match operation {
            Operation::Send => self.whole::<SendMessageRequest, StreamResponse>("/a2a.v1.A2AService/SendMessage").await,
            Operation::Stream => {
                self.stream::<SendMessageRequest, StreamResponse>("/a2a.v1.A2AService/SendStreamingMessage").await
            }
            Operation::Get => self.whole::<TaskRequest, Task>("/a2a.v1.A2AService/GetTask").await,
            Operation::Cancel => self.whole::<TaskRequest, Task>("/a2a.v1.A2AService/CancelTask").await,
            Operation::Subscribe => {
                self.stream::<TaskRequest, StreamResponse>("/a2a.v1.A2AService/TaskSubscription").await
            }
            other => Err(unknown(other)),
        }
    }

    fn message<Q: DeserializeOwned>(&self) -> Result<Q, A2aError> {
        let unfit = |error| A2aError::new(A2aErrorKind::Card, format!("gRPC cannot carry the message: {error}"));
        serde_json::from_value(self.params.clone()).map_err(unfit)
    }

    async fn whole<Q, A>(&self, path: &'static str) -> Result<Answered, A2aError>
    where
        Q: Message + DeserializeOwned + 'static,
        A: Message + Default + Serialize + 'static,
    {
        let answer: A =
            self.caller.ask(path, self.message::<Q>()?, limits::A2A_ANSWER, self.cx).await.map_err(fault)?;
        json_of(&answer).map(Answered::Whole)
    }

    async fn stream<Q, A>(&self, path: &'static str) -> Result<Answered, A2aError>
    where
        Q: Message + DeserializeOwned + 'static,
        A: Message + Default + Serialize + 'static,
    {
        let pieces = self.caller.listen::<Q, A>(path, self.message()?, limits::A2A_EVENT, self.cx).await;
        let events: BoxStream<'static, Result<Json, A2aError>> =
            pieces.map_err(fault)?.map(|piece| json_of(&piece.map_err(cut)?)).boxed();
        Ok(Answered::Stream(TaskEventStream::over(events, self.wire.interface.dialect())))
    }
}

fn unknown(operation: Operation) -> A2aError {
    A2aError::new(A2aErrorKind::Protocol(codes::METHOD), format!("{operation:?} is not asked by gRPC"))
}

fn json_of(message: &impl Serialize) -> Result<Json, A2aError> {
    let unreadable = |error| A2aError::new(A2aErrorKind::Unreadable, format!("the answer cannot be read: {error}"));
    serde_json::to_value(message).map_err(unreadable)
}

/// What a failed call means.
fn fault(trouble: GrpcError) -> A2aError {
    match trouble {
        GrpcError::Unreachable(why) => A2aError::new(A2aErrorKind::Unreachable, format!("it does not answer: {why}")),
        GrpcError::Broken(why) => A2aError::new(A2aErrorKind::Broken, format!("the answer was cut short: {why}")),
        GrpcError::TooLarge => A2aError::new(A2aErrorKind::TooLarge, "the answer is larger than is taken"),
        GrpcError::DeadlineExceeded => A2aError::new(A2aErrorKind::Late, "no answer: the time is over"),
        GrpcError::Cancelled => A2aError::new(A2aErrorKind::Cancelled, "no answer: nobody waits for it any more"),
        GrpcError::Refused { code, message, reason } => {
            let words: String = message.chars().take(limits::A2A_REASON_TEXT).collect();
            let kind = kind(code, &message, reason.as_deref());
            A2aError::new(kind, format!("it answers with the status {code:?} of gRPC: {words}"))
        }
    }
}

/// What the end of a stream means. A status without a word of the protocol comes from anybody on the way: the task may work on.
fn cut(trouble: GrpcError) -> A2aError {
    let is_bare = matches!(&trouble,
        GrpcError::Refused { message, reason, .. } if told(message, reason.as_deref()).is_none());
    let fault = fault(trouble);
    if is_bare { A2aError { kind: A2aErrorKind::Broken, ..fault } } else { fault }
}

/// The error of the protocol: the newer generation says it beside the status, the older one at the beginning of its words.
fn told(message: &str, reason: Option<&str>) -> Option<i64> {
    reason.and_then(code_of).or_else(|| NAMES.iter().find_map(|(name, code)| named(message, name, *code)))
}

/// A status alone says less than an error of the protocol, and some are made up on our side: of an answer that cannot be read
/// (`Internal`), of what a gateway says without gRPC (`Unavailable`, `Internal`). The message may have been taken by then.
fn kind(code: Code, message: &str, reason: Option<&str>) -> A2aErrorKind {
    if let Some(code) = told(message, reason) {
        return A2aErrorKind::Protocol(code);
    }
    match code {
        Code::Unauthenticated => A2aErrorKind::Status(401),
        Code::PermissionDenied => A2aErrorKind::Status(403),
        Code::ResourceExhausted => A2aErrorKind::Status(429),
        Code::DeadlineExceeded => A2aErrorKind::Late,
        Code::NotFound => A2aErrorKind::Protocol(codes::NO_TASK),
        Code::InvalidArgument => A2aErrorKind::Protocol(codes::PARAMS),
        // Nobody there knows the method: another edition of the protocol, or no agent at all.
        Code::Unimplemented => A2aErrorKind::Status(404),
        Code::FailedPrecondition => A2aErrorKind::Protocol(codes::UNSUPPORTED),
        Code::Internal => A2aErrorKind::Unreadable,
        Code::Ok | Code::Cancelled | Code::Aborted | Code::DataLoss | Code::Unavailable => A2aErrorKind::Broken,
        Code::Unknown | Code::AlreadyExists | Code::OutOfRange => A2aErrorKind::Status(500),
    }
}

fn named(message: &str, name: &str, code: i64) -> Option<i64> {
    message.strip_prefix(name)?.starts_with(':').then_some(code)
}

/// Errors as the library of the older generation names them.
const NAMES: &[(&str, i64)] = &[
    ("JSONParseError", codes::PARSE),
    ("InvalidRequestError", codes::REQUEST),
    ("MethodNotFoundError", codes::METHOD),
    ("InvalidParamsError", codes::PARAMS),
    ("InternalError", codes::INTERNAL),
    ("TaskNotFoundError", codes::NO_TASK),
    ("TaskNotCancelableError", codes::NOT_CANCELABLE),
    ("PushNotificationNotSupportedError", codes::NO_PUSH),
    ("UnsupportedOperationError", codes::UNSUPPORTED),
    ("ContentTypeNotSupportedError", codes::CONTENT_TYPE),
    ("InvalidAgentResponseError", codes::BAD_ANSWER),
];

/// States in the order of their numbers, the same in both generations but for a spelling.
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

/// Speakers in the order of their numbers.
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

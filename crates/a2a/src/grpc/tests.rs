//! Messages there and back; the genuine library stands on the other side in `tests/foreign`.
#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use axum::{Router, extract::Request as Asked, response::Response};
use futures::{future::BoxFuture, stream};
use segue_base::{effect::Arrival, http::HttpClients, manual_clock::ManualClock, outbound_auth::OutboundCredentials};
use tonic::{Status as End, body::Body, server::Grpc};
use tonic_prost::ProstCodec;

use super::{
    super::{
        A2aClient, A2aEnvironment, Access, CardLocation, Remote, SendReceipt, SendRequest, TaskListener,
        card::ProtocolBinding,
        dialect::A2aWireFormat,
        model::{
            Artifact, ArtifactUpdate, File, Message as Said, Part, Role, Status, StatusUpdate, Task, TaskState, Update,
        },
        reading, writing,
    },
    *,
};

fn task_of_all() -> Task {
    let file = |uri: Option<&str>, bytes: Option<&str>| {
        let own = |text: &str| text.to_owned();
        Part::File(File {
            name: Some("y".into()),
            media_type: Some("image/png".into()),
            uri: uri.map(own),
            bytes: bytes.map(own),
        })
    };
    let parts = vec![
        Part::Text("a".into()),
        Part::Data(json!({"n": [1, 2.5, null, {"deep": true}]})),
        file(None, Some("aGk=")),
        file(Some("https://x/y"), None),
    ];
    let mut said = Said { parts: parts.clone(), task_id: Some("t".into()), ..Said::text(Role::Agent, "m", "") };
    said.metadata.insert("own".into(), json!({"x": 1}));
    let timestamp = Some("2026-01-02T03:04:05.006Z".to_owned());
    let status = Status { state: TaskState::InputRequired, message: Some(said.clone()), timestamp };
    let made = Artifact { id: "a".into(), name: Some("made".into()), parts, ..Artifact::default() };
    let mut task = Task::named("t", "c");
    (task.status, task.artifacts, task.history) = (status, vec![made], vec![said]);
    task
}

fn all() -> Vec<Update> {
    let task = task_of_all();
    let change = |state| {
        let status = Status { state, ..task.status.clone() };
        let (task_id, context_id) = ("t".to_owned(), "c".to_owned());
        Update::Status(StatusUpdate { task_id, context_id, status, last: false, metadata: Map::new() })
    };
    let states = [
        TaskState::Submitted,
        TaskState::Working,
        TaskState::InputRequired,
        TaskState::Completed,
        TaskState::Canceled,
        TaskState::Failed,
        TaskState::Rejected,
        TaskState::AuthRequired,
        TaskState::Unknown,
    ];
    let mut all: Vec<Update> = states.into_iter().map(change).collect();
    all.push(Update::Artifact(ArtifactUpdate {
        task_id: "t".into(),
        context_id: "c".into(),
        artifact: task.artifacts.first().cloned().unwrap(),
        append: true,
        last_chunk: true,
    }));
    all.extend(task.history.first().cloned().map(Update::Message));
    all.push(Update::Task(task));
    all
}

/// Through the bytes of a message and back.
fn carried<M: Message + Default + Serialize + DeserializeOwned>(json: Json) -> Json {
    let bytes = serde_json::from_value::<M>(json).unwrap().encode_to_vec();
    json_of(&M::decode(bytes.as_slice()).unwrap()).unwrap()
}

#[test]
fn what_is_written_is_read_again_after_the_wire() {
    for update in all() {
        let new = carried::<new::StreamResponse>(writing::update(&update, A2aWireFormat::New));
        assert_eq!(reading::update(&new, A2aWireFormat::New).as_ref(), Ok(&update));
        let old = carried::<old::StreamResponse>(writing::update(&update, A2aWireFormat::OldRest));
        assert_eq!(reading::update(&old, A2aWireFormat::OldRest).as_ref(), Ok(&update));
    }
    let task = task_of_all();
    let new = carried::<new::Task>(writing::task(&task, A2aWireFormat::New));
    assert_eq!(reading::task(&new, A2aWireFormat::New).as_ref(), Ok(&task));
}

/// The bytes are those of the library of each generation.
#[test]
fn requests_have_the_numbers_of_their_generation() {
    let interface = |generation| AgentInterface {
        url: String::new(),
        binding: ProtocolBinding::Grpc,
        generation,
        tenant: (generation == A2aVersion::New).then(|| "acme".to_owned()),
    };
    let body = Map::from_iter([("historyLength".to_owned(), json!(2))]);
    let request = Request { operation: Operation::Get, task: Some("t".into()), body, id: "1".into() };
    let new: new::GetTaskRequest = serde_json::from_value(params(&interface(A2aVersion::New), &request)).unwrap();
    assert_eq!(new.encode_to_vec(), b"\x0a\x04acme\x12\x01t\x18\x02");
    let old: old::TaskRequest = serde_json::from_value(params(&interface(A2aVersion::Old), &request)).unwrap();
    assert_eq!(old.encode_to_vec(), b"\x0a\x07tasks/t\x10\x02");
}

#[test]
fn a_refusal_is_told_by_its_word_its_name_or_its_status() {
    let of = |code, message: &str, reason: Option<&str>| {
        let message = message.to_owned();
        fault(GrpcError::Refused { code, message, reason: reason.map(str::to_owned) }).kind
    };
    assert_eq!(
        of(Code::FailedPrecondition, "x", Some("TASK_NOT_CANCELABLE")),
        A2aErrorKind::Protocol(codes::NOT_CANCELABLE)
    );
    let named = of(Code::Unimplemented, "TaskNotCancelableError: no", None);
    assert_eq!(named, A2aErrorKind::Protocol(codes::NOT_CANCELABLE));
    assert_eq!(of(Code::Unauthenticated, "", None), A2aErrorKind::Status(401));
    // Both may come from a gateway, or from our side: the message may have been taken.
    for bare in [of(Code::Unavailable, "reset", None), of(Code::Internal, "no message", None)] {
        let fault = A2aError::new(bare, "");
        assert!(fault.arrival() == Arrival::Possible && !fault.may_be_repeated(), "{fault:?}");
    }
    let said = of(Code::Internal, "x", Some("INTERNAL_ERROR"));
    assert_eq!(
        (said, of(Code::Internal, "InternalError: x", None)),
        (A2aErrorKind::Protocol(codes::INTERNAL), A2aErrorKind::Protocol(codes::INTERNAL))
    );
    assert_eq!(of(Code::Unimplemented, "no such method", None), A2aErrorKind::Status(404));
    assert!(
        fault(GrpcError::Broken("x".into())).arrival() == Arrival::Possible
            && fault(GrpcError::Unreachable("x".into())).arrival() == Arrival::Impossible
    );
    let long = fault(GrpcError::Refused { code: Code::Internal, message: "x".repeat(10_000), reason: None });
    assert!(long.message.len() < limits::A2A_REASON_TEXT + 100);
}

/// An agent that is asked by gRPC, of the newer generation.
async fn agent<F>(answer: impl Fn(Asked) -> F + Clone + Send + Sync + 'static) -> Remote
where
    F: Future<Output = Response> + Send + 'static,
{
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    let interfaces = json!([{"url": url, "protocolBinding": "GRPC", "protocolVersion": "1.0"}]);
    let card = json!({"name": "x", "supportedInterfaces": interfaces, "capabilities": {"streaming": true}});
    let access = Access {
        card: CardLocation::File(card),
        credentials: OutboundCredentials::None,
        hosts: Vec::new(),
        timeout: limits::A2A_REQUEST,
        tries: 1,
        streams: true,
        first_pause: limits::A2A_PAUSE,
        patience: limits::A2A_POLL_TIMEOUT,
        reports: false,
    };
    Remote::new(access, A2aEnvironment { clock: Arc::new(ManualClock::default()), http: HttpClients::new() })
}

async fn sent(remote: &Remote) -> (Result<SendReceipt, A2aError>, CallContext) {
    let cx = CallContext::new(Arc::new(ManualClock::default()), Duration::from_secs(900));
    let message = Said::text(Role::User, "m1", "book");
    (remote.send(&SendRequest { message, report_to: None }, &cx).await, cx)
}

#[tokio::test]
async fn a_gateway_that_gives_up_and_an_answer_that_cannot_be_read_are_no_leave_to_send_again() {
    for (status, body) in
        [(504, &b"<html>"[..]), (502, b""), (400, b""), (200, b"\0\0\0\0\x02\xff\xff"), (200, b"\x05\0\0\0\0")]
    {
        let remote = agent(move |_| async move {
            let head = Response::builder().status(status).header("content-type", "application/grpc");
            head.body(body.into()).unwrap()
        })
        .await;
        let fault = sent(&remote).await.0.unwrap_err();
        assert!(fault.arrival() == Arrival::Possible && !fault.may_be_repeated(), "{status}: {fault:?}");
    }
}

struct Silent;

impl TaskListener for Silent {
    fn said<'a>(&'a mut self, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[tokio::test]
async fn a_task_whose_stream_ends_with_a_bare_status_is_asked_for() {
    async fn take(code: Code, request: Asked) -> Response<Body> {
        let task = |state| {
            new_task(writing::task(
                &Task { status: Status { state, message: None, timestamp: None }, ..Task::named("t", "c") },
                A2aWireFormat::New,
            ))
        };
        let begun = || {
            let pieces = [Ok(begun(task(TaskState::Working))), Err(End::new(code, "cut"))];
            async { Ok::<_, End>(tonic::Response::new(stream::iter(pieces))) }
        };
        match request.uri().path().rsplit('/').next().unwrap() {
            "SendStreamingMessage" => {
                let codec = ProstCodec::<new::StreamResponse, new::SendMessageRequest>::default();
                Grpc::new(codec).server_streaming(tower::service_fn(|_: tonic::Request<_>| begun()), request).await
            }
            "SubscribeToTask" => {
                let codec = ProstCodec::<new::StreamResponse, new::TaskRequest>::default();
                Grpc::new(codec).server_streaming(tower::service_fn(|_: tonic::Request<_>| begun()), request).await
            }
            "GetTask" => {
                let codec = ProstCodec::<new::Task, new::GetTaskRequest>::default();
                let whole = |_: tonic::Request<_>| async { Ok(tonic::Response::new(task(TaskState::Completed))) };
                Grpc::new(codec).unary(tower::service_fn(whole), request).await
            }
            _ => End::unimplemented("").into_http(),
        }
    }
    for code in [Code::Unavailable, Code::Unknown, Code::Internal, Code::DeadlineExceeded] {
        let remote = agent(move |request| async move { take(code, request).await.map(axum::body::Body::new) }).await;
        let (accepted, cx) = sent(&remote).await;
        let task = remote.follow(accepted.unwrap(), &mut Silent, &cx).await;
        assert_eq!(task.map(|task| task.status.state), Ok(TaskState::Completed), "{code:?}");
    }
}

fn new_task(json: Json) -> new::Task {
    serde_json::from_value(json).unwrap()
}

fn begun(task: new::Task) -> new::StreamResponse {
    serde_json::from_value(json!({"task": task})).unwrap()
}

//! Messages there and back; the genuine library stands on the other side in `tests/foreign`.
#![allow(clippy::unwrap_used)]

use super::{
    super::{
        card::Binding,
        dialect::Dialect,
        model::{
            Artifact, ArtifactChange, File, Message as Said, Part, Role, Status, StatusChange, Task, TaskState, Update,
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
        Update::Status(StatusChange { task_id, context_id, status, last: false, metadata: Map::new() })
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
    all.push(Update::Artifact(ArtifactChange {
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
        let new = carried::<new::StreamResponse>(writing::update(&update, Dialect::New));
        assert_eq!(reading::update(&new, Dialect::New).as_ref(), Ok(&update));
        let old = carried::<old::StreamResponse>(writing::update(&update, Dialect::OldRest));
        assert_eq!(reading::update(&old, Dialect::OldRest).as_ref(), Ok(&update));
    }
    let task = task_of_all();
    let new = carried::<new::Task>(writing::task(&task, Dialect::New));
    assert_eq!(reading::task(&new, Dialect::New).as_ref(), Ok(&task));
}

/// The bytes are those of the library of each generation.
#[test]
fn requests_have_the_numbers_of_their_generation() {
    let interface = |generation| Interface {
        url: String::new(),
        binding: Binding::Grpc,
        generation,
        tenant: (generation == Generation::New).then(|| "acme".to_owned()),
    };
    let body = Map::from_iter([("historyLength".to_owned(), json!(2))]);
    let request = Request { operation: Operation::Get, task: Some("t".into()), body, id: "1".into() };
    let new: new::GetTaskRequest = serde_json::from_value(params(&interface(Generation::New), &request)).unwrap();
    assert_eq!(new.encode_to_vec(), b"\x0a\x04acme\x12\x01t\x18\x02");
    let old: old::TaskRequest = serde_json::from_value(params(&interface(Generation::Old), &request)).unwrap();
    assert_eq!(old.encode_to_vec(), b"\x0a\x07tasks/t\x10\x02");
}

#[test]
fn a_refusal_is_told_by_its_word_its_name_or_its_status() {
    let of = |code, message: &str, reason: Option<&str>| {
        let message = message.to_owned();
        fault(Trouble::Refused { code, message, reason: reason.map(str::to_owned) }).kind
    };
    assert_eq!(
        of(Code::FailedPrecondition, "x", Some("TASK_NOT_CANCELABLE")),
        FaultKind::Protocol(codes::NOT_CANCELABLE)
    );
    let named = of(Code::Unimplemented, "TaskNotCancelableError: no", None);
    assert_eq!(named, FaultKind::Protocol(codes::NOT_CANCELABLE));
    assert_eq!(of(Code::Unauthenticated, "", None), FaultKind::Status(401));
    assert_eq!(of(Code::Unavailable, "", None), FaultKind::Status(503));
    assert_eq!(of(Code::Unimplemented, "no such method", None), FaultKind::Status(404));
    assert!(
        fault(Trouble::Broken("x".into())).may_have_arrived()
            && !fault(Trouble::Unreachable("x".into())).may_have_arrived()
    );
    let long = fault(Trouble::Refused { code: Code::Internal, message: "x".repeat(10_000), reason: None });
    assert!(long.message.len() < limits::A2A_WORDS + 100);
}

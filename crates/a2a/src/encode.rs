//! Encoding of the objects of [`model`](super::model) as JSON in each form.

use serde_json::{Map, Value as Json, json};

use super::{
    model::{Artifact, FileData, Message, Part, Status, Task, Update},
    version::A2aWireFormat,
};

fn put(fields: &mut Map<String, Json>, key: &str, value: impl Into<Json>) {
    fields.insert(key.to_owned(), value.into());
}

fn put_some(fields: &mut Map<String, Json>, key: &str, value: Option<&String>) {
    if let Some(value) = value {
        put(fields, key, value.as_str());
    }
}

fn put_map(fields: &mut Map<String, Json>, value: &Map<String, Json>) {
    if !value.is_empty() {
        put(fields, "metadata", value.clone());
    }
}

fn kind(fields: &mut Map<String, Json>, format: A2aWireFormat, kind: &str) {
    if format == A2aWireFormat::JsonRpcV0_3 {
        put(fields, "kind", kind);
    }
}

/// Encodes a message.
pub fn message(message: &Message, format: A2aWireFormat) -> Json {
    let mut fields = Map::new();
    kind(&mut fields, format, "message");
    put(&mut fields, "messageId", message.id.as_str());
    put(&mut fields, "role", format.role(message.role));
    put_some(&mut fields, "contextId", message.context_id.as_ref());
    put_some(&mut fields, "taskId", message.task_id.as_ref());
    put(&mut fields, format.parts_key(), parts(&message.parts, format));
    put_map(&mut fields, &message.metadata);
    Json::Object(fields)
}

fn parts(parts: &[Part], format: A2aWireFormat) -> Vec<Json> {
    parts.iter().map(|one| part(one, format)).collect()
}

fn part(part: &Part, format: A2aWireFormat) -> Json {
    match (part, format) {
        (Part::Text(text), A2aWireFormat::JsonRpcV0_3) => json!({"kind": "text", "text": text}),
        (Part::Text(text), _) => json!({"text": text}),
        (Part::Data(data), A2aWireFormat::JsonRpcV0_3) => json!({"kind": "data", "data": data}),
        (Part::Data(data), A2aWireFormat::ProtoJsonV0_3) => json!({"data": {"data": data}}),
        (Part::Data(data), A2aWireFormat::ProtoJsonV1_0) => json!({"data": data}),
        (Part::File(file), _) => self::file(file, format),
    }
}

fn file(file: &FileData, format: A2aWireFormat) -> Json {
    let (uri, bytes, name, media) = match format {
        A2aWireFormat::JsonRpcV0_3 => ("uri", "bytes", "name", "mimeType"),
        A2aWireFormat::ProtoJsonV0_3 => ("fileWithUri", "fileWithBytes", "name", "mimeType"),
        A2aWireFormat::ProtoJsonV1_0 => ("url", "raw", "filename", "mediaType"),
    };
    let mut fields = Map::new();
    put_some(&mut fields, uri, file.uri.as_ref());
    if file.uri.is_none() {
        put_some(&mut fields, bytes, file.bytes.as_ref());
    }
    put_some(&mut fields, name, file.name.as_ref());
    put_some(&mut fields, media, file.media_type.as_ref());
    match format {
        A2aWireFormat::JsonRpcV0_3 => json!({"kind": "file", "file": fields}),
        A2aWireFormat::ProtoJsonV0_3 => json!({"file": fields}),
        A2aWireFormat::ProtoJsonV1_0 => Json::Object(fields),
    }
}

fn status(status: &Status, format: A2aWireFormat) -> Json {
    let mut fields = Map::new();
    put(&mut fields, "state", format.state(status.state));
    if let Some(said) = &status.message {
        put(&mut fields, "message", message(said, format));
    }
    put_some(&mut fields, "timestamp", status.timestamp.as_ref());
    Json::Object(fields)
}

fn artifact(artifact: &Artifact, format: A2aWireFormat) -> Json {
    let mut fields = Map::new();
    put(&mut fields, "artifactId", artifact.id.as_str());
    put_some(&mut fields, "name", artifact.name.as_ref());
    put_some(&mut fields, "description", artifact.description.as_ref());
    put(&mut fields, "parts", parts(&artifact.parts, format));
    put_map(&mut fields, &artifact.metadata);
    Json::Object(fields)
}

/// Encodes a task.
pub fn task(task: &Task, format: A2aWireFormat) -> Json {
    let mut fields = Map::new();
    kind(&mut fields, format, "task");
    put(&mut fields, "id", task.id.as_str());
    put(&mut fields, "contextId", task.context_id.as_str());
    put(&mut fields, "status", status(&task.status, format));
    if !task.artifacts.is_empty() {
        put(&mut fields, "artifacts", task.artifacts.iter().map(|one| artifact(one, format)).collect::<Vec<_>>());
    }
    if !task.history.is_empty() {
        put(&mut fields, "history", task.history.iter().map(|one| message(one, format)).collect::<Vec<_>>());
    }
    put_map(&mut fields, &task.metadata);
    Json::Object(fields)
}

/// Encodes a response to a message, or an event of a stream.
pub fn update(update: &Update, format: A2aWireFormat) -> Json {
    let (name, inner) = match update {
        Update::Message(said) => ("message", message(said, format)),
        Update::Task(one) => ("task", task(one, format)),
        Update::Status(change) => {
            let mut fields = Map::new();
            kind(&mut fields, format, "status-update");
            put(&mut fields, "taskId", change.task_id.as_str());
            put(&mut fields, "contextId", change.context_id.as_str());
            put(&mut fields, "status", status(&change.status, format));
            if format != A2aWireFormat::ProtoJsonV1_0 {
                put(&mut fields, "final", change.last);
            }
            put_map(&mut fields, &change.metadata);
            ("statusUpdate", Json::Object(fields))
        }
        Update::Artifact(change) => {
            let mut fields = Map::new();
            kind(&mut fields, format, "artifact-update");
            put(&mut fields, "taskId", change.task_id.as_str());
            put(&mut fields, "contextId", change.context_id.as_str());
            put(&mut fields, "artifact", artifact(&change.artifact, format));
            put(&mut fields, "append", change.append);
            put(&mut fields, "lastChunk", change.last_chunk);
            ("artifactUpdate", Json::Object(fields))
        }
    };
    if format == A2aWireFormat::JsonRpcV0_3 { inner } else { json!({ name: inner }) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{
        super::{
            decode,
            model::{ArtifactUpdate, Role, StatusUpdate, TaskState},
        },
        *,
    };

    fn task_with_all_parts() -> Task {
        let file = FileData {
            name: Some("y".into()),
            media_type: Some("image/png".into()),
            uri: None,
            bytes: Some("aGk=".into()),
        };
        let parts = vec![Part::Text("a".into()), Part::Data(json!({"n": [1, 2.5]})), Part::File(file)];
        let said = Message { parts: parts.clone(), task_id: Some("t".into()), ..Message::text(Role::Agent, "m", "") };
        let status = Status { state: TaskState::InputRequired, message: Some(said.clone()), timestamp: None };
        let made = Artifact { id: "a".into(), name: Some("made".into()), parts, ..Artifact::default() };
        let mut task = Task::new("t", "c");
        (task.status, task.artifacts, task.history) = (status, vec![made], vec![said]);
        task
    }

    #[test]
    fn updates_round_trip_in_every_format() {
        let task = task_with_all_parts();
        let change = StatusUpdate {
            task_id: "t".into(),
            context_id: "c".into(),
            status: task.status.clone(),
            last: false,
            metadata: Map::new(),
        };
        let piece = ArtifactUpdate {
            task_id: "t".into(),
            context_id: "c".into(),
            artifact: task.artifacts[0].clone(),
            append: true,
            last_chunk: true,
        };
        let said = task.history[0].clone();
        let all = [Update::Task(task), Update::Message(said), Update::Status(change), Update::Artifact(piece)];
        for format in [A2aWireFormat::JsonRpcV0_3, A2aWireFormat::ProtoJsonV0_3, A2aWireFormat::ProtoJsonV1_0] {
            for one in &all {
                assert_eq!(decode::update(&update(one, format), format).as_ref(), Ok(one), "{format:?}");
            }
        }
    }
}

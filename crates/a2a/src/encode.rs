//! From the objects to JSON, in each way of writing.

use serde_json::{Map, Value as Json, json};

use super::{
    dialect::A2aWireFormat,
    model::{Artifact, File, Message, Part, Status, Task, Update},
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

fn kind(fields: &mut Map<String, Json>, dialect: A2aWireFormat, kind: &str) {
    if dialect == A2aWireFormat::Old {
        put(fields, "kind", kind);
    }
}

/// A message.
pub fn message(message: &Message, dialect: A2aWireFormat) -> Json {
    let mut fields = Map::new();
    kind(&mut fields, dialect, "message");
    put(&mut fields, "messageId", message.id.as_str());
    put(&mut fields, "role", dialect.role(message.role));
    put_some(&mut fields, "contextId", message.context_id.as_ref());
    put_some(&mut fields, "taskId", message.task_id.as_ref());
    put(&mut fields, dialect.parts_key(), parts(&message.parts, dialect));
    put_map(&mut fields, &message.metadata);
    Json::Object(fields)
}

fn parts(parts: &[Part], dialect: A2aWireFormat) -> Vec<Json> {
    parts.iter().map(|one| part(one, dialect)).collect()
}

fn part(part: &Part, dialect: A2aWireFormat) -> Json {
    match (part, dialect) {
        (Part::Text(text), A2aWireFormat::Old) => json!({"kind": "text", "text": text}),
        (Part::Text(text), _) => json!({"text": text}),
        (Part::Data(data), A2aWireFormat::Old) => json!({"kind": "data", "data": data}),
        (Part::Data(data), A2aWireFormat::OldRest) => json!({"data": {"data": data}}),
        (Part::Data(data), A2aWireFormat::New) => json!({"data": data}),
        (Part::File(file), _) => self::file(file, dialect),
    }
}

fn file(file: &File, dialect: A2aWireFormat) -> Json {
    let (uri, bytes, name, media) = match dialect {
        A2aWireFormat::Old => ("uri", "bytes", "name", "mimeType"),
        A2aWireFormat::OldRest => ("fileWithUri", "fileWithBytes", "name", "mimeType"),
        A2aWireFormat::New => ("url", "raw", "filename", "mediaType"),
    };
    let mut fields = Map::new();
    put_some(&mut fields, uri, file.uri.as_ref());
    if file.uri.is_none() {
        put_some(&mut fields, bytes, file.bytes.as_ref());
    }
    put_some(&mut fields, name, file.name.as_ref());
    put_some(&mut fields, media, file.media_type.as_ref());
    match dialect {
        A2aWireFormat::Old => json!({"kind": "file", "file": fields}),
        A2aWireFormat::OldRest => json!({"file": fields}),
        A2aWireFormat::New => Json::Object(fields),
    }
}

fn status(status: &Status, dialect: A2aWireFormat) -> Json {
    let mut fields = Map::new();
    put(&mut fields, "state", dialect.state(status.state));
    if let Some(said) = &status.message {
        put(&mut fields, "message", message(said, dialect));
    }
    put_some(&mut fields, "timestamp", status.timestamp.as_ref());
    Json::Object(fields)
}

fn artifact(artifact: &Artifact, dialect: A2aWireFormat) -> Json {
    let mut fields = Map::new();
    put(&mut fields, "artifactId", artifact.id.as_str());
    put_some(&mut fields, "name", artifact.name.as_ref());
    put_some(&mut fields, "description", artifact.description.as_ref());
    put(&mut fields, "parts", parts(&artifact.parts, dialect));
    put_map(&mut fields, &artifact.metadata);
    Json::Object(fields)
}

/// A task.
pub fn task(task: &Task, dialect: A2aWireFormat) -> Json {
    let mut fields = Map::new();
    kind(&mut fields, dialect, "task");
    put(&mut fields, "id", task.id.as_str());
    put(&mut fields, "contextId", task.context_id.as_str());
    put(&mut fields, "status", status(&task.status, dialect));
    if !task.artifacts.is_empty() {
        put(&mut fields, "artifacts", task.artifacts.iter().map(|one| artifact(one, dialect)).collect::<Vec<_>>());
    }
    if !task.history.is_empty() {
        put(&mut fields, "history", task.history.iter().map(|one| message(one, dialect)).collect::<Vec<_>>());
    }
    put_map(&mut fields, &task.metadata);
    Json::Object(fields)
}

/// An answer to a message, or an event of a stream.
pub fn update(update: &Update, dialect: A2aWireFormat) -> Json {
    let (name, inner) = match update {
        Update::Message(said) => ("message", message(said, dialect)),
        Update::Task(one) => ("task", task(one, dialect)),
        Update::Status(change) => {
            let mut fields = Map::new();
            kind(&mut fields, dialect, "status-update");
            put(&mut fields, "taskId", change.task_id.as_str());
            put(&mut fields, "contextId", change.context_id.as_str());
            put(&mut fields, "status", status(&change.status, dialect));
            if dialect != A2aWireFormat::New {
                put(&mut fields, "final", change.last);
            }
            put_map(&mut fields, &change.metadata);
            ("statusUpdate", Json::Object(fields))
        }
        Update::Artifact(change) => {
            let mut fields = Map::new();
            kind(&mut fields, dialect, "artifact-update");
            put(&mut fields, "taskId", change.task_id.as_str());
            put(&mut fields, "contextId", change.context_id.as_str());
            put(&mut fields, "artifact", artifact(&change.artifact, dialect));
            put(&mut fields, "append", change.append);
            put(&mut fields, "lastChunk", change.last_chunk);
            ("artifactUpdate", Json::Object(fields))
        }
    };
    if dialect == A2aWireFormat::Old { inner } else { json!({ name: inner }) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{
        super::{
            model::{ArtifactUpdate, Role, StatusUpdate, TaskState},
            reading,
        },
        *,
    };

    fn task_of_all() -> Task {
        let file = File {
            name: Some("y".into()),
            media_type: Some("image/png".into()),
            uri: None,
            bytes: Some("aGk=".into()),
        };
        let parts = vec![Part::Text("a".into()), Part::Data(json!({"n": [1, 2.5]})), Part::File(file)];
        let said = Message { parts: parts.clone(), task_id: Some("t".into()), ..Message::text(Role::Agent, "m", "") };
        let status = Status { state: TaskState::InputRequired, message: Some(said.clone()), timestamp: None };
        let made = Artifact { id: "a".into(), name: Some("made".into()), parts, ..Artifact::default() };
        let mut task = Task::named("t", "c");
        (task.status, task.artifacts, task.history) = (status, vec![made], vec![said]);
        task
    }

    #[test]
    fn what_is_written_is_read_again() {
        let task = task_of_all();
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
        for dialect in [A2aWireFormat::Old, A2aWireFormat::OldRest, A2aWireFormat::New] {
            for one in &all {
                assert_eq!(reading::update(&update(one, dialect), dialect).as_ref(), Ok(one), "{dialect:?}");
            }
        }
    }
}

//! Decoding of JSON into the objects of [`model`](super::model). It is lenient: missing fields are empty, unknown ones
//! are ignored, and only what is unusable is an error.

use serde_json::{Map, Value as Json};

use super::{
    model::{Artifact, ArtifactUpdate, FileData, Message, Part, Role, Status, StatusUpdate, Task, TaskState, Update},
    version::{A2aWireFormat, parse_state},
};

fn text(json: &Json, key: &str) -> Option<String> {
    json.get(key)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn required(json: &Json, key: &str, what: &str) -> Result<String, String> {
    text(json, key).ok_or_else(|| format!("{what} without `{key}`"))
}

fn map(json: &Json, key: &str) -> Map<String, Json> {
    json.get(key).and_then(Json::as_object).cloned().unwrap_or_default()
}

fn list<'a>(json: &'a Json, key: &str) -> &'a [Json] {
    json.get(key).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Decodes a response to a message, or an event of a stream.
///
/// # Errors
/// A text: it is not a task, a message, or an update of a task.
pub fn update(json: &Json, format: A2aWireFormat) -> Result<Update, String> {
    // Version 1.0 wraps objects, and so does 0.3 over HTTP+JSON. Some 0.3 servers write `msg` for `message`, as their
    // proto file does.
    for (key, read) in WRAPPERS {
        if let Some(inner) = json.get(key).filter(|inner| inner.is_object()) {
            return read(inner, format);
        }
    }
    match json.get("kind").and_then(Json::as_str) {
        Some("message") => message(json, format).map(Update::Message),
        Some("task") => task(json, format).map(Update::Task),
        Some("status-update") => status_change(json, format),
        Some("artifact-update") => artifact_change(json, format),
        _ if json.get("artifact").is_some() => artifact_change(json, format),
        _ if json.get("taskId").is_some() && json.get("status").is_some() => status_change(json, format),
        _ if json.get("id").is_some() && json.get("status").is_some() => task(json, format).map(Update::Task),
        _ if json.get("messageId").is_some() => message(json, format).map(Update::Message),
        _ => Err("neither a task nor a message nor a task update".to_owned()),
    }
}

type Decoder = fn(&Json, A2aWireFormat) -> Result<Update, String>;

const WRAPPERS: [(&str, Decoder); 5] = [
    ("task", |json, format| task(json, format).map(Update::Task)),
    ("message", |json, format| message(json, format).map(Update::Message)),
    ("msg", |json, format| message(json, format).map(Update::Message)),
    ("statusUpdate", status_change),
    ("artifactUpdate", artifact_change),
];

fn status_change(json: &Json, format: A2aWireFormat) -> Result<Update, String> {
    Ok(Update::Status(StatusUpdate {
        task_id: required(json, "taskId", "a task update")?,
        context_id: text(json, "contextId").unwrap_or_default(),
        status: status(json.get("status").unwrap_or(&Json::Null), format)?,
        last: json.get("final").and_then(Json::as_bool).unwrap_or_default(),
        metadata: map(json, "metadata"),
    }))
}

fn artifact_change(json: &Json, format: A2aWireFormat) -> Result<Update, String> {
    let flag = |key: &str| json.get(key).and_then(Json::as_bool).unwrap_or_default();
    Ok(Update::Artifact(ArtifactUpdate {
        task_id: required(json, "taskId", "an artifact")?,
        context_id: text(json, "contextId").unwrap_or_default(),
        artifact: artifact(json.get("artifact").unwrap_or(&Json::Null), format),
        append: flag("append"),
        last_chunk: flag("lastChunk"),
    }))
}

/// Decodes a task.
///
/// # Errors
/// A text if it has no id.
pub fn task(json: &Json, format: A2aWireFormat) -> Result<Task, String> {
    Ok(Task {
        id: required(json, "id", "a task")?,
        context_id: text(json, "contextId").unwrap_or_default(),
        status: status(json.get("status").unwrap_or(&Json::Null), format)?,
        artifacts: list(json, "artifacts").iter().map(|one| artifact(one, format)).collect(),
        history: list(json, "history").iter().filter_map(|one| message(one, format).ok()).collect(),
        metadata: map(json, "metadata"),
    })
}

fn status(json: &Json, format: A2aWireFormat) -> Result<Status, String> {
    // Some 0.3 servers write `update`, the name of the field in the proto file.
    let said = ["message", "update"].into_iter().find_map(|key| json.get(key)).filter(|said| said.is_object());
    Ok(Status {
        state: json.get("state").map_or(TaskState::Unknown, parse_state),
        // An invalid message is ignored: the state matters more.
        message: said.and_then(|said| message(said, format).ok()),
        timestamp: text(json, "timestamp"),
    })
}

/// Decodes a message.
///
/// # Errors
/// A text if it has no parts.
pub fn message(json: &Json, format: A2aWireFormat) -> Result<Message, String> {
    let found = ["parts", "content"].into_iter().find_map(|key| json.get(key)).and_then(Json::as_array);
    let parts = found.ok_or_else(|| format!("a message without `{}`", format.parts_key()))?;
    let role = text(json, "role").unwrap_or_default().to_ascii_lowercase();
    Ok(Message {
        id: text(json, "messageId").unwrap_or_default(),
        context_id: text(json, "contextId"),
        task_id: text(json, "taskId"),
        role: if role.ends_with("user") { Role::User } else { Role::Agent },
        parts: parts.iter().filter_map(|one| part(one, format)).collect(),
        metadata: map(json, "metadata"),
    })
}

fn artifact(json: &Json, format: A2aWireFormat) -> Artifact {
    Artifact {
        id: text(json, "artifactId").unwrap_or_default(),
        name: text(json, "name"),
        description: text(json, "description"),
        parts: list(json, "parts").iter().filter_map(|one| part(one, format)).collect(),
        metadata: map(json, "metadata"),
    }
}

/// Decodes a part; `None` for one of an unknown kind.
fn part(json: &Json, format: A2aWireFormat) -> Option<Part> {
    if let Some(said) = json.get("text").and_then(Json::as_str) {
        return Some(Part::Text(said.to_owned()));
    }
    if let Some(data) = json.get("data") {
        let inner = if format == A2aWireFormat::ProtoJsonV0_3 { data.get("data").unwrap_or(data) } else { data };
        return Some(Part::Data(integers_restored(inner.clone())));
    }
    if let Some(file) = json.get("file") {
        return Some(Part::File(FileData {
            name: text(file, "name"),
            media_type: text(file, "mimeType"),
            uri: text(file, "uri").or_else(|| text(file, "fileWithUri")),
            bytes: text(file, "bytes").or_else(|| text(file, "fileWithBytes")),
        }));
    }
    let (uri, bytes) = (text(json, "url"), text(json, "raw"));
    (uri.is_some() || bytes.is_some())
        .then(|| Part::File(FileData { name: text(json, "filename"), media_type: text(json, "mediaType"), uri, bytes }))
}

/// Turns floats with integral values into integers: protocol buffers have no integers in JSON values, so 3 arrives as
/// 3.0.
fn integers_restored(json: Json) -> Json {
    /// The largest float below which all integers are exact: 2^53.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match json {
        Json::Number(number) => match number.as_f64() {
            #[allow(clippy::cast_possible_truncation)] // whole and within range, as was just seen
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT => Json::from(float as i64),
            _ => Json::Number(number),
        },
        Json::Array(items) => Json::Array(items.into_iter().map(integers_restored).collect()),
        Json::Object(fields) => {
            Json::Object(fields.into_iter().map(|(key, value)| (key, integers_restored(value))).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use serde_json::json;

    use super::*;

    #[test]
    fn all_formats_of_a_message_decode_to_the_same() {
        let old = json!({"kind": "message", "messageId": "m", "role": "agent", "contextId": "c", "parts": [
            {"kind": "text", "text": "hi"}, {"kind": "data", "data": {"n": 1}},
            {"kind": "file", "file": {"uri": "https://x/y", "mimeType": "text/plain", "name": "y"}},
        ]});
        let rest = json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "contextId": "c", "content": [
            {"text": "hi"}, {"data": {"data": {"n": 1.0}}},
            {"file": {"fileWithUri": "https://x/y", "mimeType": "text/plain", "name": "y"}},
        ]}});
        let new = json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "contextId": "c", "parts": [
            {"text": "hi"}, {"data": {"n": 1.0}}, {"url": "https://x/y", "mediaType": "text/plain", "filename": "y"},
        ]}});
        let read: Vec<_> = [
            (old, A2aWireFormat::JsonRpcV0_3),
            (rest, A2aWireFormat::ProtoJsonV0_3),
            (new, A2aWireFormat::ProtoJsonV1_0),
        ]
        .into_iter()
        .map(|(json, format)| update(&json, format).unwrap())
        .collect();
        assert_eq!(read[0], read[1]);
        assert_eq!(read[1], read[2]);
        let Update::Message(message) = &read[0] else { panic!("{read:?}") };
        assert_eq!(message.parts[1], Part::Data(json!({"n": 1})));
        assert_eq!(super::super::model::text_of(&message.parts), "hi\nFile: https://x/y");
    }

    #[test]
    fn unusable_objects_are_errors() {
        for (json, says) in [
            (json!({}), "neither"),
            (json!({"kind": "task"}), "without `id`"),
            (json!({"kind": "message", "messageId": "m"}), "without `parts`"),
            (json!({"statusUpdate": {"status": {}}}), "without `taskId`"),
        ] {
            let error = update(&json, A2aWireFormat::JsonRpcV0_3).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn artifact_chunks_are_joined() {
        let piece = |text: &str, append: bool| {
            let json = json!({"kind": "artifact-update", "taskId": "t", "contextId": "c", "append": append,
                "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": text}]}});
            update(&json, A2aWireFormat::JsonRpcV0_3).unwrap()
        };
        let mut task = Task::new("t", "c");
        for update in [piece("one", false), piece(" two", true), piece("three", false), piece("!", true)] {
            task.take(update);
        }
        assert_eq!(task.artifacts.len(), 1);
        assert_eq!(super::super::model::text_of(&task.artifacts[0].parts), "three!");
    }
}

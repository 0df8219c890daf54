//! From JSON to the objects. Lenient: what is missing is empty, what is unknown is left out, and only what cannot be acted on
//! is an error.

use serde_json::{Map, Value as Json};

use super::{
    dialect::{A2aWireFormat, state},
    model::{Artifact, ArtifactUpdate, File, Message, Part, Role, Status, StatusUpdate, Task, TaskState, Update},
};

fn text(json: &Json, key: &str) -> Option<String> {
    json.get(key)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn needed(json: &Json, key: &str, what: &str) -> Result<String, String> {
    text(json, key).ok_or_else(|| format!("{what} without `{key}`"))
}

fn map(json: &Json, key: &str) -> Map<String, Json> {
    json.get(key).and_then(Json::as_object).cloned().unwrap_or_default()
}

fn list<'a>(json: &'a Json, key: &str) -> &'a [Json] {
    json.get(key).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// What an answer or an event of a stream says.
///
/// # Errors
/// In words: it is none of the things that may come.
pub fn update(json: &Json, dialect: A2aWireFormat) -> Result<Update, String> {
    // The newer generation wraps, and so does the older one over plain HTTP; `msg` is how some of its servers say `message`.
    for (key, read) in WRAPPED {
        if let Some(inner) = json.get(key).filter(|inner| inner.is_object()) {
            return read(inner, dialect);
        }
    }
    match json.get("kind").and_then(Json::as_str) {
        Some("message") => message(json, dialect).map(Update::Message),
        Some("task") => task(json, dialect).map(Update::Task),
        Some("status-update") => status_change(json, dialect),
        Some("artifact-update") => artifact_change(json, dialect),
        _ if json.get("artifact").is_some() => artifact_change(json, dialect),
        _ if json.get("taskId").is_some() && json.get("status").is_some() => status_change(json, dialect),
        _ if json.get("id").is_some() && json.get("status").is_some() => task(json, dialect).map(Update::Task),
        _ if json.get("messageId").is_some() => message(json, dialect).map(Update::Message),
        _ => Err("neither a task nor a message nor a change of a task".to_owned()),
    }
}

type Read = fn(&Json, A2aWireFormat) -> Result<Update, String>;

const WRAPPED: [(&str, Read); 5] = [
    ("task", |json, dialect| task(json, dialect).map(Update::Task)),
    ("message", |json, dialect| message(json, dialect).map(Update::Message)),
    ("msg", |json, dialect| message(json, dialect).map(Update::Message)),
    ("statusUpdate", status_change),
    ("artifactUpdate", artifact_change),
];

fn status_change(json: &Json, dialect: A2aWireFormat) -> Result<Update, String> {
    Ok(Update::Status(StatusUpdate {
        task_id: needed(json, "taskId", "a change of a task")?,
        context_id: text(json, "contextId").unwrap_or_default(),
        status: status(json.get("status").unwrap_or(&Json::Null), dialect)?,
        last: json.get("final").and_then(Json::as_bool).unwrap_or_default(),
        metadata: map(json, "metadata"),
    }))
}

fn artifact_change(json: &Json, dialect: A2aWireFormat) -> Result<Update, String> {
    let flag = |key: &str| json.get(key).and_then(Json::as_bool).unwrap_or_default();
    Ok(Update::Artifact(ArtifactUpdate {
        task_id: needed(json, "taskId", "an artifact")?,
        context_id: text(json, "contextId").unwrap_or_default(),
        artifact: artifact(json.get("artifact").unwrap_or(&Json::Null), dialect),
        append: flag("append"),
        last_chunk: flag("lastChunk"),
    }))
}

/// A task.
///
/// # Errors
/// In words: it has no id.
pub fn task(json: &Json, dialect: A2aWireFormat) -> Result<Task, String> {
    Ok(Task {
        id: needed(json, "id", "a task")?,
        context_id: text(json, "contextId").unwrap_or_default(),
        status: status(json.get("status").unwrap_or(&Json::Null), dialect)?,
        artifacts: list(json, "artifacts").iter().map(|one| artifact(one, dialect)).collect(),
        history: list(json, "history").iter().filter_map(|one| message(one, dialect).ok()).collect(),
        metadata: map(json, "metadata"),
    })
}

fn status(json: &Json, dialect: A2aWireFormat) -> Result<Status, String> {
    // Some servers of the older generation write the name that the field has in its protocol buffers.
    let said = ["message", "update"].into_iter().find_map(|key| json.get(key)).filter(|said| said.is_object());
    Ok(Status {
        state: json.get("state").map_or(TaskState::Unknown, state),
        // A remark that cannot be read is no reason to lose the state.
        message: said.and_then(|said| message(said, dialect).ok()),
        timestamp: text(json, "timestamp"),
    })
}

/// A message.
///
/// # Errors
/// In words: it has no parts.
pub fn message(json: &Json, dialect: A2aWireFormat) -> Result<Message, String> {
    let found = ["parts", "content"].into_iter().find_map(|key| json.get(key)).and_then(Json::as_array);
    let parts = found.ok_or_else(|| format!("a message without `{}`", dialect.parts_key()))?;
    let role = text(json, "role").unwrap_or_default().to_ascii_lowercase();
    Ok(Message {
        id: text(json, "messageId").unwrap_or_default(),
        context_id: text(json, "contextId"),
        task_id: text(json, "taskId"),
        role: if role.ends_with("user") { Role::User } else { Role::Agent },
        parts: parts.iter().filter_map(|one| part(one, dialect)).collect(),
        metadata: map(json, "metadata"),
    })
}

fn artifact(json: &Json, dialect: A2aWireFormat) -> Artifact {
    Artifact {
        id: text(json, "artifactId").unwrap_or_default(),
        name: text(json, "name"),
        description: text(json, "description"),
        parts: list(json, "parts").iter().filter_map(|one| part(one, dialect)).collect(),
        metadata: map(json, "metadata"),
    }
}

/// A part; `None` for one of a kind that nobody knows.
fn part(json: &Json, dialect: A2aWireFormat) -> Option<Part> {
    if let Some(said) = json.get("text").and_then(Json::as_str) {
        return Some(Part::Text(said.to_owned()));
    }
    if let Some(data) = json.get("data") {
        let inner = if dialect == A2aWireFormat::OldRest { data.get("data").unwrap_or(data) } else { data };
        return Some(Part::Data(settled(inner.clone())));
    }
    if let Some(file) = json.get("file") {
        return Some(Part::File(File {
            name: text(file, "name"),
            media_type: text(file, "mimeType"),
            uri: text(file, "uri").or_else(|| text(file, "fileWithUri")),
            bytes: text(file, "bytes").or_else(|| text(file, "fileWithBytes")),
        }));
    }
    let (uri, bytes) = (text(json, "url"), text(json, "raw"));
    (uri.is_some() || bytes.is_some())
        .then(|| Part::File(File { name: text(json, "filename"), media_type: text(json, "mediaType"), uri, bytes }))
}

/// Numbers of protocol buffers have no whole kind: 3 comes as 3.0 and means 3.
fn settled(json: Json) -> Json {
    /// Above this a floating number is not exact any more.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match json {
        Json::Number(number) => match number.as_f64() {
            #[allow(clippy::cast_possible_truncation)] // whole and within range, as was just seen
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT => Json::from(float as i64),
            _ => Json::Number(number),
        },
        Json::Array(items) => Json::Array(items.into_iter().map(settled).collect()),
        Json::Object(fields) => Json::Object(fields.into_iter().map(|(key, value)| (key, settled(value))).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use serde_json::json;

    use super::*;

    #[test]
    fn the_three_forms_of_a_message_mean_the_same() {
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
        let read: Vec<_> = [(old, A2aWireFormat::Old), (rest, A2aWireFormat::OldRest), (new, A2aWireFormat::New)]
            .into_iter()
            .map(|(json, dialect)| update(&json, dialect).unwrap())
            .collect();
        assert_eq!(read[0], read[1]);
        assert_eq!(read[1], read[2]);
        let Update::Message(message) = &read[0] else { panic!("{read:?}") };
        assert_eq!(message.parts[1], Part::Data(json!({"n": 1})));
        assert_eq!(super::super::model::text_of(&message.parts), "hi\nFile: https://x/y");
    }

    #[test]
    fn what_says_nothing_is_told() {
        for (json, says) in [
            (json!({}), "neither"),
            (json!({"kind": "task"}), "without `id`"),
            (json!({"kind": "message", "messageId": "m"}), "without `parts`"),
            (json!({"statusUpdate": {"status": {}}}), "without `taskId`"),
        ] {
            let error = update(&json, A2aWireFormat::Old).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn pieces_of_an_artifact_become_one() {
        let piece = |text: &str, append: bool| {
            let json = json!({"kind": "artifact-update", "taskId": "t", "contextId": "c", "append": append,
                "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": text}]}});
            update(&json, A2aWireFormat::Old).unwrap()
        };
        let mut task = Task::named("t", "c");
        for update in [piece("one", false), piece(" two", true), piece("three", false), piece("!", true)] {
            task.take(update);
        }
        assert_eq!(task.artifacts.len(), 1);
        assert_eq!(super::super::model::text_of(&task.artifacts[0].parts), "three!");
    }
}

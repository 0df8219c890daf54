//! The objects of the protocol, independent of version and JSON form; see [`encode`](super::encode) and
//! [`decode`](super::decode).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The client.
    User,
    /// The agent.
    Agent,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Its id, assigned by the sender.
    pub id: String,
    /// The conversation it belongs to.
    pub context_id: Option<String>,
    /// The task it belongs to.
    pub task_id: Option<String>,
    /// Its author.
    pub role: Role,
    /// Its content.
    pub parts: Vec<Part>,
    /// Metadata of the sender.
    pub metadata: Map<String, Json>,
}

/// A part of a message or an artifact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Text.
    Text(String),
    /// Structured data.
    Data(Json),
    /// A file.
    File(FileData),
}

/// A file: a URI, or its bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileData {
    /// Its name.
    pub name: Option<String>,
    /// Its media type.
    pub media_type: Option<String>,
    /// Its URI.
    pub uri: Option<String>,
    /// Its bytes in base64.
    pub bytes: Option<String>,
}

/// The state of a task (`TaskState` in the specification).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Accepted, not started.
    Submitted,
    /// Running.
    Working,
    /// Waits for input of the user.
    InputRequired,
    /// Completed.
    Completed,
    /// Cancelled by the client.
    Canceled,
    /// Failed.
    Failed,
    /// Rejected by the agent.
    Rejected,
    /// Waits for authentication.
    AuthRequired,
    /// Unknown.
    Unknown,
}

impl TaskState {
    /// Whether the state is terminal. A message must not name a task in a terminal state.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Canceled | Self::Failed | Self::Rejected)
    }
    /// Whether the task is interrupted: it waits for input or authentication.
    pub fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }
    /// Whether the agent makes no further progress by itself.
    pub fn is_terminal_or_interrupted(self) -> bool {
        self.is_terminal() || self.is_interrupted()
    }
    /// Its name, as version 0.3 writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Working => "working",
            Self::InputRequired => "input-required",
            Self::Completed => "completed",
            Self::Canceled => "canceled",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::AuthRequired => "auth-required",
            Self::Unknown => "unknown",
        }
    }
}

/// A state with an optional message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The state.
    pub state: TaskState,
    /// The message.
    pub message: Option<Message>,
    /// The time in ISO 8601.
    pub timestamp: Option<String>,
}

/// A result of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// Its id within the task.
    pub id: String,
    /// Its name.
    pub name: Option<String>,
    /// Its description.
    pub description: Option<String>,
    /// Its content.
    pub parts: Vec<Part>,
    /// Metadata of the sender.
    pub metadata: Map<String, Json>,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Its id, assigned by the agent.
    pub id: String,
    /// The conversation it belongs to.
    pub context_id: String,
    /// Its status.
    pub status: Status,
    /// Its results.
    pub artifacts: Vec<Artifact>,
    /// Its messages, oldest first.
    pub history: Vec<Message>,
    /// Metadata of the sender.
    pub metadata: Map<String, Json>,
}

/// A change of the status of a task (`TaskStatusUpdateEvent`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusUpdate {
    /// The task.
    pub task_id: String,
    /// Its conversation.
    pub context_id: String,
    /// The new state.
    pub status: Status,
    /// Whether the stream ends after this event; only version 0.3 sends this.
    pub last: bool,
    /// Metadata of the sender.
    pub metadata: Map<String, Json>,
}

/// A new artifact of a task or a part of one (`TaskArtifactUpdateEvent`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArtifactUpdate {
    /// The task.
    pub task_id: String,
    /// Its conversation.
    pub context_id: String,
    /// The artifact.
    pub artifact: Artifact,
    /// Whether its parts are appended to the existing artifact of this id; otherwise it replaces it.
    pub append: bool,
    /// Whether this is the last chunk.
    pub last_chunk: bool,
}

/// A response to a message, or an event of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Update {
    /// A message without a task.
    Message(Message),
    /// A task.
    Task(Task),
    /// A status change.
    Status(StatusUpdate),
    /// An artifact, or a part of one.
    Artifact(ArtifactUpdate),
}

impl Message {
    /// A message with one text part.
    pub fn text(role: Role, id: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            context_id: None,
            task_id: None,
            role,
            parts: vec![Part::Text(text.into())],
            metadata: Map::new(),
        }
    }
}

/// The text of parts: texts in order, and the URIs of files. Data parts have no text.
pub fn text_of(parts: &[Part]) -> String {
    let lines = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.clone()),
        Part::File(FileData { uri: Some(uri), .. }) => Some(format!("File: {uri}")),
        Part::File(_) | Part::Data(_) => None,
    });
    lines.filter(|line| !line.trim().is_empty()).collect::<Vec<_>>().join("\n")
}

impl Task {
    /// An empty task with these ids.
    pub fn new(id: &str, context_id: &str) -> Self {
        Self {
            id: id.to_owned(),
            context_id: context_id.to_owned(),
            status: Status { state: TaskState::Submitted, message: None, timestamp: None },
            artifacts: Vec::new(),
            history: Vec::new(),
            metadata: Map::new(),
        }
    }
    /// A task made from its first status change.
    pub fn from_status_update(change: StatusUpdate) -> Self {
        let mut task = Self::new(&change.task_id, &change.context_id);
        task.status = change.status;
        task
    }
    /// Applies an update. A message changes nothing.
    pub fn take(&mut self, update: Update) {
        match update {
            Update::Task(task) => *self = task,
            Update::Status(change) => {
                let before = std::mem::replace(&mut self.status, change.status);
                self.history.extend(before.message);
            }
            Update::Artifact(change) => self.take_artifact(change),
            Update::Message(_) => {}
        }
    }
    fn take_artifact(&mut self, change: ArtifactUpdate) {
        let known = self.artifacts.iter_mut().find(|known| known.id == change.artifact.id);
        match known {
            Some(known) if change.append => {
                for part in change.artifact.parts {
                    match (known.parts.last_mut(), part) {
                        // Text chunks are joined into one text.
                        (Some(Part::Text(text)), Part::Text(more)) => text.push_str(&more),
                        (_, part) => known.parts.push(part),
                    }
                }
            }
            Some(known) => *known = change.artifact,
            None => self.artifacts.push(change.artifact),
        }
    }
    /// Whether the history contains a message with this id.
    pub fn history_contains(&self, message: &str) -> bool {
        self.history.iter().any(|entry| entry.id == message)
    }
}

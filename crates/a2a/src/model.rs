//! The objects of the protocol, as both generations mean them. How each is written stands in `writing`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Whoever asks.
    User,
    /// Whoever answers.
    Agent,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Its id, made by whoever sends it.
    pub id: String,
    /// The conversation it belongs to.
    pub context_id: Option<String>,
    /// The task it belongs to.
    pub task_id: Option<String>,
    /// Who speaks.
    pub role: Role,
    /// What it says.
    pub parts: Vec<Part>,
    /// What stands beside.
    pub metadata: Map<String, Json>,
}

/// A piece of what is said or made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Text.
    Text(String),
    /// Something for programs.
    Data(Json),
    /// A file.
    File(File),
}

/// A file, by address or in place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct File {
    /// Its name.
    pub name: Option<String>,
    /// Its media type.
    pub media_type: Option<String>,
    /// Where it is.
    pub uri: Option<String>,
    /// Its bytes, in base64 as they came.
    pub bytes: Option<String>,
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Taken, not begun.
    Submitted,
    /// Under way.
    Working,
    /// It waits for an answer.
    InputRequired,
    /// Done.
    Completed,
    /// Stopped by the caller.
    Canceled,
    /// Given up.
    Failed,
    /// Not taken.
    Rejected,
    /// It waits until somebody proves who they are.
    AuthRequired,
    /// Nobody knows.
    Unknown,
}

impl TaskState {
    /// Whether the task is over: its id must not be sent again.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Canceled | Self::Failed | Self::Rejected)
    }
    /// Whether it waits for somebody.
    pub fn waits(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }
    /// Whether nothing more comes by itself.
    pub fn is_settled(self) -> bool {
        self.is_over() || self.waits()
    }
    /// Its name in words, as the older generation writes it.
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

/// A state, and what is said about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The state.
    pub state: TaskState,
    /// What is said.
    pub message: Option<Message>,
    /// When, in the form of ISO 8601.
    pub timestamp: Option<String>,
}

/// Something that a task made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// Its id within the task.
    pub id: String,
    /// Its name.
    pub name: Option<String>,
    /// What it is.
    pub description: Option<String>,
    /// What it consists of.
    pub parts: Vec<Part>,
    /// What stands beside.
    pub metadata: Map<String, Json>,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Its id, made by whoever works on it.
    pub id: String,
    /// The conversation it belongs to.
    pub context_id: String,
    /// Where it stands.
    pub status: Status,
    /// What it made.
    pub artifacts: Vec<Artifact>,
    /// What was said, oldest first.
    pub history: Vec<Message>,
    /// What stands beside.
    pub metadata: Map<String, Json>,
}

/// A change of a task's state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusUpdate {
    /// The task.
    pub task_id: String,
    /// Its conversation.
    pub context_id: String,
    /// The new state.
    pub status: Status,
    /// Whether nothing follows on this stream; only the older generation says so.
    pub last: bool,
    /// What stands beside.
    pub metadata: Map<String, Json>,
}

/// More of something that a task makes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArtifactUpdate {
    /// The task.
    pub task_id: String,
    /// Its conversation.
    pub context_id: String,
    /// What came.
    pub artifact: Artifact,
    /// Whether it goes to the end of what is there; else it replaces it.
    pub append: bool,
    /// Whether nothing follows.
    pub last_chunk: bool,
}

/// One thing that an agent says about its work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Update {
    /// An answer without a task.
    Message(Message),
    /// A task as it stands.
    Task(Task),
    /// A new state.
    Status(StatusUpdate),
    /// More of an artifact.
    Artifact(ArtifactUpdate),
}

impl Message {
    /// A message of one text.
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

/// The text of parts: texts in their order, files by their address; data says nothing to people.
pub fn text_of(parts: &[Part]) -> String {
    let lines = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.clone()),
        Part::File(File { uri: Some(uri), .. }) => Some(format!("File: {uri}")),
        Part::File(_) | Part::Data(_) => None,
    });
    lines.filter(|line| !line.trim().is_empty()).collect::<Vec<_>>().join("\n")
}

impl Task {
    /// A task of which nothing is known but its names.
    pub fn named(id: &str, context_id: &str) -> Self {
        Self {
            id: id.to_owned(),
            context_id: context_id.to_owned(),
            status: Status { state: TaskState::Submitted, message: None, timestamp: None },
            artifacts: Vec::new(),
            history: Vec::new(),
            metadata: Map::new(),
        }
    }
    /// A task whose first sign is a state.
    pub fn begun(change: StatusUpdate) -> Self {
        let mut task = Self::named(&change.task_id, &change.context_id);
        task.status = change.status;
        task
    }
    /// Takes what comes after. A message beside a task changes nothing of it.
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
                        // Pieces of one text come one by one; they are one text.
                        (Some(Part::Text(text)), Part::Text(more)) => text.push_str(&more),
                        (_, part) => known.parts.push(part),
                    }
                }
            }
            Some(known) => *known = change.artifact,
            None => self.artifacts.push(change.artifact),
        }
    }
    /// Whether a message of this id is known to the task.
    pub fn has_heard(&self, message: &str) -> bool {
        self.history.iter().any(|heard| heard.id == message)
    }
}

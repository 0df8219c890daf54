//! The used messages of A2A 0.3 (`a2a.proto`, package `a2a.v1`, <https://github.com/a2aproject/A2A>), with its field
//! names and numbers. Their JSON is that of HTTP+JSON.

use prost::{Message as Proto, Oneof};
use segue_base::grpc::well_known::{Struct, Timestamp, bytes};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Message {
    #[prost(string, tag = "1")]
    message_id: String,
    #[prost(string, tag = "2")]
    context_id: String,
    #[prost(string, tag = "3")]
    task_id: String,
    #[prost(int32, tag = "4")]
    #[serde(with = "super::role")]
    role: i32,
    #[prost(message, repeated, tag = "5")]
    content: Vec<Part>,
    #[prost(message, optional, tag = "6")]
    metadata: Option<Struct>,
}

#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Part {
    #[prost(oneof = "Content", tags = "1, 2, 3")]
    #[serde(flatten)]
    part: Option<Content>,
    #[prost(message, optional, tag = "4")]
    metadata: Option<Struct>,
}

#[derive(Clone, PartialEq, Oneof, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Content {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(message, tag = "2")]
    File(FilePart),
    #[prost(message, tag = "3")]
    Data(DataPart),
}

#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct FilePart {
    #[prost(oneof = "FileContent", tags = "1, 2")]
    #[serde(flatten)]
    file: Option<FileContent>,
    #[prost(string, tag = "3")]
    mime_type: String,
    #[prost(string, tag = "4")]
    name: String,
}

#[derive(Clone, PartialEq, Oneof, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum FileContent {
    #[prost(string, tag = "1")]
    FileWithUri(String),
    #[prost(bytes = "vec", tag = "2")]
    FileWithBytes(#[serde(with = "bytes")] Vec<u8>),
}

#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DataPart {
    #[prost(message, optional, tag = "1")]
    data: Option<Struct>,
}

/// The proto file has no field 2.
#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Artifact {
    #[prost(string, tag = "1")]
    artifact_id: String,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    description: String,
    #[prost(message, repeated, tag = "5")]
    parts: Vec<Part>,
    #[prost(message, optional, tag = "6")]
    metadata: Option<Struct>,
}

#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TaskStatus {
    #[prost(int32, tag = "1")]
    #[serde(with = "super::state")]
    state: i32,
    /// `update` in the proto file.
    #[prost(message, optional, tag = "2")]
    message: Option<Message>,
    #[prost(message, optional, tag = "3")]
    timestamp: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Task {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    context_id: String,
    #[prost(message, optional, tag = "3")]
    status: Option<TaskStatus>,
    #[prost(message, repeated, tag = "4")]
    artifacts: Vec<Artifact>,
    #[prost(message, repeated, tag = "5")]
    history: Vec<Message>,
    #[prost(message, optional, tag = "6")]
    metadata: Option<Struct>,
}

#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TaskStatusUpdateEvent {
    #[prost(string, tag = "1")]
    task_id: String,
    #[prost(string, tag = "2")]
    context_id: String,
    #[prost(message, optional, tag = "3")]
    status: Option<TaskStatus>,
    #[prost(bool, tag = "4")]
    r#final: bool,
    #[prost(message, optional, tag = "5")]
    metadata: Option<Struct>,
}

#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TaskArtifactUpdateEvent {
    #[prost(string, tag = "1")]
    task_id: String,
    #[prost(string, tag = "2")]
    context_id: String,
    #[prost(message, optional, tag = "3")]
    artifact: Option<Artifact>,
    #[prost(bool, tag = "4")]
    append: bool,
    #[prost(bool, tag = "5")]
    last_chunk: bool,
    #[prost(message, optional, tag = "6")]
    metadata: Option<Struct>,
}

/// An event of a stream, and the response to a message, which uses the first two numbers.
#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StreamResponse {
    #[prost(oneof = "Payload", tags = "1, 2, 3, 4")]
    #[serde(flatten)]
    payload: Option<Payload>,
}

/// `msg` in the proto file.
#[derive(Clone, PartialEq, Oneof, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Payload {
    #[prost(message, tag = "1")]
    Task(Task),
    #[prost(message, tag = "2")]
    Message(Message),
    #[prost(message, tag = "3")]
    StatusUpdate(TaskStatusUpdateEvent),
    #[prost(message, tag = "4")]
    ArtifactUpdate(TaskArtifactUpdateEvent),
}

#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AuthenticationInfo {
    #[prost(string, repeated, tag = "1")]
    schemes: Vec<String>,
    #[prost(string, tag = "2")]
    credentials: String,
}

#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PushNotificationConfig {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    url: String,
    #[prost(string, tag = "3")]
    token: String,
    #[prost(message, optional, tag = "4")]
    authentication: Option<AuthenticationInfo>,
}

#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SendMessageConfiguration {
    #[prost(string, repeated, tag = "1")]
    accepted_output_modes: Vec<String>,
    #[prost(message, optional, tag = "2")]
    push_notification: Option<PushNotificationConfig>,
    #[prost(int32, tag = "3")]
    history_length: i32,
    #[prost(bool, tag = "4")]
    blocking: bool,
}

#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SendMessageRequest {
    /// `request` in the proto file.
    #[prost(message, optional, tag = "1")]
    message: Option<Message>,
    #[prost(message, optional, tag = "2")]
    configuration: Option<SendMessageConfiguration>,
    #[prost(message, optional, tag = "3")]
    metadata: Option<Struct>,
}

/// `GetTaskRequest`; `CancelTaskRequest` and `TaskSubscriptionRequest` have only its first field.
#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TaskRequest {
    /// `tasks/` and the id.
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "2")]
    history_length: i32,
}

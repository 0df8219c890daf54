//! The used messages of A2A 1.0 (`a2a.proto`, package `lf.a2a.v1`, <https://github.com/a2aproject/A2A>), with its field
//! names and numbers. Their JSON is that of HTTP+JSON.

use prost::{Message as Proto, Oneof};
use segue_base::grpc::well_known::{Struct, Timestamp, Value, bytes};
use serde::{Deserialize, Serialize};

/// Fields that are not used are omitted.
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
    parts: Vec<Part>,
    #[prost(message, optional, tag = "6")]
    metadata: Option<Struct>,
}

#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Part {
    #[prost(oneof = "Content", tags = "1, 2, 3, 4")]
    #[serde(flatten)]
    content: Option<Content>,
    #[prost(message, optional, tag = "5")]
    metadata: Option<Struct>,
    #[prost(string, tag = "6")]
    filename: String,
    #[prost(string, tag = "7")]
    media_type: String,
}

#[derive(Clone, PartialEq, Oneof, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Content {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bytes = "vec", tag = "2")]
    Raw(#[serde(with = "bytes")] Vec<u8>),
    #[prost(string, tag = "3")]
    Url(String),
    #[prost(message, tag = "4")]
    Data(Value),
}

#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Artifact {
    #[prost(string, tag = "1")]
    artifact_id: String,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    description: String,
    #[prost(message, repeated, tag = "4")]
    parts: Vec<Part>,
    #[prost(message, optional, tag = "5")]
    metadata: Option<Struct>,
}

#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TaskStatus {
    #[prost(int32, tag = "1")]
    #[serde(with = "super::state")]
    state: i32,
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
    #[prost(message, optional, tag = "4")]
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
    #[prost(string, tag = "1")]
    scheme: String,
    #[prost(string, tag = "2")]
    credentials: String,
}

#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TaskPushNotificationConfig {
    #[prost(string, tag = "1")]
    tenant: String,
    #[prost(string, tag = "2")]
    id: String,
    #[prost(string, tag = "3")]
    task_id: String,
    #[prost(string, tag = "4")]
    url: String,
    #[prost(string, tag = "5")]
    token: String,
    #[prost(message, optional, tag = "6")]
    authentication: Option<AuthenticationInfo>,
}

#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SendMessageConfiguration {
    #[prost(string, repeated, tag = "1")]
    accepted_output_modes: Vec<String>,
    #[prost(message, optional, tag = "2")]
    task_push_notification_config: Option<TaskPushNotificationConfig>,
    #[prost(int32, optional, tag = "3")]
    history_length: Option<i32>,
    #[prost(bool, tag = "4")]
    return_immediately: bool,
}

#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SendMessageRequest {
    #[prost(string, tag = "1")]
    tenant: String,
    #[prost(message, optional, tag = "2")]
    message: Option<Message>,
    #[prost(message, optional, tag = "3")]
    configuration: Option<SendMessageConfiguration>,
    #[prost(message, optional, tag = "4")]
    metadata: Option<Struct>,
}

#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct GetTaskRequest {
    #[prost(string, tag = "1")]
    tenant: String,
    #[prost(string, tag = "2")]
    id: String,
    #[prost(int32, optional, tag = "3")]
    history_length: Option<i32>,
}

/// `CancelTaskRequest` and `SubscribeToTaskRequest`, whose first fields are the same.
#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TaskRequest {
    #[prost(string, tag = "1")]
    tenant: String,
    #[prost(string, tag = "2")]
    id: String,
}

#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListTasksRequest {
    #[prost(string, tag = "1")]
    tenant: String,
    #[prost(string, tag = "2")]
    context_id: String,
    #[prost(int32, optional, tag = "4")]
    page_size: Option<i32>,
    #[prost(int32, optional, tag = "6")]
    history_length: Option<i32>,
    #[prost(bool, optional, tag = "8")]
    include_artifacts: Option<bool>,
}

#[derive(Clone, PartialEq, Proto, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListTasksResponse {
    #[prost(message, repeated, tag = "1")]
    tasks: Vec<Task>,
    #[prost(string, tag = "2")]
    next_page_token: String,
    #[prost(int32, tag = "3")]
    page_size: i32,
    #[prost(int32, tag = "4")]
    total_size: i32,
}

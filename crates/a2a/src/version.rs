//! Protocol versions, JSON forms, operations and error codes.
//!
//! The versions 0.3 and 1.0 differ in names, not in meaning: `message/send` became `SendMessage`; version 0.3 puts a
//! `kind` into objects, version 1.0 wraps them. Over HTTP+JSON and gRPC, version 0.3 uses a third form, the JSON of its
//! protocol buffers. Specifications: <https://a2a-protocol.org/v0.3.0/specification/>,
//! <https://a2a-protocol.org/latest/specification/>.

use serde_json::Value as Json;

use super::model::{Role, TaskState};

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum A2aVersion {
    /// Version 0.3 and earlier.
    V0_3,
    /// Version 1.0 and later.
    V1_0,
}

/// The JSON form of the protocol's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum A2aWireFormat {
    /// Version 0.3 over JSON-RPC: objects have a `kind`.
    JsonRpcV0_3,
    /// Version 0.3 over HTTP+JSON and gRPC: the JSON of its protocol buffers.
    ProtoJsonV0_3,
    /// Version 1.0, over all bindings.
    ProtoJsonV1_0,
}

/// An operation of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Send a message; one response.
    Send,
    /// Send a message; a stream of events.
    Stream,
    /// Get a task.
    Get,
    /// List tasks.
    List,
    /// Cancel a task.
    Cancel,
    /// Subscribe to the events of a task.
    Subscribe,
    /// Create a push notification config.
    SetPush,
    /// Get a push notification config.
    GetPush,
    /// List push notification configs.
    ListPush,
    /// Delete a push notification config.
    DeletePush,
    /// Get the card for authenticated callers.
    ExtendedCard,
}

/// Every operation with its method name in version 0.3 and in version 1.0. Version 0.3 cannot list tasks over JSON-RPC.
const NAMES: &[(Operation, &str, &str)] = &[
    (Operation::Send, "message/send", "SendMessage"),
    (Operation::Stream, "message/stream", "SendStreamingMessage"),
    (Operation::Get, "tasks/get", "GetTask"),
    (Operation::List, "tasks/list", "ListTasks"),
    (Operation::Cancel, "tasks/cancel", "CancelTask"),
    (Operation::Subscribe, "tasks/resubscribe", "SubscribeToTask"),
    (Operation::SetPush, "tasks/pushNotificationConfig/set", "CreateTaskPushNotificationConfig"),
    (Operation::GetPush, "tasks/pushNotificationConfig/get", "GetTaskPushNotificationConfig"),
    (Operation::ListPush, "tasks/pushNotificationConfig/list", "ListTaskPushNotificationConfigs"),
    (Operation::DeletePush, "tasks/pushNotificationConfig/delete", "DeleteTaskPushNotificationConfig"),
    (Operation::ExtendedCard, "agent/getAuthenticatedExtendedCard", "GetExtendedAgentCard"),
];

impl Operation {
    /// Its method name.
    pub fn method(self, version: A2aVersion) -> &'static str {
        let names = NAMES.iter().find(|(operation, ..)| *operation == self);
        names.map_or("", |(_, old, new)| if version == A2aVersion::V0_3 { old } else { new })
    }
    /// The operation of a method name, and the version the name belongs to.
    pub fn from_method(method: &str) -> Option<(Self, A2aVersion)> {
        NAMES.iter().find_map(|(operation, old, new)| match method {
            _ if method == *old => Some((*operation, A2aVersion::V0_3)),
            _ if method == *new => Some((*operation, A2aVersion::V1_0)),
            _ => None,
        })
    }
}

impl A2aWireFormat {
    /// The protocol version.
    pub fn version(self) -> A2aVersion {
        if self == Self::ProtoJsonV1_0 { A2aVersion::V1_0 } else { A2aVersion::V0_3 }
    }
    /// The name of a task state.
    pub fn state(self, state: TaskState) -> &'static str {
        match (self, state) {
            (Self::JsonRpcV0_3, state) => state.name(),
            (_, TaskState::Submitted) => "TASK_STATE_SUBMITTED",
            (_, TaskState::Working) => "TASK_STATE_WORKING",
            (_, TaskState::InputRequired) => "TASK_STATE_INPUT_REQUIRED",
            (_, TaskState::Completed) => "TASK_STATE_COMPLETED",
            // The proto files spell it differently.
            (Self::ProtoJsonV0_3, TaskState::Canceled) => "TASK_STATE_CANCELLED",
            (_, TaskState::Canceled) => "TASK_STATE_CANCELED",
            (_, TaskState::Failed) => "TASK_STATE_FAILED",
            (_, TaskState::Rejected) => "TASK_STATE_REJECTED",
            (_, TaskState::AuthRequired) => "TASK_STATE_AUTH_REQUIRED",
            (_, TaskState::Unknown) => "TASK_STATE_UNSPECIFIED",
        }
    }
    /// The name of a role.
    pub fn role(self, role: Role) -> &'static str {
        match (self, role) {
            (Self::JsonRpcV0_3, Role::User) => "user",
            (Self::JsonRpcV0_3, Role::Agent) => "agent",
            (_, Role::User) => "ROLE_USER",
            (_, Role::Agent) => "ROLE_AGENT",
        }
    }
    /// The key of the parts of a message.
    pub(super) fn parts_key(self) -> &'static str {
        if self == Self::ProtoJsonV0_3 { "content" } else { "parts" }
    }
}

/// Parses a task state of any form.
pub(super) fn parse_state(json: &Json) -> TaskState {
    let text = json.as_str().unwrap_or_default().to_ascii_lowercase().replace('_', "-");
    match text.strip_prefix("task-state-").unwrap_or(&text) {
        "submitted" => TaskState::Submitted,
        "working" => TaskState::Working,
        "input-required" => TaskState::InputRequired,
        "completed" => TaskState::Completed,
        "canceled" | "cancelled" => TaskState::Canceled,
        "failed" => TaskState::Failed,
        "rejected" => TaskState::Rejected,
        "auth-required" => TaskState::AuthRequired,
        _ => TaskState::Unknown,
    }
}

/// Error codes of JSON-RPC 2.0 (<https://www.jsonrpc.org/specification#error_object>) and of A2A, the same in both
/// versions.
pub mod codes {
    /// The text is not JSON.
    pub const PARSE_ERROR: i64 = -32700;
    /// The object is not a request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// The method does not exist.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters are invalid.
    pub const INVALID_PARAMS: i64 = -32602;
    /// An internal error.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// The task does not exist.
    pub const TASK_NOT_FOUND: i64 = -32001;
    /// The task cannot be cancelled.
    pub const TASK_NOT_CANCELABLE: i64 = -32002;
    /// Push notifications are not supported.
    pub const PUSH_NOTIFICATION_NOT_SUPPORTED: i64 = -32003;
    /// The operation is not supported.
    pub const UNSUPPORTED_OPERATION: i64 = -32004;
    /// The media types are not supported.
    pub const CONTENT_TYPE_NOT_SUPPORTED: i64 = -32005;
    /// The agent produced an invalid response.
    pub const INVALID_AGENT_RESPONSE: i64 = -32006;
    /// There is no extended agent card.
    pub const EXTENDED_AGENT_CARD_NOT_CONFIGURED: i64 = -32007;
    /// The protocol version is not supported.
    pub const VERSION_NOT_SUPPORTED: i64 = -32009;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn task_states_round_trip_in_every_format() {
        for format in [A2aWireFormat::JsonRpcV0_3, A2aWireFormat::ProtoJsonV0_3, A2aWireFormat::ProtoJsonV1_0] {
            for wanted in [
                TaskState::Submitted,
                TaskState::Working,
                TaskState::InputRequired,
                TaskState::Completed,
                TaskState::Canceled,
                TaskState::Failed,
                TaskState::Rejected,
                TaskState::AuthRequired,
                TaskState::Unknown,
            ] {
                assert_eq!(parse_state(&json!(format.state(wanted))), wanted);
            }
        }
    }

    #[test]
    fn method_names_identify_the_version() {
        assert_eq!(Operation::from_method("message/send"), Some((Operation::Send, A2aVersion::V0_3)));
        assert_eq!(Operation::from_method("SendStreamingMessage"), Some((Operation::Stream, A2aVersion::V1_0)));
        assert_eq!(Operation::from_method("tasks/pay"), None);
        for (operation, ..) in NAMES {
            for version in [A2aVersion::V0_3, A2aVersion::V1_0] {
                assert_eq!(Operation::from_method(operation.method(version)), Some((*operation, version)));
            }
        }
    }
}

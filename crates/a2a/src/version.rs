//! The ways of writing: two generations, and of the older one two forms.
//!
//! The generations differ in names and marks, not in meaning. What the older one calls `message/send` the newer one calls
//! `SendMessage`; the older writes what kind an object is into it, the newer wraps it. Over plain HTTP the older one uses a
//! third form, made from its protocol buffers.

use serde_json::Value as Json;

use super::model::{Role, TaskState};

/// Which edition of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum A2aVersion {
    /// 0.3 and before.
    Old,
    /// 1.0 and after.
    New,
}

/// A way of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum A2aWireFormat {
    /// 0.3 over JSON-RPC: objects carry their `kind`.
    Old,
    /// 0.3 over plain HTTP.
    OldRest,
    /// 1.0, over both.
    New,
}

/// What can be asked of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Send a message and wait.
    Send,
    /// Send a message and hear everything.
    Stream,
    /// How does a task stand?
    Get,
    /// Which tasks are there?
    List,
    /// Stop a task.
    Cancel,
    /// Hear everything from now on.
    Subscribe,
    /// Report changes to this address.
    SetPush,
    /// Where are they reported?
    GetPush,
    /// All such addresses.
    ListPush,
    /// Report there no more.
    DeletePush,
    /// The card that only known callers see.
    ExtendedCard,
}

/// Every operation, with its name in the older and in the newer generation; the older one lists no tasks.
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
    /// Its name as a method.
    pub fn method(self, generation: A2aVersion) -> &'static str {
        let names = NAMES.iter().find(|(operation, ..)| *operation == self);
        names.map_or("", |(_, old, new)| if generation == A2aVersion::Old { old } else { new })
    }
    /// What a method asks for, and in which generation.
    pub fn of(method: &str) -> Option<(Self, A2aVersion)> {
        NAMES.iter().find_map(|(operation, old, new)| match method {
            _ if method == *old => Some((*operation, A2aVersion::Old)),
            _ if method == *new => Some((*operation, A2aVersion::New)),
            _ => None,
        })
    }
}

impl A2aWireFormat {
    /// Its generation.
    pub fn generation(self) -> A2aVersion {
        if self == Self::New { A2aVersion::New } else { A2aVersion::Old }
    }
    /// A state as it is written.
    pub fn state(self, state: TaskState) -> &'static str {
        match (self, state) {
            (Self::Old, state) => state.name(),
            (_, TaskState::Submitted) => "TASK_STATE_SUBMITTED",
            (_, TaskState::Working) => "TASK_STATE_WORKING",
            (_, TaskState::InputRequired) => "TASK_STATE_INPUT_REQUIRED",
            (_, TaskState::Completed) => "TASK_STATE_COMPLETED",
            // Twice the same word, once in each spelling of English.
            (Self::OldRest, TaskState::Canceled) => "TASK_STATE_CANCELLED",
            (_, TaskState::Canceled) => "TASK_STATE_CANCELED",
            (_, TaskState::Failed) => "TASK_STATE_FAILED",
            (_, TaskState::Rejected) => "TASK_STATE_REJECTED",
            (_, TaskState::AuthRequired) => "TASK_STATE_AUTH_REQUIRED",
            (_, TaskState::Unknown) => "TASK_STATE_UNSPECIFIED",
        }
    }
    /// A speaker as it is written.
    pub fn role(self, role: Role) -> &'static str {
        match (self, role) {
            (Self::Old, Role::User) => "user",
            (Self::Old, Role::Agent) => "agent",
            (_, Role::User) => "ROLE_USER",
            (_, Role::Agent) => "ROLE_AGENT",
        }
    }
    /// The key of a message's parts.
    pub(super) fn parts_key(self) -> &'static str {
        if self == Self::OldRest { "content" } else { "parts" }
    }
}

/// A state, however it is spelt.
pub(super) fn state(json: &Json) -> TaskState {
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

/// Numbers of the protocol's errors, the same in both generations.
pub mod codes {
    /// The text is no JSON.
    pub const PARSE: i64 = -32700;
    /// The object is no request.
    pub const REQUEST: i64 = -32600;
    /// There is no such method.
    pub const METHOD: i64 = -32601;
    /// The parameters do not fit.
    pub const PARAMS: i64 = -32602;
    /// Something went wrong inside.
    pub const INTERNAL: i64 = -32603;
    /// There is no such task.
    pub const NO_TASK: i64 = -32001;
    /// The task cannot be stopped.
    pub const NOT_CANCELABLE: i64 = -32002;
    /// Changes are not reported.
    pub const NO_PUSH: i64 = -32003;
    /// The agent does not do this.
    pub const UNSUPPORTED: i64 = -32004;
    /// These media types are not understood.
    pub const CONTENT_TYPE: i64 = -32005;
    /// The agent's own answer was wrong.
    pub const BAD_ANSWER: i64 = -32006;
    /// There is no extended card.
    pub const NO_EXTENDED_CARD: i64 = -32007;
    /// This edition of the protocol is not spoken.
    pub const VERSION: i64 = -32009;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn every_state_is_read_as_it_is_written() {
        for dialect in [A2aWireFormat::Old, A2aWireFormat::OldRest, A2aWireFormat::New] {
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
                assert_eq!(state(&json!(dialect.state(wanted))), wanted);
            }
        }
    }

    #[test]
    fn methods_tell_their_generation() {
        assert_eq!(Operation::of("message/send"), Some((Operation::Send, A2aVersion::Old)));
        assert_eq!(Operation::of("SendStreamingMessage"), Some((Operation::Stream, A2aVersion::New)));
        assert_eq!(Operation::of("tasks/pay"), None);
        for (operation, ..) in NAMES {
            for generation in [A2aVersion::Old, A2aVersion::New] {
                assert_eq!(Operation::of(operation.method(generation)), Some((*operation, generation)));
            }
        }
    }
}

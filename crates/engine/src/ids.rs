//! Identifiers as types, so that a flow id cannot be passed where a slot name is meant.

use std::{borrow::Borrow, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

macro_rules! id_type {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $type(Arc<str>);

        impl $type {
            /// Makes the identifier from any text; nothing is checked.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }
            /// The identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
        impl From<&str> for $type {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }
        impl From<String> for $type {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }
        impl From<&$type> for Arc<str> {
            fn from(name: &$type) -> Self {
                name.0.clone()
            }
        }
        impl Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
        impl PartialEq<str> for $type {
            fn eq(&self, other: &str) -> bool {
                &*self.0 == other
            }
        }
        impl PartialEq<&str> for $type {
            fn eq(&self, other: &&str) -> bool {
                &*self.0 == *other
            }
        }
    };
}

id_type!(
    /// The id of a conversation; on channels that have senders, the sender's id.
    ConversationId
);
id_type!(
    /// The id of a flow: the key under `flows:`.
    FlowId
);
id_type!(
    /// The id of a step, unique within its flow; the loader generates one where the author gave none.
    StepId
);
id_type!(
    /// The name of a slot.
    SlotName
);
id_type!(
    /// The name of a response: `utter_…`.
    ResponseName
);
id_type!(
    /// The name of an action: built-in, custom, or a response used as an action.
    ActionName
);
id_type!(
    /// The name of an agent: `agent.name` of its configuration, not its folder.
    AgentName
);
id_type!(
    /// The name of an MCP server in `endpoints.yml`.
    ServerName
);
id_type!(
    /// The name of a tool, as its MCP server or agent declares it.
    ToolName
);
id_type!(
    /// The id of one inbound message, assigned by its channel.
    MessageId
);
id_type!(
    /// The id of a frame on the stack, unique within its conversation.
    FrameId
);
id_type!(
    /// The id of a run of a mission or of delegated work.
    RunId
);
id_type!(
    /// The id of a question that a run asks a person, unique within its run.
    QuestionId
);

//! What the loaders note down for the checks across files: names that must exist, and conditions.

use std::sync::Arc;

use super::yaml::Node;
use crate::{
    condition::Condition,
    finding::SourceLocation,
    ids::{FlowId, SlotName},
};

/// A name that is used somewhere and must exist.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    /// As what.
    pub(crate) used: Used,
    /// The name.
    pub(crate) name: Arc<str>,
    /// Where.
    pub(crate) place: SourceLocation,
    /// Whether in a built-in pattern.
    pub(crate) builtin: bool,
}

/// As what a name is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Used {
    /// A slot that is filled or read.
    Slot,
    /// A slot that a button's payload fills.
    PayloadSlot,
    /// A slot that a text prints; a warning where it is missing, since actions may hand values in.
    PrintedSlot,
    /// A response.
    Response,
    /// An action, a response or a built-in.
    Action,
    /// A custom action that the domain must list.
    CustomAction,
    /// A flow that a mapping names.
    Flow,
    /// An MCP server in a flow.
    Server,
    /// An MCP server in the configuration of an agent.
    AgentServer,
    /// A model group.
    ModelGroup,
    /// An intent.
    Intent,
    /// An intent that a button sends.
    ButtonIntent,
    /// What stands in double braces in a text that is no template.
    DoubleBraces,
    /// What stands in single braces in a template.
    SingleBraces,
}

/// A value that a step or a button gives to a slot.
#[derive(Clone, Debug)]
pub(crate) struct SlotAssignment {
    /// The slot.
    pub(crate) slot: Arc<str>,
    /// The value; from a button always a text.
    pub(crate) value: serde_json::Value,
    /// The response whose button gives it, by its payload; none for a step.
    pub(crate) button_of: Option<Arc<str>>,
    /// Where it stands.
    pub(crate) place: SourceLocation,
    /// Whether in a built-in pattern.
    pub(crate) builtin: bool,
}

/// A condition and what it is for.
#[derive(Clone, Debug)]
pub(crate) struct ConditionUse {
    /// The condition.
    pub(crate) condition: Condition,
    /// Its text, or the YAML boolean.
    pub(crate) at: Node,
    /// Its file.
    pub(crate) file: Arc<str>,
    /// What it is for.
    pub(crate) role: Role,
    /// Whether in a built-in pattern.
    pub(crate) builtin: bool,
}

/// What a condition is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// `if` of a flow.
    Guard,
    /// `if` under `next`.
    Branch(FlowId),
    /// A rejection of a collect step or a slot.
    Rejection(SlotName),
    /// `exit_if`.
    ExitIf,
    /// `condition` of a response.
    Response,
    /// `requires` of an agent's tool.
    Tool,
}

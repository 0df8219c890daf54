//! What the loaders record for the checks across files: references to names, conditions, and values that are assigned to slots.

use std::sync::Arc;

use super::yaml::Node;
use crate::{
    condition::Condition,
    finding::SourceLocation,
    ids::{FlowId, SlotName},
};

/// A reference to a name that must exist.
#[derive(Clone, Debug)]
pub(crate) struct NameReference {
    /// What the name refers to.
    pub(crate) kind: ReferenceKind,
    /// The name.
    pub(crate) name: Arc<str>,
    /// The location of the reference.
    pub(crate) place: SourceLocation,
    /// Whether it is in a built-in pattern.
    pub(crate) builtin: bool,
}

/// What a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReferenceKind {
    /// A slot that is filled or read.
    Slot,
    /// A slot that a button's payload fills.
    PayloadSlot,
    /// A slot in a text. Only a warning if it does not exist, because actions may pass values.
    PrintedSlot,
    /// A response.
    Response,
    /// A custom action, a response or a built-in action.
    Action,
    /// A custom action that the domain must list.
    CustomAction,
    /// A flow in the conditions of a mapping.
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
    /// A name in double braces in a text that is not a template.
    DoubleBraces,
    /// A name in single braces in a template.
    SingleBraces,
}

/// A value that a step or a button assigns to a slot.
#[derive(Clone, Debug)]
pub(crate) struct SlotAssignment {
    /// The slot.
    pub(crate) slot: Arc<str>,
    /// The value; from a button always a string.
    pub(crate) value: serde_json::Value,
    /// The response with the button whose payload assigns it; `None` for a step.
    pub(crate) button_of: Option<Arc<str>>,
    /// Its location in the project files.
    pub(crate) place: SourceLocation,
    /// Whether it is in a built-in pattern.
    pub(crate) builtin: bool,
}

/// A condition in the project files and its role.
#[derive(Clone, Debug)]
pub(crate) struct ConditionReference {
    /// The condition.
    pub(crate) condition: Condition,
    /// The YAML node: a string or a boolean.
    pub(crate) at: Node,
    /// Its file.
    pub(crate) file: Arc<str>,
    /// What it controls.
    pub(crate) role: ConditionRole,
    /// Whether it is in a built-in pattern.
    pub(crate) builtin: bool,
}

/// What a condition controls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConditionRole {
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

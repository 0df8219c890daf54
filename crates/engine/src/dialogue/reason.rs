//! The reasons of the dialogue engine's decisions, for traces.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::{
    conversation::Command,
    ids::{ActionName, FlowId, SlotName, StepId},
};

/// A reason for a decision of the dialogue engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// Command cleanup dropped a command.
    Dropped {
        /// The command.
        command: Command,
        /// The rule.
        rule: String,
    },
    /// Command cleanup replaced a command.
    Replaced {
        /// The command.
        command: Command,
        /// The replacement.
        by: Command,
        /// The rule.
        rule: String,
    },
    /// The message was interpreted without a model.
    Shortcut {
        /// The slot that was asked for.
        slot: SlotName,
        /// The value.
        value: Json,
        /// The rule: `title`, `yes or no`, `number`, `value`.
        rule: String,
    },
    /// A value was rejected.
    Rejected {
        /// The slot.
        slot: SlotName,
        /// The condition that held, or the type error.
        #[serde(rename = "because")]
        cause: String,
    },
    /// A step was entered.
    Step {
        /// The flow.
        flow: FlowId,
        /// The step.
        step: StepId,
        /// The action, if the step names it by a template.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        action: Option<ActionName>,
    },
    /// A branch was taken.
    Branch {
        /// The flow.
        flow: String,
        /// The step.
        step: String,
        /// The condition that held, `else`, or `none`.
        taken: String,
    },
    /// A condition could not be evaluated and counts as false.
    Condition {
        /// Its text.
        condition: String,
        /// The error.
        #[serde(rename = "trouble")]
        error: String,
    },
    /// A flow ended with an error.
    Failed {
        /// The flow; empty when none was active.
        flow: String,
        /// The cause, for operators.
        #[serde(rename = "because")]
        cause: String,
    },
    /// Any other information.
    Note {
        /// The text.
        text: String,
    },
}

/// One line of text.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = |command: &Command| serde_json::to_string(command).unwrap_or_default();
        match self {
            Self::Dropped { command, rule } => write!(f, "dropped {} ({rule})", json(command)),
            Self::Replaced { command, by, rule } => {
                write!(f, "replaced {} by {} ({rule})", json(command), json(by))
            }
            Self::Step { flow, action: Some(action), .. } => write!(f, "{flow}: at {action}"),
            Self::Step { flow, step, action: None } => write!(f, "{flow}: at {step}"),
            Self::Branch { flow, step, taken } => write!(f, "{flow}/{step}: took {taken}"),
            Self::Condition { condition, error } => write!(f, "`{condition}` counts as false: {error}"),
            Self::Shortcut { slot, value, rule } => write!(f, "{slot} is {value}, without a model ({rule})"),
            Self::Rejected { slot, cause } => write!(f, "rejected a value of {slot}: {cause}"),
            Self::Failed { flow, cause } => write!(f, "{flow} ended with an error: {cause}"),
            Self::Note { text } => f.write_str(text),
        }
    }
}

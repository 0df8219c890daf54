//! The record of why a turn went as it did.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::{
    conversation::Command,
    ids::{FlowId, SlotName, StepId},
};

/// One line of the record of why a turn went as it did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// A command was dropped by cleaning.
    Dropped {
        /// The command.
        command: Command,
        /// The rule.
        rule: String,
    },
    /// A command was replaced by cleaning.
    Replaced {
        /// The command.
        command: Command,
        /// By what.
        by: Command,
        /// The rule.
        rule: String,
    },
    /// The text was taken without a model.
    Shortcut {
        /// The slot that was asked for.
        slot: SlotName,
        /// The value.
        value: Json,
        /// What was recognised: `title`, `yes or no`, `number`, `value`.
        rule: String,
    },
    /// A value was refused.
    Rejected {
        /// The slot.
        slot: SlotName,
        /// The condition that held, or what the type wants.
        because: String,
    },
    /// A step was entered.
    Step {
        /// The flow.
        flow: FlowId,
        /// The step.
        step: StepId,
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
        /// What was the matter.
        trouble: String,
    },
    /// A flow was ended because something failed.
    Failed {
        /// The flow; empty when none was under way.
        flow: String,
        /// What failed, for operators.
        because: String,
    },
    /// Anything else worth knowing.
    Note {
        /// In words.
        text: String,
    },
}

/// In words, on one line.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = |command: &Command| serde_json::to_string(command).unwrap_or_default();
        match self {
            Self::Dropped { command, rule } => write!(f, "dropped {} ({rule})", json(command)),
            Self::Replaced { command, by, rule } => {
                write!(f, "replaced {} by {} ({rule})", json(command), json(by))
            }
            Self::Step { flow, step } => write!(f, "{flow}: at {step}"),
            Self::Branch { flow, step, taken } => write!(f, "{flow}/{step}: took {taken}"),
            Self::Condition { condition, trouble } => write!(f, "`{condition}` counts as false: {trouble}"),
            Self::Shortcut { slot, value, rule } => write!(f, "{slot} is {value}, without a model ({rule})"),
            Self::Rejected { slot, because } => write!(f, "refused a value of {slot}: {because}"),
            Self::Failed { flow, because } => write!(f, "{flow} ended by a failure: {because}"),
            Self::Note { text } => f.write_str(text),
        }
    }
}

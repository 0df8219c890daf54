//! The record of why a turn went as it did.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::{conversation::Command, ids::SlotName};

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

//! Patterns: flows for conversation repair. Their steps are YAML under `flows/patterns/`; this module has only what
//! cannot be a flow: the actions that change the stack.
//!
//! Each file has the built-in actions of one pattern, which need its frame on top. A project can replace any pattern by
//! a flow of the same id, and any of these actions by a custom action of the same name.

pub(super) mod cancel;
pub(super) mod clarification;
pub(super) mod continue_interrupted;
pub(super) mod correction;
pub(super) mod repeat;

pub(super) use self::correction::{back_to, new_values};
pub(super) use crate::project::builtin::pattern::*;

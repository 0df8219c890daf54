//! Patterns: flows that repair a conversation. Their steps are YAML under `flows/patterns/`; here is only what cannot be a
//! flow: the actions that move the stack.
//!
//! Each file holds the built-in actions of one pattern, which need its frame on top. A project replaces any pattern by a flow of
//! the same id and any of these actions by a custom action of the same name.

pub(super) mod cancel;
pub(super) mod clarification;
pub(super) mod continue_interrupted;
pub(super) mod correction;
pub(super) mod repeat;

pub(super) use self::correction::{back_to, new_values};
pub(super) use crate::project::builtin::pattern::*;

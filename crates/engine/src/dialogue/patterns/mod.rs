//! Patterns: flows that repair a conversation. Their steps are YAML under `flows/patterns/`; here is only what cannot be a
//! flow: the actions that move the stack.
//!
//! Entry: [`run`], for the built-in actions that need the frame of their pattern on top. A project replaces any pattern by a
//! flow of the same id and any of these actions by a custom action of the same name.

mod cancel;
mod clarification;
mod continue_interrupted;
mod correction;
mod repeat;

pub(super) use self::correction::{back_to, new_values};
use super::{code_change, turn::Turn};

pub(super) const CANCEL_FLOW: &str = "pattern_cancel_flow";
pub(super) const CANNOT_HANDLE: &str = "pattern_cannot_handle";
pub(super) const CHITCHAT: &str = "pattern_chitchat";
pub(super) const CLARIFICATION: &str = "pattern_clarification";
pub(super) const CODE_CHANGE: &str = "pattern_code_change";
pub(super) const COLLECT_INFORMATION: &str = "pattern_collect_information";
pub(super) const COMPLETED: &str = "pattern_completed";
pub(super) const CONTINUE_INTERRUPTED: &str = "pattern_continue_interrupted";
pub(super) const CUSTOMER_SATISFACTION: &str = "pattern_customer_satisfaction";
pub(super) const CORRECTION: &str = "pattern_correction";
pub(super) const HUMAN_HANDOFF: &str = "pattern_human_handoff";
pub(super) const INTERNAL_ERROR: &str = "pattern_internal_error";
pub(super) const OUTCOME_UNKNOWN: &str = "pattern_outcome_unknown";
pub(super) const REPEAT: &str = "pattern_repeat_bot_messages";
pub(super) const SEARCH: &str = "pattern_search";
pub(super) const SKIP_QUESTION: &str = "pattern_skip_question";
pub(super) const VALIDATE_SLOT: &str = "pattern_validate_slot";

/// Runs an action of a pattern; false when the name is none of them.
pub(super) fn run(turn: &mut Turn<'_>, action: &str) -> bool {
    match action {
        "action_cancel_flow" => cancel::run(turn),
        "action_clarify_flows" => clarification::run(turn),
        "action_correct_flow_slot" => correction::run(turn),
        "action_continue_interrupted_flow" => continue_interrupted::go_on(turn),
        "action_cancel_interrupted_flows" => continue_interrupted::give_up(turn),
        "action_repeat_bot_messages" => repeat::run(turn),
        "action_clean_stack" => code_change::clean_stack(turn),
        _ => return false,
    }
    true
}

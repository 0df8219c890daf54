//! Names that are part of Segue: built-in actions, patterns, slots and intents.

use serde_json::Value as Json;

use super::{Config, SlotType};

pub(crate) const LISTEN: &str = "action_listen";
/// Ends the turn like [`LISTEN`]; used by remote agents.
pub(crate) const REQUEST_INPUT: &str = "action_agent_request_user_input";
pub(crate) const SESSION_START: &str = "action_session_start";
pub(crate) const RESTART: &str = "action_restart";
pub(crate) const RUN_SLOT_REJECTIONS: &str = "action_run_slot_rejections";
pub(crate) const TRIGGER_SEARCH: &str = "action_trigger_search";
pub(crate) const TRIGGER_CHITCHAT: &str = "action_trigger_chitchat";
pub(crate) const CANCEL_FLOW: &str = "action_cancel_flow";
pub(crate) const CORRECT_FLOW_SLOT: &str = "action_correct_flow_slot";
pub(crate) const CLEAN_STACK: &str = "action_clean_stack";

/// The behaviour of a built-in action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BuiltinAction {
    Listen,
    SessionStart,
    Restart,
    Hangup,
    Back,
    DefaultFallback,
    ResetRouting,
    RunSlotRejections,
    TriggerSearch,
    TriggerChitchat,
    CancelFlow,
    ClarifyFlows,
    CorrectFlowSlot,
    ContinueInterruptedFlow,
    CancelInterruptedFlows,
    RepeatBotMessages,
    CleanStack,
    /// No effect: actions of NLU-based assistants and markers. A custom action with the name replaces it.
    Nothing,
}

/// Every built-in action.
const ACTIONS: [(&str, BuiltinAction); 28] = [
    (LISTEN, BuiltinAction::Listen),
    (RESTART, BuiltinAction::Restart),
    (SESSION_START, BuiltinAction::SessionStart),
    ("action_default_fallback", BuiltinAction::DefaultFallback),
    ("action_deactivate_loop", BuiltinAction::Nothing),
    ("action_revert_fallback_events", BuiltinAction::Nothing),
    ("action_default_ask_affirmation", BuiltinAction::Nothing),
    ("action_default_ask_rephrase", BuiltinAction::Nothing),
    ("action_two_stage_fallback", BuiltinAction::Nothing),
    ("action_unlikely_intent", BuiltinAction::Nothing),
    ("action_back", BuiltinAction::Back),
    ("action_extract_slots", BuiltinAction::Nothing),
    ("action_validate_slot_mappings", BuiltinAction::Nothing),
    ("action_send_text", BuiltinAction::Nothing),
    (REQUEST_INPUT, BuiltinAction::Listen),
    (CANCEL_FLOW, BuiltinAction::CancelFlow),
    (CORRECT_FLOW_SLOT, BuiltinAction::CorrectFlowSlot),
    ("action_clarify_flows", BuiltinAction::ClarifyFlows),
    (RUN_SLOT_REJECTIONS, BuiltinAction::RunSlotRejections),
    (CLEAN_STACK, BuiltinAction::CleanStack),
    (TRIGGER_SEARCH, BuiltinAction::TriggerSearch),
    (TRIGGER_CHITCHAT, BuiltinAction::TriggerChitchat),
    ("action_reset_routing", BuiltinAction::ResetRouting),
    ("action_hangup", BuiltinAction::Hangup),
    ("action_repeat_bot_messages", BuiltinAction::RepeatBotMessages),
    ("action_continue_interrupted_flow", BuiltinAction::ContinueInterruptedFlow),
    ("action_cancel_interrupted_flows", BuiltinAction::CancelInterruptedFlows),
    ("action_handoff_metric", BuiltinAction::Nothing),
];

/// The built-in action with this name.
pub(crate) fn action(name: &str) -> Option<BuiltinAction> {
    ACTIONS.iter().find(|(known, _)| *known == name).map(|(_, action)| *action)
}

/// The names of all built-in actions.
pub(crate) fn action_names<'a>() -> impl Iterator<Item = &'a str> {
    ACTIONS.iter().map(|(name, _)| *name)
}

/// The names of the conversation patterns.
pub(crate) mod pattern {
    pub(crate) const CANCEL_FLOW: &str = "pattern_cancel_flow";
    pub(crate) const CANNOT_HANDLE: &str = "pattern_cannot_handle";
    pub(crate) const CHITCHAT: &str = "pattern_chitchat";
    pub(crate) const CLARIFICATION: &str = "pattern_clarification";
    pub(crate) const CODE_CHANGE: &str = "pattern_code_change";
    pub(crate) const COLLECT_INFORMATION: &str = "pattern_collect_information";
    pub(crate) const COMPLETED: &str = "pattern_completed";
    pub(crate) const CONTINUE_INTERRUPTED: &str = "pattern_continue_interrupted";
    pub(crate) const CORRECTION: &str = "pattern_correction";
    pub(crate) const CUSTOMER_SATISFACTION: &str = "pattern_customer_satisfaction";
    pub(crate) const HUMAN_HANDOFF: &str = "pattern_human_handoff";
    pub(crate) const INTERNAL_ERROR: &str = "pattern_internal_error";
    pub(crate) const OUTCOME_UNKNOWN: &str = "pattern_outcome_unknown";
    pub(crate) const PARTLY_DONE: &str = "pattern_partly_done";
    pub(crate) const REPEAT: &str = "pattern_repeat_bot_messages";
    pub(crate) const RESTART: &str = "pattern_restart";
    pub(crate) const SEARCH: &str = "pattern_search";
    pub(crate) const SKIP_QUESTION: &str = "pattern_skip_question";
    pub(crate) const VALIDATE_SLOT: &str = "pattern_validate_slot";

    /// All of them.
    pub(crate) const ALL: [&str; 22] = [
        "pattern_session_start",
        RESTART,
        COMPLETED,
        CUSTOMER_SATISFACTION,
        CANCEL_FLOW,
        CANNOT_HANDLE,
        CHITCHAT,
        CLARIFICATION,
        CODE_CHANGE,
        COLLECT_INFORMATION,
        CONTINUE_INTERRUPTED,
        CORRECTION,
        HUMAN_HANDOFF,
        INTERNAL_ERROR,
        OUTCOME_UNKNOWN,
        PARTLY_DONE,
        REPEAT,
        SEARCH,
        SKIP_QUESTION,
        "pattern_user_silence",
        VALIDATE_SLOT,
        "pattern_external_agent_processing",
    ];
}

/// Intents that need no listing in the domain.
pub(crate) const INTENTS: [&str; 7] =
    ["restart", "back", "out_of_scope", "session_start", "session_end", "silence_timeout", "nlu_fallback"];

/// The slot with the language of the conversation.
pub const LANGUAGE: &str = "language";
/// The slot with the metadata of the first message of a session.
pub(crate) const SESSION_METADATA: &str = "session_started_metadata";
/// The slot with the silence timeout of voice channels in seconds.
pub(crate) const SILENCE_TIMEOUT: &str = "silence_timeout";
/// The slot with the number of consecutive silence timeouts.
pub(crate) const SILENCES: &str = "consecutive_silence_timeouts";
/// The slot with the interrupted flow that the user wants to resume.
pub(crate) const FLOW_TO_CONTINUE: &str = "interrupted_flow_to_continue";
/// The slot with the maximum number of flows in a clarification question.
pub(crate) const MAX_CLARIFICATION_OPTIONS: &str = "max_clarification_options";

/// A slot that every conversation has.
pub(crate) struct BuiltinSlot {
    pub(crate) name: &'static str,
    pub(crate) kind: SlotType,
    pub(crate) initial: Json,
    /// Whether the model may fill it; otherwise only actions and the dialogue engine do.
    pub(crate) by_model: bool,
}

/// Every built-in slot.
pub(crate) fn slots(config: &Config) -> Vec<BuiltinSlot> {
    let number = SlotType::Float { min: None, max: None };
    let languages = std::iter::once(&config.language).chain(&config.additional_languages).cloned().collect();
    let scores = vec!["satisfied".into(), "unsatisfied".into()];
    let internal = |name, kind, initial| BuiltinSlot { name, kind, initial, by_model: false };
    let by_model = |name, kind| BuiltinSlot { name, kind, initial: Json::Null, by_model: true };
    vec![
        internal("requested_slot", SlotType::Text, Json::Null),
        internal(SESSION_METADATA, SlotType::Any, Json::Null),
        internal("flow_hashes", SlotType::Any, Json::Null),
        internal("return_value", SlotType::Any, Json::Null),
        internal(LANGUAGE, SlotType::Categorical(languages), Json::from(&*config.language)),
        internal(SILENCE_TIMEOUT, number.clone(), Json::from(7.0)),
        internal(SILENCES, number.clone(), Json::from(0.0)),
        by_model("confirm_correction", SlotType::Bool),
        by_model(FLOW_TO_CONTINUE, SlotType::Text),
        by_model("continue_interrupted_flow_confirmation", SlotType::Bool),
        internal(MAX_CLARIFICATION_OPTIONS, number, Json::from(3.0)),
        by_model("continue_conversation", SlotType::Bool),
        by_model("csat_score", SlotType::Categorical(scores)),
        internal("mocked_datetime", SlotType::Any, Json::Null),
    ]
}

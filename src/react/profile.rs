//! The profile of a loop: the data in which agents differ.

use std::time::Duration;

use segue_engine::conversation::BotKind;

use crate::llm::Purpose;

/// The data in which the loops of agents differ.
#[derive(Clone, Debug)]
pub(crate) struct LoopProfile {
    /// What the model calls are for, in traces and in the rules of scripted models.
    pub(crate) purpose: Purpose,
    /// What a response without tool calls means.
    pub(crate) bare_text: BareText,
    /// Whether a completed task ends with a message: the text of the response that completed it, or one that the model is asked for.
    pub(crate) closing_message: bool,
    /// Model calls of one run.
    pub(crate) max_model_calls: u32,
    /// Consecutive responses whose calls may all fail; one more ends the run.
    pub(crate) max_failed_answers: u32,
    /// Whether the failure of any tool call ends the run. Otherwise the model gets the error and continues.
    pub(crate) fails_on_tool_error: bool,
    /// The time limit of one tool call, if the configuration sets one.
    pub(crate) tool_timeout: Option<Duration>,
    /// The kind of the texts beside tool calls.
    pub(crate) text_beside_calls: BotKind,
}

/// What a response without tool calls means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BareText {
    /// It is a question to the user; the run waits for the reply.
    AskUser,
    /// It is the result of the run.
    Final,
    /// It is a mistake: the model is told so, at most this often in a row; then the run fails.
    Correct {
        /// Corrections in a row.
        most: u32,
    },
}

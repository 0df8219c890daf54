//! Events of delegates, for interfaces that show them while they work.
//!
//! They are not stored: an event may come twice when a turn runs again, and consumers replace what they know of a `task_id`.

use std::sync::Arc;

use segue_engine::conversation::ModelUsage;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::report::{CANCELLED, ReportStatus, TaskReport};

/// What happened to a delegate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TaskEvent {
    /// It waits for a place.
    TaskQueued {
        /// Its id.
        task_id: Arc<str>,
        /// Its description, as its parent wrote it.
        description: Arc<str>,
        /// Its type.
        subagent_type: Arc<str>,
    },
    /// It works.
    TaskStarted {
        /// Its id.
        task_id: Arc<str>,
        /// Its description.
        description: Arc<str>,
        /// Its model.
        model_name: Arc<str>,
    },
    /// It has a new message: a response of its model, or the result of a tool.
    TaskRunning {
        /// Its id.
        task_id: Arc<str>,
        /// The message.
        message: Json,
        /// The number of the message, from 1.
        message_index: u64,
        /// Messages so far.
        total_messages: u64,
        /// Tokens so far; `None` before the first response.
        usage: Option<TokenCounts>,
        /// Its model.
        model_name: Arc<str>,
    },
    /// It has a result.
    TaskCompleted {
        /// Its id.
        task_id: Arc<str>,
        /// The result.
        result: Arc<str>,
        /// Tokens in total.
        usage: Option<TokenCounts>,
        /// Its model.
        model_name: Arc<str>,
    },
    /// It failed.
    TaskFailed {
        /// Its id.
        task_id: Arc<str>,
        /// Why.
        error: Arc<str>,
        /// Tokens in total.
        usage: Option<TokenCounts>,
        /// Its model.
        model_name: Arc<str>,
    },
    /// Its time was over.
    TaskTimedOut {
        /// Its id.
        task_id: Arc<str>,
        /// Why.
        error: Arc<str>,
        /// The last text of its model, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        partial: Option<Arc<str>>,
        /// Tokens in total.
        usage: Option<TokenCounts>,
        /// Its model.
        model_name: Arc<str>,
    },
    /// It was cancelled.
    TaskCancelled {
        /// Its id.
        task_id: Arc<str>,
        /// Why.
        error: Arc<str>,
        /// Tokens in total.
        usage: Option<TokenCounts>,
        /// Its model.
        model_name: Arc<str>,
    },
}

impl TaskEvent {
    /// The last event of a delegate with this report.
    pub(super) fn ended(report: &TaskReport) -> Self {
        let (task_id, model_name) = (report.id.clone(), report.model_name.clone());
        let usage = TokenCounts::of(&report.usage);
        let error = report.error.clone().unwrap_or_default();
        match report.status {
            ReportStatus::Completed => {
                let result = report.result.clone().unwrap_or_default();
                Self::TaskCompleted { task_id, result, usage, model_name }
            }
            ReportStatus::TimedOut => {
                Self::TaskTimedOut { task_id, error, partial: report.partial.clone(), usage, model_name }
            }
            ReportStatus::Cancelled => {
                let error = if error.is_empty() { CANCELLED.into() } else { error };
                Self::TaskCancelled { task_id, error, usage, model_name }
            }
            ReportStatus::Failed | ReportStatus::Pending | ReportStatus::Running => {
                Self::TaskFailed { task_id, error, usage, model_name }
            }
        }
    }
    /// The id of the delegate.
    pub fn task_id(&self) -> &str {
        match self {
            Self::TaskQueued { task_id, .. }
            | Self::TaskStarted { task_id, .. }
            | Self::TaskRunning { task_id, .. }
            | Self::TaskCompleted { task_id, .. }
            | Self::TaskFailed { task_id, .. }
            | Self::TaskTimedOut { task_id, .. }
            | Self::TaskCancelled { task_id, .. } => task_id,
        }
    }
    /// Whether it is the last event of its delegate.
    pub fn is_terminal(&self) -> bool {
        matches!(
            self,
            Self::TaskCompleted { .. }
                | Self::TaskFailed { .. }
                | Self::TaskTimedOut { .. }
                | Self::TaskCancelled { .. }
        )
    }
}

/// Tokens of a delegate since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenCounts {
    /// Tokens of its requests.
    pub input_tokens: u64,
    /// Tokens of its responses.
    pub output_tokens: u64,
    /// Both.
    pub total_tokens: u64,
}

impl TokenCounts {
    /// The counts of a usage; `None` if no model answered.
    pub fn of(usage: &ModelUsage) -> Option<Self> {
        let (input_tokens, output_tokens) = (usage.usage.input, usage.usage.output);
        let total_tokens = input_tokens.saturating_add(output_tokens);
        (!usage.is_empty()).then_some(Self { input_tokens, output_tokens, total_tokens })
    }
}

/// Receives the events of delegates. It is called while they work and must not wait.
pub trait TaskEventSink: Send + Sync {
    /// Takes an event of a delegate of this conversation.
    fn emit(&self, conversation: &str, event: &TaskEvent);
}

/// A sink that drops its events.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiscardTaskEvents;

impl TaskEventSink for DiscardTaskEvents {
    fn emit(&self, _: &str, _: &TaskEvent) {}
}

/// A sink that writes its events to the log, without the texts of delegates.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogTaskEvents;

impl TaskEventSink for LogTaskEvents {
    fn emit(&self, conversation: &str, event: &TaskEvent) {
        let task = event.task_id();
        match event {
            TaskEvent::TaskQueued { subagent_type, .. } => {
                tracing::debug!(conversation, task, subagent_type = &**subagent_type, "a sub-agent waits for a place");
            }
            TaskEvent::TaskStarted { model_name, .. } => {
                tracing::info!(conversation, task, model = &**model_name, "a sub-agent starts");
            }
            TaskEvent::TaskRunning { message_index, .. } => {
                tracing::debug!(conversation, task, message_index, "a sub-agent has a new message");
            }
            TaskEvent::TaskCompleted { usage, .. } => {
                tracing::info!(conversation, task, tokens = usage.map(|u| u.total_tokens), "a sub-agent completed");
            }
            TaskEvent::TaskFailed { error, .. } => {
                tracing::warn!(conversation, task, error = &**error, "a sub-agent failed");
            }
            TaskEvent::TaskTimedOut { error, .. } => {
                tracing::warn!(conversation, task, error = &**error, "the time of a sub-agent is over");
            }
            TaskEvent::TaskCancelled { error, .. } => {
                tracing::info!(conversation, task, error = &**error, "a sub-agent was cancelled");
            }
        }
    }
}

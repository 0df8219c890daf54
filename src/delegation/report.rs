//! How a delegate ended: its report, the text that its parent reads, and the metadata for programs.

use std::sync::Arc;

use minijinja::context;
use segue_engine::{
    conversation::{ModelUsage, Writes},
    project::BudgetLimits,
    template::from_json,
    text::{ELLIPSIS, TextLimit, strip_hidden, truncate},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};
use sha2::{Digest, Sha256};

use super::{criteria::CheckedCriterion, events::TokenCounts};
use crate::{
    limits,
    prompts::{PromptSet, WritesOf},
    react::Cap,
    tools::{FailureKind, ToolFailure, ToolOutcome, ToolOutput},
};

/// The state of a delegate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportStatus {
    /// It waits for a place.
    Pending,
    /// It works.
    Running,
    /// It has a result.
    Completed,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// Its time was over.
    TimedOut,
}

impl ReportStatus {
    /// Whether it has ended.
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }
    /// Its name, as metadata and templates have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
        }
    }
}

/// The limit that ended a delegate before it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Its token budget.
    TokenCapped,
    /// Its model responses.
    TurnCapped,
    /// The guard against repeated tool calls.
    LoopCapped,
}

impl From<Cap> for StopReason {
    fn from(cap: Cap) -> Self {
        match cap {
            Cap::Tokens => Self::TokenCapped,
            Cap::Turns => Self::TurnCapped,
            Cap::Loop => Self::LoopCapped,
        }
    }
}

impl StopReason {
    /// Its name, as metadata has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::TokenCapped => "token_capped",
            Self::TurnCapped => "turn_capped",
            Self::LoopCapped => "loop_capped",
        }
    }
    /// Its name for models.
    pub(super) fn label(self, prompts: &PromptSet) -> String {
        words(prompts, context! { outcome => self.name() })
    }
}

/// The terminal record of a delegate. There is exactly one for each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskReport {
    /// The id of the delegate.
    pub id: Arc<str>,
    /// How it ended.
    pub status: ReportStatus,
    /// Its result; only of a completed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Arc<str>>,
    /// The result as data, if it has a schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
    /// The last text of its model; only of one that did not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Arc<str>>,
    /// Why it did not complete, for models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Arc<str>>,
    /// The code of the error, documented by `segue explain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Arc<str>>,
    /// The cause for operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Arc<str>>,
    /// The limit that ended it early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// Its model.
    pub model_name: Arc<str>,
    /// What its model calls used.
    pub usage: ModelUsage,
    /// Model responses.
    pub turns: u32,
    /// What it has changed, or may have; also if it failed, was cancelled or its time was over.
    #[serde(default, skip_serializing_if = "Writes::is_empty")]
    pub writes: Writes,
    /// Its acceptance criteria; only of a completed one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub criteria: Vec<CheckedCriterion>,
}

/// The error of a delegate that was cancelled by its id.
pub(super) const CANCELLED: &str = "Cancelled by user";

/// The keys of the metadata of a result of `task`.
pub(super) mod key {
    pub(crate) const ID: &str = "subagent_id";
    pub(crate) const STATUS: &str = "subagent_status";
    pub(crate) const STOP_REASON: &str = "subagent_stop_reason";
    pub(crate) const ERROR: &str = "subagent_error";
    pub(crate) const BRIEF: &str = "subagent_result_brief";
    pub(crate) const SHA256: &str = "subagent_result_sha256";
    pub(crate) const MODEL: &str = "subagent_model_name";
    pub(crate) const TOKENS: &str = "subagent_token_usage";
    pub(crate) const PARTIAL: &str = "subagent_partial_brief";
    pub(crate) const DATA: &str = "subagent_result_data";
    pub(crate) const TURNS: &str = "subagent_turns";
    pub(crate) const USAGE: &str = "subagent_usage";
    pub(crate) const RESERVE: &str = "subagent_reserve";
    pub(crate) const WRITES: &str = "subagent_writes";
    pub(crate) const CRITERIA: &str = "subagent_criteria";
}

impl TaskReport {
    /// A report without a result.
    pub(super) fn ended(id: Arc<str>, status: ReportStatus, model_name: Arc<str>) -> Self {
        Self {
            id,
            status,
            result: None,
            data: None,
            partial: None,
            error: None,
            code: None,
            detail: None,
            stop_reason: None,
            model_name,
            usage: ModelUsage::default(),
            turns: 0,
            writes: Writes::default(),
            criteria: Vec::new(),
        }
    }

    /// The text for the model of the parent.
    pub(super) fn text(&self, prompts: &PromptSet) -> String {
        let capped = self.stop_reason.map(|reason| reason.label(prompts));
        let variables = context! {
            outcome => self.status.name(),
            capped,
            result => self.result.as_deref().unwrap_or_default(),
            error => self.error.as_deref(),
            partial => self.partial.as_deref(),
            criteria => from_json(&json!(self.criteria)),
        };
        let text = words(prompts, variables);
        // A result says what was done. What is in doubt is always said.
        let writes = match self.status {
            ReportStatus::Completed => Writes { in_doubt: self.writes.in_doubt.clone(), ..Writes::default() },
            _ => self.writes.clone(),
        };
        match prompts.writes_text(&writes, WritesOf::EndedWork) {
            Some(writes) => format!("{text}\n{writes}"),
            None => text,
        }
    }

    /// The metadata for programs.
    pub(super) fn metadata(&self) -> Map<String, Json> {
        let mut metadata = Map::new();
        let mut put = |name: &str, value: Json| metadata.insert(name.to_owned(), value);
        put(key::ID, json!(self.id));
        put(key::STATUS, json!(self.status));
        if let Some(reason) = self.stop_reason {
            put(key::STOP_REASON, json!(reason));
        }
        let error = match (&self.error, self.status) {
            (_, ReportStatus::Completed) => None,
            (None, ReportStatus::Cancelled) => Some(CANCELLED),
            (error, _) => error.as_deref(),
        };
        if let Some(error) = error {
            put(key::ERROR, json!(truncate(error, TextLimit::Chars(limits::DELEGATION_BRIEF), ELLIPSIS)));
        }
        if let Some(result) = &self.result {
            put(key::BRIEF, json!(brief(result, limits::DELEGATION_BRIEF)));
            put(key::SHA256, json!(hash(result)));
        }
        if let Some(partial) = &self.partial {
            put(key::PARTIAL, json!(brief(partial, limits::DELEGATION_BRIEF)));
        }
        if let Some(data) = &self.data {
            put(key::DATA, data.clone());
        }
        put(key::MODEL, json!(self.model_name));
        put(key::TURNS, json!(self.turns));
        if let Some(tokens) = TokenCounts::of(&self.usage) {
            put(key::TOKENS, json!(tokens));
            put(key::USAGE, json!(self.usage));
        }
        if !self.writes.is_empty() {
            put(key::WRITES, json!(self.writes));
        }
        if !self.criteria.is_empty() {
            put(key::CRITERIA, json!(self.criteria));
        }
        metadata
    }

    /// The outcome of the tool call.
    pub(super) fn outcome(&self, prompts: &PromptSet) -> ToolOutcome {
        let (text, meta) = (self.text(prompts), self.metadata());
        let kind = match self.status {
            ReportStatus::Completed => return ToolOutcome::Done(ToolOutput::text(text).with_meta(meta)),
            ReportStatus::TimedOut => FailureKind::Timeout,
            ReportStatus::Cancelled => FailureKind::Cancelled,
            ReportStatus::Pending | ReportStatus::Running | ReportStatus::Failed => FailureKind::ToolError,
        };
        let mut failure = ToolFailure::new(kind, text);
        failure.code = self.code.as_deref().map(str::to_owned);
        failure.detail = self.detail.as_deref().map(str::to_owned);
        failure.meta = meta;
        match self.writes.in_doubt.is_empty() {
            true => ToolOutcome::Failed(failure),
            false => ToolOutcome::Unknown(failure),
        }
    }
}

/// The text of the result of a delegation tool, which replaces the usual text of a failed call. `None` for other outcomes.
pub(crate) fn replacement_text(outcome: &ToolOutcome) -> Option<String> {
    match outcome {
        ToolOutcome::Failed(failure) | ToolOutcome::Unknown(failure) if failure.meta.contains_key(key::STATUS) => {
            let text = strip_hidden(&failure.message);
            Some(truncate(&text, TextLimit::Bytes(limits::TOOL_RESULT), ELLIPSIS).into_owned())
        }
        _ => None,
    }
}

/// The metadata of an outcome of a delegation tool.
pub(super) fn metadata_of(outcome: &ToolOutcome) -> Option<&Map<String, Json>> {
    match outcome {
        ToolOutcome::Done(output) => Some(&output.meta),
        ToolOutcome::Failed(failure) | ToolOutcome::Unknown(failure) => Some(&failure.meta),
        ToolOutcome::Pending(_) => None,
    }
    .filter(|meta| meta.contains_key(key::STATUS))
}

/// What the model calls of a delegate used, from the metadata of its outcome.
pub(super) fn usage_of(outcome: &ToolOutcome) -> ModelUsage {
    let usage = metadata_of(outcome).and_then(|meta| meta.get(key::USAGE));
    usage.and_then(|usage| serde_json::from_value(usage.clone()).ok()).unwrap_or_default()
}

/// What a delegate in the background may use of the budget of its parent, from the metadata of its outcome.
pub(super) fn reserve_of(outcome: &ToolOutcome) -> BudgetLimits {
    let reserve = metadata_of(outcome).and_then(|meta| meta.get(key::RESERVE));
    reserve.and_then(|reserve| serde_json::from_value(reserve.clone()).ok()).unwrap_or_default()
}

/// What a delegate has changed, from the metadata of its outcome.
pub(crate) fn writes_of(outcome: &ToolOutcome) -> Writes {
    let writes = metadata_of(outcome).and_then(|meta| meta.get(key::WRITES));
    writes.and_then(|writes| serde_json::from_value(writes.clone()).ok()).unwrap_or_default()
}

/// A text of `prompts/delegate_results.j2`.
pub(super) fn words(prompts: &PromptSet, variables: minijinja::Value) -> String {
    prompts.render(&prompts.delegate_results, variables).unwrap_or_default().trim().to_owned()
}

/// A text of at most `limit` characters: two thirds from the beginning, one third from the end.
pub(super) fn brief(text: &str, limit: usize) -> String {
    let count = text.chars().count();
    if count <= limit {
        return text.to_owned();
    }
    const MARK: &str = " … ";
    let room = limit.saturating_sub(MARK.chars().count());
    let head = room * 2 / 3;
    let first: String = text.chars().take(head).collect();
    let last: String = text.chars().skip(count - (room - head)).collect();
    format!("{first}{MARK}{last}")
}

/// The SHA-256 of a text in hexadecimal digits.
pub(super) fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

//! The ledger of an agent: its delegates so far. It is part of the metadata of the agent's frame, so that it outlives the messages of a
//! run, and a prompt shows it with advice.

use std::{collections::VecDeque, sync::Arc};

use minijinja::context;
use segue_engine::{
    conversation::Writes,
    text::{ELLIPSIS, TextLimit, single_line, strip_hidden, truncate},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use super::{
    report::{ReportStatus, StopReason, key, metadata_of, words},
    types::TASK,
};
use crate::{
    limits,
    prompts::PromptSet,
    tools::{FailureKind, ToolOutcome},
};

/// The key of the metadata of a frame.
const KEY: &str = "delegations";

/// The delegates of one agent in a conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Ledger {
    /// The newest last, at most [`limits::DELEGATION_LEDGER`].
    entries: VecDeque<LedgerEntry>,
    /// Delegates that were started in all.
    total: u32,
}

/// One delegate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LedgerEntry {
    pub(super) id: Arc<str>,
    pub(super) description: Arc<str>,
    pub(super) subagent_type: Arc<str>,
    pub(super) status: ReportStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) result_brief: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) result_sha256: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stop_reason: Option<StopReason>,
    /// What it has changed, or may have, if it did not complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) changed: Vec<String>,
    pub(super) created_at: Timestamp,
}

/// How a delegate ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SettledTask {
    pub(crate) id: Arc<str>,
    /// The metadata of its report; `None` if nothing is stored of it.
    pub(crate) meta: Option<Map<String, Json>>,
}

impl LedgerEntry {
    /// Takes status and result from the metadata of a report.
    fn take(&mut self, meta: &Map<String, Json>) {
        let text = |name: &str| meta.get(name).and_then(Json::as_str).map(Arc::<str>::from);
        let read = |name: &str| meta.get(name).cloned().unwrap_or_default();
        if let Ok(status) = serde_json::from_value(read(key::STATUS)) {
            self.status = status;
        }
        self.result_brief = text(key::BRIEF);
        self.result_sha256 = text(key::SHA256).filter(|hash| is_sha256(hash));
        self.error = text(key::ERROR);
        self.stop_reason = serde_json::from_value(read(key::STOP_REASON)).ok();
        let writes: Writes = serde_json::from_value(read(key::WRITES)).unwrap_or_default();
        self.changed = match self.status {
            ReportStatus::Completed => writes.in_doubt_names(),
            _ => [writes.done_names(), writes.in_doubt_names()].concat(),
        };
    }
}

impl Ledger {
    /// The ledger in the metadata of a frame; empty if there is none.
    pub(crate) fn read(metadata: &Map<String, Json>) -> Self {
        metadata.get(KEY).and_then(|ledger| serde_json::from_value(ledger.clone()).ok()).unwrap_or_default()
    }
    /// Puts it into the metadata of a frame.
    pub(crate) fn write(&self, metadata: &mut Map<String, Json>) {
        if self.total > 0 {
            metadata.insert(KEY.to_owned(), json!(self));
        }
    }
    /// Whether a key of the metadata of a frame is that of the ledger.
    pub(crate) fn is_own_key(key: &str) -> bool {
        key == KEY
    }
    /// Delegates that were started in all.
    pub(crate) fn total(&self) -> u32 {
        self.total
    }
    /// The entries, the oldest first.
    #[cfg(test)]
    pub(super) fn entries(&self) -> impl Iterator<Item = &LedgerEntry> {
        self.entries.iter()
    }
    /// The ids of delegates that still work.
    pub(crate) fn running(&self) -> Vec<Arc<str>> {
        self.entries.iter().filter(|entry| !entry.status.is_terminal()).map(|entry| entry.id.clone()).collect()
    }

    /// Takes the result of a call of a delegation tool. A call that started nothing is left out.
    pub(crate) fn record(&mut self, tool: &str, arguments: Option<&Json>, outcome: &ToolOutcome, at: Timestamp) {
        let meta = metadata_of(outcome);
        if meta.is_none() && tool != TASK {
            return;
        }
        let of_report = |name: &str| meta.and_then(|meta| meta.get(name)).cloned().unwrap_or_default();
        let status = match serde_json::from_value(of_report(key::STATUS)) {
            Ok(status) => status,
            Err(_) => match status_without_report(outcome) {
                Some(status) => status,
                None => return,
            },
        };
        let argument = |name: &str| {
            let text = arguments.and_then(|arguments| arguments.get(name)).and_then(Json::as_str).unwrap_or_default();
            label(text)
        };
        let description = argument("description");
        let mut entry = LedgerEntry {
            id: of_report(key::ID).as_str().unwrap_or_default().into(),
            description: if description.is_empty() { argument("prompt") } else { description },
            subagent_type: argument("subagent_type"),
            status,
            result_brief: None,
            result_sha256: None,
            error: None,
            stop_reason: None,
            changed: Vec::new(),
            created_at: at,
        };
        if let Some(meta) = meta {
            entry.take(meta);
        }
        match self.entries.iter_mut().find(|known| !entry.id.is_empty() && known.id == entry.id) {
            // A terminal entry stays as it is.
            Some(known) if known.status.is_terminal() => {}
            Some(known) => {
                let LedgerEntry { description, subagent_type, created_at, .. } = known.clone();
                *known = LedgerEntry { description, subagent_type, created_at, ..entry };
            }
            None if tool == TASK => {
                self.total = self.total.saturating_add(1);
                self.entries.push_back(entry);
                while self.entries.len() > limits::DELEGATION_LEDGER {
                    self.entries.pop_front();
                }
            }
            None => {}
        }
    }

    /// Takes over how delegates in the background ended. Those that are not stored any more have failed.
    pub(crate) fn settle(&mut self, settled: &[SettledTask], prompts: &PromptSet) {
        for SettledTask { id, meta } in settled {
            let Some(entry) = self.entries.iter_mut().find(|entry| entry.id == *id && !entry.status.is_terminal())
            else {
                continue;
            };
            match meta {
                Some(meta) => entry.take(meta),
                None => {
                    entry.status = ReportStatus::Failed;
                    entry.error = Some(words(prompts, context! { outcome => "lost" }).into());
                }
            }
        }
    }

    /// The ledger for the prompt of its agent, at most [`limits::DELEGATION_LEDGER_TEXT`] characters; `None` if it is empty.
    pub(crate) fn render(&self, prompts: &PromptSet) -> Option<String> {
        let short = |text: &Option<Arc<str>>| text.as_ref().map(|text| cut(text, limits::DELEGATION_LEDGER_RESULT));
        let entries: Vec<minijinja::Value> = self
            .entries
            .iter()
            .rev()
            .map(|entry| {
                context! {
                    id => &*entry.id,
                    subagent_type => &*entry.subagent_type,
                    description => &*entry.description,
                    status => entry.status.name(),
                    capped => entry.stop_reason.map(|reason| reason.label(prompts)),
                    result => short(&entry.result_brief),
                    error => short(&entry.error),
                    changed => entry.changed.join(", "),
                }
            })
            .collect();
        let mut shown = entries.len();
        while shown > 0 {
            let left_out = entries.len() - shown;
            let list: Vec<_> = entries.iter().take(shown).cloned().collect();
            let text = prompts.render(&prompts.agent_delegation_ledger, context! { entries => list, left_out }).ok()?;
            let text = text.trim();
            if text.chars().count() <= limits::DELEGATION_LEDGER_TEXT {
                return Some(text.to_owned());
            }
            shown -= 1;
        }
        None
    }
}

/// The status of a call of `task` whose report was lost, because the call itself ended first. `None`: nothing was started.
fn status_without_report(outcome: &ToolOutcome) -> Option<ReportStatus> {
    match outcome {
        ToolOutcome::Failed(failure) => match failure.kind {
            FailureKind::Refused | FailureKind::BadArguments | FailureKind::UnknownTool => None,
            FailureKind::Cancelled => Some(ReportStatus::Cancelled),
            FailureKind::Timeout => Some(ReportStatus::TimedOut),
            FailureKind::ToolError | FailureKind::Unavailable | FailureKind::BadResult => Some(ReportStatus::Failed),
        },
        ToolOutcome::Unknown(_) => Some(ReportStatus::Failed),
        ToolOutcome::Done(_) | ToolOutcome::Pending(_) => None,
    }
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The description of a delegate as one short line.
pub(super) fn label(text: &str) -> Arc<str> {
    cut(text, limits::DELEGATION_LABEL).into()
}

fn cut(text: &str, limit: usize) -> String {
    let text = strip_hidden(text);
    let text = single_line(&text);
    truncate(text.trim(), TextLimit::Chars(limit), ELLIPSIS).into_owned()
}

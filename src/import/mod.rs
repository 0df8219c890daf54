//! Imports conversations from a Rasa tracker store: [`read`] the source, then [`import_conversations`].
//!
//! Existing conversations are never changed. Unknown events, flows and slots are not errors: unsupported events are stored
//! unchanged and have no effect, and the [`ImportReport`] counts all of them.
//!
//! Flows in progress are not resumed, because the stack of Rasa has another format. Slots and history are imported, and the
//! conversation continues with the next message of the user.

mod convert;
mod source;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use segue_engine::{
    conversation::{Conversation, EventKind},
    ids::ConversationId,
    project::Project,
};
use serde::Serialize;

pub use self::source::{ImportError, TrackerEvent, TrackerExport, read};
use crate::store::{Store, StoreError, TurnCommit, TurnNumber, Version};

/// The result of an import. Its JSON is the output of `segue import --format json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ImportReport {
    /// The number of imported conversations.
    pub conversations: usize,
    /// The number of imported events.
    pub events: usize,
    /// The ids of conversations that existed already and were not changed.
    #[serde(rename = "already_there")]
    pub existing: Vec<String>,
    /// The number of events by kind that are stored unchanged and have no effect.
    #[serde(rename = "kept_unread")]
    pub unsupported_events: BTreeMap<String, usize>,
    /// The rows that are no events and were skipped: where, and why.
    #[serde(rename = "left_out")]
    pub skipped_rows: Vec<String>,
    /// The number of conversations with a flow in progress, which is not resumed.
    pub in_progress: usize,
    /// The slots with a value that the project does not have, and the number of conversations that have them.
    pub unknown_slots: BTreeMap<String, usize>,
    /// The flows that ran and that the project does not have, and the number of conversations that ran them.
    pub unknown_flows: BTreeMap<String, usize>,
}

/// Writes conversations into a store, each in its own transaction. A second run imports only the missing conversations.
///
/// # Errors
/// [`StoreError`] when the store cannot be read or written. Conversations that were written before stay.
///
/// # Cancellation
/// Dropping the future stops after the conversation that is being written; a second run imports the rest.
pub async fn import_conversations(
    export: TrackerExport,
    project: &Project,
    store: &Arc<dyn Store>,
) -> Result<ImportReport, StoreError> {
    let mut report = ImportReport { skipped_rows: export.skipped_rows, ..ImportReport::default() };
    for (sender, rows) in export.by_sender {
        let id = ConversationId::from(sender.as_str());
        let stored = store.load(&id).await?;
        if stored.version != Version::default() {
            report.existing.push(sender);
            continue;
        }
        let mut conversation = Conversation::new(id.clone());
        let mut events = Vec::with_capacity(rows.len());
        let mut in_progress = false;
        for row in rows {
            let kind = row.kind().to_owned();
            let converted = convert::convert(row);
            if matches!(converted.event.kind, EventKind::Unknown(_)) {
                *report.unsupported_events.entry(kind).or_default() += 1;
            }
            in_progress = converted.in_progress.unwrap_or(in_progress);
            conversation.apply(&converted.event);
            events.push(converted.event);
        }
        report.in_progress += usize::from(in_progress);
        count_unknown_names(project, &conversation, &events, &mut report);
        report.conversations += 1;
        report.events += events.len();
        let batch = TurnCommit { turn: TurnNumber(0), events, snapshot: Some(conversation), ..TurnCommit::default() };
        store.append(&id, Version::default(), batch).await?;
    }
    Ok(report)
}

/// Counts slots and flows that the project does not have.
fn count_unknown_names(
    project: &Project,
    conversation: &Conversation,
    events: &[segue_engine::conversation::Event],
    report: &mut ImportReport,
) {
    let mut slots: Vec<&str> = Vec::new();
    let mut flows: Vec<&str> = Vec::new();
    for event in events {
        match &event.kind {
            EventKind::Slot { name, .. } if project.slot(name.as_str()).is_none() => {
                let has_value = conversation.slots.get(name.as_str()).is_some_and(|value| !value.is_null());
                if has_value && !slots.contains(&name.as_str()) {
                    slots.push(name.as_str());
                }
            }
            EventKind::FlowStarted { flow_id, .. }
                if project.flow(flow_id.as_str()).is_none() && !flows.contains(&flow_id.as_str()) =>
            {
                flows.push(flow_id.as_str());
            }
            _ => {}
        }
    }
    slots.into_iter().for_each(|slot| *report.unknown_slots.entry(slot.to_owned()).or_default() += 1);
    flows.into_iter().for_each(|flow| *report.unknown_flows.entry(flow.to_owned()).or_default() += 1);
}

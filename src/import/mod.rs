//! Conversations of another store, brought over.
//!
//! *For*: projects that come from elsewhere and bring their conversations. *Entry*: [`read`], then [`bring`]. *Never*: changes
//! a conversation that is there already; fails on an event, a flow or a slot that it does not know: what cannot be understood
//! is kept as it is, and the report says so.
//!
//! What lies in progress there is not taken up here: its stack is written in another way. Slots and history stay, so the
//! conversation goes on where the person speaks next.

mod event;
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

pub use self::source::{ImportError, Row, Talks, read};
use crate::store::{Store, StoreError, TurnCommit, TurnNumber, Version};

/// What was brought over.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ImportReport {
    /// Conversations that were written.
    pub conversations: usize,
    /// Events that were written.
    pub events: usize,
    /// Conversations that were there already, and stay as they are.
    pub already_there: Vec<String>,
    /// Events by kind that are kept as they are and change nothing here.
    pub kept_unread: BTreeMap<String, usize>,
    /// Rows that are no events, and were left out: where, and why.
    pub left_out: Vec<String>,
    /// Conversations that stood in the middle of something, which they begin anew.
    pub in_progress: usize,
    /// Slots that have a value there and are not in the project, with how many conversations have them.
    pub unknown_slots: BTreeMap<String, usize>,
    /// Flows that ran there and are not in the project, with how many conversations ran them.
    pub unknown_flows: BTreeMap<String, usize>,
}

/// Writes conversations into a store; one transaction each. A second run brings only what is missing.
///
/// # Errors
/// [`StoreError`] when the store cannot be read or written; what was written before stays.
pub async fn bring(talks: Talks, project: &Project, store: &Arc<dyn Store>) -> Result<ImportReport, StoreError> {
    let mut report = ImportReport { left_out: talks.left_out, ..ImportReport::default() };
    for (sender, rows) in talks.by_sender {
        let id = ConversationId::from(sender.as_str());
        let there = store.load(&id).await?;
        if there.version != Version::default() {
            report.already_there.push(sender);
            continue;
        }
        let mut conversation = Conversation::new(id.clone());
        let mut events = Vec::with_capacity(rows.len());
        let mut open = false;
        for row in rows {
            let kind = row.kind().to_owned();
            let read = event::event(row);
            if matches!(read.event.kind, EventKind::Unknown(_)) {
                *report.kept_unread.entry(kind).or_default() += 1;
            }
            open = read.open.unwrap_or(open);
            conversation.apply(&read.event);
            events.push(read.event);
        }
        report.in_progress += usize::from(open);
        strangers(project, &conversation, &events, &mut report);
        report.conversations += 1;
        report.events += events.len();
        let batch = TurnCommit { turn: TurnNumber(0), events, snapshot: Some(conversation), ..TurnCommit::default() };
        store.append(&id, Version::default(), batch).await?;
    }
    Ok(report)
}

/// Notes what the project does not know.
fn strangers(
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

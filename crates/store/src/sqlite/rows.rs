//! How records stand in rows: as JSON text, with a checksum over what the row says and whose it is.

use std::fmt::Display;

use rusqlite::Row;
use segue_base::context::StepKey;
use segue_engine::{
    conversation::{Conversation, Event},
    ids::ConversationId,
    time::Timestamp,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::Unsigned;
use crate::{InboxMessage, JournalRecord, StoreError, StoredReply, checksum::Checksum};

/// A row whose checksum fits something else.
const CHANGED: &str = "the checksum does not match";

/// A text as its row holds it.
pub(super) struct Text {
    pub(super) text: String,
    pub(super) checksum: Unsigned,
}

/// Writes a value as JSON. What this program makes can always be written.
pub(super) fn json<T: Serialize + ?Sized>(id: &ConversationId, value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|e| StoreError::damaged(id, e))
}

fn read<T: DeserializeOwned>(id: &ConversationId, row: impl Display, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|e| StoreError::damaged(id, format!("{row}: {e}")))
}

/// `row` names the table and the key.
fn verify(id: &ConversationId, row: impl Display, stored: Unsigned, found: Unsigned) -> Result<(), StoreError> {
    if stored.0 == found.0 { Ok(()) } else { Err(StoreError::damaged(id, format!("{row}: {CHANGED}"))) }
}

/// The text of a column; the error names the column.
fn column<'r>(row: &'r Row<'_>, number: usize) -> rusqlite::Result<&'r str> {
    let value = row.get_ref(number)?;
    value.as_str().or_else(|_| {
        let name = row.as_ref().column_name(number)?.to_owned();
        Err(rusqlite::Error::InvalidColumnType(number, name, value.data_type()))
    })
}

/// An accepted message as its row holds it.
pub(super) fn message(inbound: &InboxMessage) -> Result<Text, StoreError> {
    let text = json(&inbound.conversation, inbound)?;
    Ok(Text { checksum: message_checksum(&inbound.conversation, &text), text })
}

pub(super) fn message_checksum(id: &ConversationId, text: &str) -> Unsigned {
    Unsigned(Checksum::new(id.as_str()).text(text).finish())
}

/// The columns that [`read_message`] reads.
pub(super) const MESSAGE: &str = "turn, message, checksum";

/// Reads the columns of [`MESSAGE`], which come first: the turn, and the message.
pub(super) fn read_message(
    id: &ConversationId,
    row: &Row<'_>,
) -> rusqlite::Result<Result<(u64, InboxMessage), StoreError>> {
    let (Unsigned(turn), text, stored) = (row.get(0)?, column(row, 1)?, row.get(2)?);
    let place = format_args!("table inbox, turn {turn}");
    let verified = verify(id, place, stored, message_checksum(id, text));
    Ok(verified.and_then(|()| read(id, place, text)).map(|inbound| (turn, inbound)))
}

/// The columns that [`read_batch`] reads.
pub(super) const BATCH: &str = "version, turn, events, replies, checksum";

/// A batch as its row holds it, verified and not read yet.
pub(super) struct TurnCommit<'r> {
    id: &'r ConversationId,
    pub(super) version: u64,
    pub(super) turn: u64,
    events: &'r str,
    replies: &'r str,
}

pub(super) fn batch_checksum(id: &ConversationId, version: u64, turn: u64, events: &str, replies: &str) -> Unsigned {
    Unsigned(Checksum::new(id.as_str()).number(version).number(turn).text(events).text(replies).finish())
}

/// Reads the columns of [`BATCH`], which come first.
pub(super) fn read_batch<'r>(
    id: &'r ConversationId,
    row: &'r Row<'_>,
) -> rusqlite::Result<Result<TurnCommit<'r>, StoreError>> {
    let (Unsigned(version), Unsigned(turn)) = (row.get(0)?, row.get(1)?);
    let (events, replies) = (column(row, 2)?, column(row, 3)?);
    let found = batch_checksum(id, version, turn, events, replies);
    let batch = TurnCommit { id, version, turn, events, replies };
    Ok(verify(id, batch.place(), row.get(4)?, found).map(|()| batch))
}

impl TurnCommit<'_> {
    fn place(&self) -> String {
        format!("table batches, version {}", self.version)
    }
    pub(super) fn events(&self) -> Result<Vec<Event>, StoreError> {
        let damaged = |e| StoreError::damaged(self.id, format!("{}: {e}", self.place()));
        let events: Vec<&RawValue> = serde_json::from_str(self.events).map_err(damaged)?;
        events.iter().map(|event| Event::from_json(event.get()).map_err(damaged)).collect()
    }
    pub(super) fn replies(&self) -> Result<Vec<StoredReply>, StoreError> {
        read(self.id, self.place(), self.replies)
    }
}

/// A snapshot after batch `version` as its row holds it.
pub(super) fn snapshot(version: u64, snapshot: &Conversation) -> Result<Text, StoreError> {
    let text = json(&snapshot.id, snapshot)?;
    Ok(Text { checksum: snapshot_checksum(&snapshot.id, version, &text), text })
}

pub(super) fn snapshot_checksum(id: &ConversationId, version: u64, text: &str) -> Unsigned {
    Unsigned(Checksum::new(id.as_str()).number(version).text(text).finish())
}

/// Reads what [`snapshot`] wrote from the columns `version`, `snapshot` and `checksum`.
pub(super) fn read_snapshot(
    id: &ConversationId,
    row: &Row<'_>,
) -> rusqlite::Result<Result<(u64, Conversation), StoreError>> {
    let (Unsigned(version), text) = (row.get(0)?, column(row, 1)?);
    let place = format_args!("table snapshots, version {version}");
    let verified = verify(id, place, row.get(2)?, snapshot_checksum(id, version, text));
    Ok(verified.and_then(|()| read(id, place, text)).map(|snapshot| (version, snapshot)))
}

/// The columns that [`read_record`] reads.
pub(super) const RECORD: &str = "step, kind, request, outcome, at, build, checksum";

/// The checksum of a record of the journal of a turn.
pub(super) fn record_checksum(id: &ConversationId, turn: u64, record: &JournalRecord) -> Unsigned {
    let outcome = record.outcome.as_deref();
    let sum = Checksum::new(id.as_str()).number(turn).text(record.key.as_str()).text(&record.kind);
    let sum = sum.text(&record.request).number(u64::from(outcome.is_some())).text(outcome.unwrap_or_default());
    Unsigned(sum.number(record.at.as_micros().cast_unsigned()).number(record.build).finish())
}

/// Reads the columns of [`RECORD`].
pub(super) fn read_record(
    id: &ConversationId,
    turn: u64,
    row: &Row<'_>,
) -> rusqlite::Result<Result<JournalRecord, StoreError>> {
    let text = |column: usize| row.get::<_, String>(column).map(std::sync::Arc::<str>::from);
    let record = JournalRecord {
        key: StepKey::new(text(0)?),
        kind: text(1)?,
        request: text(2)?,
        outcome: row.get::<_, Option<String>>(3)?.map(Into::into),
        at: Timestamp::from_micros(row.get(4)?),
        build: row.get::<_, Unsigned>(5)?.0,
    };
    let found = record_checksum(id, turn, &record);
    let place = format_args!("table journal, turn {turn}, step {}", record.key);
    Ok(verify(id, place, row.get(6)?, found).map(|()| record))
}

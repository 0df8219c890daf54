//! Encoding of rows: JSON text, with a checksum over the content and the conversation id.

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

use super::SqlU64;
use crate::{InboxMessage, JournalRecord, StoreError, StoredReply, checksum::Checksum};

/// The reason for a row whose checksum does not match.
const CHECKSUM_MISMATCH: &str = "the checksum does not match";

/// An encoded text and its checksum.
pub(super) struct EncodedText {
    pub(super) text: String,
    pub(super) checksum: SqlU64,
}

/// Encodes a value as JSON.
pub(super) fn json<T: Serialize + ?Sized>(id: &ConversationId, value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|e| StoreError::corrupt(id, e))
}

fn read<T: DeserializeOwned>(id: &ConversationId, row: impl Display, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|e| StoreError::corrupt(id, format!("{row}: {e}")))
}

/// `row` names the table and the key.
fn verify(id: &ConversationId, row: impl Display, stored: SqlU64, found: SqlU64) -> Result<(), StoreError> {
    if stored.0 == found.0 { Ok(()) } else { Err(StoreError::corrupt(id, format!("{row}: {CHECKSUM_MISMATCH}"))) }
}

/// The text of a column. The error names the column.
fn column<'r>(row: &'r Row<'_>, number: usize) -> rusqlite::Result<&'r str> {
    let value = row.get_ref(number)?;
    value.as_str().or_else(|_| {
        let name = row.as_ref().column_name(number)?.to_owned();
        Err(rusqlite::Error::InvalidColumnType(number, name, value.data_type()))
    })
}

/// Encodes an accepted message.
pub(super) fn encode_message(inbound: &InboxMessage) -> Result<EncodedText, StoreError> {
    let text = json(&inbound.conversation, inbound)?;
    Ok(EncodedText { checksum: message_checksum(&inbound.conversation, &text), text })
}

pub(super) fn message_checksum(id: &ConversationId, text: &str) -> SqlU64 {
    SqlU64(Checksum::new(id.as_str()).text(text).finish())
}

/// The columns that [`read_message`] reads.
pub(super) const MESSAGE_COLUMNS: &str = "turn, message, checksum";

/// Decodes the columns of [`MESSAGE_COLUMNS`], which must come first: the turn and the message.
pub(super) fn read_message(
    id: &ConversationId,
    row: &Row<'_>,
) -> rusqlite::Result<Result<(u64, InboxMessage), StoreError>> {
    let (SqlU64(turn), text, stored) = (row.get(0)?, column(row, 1)?, row.get(2)?);
    let place = format_args!("table inbox, turn {turn}");
    let verified = verify(id, place, stored, message_checksum(id, text));
    Ok(verified.and_then(|()| read(id, place, text)).map(|inbound| (turn, inbound)))
}

/// The columns that [`read_batch`] reads.
pub(super) const BATCH_COLUMNS: &str = "version, turn, events, replies, checksum";

/// A verified batch row whose JSON is not parsed yet.
pub(super) struct BatchRow<'r> {
    id: &'r ConversationId,
    pub(super) version: u64,
    pub(super) turn: u64,
    events: &'r str,
    replies: &'r str,
}

pub(super) fn batch_checksum(id: &ConversationId, version: u64, turn: u64, events: &str, replies: &str) -> SqlU64 {
    SqlU64(Checksum::new(id.as_str()).number(version).number(turn).text(events).text(replies).finish())
}

/// Reads and verifies the columns of [`BATCH_COLUMNS`], which must come first.
pub(super) fn read_batch<'r>(
    id: &'r ConversationId,
    row: &'r Row<'_>,
) -> rusqlite::Result<Result<BatchRow<'r>, StoreError>> {
    let (SqlU64(version), SqlU64(turn)) = (row.get(0)?, row.get(1)?);
    let (events, replies) = (column(row, 2)?, column(row, 3)?);
    let found = batch_checksum(id, version, turn, events, replies);
    let batch = BatchRow { id, version, turn, events, replies };
    Ok(verify(id, batch.place(), row.get(4)?, found).map(|()| batch))
}

impl BatchRow<'_> {
    fn place(&self) -> String {
        format!("table batches, version {}", self.version)
    }
    pub(super) fn events(&self) -> Result<Vec<Event>, StoreError> {
        let corrupt = |e| StoreError::corrupt(self.id, format!("{}: {e}", self.place()));
        let events: Vec<&RawValue> = serde_json::from_str(self.events).map_err(corrupt)?;
        events.iter().map(|event| Event::from_json(event.get()).map_err(corrupt)).collect()
    }
    pub(super) fn replies(&self) -> Result<Vec<StoredReply>, StoreError> {
        read(self.id, self.place(), self.replies)
    }
}

/// Encodes a snapshot that includes batch `version`.
pub(super) fn encode_snapshot(version: u64, snapshot: &Conversation) -> Result<EncodedText, StoreError> {
    let text = json(&snapshot.id, snapshot)?;
    Ok(EncodedText { checksum: snapshot_checksum(&snapshot.id, version, &text), text })
}

pub(super) fn snapshot_checksum(id: &ConversationId, version: u64, text: &str) -> SqlU64 {
    SqlU64(Checksum::new(id.as_str()).number(version).text(text).finish())
}

/// Decodes a snapshot from the columns `version`, `snapshot` and `checksum`.
pub(super) fn read_snapshot(
    id: &ConversationId,
    row: &Row<'_>,
) -> rusqlite::Result<Result<(u64, Conversation), StoreError>> {
    let (SqlU64(version), text) = (row.get(0)?, column(row, 1)?);
    let place = format_args!("table snapshots, version {version}");
    let verified = verify(id, place, row.get(2)?, snapshot_checksum(id, version, text));
    Ok(verified.and_then(|()| read(id, place, text)).map(|snapshot| (version, snapshot)))
}

/// The columns that [`read_record`] reads.
pub(super) const RECORD_COLUMNS: &str = "step, kind, request, outcome, at, build, checksum";

/// The checksum of a journal record of a turn.
pub(super) fn record_checksum(id: &ConversationId, turn: u64, record: &JournalRecord) -> SqlU64 {
    let outcome = record.outcome.as_deref();
    let sum = Checksum::new(id.as_str()).number(turn).text(record.key.as_str()).text(&record.kind);
    let sum = sum.text(&record.request).number(u64::from(outcome.is_some())).text(outcome.unwrap_or_default());
    SqlU64(sum.number(record.at.as_micros().cast_unsigned()).number(record.build).finish())
}

/// Decodes the columns of [`RECORD_COLUMNS`].
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
        build: row.get::<_, SqlU64>(5)?.0,
    };
    let found = record_checksum(id, turn, &record);
    let place = format_args!("table journal, turn {turn}, step {}", record.key);
    Ok(verify(id, place, row.get(6)?, found).map(|()| record))
}

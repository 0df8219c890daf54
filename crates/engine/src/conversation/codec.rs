//! How events and snapshots are stored: one tag byte for the version, a checksum, then JSON.
//!
//! ```text
//! byte 0        version of the encoding
//! bytes 1..9    checksum over owner, number and body, little endian
//! bytes 9..     the body: a JSON array of events, or one JSON object
//! ```
//!
//! Every version that was ever released stays readable: a new one adds a branch to [`open`], none is taken away. The checksum covers
//! the owner and the number of the record too, so that a record in the wrong place is as visible as a flipped bit. It
//! guards against accidents, not against an author of forgeries.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Conversation, Event};
use crate::ids::ConversationId;

/// The version that is written.
pub const VERSION: u8 = 1;
/// Bytes before the body; SQL views skip them.
pub const HEAD: usize = 9;

/// Why a record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// It is shorter than its head.
    #[error("the record is cut short: {0} bytes")]
    Short(usize),
    /// A later version wrote it.
    #[error("the record has encoding {0}, this program knows up to {VERSION}: use a newer program")]
    TooNew(u8),
    /// Bytes changed, or the record stands in the wrong place.
    #[error("the checksum does not fit")]
    Checksum,
    /// The checksum fits and the body still makes no sense.
    #[error("the body cannot be read: {0}")]
    Body(String),
}

/// Encodes the events of batch `number` of a conversation.
///
/// # Errors
/// [`CodecError::Body`] when a value cannot be written as JSON; events made by this program always can.
pub fn encode_events(owner: &ConversationId, number: u64, events: &[Event]) -> Result<Vec<u8>, CodecError> {
    // 200 bytes hold most events: one allocation for most batches.
    seal(owner.as_str(), number, &events, 200 * events.len())
}

/// Reads what [`encode_events`] wrote.
///
/// # Errors
/// All of [`CodecError`].
pub fn decode_events(owner: &ConversationId, number: u64, record: &[u8]) -> Result<Vec<Event>, CodecError> {
    let events: Vec<&RawValue> = open(owner.as_str(), number, record)?;
    let read = |event: &&RawValue| Event::from_json(event.get()).map_err(|e| CodecError::Body(e.to_string()));
    events.iter().map(read).collect()
}

/// Encodes a snapshot after batch `number`.
///
/// # Errors
/// As [`encode_events`].
pub fn encode_snapshot(number: u64, snapshot: &Conversation) -> Result<Vec<u8>, CodecError> {
    seal(snapshot.id.as_str(), number, snapshot, 2048)
}

/// Reads what [`encode_snapshot`] wrote. A snapshot that cannot be read is no loss: the events fold to the same.
///
/// # Errors
/// All of [`CodecError`].
pub fn decode_snapshot(owner: &ConversationId, number: u64, record: &[u8]) -> Result<Conversation, CodecError> {
    open(owner.as_str(), number, record)
}

/// Encodes any record of `owner` under `number`; `size` is a guess of its length in bytes.
///
/// # Errors
/// As [`encode_events`].
pub fn seal<T: Serialize + ?Sized>(owner: &str, number: u64, body: &T, size: usize) -> Result<Vec<u8>, CodecError> {
    let mut record = Vec::with_capacity(HEAD + size);
    record.extend_from_slice(&[0; HEAD]);
    serde_json::to_writer(&mut record, body).map_err(|e| CodecError::Body(e.to_string()))?;
    let sum = checksum(owner, number, record.get(HEAD..).unwrap_or_default()).to_le_bytes();
    if let Some((version, rest)) = record.split_first_mut() {
        *version = VERSION;
        rest.iter_mut().zip(sum).for_each(|(to, from)| *to = from);
    }
    Ok(record)
}

/// Reads what [`seal`] wrote.
///
/// # Errors
/// All of [`CodecError`].
pub fn open<'a, T: Deserialize<'a>>(owner: &str, number: u64, record: &'a [u8]) -> Result<T, CodecError> {
    let short = || CodecError::Short(record.len());
    let (version, rest) = record.split_first().ok_or_else(short)?;
    if *version > VERSION {
        return Err(CodecError::TooNew(*version));
    }
    let (sum, body) = rest.split_first_chunk::<8>().ok_or_else(short)?;
    if *version != VERSION || u64::from_le_bytes(*sum) != checksum(owner, number, body) {
        return Err(CodecError::Checksum);
    }
    serde_json::from_slice(body).map_err(|e| CodecError::Body(e.to_string()))
}

/// A 64-bit checksum in steps of eight bytes. Each step can be undone (exclusive or, an odd factor, a folded shift), so a
/// change within one step always changes the sum; wider damage slips through once in 2^64.
pub fn checksum(owner: &str, number: u64, body: &[u8]) -> u64 {
    let step = |sum: u64, word: u64| {
        // The factor is the 64-bit prime of the FNV-1a hash.
        let mixed = (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        mixed ^ (mixed >> 29)
    };
    let bytes = |sum: u64, bytes: &[u8]| {
        let (words, rest) = bytes.as_chunks::<8>();
        let sum = words.iter().fold(sum, |sum, word| step(sum, u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        step(step(sum, u64::from_le_bytes(last)), bytes.len() as u64)
    };
    // The start value is the offset basis of the FNV-1a hash.
    bytes(step(bytes(0xcbf2_9ce4_8422_2325, owner.as_bytes()), number), body)
}

#[cfg(test)]
mod tests;

//! Marks of replies that are about to be shown: one small write beside the database instead of a transaction in it.
//!
//! A mark stands between a model's first word and the user, so it must not wait for a commit, and a transaction for every reply that is
//! streamed would cost more than all else that is stored of it. The file next to the database (its name ends in `-speaking`) has two places
//! for each conversation, for its turns in turn, and a place is rewritten by the turn after the next: the file grows with the
//! conversations and not with what is said. A place counts only for the turn that wrote it, by its number and by when its message was accepted, so
//! nothing is ever cleaned up, and a file that belongs to another database says nothing.
//!
//! What has been written outlives the process, as a commit does with `synchronous = NORMAL`. Where every commit is forced to the disk,
//! where the file cannot be opened, for ids that have no room, and where answers that the turn has had must be stored along with it, a mark is a
//! record of the journal as any other.

use std::{
    collections::HashMap,
    fs::File,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use segue_engine::{conversation::codec, ids::ConversationId, time::Timestamp};

use crate::{
    cx::StepKey,
    limits,
    store::{JournalRecord, TurnNumber, journal::SPEAKING},
};

/// Bytes of one place: sum, turn, time of acceptance and build of eight bytes each, then the ids of replies, one in a line, and zeros.
const PLACE: usize = 128;
/// Where the ids begin.
const IDS: usize = 32;

/// Where the marks of the database in `path` are.
pub(super) fn path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-speaking");
    name.into()
}

/// The marks that this process leaves.
pub(super) struct Marks {
    file: File,
    /// The turns that were accepted here and are not stored yet.
    open: Mutex<HashMap<(ConversationId, TurnNumber), Place>>,
}

/// The place of a turn, and what it says already.
struct Place {
    /// The number of the conversation.
    number: i64,
    /// When the message was accepted.
    at: Timestamp,
    /// The replies that are marked, each with the end of its line.
    replies: String,
}

impl Marks {
    /// Opens the file beside a database, and makes it where it is missing. None where there can be none.
    pub(super) fn open(database: &Path) -> Option<Self> {
        if !cfg!(unix) {
            return None;
        }
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path(database)).ok()?;
        Some(Self { file, open: Mutex::default() })
    }

    /// A turn may speak from now on.
    pub(super) fn accepted(&self, id: ConversationId, turn: TurnNumber, number: i64, at: Timestamp) {
        let mut open = self.lock();
        if open.len() >= limits::STORE_MARKS {
            // Turns that were never stored. The others lose the short way and nothing else.
            open.clear();
        }
        open.insert((id, turn), Place { number, at, replies: String::new() });
    }

    /// A turn is stored.
    pub(super) fn stored(&self, id: &ConversationId, turn: TurnNumber) {
        self.lock().remove(&(id.clone(), turn));
    }

    /// A conversation is gone.
    pub(super) fn erased(&self, id: &ConversationId) {
        self.lock().retain(|(of, _), _| of != id);
    }

    /// Writes a mark, if this is one and has room. It is one write to the page cache, so it is done in the turn's own thread.
    pub(super) fn write(&self, id: &ConversationId, turn: TurnNumber, records: &[JournalRecord]) -> bool {
        let [record] = records else { return false };
        if *record.kind != *SPEAKING || record.request.contains('\n') {
            return false;
        }
        let key = (id.clone(), turn);
        // A turn marks one reply after the other, so nobody misses the place meanwhile.
        let Some(mut place) = self.lock().remove(&key) else { return false };
        let before = place.replies.len();
        place.replies.push_str(&record.request);
        place.replies.push('\n');
        let mark = Mark { build: record.build, replies: &place.replies };
        let bytes = mark.encode(id, place.number, turn, place.at);
        let written = bytes.is_some_and(|bytes| write_at(&self.file, &bytes, offset(place.number, turn)));
        if !written {
            place.replies.truncate(before);
        }
        self.lock().insert(key, place);
        written
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(ConversationId, TurnNumber), Place>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the turn of conversation `number` that was accepted `at` has marked, as records of its journal.
pub(super) fn records(
    file: &File,
    id: &ConversationId,
    number: i64,
    turn: TurnNumber,
    at: Timestamp,
) -> Vec<JournalRecord> {
    let mut place = [0; PLACE];
    if !read_at(file, &mut place, offset(number, turn)) {
        return Vec::new();
    }
    let Some(mark) = Mark::decode(&place, id, number, turn, at) else { return Vec::new() };
    let record = |reply: &str| JournalRecord {
        key: StepKey::root().child(SPEAKING).child(reply),
        kind: SPEAKING.into(),
        request: reply.into(),
        outcome: None,
        at,
        build: mark.build,
    };
    mark.replies.lines().map(record).collect()
}

/// What a place says.
#[derive(Debug, PartialEq)]
struct Mark<'p> {
    build: u64,
    /// Each with the end of its line.
    replies: &'p str,
}

impl<'p> Mark<'p> {
    /// None where it has no room.
    fn encode(&self, id: &ConversationId, number: i64, turn: TurnNumber, at: Timestamp) -> Option<[u8; PLACE]> {
        let mut place = [0; PLACE];
        let (sum, body) = place.split_first_chunk_mut::<8>()?;
        let (head, ids) = body.split_at_mut_checked(IDS - 8)?;
        let words = [turn.0, at.as_micros().cast_unsigned(), self.build];
        head.as_chunks_mut::<8>().0.iter_mut().zip(words).for_each(|(to, word)| *to = word.to_le_bytes());
        ids.get_mut(..self.replies.len())?.copy_from_slice(self.replies.as_bytes());
        *sum = codec::checksum(id.as_str(), number.cast_unsigned(), body).to_le_bytes();
        Some(place)
    }

    /// None where the place is another turn's, or damaged.
    fn decode(
        place: &'p [u8; PLACE],
        id: &ConversationId,
        number: i64,
        turn: TurnNumber,
        at: Timestamp,
    ) -> Option<Self> {
        let (sum, body) = place.split_first_chunk::<8>()?;
        if u64::from_le_bytes(*sum) != codec::checksum(id.as_str(), number.cast_unsigned(), body) {
            return None;
        }
        let (head, ids) = body.split_at_checked(IDS - 8)?;
        let [of, accepted, build] = head.as_chunks::<8>().0 else { return None };
        if (u64::from_le_bytes(*of), i64::from_le_bytes(*accepted)) != (turn.0, at.as_micros()) {
            return None;
        }
        let replies = std::str::from_utf8(ids).ok()?.trim_end_matches('\0');
        Some(Self { build: u64::from_le_bytes(*build), replies })
    }
}

/// Turns of one conversation follow one another; the place of the one before is left as it is, for it may have been broken off.
fn offset(number: i64, turn: TurnNumber) -> u64 {
    number.cast_unsigned().wrapping_mul(2).wrapping_add(turn.0 % 2).wrapping_mul(PLACE as u64)
}

#[cfg(unix)]
fn read_at(file: &File, place: &mut [u8], offset: u64) -> bool {
    std::os::unix::fs::FileExt::read_exact_at(file, place, offset).is_ok()
}

#[cfg(unix)]
fn write_at(file: &File, place: &[u8], offset: u64) -> bool {
    std::os::unix::fs::FileExt::write_all_at(file, place, offset).is_ok()
}

/// Other systems have no write at a place that leaves everybody else's place alone.
#[cfg(not(unix))]
fn read_at(_: &File, _: &mut [u8], _: u64) -> bool {
    false
}

#[cfg(not(unix))]
fn write_at(_: &File, _: &[u8], _: u64) -> bool {
    false
}

#[cfg(test)]
mod tests;

//! Marks of replies that are about to be shown: one small write beside the database instead of a transaction in it.
//!
//! A mark stands between a model's first word and the user, so it does not wait for a commit. The file next to the database (its name
//! ends in `-speaking`) has two places for each conversation, used by its turns alternately: it grows with the conversations and not
//! with what is said. A place counts only for the turn that wrote it, by its number and by when its message was accepted. So nothing has to
//! be cleaned up but what is erased, and a file that belongs to another database says nothing.
//!
//! When the turn is stored, its marks are stored with it as records of its journal, for a replay wants to know them.
//!
//! What has been written outlives the process, as a commit does with `synchronous = NORMAL`; after a loss of power either may be
//! missing, each by itself. A mark is a record of the journal as any other where every commit is forced to the disk, where its id
//! has no room, where answers that the turn has had must be stored along with it, and where its place is another turn's.

use std::{
    collections::HashMap,
    fs::File,
    io::{Error, ErrorKind},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use segue_engine::{conversation::codec, ids::ConversationId, time::Timestamp};

use super::owner;
use crate::{
    limits,
    store::{JournalRecord, SPEAKING, StoreError, TurnNumber, speaking},
};

/// Bytes of one place: sum, turn, time of acceptance and build of eight bytes each, then the ids of replies, one in a line, and zeros.
const PLACE: usize = 128;
/// Where the ids begin.
const IDS: usize = 32;

/// Where the marks of the database in `path` are.
pub(super) fn path(path: &Path) -> PathBuf {
    owner::beside(path, "-speaking")
}

/// The marks that this process leaves.
pub(super) struct Marks {
    file: File,
    /// The turns that were accepted here and are not stored yet.
    open: Mutex<HashMap<(ConversationId, TurnNumber), Place>>,
}

/// The place of a turn, and what stands in it.
struct Place {
    /// The number of the conversation.
    number: i64,
    /// When the message was accepted.
    at: Timestamp,
    marked: Vec<JournalRecord>,
}

impl Marks {
    /// Opens the file, and makes it where it is missing, for those who may write the database. None where this process cannot write it, and
    /// where the system has no writes at a place.
    pub(super) fn open(path: &Path, database: &Path) -> Result<Option<Self>, StoreError> {
        if !cfg!(unix) {
            return Ok(None);
        }
        let file = match File::options().read(true).write(true).open(path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == ErrorKind::NotFound => made(path, database),
            // Whoever cannot write it must be able to read it.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => existing(path, false).map(|_| None)?,
            Err(error) => return Err(unavailable(path, &error)),
        };
        Ok(file.map(|file| Self { file, open: Mutex::default() }))
    }

    /// A turn may speak from now on, and its place is nobody else's.
    pub(super) fn accepted(&self, id: ConversationId, turn: TurnNumber, number: i64, at: Timestamp) {
        let mut open = self.lock();
        if open.len() >= limits::STORE_MARKS {
            // Turns that were never stored, most of them. The others lose the short way and nothing else.
            open.retain(|_, place| !place.marked.is_empty());
        }
        if open.len() >= limits::STORE_MARKS {
            open.clear();
        }
        open.insert((id, turn), Place { number, at, marked: Vec::new() });
    }

    /// A turn is being stored; what it has marked here.
    pub(super) fn take(&self, id: &ConversationId, turn: TurnNumber) -> Vec<JournalRecord> {
        self.lock().remove(&(id.clone(), turn)).map(|place| place.marked).unwrap_or_default()
    }

    /// A conversation is gone.
    pub(super) fn erased(&self, id: &ConversationId) {
        self.lock().retain(|(of, _), _| of != id);
    }

    /// Writes a mark, if this is one and has room. It is one look and one write in the page cache, so it is done in the turn's own
    /// thread.
    pub(super) fn write(&self, id: &ConversationId, turn: TurnNumber, records: &[JournalRecord]) -> bool {
        let [record] = records else { return false };
        if *record.kind != *SPEAKING || record.request.contains('\n') {
            return false;
        }
        let key = (id.clone(), turn);
        // A turn marks one reply after the other, so nobody misses the place meanwhile.
        let Some(mut place) = self.lock().remove(&key) else { return false };
        place.marked.push(record.clone());
        let written = self.put(id, turn, &place).unwrap_or(false);
        if !written {
            place.marked.pop();
        }
        self.lock().insert(key, place);
        written
    }

    fn put(&self, id: &ConversationId, turn: TurnNumber, place: &Place) -> Result<bool, Error> {
        let offset = offset(place.number, turn);
        let mut bytes = [0; PLACE];
        if read_at(&self.file, &mut bytes, offset)?
            && (accepted(&bytes) > place.at.as_micros()
                || Mark::decode(&bytes, id, place.number).is_some_and(|mark| mark.turn > turn.0))
        {
            // Another process has taken the turn over and gone on, or has erased the conversation and given its number away.
            return Ok(false);
        }
        let replies: String = place.marked.iter().flat_map(|record| [&*record.request, "\n"]).collect();
        let build = place.marked.first().map_or(0, |record| record.build);
        let mark = Mark { turn: turn.0, at: place.at.as_micros(), build, replies: &replies };
        let Some(bytes) = mark.encode(id, place.number) else { return Ok(false) };
        write_at(&self.file, &bytes, offset).map(|()| true)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(ConversationId, TurnNumber), Place>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the file, with the mode and the owner of the database, as its log has them: everybody who may write one must be able to write the other.
fn made(path: &Path, database: &Path) -> Option<File> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path).ok()?;
    if let Ok(of) = std::fs::metadata(database) {
        let _ = file.set_permissions(of.permissions());
        #[cfg(unix)]
        {
            use std::os::unix::fs::{MetadataExt, fchown};
            // Only the owner of everything may give a file away; nobody else has to.
            let _ = fchown(&file, Some(of.uid()), Some(of.gid()));
        }
    }
    Some(file)
}

/// Opens the file of marks, if there is one.
pub(super) fn existing(path: &Path, write: bool) -> Result<Option<File>, StoreError> {
    match File::options().read(true).write(write).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unavailable(path, &error)),
    }
}

fn unavailable(path: &Path, error: &Error) -> StoreError {
    StoreError::Unavailable(format!("{}: {error}", path.display()))
}

/// What the turn of conversation `number` that was accepted `at` has marked, as records of its journal.
pub(super) fn records(
    file: &File,
    (id, number): (&ConversationId, i64),
    turn: TurnNumber,
    at: Timestamp,
) -> Result<Vec<JournalRecord>, StoreError> {
    let mut place = [0; PLACE];
    if !read_at(file, &mut place, offset(number, turn)).map_err(|error| failed(&error))? {
        return Ok(Vec::new());
    }
    let mark = Mark::decode(&place, id, number).filter(|mark| (mark.turn, mark.at) == (turn.0, at.as_micros()));
    let Some(mark) = mark else { return Ok(Vec::new()) };
    Ok(mark.replies.lines().map(|reply| speaking(reply, at, mark.build)).collect())
}

/// Wipes what a conversation has in the file.
pub(super) fn wipe(file: &File, id: &ConversationId, number: i64) -> Result<(), StoreError> {
    let mut place = [0; PLACE];
    for offset in [offset(number, TurnNumber(0)), offset(number, TurnNumber(1))] {
        if read_at(file, &mut place, offset).map_err(|error| failed(&error))?
            && Mark::decode(&place, id, number).is_some()
        {
            write_at(file, &[0; PLACE], offset).map_err(|error| failed(&error))?;
        }
    }
    Ok(())
}

fn failed(error: &Error) -> StoreError {
    StoreError::Unavailable(format!("the marks of replies: {error}"))
}

/// What a place says.
#[derive(Debug, PartialEq)]
struct Mark<'p> {
    turn: u64,
    /// When its message was accepted, in microseconds.
    at: i64,
    build: u64,
    /// Each with the end of its line.
    replies: &'p str,
}

impl<'p> Mark<'p> {
    /// None where it has no room.
    fn encode(&self, id: &ConversationId, number: i64) -> Option<[u8; PLACE]> {
        let mut place = [0; PLACE];
        let (sum, body) = place.split_first_chunk_mut::<8>()?;
        let (head, ids) = body.split_at_mut_checked(IDS - 8)?;
        let words = [self.turn, self.at.cast_unsigned(), self.build];
        head.as_chunks_mut::<8>().0.iter_mut().zip(words).for_each(|(to, word)| *to = word.to_le_bytes());
        ids.get_mut(..self.replies.len())?.copy_from_slice(self.replies.as_bytes());
        *sum = codec::checksum(id.as_str(), number.cast_unsigned(), body).to_le_bytes();
        Some(place)
    }

    /// None where the place is empty, damaged or of another conversation.
    fn decode(place: &'p [u8; PLACE], id: &ConversationId, number: i64) -> Option<Self> {
        let (sum, body) = place.split_first_chunk::<8>()?;
        if u64::from_le_bytes(*sum) != codec::checksum(id.as_str(), number.cast_unsigned(), body) {
            return None;
        }
        let (head, ids) = body.split_at_checked(IDS - 8)?;
        let [turn, at, build] = head.as_chunks::<8>().0 else { return None };
        let replies = std::str::from_utf8(ids).ok()?.trim_end_matches('\0');
        let (turn, build) = (u64::from_le_bytes(*turn), u64::from_le_bytes(*build));
        Some(Self { turn, at: i64::from_le_bytes(*at), build, replies })
    }
}

/// When the message of whoever wrote a place was accepted, in microseconds.
fn accepted(place: &[u8; PLACE]) -> i64 {
    place.as_chunks::<8>().0.get(2).copied().map_or(0, i64::from_le_bytes)
}

/// Turns that follow one another have different places: the one before may have been broken off. The writer sees to it that no
/// two open turns share one ([`super::writer`]).
fn offset(number: i64, turn: TurnNumber) -> u64 {
    number.cast_unsigned().wrapping_mul(2).wrapping_add(turn.0 % 2).wrapping_mul(PLACE as u64)
}

/// False where the file ends before.
#[cfg(unix)]
fn read_at(file: &File, place: &mut [u8], offset: u64) -> Result<bool, Error> {
    match std::os::unix::fs::FileExt::read_exact_at(file, place, offset) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(unix)]
fn write_at(file: &File, place: &[u8], offset: u64) -> Result<(), Error> {
    std::os::unix::fs::FileExt::write_all_at(file, place, offset)
}

/// Other systems have no write at a place that leaves everybody else's place alone.
#[cfg(not(unix))]
fn read_at(_: &File, _: &mut [u8], _: u64) -> Result<bool, Error> {
    Ok(false)
}

#[cfg(not(unix))]
fn write_at(_: &File, _: &[u8], _: u64) -> Result<(), Error> {
    Err(ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests;

//! The bookings: one JSON file, which is replaced atomically.
//!
//! Several servers may share the file. A lock file next to it is locked from reading to writing; the operating system releases the
//! lock when a process dies.

use std::{
    fs::{self, File, TryLockError},
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::timetable;
use crate::clock::Clock;

/// One booking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Booking {
    /// The reference, such as `NW-7F3K2`.
    pub(super) reference: String,
    pub(super) crossing_id: String,
    pub(super) passengers: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    pub(super) status: Status,
    /// The price for all passengers, in euros.
    pub(super) total_eur: u32,
    /// The refund, in euros.
    #[serde(default)]
    pub(super) refunded_eur: u32,
    /// The number of changes.
    #[serde(default)]
    pub(super) changes: u32,
}

/// The status of a booking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    Booked,
    Refunded,
}

/// The content of the file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Bookings {
    /// The number of references that were generated. The next reference depends on it and on the crossing.
    #[serde(default, rename = "made")]
    references: u64,
    #[serde(default)]
    pub(super) bookings: Vec<Booking>,
}

impl Bookings {
    /// Adds a booking and generates its reference, which depends on the crossing and the number of earlier references. So a test gets
    /// the same references in every run.
    pub(super) fn add(&mut self, mut booking: Booking) -> Booking {
        loop {
            self.references += 1;
            booking.reference = generate_reference(self.references, &booking.crossing_id);
            if self.find(&booking.reference).is_none() {
                self.bookings.push(booking.clone());
                return booking;
            }
        }
    }

    /// The booking with this reference, in any spelling that [`normalise_reference`] accepts.
    pub(super) fn find(&self, reference: &str) -> Option<&Booking> {
        let reference = normalise_reference(reference);
        self.bookings.iter().find(|booking| normalise_reference(&booking.reference) == reference)
    }

    /// Like [`find`](Self::find), mutable.
    pub(super) fn find_mut(&mut self, reference: &str) -> Option<&mut Booking> {
        let reference = normalise_reference(reference);
        self.bookings.iter_mut().find(|booking| normalise_reference(&booking.reference) == reference)
    }

    /// The number of booked seats of a crossing, without those of the booking `except`.
    pub(super) fn taken(&self, crossing_id: &str, except: Option<&str>) -> u32 {
        self.bookings
            .iter()
            .filter(|booking| booking.status == Status::Booked && booking.crossing_id == crossing_id)
            .filter(|booking| except != Some(booking.reference.as_str()))
            .map(|booking| booking.passengers)
            .sum()
    }
}

/// The characters of a reference: letters and digits without similar ones, such as `0` and `O`.
const REFERENCE_ALPHABET: &[u8] = b"23456789ABCDEFGHJKMNPQRSTVWXYZ";

fn generate_reference(number: u64, crossing_id: &str) -> String {
    let mut rest = timetable::hash(&format!("{number}/{crossing_id}"));
    let mut text = String::from("NW-");
    for _ in 0..5 {
        let index = usize::try_from(rest % REFERENCE_ALPHABET.len() as u64).unwrap_or(0);
        text.push(REFERENCE_ALPHABET.get(index).map_or('2', |byte| char::from(*byte)));
        rest /= REFERENCE_ALPHABET.len() as u64;
    }
    text
}

/// The part after `NW-` in upper case: `nw 7f3k2`, `NW-7F3K2` and `7F3K2` are equal.
fn normalise_reference(reference: &str) -> String {
    let text: String = reference.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_uppercase();
    match text.strip_prefix("NW") {
        Some(rest) if rest.len() == 5 => rest.to_owned(),
        _ => text,
    }
}

/// Reads and changes the bookings, in a file or in memory.
pub(super) struct Ledger {
    path: PathBuf,
    /// The bookings, if they are kept in memory only.
    memory: Option<Mutex<Bookings>>,
    clock: Arc<dyn Clock>,
}

/// How long a change waits for the lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval between two attempts to get the lock.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);

impl Ledger {
    /// A ledger in a file. The first change creates it.
    pub(super) fn new(path: PathBuf, clock: Arc<dyn Clock>) -> Self {
        Self { path, memory: None, clock }
    }

    /// A ledger without a file.
    pub(super) fn in_memory(clock: Arc<dyn Clock>) -> Self {
        Self { path: PathBuf::new(), memory: Some(Mutex::default()), clock }
    }

    /// Reads the bookings; none if the file does not exist. An error is a message for the model.
    pub(super) fn read(&self) -> Result<Bookings, String> {
        if let Some(memory) = &self.memory {
            return Ok(memory.lock().unwrap_or_else(PoisonError::into_inner).clone());
        }
        match fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                format!(
                    "{} is not a valid file of bookings ({error}). Move it away to start without bookings.",
                    self.path.display()
                )
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Bookings::default()),
            Err(error) => Err(format!("{} cannot be read: {error}", self.path.display())),
        }
    }

    /// Reads the bookings, applies `change` and writes them if it succeeds, under the lock.
    ///
    /// *Cancellation*: only while waiting for the lock, when nothing has changed. `change` and the write have no `await` between them.
    pub(super) async fn change<T>(&self, change: impl FnOnce(&mut Bookings) -> Result<T, String>) -> Result<T, String> {
        if let Some(memory) = &self.memory {
            return change(&mut memory.lock().unwrap_or_else(PoisonError::into_inner));
        }
        let _lock = self.lock().await?;
        let mut bookings = self.read()?;
        let result = change(&mut bookings)?;
        self.write(&bookings).map_err(|error| format!("{} cannot be written: {error}", self.path.display()))?;
        Ok(result)
    }

    async fn lock(&self) -> Result<File, String> {
        let lock_file = self.sibling("lock");
        let failed = |error: &dyn std::fmt::Display| format!("{} cannot be locked: {error}", lock_file.display());
        if let Some(folder) = folder(&self.path) {
            fs::create_dir_all(folder).map_err(|error| failed(&error))?;
        }
        let file = File::options()
            .create(true)
            .write(true)
            .truncate(false)
            .open(&lock_file)
            .map_err(|error| failed(&error))?;
        let until = self.clock.deadline(LOCK_TIMEOUT);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if self.clock.elapsed() < until.0 => {
                    self.clock.sleep(self.clock.deadline(LOCK_POLL_INTERVAL)).await;
                }
                Err(error) => return Err(failed(&error)),
            }
        }
    }

    fn write(&self, bookings: &Bookings) -> std::io::Result<()> {
        let temporary = self.sibling("new");
        let mut file = File::create(&temporary)?;
        serde_json::to_writer_pretty(&mut file, bookings)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&temporary, &self.path)
    }

    /// The path of the file with another extension added.
    fn sibling(&self, extension: &str) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".");
        name.push(extension);
        self.path.with_file_name(name)
    }
}

fn folder(path: &Path) -> Option<&Path> {
    path.parent().filter(|folder| !folder.as_os_str().is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
    use super::*;
    use crate::clock::SystemClock;

    fn booking(crossing: &str, passengers: u32) -> Booking {
        Booking {
            reference: String::new(),
            crossing_id: crossing.into(),
            passengers,
            name: None,
            status: Status::Booked,
            total_eur: 1,
            refunded_eur: 0,
            changes: 0,
        }
    }

    #[test]
    fn references_are_deterministic_and_unique() {
        let (mut one, mut other) = (Bookings::default(), Bookings::default());
        let first = one.add(booking("A", 1)).reference;
        assert_eq!(other.add(booking("A", 1)).reference, first);
        assert_ne!(one.add(booking("A", 1)).reference, first, "the same call twice is two bookings");
        assert!(regex::Regex::new("^NW-[2-9A-Z]{5}$").unwrap().is_match(&first));
        for spelling in [first.to_lowercase(), first.replace('-', " "), first[3..].to_owned()] {
            assert_eq!(one.find(&spelling).unwrap().reference, first, "{spelling}");
        }
        assert_eq!(one.taken("A", None), 2);
        assert_eq!(one.taken("A", Some(&first)), 1);
    }

    #[tokio::test]
    async fn bookings_are_stored_and_a_failed_change_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = |name: &str| Ledger::new(folder.path().join(name), Arc::new(SystemClock));
        let reference =
            ledger("a/b.json").change(|bookings| Ok(bookings.add(booking("A", 2)).reference)).await.unwrap();
        let refused: Result<(), String> = ledger("a/b.json")
            .change(|bookings| {
                bookings.add(booking("A", 3));
                Err("no".into())
            })
            .await;
        assert_eq!(refused.unwrap_err(), "no");
        let bookings = ledger("a/b.json").read().unwrap().bookings;
        assert_eq!(bookings.len(), 1);
        assert_eq!((bookings[0].reference.as_str(), bookings[0].passengers), (reference.as_str(), 2));
        fs::write(folder.path().join("bad.json"), "[").unwrap();
        assert!(ledger("bad.json").read().unwrap_err().contains("bad.json"));
    }

    #[tokio::test]
    async fn concurrent_changes_of_a_shared_file_are_serialised() {
        let folder = tempfile::tempdir().unwrap();
        let one = Ledger::new(folder.path().join("b.json"), Arc::new(SystemClock));
        let other = Ledger::new(folder.path().join("b.json"), Arc::new(SystemClock));
        let add = |bookings: &mut Bookings| Ok(bookings.add(booking("A", 1)));
        let (a, b) = tokio::join!(one.change(add), other.change(add));
        assert_ne!(a.unwrap().reference, b.unwrap().reference);
        assert_eq!(one.read().unwrap().bookings.len(), 2);
    }
}

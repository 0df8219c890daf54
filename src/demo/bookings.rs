//! The bookings: one JSON file, written whole or not at all.
//!
//! Several servers may share a file: a lock beside it is held from reading to writing. It is dropped by the system when a
//! process dies, so nothing stays locked.

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
    /// Such as `NW-7F3K2`.
    pub(super) reference: String,
    pub(super) crossing_id: String,
    pub(super) passengers: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    pub(super) status: Status,
    /// For all passengers, in euros.
    pub(super) total_eur: u32,
    /// What was paid back, in euros.
    #[serde(default)]
    pub(super) refunded_eur: u32,
    /// How often it was changed.
    #[serde(default)]
    pub(super) changes: u32,
}

/// What became of a booking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    Booked,
    Refunded,
}

/// The file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Bookings {
    /// Bookings made so far; with the crossing it makes the next reference.
    #[serde(default)]
    made: u64,
    #[serde(default)]
    pub(super) bookings: Vec<Booking>,
}

impl Bookings {
    /// Takes a new booking in and gives it its reference, which depends on the crossing and on how many there were before.
    pub(super) fn add(&mut self, mut booking: Booking) -> Booking {
        loop {
            self.made += 1;
            booking.reference = reference(self.made, &booking.crossing_id);
            if self.find(&booking.reference).is_none() {
                self.bookings.push(booking.clone());
                return booking;
            }
        }
    }

    /// The booking of this reference, however it is written.
    pub(super) fn find(&self, reference: &str) -> Option<&Booking> {
        let wanted = plain(reference);
        self.bookings.iter().find(|booking| plain(&booking.reference) == wanted)
    }

    /// The same, to be changed.
    pub(super) fn find_mut(&mut self, reference: &str) -> Option<&mut Booking> {
        let wanted = plain(reference);
        self.bookings.iter_mut().find(|booking| plain(&booking.reference) == wanted)
    }

    /// Seats that bookings of ours take on a crossing, without the booking `except`.
    pub(super) fn taken(&self, crossing_id: &str, except: Option<&str>) -> u32 {
        self.bookings
            .iter()
            .filter(|booking| booking.status == Status::Booked && booking.crossing_id == crossing_id)
            .filter(|booking| except != Some(booking.reference.as_str()))
            .map(|booking| booking.passengers)
            .sum()
    }
}

/// Letters and digits that cannot be mistaken for one another.
const SIGNS: &[u8] = b"23456789ABCDEFGHJKMNPQRSTVWXYZ";

fn reference(number: u64, crossing_id: &str) -> String {
    let mut rest = timetable::draw(&format!("{number}/{crossing_id}"));
    let mut text = String::from("NW-");
    for _ in 0..5 {
        let at = usize::try_from(rest % SIGNS.len() as u64).unwrap_or(0);
        text.push(SIGNS.get(at).map_or('2', |sign| char::from(*sign)));
        rest /= SIGNS.len() as u64;
    }
    text
}

/// `nw 7f3k2`, `NW-7F3K2` and `7F3K2` mean the same.
fn plain(reference: &str) -> String {
    let text: String = reference.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_uppercase();
    match text.strip_prefix("NW") {
        Some(rest) if rest.len() == 5 => rest.to_owned(),
        _ => text,
    }
}

/// The file with the bookings.
pub(super) struct Ledger {
    path: PathBuf,
    /// In place of the file, where nothing is to be kept.
    memory: Option<Mutex<Bookings>>,
    clock: Arc<dyn Clock>,
}

/// How long one waits for another server to finish its writing, and how often one looks.
const LOCK_WAIT: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

impl Ledger {
    pub(super) fn new(path: PathBuf, clock: Arc<dyn Clock>) -> Self {
        Self { path, memory: None, clock }
    }

    /// One without a file.
    pub(super) fn forgetful(clock: Arc<dyn Clock>) -> Self {
        Self { path: PathBuf::new(), memory: Some(Mutex::default()), clock }
    }

    /// The bookings as they are now. A file that is not there holds none.
    pub(super) fn read(&self) -> Result<Bookings, String> {
        if let Some(memory) = &self.memory {
            return Ok(memory.lock().unwrap_or_else(PoisonError::into_inner).clone());
        }
        match fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                format!("{} does not hold bookings ({error}). Move it away to start afresh.", self.path.display())
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Bookings::default()),
            Err(error) => Err(format!("{} cannot be read: {error}", self.path.display())),
        }
    }

    /// Reads, lets `change` work on the bookings, and writes them if it succeeds. Nobody else writes in between.
    ///
    /// *Cancellation*: before the change nothing has happened; change and writing run without a pause.
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
        let beside = self.beside("lock");
        let failed = |error: &dyn std::fmt::Display| format!("{} cannot be locked: {error}", beside.display());
        if let Some(folder) = folder(&self.path) {
            fs::create_dir_all(folder).map_err(|error| failed(&error))?;
        }
        let file =
            File::options().create(true).write(true).truncate(false).open(&beside).map_err(|error| failed(&error))?;
        let until = self.clock.deadline(LOCK_WAIT);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if self.clock.elapsed() < until.0 => {
                    self.clock.sleep(self.clock.deadline(LOCK_PAUSE)).await;
                }
                Err(error) => return Err(failed(&error)),
            }
        }
    }

    fn write(&self, bookings: &Bookings) -> std::io::Result<()> {
        let new = self.beside("new");
        let mut file = File::create(&new)?;
        serde_json::to_writer_pretty(&mut file, bookings)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".");
        name.push(ending);
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
    fn references_depend_on_number_and_crossing() {
        let (mut one, mut other) = (Bookings::default(), Bookings::default());
        let first = one.add(booking("A", 1)).reference;
        assert_eq!(other.add(booking("A", 1)).reference, first);
        assert_ne!(one.add(booking("A", 1)).reference, first, "the same call twice is two bookings");
        assert!(regex::Regex::new("^NW-[2-9A-Z]{5}$").unwrap().is_match(&first));
        for written in [first.to_lowercase(), first.replace('-', " "), first[3..].to_owned()] {
            assert_eq!(one.find(&written).unwrap().reference, first, "{written}");
        }
        assert_eq!(one.taken("A", None), 2);
        assert_eq!(one.taken("A", Some(&first)), 1);
    }

    #[tokio::test]
    async fn bookings_survive_and_a_failed_change_leaves_none() {
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
    async fn two_servers_share_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let one = Ledger::new(folder.path().join("b.json"), Arc::new(SystemClock));
        let other = Ledger::new(folder.path().join("b.json"), Arc::new(SystemClock));
        let add = |bookings: &mut Bookings| Ok(bookings.add(booking("A", 1)));
        let (a, b) = tokio::join!(one.change(add), other.change(add));
        assert_ne!(a.unwrap().reference, b.unwrap().reference);
        assert_eq!(one.read().unwrap().bookings.len(), 2);
    }
}

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use proptest::prelude::*;
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::store::{
    Store, Version, announced_replies,
    contract::{batch, message, talk},
    sqlite::SqliteStore,
};

const BUILD: u64 = 7;

fn mark(reply: &str) -> JournalRecord {
    speaking(reply, Timestamp::from_micros(5), BUILD)
}

/// A database in a folder of its own.
struct World {
    folder: TempDir,
    id: ConversationId,
}

impl World {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), id: "c".into() }
    }
    fn database(&self) -> PathBuf {
        self.folder.path().join("talks.db")
    }
    fn open(&self) -> SqliteStore {
        SqliteStore::open(&self.database(), false).unwrap()
    }
    /// A second store that writes to the same file, as if the lock did not hold.
    fn open_unlocked(&self) -> SqliteStore {
        SqliteStore::opened(&self.database(), false, None).unwrap()
    }
    /// One whose first turn is open and has marked its first reply.
    async fn speaking() -> (Self, SqliteStore) {
        let world = Self::new();
        let store = world.open();
        store.accept(message("c", "m1", 1)).await.unwrap();
        store.journal(&world.id, TurnNumber(1), vec![mark("1/r0")]).await.unwrap();
        (world, store)
    }
    /// Rows of the journal.
    fn rows(&self) -> u32 {
        let connection = Connection::open(self.database()).unwrap();
        connection.query_row("SELECT count(*) FROM journal", [], |row| row.get(0)).unwrap()
    }
    /// What was spoken in the open turns, each with its build.
    async fn spoken(&self, store: &SqliteStore) -> Vec<(u64, String)> {
        let turns = store.unfinished(&self.id).await.unwrap();
        let spoken = |turn: &crate::store::Unfinished| -> Vec<(u64, String)> {
            assert!(turn.journal.iter().all(|record| record.build == BUILD));
            announced_replies(&turn.journal).map(|reply| (turn.turn.0, reply.to_string())).collect()
        };
        turns.iter().flat_map(spoken).collect()
    }
}

#[tokio::test]
async fn marks_are_found_after_a_crash_and_no_transaction_was_needed() {
    let (world, store) = World::speaking().await;
    store.journal(&world.id, TurnNumber(1), vec![mark("1/r1")]).await.unwrap();
    drop(store);
    assert_eq!(world.rows(), 0);
    let store = world.open();
    assert_eq!(world.spoken(&store).await, [(1, "1/r0".to_owned()), (1, "1/r1".to_owned())]);
    // Whoever takes the turn over was not there when it was accepted.
    store.journal(&world.id, TurnNumber(1), vec![mark("1/r2")]).await.unwrap();
    assert_eq!(world.rows(), 1);
    let spoken = world.spoken(&store).await;
    assert_eq!(spoken.len(), 3, "{spoken:?}");
}

#[tokio::test]
async fn a_mark_is_of_its_turn_alone() {
    let world = World::new();
    let store = world.open();
    for turn in 1..=2 {
        store.accept(message("c", &format!("m{turn}"), turn)).await.unwrap();
        let turn = u64::try_from(turn).unwrap();
        store.journal(&world.id, TurnNumber(turn), vec![mark(&format!("{turn}/r0"))]).await.unwrap();
    }
    assert_eq!(world.spoken(&store).await, [(1, "1/r0".to_owned()), (2, "2/r0".to_owned())]);
    for turn in 1..=2 {
        let batch = batch(&message("c", &format!("m{turn}"), 1), TurnNumber(turn));
        store.append(&world.id, Version(turn - 1), batch).await.unwrap();
    }
    drop(store);
    let store = world.open();
    for turn in 3..=4 {
        store.accept(message("c", &format!("m{turn}"), turn)).await.unwrap();
    }
    store.journal(&world.id, TurnNumber(3), vec![mark("3/r0")]).await.unwrap();
    assert_eq!(
        world.spoken(&store).await,
        [(3, "3/r0".to_owned())],
        "the fourth has said nothing, whatever its place says"
    );
    assert_eq!(world.rows(), 0);
}

#[tokio::test]
async fn what_has_no_room_and_what_must_reach_the_disk_is_in_the_journal() {
    let world = World::new();
    let store = world.open();
    store.accept(message("c", "m1", 1)).await.unwrap();
    let long = "x".repeat(PLACE);
    for reply in [long.as_str(), "two\nlines"] {
        store.journal(&world.id, TurnNumber(1), vec![mark(reply)]).await.unwrap();
    }
    let other = JournalRecord { kind: "tool".into(), ..mark("tool") };
    store.journal(&world.id, TurnNumber(1), vec![other]).await.unwrap();
    assert_eq!((world.rows(), world.spoken(&store).await.len()), (3, 2));
    store.journal(&world.id, TurnNumber(1), vec![mark("1/r0")]).await.unwrap();
    assert_eq!((world.rows(), world.spoken(&store).await.len()), (3, 3), "the next one has its room still");

    let world = World::new();
    let store = SqliteStore::open(&world.database(), true).unwrap();
    store.accept(message("c", "m1", 1)).await.unwrap();
    store.journal(&world.id, TurnNumber(1), vec![mark("1/r0")]).await.unwrap();
    assert_eq!((world.rows(), world.spoken(&store).await.len()), (1, 1));
}

#[tokio::test]
async fn a_stored_turn_tells_what_it_marked() {
    let (world, store) = World::speaking().await;
    store.append(&world.id, Version(0), batch(&message("c", "m1", 1), TurnNumber(1))).await.unwrap();
    let turns = store.turns(&world.id).await.unwrap();
    assert_eq!(announced_replies(&turns[0].journal).map(|id| &**id).collect::<Vec<_>>(), ["1/r0"]);
    assert_eq!(world.rows(), 0);
}

#[tokio::test]
async fn no_turn_takes_the_place_of_another() {
    let world = World::new();
    let (here, there) = (world.open(), world.open_unlocked());
    for turn in 1..=3 {
        here.accept(message("c", &format!("m{turn}"), turn)).await.unwrap();
    }
    for turn in [1, 3] {
        here.journal(&world.id, TurnNumber(turn), vec![mark(&format!("{turn}/r0"))]).await.unwrap();
    }
    assert_eq!(world.rows(), 1, "the first is open still, so the third is in the journal");
    assert_eq!(world.spoken(&here).await, [(1, "1/r0".to_owned()), (3, "3/r0".to_owned())]);

    // The other process stores all three and goes on; this one has not noticed.
    for turn in 1..=3 {
        let batch = batch(&message("c", &format!("m{turn}"), 1), TurnNumber(turn));
        there.append(&world.id, Version(turn - 1), batch).await.unwrap();
    }
    for turn in 4..=5 {
        there.accept(message("c", &format!("m{turn}"), turn)).await.unwrap();
    }
    there.journal(&world.id, TurnNumber(5), vec![mark("5/r0")]).await.unwrap();
    assert_eq!(world.rows(), 1);
    here.journal(&world.id, TurnNumber(1), vec![mark("1/r1")]).await.unwrap_err();
    assert_eq!((world.rows(), world.spoken(&here).await), (1, vec![(5, "5/r0".to_owned())]));
}

#[tokio::test]
async fn marks_that_cannot_be_read_are_not_taken_for_none() {
    let world = World::new();
    let store = world.open();
    store.accept(message("c", "m1", 1)).await.unwrap();
    std::fs::remove_file(path(&world.database())).unwrap();
    assert_eq!(world.spoken(&store).await, []);
    std::fs::create_dir(path(&world.database())).unwrap();
    let error = store.unfinished(&world.id).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    drop(store);
    let error = SqliteStore::open(&world.database(), false).err().unwrap();
    assert!(matches!(&error, StoreError::Unavailable(why) if why.contains("talks.db-speaking")), "{error}");
}

#[tokio::test]
async fn a_number_that_was_given_away_keeps_its_new_marks() {
    let world = World::new();
    let (here, there) = (world.open(), world.open_unlocked());
    here.accept(message("c", "m1", 1)).await.unwrap();
    there.erase(&world.id).await.unwrap();
    there.accept(message("d", "m1", 2)).await.unwrap();
    there.journal(&"d".into(), TurnNumber(1), vec![mark("1/r0")]).await.unwrap();
    assert!(here.journal(&world.id, TurnNumber(1), vec![mark("1/r0")]).await.is_err(), "it is erased");
    let kept = there.unfinished(&"d".into()).await.unwrap();
    assert_eq!(announced_replies(&kept[0].journal).count(), 1);
}

#[cfg(unix)]
#[tokio::test]
async fn marks_lie_beside_the_file_and_not_beside_a_link_to_it() {
    let (world, store) = World::speaking().await;
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(world.database(), &link).unwrap();
    let refused = SqliteStore::open(&link, false).err().unwrap();
    assert!(matches!(refused, StoreError::InUse { .. }), "it is the same file: {refused}");
    drop(store);
    let linked = SqliteStore::open(&link, false).unwrap();
    assert_eq!(world.spoken(&linked).await, [(1, "1/r0".to_owned())]);
}

#[tokio::test]
async fn turns_that_are_stored_or_erased_leave_nothing_in_memory() {
    let world = World::new();
    let store = world.open();
    let marks = store.marks.as_ref().unwrap();
    talk(&store, "c", "m1", 1).await;
    assert!(marks.lock().is_empty());
    store.accept(message("c", "m2", 2)).await.unwrap();
    store.accept(message("d", "m1", 2)).await.unwrap();
    store.journal(&world.id, TurnNumber(2), vec![mark("2/r0")]).await.unwrap();
    let written = |world: &World| std::fs::read(path(&world.database())).unwrap().iter().any(|byte| *byte != 0);
    assert!(written(&world));
    store.erase(&world.id).await.unwrap();
    assert!(!written(&world), "nothing of it is left in the file");
    assert_eq!(marks.lock().keys().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["d"]);
    store.journal(&"d".into(), TurnNumber(1), vec![mark("1/r0")]).await.unwrap();
    for n in 0..limits::STORE_MARKS {
        marks.accepted(format!("c{n}").into(), TurnNumber(1), 1, Timestamp::default());
    }
    assert_eq!(marks.lock().len(), 2, "those before the limit were given up");
    assert_eq!(marks.take(&"d".into(), TurnNumber(1)).len(), 1, "but not what has been marked");
}

#[tokio::test]
async fn marks_of_another_database_say_nothing() {
    let (world, store) = World::speaking().await;
    drop(store);
    std::fs::remove_file(world.database()).unwrap();
    let store = world.open();
    store.accept(message("c", "m1", 2)).await.unwrap();
    assert_eq!(world.spoken(&store).await, []);
}

proptest! {
    #[test]
    fn a_place_says_what_was_written_or_nothing(
        (turn, at, build) in (any::<u64>(), any::<i64>(), any::<u64>()),
        replies in proptest::collection::vec("[a-z0-9/.]{1,24}\n", 0..4),
        flip in proptest::option::of((0..PLACE, 1..=u8::MAX)),
    ) {
        let (id, replies) = (ConversationId::from("c"), replies.concat());
        let mark = Mark { turn, at, build, replies: &replies };
        let Some(mut place) = mark.encode(&id, 1) else {
            prop_assert!(mark.replies.len() > PLACE - IDS);
            return Ok(());
        };
        if let Some((at, bits)) = flip {
            place[at] ^= bits;
        }
        let found = Mark::decode(&place, &id, 1);
        prop_assert_eq!(found, flip.is_none().then_some(mark));
        prop_assert_eq!(Mark::decode(&place, &"d".into(), 1), None);
        prop_assert_eq!(Mark::decode(&[0; PLACE], &id, 1), None);
    }
}

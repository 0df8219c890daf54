//! The store of the baseline: one row per turn, one writer thread, and group commit. The pragmas are those of Segue's SQLite store.

use std::{path::Path, thread::JoinHandle};

use rusqlite::{Connection, params};
use tokio::sync::{mpsc, oneshot};

struct Row {
    id: String,
    version: u64,
    events: Vec<u8>,
    done: oneshot::Sender<()>,
}

/// The store of the baseline.
pub(crate) struct BaselineStore {
    rows: Option<mpsc::Sender<Row>>,
    writer: Option<JoinHandle<()>>,
}

impl BaselineStore {
    pub(crate) fn open(path: &Path) -> Self {
        let connection = Connection::open(path).unwrap();
        connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
        connection
            .execute_batch(
                "PRAGMA synchronous = NORMAL; PRAGMA cache_size = -16384;
                 CREATE TABLE turns (conversation TEXT NOT NULL, version INTEGER NOT NULL, events BLOB NOT NULL,
                 PRIMARY KEY (conversation, version)) WITHOUT ROWID;",
            )
            .unwrap();
        connection.query_row("PRAGMA wal_autocheckpoint = 4096", [], |_| Ok(())).unwrap();
        let (rows, receiver) = mpsc::channel(1024);
        let writer = std::thread::spawn(move || write(&connection, receiver));
        Self { rows: Some(rows), writer: Some(writer) }
    }

    /// Writes a turn and waits until it is committed.
    pub(crate) async fn append(&self, id: &str, version: u64, events: Vec<u8>) {
        let (done, committed) = oneshot::channel();
        let row = Row { id: id.to_owned(), version, events, done };
        assert!(self.rows.as_ref().unwrap().send(row).await.is_ok());
        committed.await.unwrap();
    }
}

fn write(connection: &Connection, mut rows: mpsc::Receiver<Row>) {
    let mut begin = connection.prepare("BEGIN IMMEDIATE").unwrap();
    let mut commit = connection.prepare("COMMIT").unwrap();
    let mut insert = connection.prepare("INSERT INTO turns VALUES (?1, ?2, ?3)").unwrap();
    let mut group = Vec::with_capacity(256);
    while rows.blocking_recv_many(&mut group, 256) > 0 {
        begin.execute([]).unwrap();
        for row in &group {
            insert.execute(params![row.id, row.version as i64, row.events]).unwrap();
        }
        commit.execute([]).unwrap();
        for row in group.drain(..) {
            let _ = row.done.send(());
        }
    }
}

impl Drop for BaselineStore {
    fn drop(&mut self) {
        self.rows = None;
        let _ = self.writer.take().map(JoinHandle::join);
    }
}

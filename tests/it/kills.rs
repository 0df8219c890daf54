//! The process dies at a named point of a turn, on SQLite, and another one takes over: no accepted message
//! is lost, none starts two turns, and the tool that books is never called twice.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use segue::{
    clock::{Clock, SystemClock},
    store::{SqliteStore, Store},
};
use serde_json::{Value as Json, json};

/// How long a server may take for what takes it a moment: one that hangs is a failure.
const PATIENCE: Duration = Duration::from_secs(120);

/// A project folder of its own, and a server on it.
pub(crate) struct Ground {
    folder: tempfile::TempDir,
}

pub(crate) struct Server {
    pub(crate) child: Child,
    address: String,
}

impl Server {
    /// Waits until it has ended by itself.
    fn ends(&mut self) {
        let until = SystemClock.deadline(PATIENCE);
        while self.child.try_wait().unwrap().is_none() {
            assert!(SystemClock.elapsed() < until.0, "it goes on");
            std::thread::yield_now();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ground {
    fn new() -> Self {
        Self::of("kills")
    }
    /// On a project of `tests/projects`.
    pub(crate) fn of(project: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        crate::folder::copy_folder(Path::new(&crate::project(project)), folder.path());
        Self { folder }
    }
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
    /// Starts a server; `None` when it died before it listened.
    pub(crate) fn server(&self, point: Option<&str>) -> Option<Server> {
        self.server_ahead(point, 0)
    }
    /// The same with a wall clock so many seconds ahead of this machine's.
    fn server_ahead(&self, point: Option<&str>, seconds: u32) -> Option<Server> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
        command
            .args(["run", "--port", "0", "--store"])
            .arg(format!("sqlite:{}", self.path("talks.db").display()))
            .arg(self.folder.path())
            .env("SEGUE_TEST_BOOKINGS", self.path("bookings.json"))
            .env("SEGUE_FAILPOINT_PROOF", self.path("proof"))
            .env("SEGUE_TEST_CLOCK_AHEAD", seconds.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if let Some(point) = point {
            command.env("SEGUE_FAILPOINT", point);
        }
        let child = command.spawn().unwrap();
        let mut server = Server { child, address: String::new() };
        let mut lines = BufReader::new(server.child.stderr.take().unwrap()).lines();
        server.address = loop {
            let line = lines.next()?.ok()?;
            if let Some((_, rest)) = line.split_once("http://") {
                break rest
                    .split(|c: char| c.is_whitespace() || c == '"')
                    .next()
                    .unwrap()
                    .trim_end_matches('/')
                    .to_owned();
            }
        };
        // The rest of the log must be read, or the server stops at a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Some(server)
    }
    /// Whether the point was reached: its name stands in the proof.
    pub(crate) fn proof(&self) -> Option<String> {
        fs::read_to_string(self.path("proof")).ok()
    }
    pub(crate) fn bookings(&self) -> usize {
        let Ok(text) = fs::read_to_string(self.path("bookings.json")) else { return 0 };
        let json: Json = serde_json::from_str(&text).unwrap();
        let list = json.get("bookings").unwrap_or(&json);
        list.as_array().map(Vec::len).or_else(|| list.as_object().map(|map| map.len())).unwrap()
    }
    pub(crate) fn segue(&self, arguments: &[&str]) -> (i32, String) {
        let store = format!("sqlite:{}", self.path("talks.db").display());
        let output = Command::new(env!("CARGO_BIN_EXE_segue"))
            .args(arguments)
            .args(["--store", &store])
            .arg(self.folder.path())
            .env("SEGUE_TEST_BOOKINGS", self.path("bookings.json"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap_or(-1), text)
    }
}

/// Posts a message; `None` when the server died before it answered.
pub(crate) async fn post(server: &Server, text: &str) -> Option<Vec<String>> {
    post_to(server, (text, "m1"), "").await
}

/// The same with an id of its own.
pub(crate) async fn post_as(server: &Server, text: &str, id: &str) -> Option<Vec<String>> {
    post_to(server, (text, id), "").await
}

async fn post_to(server: &Server, (text, id): (&str, &str), query: &str) -> Option<Vec<String>> {
    segue::http::install_tls();
    let body = json!({"sender": "anna", "message": text, "message_id": id});
    let client = segue::http::HttpClients::new();
    let request = client.client().unwrap().post(format!("http://{}/webhooks/rest/webhook{query}", server.address));
    let request = request.json(&body).timeout(PATIENCE);
    let answer: Json = request.send().await.ok()?.json().await.ok()?;
    Some(answer.as_array()?.iter().filter_map(|reply| reply["text"].as_str().map(str::to_owned)).collect())
}

/// What may be true after the takeover.
#[derive(Clone, Copy, PartialEq)]
enum After {
    /// The booking was made, once.
    Booked,
    /// Nobody knows whether it was made; it was made at most once, and the user is told.
    Unknown,
}

async fn kill_at(point: &str, text: &str, after: After) {
    // Pieces leave before a turn is stored only where the channel shows them.
    let query = if point.starts_with("C09") { "?stream=deltas" } else { "" };
    let ground = Ground::new();
    let mut first = ground.server(Some(point)).expect("the first server listens");
    let answered = post_to(&first, (text, "m1"), query).await;
    // Receipts are stored while the answer leaves.
    let beside_the_answer = point == "C23";
    if beside_the_answer {
        first.ends();
    }
    assert_eq!(
        ground.proof().as_deref(),
        Some(point.split('@').next().unwrap()),
        "{point} was not reached: {answered:?}"
    );
    assert!(answered.is_none() || beside_the_answer, "{point}: a dead server does not answer");
    drop(first);

    let second = ground.server(None).expect("the second server listens");
    let replies = post(&second, text).await.expect("the second server answers");
    let again = post(&second, text).await.expect("and again");
    assert_eq!(replies, again, "{point}: a repeated message has the same replies");
    assert!(!replies.is_empty(), "{point}: the user is told something");
    drop(second);

    let bookings = ground.bookings();
    let booked = replies.iter().any(|reply| reply.contains("Booked as NW-"));
    match after {
        After::Booked => assert_eq!((bookings, booked), (1, true), "{point}: {replies:?}"),
        After::Unknown => assert!(bookings <= 1 && !booked, "{point}: {bookings} {replies:?}"),
    }
    let (code, events) = ground.segue(&["trace", "anna", "--format", "json"]);
    assert_eq!(code, 0, "{point}: {events}");
    let turns: Json = serde_json::from_str(&events).unwrap();
    let turns = turns.as_array().or_else(|| turns["turns"].as_array()).unwrap().clone();
    assert_eq!(turns.len(), 1, "{point}: one message, one turn");
    // The mark was there before the first piece.
    assert_eq!(events.contains("reply_interrupted"), point.starts_with("C09"), "{point}: {events}");
    let (code, difference) = ground.segue(&["replay", "anna"]);
    assert_eq!(code, 0, "{point}: {difference}");
}

macro_rules! kills {
    ($($name:ident: $point:literal, $text:literal => $after:ident;)*) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            kill_at($point, $text, After::$after).await;
        })*
    };
}

kills! {
    c03_before_the_message_is_stored: "C03", "book directly" => Booked;
    c04_stored_and_not_acknowledged: "C04", "book directly" => Booked;
    c05_accepted_and_not_begun: "C05", "book directly" => Booked;
    c08_the_model_was_asked: "C08", "book with the agent" => Booked;
    c08_the_model_was_asked_a_second_time: "C08@2", "book with the agent" => Booked;
    c09_a_piece_was_shown: "C09", "book with the agent" => Booked;
    c09_a_piece_was_shown_before_anything_was_decided: "C09", "/book_now" => Booked;
    c09_the_last_words_were_half_shown: "C09@5", "book with the agent" => Booked;
    c11_the_intent_is_stored_by_a_step: "C11", "book directly" => Unknown;
    c11_the_intent_is_stored_by_an_agent: "C11", "book with the agent" => Unknown;
    c12_the_request_is_half_written_by_a_step: "C12", "book directly" => Unknown;
    c12_the_request_is_half_written_by_an_agent: "C12", "book with the agent" => Unknown;
    c13_the_request_is_out_and_the_answer_is_not_in: "C13", "book directly" => Unknown;
    c13_the_same_in_an_agent: "C13", "book with the agent" => Unknown;
    c14_the_answer_is_in_and_not_stored: "C14", "book directly" => Unknown;
    c15_the_outcome_is_stored_and_the_flow_not_told: "C15", "book directly" => Booked;
    c15_the_outcome_is_stored_and_the_model_not_told: "C15", "book with the agent" => Booked;
    c19_everything_is_ready_and_not_appended: "C19", "book directly" => Booked;
    c20_appended_and_nobody_knows: "C20", "book directly" => Booked;
    c21_appended_and_not_delivered: "C21", "book with the agent" => Booked;
    c22_delivered_without_a_receipt: "C22", "book directly" => Booked;
    c23_the_receipt_is_stored: "C23", "book directly" => Booked;
}

/// The turn is stored with what the user has been shown of it: no receipt has to come for that, and it never leaves again.
#[tokio::test(flavor = "multi_thread")]
async fn c22_what_was_shown_while_it_came_is_not_delivered_again() {
    for (query, waits) in [("", true), ("?stream=deltas", false)] {
        let ground = Ground::new();
        let first = ground.server(Some("C22")).expect("the first server listens");
        post_to(&first, ("book with the agent", "m1"), query).await;
        assert_eq!(ground.proof().as_deref(), Some("C22"));
        drop(first);
        let store = SqliteStore::open(&ground.path("talks.db"), false).unwrap();
        let waiting = store.pending_replies(&"anna".into()).await.unwrap();
        let by_the_agent = |id: &str| id.contains("llm");
        assert_eq!(waiting.iter().any(|reply| by_the_agent(&reply.id)), waits, "{query:?}: {waiting:?}");
    }
}

/// An upgrade in the middle of a turn: nothing is replayed, the write is unknown, and the user is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_project_takes_a_turn_over_without_deciding_it_again() {
    let ground = Ground::new();
    let first = ground.server(Some("C13")).expect("the first server listens");
    assert!(post(&first, "book directly").await.is_none());
    drop(first);
    let domain = fs::read_to_string(ground.path("domain.yml")).unwrap();
    fs::write(ground.path("domain.yml"), domain.replace("Booked as", "It is booked as")).unwrap();

    let second = ground.server(None).expect("the second server listens");
    let replies = post(&second, "book directly").await.expect("the second server answers");
    drop(second);
    assert!(ground.bookings() <= 1);
    assert!(!replies.is_empty() && replies.iter().all(|reply| !reply.contains("ooked as")), "{replies:?}");
    let (code, trace) = ground.segue(&["trace", "anna", "--format", "json"]);
    assert_eq!(code, 0);
    assert!(trace.contains("tool_executed") && trace.contains("unknown"), "{trace}");
    let (code, difference) = ground.segue(&["replay", "anna"]);
    assert_eq!(code, 0, "{difference}");
}

/// What the user is told of a turn that was tried too often, when some of it may have happened.
const GIVEN_UP: &str = "may have been done";

/// The agent has said a line that streamed, and its tool is under way; the next process comes minutes later.
async fn kill_a_streamed_turn_at(point: &str, after: After) {
    let ground = Ground::new();
    let first = ground.server(Some(point)).expect("the first server listens");
    assert_eq!(post_to(&first, ("book with the agent", "m1"), "?stream=deltas").await, None, "{point}");
    assert_eq!(ground.proof().as_deref(), Some(point));
    drop(first);

    let second = ground.server_ahead(None, 150).expect("the second server listens");
    let other = post_as(&second, "/what_is_this", "m2").await.expect("the second server answers");
    assert!(!other.is_empty(), "{point}: the next message is answered");
    let replies = post(&second, "book with the agent").await.expect("the second server answers");
    drop(second);
    let told = replies.join(" | ");
    match after {
        After::Booked => assert!(ground.bookings() == 1 && told.contains("Booked as NW-"), "{point}: {told}"),
        After::Unknown => assert!(ground.bookings() <= 1 && told.contains("I cannot tell"), "{point}: {told}"),
    }

    let third = ground.server_ahead(None, 300).expect("the third server listens");
    assert!(!post_as(&third, "/what_is_this", "m3").await.expect("an answer").is_empty(), "{point}");
    drop(third);
    let (code, difference) = ground.segue(&["replay", "anna"]);
    assert_eq!(code, 0, "{point}: {difference}");
}

macro_rules! streamed_kills {
    ($($name:ident: $point:literal => $after:ident;)*) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            kill_a_streamed_turn_at($point, After::$after).await;
        })*
    };
}

streamed_kills! {
    a_streamed_turn_cut_before_its_tool_is_finished_minutes_later: "C11" => Unknown;
    a_streamed_turn_cut_in_its_tool_is_finished_minutes_later: "C13" => Unknown;
    a_streamed_turn_cut_after_its_tool_is_finished_minutes_later: "C15" => Booked;
}

/// Every process that walks the turn dies in it: the fourth does not try again, and the conversation goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_kills_three_processes_is_given_up() {
    let ground = Ground::new();
    let first = ground.server(Some("C19")).expect("the first server listens");
    assert_eq!(post(&first, "book directly").await, None);
    drop(first);
    for _ in 0..2 {
        fs::remove_file(ground.path("proof")).unwrap();
        // It may listen before it takes the turn over, or not.
        if let Some(mut next) = ground.server(Some("C19")) {
            next.ends();
        }
        assert_eq!(ground.proof().as_deref(), Some("C19"));
    }
    let last = ground.server(None).expect("the fourth server listens");
    let told = post(&last, "book directly").await.expect("it answers").join(" | ");
    assert!(told.contains(GIVEN_UP) && !told.contains("Booked as"), "{told}");
    assert_eq!(ground.bookings(), 1);
    assert!(!post_as(&last, "/what_is_this", "m2").await.expect("an answer").is_empty());
    drop(last);
    let (code, difference) = ground.segue(&["replay", "anna"]);
    assert_eq!(code, 0, "{difference}");
}

/// A file of an earlier version, brought up to date by processes that die one after the other at every step of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_an_earlier_version_survives_every_cut_while_it_is_brought_up_to_date() {
    let ground = Ground::new();
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/store/tests/stores");
    fs::copy(stored.join("schema-8.sqlite"), ground.path("talks.db")).unwrap();
    fs::copy(stored.join("schema-8.sqlite-speaking"), ground.path("talks.db-speaking")).unwrap();
    let list = |point: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
        command.args(["doctor", "list", "--format", "json", "--store"]);
        command.arg(format!("sqlite:{}", ground.path("talks.db").display())).arg(ground.path(""));
        command.env("SEGUE_TEST_BOOKINGS", ground.path("bookings.json"));
        command.env("SEGUE_FAILPOINT", point).env("SEGUE_FAILPOINT_PROOF", ground.path("proof")).output().unwrap()
    };
    let mut deaths = 0;
    for point in ["migration_copied"].into_iter().chain(std::iter::repeat_n("migration_part", 100)) {
        let output = list(point);
        if output.status.success() {
            break;
        }
        assert_eq!(fs::read_to_string(ground.path("proof")).unwrap(), point, "{output:?}");
        fs::remove_file(ground.path("proof")).unwrap();
        deaths += 1;
    }
    assert!(deaths > 4, "{deaths}");
    let output = list("none");
    let found: Json = serde_json::from_slice(&output.stdout).unwrap();
    let troubles = found["conversations"].as_array().unwrap();
    let names: Vec<_> = troubles.iter().map(|one| (one["conversation"].as_str().unwrap(), &one["damage"])).collect();
    assert_eq!(names, [("carl", &Json::Null), ("dora", &Json::Null), ("emil", &Json::Null)]);
    for id in ["anna", "bert"] {
        let (code, difference) = ground.segue(&["replay", id]);
        assert_eq!(code, 0, "{id}: {difference}");
    }

    // Whoever opens it with `sqlite3` reads JSON.
    let file = rusqlite::Connection::open(ground.path("talks.db")).unwrap();
    for (table, column) in [
        ("inbox", "message"),
        ("batches", "events"),
        ("batches", "replies"),
        ("snapshots", "snapshot"),
        ("journal", "coalesce(outcome, 'null')"),
    ] {
        let sql = format!("SELECT count(*), coalesce(sum(json_valid({column})), 0) FROM {table}");
        let (all, json): (i64, i64) = file.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert!(all > 0 && all == json, "{table}.{column}: {json} of {all}");
    }

    // And it goes on.
    let server = ground.server(None).expect("the server listens");
    let replies = post_as(&server, "book directly", "m9").await.expect("it answers");
    assert!(replies.iter().any(|reply| reply.contains("Booked as NW-")), "{replies:?}");
}

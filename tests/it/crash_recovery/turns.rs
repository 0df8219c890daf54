//! Crashes at every point of a turn that books something, through a tool of a flow step or of an agent.

use std::{fs, path::Path};

use segue::store::{SqliteStore, Store};
use serde_json::Value as Json;

use super::{Expected, failpoint::*, failpoint_name};
use crate::{
    program::command,
    support::project_copy::{ProjectCopy, post, post_to, post_with_id},
};

/// A copy of the project `kills`: it books by a step of a flow ("book directly") or by an agent ("book with the agent").
fn booking_project() -> ProjectCopy {
    ProjectCopy::new("kills")
}

/// Sends `text` to a server that crashes at `failpoint`, and again to the next server.
async fn crash_at(failpoint: &str, text: &str, expected: Expected) {
    crash_in(booking_project(), failpoint, text, expected).await;
}

async fn crash_in(project: ProjectCopy, failpoint: &str, text: &str, expected: Expected) {
    let is_streamed = failpoint_name(failpoint) == AFTER_DELTA;
    // Parts of a reply are sent before the commit only if the channel streams.
    let query = if is_streamed { "?stream=deltas" } else { "" };
    let mut first = project.start_server(Some(failpoint)).expect("the first server listens");
    let response = post_to(&first, (text, "m1"), query).await;
    // Receipts are stored while the response is sent: the client may get it.
    let may_respond = failpoint == AFTER_RECEIPT;
    if may_respond {
        first.wait_for_exit();
    }
    assert_eq!(
        project.crashed_at().as_deref(),
        Some(failpoint_name(failpoint)),
        "{failpoint} was not reached: {response:?}"
    );
    assert!(response.is_none() || may_respond, "{failpoint}: the server crashed before it responded");
    drop(first);

    let second = project.start_server(None).expect("the second server listens");
    let replies = post(&second, text).await.expect("the second server responds");
    let repeated = post(&second, text).await.expect("it responds to the repeated message");
    assert_eq!(replies, repeated, "{failpoint}: a repeated message has the same replies");
    assert!(!replies.is_empty(), "{failpoint}: the user gets a reply");
    drop(second);

    let bookings = project.bookings();
    let is_booked = replies.iter().any(|reply| reply.contains("Booked as NW-"));
    match expected {
        Expected::Booked => assert_eq!((bookings, is_booked), (1, true), "{failpoint}: {replies:?}"),
        Expected::Unknown => assert!(bookings <= 1 && !is_booked, "{failpoint}: {bookings} {replies:?}"),
    }
    let (turns, events) = project.trace();
    assert_eq!(turns.len(), 1, "{failpoint}: one message, one turn");
    // A streamed reply is announced in the journal before its first part is sent.
    assert_eq!(events.contains("reply_interrupted"), is_streamed, "{failpoint}: {events}");
    project.assert_replays("anna");
}

macro_rules! crash_tests {
    ($($name:ident: $failpoint:expr, $text:literal => $expected:ident;)*) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            crash_at($failpoint, $text, Expected::$expected).await;
        })*
    };
}

crash_tests! {
    crash_before_accept_books_once: BEFORE_ACCEPT, "book directly" => Booked;
    crash_after_accept_books_once: AFTER_ACCEPT, "book directly" => Booked;
    crash_before_turn_books_once: BEFORE_TURN, "book directly" => Booked;
    crash_after_first_model_call_books_once: AFTER_MODEL_CALL, "book with the agent" => Booked;
    crash_after_second_model_call_books_once: AFTER_SECOND_MODEL_CALL, "book with the agent" => Booked;
    crash_after_first_delta_books_once: AFTER_DELTA, "book with the agent" => Booked;
    crash_after_first_delta_without_a_command_model_books_once: AFTER_DELTA, "/book_now" => Booked;
    crash_during_last_reply_books_once: DURING_LAST_REPLY, "book with the agent" => Booked;
    crash_after_intent_of_a_step_is_unknown: AFTER_INTENT, "book directly" => Unknown;
    crash_after_intent_of_an_agent_is_unknown: AFTER_INTENT, "book with the agent" => Unknown;
    crash_during_request_of_a_step_is_unknown: DURING_REQUEST, "book directly" => Unknown;
    crash_during_request_of_an_agent_is_unknown: DURING_REQUEST, "book with the agent" => Unknown;
    crash_after_request_of_a_step_is_unknown: AFTER_REQUEST, "book directly" => Unknown;
    crash_after_request_of_an_agent_is_unknown: AFTER_REQUEST, "book with the agent" => Unknown;
    crash_before_outcome_is_stored_is_unknown: BEFORE_OUTCOME_STORED, "book directly" => Unknown;
    crash_after_outcome_of_a_step_is_stored_books_once: AFTER_OUTCOME_STORED, "book directly" => Booked;
    crash_after_outcome_of_an_agent_is_stored_books_once: AFTER_OUTCOME_STORED, "book with the agent" => Booked;
    crash_before_commit_books_once: BEFORE_COMMIT, "book directly" => Booked;
    crash_after_commit_books_once: AFTER_COMMIT, "book directly" => Booked;
    crash_before_delivery_books_once: BEFORE_DELIVERY, "book with the agent" => Booked;
    crash_before_receipt_books_once: BEFORE_RECEIPT, "book directly" => Booked;
    crash_after_receipt_books_once: AFTER_RECEIPT, "book directly" => Booked;
}

macro_rules! delegated_crash_tests {
    ($($name:ident: $failpoint:expr => $expected:ident;)*) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            crash_in(ProjectCopy::new("kills_delegated"), $failpoint, "book it", Expected::$expected).await;
        })*
    };
}

// A sub-agent books: it continues from its records, its report is made once, and the booking tool is never called twice.
delegated_crash_tests! {
    crash_after_model_call_of_a_sub_agent_books_once: AFTER_THIRD_MODEL_CALL => Booked;
    crash_after_intent_of_a_sub_agent_is_unknown: AFTER_INTENT => Unknown;
    crash_after_request_of_a_sub_agent_is_unknown: AFTER_REQUEST => Unknown;
    crash_after_outcome_of_a_sub_agent_is_stored_books_once: AFTER_OUTCOME_STORED => Booked;
    crash_after_intent_of_a_report_books_once: AFTER_SECOND_INTENT => Booked;
    crash_after_a_report_is_stored_books_once: AFTER_SECOND_OUTCOME_STORED => Booked;
}

/// An agent writes two files, reads both, and writes both again. After the crash it has read what it read before, and a write that may have
/// happened is not repeated.
#[tokio::test(flavor = "multi_thread")]
async fn files_that_were_read_before_a_crash_can_be_written_after_it() {
    for (failpoint, reply, second) in [
        (AFTER_THIRD_OUTCOME_STORED, "Both are written.", "second b"),
        (AFTER_FOURTH_INTENT, "It failed. unknown", "first b"),
    ] {
        let project = ProjectCopy::new("kills_files");
        let first = project.start_server(Some(failpoint)).expect("the first server listens");
        post_to(&first, ("write", "m1"), "").await;
        assert_eq!(project.crashed_at().as_deref(), Some(failpoint_name(failpoint)), "{failpoint}");
        drop(first);
        let server = project.start_server(None).expect("the second server listens");
        let replies = post(&server, "write").await.expect("the second server responds").join(" | ");
        assert!(replies.contains(reply), "{failpoint}: {replies}");
        drop(server);
        let runs = project.path(".segue/runs");
        let folder = fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path().join("workspace");
        assert_eq!(fs::read_to_string(folder.join("a.txt")).unwrap(), "second a", "{failpoint}");
        assert_eq!(fs::read_to_string(folder.join("b.txt")).unwrap(), second, "{failpoint}");
        project.assert_replays("anna");
    }
}

/// A streamed reply needs no receipt: the commit of its turn records that the user has it.
#[tokio::test(flavor = "multi_thread")]
async fn streamed_reply_is_not_delivered_again_after_a_crash() {
    for (query, is_pending) in [("", true), ("?stream=deltas", false)] {
        let project = booking_project();
        let first = project.start_server(Some(BEFORE_RECEIPT)).expect("the first server listens");
        post_to(&first, ("book with the agent", "m1"), query).await;
        assert_eq!(project.crashed_at().as_deref(), Some(BEFORE_RECEIPT));
        drop(first);
        let store = SqliteStore::open(&project.path("talks.db"), false).unwrap();
        let pending = store.pending_replies(&"anna".into()).await.unwrap();
        let is_agents = |id: &str| id.contains("llm");
        assert_eq!(pending.iter().any(|reply| is_agents(&reply.id)), is_pending, "{query:?}: {pending:?}");
    }
}

/// The project changes between the crash and the recovery: nothing runs again, the outcome of the write is unknown, and the reply says
/// so.
#[tokio::test(flavor = "multi_thread")]
async fn recovery_with_a_changed_project_does_not_run_the_turn_again() {
    let project = booking_project();
    let first = project.start_server(Some(AFTER_REQUEST)).expect("the first server listens");
    assert!(post(&first, "book directly").await.is_none());
    drop(first);
    project.replace("domain.yml", "Booked as", "It is booked as");

    let second = project.start_server(None).expect("the second server listens");
    let replies = post(&second, "book directly").await.expect("the second server responds");
    drop(second);
    assert!(project.bookings() <= 1);
    assert!(!replies.is_empty() && replies.iter().all(|reply| !reply.contains("ooked as")), "{replies:?}");
    let (_, trace) = project.trace();
    assert!(trace.contains("tool_executed") && trace.contains("unknown"), "{trace}");
    project.assert_replays("anna");
}

/// An agent has streamed a reply and its tool is running when the process crashes. The next process starts minutes later.
async fn crash_in_a_streamed_turn_at(failpoint: &str, expected: Expected) {
    let project = booking_project();
    let first = project.start_server(Some(failpoint)).expect("the first server listens");
    assert_eq!(post_to(&first, ("book with the agent", "m1"), "?stream=deltas").await, None, "{failpoint}");
    assert_eq!(project.crashed_at().as_deref(), Some(failpoint));
    drop(first);

    let second = project.start_server_ahead(None, 150).expect("the second server listens");
    let other = post_with_id(&second, "/what_is_this", "m2").await.expect("the second server responds");
    assert!(!other.is_empty(), "{failpoint}: the next message gets a reply");
    let replies = post(&second, "book with the agent").await.expect("the second server responds").join(" | ");
    drop(second);
    let bookings = project.bookings();
    match expected {
        Expected::Booked => assert!(bookings == 1 && replies.contains("Booked as NW-"), "{failpoint}: {replies}"),
        Expected::Unknown => assert!(bookings <= 1 && replies.contains("I cannot tell"), "{failpoint}: {replies}"),
    }

    let third = project.start_server_ahead(None, 300).expect("the third server listens");
    let replies = post_with_id(&third, "/what_is_this", "m3").await.expect("the third server responds");
    assert!(!replies.is_empty(), "{failpoint}");
    drop(third);
    project.assert_replays("anna");
}

macro_rules! streamed_crash_tests {
    ($($name:ident: $failpoint:expr => $expected:ident;)*) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            crash_in_a_streamed_turn_at($failpoint, Expected::$expected).await;
        })*
    };
}

streamed_crash_tests! {
    streamed_turn_that_crashed_before_its_tool_is_recovered_minutes_later: AFTER_INTENT => Unknown;
    streamed_turn_that_crashed_in_its_tool_is_recovered_minutes_later: AFTER_REQUEST => Unknown;
    streamed_turn_that_crashed_after_its_tool_is_recovered_minutes_later: AFTER_OUTCOME_STORED => Booked;
}

/// The error response after the last attempt: it names what was done (`utter_turn_given_up`).
const GIVEN_UP: &str = "This was done already: book";

/// Three processes crash in the same turn: the fourth does not try it again, and the conversation continues.
#[tokio::test(flavor = "multi_thread")]
async fn turn_that_crashes_three_processes_is_given_up() {
    let project = booking_project();
    let first = project.start_server(Some(BEFORE_COMMIT)).expect("the first server listens");
    assert_eq!(post(&first, "book directly").await, None);
    drop(first);
    for _ in 0..2 {
        project.forget_crash();
        // The server may listen before it recovers the turn, or crash before it listens.
        if let Some(mut next) = project.start_server(Some(BEFORE_COMMIT)) {
            next.wait_for_exit();
        }
        assert_eq!(project.crashed_at().as_deref(), Some(BEFORE_COMMIT));
    }
    let last = project.start_server(None).expect("the fourth server listens");
    let replies = post(&last, "book directly").await.expect("it responds").join(" | ");
    assert!(replies.contains(GIVEN_UP) && !replies.contains("Booked as"), "{replies}");
    assert_eq!(project.bookings(), 1);
    assert!(!post_with_id(&last, "/what_is_this", "m2").await.expect("it responds").is_empty());
    drop(last);
    project.assert_replays("anna");
}

/// A file of an earlier version is migrated by processes that crash one after another, each at a later step of the migration.
#[tokio::test(flavor = "multi_thread")]
async fn migration_of_an_earlier_store_survives_a_crash_at_every_step() {
    let project = booking_project();
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/store/tests/stores");
    fs::copy(stored.join("schema-8.sqlite"), project.path("talks.db")).unwrap();
    fs::copy(stored.join("schema-8.sqlite-speaking"), project.path("talks.db-speaking")).unwrap();
    let list = |failpoint: &str| {
        let mut command = command();
        command.args(["doctor", "list", "--format", "json", "--store", &project.store()]).arg(project.path(""));
        command.env("SEGUE_TEST_BOOKINGS", project.path("bookings.json"));
        let command = command.env("SEGUE_FAILPOINT", failpoint).env("SEGUE_FAILPOINT_PROOF", project.path("proof"));
        command.output().unwrap()
    };
    let mut crashes = 0;
    for failpoint in ["migration_copied"].into_iter().chain(std::iter::repeat_n("migration_part", 100)) {
        let output = list(failpoint);
        if output.status.success() {
            break;
        }
        assert_eq!(project.crashed_at().as_deref(), Some(failpoint), "{output:?}");
        project.forget_crash();
        crashes += 1;
    }
    assert!(crashes > 4, "{crashes}");
    let output = list("none");
    let listed: Json = serde_json::from_slice(&output.stdout).unwrap();
    let problems = listed["conversations"].as_array().unwrap();
    let names: Vec<_> = problems.iter().map(|one| (one["conversation"].as_str().unwrap(), &one["damage"])).collect();
    assert_eq!(names, [("carl", &Json::Null), ("dora", &Json::Null), ("emil", &Json::Null)]);
    for id in ["anna", "bert"] {
        project.assert_replays(id);
    }

    // The rows are JSON, readable with `sqlite3`.
    let file = rusqlite::Connection::open(project.path("talks.db")).unwrap();
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

    // The conversation continues.
    let server = project.start_server(None).expect("the server listens");
    let replies = post_with_id(&server, "book directly", "m9").await.expect("it responds");
    assert!(replies.iter().any(|reply| reply.contains("Booked as NW-")), "{replies:?}");
}

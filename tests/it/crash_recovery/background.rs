//! Crashes while a sub-agent works in the background: the next process continues it from its journal. It books at most once, and there is
//! one report.

use segue::store::{
    SqliteStore,
    runs::{RunFilter, RunStore, UnitKey},
};
use serde_json::Value as Json;

use super::failpoint_name;
use crate::support::{
    program::run_with,
    project_copy::{ProjectCopy, post, post_with_id},
};

/// The failpoint, the bookings after it, and whether the report knows of the booking.
const CRASHES: [(&str, usize, bool); 9] = [
    // The sub-agent is stored; nobody works on it.
    ("task_started", 1, true),
    // The first response of its model is stored.
    ("run_append_done", 1, true),
    // The intent of the booking is not stored, or stored.
    ("run_append_ready@2", 1, true),
    ("run_append_done@2", 0, false),
    // The booking is made; its outcome is not stored, or stored.
    ("run_append_ready@3", 1, false),
    ("run_append_done@3", 1, true),
    // The last response is stored.
    ("run_append_done@4", 1, true),
    // The report is not stored, or stored.
    ("task_ends", 1, true),
    ("task_ended", 1, true),
];

/// The id of the sub-agent that an agent has started.
fn started(replies: &[String]) -> String {
    let (_, rest) = replies.iter().find_map(|reply| reply.split_once(" Id: ")).unwrap_or_else(|| panic!("{replies:?}"));
    rest.chars().take_while(char::is_ascii_hexdigit).collect()
}

/// The types of the stored events of a sub-agent.
async fn events(project: &ProjectCopy, id: &str) -> Vec<String> {
    let store = SqliteStore::open_read_only(&project.path("talks.db")).unwrap();
    let events = store.events(&format!("task-{id}").into(), 0, 100).await.unwrap();
    let kind = |text: &str| serde_json::from_str::<Json>(text).unwrap()["type"].as_str().unwrap().to_owned();
    events.iter().map(|event| kind(&event.event)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sub_agent_in_the_background_survives_its_process_and_has_one_report() {
    for (failpoint, bookings, is_known) in CRASHES {
        let project = ProjectCopy::new("kills_background");
        let mut first = project.start_server(Some(failpoint)).expect("the first server listens");
        // The server may crash before it responds.
        let _ = post(&first, "book it").await;
        first.wait_for_exit();
        assert_eq!(project.crashed_at().as_deref(), Some(failpoint_name(failpoint)), "{failpoint}");
        drop(first);

        // The lease of the first process is over.
        let second = project.start_server_ahead(None, 120).expect("the second server listens");
        let id = started(&post(&second, "book it").await.expect("the second server responds"));
        let replies = post_with_id(&second, &format!("fetch {id}"), "m2").await.expect("it fetches the report");
        let expected = if is_known { "Booked as NW-" } else { "I cannot tell whether the booking was made." };
        assert!(replies.iter().any(|reply| reply.contains(expected)), "{failpoint}: {replies:?}");
        drop(second);

        assert_eq!(project.bookings(), bookings, "{failpoint}");
        assert_eq!(events(&project, &id).await, ["task_queued", "task_completed"], "{failpoint}");
        project.assert_replays("anna");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sub_agent_in_the_background_survives_a_kill_while_it_books() {
    let project = ProjectCopy::new("kills_background");
    // The booking takes longer than the test.
    project.replace("endpoints.yml", "\"1500\"", "\"600000\"");
    let mut first = project.start_server(None).expect("the first server listens");
    let id = started(&post(&first, "book it").await.expect("the first server responds"));
    let store = SqliteStore::open_read_only(&project.path("talks.db")).unwrap();
    let unit = UnitKey::new(format!("task-{id}"), "task");
    loop {
        let records = store.unit(&unit).await.unwrap().unwrap().records;
        if records.iter().any(|record| &*record.kind == "tool" && record.outcome.is_none()) {
            break;
        }
    }
    drop(store);
    first.kill();
    drop(first);

    // The second process continues it; the third reads what the second has stored.
    for message in ["m2", "m3"] {
        let server = project.start_server_ahead(None, 120).expect("the next server listens");
        let replies = post_with_id(&server, &format!("fetch {id}"), message).await.expect("it fetches the report");
        assert!(replies.iter().any(|reply| reply.contains("I cannot tell")), "{replies:?}");
    }
    assert_eq!(project.bookings(), 0);
    assert_eq!(events(&project, &id).await, ["task_queued", "task_completed"]);

    let (code, shown) = project.run_segue(&["mission", "show", &format!("task-{id}")]);
    assert_eq!(code, 2, "it is no run of a mission: {shown}");
    assert!(shown.contains("S0204"), "{shown}");
    let (code, erased) = project.run_segue(&["doctor", "erase", "anna"]);
    assert_eq!(code, 0, "{erased}");
    assert!(events(&project, &id).await.is_empty());
}

#[tokio::test]
async fn a_chat_continues_the_sub_agents_of_its_conversation() {
    let project = ProjectCopy::new("kills_background");
    let chat = ["chat", ".", "--conversation", "anna", "--store", "sqlite:talks.db"];
    let bookings = project.path("bookings.json").display().to_string();
    let bookings = ("SEGUE_TEST_BOOKINGS", &*bookings);
    let killed = run_with(&project.path(""), &chat, "book it\n", &[bookings, ("SEGUE_FAILPOINT", "task_started")]);
    assert!(killed.code != 0 && project.bookings() == 0, "{}", killed.out);
    let store = SqliteStore::open_read_only(&project.path("talks.db")).unwrap();
    let run = store.runs(RunFilter::default(), 9).await.unwrap().pop().unwrap().id;
    drop(store);
    let id = run.as_str().trim_start_matches("task-");
    let fetched = run_with(&project.path(""), &chat, &format!("fetch {id}\n"), &[bookings]);
    assert!(fetched.out.contains("Booked as NW-"), "{}\n{}", fetched.out, fetched.err);
    assert_eq!(project.bookings(), 1);
    assert_eq!(events(&project, id).await, ["task_queued", "task_completed"]);
}

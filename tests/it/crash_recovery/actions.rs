//! Crashes around a call of an action server. An action that writes is never called twice, and the flow learns that the outcome is
//! unknown. The action server keeps running and counts its calls.

use super::failpoint::*;
use crate::{
    action_server::{ActionServer, set_slot},
    support::project_copy::{ProjectCopy, post},
};

/// What came of a message after the recovery.
struct Recovered {
    replies: Vec<String>,
    /// The idempotency keys of the calls of the action, one per call.
    keys: Vec<String>,
}

/// A copy of the project `clerk` that uses this action server.
fn clerk(actions: &ActionServer) -> ProjectCopy {
    let project = ProjectCopy::new("clerk");
    project.replace("endpoints.yml", "ACTIONS", &actions.address);
    project
}

/// Sends `text` to a server that crashes at `failpoint`, and again to the next server.
async fn crash_at(failpoint: &str, text: &str, action: &str) -> Recovered {
    // The failpoint is reached while the process waits for a response: the first call gets none.
    let has_no_response = failpoint == AFTER_REQUEST;
    let name = action.to_owned();
    let actions = ActionServer::start(move |call, number| {
        assert_eq!(call.body["next_action"], name);
        if has_no_response && number == 1 { None } else { set_slot("reference", &format!("R{number}")) }
    });
    let project = clerk(&actions);

    let first = project.start_server(Some(failpoint)).expect("the first server listens");
    let response = post(&first, text).await;
    assert_eq!(project.crashed_at().as_deref(), Some(failpoint), "{failpoint} was not reached: {response:?}");
    assert!(response.is_none(), "{failpoint}: the server crashed before it responded");
    drop(first);

    let second = project.start_server(None).expect("the second server listens");
    let replies = post(&second, text).await.expect("the second server responds");
    let repeated = post(&second, text).await.expect("it responds to the repeated message");
    assert_eq!(replies, repeated, "{failpoint}: a repeated message has the same replies");
    drop(second);

    assert_eq!(project.trace().0.len(), 1, "{failpoint}: one turn");
    project.assert_replays("anna");
    let keys = actions.calls_of(action).into_iter().map(|call| call.key).collect();
    Recovered { replies, keys }
}

macro_rules! write_tests {
    ($($name:ident: $failpoint:expr => $calls:literal, $reply:literal;)*) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let recovered = crash_at($failpoint, "/book", "action_book").await;
            assert_eq!(recovered.replies, [$reply]);
            assert_eq!(recovered.keys.len(), $calls, "calls of the action");
        })*
    };
}

write_tests! {
    crash_after_action_intent_is_unknown: AFTER_INTENT => 0, "Whether it was booked is not known (unknown).";
    crash_during_action_request_is_unknown: DURING_REQUEST => 0, "Whether it was booked is not known (unknown).";
    crash_after_action_request_is_unknown: AFTER_REQUEST => 1, "Whether it was booked is not known (unknown).";
    crash_before_action_outcome_is_stored_is_unknown:
        BEFORE_OUTCOME_STORED => 1, "Whether it was booked is not known (unknown).";
    crash_after_action_outcome_is_stored_runs_it_once: AFTER_OUTCOME_STORED => 1, "Booked as R1.";
    crash_before_commit_runs_the_action_once: BEFORE_COMMIT => 1, "Booked as R1.";
    crash_before_receipt_runs_the_action_once: BEFORE_RECEIPT => 1, "Booked as R1.";
}

#[tokio::test(flavor = "multi_thread")]
async fn idempotent_action_is_repeated_with_the_same_key() {
    let recovered = crash_at(AFTER_REQUEST, "/order", "action_order").await;
    assert_eq!(recovered.replies, ["Ordered as R2."]);
    assert_eq!(recovered.keys.len(), 2);
    assert!(recovered.keys[0] == recovered.keys[1] && recovered.keys[0].len() == 32, "{:?}", recovered.keys);
}

#[tokio::test(flavor = "multi_thread")]
async fn action_that_only_reads_is_repeated() {
    let recovered = crash_at(AFTER_REQUEST, "/look", "action_look").await;
    assert_eq!((recovered.replies, recovered.keys.len()), (vec!["Seen.".to_owned()], 2));
}

/// The project changes between the crash and the recovery: no action runs again, a slot that an action set is kept, and an unknown
/// outcome is recorded as unknown.
#[tokio::test(flavor = "multi_thread")]
async fn recovery_with_a_changed_project_keeps_action_outcomes() {
    for (failpoint, recorded) in [(AFTER_REQUEST, "\"code\":\"unknown\""), (AFTER_OUTCOME_STORED, "\"value\":\"R1\"")] {
        let actions = ActionServer::start(
            move |_, _| {
                if failpoint == AFTER_REQUEST { None } else { set_slot("reference", "R1") }
            },
        );
        let project = clerk(&actions);
        let first = project.start_server(Some(failpoint)).expect("the first server listens");
        assert!(post(&first, "/book").await.is_none());
        drop(first);
        project.replace("domain.yml", "Booked as", "It is booked as");
        let second = project.start_server(None).expect("the second server listens");
        let replies = post(&second, "/book").await.expect("the second server responds");
        drop(second);
        assert!(!replies.is_empty() && replies.iter().all(|reply| !reply.contains("ooked as")), "{replies:?}");
        assert_eq!(actions.calls().len(), 1, "{failpoint}");
        let (_, trace) = project.trace();
        assert!(trace.replace(": ", ":").contains(recorded), "{failpoint}: {trace}");
        project.assert_replays("anna");
    }
}

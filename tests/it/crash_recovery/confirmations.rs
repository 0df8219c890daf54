//! Crashes around the question that an agent asks before a write (`confirm: writes`): while the question is prepared, while it waits for
//! the answer, and between the yes and the call. The question is kept; the write happens at most once, and only after a yes.

use super::{Expected, failpoint::*, failpoint_name};
use crate::support::project_copy::{ProjectCopy, post_with_id};

const REQUEST: &str = "book with a question";

fn is_question(replies: &[String]) -> bool {
    replies.iter().any(|reply| reply.contains("book crossing") && reply.contains("Shall I go ahead?"))
}

/// The first process crashes at `before_question`, the second at `after_yes`. Without a failpoint the process is killed while no turn
/// runs.
async fn crash_at(before_question: Option<&str>, after_yes: Option<&str>, expected: Expected) {
    let project = ProjectCopy::new("kills");
    let mut server = project.start_server(before_question).expect("the first server listens");
    let question = post_with_id(&server, REQUEST, "m1").await;
    if let Some(failpoint) = before_question {
        assert_eq!((question, project.crashed_at().as_deref()), (None, Some(failpoint_name(failpoint))), "{failpoint}");
    } else {
        assert!(is_question(&question.unwrap()));
    }
    assert_eq!(project.bookings(), 0, "nothing is booked before a yes");
    server.kill();

    let mut server = project.start_server(after_yes).expect("the second server listens");
    let question = post_with_id(&server, REQUEST, "m1").await.expect("the question is kept");
    assert!(is_question(&question), "{question:?}");
    assert_eq!(project.bookings(), 0);
    let replies = post_with_id(&server, "yes", "m2").await;
    if let Some(failpoint) = after_yes {
        assert_eq!((replies, project.crashed_at().as_deref()), (None, Some(failpoint)), "{failpoint}");
    } else {
        assert!(replies.unwrap().iter().any(|reply| reply.contains("Booked as NW-")));
    }
    server.kill();

    let server = project.start_server(None).expect("the third server listens");
    let replies = post_with_id(&server, "yes", "m2").await.expect("the yes gets a reply");
    let repeated = post_with_id(&server, "yes", "m2").await;
    assert_eq!(repeated.as_ref(), Some(&replies), "a repeated message has the same replies");
    drop(server);
    let (bookings, is_booked) = (project.bookings(), replies.iter().any(|reply| reply.contains("Booked as NW-")));
    match expected {
        Expected::Booked => assert_eq!((bookings, is_booked), (1, true), "{replies:?}"),
        Expected::Unknown => {
            assert!(bookings <= 1 && !is_booked, "{bookings} {replies:?}");
            assert!(
                replies.iter().any(|reply| reply.contains("cannot tell")),
                "the reply says that the outcome is unknown: {replies:?}"
            );
        }
    }
    assert_eq!(project.trace().0.len(), 2, "two messages, two turns");
    project.assert_replays("anna");
}

macro_rules! crash_tests {
    ($($name:ident: $before_question:expr, $after_yes:expr => $expected:ident;)*) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            crash_at($before_question, $after_yes, Expected::$expected).await;
        })*
    };
}

crash_tests! {
    crash_before_the_agent_runs_keeps_the_question: Some(BEFORE_TURN), None => Booked;
    crash_while_the_model_writes_the_call_keeps_the_question: Some(AFTER_SECOND_MODEL_CALL), None => Booked;
    crash_before_the_question_is_committed_keeps_it: Some(BEFORE_COMMIT), None => Booked;
    crash_before_the_question_is_delivered_keeps_it: Some(BEFORE_DELIVERY), None => Booked;
    crash_while_the_question_waits_for_an_answer_keeps_it: None, None => Booked;
    crash_before_the_turn_of_the_yes_books_once: None, Some(BEFORE_TURN) => Booked;
    crash_after_the_intent_of_a_confirmed_call_is_unknown: None, Some(AFTER_INTENT) => Unknown;
    crash_during_the_request_of_a_confirmed_call_is_unknown: None, Some(DURING_REQUEST) => Unknown;
    crash_after_the_request_of_a_confirmed_call_is_unknown: None, Some(AFTER_REQUEST) => Unknown;
    crash_before_the_outcome_of_a_confirmed_call_is_stored_is_unknown: None, Some(BEFORE_OUTCOME_STORED) => Unknown;
    crash_after_the_outcome_of_a_confirmed_call_is_stored_books_once: None, Some(AFTER_OUTCOME_STORED) => Booked;
    crash_before_the_commit_of_the_yes_books_once: None, Some(BEFORE_COMMIT) => Booked;
    crashes_before_the_question_and_after_the_yes_are_unknown: Some(BEFORE_COMMIT), Some(AFTER_REQUEST) => Unknown;
}

//! The process dies around the question before a write: before it is asked, while it waits for the answer, and between the yes
//! and the call. The question stays, the write happens at most once, and only after a yes.

use serde_json::Value as Json;

use crate::kills::{Ground, post_as};

const WISH: &str = "book with a question";

fn is_question(replies: &[String]) -> bool {
    replies.iter().any(|reply| reply.contains("book crossing") && reply.contains("Shall I go ahead?"))
}

/// What may be true at the end.
#[derive(Clone, Copy, PartialEq)]
enum After {
    Booked,
    Unknown,
}

/// A process dies at `first` while it prepares the question, another at `second` while it takes the answer; without a point the
/// process is killed while nothing runs.
async fn kill_at(first: Option<&str>, second: Option<&str>, after: After) {
    let ground = Ground::of("kills");
    let mut server = ground.server(first).expect("it listens");
    let asked = post_as(&server, WISH, "m1").await;
    if let Some(point) = first {
        assert_eq!((asked, ground.proof().as_deref()), (None, Some(point.split('@').next().unwrap())), "{point}");
    } else {
        assert!(is_question(&asked.unwrap()));
    }
    assert_eq!(ground.bookings(), 0, "nothing is booked before a yes");
    // SIGKILL, and no word more.
    server.child.kill().unwrap();
    drop(server);

    let mut server = ground.server(second).expect("it listens again");
    let asked = post_as(&server, WISH, "m1").await.expect("the question stays");
    assert!(is_question(&asked), "{asked:?}");
    assert_eq!(ground.bookings(), 0);
    let told = post_as(&server, "yes", "m2").await;
    if let Some(point) = second {
        assert_eq!((told, ground.proof().as_deref()), (None, Some(point)), "{point}");
    } else {
        assert!(told.unwrap().iter().any(|reply| reply.contains("Booked as NW-")));
    }
    server.child.kill().unwrap();
    drop(server);

    let server = ground.server(None).expect("it listens at last");
    let told = post_as(&server, "yes", "m2").await.expect("the yes is answered");
    assert_eq!(post_as(&server, "yes", "m2").await.as_ref(), Some(&told), "and the same again");
    drop(server);
    let (bookings, booked) = (ground.bookings(), told.iter().any(|reply| reply.contains("Booked as NW-")));
    match after {
        After::Booked => assert_eq!((bookings, booked), (1, true), "{told:?}"),
        After::Unknown => {
            assert!(bookings <= 1 && !booked, "{bookings} {told:?}");
            assert!(told.iter().any(|reply| reply.contains("cannot tell")), "the user is told: {told:?}");
        }
    }
    let (code, trace) = ground.segue(&["trace", "anna", "--format", "json"]);
    assert_eq!(code, 0, "{trace}");
    let turns: Json = serde_json::from_str(&trace).unwrap();
    assert_eq!(turns.as_array().map(Vec::len), Some(2), "two messages, two turns");
    let (code, difference) = ground.segue(&["replay", "anna"]);
    assert_eq!(code, 0, "{difference}");
}

macro_rules! kills {
    ($($name:ident: $first:expr, $second:expr => $after:ident;)*) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            kill_at($first, $second, After::$after).await;
        })*
    };
}

kills! {
    before_the_agent_was_asked: Some("C05"), None => Booked;
    while_the_model_writes_the_call: Some("C08@2"), None => Booked;
    when_the_question_is_ready_and_not_stored: Some("C19"), None => Booked;
    when_the_question_is_stored_and_not_delivered: Some("C21"), None => Booked;
    while_the_question_waits: None, None => Booked;
    when_the_yes_is_stored_and_not_read: None, Some("C05") => Booked;
    when_the_intent_of_the_call_is_stored: None, Some("C11") => Unknown;
    when_the_call_is_half_written: None, Some("C12") => Unknown;
    when_the_call_is_out: None, Some("C13") => Unknown;
    when_its_answer_is_in_and_not_stored: None, Some("C14") => Unknown;
    when_its_answer_is_stored_and_the_model_not_told: None, Some("C15") => Booked;
    when_the_turn_of_the_yes_is_ready_and_not_stored: None, Some("C19") => Booked;
    when_both_turns_break: Some("C19"), Some("C13") => Unknown;
}

//! The process dies around an action call, and another one takes over: an action that writes is never called twice, and the flow is
//! told when nobody knows whether it ran. The action server lives on and counts.

use std::fs;

use serde_json::Value as Json;

use crate::{
    action_server::{ActionServer, sets},
    kills::{Ground, post},
};

struct Ended {
    replies: Vec<String>,
    keys: Vec<String>,
}

/// Sends a message to a process that dies at `point`, then to one that takes over.
async fn kill_at(point: &str, text: &str, action: &str) -> Ended {
    let silent = point == "C13";
    let name = action.to_owned();
    let actions = ActionServer::start(move |call, number| {
        assert_eq!(call.body["next_action"], name);
        // "The request is out and the answer is not in": the first call gets none.
        if silent && number == 1 { None } else { sets("reference", &format!("R{number}")) }
    });
    let ground = Ground::of("clerk");
    let endpoints = fs::read_to_string(ground.path("endpoints.yml")).unwrap();
    fs::write(ground.path("endpoints.yml"), endpoints.replace("ACTIONS", &actions.address)).unwrap();

    let first = ground.server(Some(point)).expect("the first server listens");
    let answered = post(&first, text).await;
    assert_eq!(ground.proof().as_deref(), Some(point), "{point} was not reached: {answered:?}");
    assert!(answered.is_none(), "{point}: a dead server does not answer");
    drop(first);

    let second = ground.server(None).expect("the second server listens");
    let replies = post(&second, text).await.expect("the second server answers");
    let again = post(&second, text).await.expect("and again");
    assert_eq!(replies, again, "{point}: a repeated message has the same replies");
    drop(second);

    let (code, turns) = ground.segue(&["trace", "anna", "--format", "json"]);
    assert_eq!(code, 0, "{point}: {turns}");
    let turns: Json = serde_json::from_str(&turns).unwrap();
    assert_eq!(turns.as_array().or_else(|| turns["turns"].as_array()).unwrap().len(), 1, "{point}: one turn");
    let (code, difference) = ground.segue(&["replay", "anna"]);
    assert_eq!(code, 0, "{point}: {difference}");
    let keys = actions.calls_of(action).into_iter().map(|call| call.key).collect();
    Ended { replies, keys }
}

macro_rules! writes {
    ($($name:ident: $point:literal => $calls:literal, $reply:literal;)*) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let ended = kill_at($point, "/book", "action_book").await;
            assert_eq!(ended.replies, [$reply]);
            assert_eq!(ended.keys.len(), $calls, "calls of the action");
        })*
    };
}

writes! {
    c11_the_intent_of_an_action_is_stored: "C11" => 0, "Whether it was booked is not known (unknown).";
    c12_an_action_is_half_written: "C12" => 0, "Whether it was booked is not known (unknown).";
    c13_an_action_is_out_and_its_answer_is_not_in: "C13" => 1, "Whether it was booked is not known (unknown).";
    c14_an_answer_is_in_and_not_stored: "C14" => 1, "Whether it was booked is not known (unknown).";
    c15_an_outcome_is_stored_and_the_flow_not_told: "C15" => 1, "Booked as R1.";
    c19_everything_after_an_action_is_ready_and_not_appended: "C19" => 1, "Booked as R1.";
    c22_delivered_after_an_action_without_a_receipt: "C22" => 1, "Booked as R1.";
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotent_action_is_called_again_with_the_same_key() {
    let ended = kill_at("C13", "/order", "action_order").await;
    assert_eq!(ended.replies, ["Ordered as R2."]);
    assert_eq!(ended.keys.len(), 2);
    assert!(ended.keys[0] == ended.keys[1] && ended.keys[0].len() == 32, "{:?}", ended.keys);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_that_only_reads_is_called_again() {
    let ended = kill_at("C13", "/look", "action_look").await;
    assert_eq!((ended.replies, ended.keys.len()), (vec!["Seen.".to_owned()], 2));
}

/// An upgrade in the middle of a turn: nothing is decided again, what an action had set stays, and what nobody knows is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_project_keeps_what_an_action_came_to() {
    for (point, told) in [("C13", "\"code\":\"unknown\""), ("C15", "\"value\":\"R1\"")] {
        let actions = ActionServer::start(move |_, _| if point == "C13" { None } else { sets("reference", "R1") });
        let ground = Ground::of("clerk");
        let endpoints = fs::read_to_string(ground.path("endpoints.yml")).unwrap();
        fs::write(ground.path("endpoints.yml"), endpoints.replace("ACTIONS", &actions.address)).unwrap();
        let first = ground.server(Some(point)).expect("the first server listens");
        assert!(post(&first, "/book").await.is_none());
        drop(first);
        let domain = fs::read_to_string(ground.path("domain.yml")).unwrap();
        fs::write(ground.path("domain.yml"), domain.replace("Booked as", "It is booked as")).unwrap();
        let second = ground.server(None).expect("the second server listens");
        let replies = post(&second, "/book").await.expect("the second server answers");
        drop(second);
        assert!(!replies.is_empty() && replies.iter().all(|reply| !reply.contains("ooked as")), "{replies:?}");
        assert_eq!(actions.calls().len(), 1, "{point}");
        let (code, trace) = ground.segue(&["trace", "anna", "--format", "json"]);
        assert!(code == 0 && trace.replace(": ", ":").contains(told), "{point}: {trace}");
        let (code, difference) = ground.segue(&["replay", "anna"]);
        assert_eq!(code, 0, "{difference}");
    }
}

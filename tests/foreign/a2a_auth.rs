//! Agents on the genuine library that take the tokens of a genuine authorization server alone.

use segue::{Assistant, Incoming, NoSink, Report};
use serde_json::{Value as Json, json};

use crate::{
    a2a::{BINDINGS, Kind, serve, with_auth},
    oauth::{given, guarded},
    parts::Part,
};

const SECRET: &str = "a secret: with %, / and +";

/// An authorization server, and an agent of this kind that asks it about every token.
fn agent(kind: Kind) -> (Part, String, Part, String, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let (authority, base) = guarded();
    let introspect = format!("{base}/token/introspection");
    let environment = [("A2A_INTROSPECT", introspect.as_str())];
    let (agent, address) = serve(kind, &folder.path().join("log"), &environment);
    (authority, base, agent, address, folder)
}

fn oauth(base: &str, id: &str, secret: &str) -> Json {
    let token_url = format!("{base}/token");
    json!({"oauth": {"client_id": id, "client_secret": secret, "token_url": token_url, "scope": "tools:read"}})
}

async fn says(assistant: &Assistant, who: &str, text: &str) -> Report {
    assistant.receive(Incoming::text(who, text, "test"), Box::new(NoSink)).await.unwrap()
}

fn codes(report: &Report) -> Vec<&str> {
    report.failures.iter().map(|failure| &*failure.code).collect()
}

fn says_so(report: &Report, text: &str) -> bool {
    report.replies.iter().any(|reply| reply.reply.text.as_deref() == Some(text))
}

#[tokio::test]
async fn a_token_is_asked_for_once_kept_and_replaced_when_it_is_taken_back() {
    for kind in BINDINGS.iter().copied() {
        let (_authority, base, _agent, address, _folder) = agent(kind);
        let lines = [["start flow ask_prices"; 8], ["continue agent"; 8]].concat();
        let assistant = with_auth(&address, &oauth(&base, "machine", SECRET), &lines);
        let users: Vec<String> = (0..8).map(|number| format!("user-{number}")).collect();
        let first = futures::future::join_all(users.iter().map(|who| says(&assistant, who, "price"))).await;
        for report in &first {
            assert!(says_so(report, "For how many people?"), "{kind:?}: {report:?}");
        }
        assert_eq!(given(&base, "client_credentials").await, 1, "{kind:?}: eight conversations share one token");
        burn(&base).await;
        let second = futures::future::join_all(users.iter().map(|who| says(&assistant, who, "We are 3"))).await;
        for report in &second {
            assert!(says_so(report, "That is 90.0 for you."), "{kind:?}: {report:?}");
        }
        assert_eq!(given(&base, "client_credentials").await, 2, "{kind:?}: and its successor");
    }
}

#[tokio::test]
async fn a_client_whose_secret_belongs_in_the_form_is_let_in_and_a_wrong_secret_is_not() {
    let (_authority, base, _agent, address, _folder) = agent(Kind { new: true, flags: &[] });
    for (id, secret, works) in [("poster", SECRET, true), ("machine", "wr0ng", false), ("nobody", SECRET, false)] {
        let assistant = with_auth(&address, &oauth(&base, id, secret), &["start flow ask_prices"]);
        let report = says(&assistant, "ada", "price").await;
        assert_eq!(codes(&report), if works { vec![] } else { vec!["A0511"] }, "{id}: {:?}", report.failures);
        let told = format!("{:?}", report.failures);
        assert!(!told.contains(secret), "{told}");
        assert_eq!(told.contains("invalid_client"), !works, "{told}");
    }
}

/// Takes back all tokens that machines were given.
async fn burn(base: &str) {
    let client = segue::http::Outbound::new();
    client.client().unwrap().get(format!("{base}/burn")).send().await.unwrap();
}

//! The tokens of a genuine authorization server: shown to agents on the genuine library that take no others, and shown to our own
//! agent by callers with that library.

use segue::{Assistant, DiscardReplies, IncomingMessage, TurnReport};
use serde_json::{Value as Json, json};

use crate::{
    a2a::{BINDINGS, Kind, serve, with_auth},
    a2a_server::{Caller, EVERY, state},
    oauth::{given, guarded},
    parts::{self, Part},
    program::Ground,
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

async fn says(assistant: &Assistant, who: &str, text: &str) -> TurnReport {
    assistant.receive(IncomingMessage::text(who, text, "test"), Box::new(DiscardReplies)).await.unwrap()
}

fn codes(report: &TurnReport) -> Vec<&str> {
    report.failures.iter().map(|failure| &*failure.code).collect()
}

fn says_so(report: &TurnReport, text: &str) -> bool {
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
    let client = segue::http::HttpClients::new();
    client.client().unwrap().get(format!("{base}/burn")).send().await.unwrap();
}

/// A token of the machine for a server of others.
async fn token_for(base: &str, server: &str, scope: &str) -> String {
    let client = segue::http::HttpClients::new();
    let form = [("grant_type", "client_credentials"), ("resource", server), ("scope", scope)];
    let form = form.into_iter().filter(|(_, value)| !value.is_empty()).collect::<Vec<_>>();
    let request = client.client().unwrap().post(format!("{base}/token"));
    // The secret as a form writes it.
    let request = request.basic_auth("machine", Some("a+secret%3A+with+%25%2C+%2F+and+%2B")).form(&form);
    let answer: Json = request.send().await.unwrap().json().await.unwrap();
    answer["access_token"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[tokio::test]
async fn callers_of_our_agent_show_tokens_that_the_authorization_server_signed() {
    let (_authority, base) = guarded();
    let ground = Ground::of("desk");
    let endpoints = std::fs::read_to_string(ground.path("endpoints.yml")).unwrap();
    let places = "https://assistant.example";
    let rules = format!(
        "  auth:\n    jwt: {{issuer: '{base}', audience: ['{places}/RS256', '{places}/ES256', '{places}/EdDSA'], jwks: '{base}/jwks', scope: talk}}\n"
    );
    std::fs::write(ground.path("endpoints.yml"), endpoints + &rules).unwrap();
    let server = ground.server(&[]).unwrap();
    let mut shown = String::new();
    for (at, (new, flags)) in EVERY.into_iter().enumerate() {
        let way = ["RS256", "ES256", "EdDSA"][at % 3];
        let token = token_for(&base, &format!("{places}/{way}"), "talk").await;
        assert_eq!(token.split('.').count(), 3, "{way}: it says itself what it is");
        let mut caller = Caller::of(&server, new, flags, Some(&token));
        let task = caller.sends("a table please", None);
        assert_eq!(state(&task), "input-required", "{way} {new} {flags:?}");
        assert_eq!(caller.asks(json!({"do": "get", "task": task["id"]}))["id"], task["id"]);
        shown = token;
    }
    let bent = shown.replace(&shown[shown.len() - 8..], "AAAAAAAA");
    // One that means nothing by itself, two that nobody signed, and one that lacks a right.
    let opaque = token_for(&base, &format!("{base}/mcp"), "tools:read").await;
    let lacking = token_for(&base, &format!("{places}/ES256"), "").await;
    for (token, status) in [(opaque.as_str(), "401"), (&bent, "401"), ("x.y.z", "401"), (&lacking, "403")] {
        let mut stranger = Caller::of(&server, true, &[], Some(token));
        let refused = stranger.tries(&json!({"do": "send", "text": "welcome"})).unwrap_err();
        assert!(refused.contains(status), "{refused}");
        assert_eq!(stranger.asks(json!({"do": "card"}))["name"], "desk");
    }
    let answer = parts::post(server.port(), "/a2a", "{}");
    assert!(
        answer.starts_with("HTTP/1.1 401") && answer.to_lowercase().contains("www-authenticate: bearer"),
        "{answer}"
    );
}

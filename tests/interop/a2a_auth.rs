//! A2A with access tokens of the authorization server `oidc-provider`: Segue sends them to agents built with `a2a-sdk`, and clients built
//! with `a2a-sdk` send them to Segue.

use segue::{Assistant, DiscardReplies, IncomingMessage, TurnReport};
use serde_json::{Value as Json, json};

use crate::{
    a2a::{AgentVariant, RPC_AGENTS, start_agent, with_auth},
    a2a_server::{A2aClient, ALL_CLIENTS, state},
    oauth::{start_oauth_server, token_count},
    processes::{self, ChildProcess},
    program::ProjectCopy,
};

const SECRET: &str = "a secret: with %, / and +";

/// Starts an authorization server, and an agent that checks every token with it (token introspection, RFC 7662).
fn start_guarded_agent(variant: AgentVariant) -> (ChildProcess, String, ChildProcess, String, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let (authority, base) = start_oauth_server();
    let introspect = format!("{base}/token/introspection");
    let environment = [("A2A_INTROSPECT", introspect.as_str())];
    let (agent, address) = start_agent(variant, &folder.path().join("log"), &environment);
    (authority, base, agent, address, folder)
}

fn oauth(base: &str, id: &str, secret: &str) -> Json {
    let token_url = format!("{base}/token");
    json!({"oauth": {"client_id": id, "client_secret": secret, "token_url": token_url, "scope": "tools:read"}})
}

async fn say(assistant: &Assistant, sender: &str, text: &str) -> TurnReport {
    assistant.receive(IncomingMessage::new(sender, text).input_channel("test"), Box::new(DiscardReplies)).await.unwrap()
}

fn codes(report: &TurnReport) -> Vec<&str> {
    report.failures.iter().map(|failure| &*failure.code).collect()
}

fn has_reply(report: &TurnReport, text: &str) -> bool {
    report.replies.iter().any(|reply| reply.reply.text.as_deref() == Some(text))
}

#[tokio::test]
async fn concurrent_calls_share_one_token_and_replace_a_revoked_one_once() {
    for variant in RPC_AGENTS.iter().copied() {
        let (_authority, base, _agent, address, _folder) = start_guarded_agent(variant);
        let lines = [["start flow ask_prices"; 8], ["continue agent"; 8]].concat();
        let assistant = with_auth(&address, &oauth(&base, "machine", SECRET), &lines);
        let users: Vec<String> = (0..8).map(|number| format!("user-{number}")).collect();
        let first = futures::future::join_all(users.iter().map(|user| say(&assistant, user, "price"))).await;
        for report in &first {
            assert!(has_reply(report, "For how many people?"), "{variant:?}: {report:?}");
        }
        assert_eq!(
            token_count(&base, "client_credentials").await,
            1,
            "{variant:?}: eight conversations share one token"
        );
        revoke_client_tokens(&base).await;
        let second = futures::future::join_all(users.iter().map(|user| say(&assistant, user, "We are 3"))).await;
        for report in &second {
            assert!(has_reply(report, "That is 90.0 for you."), "{variant:?}: {report:?}");
        }
        assert_eq!(token_count(&base, "client_credentials").await, 2, "{variant:?}: and its replacement");
    }
}

#[tokio::test]
async fn client_secret_post_is_accepted_and_wrong_client_credentials_are_rejected() {
    let variant = AgentVariant { is_v1: true, flags: &[] };
    let (_authority, base, _agent, address, _folder) = start_guarded_agent(variant);
    for (id, secret, is_accepted) in [("poster", SECRET, true), ("machine", "wr0ng", false), ("nobody", SECRET, false)]
    {
        let assistant = with_auth(&address, &oauth(&base, id, secret), &["start flow ask_prices"]);
        let report = say(&assistant, "ada", "price").await;
        assert_eq!(codes(&report), if is_accepted { vec![] } else { vec!["A0511"] }, "{id}: {:?}", report.failures);
        let failures = format!("{:?}", report.failures);
        assert!(!failures.contains(secret), "{failures}");
        assert_eq!(failures.contains("invalid_client"), !is_accepted, "{failures}");
    }
}

/// Revokes all tokens of the client credentials grant.
async fn revoke_client_tokens(base: &str) {
    let clients = segue::http::HttpClients::new();
    clients.client().unwrap().get(format!("{base}/burn")).send().await.unwrap();
}

/// Requests a token of the client `machine` for a resource server (RFC 8707).
async fn token_for(base: &str, resource: &str, scope: &str) -> String {
    let clients = segue::http::HttpClients::new();
    let form = [("grant_type", "client_credentials"), ("resource", resource), ("scope", scope)];
    let form = form.into_iter().filter(|(_, value)| !value.is_empty()).collect::<Vec<_>>();
    let request = clients.client().unwrap().post(format!("{base}/token"));
    // The client secret, form-encoded (RFC 6749, section 2.3.1).
    let request = request.basic_auth("machine", Some("a+secret%3A+with+%25%2C+%2F+and+%2B")).form(&form);
    let answer: Json = request.send().await.unwrap().json().await.unwrap();
    answer["access_token"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[tokio::test]
async fn a2a_server_accepts_signed_tokens_and_rejects_forged_opaque_and_underprivileged_ones() {
    let (_authority, base) = start_oauth_server();
    let project = ProjectCopy::new("desk");
    let endpoints = std::fs::read_to_string(project.path("endpoints.yml")).unwrap();
    let audience = "https://assistant.example";
    let auth = format!(
        "  auth:\n    jwt: {{issuer: '{base}', audience: ['{audience}/RS256', '{audience}/ES256', '{audience}/EdDSA'], jwks: '{base}/jwks', scope: talk}}\n"
    );
    std::fs::write(project.path("endpoints.yml"), endpoints + &auth).unwrap();
    let server = project.server(&[]).unwrap();
    let mut last_token = String::new();
    for (index, (is_v1, flags)) in ALL_CLIENTS.into_iter().enumerate() {
        let algorithm = ["RS256", "ES256", "EdDSA"][index % 3];
        let token = token_for(&base, &format!("{audience}/{algorithm}"), "talk").await;
        assert_eq!(token.split('.').count(), 3, "{algorithm}: the token is a JWT");
        let mut client = A2aClient::connect(&server, is_v1, flags, Some(&token));
        let task = client.send("a table please", None);
        assert_eq!(state(&task), "input-required", "{algorithm} {is_v1} {flags:?}");
        assert_eq!(client.request(json!({"do": "get", "task": task["id"]}))["id"], task["id"]);
        last_token = token;
    }
    let forged = last_token.replace(&last_token[last_token.len() - 8..], "AAAAAAAA");
    let opaque = token_for(&base, &format!("{base}/mcp"), "tools:read").await;
    let without_scope = token_for(&base, &format!("{audience}/ES256"), "").await;
    for (token, status) in [(opaque.as_str(), "401"), (&forged, "401"), ("x.y.z", "401"), (&without_scope, "403")] {
        let mut client = A2aClient::connect(&server, true, &[], Some(token));
        let error = client.try_request(&json!({"do": "send", "text": "welcome"})).unwrap_err();
        assert!(error.contains(status), "{error}");
        assert_eq!(client.request(json!({"do": "card"}))["name"], "desk");
    }
    let answer = processes::post(server.port(), "/a2a", "{}");
    assert!(
        answer.starts_with("HTTP/1.1 401") && answer.to_lowercase().contains("www-authenticate: bearer"),
        "{answer}"
    );
}

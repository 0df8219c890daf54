//! Tests of the hook client: invalid responses, timeout, OAuth.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::time::Duration;

use crate::test_server::serve_responses;

use super::*;
use crate::testing::ManualClock;

fn definition() -> AgentDef {
    with_auth("{api_key: \"${KEY}\", header_name: X-Key, header_format: \"k {key}\"}")
}

fn with_auth(auth: &str) -> AgentDef {
    let file = |path: &str, text: &str| segue_engine::project::SourceFile { path: path.into(), text: text.into() };
    let agent = format!("agent: {{name: a, description: d}}\nconfiguration: {{module: \"http://x/\", auth: {auth}}}\n");
    let mut sources = segue_engine::project::Sources::default();
    sources.agents.push(file("sub_agents/a/config.yml", &agent));
    sources.environment.insert("KEY".into(), "s3cret".into());
    let loaded = segue_engine::project::Project::load(&sources);
    let project = loaded.project.unwrap_or_else(|| panic!("{:#?}", loaded.findings));
    std::sync::Arc::into_inner(project.agents.into_iter().next().unwrap().1).expect("the definition has one owner")
}

async fn describe_with(response: (u16, String)) -> Result<HookServerInfo, HookError> {
    let (address, requests) = serve_responses(vec![response]).await;
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
    let server = HookServer::new(&format!("{address}/hooks"), &definition(), HttpClients::new(), &clock)?;
    let result = server.describe(&ManualClock::new().context(Duration::from_secs(60))).await;
    let requests = requests.take();
    assert!(requests[0].head.to_lowercase().contains("x-key: k s3cret"), "{}", requests[0].head);
    assert!(requests[0].body.contains(r#""hook":"describe""#), "{}", requests[0].body);
    result
}

fn http(status: u16, body: &str) -> (u16, String) {
    (status, body.to_owned())
}

#[tokio::test]
async fn invalid_responses_of_a_hook_server_are_distinguished() {
    let good =
        describe_with(http(200, r#"{"hooks": ["process_input"], "tools": [{"name": "t", "description": "d"}]}"#));
    let good = good.await.unwrap();
    assert_eq!((good.tools[0].effect, &good.tools[0].parameters["type"]), (EffectClass::Write, &json!("object")));

    let many = json!({"tools": vec![json!({"name": "t", "description": "d"}); limits::HOOK_TOOLS + 1]}).to_string();
    let large = format!("{{\"x\": \"{}\"}}", "x".repeat(limits::HOOK_ANSWER));
    for (response, reason) in [
        (http(500, "{}"), "status 500"),
        (http(302, "{}"), "status 302"),
        (http(200, "<html>"), "does not follow the protocol"),
        (http(200, &many), "more than 32 tools"),
        (http(200, &large), "larger than"),
    ] {
        let error = describe_with(response).await.unwrap_err().to_string();
        assert!(error.contains(reason) && !error.contains("s3cret"), "{reason}: {error}");
    }
}

#[tokio::test]
async fn silent_hook_server_times_out() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let clock = ManualClock::new();
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let server = HookServer::new(&address, &definition(), HttpClients::new(), &shared).unwrap();
    let cx = clock.context(Duration::from_secs(60));
    let advance = async {
        while clock.slept().is_empty() {
            tokio::task::yield_now().await;
        }
        clock.advance(limits::HOOK_DEADLINE);
        std::future::pending::<()>().await;
    };
    let error = tokio::select! { error = server.describe(&cx) => error.unwrap_err(), () = advance => unreachable!() };
    assert!(error.to_string().contains("deadline"), "{error}");
    assert_eq!(clock.slept()[0], limits::HOOK_DEADLINE);
}

#[tokio::test]
async fn hook_server_gets_an_oauth_token() {
    let token = |token: &str| http(200, &json!({"access_token": token, "token_type": "Bearer"}).to_string());
    let (tokens, token_requests) = serve_responses(vec![token("t1"), token("t2")]).await;
    let (address, requests) = serve_responses(vec![http(401, "{}"), http(200, "{}"), http(200, "{}")]).await;
    let auth = format!("{{oauth: {{client_id: me, client_secret: \"${{KEY}}\", token_url: \"{tokens}/token\"}}}}");
    let clock = ManualClock::new();
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let server = HookServer::new(&address, &with_auth(&auth), HttpClients::new(), &shared).unwrap();
    let cx = clock.context(Duration::from_secs(60));
    server.describe(&cx).await.unwrap();
    server.describe(&cx).await.unwrap();
    let has_token: Vec<bool> = requests
        .take()
        .iter()
        .zip(["t1", "t2", "t2"])
        .map(|(request, token)| request.head.contains(&format!("Bearer {token}\r\n")))
        .collect();
    assert_eq!(has_token, [true, true, true]);
    assert_eq!(token_requests.take().len(), 2, "a rejected token is replaced once");
}

#[test]
fn responses_of_tools_become_outcomes() {
    let answer = |bytes: &[u8]| answer(bytes, EffectClass::Read);
    assert!(matches!(answer(br#"{"result": "text"}"#), ToolOutcome::Done(_)));
    assert!(matches!(answer(br#"{"result": {"a": 1}}"#), ToolOutcome::Done(output) if output.structured.is_some()));
    assert!(matches!(answer(br#"{"error": "no", "fatal": true}"#), ToolOutcome::Failed(failure) if failure.fatal));
    assert!(matches!(answer(b"{}"), ToolOutcome::Failed(_)));
    assert!(matches!(answer(b"nope"), ToolOutcome::Failed(_)));
}

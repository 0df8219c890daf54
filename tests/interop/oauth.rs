//! OAuth with the authorization server `oidc-provider` and an MCP server that accepts only its tokens. Tokens are revoked during a
//! conversation, so that the tests need not wait until they expire.

use std::{path::Path, process::Command, sync::Arc};

use segue::{
    clock::SystemClock,
    http::HttpClients,
    runtime::{Assistant, IncomingMessage},
    testing::CollectingSink,
    tools::{
        ToolOutcome, ToolSource,
        mcp::{Login, McpEnvironment, McpServer},
    },
};
use segue_engine::project::{McpServerDef, McpTransport};
use serde_json::{Value as Json, json};

use crate::{
    mcp::{call, context, entry, tool},
    processes::{self, ChildProcess},
};

/// Starts `oauth_server.mjs`. Returns the process and its base URL.
pub(crate) fn start_oauth_server() -> (ChildProcess, String) {
    let mut process = ChildProcess::start(&mut processes::oauth_server());
    let port = process.port();
    (process, format!("http://127.0.0.1:{port}"))
}

fn def(base: &str, oauth: &Json) -> McpServerDef {
    let mut def = entry(McpTransport::Http { url: format!("{base}/mcp") });
    def.oauth = serde_json::from_value(oauth.clone()).unwrap();
    def
}

fn environment(logins: &Path) -> McpEnvironment {
    McpEnvironment {
        logins: Some(logins.to_owned()),
        ..McpEnvironment::new(Arc::new(SystemClock), segue::environment::program())
    }
}

/// The number of tokens that the authorization server has issued for a grant type.
pub(crate) async fn token_count(base: &str, grant: &str) -> u64 {
    let clients = HttpClients::new();
    let counts = clients.client().unwrap().get(format!("{base}/count")).send().await.unwrap();
    counts.json::<Json>().await.unwrap()[grant].as_u64().unwrap()
}

/// Acts as a browser: follows redirects with cookies until one leads to `redirect_uri`. Returns that URL.
async fn browse(url: &str, redirect_uri: &str) -> String {
    let clients = HttpClients::new();
    let (mut url, mut cookies) = (reqwest::Url::parse(url).unwrap(), std::collections::BTreeMap::new());
    for _ in 0..12 {
        let cookie = cookies.iter().map(|(k, v): (&String, &String)| format!("{k}={v}")).collect::<Vec<_>>().join("; ");
        let response = clients.client().unwrap().get(url.clone()).header("cookie", cookie).send().await.unwrap();
        for set_cookie in response.headers().get_all("set-cookie") {
            let pair = set_cookie.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            cookies.insert(name.to_owned(), value.to_owned());
        }
        let status = response.status();
        let Some(next) = response.headers().get("location").map(|next| next.to_str().unwrap().to_owned()) else {
            panic!("{status} from {url}: {}", response.text().await.unwrap());
        };
        if next.starts_with(redirect_uri) {
            return next;
        }
        url = url.join(&next).unwrap();
    }
    panic!("too many redirects");
}

const REDIRECT_URI: &str = "http://127.0.0.1:9/callback";

/// Logs in as a person. Returns the granted scopes.
async fn log_in(def: &McpServerDef, environment: &McpEnvironment) -> Vec<String> {
    let login = Login::begin(def, REDIRECT_URI, environment).await.unwrap();
    let callback = browse(login.authorization_url(), REDIRECT_URI).await;
    login.finish(&callback).await.unwrap()
}

/// Calls a tool without arguments. Returns the text of its result.
async fn call_text(server: &McpServer, name: &str) -> String {
    call(server, name, json!({})).await.for_model()
}

#[tokio::test]
async fn client_credentials_grant_shares_tokens_and_requests_missing_scopes() {
    let (_process, base) = start_oauth_server();
    let folder = tempfile::tempdir().unwrap();
    let oauth = json!({"client_id": "machine", "client_secret": "a secret: with %, / and +"});
    let server = McpServer::new(&def(&base, &oauth), environment(folder.path()));
    let whoami = tool(&server, "whoami").await;
    let cx = context();
    let calls = (0..20).map(|_| whoami.call(json!({}), &cx));
    for outcome in futures::future::join_all(calls).await {
        assert_eq!(outcome.for_model(), "machine tools:read");
    }
    assert_eq!(token_count(&base, "client_credentials").await, 1, "twenty concurrent calls share one token");
    assert_eq!(call_text(&server, "burn").await, "burnt");
    let calls = (0..20).map(|_| whoami.call(json!({}), &cx));
    for outcome in futures::future::join_all(calls).await {
        assert_eq!(outcome.for_model(), "machine tools:read", "a revoked token is replaced");
    }
    assert_eq!(token_count(&base, "client_credentials").await, 2, "it is replaced once for all calls");
    assert_eq!(call_text(&server, "admin").await, "done", "a missing scope is requested");
    assert_eq!(call_text(&server, "whoami").await, "machine tools:read tools:admin");
    assert_eq!(token_count(&base, "client_credentials").await, 3);
}

#[tokio::test]
async fn authorization_code_login_lasts_until_it_is_revoked() {
    let (_process, base) = start_oauth_server();
    let folder = tempfile::tempdir().unwrap();
    let def = def(&base, &json!({"grant": "authorization_code"}));
    let environment = environment(&folder.path().join("mcp"));
    let server = McpServer::new(&def, environment.clone());
    let error = server.list(&context().cx).await.unwrap_err();
    assert!(error.reason.contains("no login is stored; run `segue mcp login interop`"), "{error}");

    assert_eq!(log_in(&def, &environment).await, ["tools:read"]);
    assert_eq!(call_text(&server, "whoami").await, "person tools:read", "an open client uses a new login");
    let file = folder.path().join("mcp/interop.json");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(call_text(&server, "burn").await, "burnt");
    assert_eq!(call_text(&server, "whoami").await, "person tools:read", "a revoked access token is refreshed");
    assert_eq!(token_count(&base, "refresh_token").await, 1);

    let second = McpServer::new(&def, environment.clone());
    assert_eq!(
        call_text(&second, "whoami").await,
        "person tools:read",
        "a second client reads the login from its file"
    );
    assert_eq!(token_count(&base, "refresh_token").await, 1, "it uses the valid access token");

    let rejected = call(&second, "admin", json!({})).await;
    assert!(
        matches!(&rejected, ToolOutcome::Failed(_)) && rejected.for_model().contains("credentials"),
        "{rejected:?}"
    );
    assert!(std::fs::read_to_string(&file).unwrap().contains("tools:admin"), "the missing scope is stored");
    let scopes = log_in(&def, &environment).await;
    assert!(scopes.contains(&"tools:admin".to_owned()) && scopes.contains(&"tools:read".to_owned()), "{scopes:?}");
    assert_eq!(call_text(&second, "admin").await, "done");

    assert_eq!(call_text(&second, "revoke").await, "revoked");
    let rejected = call(&second, "whoami", json!({})).await;
    assert!(matches!(&rejected, ToolOutcome::Failed(_)), "{rejected:?}");
    let error = McpServer::new(&def, environment.clone()).list(&context().cx).await.unwrap_err();
    assert!(error.reason.contains("expired; run `segue mcp login interop`"), "{error}");
    assert!(Login::delete(&def, &environment).await.unwrap() && !file.exists());
}

/// Writes a project with flows that call the tools `whoami` and `burn`.
fn project(folder: &Path, base: &str, oauth: &str) {
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write("config.yml", "recipe: default.v1\nlanguage: en\npipeline: []\npolicies:\n  - name: FlowPolicy\n");
    write(
        "domain.yml",
        "version: '3.1'\nintents: [who, burn]\nslots:\n  who: {type: text, mappings: [{type: controlled}]}\nresponses:\n  utter_who: [{text: 'You are {who}.'}]\n",
    );
    let step = |tool: &str| {
        format!(
            "- call: {tool}\n        mcp_server: remote\n        mapping: {{input: [], output: [{{slot: who, value: result.text}}]}}"
        )
    };
    write(
        "flows.yml",
        &format!(
            "flows:\n  who:\n    description: names the client\n    nlu_trigger: [{{intent: who}}]\n    steps:\n      {}\n      - action: utter_who\n  burn:\n    description: revokes the token\n    nlu_trigger: [{{intent: burn}}]\n    steps:\n      {}\n",
            step("whoami"),
            step("burn")
        ),
    );
    write(
        "endpoints.yml",
        &format!("mcp_servers:\n  - {{name: remote, type: http, url: '{base}/mcp', oauth: {oauth}}}\n"),
    );
}

async fn say(assistant: &Assistant, text: &str) -> Vec<String> {
    let sink = CollectingSink::streaming();
    let collected = sink.collected();
    assistant.receive(IncomingMessage::new("u", text).input_channel("test"), Box::new(sink)).await.unwrap();
    collected.texts()
}

#[tokio::test]
async fn token_revoked_between_two_turns_is_refreshed() {
    let (_process, base) = start_oauth_server();
    let folder = tempfile::tempdir().unwrap();
    project(folder.path(), &base, "{grant: authorization_code}");
    let mut login = ChildProcess::start(
        Command::new(env!("CARGO_BIN_EXE_segue"))
            .args(["mcp", "login", "remote"])
            .args(["--data", "flows.yml"])
            .current_dir(folder.path()),
    );
    let address = login.wait_for_line("http://127.0.0.1:");
    // `segue mcp login` listens at the redirect URI.
    let url = reqwest::Url::parse(address.trim()).unwrap();
    let redirect_uri = url.query_pairs().find(|(key, _)| key == "redirect_uri").unwrap().1.into_owned();
    let callback = browse(address.trim(), &redirect_uri).await;
    let page = HttpClients::new().client().unwrap().get(callback).send().await.unwrap().text().await.unwrap();
    assert!(page.contains("You are logged in"), "{page}");
    login.wait_for_line("logged in at remote (tools:read)");

    let places = segue::project::LoadOptions { data: vec!["flows.yml".into()], ..Default::default() };
    let loaded = segue::project::load(folder.path(), &places).unwrap();
    assert!(
        loaded.findings.iter().all(|finding| finding.severity != segue::project::Severity::Error),
        "{:?}",
        loaded.findings
    );
    let project = Arc::new(loaded.project.unwrap());
    let assistant = segue::runtime::AssistantBuilder::new(project, folder.path().to_owned()).build().unwrap();
    assert_eq!(say(&assistant, "/who").await[0], "You are person tools:read.");
    say(&assistant, "/burn").await;
    assert_eq!(say(&assistant, "/who").await[0], "You are person tools:read.");
    assert_eq!(token_count(&base, "refresh_token").await, 1);
}

#[tokio::test]
async fn processes_that_share_a_login_refresh_it_once() {
    let (_process, base) = start_oauth_server();
    let folder = tempfile::tempdir().unwrap();
    project(folder.path(), &base, "{grant: authorization_code}");
    let mut def = def(&base, &json!({"grant": "authorization_code"}));
    def.name = "remote".into();
    let environment = environment(&folder.path().join(".segue/mcp"));
    log_in(&def, &environment).await;
    let server = McpServer::new(&def, environment);
    for refreshes in 1..=3 {
        assert_eq!(call_text(&server, "burn").await, "burnt");
        // The authorization server rotates refresh tokens. If one is used twice, it revokes all tokens of the grant.
        let start = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
            command.args(["check", "--online", "--data", "flows.yml"]).current_dir(folder.path());
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
        };
        let processes: Vec<_> = (0..4).map(|_| start()).collect();
        for process in processes {
            let output = tokio::task::spawn_blocking(|| process.wait_with_output()).await.unwrap().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            assert!(!text.contains("T0101"), "{text}");
        }
        let count = token_count(&base, "refresh_token").await;
        assert_eq!(count, refreshes, "one process refreshes the token, the others read the result");
        assert_eq!(call_text(&server, "whoami").await, "person tools:read");
    }
}

//! OAuth against a genuine authorization server, and an MCP server that takes its tokens alone. Tokens are taken back in
//! the middle of a conversation: nobody waits for a clock.

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
    parts::{self, Part},
};

/// The servers, and their address.
pub(crate) fn guarded() -> (Part, String) {
    let mut part = Part::start(&mut parts::oauth_server());
    let port = part.port();
    (part, format!("http://127.0.0.1:{port}"))
}

fn def(base: &str, oauth: &Json) -> McpServerDef {
    let mut def = entry(McpTransport::Http { url: format!("{base}/mcp") });
    def.oauth = serde_json::from_value(oauth.clone()).unwrap();
    def
}

fn around(logins: &Path) -> McpEnvironment {
    McpEnvironment {
        clock: Arc::new(SystemClock),
        http: HttpClients::new(),
        program: segue::environment::program(),
        directory: None,
        environment: Arc::from([]),
        logins: Some(logins.to_owned()),
    }
}

pub(crate) async fn given(base: &str, grant: &str) -> u64 {
    let client = HttpClients::new();
    let counts = client.client().unwrap().get(format!("{base}/count")).send().await.unwrap();
    counts.json::<Json>().await.unwrap()[grant].as_u64().unwrap()
}

/// A browser: follows redirects with its cookies until it is sent to `back`; returns that address.
async fn browse(address: &str, back: &str) -> String {
    let client = HttpClients::new();
    let (mut url, mut cookies) = (reqwest::Url::parse(address).unwrap(), std::collections::BTreeMap::new());
    for _ in 0..12 {
        let cookie = cookies.iter().map(|(k, v): (&String, &String)| format!("{k}={v}")).collect::<Vec<_>>().join("; ");
        let answer = client.client().unwrap().get(url.clone()).header("cookie", cookie).send().await.unwrap();
        for set in answer.headers().get_all("set-cookie") {
            let pair = set.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            cookies.insert(name.to_owned(), value.to_owned());
        }
        let status = answer.status();
        let Some(next) = answer.headers().get("location").map(|to| to.to_str().unwrap().to_owned()) else {
            panic!("{status} from {url}: {}", answer.text().await.unwrap());
        };
        if next.starts_with(back) {
            return next;
        }
        url = url.join(&next).unwrap();
    }
    panic!("too many redirects");
}

const BACK: &str = "http://127.0.0.1:9/callback";

async fn logs_in(def: &McpServerDef, around: &McpEnvironment) -> Vec<String> {
    let login = Login::begin(def, BACK, around).await.unwrap();
    let callback = browse(login.address(), BACK).await;
    login.finish(&callback).await.unwrap()
}

async fn words(server: &McpServer, name: &str) -> String {
    call(server, name, json!({})).await.for_model()
}

#[tokio::test]
async fn a_machine_gets_its_tokens_by_itself() {
    let (_part, base) = guarded();
    let folder = tempfile::tempdir().unwrap();
    let oauth = json!({"client_id": "machine", "client_secret": "a secret: with %, / and +"});
    let server = McpServer::new(&def(&base, &oauth), around(folder.path()));
    let who = tool(&server, "whoami").await;
    let cx = context();
    let at_once = (0..20).map(|_| who.call(json!({}), &cx));
    for outcome in futures::future::join_all(at_once).await {
        assert_eq!(outcome.for_model(), "machine tools:read");
    }
    assert_eq!(given(&base, "client_credentials").await, 1, "twenty calls share one token");
    assert_eq!(words(&server, "burn").await, "burnt");
    let at_once = (0..20).map(|_| who.call(json!({}), &cx));
    for outcome in futures::future::join_all(at_once).await {
        assert_eq!(outcome.for_model(), "machine tools:read", "the token was taken back");
    }
    assert_eq!(given(&base, "client_credentials").await, 2, "and replaced once for all");
    assert_eq!(words(&server, "admin").await, "done", "more rights are asked for when they are missed");
    assert_eq!(words(&server, "whoami").await, "machine tools:read tools:admin");
    assert_eq!(given(&base, "client_credentials").await, 3);
}

#[tokio::test]
async fn a_person_logs_in_once_and_the_login_lasts_until_it_is_taken_back() {
    let (_part, base) = guarded();
    let folder = tempfile::tempdir().unwrap();
    let (def, around) = (def(&base, &json!({"grant": "authorization_code"})), around(&folder.path().join("mcp")));
    let server = McpServer::new(&def, around.clone());
    let error = server.list(&context().cx).await.unwrap_err();
    assert!(error.reason.contains("nobody has logged in; run `segue mcp login foreign`"), "{error}");

    assert_eq!(logs_in(&def, &around).await, ["tools:read"]);
    assert_eq!(words(&server, "whoami").await, "person tools:read", "the running server sees the login");
    let file = folder.path().join("mcp/foreign.json");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(words(&server, "burn").await, "burnt");
    assert_eq!(words(&server, "whoami").await, "person tools:read", "a refused token is renewed in mid conversation");
    assert_eq!(given(&base, "refresh_token").await, 1);

    let again = McpServer::new(&def, around.clone());
    assert_eq!(words(&again, "whoami").await, "person tools:read", "another process takes the login from its file");
    assert_eq!(given(&base, "refresh_token").await, 1, "and its token, which is still good");

    let refused = call(&again, "admin", json!({})).await;
    assert!(matches!(&refused, ToolOutcome::Failed(_)) && refused.for_model().contains("credentials"), "{refused:?}");
    assert!(std::fs::read_to_string(&file).unwrap().contains("tools:admin"), "what is missed is noted for the login");
    let scopes = logs_in(&def, &around).await;
    assert!(scopes.contains(&"tools:admin".to_owned()) && scopes.contains(&"tools:read".to_owned()), "{scopes:?}");
    assert_eq!(words(&again, "admin").await, "done");

    assert_eq!(words(&again, "revoke").await, "revoked");
    let refused = call(&again, "whoami", json!({})).await;
    assert!(matches!(&refused, ToolOutcome::Failed(_)), "{refused:?}");
    let fresh = McpServer::new(&def, around.clone()).list(&context().cx).await.unwrap_err();
    assert!(fresh.reason.contains("run out; run `segue mcp login foreign`"), "{fresh}");
    assert!(Login::forget(&def, &around).await.unwrap() && !file.exists());
}

/// A project whose flow asks the guarded server who we are.
fn project(folder: &Path, base: &str, oauth: &str) {
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write("config.yml", "recipe: default.v1\nlanguage: en\npipeline: []\npolicies:\n  - name: FlowPolicy\n");
    write(
        "domain.yml",
        "version: '3.1'\nintents: [who, burn]\nslots:\n  who: {type: text, mappings: [{type: controlled}]}\nresponses:\n  utter_who: [{text: 'You are {who}.'}]\n",
    );
    let step = |tool: &str| {
        format!(
            "- call: {tool}\n        mcp_server: far\n        mapping: {{input: [], output: [{{slot: who, value: result.text}}]}}"
        )
    };
    write(
        "flows.yml",
        &format!(
            "flows:\n  who:\n    description: says who we are\n    nlu_trigger: [{{intent: who}}]\n    steps:\n      {}\n      - action: utter_who\n  burn:\n    description: burns\n    nlu_trigger: [{{intent: burn}}]\n    steps:\n      {}\n",
            step("whoami"),
            step("burn")
        ),
    );
    write(
        "endpoints.yml",
        &format!("mcp_servers:\n  - {{name: far, type: http, url: '{base}/mcp', oauth: {oauth}}}\n"),
    );
}

async fn say(assistant: &Assistant, text: &str) -> Vec<String> {
    let sink = CollectingSink::streaming();
    let collected = sink.collected();
    assistant.receive(IncomingMessage::text("u", text, "world"), Box::new(sink)).await.unwrap();
    collected.texts()
}

#[tokio::test]
async fn the_token_of_a_conversation_runs_out_between_two_turns_and_nobody_notices() {
    let (_part, base) = guarded();
    let folder = tempfile::tempdir().unwrap();
    project(folder.path(), &base, "{grant: authorization_code}");
    let mut login = Part::start(
        Command::new(env!("CARGO_BIN_EXE_segue"))
            .args(["mcp", "login", "far"])
            .args(["--data", "flows.yml"])
            .current_dir(folder.path()),
    );
    let address = login.line_with("http://127.0.0.1:");
    // Where the browser is sent in the end is the program that waits.
    let back = reqwest::Url::parse(address.trim()).unwrap();
    let back = back.query_pairs().find(|(key, _)| key == "redirect_uri").unwrap().1.into_owned();
    let callback = browse(address.trim(), &back).await;
    let page = HttpClients::new().client().unwrap().get(callback).send().await.unwrap().text().await.unwrap();
    assert!(page.contains("You are logged in"), "{page}");
    login.line_with("logged in at far (tools:read)");

    let places = segue::project::Places { data: vec!["flows.yml".into()], ..Default::default() };
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
    assert_eq!(given(&base, "refresh_token").await, 1);
}

#[tokio::test]
async fn processes_that_share_a_login_refresh_it_once() {
    let (_part, base) = guarded();
    let folder = tempfile::tempdir().unwrap();
    project(folder.path(), &base, "{grant: authorization_code}");
    let mut def = def(&base, &json!({"grant": "authorization_code"}));
    def.name = "far".into();
    let around = around(&folder.path().join(".segue/mcp"));
    logs_in(&def, &around).await;
    let server = McpServer::new(&def, around);
    let mut refreshed = 0;
    for _ in 0..3 {
        assert_eq!(words(&server, "burn").await, "burnt");
        // The server gives a refresh token for one use, and takes all back when it sees one twice.
        let start = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
            command.args(["check", "--online", "--data", "flows.yml"]).current_dir(folder.path());
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
        };
        let all: Vec<_> = (0..4).map(|_| start()).collect();
        for one in all {
            let output = tokio::task::spawn_blocking(|| one.wait_with_output()).await.unwrap().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            assert!(!said.contains("T0101"), "{said}");
        }
        refreshed += 1;
        assert_eq!(given(&base, "refresh_token").await, refreshed, "one of them asked, the others read what it got");
        assert_eq!(words(&server, "whoami").await, "person tools:read");
    }
}

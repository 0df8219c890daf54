//! The official conformance suite of MCP, client side. The suite starts a server for each scenario and runs a client
//! against it: this very test binary, which then acts as one ([`act_as_client`]), with the real client of Segue.
//!
//! What is known to fail stands in `conformance-failures.txt`. The list is strict both ways: a failure that is not on it
//! fails the test, and so does an entry that passes. It may only shrink.

use std::{collections::BTreeSet, process::Command, sync::Arc};

use segue::{
    clock::SystemClock,
    context::CallContext,
    http::HttpClients,
    tools::{
        ClientRequestHandler, ElicitationRequest, ElicitationResponse, ToolCallContext, ToolHandler, ToolOutcome,
        ToolSource,
        mcp::{Login, McpEnvironment, McpServer},
    },
};
use segue_engine::project::{McpServerDef, McpTransport, OAuthDef};
use serde_json::{Value as Json, json};

use crate::{
    mcp::{context, entry},
    parts,
};

/// Runs everything that the suite has for one revision of the protocol, optional extensions too, and holds the failures
/// against the list.
fn suite(revision: &str) {
    let client = std::env::current_exe().unwrap();
    let command = format!("{} --exact --nocapture conformance::act_as_client", client.display());
    let results = tempfile::tempdir().unwrap();
    let mut suite: Command = parts::conformance();
    suite.args(["client", "--requirements", revision, "--timeout", "60000", "--command", &command]);
    suite.arg("--output-dir").arg(results.path()).current_dir(results.path());
    let output = suite.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let (_, summary) = said.split_once("=== SUITE SUMMARY ===").unwrap_or_else(|| panic!("no summary: {said}"));
    let summary = summary.split("Not scored").next().unwrap();
    let named = |mark: &str| -> BTreeSet<String> {
        let lines = summary.lines().filter_map(|line| line.strip_prefix(mark)?.split_once(": "));
        lines.map(|(name, _)| name.trim().to_owned()).collect()
    };
    let (passed, failed) = (named("✓"), named("✗"));
    let list = std::fs::read_to_string(parts::here().join("conformance-failures.txt")).unwrap();
    let known: BTreeSet<String> = list.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
    let news: Vec<_> = failed.difference(&known).collect();
    assert!(news.is_empty(), "these fail and are not on the list: {news:?}\n{said}");
    let fixed: Vec<_> = passed.intersection(&known).collect();
    assert!(fixed.is_empty(), "these pass: take them off the list: {fixed:?}");
    assert!(passed.len() >= 20, "only {} scenarios passed: {said}", passed.len());
    println!("{revision}: {} scenarios passed, {} failed as known", passed.len(), failed.len());
}

#[test]
fn the_suite_of_the_revision_with_sessions() {
    suite("2025-11-25");
}

#[test]
fn the_suite_of_the_revision_without_sessions() {
    suite("2026-07-28");
}

/// The client that the suite runs: its address is the last argument, its scenario a variable.
#[tokio::test]
async fn act_as_client() {
    let variable = |name: &str| segue::environment::variable(name).unwrap_or_default();
    let scenario = variable("MCP_CONFORMANCE_SCENARIO");
    if scenario.is_empty() {
        // Among the other tests there is nothing to act in.
        return;
    }
    let url = std::env::args().next_back().filter(|url| url.starts_with("http")).expect("the suite gives an address");
    let given: Json = serde_json::from_str(&variable("MCP_CONFORMANCE_CONTEXT")).unwrap_or_default();
    let folder = tempfile::tempdir().unwrap();
    let mut def = entry(McpTransport::Http { url });
    def.connect_timeout = None;
    def.oauth = oauth(&scenario, &given);
    def.protocol_version = Some(variable("MCP_CONFORMANCE_PROTOCOL_VERSION")).filter(|version| !version.is_empty());
    def.elicitation.insert("any".to_owned(), "any".into());
    let around = McpEnvironment {
        clock: Arc::new(SystemClock),
        http: HttpClients::new(),
        program: segue::environment::program(),
        directory: None,
        environment: Arc::from([]),
        logins: Some(folder.path().join("logins")),
    };
    let person = Person { def, around };
    person.uses(&scenario, &given).await;
}

/// What the entry of a scenario would say under `oauth`.
fn oauth(scenario: &str, given: &Json) -> Option<OAuthDef> {
    let grant = match scenario.strip_prefix("auth/")? {
        machine if machine.starts_with("client-credentials") => "client_credentials",
        _ => "authorization_code",
    };
    let mut oauth = json!({
        "grant": grant, "client_metadata_url": "https://conformance-test.local/client-metadata.json", "timeout": 20
    });
    for key in ["client_id", "client_secret"] {
        if let Some(value) = given.get(key) {
            oauth[key] = value.clone();
        }
    }
    serde_json::from_value(oauth).unwrap()
}

/// Someone who uses a server, and gives consent whenever it is asked for.
struct Person {
    def: McpServerDef,
    around: McpEnvironment,
}

impl Person {
    async fn uses(&self, scenario: &str, given: &Json) {
        let server = McpServer::new(&self.def, self.around.clone());
        let mut consents = 0;
        let tools = loop {
            match server.list(&context().cx).await {
                Ok(catalog) => break catalog.tools,
                Err(error) if error.reason.contains("segue mcp login") && consents < 2 => {
                    consents += 1;
                    self.consents().await;
                }
                Err(error) => panic!("{error}"),
            }
        };
        for (name, arguments) in calls(scenario, given, &tools) {
            let Some(tool) = tools.iter().find(|tool| *tool.info().name == name) else { continue };
            let cx = ToolCallContext { inquired: Some(Arc::new(Defaults)), ..context() };
            let mut outcome = tool.call(arguments.clone(), &cx).await;
            while refused(&outcome) && consents < 3 && self.def.oauth.is_some() {
                consents += 1;
                self.consents().await;
                outcome = tool.call(arguments.clone(), &cx).await;
            }
            println!("{name}: {outcome:?}");
        }
        server.close(&CallContext::new(Arc::new(SystemClock), std::time::Duration::from_secs(5))).await;
    }

    /// Opens the address of consent as a browser would; the suite's server consents at once.
    async fn consents(&self) {
        let back = "http://127.0.0.1:1/callback";
        let login = Login::begin(&self.def, back, &self.around).await.unwrap();
        let answer = self.around.http.client().unwrap().get(login.address()).send().await.unwrap();
        let callback = answer.headers()["location"].to_str().unwrap().to_owned();
        login.finish(&callback).await.unwrap();
    }
}

/// Fills a form with what its schema says.
struct Defaults;

impl ClientRequestHandler for Defaults {
    fn form(&self, inquiry: &ElicitationRequest) -> ElicitationResponse {
        let fields = inquiry.schema["properties"].as_object().unwrap();
        let value = |field: &Json| match (field.get("default"), field["type"].as_str()) {
            (Some(default), _) => default.clone(),
            (None, Some("boolean")) => json!(true),
            (None, Some("number" | "integer")) => json!(1),
            (None, _) => json!("x"),
        };
        ElicitationResponse::Accept(fields.iter().map(|(name, field)| (name.clone(), value(field))).collect())
    }
    fn sample<'a>(&'a self, _: Json, _: &'a CallContext) -> futures::future::BoxFuture<'a, Result<Json, String>> {
        Box::pin(std::future::ready(Err("there is no model here".to_owned())))
    }
}

fn refused(outcome: &ToolOutcome) -> bool {
    matches!(outcome, ToolOutcome::Failed(failure) if failure.message.contains("credentials"))
}

/// The calls that a scenario wants: those it names, else each tool once.
fn calls(scenario: &str, given: &Json, tools: &[Arc<dyn ToolHandler>]) -> Vec<(String, Json)> {
    if let Some(wanted) = given.get("toolCalls").and_then(Json::as_array) {
        return wanted
            .iter()
            .map(|call| (call["name"].as_str().unwrap().to_owned(), call["arguments"].clone()))
            .collect();
    }
    let schema_of = |tool: &Arc<dyn ToolHandler>| (*tool.info().parameters).clone();
    let focal = tools.iter().find(|tool| tool.info().name.contains("2020")).map(schema_of);
    let arguments = |tool: &Arc<dyn ToolHandler>| match &*tool.info().name {
        "add_numbers" => json!({"a": 5, "b": 3}),
        _ if tool.info().parameters.pointer("/properties/schema").is_some() => {
            json!({"schema": focal.clone().unwrap_or_default()})
        }
        _ => json!({}),
    };
    let _ = scenario;
    tools.iter().map(|tool| (tool.info().name.to_string(), arguments(tool))).collect()
}

//! The official conformance suite of MCP for clients. The suite starts a server for each scenario and runs a client command against it.
//! The command is this test binary with the test [`mcp_conformance_client`], which uses Segue's MCP client.
//!
//! `conformance-failures.txt` lists the scenarios that fail. A failure that is not on the list fails the test, and so does a scenario on
//! the list that passes.

use std::{collections::BTreeSet, process::Command, sync::Arc};

use async_trait::async_trait;
use segue::{
    clock::SystemClock,
    context::CallContext,
    tools::{
        ClientRequestHandler, ElicitationRequest, ElicitationResponse, ToolHandler, ToolOutcome, ToolSource,
        mcp::{Login, McpEnvironment, McpServer},
    },
};
use segue_engine::project::{McpServerDef, McpTransport, OAuthDef};
use serde_json::{Value as Json, json};

use crate::{
    mcp::{context, entry},
    processes,
};

/// Runs all scenarios of the suite for a revision of the protocol, optional extensions included, and compares the failures with the list.
fn run_suite(revision: &str) {
    let client = std::env::current_exe().unwrap();
    let command = format!("{} --exact --nocapture conformance::mcp_conformance_client", client.display());
    let results = tempfile::tempdir().unwrap();
    let mut suite: Command = processes::conformance();
    suite.args(["client", "--requirements", revision, "--timeout", "60000", "--command", &command]);
    suite.arg("--output-dir").arg(results.path()).current_dir(results.path());
    let output = suite.output().unwrap();
    let output = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let (_, summary) = output.split_once("=== SUITE SUMMARY ===").unwrap_or_else(|| panic!("no summary: {output}"));
    let summary = summary.split("Not scored").next().unwrap();
    let scenarios = |mark: &str| -> BTreeSet<String> {
        let lines = summary.lines().filter_map(|line| line.strip_prefix(mark)?.split_once(": "));
        lines.map(|(name, _)| name.trim().to_owned()).collect()
    };
    let (passed, failed) = (scenarios("✓"), scenarios("✗"));
    let list = std::fs::read_to_string(processes::test_dir().join("conformance-failures.txt")).unwrap();
    let known: BTreeSet<String> = list.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
    let new: Vec<_> = failed.difference(&known).collect();
    assert!(new.is_empty(), "scenarios that fail and are not on the list: {new:?}\n{output}");
    let fixed: Vec<_> = passed.intersection(&known).collect();
    assert!(fixed.is_empty(), "scenarios that pass, to be removed from the list: {fixed:?}");
    assert!(passed.len() >= 20, "only {} scenarios passed: {output}", passed.len());
    println!("{revision}: {} scenarios passed, {} failed as known", passed.len(), failed.len());
}

#[test]
fn mcp_client_conformance_revision_2025_11_25() {
    run_suite("2025-11-25");
}

#[test]
fn mcp_client_conformance_revision_2026_07_28() {
    run_suite("2026-07-28");
}

/// Not a test: the client command of the suite. The last argument is the URL of the server; environment variables name the scenario.
#[tokio::test]
async fn mcp_conformance_client() {
    let variable = |name: &str| segue::environment::variable(name).unwrap_or_default();
    let scenario = variable("MCP_CONFORMANCE_SCENARIO");
    if scenario.is_empty() {
        // Started by the test runner, not by the suite.
        return;
    }
    let url = std::env::args().next_back().filter(|url| url.starts_with("http")).expect("the last argument is a URL");
    let scenario_context: Json = serde_json::from_str(&variable("MCP_CONFORMANCE_CONTEXT")).unwrap_or_default();
    let folder = tempfile::tempdir().unwrap();
    let mut def = entry(McpTransport::Http { url });
    def.connect_timeout = None;
    def.oauth = oauth(&scenario, &scenario_context);
    def.protocol_version = Some(variable("MCP_CONFORMANCE_PROTOCOL_VERSION")).filter(|version| !version.is_empty());
    def.elicitation.insert("any".to_owned(), "any".into());
    let environment = McpEnvironment {
        logins: Some(folder.path().join("logins")),
        ..McpEnvironment::new(Arc::new(SystemClock), segue::environment::program())
    };
    ScenarioClient { def, environment }.run(&scenario_context).await;
}

/// The `oauth` settings for a scenario.
fn oauth(scenario: &str, scenario_context: &Json) -> Option<OAuthDef> {
    let grant = match scenario.strip_prefix("auth/")? {
        name if name.starts_with("client-credentials") => "client_credentials",
        _ => "authorization_code",
    };
    let mut oauth = json!({
        "grant": grant, "client_metadata_url": "https://conformance-test.local/client-metadata.json", "timeout": 20
    });
    for key in ["client_id", "client_secret"] {
        if let Some(value) = scenario_context.get(key) {
            oauth[key] = value.clone();
        }
    }
    serde_json::from_value(oauth).unwrap()
}

/// Calls the tools of a server, and logs in when the server requires it.
struct ScenarioClient {
    def: McpServerDef,
    environment: McpEnvironment,
}

impl ScenarioClient {
    async fn run(&self, scenario_context: &Json) {
        let server = McpServer::new(&self.def, self.environment.clone());
        let mut logins = 0;
        let tools = loop {
            match server.list(&context().cx).await {
                Ok(catalog) => break catalog.tools,
                Err(error) if error.reason.contains("segue mcp login") && logins < 2 => {
                    logins += 1;
                    self.log_in().await;
                }
                Err(error) => panic!("{error}"),
            }
        };
        for (name, arguments) in calls(scenario_context, &tools) {
            let Some(tool) = tools.iter().find(|tool| *tool.info().name == name) else { continue };
            let cx = context().with_client_requests(Arc::new(DefaultAnswers));
            let mut outcome = tool.call(arguments.clone(), &cx).await;
            while has_invalid_credentials(&outcome) && logins < 3 && self.def.oauth.is_some() {
                logins += 1;
                self.log_in().await;
                outcome = tool.call(arguments.clone(), &cx).await;
            }
            println!("{name}: {outcome:?}");
        }
        server.close(&CallContext::new(Arc::new(SystemClock), std::time::Duration::from_secs(5))).await;
    }

    /// Opens the authorization URL as a browser would. The server of the suite redirects to the callback at once.
    async fn log_in(&self) {
        let redirect_uri = "http://127.0.0.1:1/callback";
        let login = Login::begin(&self.def, redirect_uri, &self.environment).await.unwrap();
        let response = self.environment.http.client().unwrap().get(login.authorization_url()).send().await.unwrap();
        let callback = response.headers()["location"].to_str().unwrap().to_owned();
        login.finish(&callback).await.unwrap();
    }
}

/// Answers elicitation with the default values of the schema, or with any value of the right type.
struct DefaultAnswers;

#[async_trait]
impl ClientRequestHandler for DefaultAnswers {
    fn elicit(&self, request: &ElicitationRequest) -> ElicitationResponse {
        let fields = request.schema["properties"].as_object().unwrap();
        let value = |field: &Json| match (field.get("default"), field["type"].as_str()) {
            (Some(default), _) => default.clone(),
            (None, Some("boolean")) => json!(true),
            (None, Some("number" | "integer")) => json!(1),
            (None, _) => json!("x"),
        };
        ElicitationResponse::Accept(fields.iter().map(|(name, field)| (name.clone(), value(field))).collect())
    }
    async fn sample(&self, _: Json, _: &CallContext) -> Result<Json, String> {
        Err("sampling is not supported".to_owned())
    }
}

fn has_invalid_credentials(outcome: &ToolOutcome) -> bool {
    matches!(outcome, ToolOutcome::Failed(failure) if failure.message.contains("credentials"))
}

/// The tool calls of a scenario: those that its context lists, otherwise each tool once.
fn calls(scenario_context: &Json, tools: &[Arc<dyn ToolHandler>]) -> Vec<(String, Json)> {
    if let Some(calls) = scenario_context.get("toolCalls").and_then(Json::as_array) {
        return calls
            .iter()
            .map(|call| (call["name"].as_str().unwrap().to_owned(), call["arguments"].clone()))
            .collect();
    }
    let schema_of = |tool: &Arc<dyn ToolHandler>| (*tool.info().parameters).clone();
    // The tool of the scenario for JSON Schema 2020-12, whose schema another tool expects as its argument.
    let schema_2020 = tools.iter().find(|tool| tool.info().name.contains("2020")).map(schema_of);
    let arguments = |tool: &Arc<dyn ToolHandler>| match &*tool.info().name {
        "add_numbers" => json!({"a": 5, "b": 3}),
        _ if tool.info().parameters.pointer("/properties/schema").is_some() => {
            json!({"schema": schema_2020.clone().unwrap_or_default()})
        }
        _ => json!({}),
    };
    tools.iter().map(|tool| (tool.info().name.to_string(), arguments(tool))).collect()
}

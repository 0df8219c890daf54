//! Protected inputs: a tool gets the value, and nothing that is stored, printed or sent to a model has it.

use super::{segue, tool_server::ToolServer};

const SECRET: &str = "s3cret-0815";

const MISSION: &str = "mission:
  name: m
  description: x
  agents: [helper]
  commander: {plan: optional}
  local_agents: {helper: {description: helps, tools: [shop]}}
  inputs: {key: {type: string, protected: true, value: '${MISSION_KEY}', description: The key}}
  tasks: {buy: {objective: Buy.}}
";

/// The model repeats what it reads, so that a secret in a result would reach its next request and the store.
const SCRIPT: &str = r#"
rules:
  - when: {purpose: agent, last_tool: {name: order, matches: 'there is no secret `other`'}}
    calls: [{name: order, arguments: {what: 'a cup for ${secrets.key}'}}]
  - when: {purpose: agent, last_tool: {name: order}}
    say: '<ANSWER>{{ tool_text }}</ANSWER>'
  - when: {purpose: agent, system: 'secrets\.key\}`: The key'}
    calls: [{name: order, arguments: {what: 'a cup for ${secrets.other}'}}]
  - when: {purpose: commander, last_tool: {}}
    calls: [{name: task_complete, arguments: {summary: '{{ tool_text }}'}}]
  - when: {purpose: commander}
    calls: [{name: call_agent, arguments: {name: helper, task: 'order a cup'}}]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_gets_the_secret_and_no_file_event_or_message_has_it() {
    let server = ToolServer::start().await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("missions")).unwrap();
    let endpoints = format!(
        "model_groups: [{{id: main, models: [{{provider: scripted, script: script.yml}}]}}]\nmcp_servers: [{{name: shop, type: http, url: '{}'}}]\n",
        server.address
    );
    for (name, text) in [
        ("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"),
        ("domain.yml", "version: '3.1'\n"),
        ("endpoints.yml", &endpoints),
        ("script.yml", SCRIPT),
        ("missions/m.yml", MISSION),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let environment = [("MISSION_KEY", SECRET), ("RUST_LOG", "segue=trace")];
    let ran = segue(folder.path(), &["run", "m", "--store", "sqlite:runs.db"], &environment);
    assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
    // A call with an unknown secret is not sent.
    assert_eq!(server.calls("order"), [serde_json::json!({ "what": format!("a cup for {SECRET}") })]);
    assert!(ran.out.contains("done: a cup for [secret]"), "{}", ran.out);
    assert!(ran.out.contains("a cup for ${secrets.key}"), "the event has the arguments as the model wrote them");
    assert!(!ran.out.contains(SECRET) && !ran.err.contains(SECRET));
    let mut read = 0;
    for file in walkdir::WalkDir::new(folder.path()) {
        let file = file.unwrap();
        if file.file_type().is_file() {
            let bytes = std::fs::read(file.path()).unwrap();
            let found = bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
            assert!(!found, "{}", file.path().display());
            read += usize::from(file.path().to_string_lossy().contains("runs.db"));
        }
    }
    assert!(read > 0, "the store is a file");
}

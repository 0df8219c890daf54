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

/// The agent writes the placeholder into a file, and a sub-agent does; both then call the server.
const FILES_SCRIPT: &str = r#"
rules:
  - when: {purpose: delegate, last_tool: {name: order}}
    say: 'sub-agent: {{ tool_text }}'
  - when: {purpose: delegate, last_tool: {name: write_file}}
    calls: [{name: order, arguments: {what: 'two for ${secrets.key} after {{ tool_text }}'}}]
  - when: {purpose: delegate}
    calls: [{name: write_file, arguments: {description: writes, path: b.txt, content: '${secrets.key}'}}]
  - when: {purpose: agent, last_tool: {name: task}}
    say: '<ANSWER>{{ tool_text }}</ANSWER>'
  - when: {purpose: agent, last_tool: {name: order}}
    calls: [{name: task, arguments: {description: again, prompt: 'Order with ${secrets.key}.', subagent_type: general-purpose}}]
  - when: {purpose: agent, last_tool: {name: file_create}}
    calls: [{name: order, arguments: {what: 'one for ${secrets.key} after {{ tool_text }}'}}]
  - when: {purpose: agent}
    calls: [{name: file_create, arguments: {slot: facts, path: a, content: '${secrets.key}'}}]
  - when: {purpose: commander, last_tool: {}}
    calls: [{name: task_complete, arguments: {summary: '{{ tool_text }}'}}]
  - when: {purpose: commander}
    calls: [{name: call_agent, arguments: {name: lead, task: 'order with ${secrets.key}'}}]
"#;

fn write_project(folder: &std::path::Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

/// No file of a project has the secret: of its store, of its folders, of its log.
fn no_file_has_the_secret(folder: &std::path::Path) {
    let mut read = 0;
    for file in walkdir::WalkDir::new(folder) {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_for_files_do_not_get_the_secret_neither_of_an_agent_nor_of_its_sub_agents() {
    let server = ToolServer::start().await;
    let folder = tempfile::tempdir().unwrap();
    let endpoints = format!(
        "model_groups: [{{id: main, models: [{{provider: scripted, script: script.yml}}]}}]\nmcp_servers: [{{name: shop, type: http, url: '{}'}}]\n",
        server.address
    );
    let mission = MISSION
        .replace("helper", "lead")
        .replace("  local_agents: {lead: {description: helps, tools: [shop]}}\n", "  storage: {shared: [facts]}\n");
    let agent = "agent: {name: lead, description: leads}\nconfiguration: {llm: {model_group: main}}\ndelegation: {types: [general-purpose]}\nworkspace: files\nconnections: {mcp_servers: [{name: shop}]}\n";
    write_project(
        folder.path(),
        &[
            ("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"),
            ("domain.yml", "version: '3.1'\n"),
            ("endpoints.yml", &endpoints),
            ("script.yml", FILES_SCRIPT),
            ("missions/m.yml", &mission),
            ("sub_agents/lead/config.yml", agent),
        ],
    );
    let environment = [("MISSION_KEY", SECRET), ("RUST_LOG", "segue=trace")];
    let ran = segue(folder.path(), &["run", "m", "--store", "sqlite:runs.db"], &environment);
    assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
    let refused = |tool: &str| format!("`{tool}` does not get the secret `key`");
    let sent: Vec<String> =
        server.calls("order").iter().map(|call| call["what"].as_str().unwrap().to_owned()).collect();
    let [one, two] = &sent[..] else { panic!("{sent:?}") };
    assert!(one.starts_with(&format!("one for {SECRET} after")) && one.contains(&refused("file_create")), "{one}");
    assert!(two.starts_with(&format!("two for {SECRET} after")) && two.contains(&refused("write_file")), "{two}");
    assert!(ran.out.contains("sub-agent: done: two for [secret]"), "{}", ran.out);
    assert!(!ran.out.contains(SECRET) && !ran.err.contains(SECRET));
    no_file_has_the_secret(folder.path());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_gets_the_secret_and_no_file_event_or_message_has_it() {
    let server = ToolServer::start().await;
    let folder = tempfile::tempdir().unwrap();
    let endpoints = format!(
        "model_groups: [{{id: main, models: [{{provider: scripted, script: script.yml}}]}}]\nmcp_servers: [{{name: shop, type: http, url: '{}'}}]\n",
        server.address
    );
    write_project(
        folder.path(),
        &[
            ("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"),
            ("domain.yml", "version: '3.1'\n"),
            ("endpoints.yml", &endpoints),
            ("script.yml", SCRIPT),
            ("missions/m.yml", MISSION),
        ],
    );
    let environment = [("MISSION_KEY", SECRET), ("RUST_LOG", "segue=trace")];
    let ran = segue(folder.path(), &["run", "m", "--store", "sqlite:runs.db"], &environment);
    assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
    // A call with an unknown secret is not sent.
    assert_eq!(server.calls("order"), [serde_json::json!({ "what": format!("a cup for {SECRET}") })]);
    assert!(ran.out.contains("done: a cup for [secret]"), "{}", ran.out);
    assert!(ran.out.contains("a cup for ${secrets.key}"), "the event has the arguments as the model wrote them");
    assert!(!ran.out.contains(SECRET) && !ran.err.contains(SECRET));
    no_file_has_the_secret(folder.path());
}

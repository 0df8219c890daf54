//! Built-in tools of the agents of a mission, with a real server.

use std::sync::{Arc, Mutex};

use axum::{Router, extract::State, routing::get};

use super::*;

type Calls = Arc<Mutex<Vec<&'static str>>>;

/// The address of a server whose `/items/1` counts its calls.
async fn server() -> (String, Calls) {
    let calls = Calls::default();
    let note = |name: &'static str| {
        move |State(calls): State<Calls>| {
            calls.lock().unwrap().push(name);
            std::future::ready(format!("{{\"item\": \"{name} tea\"}}"))
        }
    };
    let router = Router::new().route("/items/1", get(note("get")).post(note("post"))).with_state(calls.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, calls)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_asks_for_the_time_and_calls_the_addresses_that_its_file_allows() {
    let (address, calls) = server().await;
    let folder = tempfile::tempdir().unwrap();
    write_project(folder.path(), "", "", "    buy: {objective: Buy.}\n");
    let path = folder.path().join("missions/m.yml");
    let mission = std::fs::read_to_string(&path).unwrap();
    let builtin = format!("builtin_tools: {{utils: true, http: {{allow: ['{address}/items/']}}}}");
    std::fs::write(&path, mission.replace("tools: []", &builtin)).unwrap();
    let script = format!(
        r#"
rules:
  - when: {{purpose: agent, last_tool: {{name: current_time, matches: '^\d{{4}} \+0900$'}}}}
    calls: [{{name: http_get, arguments: {{url: '{address}/items/1'}}}}]
  - when: {{purpose: agent, last_tool: {{name: http_get, has: {{body.item: 'get tea'}}}}}}
    calls: [{{name: http_post, arguments: {{url: '{address}/items/1', body: {{n: 1}}}}}}]
  - when: {{purpose: agent, last_tool: {{name: http_post}}}}
    calls: [{{name: http_get, arguments: {{url: '{address}/other'}}}}]
  - when: {{purpose: agent, last_tool: {{}}}}
    say: '<ANSWER>{{{{ results.http_post }}}} {{{{ tool_text }}}}</ANSWER>'
  - when: {{purpose: agent}}
    calls: [{{name: current_time, arguments: {{timezone: Asia/Tokyo, format: '%Y %z'}}}}]
  - when: {{purpose: commander, last_tool: {{}}}}
    calls: [{{name: task_complete, arguments: {{summary: '{{{{ tool_text }}}}'}}}}]
  - when: {{purpose: commander}}
    calls: [{{name: call_agent, arguments: {{name: helper, task: 'buy tea'}}}}]
"#
    );
    std::fs::write(folder.path().join("script.yml"), script).unwrap();
    let run = ["run", "m", "--store", "memory", "--input", "topic=x"];
    let ran = segue(folder.path(), &run, &[]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
    let completed = ran.lines().into_iter().find(|line| line.contains("\"task_completed\"")).unwrap().to_owned();
    assert!(completed.contains("post tea") && completed.contains("may not be called"), "{completed}");
    assert_eq!(*calls.lock().unwrap(), ["get", "post"]);
    // A dry run only reads.
    let dry = segue(folder.path(), &[&run[..], &["--dry-run"]].concat(), &[]);
    assert_eq!(dry.code, 0, "{}\n{}", dry.out, dry.err);
    assert_eq!(*calls.lock().unwrap(), ["get", "post", "get"]);
}

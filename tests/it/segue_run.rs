//! `segue run`: start, shutdown, refused origins and hosts, readiness during recovery, file descriptor limits.

use std::io::{BufRead, BufReader, Write};

use crate::{
    program::{command, run_in},
    project,
    support::{
        project_copy::ProjectCopy,
        server_process::{ServerProcess, client, start_courier, start_project},
    },
};

#[tokio::test]
async fn server_responds_stores_conversations_and_shuts_down_cleanly() {
    let folder = tempfile::tempdir().unwrap();
    let client = client();
    let store = ["--store", "sqlite:talks.db"];
    let say = async |address: &str, text: &str| -> serde_json::Value {
        let body = serde_json::json!({"sender": "u1", "message": text}).to_string();
        let response = client.post(format!("{address}/webhooks/rest/webhook")).body(body).send().await.unwrap();
        serde_json::from_str(&response.text().await.unwrap()).unwrap()
    };

    let (mut server, address) = start_courier(folder.path(), &store);
    let health = client.get(format!("{address}/health")).send().await.unwrap();
    assert_eq!(health.status(), 200);
    let health: serde_json::Value = serde_json::from_str(&health.text().await.unwrap()).unwrap();
    assert_eq!((&health["status"], &health["store"]), (&"ok".into(), &"up".into()));
    assert_eq!(say(&address, "track it").await[0]["text"], "Which parcel?");
    server.terminate();

    let (mut server, address) = start_courier(folder.path(), &store);
    assert_eq!(say(&address, "number X7").await[0]["text"], "Parcel X7 is under way.");
    server.terminate();
}

/// The status line of the response to a request whose body is never sent.
fn status_line(address: &str, request: &str) -> String {
    let mut socket = std::net::TcpStream::connect(address.trim_start_matches("http://")).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line).unwrap();
    line
}

#[tokio::test]
async fn foreign_origins_and_hosts_are_refused_on_every_route_before_the_body() {
    let folder = tempfile::tempdir().unwrap();
    let copy = ProjectCopy::new("courier");
    let path = copy.path("").display().to_string();
    std::fs::write(
        copy.path("credentials.yml"),
        "rest: {allowed_origins: ['https://shop.example'], allowed_hosts: [shop.example]}\nmcp: {}\n",
    )
    .unwrap();
    let endpoints = std::fs::read_to_string(copy.path("endpoints.yml")).unwrap();
    let a2a = "a2a_server: {description: greets, url: 'https://greeter.example'}\n";
    std::fs::write(copy.path("endpoints.yml"), format!("{endpoints}{a2a}")).unwrap();
    let (_server, address) = start_project(&path, folder.path(), &["--store", "memory"]);
    let routes = ["/webhooks/rest/webhook", "/a2a", "/a2a/rest/message:send", "/mcp", "/health", "/nowhere"];
    for route in routes {
        for (host, origin) in [
            ("127.0.0.1", "Origin: http://evil.example\r\n"),
            ("127.0.0.1", "Origin: null\r\n"),
            ("127.0.0.1", "Origin: http://localhost:1\r\nOrigin: http://evil.example\r\n"),
            ("evil.example", ""),
            ("evil.example", "Origin: http://evil.example\r\n"),
        ] {
            let request = format!(
                "POST {route} HTTP/1.1\r\nHost: {host}\r\n{origin}Content-Type: text/plain\r\nContent-Length: 99\r\n\r\n"
            );
            assert!(status_line(&address, &request).starts_with("HTTP/1.1 403"), "{request}");
        }
    }
    let client = client();
    let body = serde_json::json!({"sender": "u", "message": "/greet"}).to_string();
    for (header, value, expected) in [
        ("accept", "*/*", 200),
        ("origin", "http://localhost:3000", 200),
        ("origin", "https://shop.example", 200),
        ("origin", "http://shop.example", 403),
        ("host", "shop.example", 200),
        ("host", "greeter.example", 200),
        ("host", "localhost:9", 200),
    ] {
        let request = client.post(format!("{address}/webhooks/rest/webhook")).header("content-type", "text/plain");
        let response = request.header(header, value).body(body.clone()).send().await.unwrap();
        assert_eq!(response.status(), expected, "{header}: {value}");
        let text = response.text().await.unwrap();
        assert_eq!(text.contains("V0106"), expected == 403, "{text}");
    }
    let response = client.post(format!("{address}/a2a")).header("origin", "https://shop.example").send().await.unwrap();
    assert_eq!(response.status(), 403, "an origin of one channel is not allowed on another");
}

#[tokio::test]
async fn channel_without_authentication_needs_insecure_on_public_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let courier = project("courier");
    let open = ["run", courier.as_str(), "--host", "0.0.0.0", "--port", "0", "--store", "memory"];
    let refused = run_in(folder.path(), &open, "");
    assert_eq!(refused.code, 2, "{}", refused.err);
    for expected in ["`rest`", "0.0.0.0", "auth_token", "--insecure", "[V0105]"] {
        assert!(refused.err.contains(expected), "{expected}: {}", refused.err);
    }
    let insecure = ["--host", "0.0.0.0", "--store", "memory", "--insecure"];
    let (_server, address) = start_courier(folder.path(), &insecure);
    let port = address.rsplit_once(':').unwrap().1;
    // Any host name is accepted there; other origins are still refused.
    let request = client().get(format!("http://127.0.0.1:{port}/health")).header("host", "assistant.example");
    assert_eq!(request.send().await.unwrap().status(), 200);
    let request = client().get(format!("http://127.0.0.1:{port}/health")).header("origin", "http://127.0.0.1:3000");
    assert_eq!(request.send().await.unwrap().status(), 403);
}

/// The address of a model server that accepts requests and never responds.
fn silent_model() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/v1", listener.local_addr().unwrap());
    std::thread::spawn(move || listener.incoming().collect::<Vec<_>>());
    address
}

#[tokio::test]
async fn server_is_ready_while_it_recovers_open_turns() {
    use segue::store::{InboxMessage, SqliteStore, Store};
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write(
        "config.yml",
        "recipe: default.v1\nlanguage: en\npipeline: [{name: CompactLLMCommandGenerator, llm: {model_group: main}}]\n\
         policies: [{name: FlowPolicy}]\n",
    );
    write("domain.yml", "responses: {utter_hello: [{text: Hello!}]}\n");
    std::fs::create_dir(folder.path().join("flows")).unwrap();
    write("flows/all.yml", "flows: {greet: {description: greets, steps: [{action: utter_hello}]}}\n");
    let model = silent_model();
    write(
        "endpoints.yml",
        &format!(
            "model_groups: [{{id: main, models: [{{provider: self-hosted, model: m, api_base: '{model}', timeout: 300}}]}}]\n"
        ),
    );
    {
        let store = SqliteStore::open(&folder.path().join("talks.db"), false).unwrap();
        for n in 0..30 {
            let message = segue_engine::conversation::UserMessage {
                via: "".into(),
                holds_writes: false,
                before_question: false,
                text: "hello".into(),
                message_id: "m".into(),
                input_channel: "rest".into(),
                metadata: Default::default(),
            };
            let (tenant, account) = ("".into(), "".into());
            let conversation = format!("u{n}").as_str().into();
            let inbound = InboxMessage { tenant, account, conversation, message, at: Default::default(), seed: 1 };
            store.accept(inbound).await.unwrap();
        }
    }
    let (_server, address) =
        start_project(&folder.path().display().to_string(), folder.path(), &["--store", "sqlite:talks.db"]);
    let get = async |path: &str| client().get(format!("{address}{path}")).send().await.unwrap();
    assert_eq!(get("/livez").await.status(), 200);
    assert_eq!(get("/readyz").await.status(), 200);
    let health: serde_json::Value = serde_json::from_str(&get("/health").await.text().await.unwrap()).unwrap();
    assert_eq!((&health["status"], &health["recovering"]), (&"ok".into(), &30.into()), "{health}");
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn server_without_free_file_descriptors_keeps_running_and_logs_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut shell = std::process::Command::new("sh");
    let program = command().get_program().to_owned();
    shell.current_dir(folder.path()).args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""]).arg(program);
    shell.arg("run").arg(project("courier")).args(["--port", "0", "--store", "memory"]);
    let (server, lines) = ServerProcess::listening(shell).unwrap();
    let log = std::thread::spawn(move || lines.map_while(Result::ok).find(|line| line.contains("V0201")));
    let host = server.address.strip_prefix("http://").unwrap();
    let half_request = |_| {
        let mut client = std::net::TcpStream::connect(host).unwrap();
        // The server may already have refused the connection.
        let _ = std::io::Write::write_all(&mut client, b"GET /livez HTTP/1.1\r\nhost:");
        client
    };
    let slow: Vec<_> = (0..100).map(half_request).collect();
    let response = client().get(format!("{}/livez", server.address)).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let line = log.join().unwrap().expect("the server logs V0201");
    assert!(line.contains("no connection can be accepted"), "{line}");
    drop(slow);
}

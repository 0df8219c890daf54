//! `segue run` as a process.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Stdio},
};

use crate::{
    program::{command, run_in},
    project,
};

/// A server that does not outlive its test.
pub(crate) struct Server(pub(crate) Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The server, and its address once it listens.
pub(crate) fn started(folder: &std::path::Path, arguments: &[&str]) -> (Server, String) {
    started_on(&project("courier"), folder, arguments)
}

/// The same on another project.
fn started_on(project: &str, folder: &std::path::Path, arguments: &[&str]) -> (Server, String) {
    let mut command = command();
    command.current_dir(folder).arg("run").arg(project).args(["--port", "0"]).args(arguments);
    let (server, address, lines) = listening(command);
    // Whatever it says later is read, so that it never waits for a reader.
    std::thread::spawn(move || lines.for_each(drop));
    (server, address)
}

pub(crate) type Log = std::io::Lines<BufReader<std::process::ChildStderr>>;

/// The server that a command starts, its address once it listens, and the rest of its log.
pub(crate) fn listening(mut command: std::process::Command) -> (Server, String, Log) {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut server = Server(child);
    let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines();
    let address = lines
        .by_ref()
        .map(Result::unwrap)
        .find_map(|line| line.split_once("listening on ").map(|(_, address)| address.to_owned()))
        .expect("it says where it listens");
    (server, address.split_whitespace().next().unwrap().to_owned(), lines)
}

#[tokio::test]
async fn it_answers_keeps_conversations_and_ends_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let client = client();
    let store = ["--store", "sqlite:talks.db"];
    let say = async |address: &str, text: &str| -> serde_json::Value {
        let body = serde_json::json!({"sender": "u1", "message": text}).to_string();
        let answer = client.post(format!("{address}/webhooks/rest/webhook")).body(body).send().await.unwrap();
        serde_json::from_str(&answer.text().await.unwrap()).unwrap()
    };

    let (mut server, address) = started(folder.path(), &store);
    let health = client.get(format!("{address}/health")).send().await.unwrap();
    assert_eq!(health.status(), 200);
    let health: serde_json::Value = serde_json::from_str(&health.text().await.unwrap()).unwrap();
    assert_eq!((&health["status"], &health["store"]), (&"ok".into(), &"up".into()));
    assert_eq!(say(&address, "track it").await[0]["text"], "Which parcel?");
    end(&mut server.0);

    let (mut server, address) = started(folder.path(), &store);
    assert_eq!(say(&address, "number X7").await[0]["text"], "Parcel X7 is under way.");
    end(&mut server.0);
}

/// The head of an answer to a request whose body never comes.
fn head_of(address: &str, request: &str) -> String {
    let mut socket = std::net::TcpStream::connect(address.trim_start_matches("http://")).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut head = String::new();
    BufReader::new(socket).read_line(&mut head).unwrap();
    head
}

#[tokio::test]
async fn pages_and_names_of_others_are_refused_on_every_route_before_the_body() {
    let folder = tempfile::tempdir().unwrap();
    let ground = crate::kills::Ground::of("courier");
    let offered = ground.path("").display().to_string();
    std::fs::write(
        ground.path("credentials.yml"),
        "rest: {allowed_origins: ['https://shop.example'], allowed_hosts: [shop.example]}\nmcp: {}\n",
    )
    .unwrap();
    let endpoints = std::fs::read_to_string(ground.path("endpoints.yml")).unwrap();
    let a2a = "a2a_server: {description: greets, url: 'https://greeter.example'}\n";
    std::fs::write(ground.path("endpoints.yml"), format!("{endpoints}{a2a}")).unwrap();
    let (_server, address) = started_on(&offered, folder.path(), &["--store", "memory"]);
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
            assert!(head_of(&address, &request).starts_with("HTTP/1.1 403"), "{request}");
        }
    }
    let client = client();
    let body = serde_json::json!({"sender": "u", "message": "/greet"}).to_string();
    for (header, value, wanted) in [
        ("accept", "*/*", 200),
        ("origin", "http://localhost:3000", 200),
        ("origin", "https://shop.example", 200),
        ("origin", "http://shop.example", 403),
        ("host", "shop.example", 200),
        ("host", "greeter.example", 200),
        ("host", "localhost:9", 200),
    ] {
        let request = client.post(format!("{address}/webhooks/rest/webhook")).header("content-type", "text/plain");
        let answer = request.header(header, value).body(body.clone()).send().await.unwrap();
        assert_eq!(answer.status(), wanted, "{header}: {value}");
        let text = answer.text().await.unwrap();
        assert_eq!(text.contains("V0106"), wanted == 403, "{text}");
    }
    let foreign = client.post(format!("{address}/a2a")).header("origin", "https://shop.example").send().await.unwrap();
    assert_eq!(foreign.status(), 403, "a page of one channel is none of another");
}

#[tokio::test]
async fn an_open_channel_is_served_off_loopback_only_where_the_operator_insists() {
    let folder = tempfile::tempdir().unwrap();
    let courier = project("courier");
    let open = ["run", courier.as_str(), "--host", "0.0.0.0", "--port", "0", "--store", "memory"];
    let refused = run_in(folder.path(), &open, "");
    assert_eq!(refused.code, 2, "{}", refused.err);
    for named in ["`rest`", "0.0.0.0", "auth_token", "--insecure", "[V0105]"] {
        assert!(refused.err.contains(named), "{named}: {}", refused.err);
    }
    let insisted = ["--host", "0.0.0.0", "--store", "memory", "--insecure"];
    let (_server, address) = started(folder.path(), &insisted);
    let port = address.rsplit_once(':').unwrap().1;
    // Whatever name it is called by there; pages of others stay outside.
    let request = client().get(format!("http://127.0.0.1:{port}/health")).header("host", "assistant.example");
    assert_eq!(request.send().await.unwrap().status(), 200);
    let request = client().get(format!("http://127.0.0.1:{port}/health")).header("origin", "http://127.0.0.1:3000");
    assert_eq!(request.send().await.unwrap().status(), 403);
}

/// A model's server that takes requests and never answers.
fn silent_model() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/v1", listener.local_addr().unwrap());
    std::thread::spawn(move || listener.incoming().collect::<Vec<_>>());
    address
}

#[tokio::test]
async fn it_serves_while_it_finishes_what_an_earlier_process_left() {
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
        started_on(&folder.path().display().to_string(), folder.path(), &["--store", "sqlite:talks.db"]);
    let ask = async |path: &str| client().get(format!("{address}{path}")).send().await.unwrap();
    assert_eq!(ask("/livez").await.status(), 200);
    assert_eq!(ask("/readyz").await.status(), 200);
    let health: serde_json::Value = serde_json::from_str(&ask("/health").await.text().await.unwrap()).unwrap();
    assert_eq!((&health["status"], &health["recovering"]), (&"ok".into(), &30.into()), "{health}");
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_files_goes_on_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut shell = std::process::Command::new("sh");
    let program = command().get_program().to_owned();
    shell.current_dir(folder.path()).args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""]).arg(program);
    shell.arg("run").arg(project("courier")).args(["--port", "0", "--store", "memory"]);
    let (_server, address, lines) = listening(shell);
    let told = std::thread::spawn(move || lines.map_while(Result::ok).find(|line| line.contains("V0201")));
    let host = address.strip_prefix("http://").unwrap();
    let half = |_| {
        let mut client = std::net::TcpStream::connect(host).unwrap();
        // A server without files may have refused the connection by now.
        let _ = std::io::Write::write_all(&mut client, b"GET /livez HTTP/1.1\r\nhost:");
        client
    };
    let slow: Vec<_> = (0..100).map(half).collect();
    let answer = client().get(format!("{address}/livez")).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let told = told.join().unwrap().expect("it says so");
    assert!(told.contains("no connection can be accepted"), "{told}");
    drop(slow);
}

/// Asks a process to end and waits; it must say that it ended well.
#[cfg(unix)]
pub(crate) fn end(child: &mut Child) {
    let asked = std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(asked.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[cfg(not(unix))]
pub(crate) fn end(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A client without anything of this machine's environment.
pub(crate) fn client() -> reqwest::Client {
    segue::http::HttpClients::new().client().unwrap().clone()
}

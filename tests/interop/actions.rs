//! The action server of `rasa-sdk`: all features of the SDK, over HTTP, over gRPC, and with a Python module that Segue serves itself.

use std::{fs, path::Path, sync::Arc, time::Duration};

use segue::{
    Assistant, AssistantBuilder, DiscardReplies, IncomingMessage, TurnReport,
    actions::{self, ActionEnvironment, Health},
    clock::SystemClock,
    http::HttpClients,
    project::{ActionEndpointDef, LoadOptions, Project, TrackerEvents},
};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::processes::{self, ChildProcess};

/// How Segue reaches the actions.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Transport {
    Http,
    /// Segue starts Python and loads the module.
    Module,
    #[cfg(feature = "grpc")]
    Grpc,
}

impl Transport {
    fn is_grpc(self) -> bool {
        !matches!(self, Self::Http | Self::Module)
    }
}

/// A copy of the project and its assistant.
struct Fixture {
    folder: TempDir,
    assistant: Assistant,
    /// The action server; `None` for [`Transport::Module`].
    server: Option<ChildProcess>,
}

fn project(folder: &Path, change: impl FnOnce(&mut ActionEndpointDef)) -> Project {
    let mut loaded = segue::project::load(folder, &LoadOptions::default()).unwrap();
    let endpoint = loaded.project.as_mut().unwrap().endpoints.action_endpoint.as_mut().unwrap();
    change(endpoint);
    loaded.project.unwrap()
}

impl Fixture {
    fn new(transport: Transport, change: impl FnOnce(&mut ActionEndpointDef)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/projects/sdk");
        for file in ["config.yml", "domain.yml", "endpoints.yml", "actions.py", "data/flows.yml"] {
            fs::create_dir_all(folder.path().join("data")).unwrap();
            fs::copy(from.join(file), folder.path().join(file)).unwrap();
        }
        let (server, port) = match transport {
            Transport::Module => (None, 0),
            _ => {
                let port = processes::free_port();
                (Some(start_server(folder.path(), port, transport)), port)
            }
        };
        let project = project(folder.path(), |endpoint| {
            if transport.is_grpc() {
                endpoint.url = Some(format!("grpc://127.0.0.1:{port}"));
            } else if transport == Transport::Http {
                endpoint.url = Some(format!("http://127.0.0.1:{port}/webhook"));
            }
            change(endpoint);
        });
        let assistant = assistant(project, folder.path());
        Self { folder, assistant, server }
    }

    async fn say(&self, text: &str) -> TurnReport {
        self.assistant
            .receive(IncomingMessage::new("ada", text).input_channel("test"), Box::new(DiscardReplies))
            .await
            .unwrap()
    }

    /// Sends a message. Returns the texts of the replies.
    async fn texts(&self, text: &str) -> Vec<String> {
        let report = self.say(text).await;
        report.replies.iter().filter_map(|reply| reply.reply.text.as_deref().map(str::to_owned)).collect()
    }

    async fn slot(&self, name: &str) -> Json {
        self.assistant.conversation(&"ada".into()).await.unwrap().slots.get(name).cloned().unwrap_or_default()
    }

    /// The number of times an action has run.
    fn runs(&self, action: &str) -> usize {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        log.lines().filter(|line| *line == action).count()
    }

    /// Checks that the conversation replays to the same events, and ends the assistant and the server.
    async fn finish(mut self) {
        let difference = self.assistant.replay(&"ada".into()).await.unwrap();
        assert!(difference.is_none(), "{difference:#?}");
        self.assistant.close(Duration::from_secs(5)).await;
        drop(self.server.take());
    }
}

/// Starts an action server and waits until it listens. One of its actions kills its process group, which [`ChildProcess`] creates.
fn start_server(folder: &Path, port: u16, transport: Transport) -> ChildProcess {
    let mut command = processes::action_server(folder, port);
    if transport.is_grpc() {
        command.arg("--grpc");
    }
    command.env("ACTION_LOG", folder.join("log"));
    let mut server = ChildProcess::start(&mut command);
    server.wait_for_line(if transport.is_grpc() { "gRPC Server started" } else { "up and running" });
    // The server prints the line shortly before it listens.
    for _ in 0..2_000_000 {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return server;
        }
        std::thread::yield_now();
    }
    panic!("the action server does not listen")
}

fn assistant(project: Project, folder: &Path) -> Assistant {
    let python = processes::actions_python().display().to_string();
    let added = [("SEGUE_PYTHON", python), ("ACTION_LOG", folder.join("log").display().to_string())];
    let environment: Vec<_> =
        segue::environment::all().into_iter().chain(added.map(|(name, value)| (name.to_owned(), value))).collect();
    let action_environment = ActionEnvironment {
        clock: Arc::new(SystemClock),
        http: HttpClients::new(),
        directory: folder.to_path_buf(),
        environment: environment.into(),
    };
    let server = actions::open(project.endpoints.action_endpoint.as_ref().unwrap(), &project, action_environment);
    AssistantBuilder::new(Arc::new(project), folder.to_path_buf()).action_server(server).build().unwrap()
}

/// Checks all features of the SDK except a crash.
async fn check_all_features(transport: Transport, change: impl FnOnce(&mut ActionEndpointDef)) {
    let fixture = Fixture::new(transport, change);
    let project = fixture.assistant.project();
    let endpoint = project.endpoints.action_endpoint.as_ref();
    let compressed = endpoint.and_then(|endpoint| endpoint.compress).unwrap_or(false);
    // A custom action_session_start, the actions that run for every message, and the tracker as an action sees it.
    let texts = fixture.texts(r#"/plain{"mood": "fine"}"#).await;
    assert_eq!(texts, [r#"Done: ada /plain{"mood": "fine"} plain test plain True False 1 fine None None."#]);
    assert_eq!((fixture.slot("greeted").await, fixture.runs("action_session_start")), (json!(true), 1));
    assert_eq!(fixture.slot("mood").await, "FINE", "extracted and validated by a ValidationAction");
    assert!(fixture.slot("count").await.as_f64().unwrap() >= 8.0, "{}", fixture.slot("count").await);

    let rich = fixture.say("/rich").await.replies;
    let reply = |at: usize| serde_json::to_value(&rich[at].reply).unwrap();
    assert_eq!(reply(0)["buttons"], json!([{"title": "A", "payload": "/a"}, {"title": "B", "payload": "B"}]));
    assert_eq!((&reply(1)["image"], &reply(2)["custom"]), (&json!("http://host/image.png"), &json!({"blocks": [1]})));
    assert_eq!(reply(3)["attachment"], "http://host/file.pdf");
    assert_eq!((reply(3)["elements"].clone(), rich.len()), (json!([{"title": "E"}]), 4));

    let replies = fixture.say("/response").await.replies;
    assert_eq!(replies[0].reply.text.as_deref(), Some("Hello you, None."), "rendered before the events are applied");
    let titles: Vec<_> = replies[0].reply.buttons.iter().map(|button| &*button.title).collect();
    assert_eq!(titles, ["One", "Two"], "buttons of the action follow those of the response");
    assert_eq!((replies[1].reply.text.as_deref(), fixture.slot("name").await), (Some("Instead."), json!("Ada")));

    assert_eq!(fixture.texts("/follow").await, ["Done: followed."]);
    assert_eq!(fixture.texts("/domain").await, ["Done: float True."], "the domain is sent automatically");
    assert_eq!(
        fixture.texts("/reject").await,
        ["Done: float True."],
        "the flow continues after ActionExecutionRejection"
    );
    let report = fixture.say("/raise").await;
    assert_eq!(report.replies[0].reply.text.as_deref(), Some("It failed (server_error, True)."));
    // The SDK includes the request in its error, which fails for a compressed request; the response is then status 400.
    let reason = if compressed { "(400)" } else { "broken on purpose" };
    assert!(report.failures[0].reason.contains(reason), "{:?}", report.failures);
    let report = fixture.say("/missing").await;
    assert_eq!(report.replies.len(), 1, "one error response for a failure that the flow does not handle");
    assert!(report.failures[0].reason.contains("not_found"), "{:?}", report.failures);

    // action_ask_day and validate_day.
    assert_eq!(fixture.texts("/day").await, ["Which day?"]);
    assert_eq!(fixture.texts(r#"/hello{"day": "Sunday"}"#).await, ["Closed on Sundays.", "Which day?"]);
    assert_eq!(fixture.texts(r#"/hello{"day": "monday"}"#).await, ["On Monday."]);

    fixture.say("/form").await;
    assert_eq!(fixture.slot("note").await, "from the form, checked");
    assert_eq!(fixture.slot("requested_slot").await, "day", "the form asks for the next slot");

    assert_eq!(fixture.texts("/many").await, ["by an event", "Done: many."]);
    let conversation = fixture.assistant.conversation(&"ada".into()).await.unwrap();
    assert_eq!((conversation.active_loop.as_deref(), conversation.paused), (Some("visit_form"), false));
    assert_eq!(fixture.texts("/undo").await, ["Done: many."], "ActionReverted removes the action");
    assert_eq!(
        (fixture.texts("/rewind").await, fixture.slot("note").await),
        (vec![], json!("many")),
        "UserUtteranceReverted removes the message"
    );
    assert_eq!(fixture.texts("/stream").await, ["One ", "two."], "each chunk of a stream is a message");
    assert_eq!(fixture.texts("/restart").await, ["All is forgotten."], "a custom action replaces the default action");
    assert_eq!(fixture.slot("name").await, Json::Null);
    let report = fixture.say("/end").await;
    assert!(report.session_ended && report.replies.len() == 1, "{report:?}");
    assert_eq!(fixture.texts("/domain").await, ["Done: float True."], "a new session starts");
    assert_eq!(fixture.runs("action_session_start"), 3);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_features_work_over_http() {
    check_all_features(Transport::Http, |_| {}).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_features_work_with_a_served_module() {
    check_all_features(Transport::Module, |_| {}).await;
}

#[cfg(feature = "grpc")]
#[tokio::test(flavor = "multi_thread")]
async fn all_features_work_over_grpc() {
    check_all_features(Transport::Grpc, |_| {}).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_features_work_with_compression_and_the_events_of_one_session() {
    check_all_features(Transport::Http, |endpoint| {
        endpoint.compress = Some(true);
        endpoint.tracker_events = TrackerEvents::Session;
    })
    .await;
}

/// With `selective_domain` the domain is sent only to actions that request it; the others run without one.
#[tokio::test(flavor = "multi_thread")]
async fn selective_domain_is_sent_only_to_actions_that_request_it() {
    let fixture = Fixture::new(Transport::Http, |endpoint| endpoint.selective_domain = true);
    // The SDK's slot validation reads the domain without requesting it. It fails; the turn continues.
    let report = fixture.say("/follow").await;
    assert_eq!(report.replies[0].reply.text.as_deref(), Some("Done: followed."));
    assert_eq!(fixture.texts("/domain").await, ["Done: float True."]);
    fixture.finish().await;
}

/// The server crashes during a call: the flow gets the outcome `lost`, the action runs once, and calls to a new server work.
async fn check_server_crash(transport: Transport) {
    let mut fixture = Fixture::new(transport, |_| {});
    fixture.say("/hello").await;
    assert_eq!(fixture.texts("/die").await, ["It failed (lost, True)."]);
    assert_eq!(fixture.runs("action_die"), 1);
    if transport != Transport::Module {
        let project = fixture.assistant.project();
        let endpoint = project.endpoints.action_endpoint.as_ref().unwrap();
        let port = endpoint.url.as_deref().unwrap().split([':', '/']).nth(4).unwrap().parse().unwrap();
        let report = fixture.say("/plain").await;
        assert!(report.failures.iter().any(|failure| failure.reason.contains("unreachable")), "{report:?}");
        fixture.server = Some(start_server(fixture.folder.path(), port, transport));
    }
    let report = fixture.say("/follow").await;
    assert_eq!(report.replies[0].reply.text.as_deref(), Some("Done: followed."), "the new server answers: {report:?}");
    assert_eq!((fixture.assistant.action_server_status(), fixture.runs("action_die")), (Some(Health::Up), 1));
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_of_the_server_during_a_call_gives_a_lost_outcome() {
    check_server_crash(Transport::Http).await;
}

#[cfg(feature = "grpc")]
#[tokio::test(flavor = "multi_thread")]
async fn crash_of_the_server_during_a_call_gives_a_lost_outcome_over_grpc() {
    check_server_crash(Transport::Grpc).await;
}

#[cfg(feature = "grpc")]
#[tokio::test(flavor = "multi_thread")]
async fn grpc_server_lists_its_actions_and_a_slow_action_times_out() {
    let fixture = Fixture::new(Transport::Grpc, |endpoint| endpoint.timeout = Some(Duration::from_micros(1)));
    let names = fixture.assistant.list_server_actions().await.unwrap().unwrap();
    assert!(names.iter().any(|name| name == "action_plain") && !names.iter().any(|name| name == "action_missing"));
    // The timeout has a resolution of one millisecond, so a fast action could answer in time. A suspended server never does.
    fixture.server.as_ref().unwrap().suspend();
    assert_eq!(fixture.texts("/raise").await, ["It failed (timeout, True)."]);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn served_module_restarts_after_a_crash_during_a_call() {
    check_server_crash(Transport::Module).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn check_online_reports_a_missing_action_and_a_missing_python() {
    let fixture = Fixture::new(Transport::Module, |_| {});
    let names = fixture.assistant.list_server_actions().await.unwrap().unwrap();
    assert!(names.iter().any(|name| name == "action_plain") && !names.iter().any(|name| name == "action_missing"));
    let python = processes::actions_python();
    let tool_codes = |arguments: &[&str], python: &Path| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_segue"))
            .args(["check", "--format", "json"])
            .args(arguments)
            .arg(fixture.folder.path())
            .env("SEGUE_PYTHON", python)
            .env("ACTION_LOG", fixture.folder.path().join("log"))
            .output()
            .unwrap();
        let report: Json = serde_json::from_slice(&output.stdout).unwrap();
        let codes = report["findings"].as_array().unwrap().iter().map(|finding| finding["code"].to_string());
        codes.filter(|code| code.contains('T')).collect::<Vec<_>>()
    };
    assert_eq!(tool_codes(&["--online"], &python), ["\"T0602\""], "only action_missing");
    assert_eq!(tool_codes(&[], &python), Vec::<String>::new());
    assert_eq!(tool_codes(&[], Path::new("/missing/python")), ["\"T0603\""]);
    fixture.assistant.close(Duration::from_secs(5)).await;
}

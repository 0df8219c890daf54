//! A genuine action server: everything its library can say, reached by an address and as a module that we serve ourselves.

use std::{fs, path::Path, sync::Arc, time::Duration};

use segue::{
    Assistant, AssistantBuilder, DiscardReplies, IncomingMessage, TurnReport,
    actions::{self, ActionEnvironment, Health},
    clock::SystemClock,
    http::HttpClients,
    project::{ActionEndpointDef, Places, Project, TrackerEvents},
};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::parts::{self, Part};

/// How the actions are reached.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Url,
    Module,
    #[cfg(feature = "grpc")]
    Grpc,
}

impl Way {
    /// Whether the server is reached by gRPC.
    fn is_grpc(self) -> bool {
        !matches!(self, Self::Url | Self::Module)
    }
}

/// A copy of the project, its assistant, and the server where we do not serve it ourselves.
struct Ground {
    folder: TempDir,
    assistant: Assistant,
    server: Option<Part>,
}

fn project(folder: &Path, change: impl FnOnce(&mut ActionEndpointDef)) -> Project {
    let mut loaded = segue::project::load(folder, &Places::default()).unwrap();
    let endpoint = loaded.project.as_mut().unwrap().endpoints.action_endpoint.as_mut().unwrap();
    change(endpoint);
    loaded.project.unwrap()
}

impl Ground {
    fn new(way: Way, change: impl FnOnce(&mut ActionEndpointDef)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/projects/sdk");
        for file in ["config.yml", "domain.yml", "endpoints.yml", "actions.py", "data/flows.yml"] {
            fs::create_dir_all(folder.path().join("data")).unwrap();
            fs::copy(from.join(file), folder.path().join(file)).unwrap();
        }
        let (server, port) = match way {
            Way::Module => (None, 0),
            _ => {
                let port = parts::free_port();
                (Some(serve(folder.path(), port, way)), port)
            }
        };
        let project = project(folder.path(), |endpoint| {
            if way.is_grpc() {
                endpoint.url = Some(format!("grpc://127.0.0.1:{port}"));
            } else if way == Way::Url {
                endpoint.url = Some(format!("http://127.0.0.1:{port}/webhook"));
            }
            change(endpoint);
        });
        let assistant = assistant(project, folder.path());
        Self { folder, assistant, server }
    }

    async fn say(&self, text: &str) -> TurnReport {
        self.assistant.receive(IncomingMessage::text("ada", text, "test"), Box::new(DiscardReplies)).await.unwrap()
    }

    /// The texts of the answer.
    async fn texts(&self, text: &str) -> Vec<String> {
        let report = self.say(text).await;
        report.replies.iter().filter_map(|reply| reply.reply.text.as_deref().map(str::to_owned)).collect()
    }

    async fn slot(&self, name: &str) -> Json {
        self.assistant.conversation(&"ada".into()).await.unwrap().slots.get(name).cloned().unwrap_or_default()
    }

    /// How often an action ran.
    fn runs(&self, action: &str) -> usize {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        log.lines().filter(|line| *line == action).count()
    }

    async fn end(mut self) {
        let different = self.assistant.replay(&"ada".into()).await.unwrap();
        assert!(different.is_none(), "{different:#?}");
        self.assistant.close(Duration::from_secs(5)).await;
        drop(self.server.take());
    }
}

/// A server, which has a process group of its own (`Part`): one of its actions kills the group.
fn serve(folder: &Path, port: u16, way: Way) -> Part {
    let mut command = parts::action_server(folder, port);
    if way.is_grpc() {
        command.arg("--grpc");
    }
    command.env("ACTION_LOG", folder.join("log"));
    let mut part = Part::start(&mut command);
    part.line_with(if way.is_grpc() { "gRPC Server started" } else { "up and running" });
    // It says so a little before it listens.
    for _ in 0..2_000_000 {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return part;
        }
        std::thread::yield_now();
    }
    panic!("it never listens")
}

fn assistant(project: Project, folder: &Path) -> Assistant {
    let python = parts::actions_python().display().to_string();
    let own = [("SEGUE_PYTHON", python), ("ACTION_LOG", folder.join("log").display().to_string())];
    let environment: Vec<_> =
        segue::environment::all().into_iter().chain(own.map(|(name, value)| (name.to_owned(), value))).collect();
    let around = ActionEnvironment {
        clock: Arc::new(SystemClock),
        http: HttpClients::new(),
        directory: folder.to_path_buf(),
        environment: environment.into(),
    };
    let server = actions::open(project.endpoints.action_endpoint.as_ref().unwrap(), &project, around);
    AssistantBuilder::new(Arc::new(project), folder.to_path_buf()).action_server(server).build().unwrap()
}

/// Everything but death.
async fn everything(way: Way, change: impl FnOnce(&mut ActionEndpointDef)) {
    let ground = Ground::new(way, change);
    let endpoint = ground.assistant.project().endpoints.action_endpoint.as_ref();
    let compressed = endpoint.and_then(|endpoint| endpoint.compress).unwrap_or(false);
    // A custom action_session_start, what runs at every message, and what an action sees of the tracker.
    let said = ground.texts(r#"/plain{"mood": "fine"}"#).await;
    assert_eq!(said, [r#"Done: ada /plain{"mood": "fine"} plain test plain True False 1 fine None None."#]);
    assert_eq!((ground.slot("greeted").await, ground.runs("action_session_start")), (json!(true), 1));
    assert_eq!(ground.slot("mood").await, "FINE", "extracted and validated by a ValidationAction");
    assert!(ground.slot("count").await.as_f64().unwrap() >= 8.0, "{}", ground.slot("count").await);

    let rich = ground.say("/rich").await.replies;
    let reply = |at: usize| serde_json::to_value(&rich[at].reply).unwrap();
    assert_eq!(reply(0)["buttons"], json!([{"title": "A", "payload": "/a"}, {"title": "B", "payload": "B"}]));
    assert_eq!((&reply(1)["image"], &reply(2)["custom"]), (&json!("http://host/image.png"), &json!({"blocks": [1]})));
    assert_eq!(reply(3)["attachment"], "http://host/file.pdf");
    assert_eq!((reply(3)["elements"].clone(), rich.len()), (json!([{"title": "E"}]), 4));

    let said = ground.say("/response").await.replies;
    assert_eq!(said[0].reply.text.as_deref(), Some("Hello you, None."), "rendered before the events are applied");
    let titles: Vec<_> = said[0].reply.buttons.iter().map(|button| &*button.title).collect();
    assert_eq!(titles, ["One", "Two"], "buttons of the action follow those of the response");
    assert_eq!((said[1].reply.text.as_deref(), ground.slot("name").await), (Some("Instead."), json!("Ada")));

    assert_eq!(ground.texts("/follow").await, ["Done: followed."]);
    assert_eq!(ground.texts("/domain").await, ["Done: float True."], "the domain came by itself");
    assert_eq!(ground.texts("/reject").await, ["Done: float True."], "a refusal goes on");
    let report = ground.say("/raise").await;
    assert_eq!(report.replies[0].reply.text.as_deref(), Some("It failed (server_error, True)."));
    // Of a compressed request the library cannot repeat the body, and says that instead.
    let words = if compressed { "(400)" } else { "broken on purpose" };
    assert!(report.failures[0].reason.contains(words), "{:?}", report.failures);
    let report = ground.say("/missing").await;
    assert_eq!(report.replies.len(), 1, "one message for a failure nobody catches");
    assert!(report.failures[0].reason.contains("not_found"), "{:?}", report.failures);

    // action_ask_day and validate_day
    assert_eq!(ground.texts("/day").await, ["Which day?"]);
    assert_eq!(ground.texts(r#"/hello{"day": "Sunday"}"#).await, ["Closed on Sundays.", "Which day?"]);
    assert_eq!(ground.texts(r#"/hello{"day": "monday"}"#).await, ["On Monday."]);

    ground.say("/form").await;
    assert_eq!(ground.slot("note").await, "from the form, checked");
    assert_eq!(ground.slot("requested_slot").await, "day", "the form says what it wants next");

    assert_eq!(ground.texts("/many").await, ["by an event", "Done: many."]);
    let conversation = ground.assistant.conversation(&"ada".into()).await.unwrap();
    assert_eq!((conversation.active_loop.as_deref(), conversation.paused), (Some("visit_form"), false));
    assert_eq!(ground.texts("/undo").await, ["Done: many."], "the action is taken back");
    assert_eq!((ground.texts("/rewind").await, ground.slot("note").await), (vec![], json!("many")), "the message is");
    assert_eq!(ground.texts("/stream").await, ["One ", "two."], "over HTTP the pieces are messages");
    assert_eq!(ground.texts("/restart").await, ["All is forgotten."], "a default action is overridden");
    assert_eq!(ground.slot("name").await, Json::Null);
    let report = ground.say("/end").await;
    assert!(report.session_ended && report.replies.len() == 1, "{report:?}");
    assert_eq!(ground.texts("/domain").await, ["Done: float True."], "a new session begins");
    assert_eq!(ground.runs("action_session_start"), 3);
    ground.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_works_through_an_address() {
    everything(Way::Url, |_| {}).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_works_through_a_module() {
    everything(Way::Module, |_| {}).await;
}

#[cfg(feature = "grpc")]
#[tokio::test(flavor = "multi_thread")]
async fn everything_works_by_grpc() {
    everything(Way::Grpc, |_| {}).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_works_compressed_and_with_one_session() {
    everything(Way::Url, |endpoint| {
        endpoint.compress = Some(true);
        endpoint.tracker_events = TrackerEvents::Session;
    })
    .await;
}

/// With a selective domain the actions that do not ask for it run on a server that has none.
#[tokio::test(flavor = "multi_thread")]
async fn a_selective_domain_is_enough() {
    let ground = Ground::new(Way::Url, |endpoint| endpoint.selective_domain = true);
    // The library's own validation reads the domain, and does not ask for it here: a failure that stops no message.
    let report = ground.say("/follow").await;
    assert_eq!(report.replies[0].reply.text.as_deref(), Some("Done: followed."));
    assert_eq!(ground.texts("/domain").await, ["Done: float True."]);
    ground.end().await;
}

/// The server dies in the middle of a call: the flow is told that nobody knows, the action runs once, and the next call works.
async fn death(way: Way) {
    let mut ground = Ground::new(way, |_| {});
    ground.say("/hello").await;
    assert_eq!(ground.texts("/die").await, ["It failed (lost, True)."]);
    assert_eq!(ground.runs("action_die"), 1);
    if way != Way::Module {
        let endpoint = ground.assistant.project().endpoints.action_endpoint.as_ref().unwrap();
        let port = endpoint.url.as_deref().unwrap().split([':', '/']).nth(4).unwrap().parse().unwrap();
        let report = ground.say("/plain").await;
        assert!(report.failures.iter().any(|failure| failure.reason.contains("unreachable")), "{report:?}");
        ground.server = Some(serve(ground.folder.path(), port, way));
    }
    let report = ground.say("/follow").await;
    assert_eq!(report.replies[0].reply.text.as_deref(), Some("Done: followed."), "it is there again: {report:?}");
    assert_eq!((ground.assistant.action_server(), ground.runs("action_die")), (Some(Health::Up), 1));
    ground.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_in_the_middle_of_a_call() {
    death(Way::Url).await;
}

#[cfg(feature = "grpc")]
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_in_the_middle_of_a_call_by_grpc() {
    death(Way::Grpc).await;
}

/// What a server lists is asked after its health, and an action that takes too long is given up.
#[cfg(feature = "grpc")]
#[tokio::test(flavor = "multi_thread")]
async fn a_server_reached_by_grpc_tells_its_actions_and_may_not_take_too_long() {
    let ground = Ground::new(Way::Grpc, |endpoint| endpoint.timeout = Some(Duration::from_micros(1)));
    let names = ground.assistant.served_actions().await.unwrap().unwrap();
    assert!(names.iter().any(|name| name == "action_plain") && !names.iter().any(|name| name == "action_missing"));
    // A call that takes a moment may be answered within the shortest limit: the clock knows milliseconds.
    ground.server.as_ref().unwrap().halt();
    assert_eq!(ground.texts("/raise").await, ["It failed (timeout, True)."]);
    ground.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_that_dies_in_the_middle_of_a_call_is_started_again() {
    death(Way::Module).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_asks_a_genuine_server_and_finds_what_it_lacks() {
    let ground = Ground::new(Way::Module, |_| {});
    let names = ground.assistant.served_actions().await.unwrap().unwrap();
    assert!(names.iter().any(|name| name == "action_plain") && !names.iter().any(|name| name == "action_missing"));
    let python = parts::actions_python();
    let checked = |arguments: &[&str], python: &Path| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_segue"))
            .args(["check", "--format", "json"])
            .args(arguments)
            .arg(ground.folder.path())
            .env("SEGUE_PYTHON", python)
            .env("ACTION_LOG", ground.folder.path().join("log"))
            .output()
            .unwrap();
        let found: Json = serde_json::from_slice(&output.stdout).unwrap();
        let codes = found["findings"].as_array().unwrap().iter().map(|finding| finding["code"].to_string());
        codes.filter(|code| code.contains('T')).collect::<Vec<_>>()
    };
    assert_eq!(checked(&["--online"], &python), ["\"T0602\""], "action_missing alone");
    assert_eq!(checked(&[], &python), Vec::<String>::new());
    assert_eq!(checked(&[], Path::new("/nowhere/python")), ["\"T0603\""]);
    ground.assistant.close(Duration::from_secs(5)).await;
}

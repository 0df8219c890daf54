//! The offered agent without a wire: what the genuine callers of `tests/interop` do not try.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::time::Duration;

use axum::http::Request;
use segue_engine::finding::SourceLocation;
use serde_json::json;
use tower::ServiceExt;

use super::*;
use crate::{
    a2a::model::{Part, Task, TaskState, Update},
    limits,
    testing::{ManualClock, ScriptedLlm},
};

mod reading;

const FILES: [(&str, &str); 3] = [
    (
        "config.yml",
        "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n",
    ),
    (
        "domain.yml",
        "slots: {name: {type: text, mappings: [{type: from_llm}]}}\nresponses: {utter_ask_name: [{text: Who are you?}], utter_hello: [{text: 'Hello {name}!'}]}\n",
    ),
    ("flows/greet.yml", "flows: {greet: {description: greets, steps: [{collect: name}, {action: utter_hello}]}}\n"),
];

fn def() -> A2aServerDef {
    A2aServerDef {
        description: "greets".into(),
        url: None,
        card: None,
        include_repair: true,
        task_timeout: Some(Duration::from_secs(600)),
        token: None,
        jwt: None,
        push: true,
        payloads: true,
        place: SourceLocation { file: "endpoints.yml".into(), line: 1, column: 1, width: 1 },
    }
}

fn agent_with(def: &A2aServerDef, lines: &[&'static str]) -> A2aServer {
    let model = Arc::new(ScriptedLlm::strict(lines.iter().copied()));
    let builder = Assistant::builder_from_texts(FILES).unwrap().model(model);
    let assistant = builder.clock(Arc::new(ManualClock::new())).build().unwrap();
    server(&assistant, def)
}

/// The server of an assistant that only this machine reaches.
fn server(assistant: &Assistant, def: &A2aServerDef) -> A2aServer {
    A2aServerChannel::new(def, true).unwrap().server(Inbox::new(assistant.clone(), NAME))
}

fn agent_of(assistant: &Assistant) -> A2aServer {
    server(assistant, &def())
}

fn agent(lines: &[&'static str]) -> A2aServer {
    agent_with(&def(), lines)
}

async fn text_of_answer(response: Response<Body>) -> String {
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn ask(agent: &A2aServer, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Bytes::from(body.to_owned())).unwrap();
    let response = agent.service().oneshot(request).await.unwrap();
    (response.status().as_u16(), text_of_answer(response).await)
}

async fn call(agent: &A2aServer, method: &str, params: Json) -> Json {
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string();
    serde_json::from_str(&ask(agent, "POST", "/a2a", &[], &body).await.1).unwrap()
}

fn message(id: &str, text: &str) -> Json {
    json!({"message": {"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]}})
}

fn message_in(id: &str, text: &str, context: Option<&str>) -> Json {
    let mut params = message(id, text);
    if let Some(context) = context {
        params["message"]["contextId"] = json!(context);
    }
    params
}

async fn send(agent: &A2aServer, id: &str, text: &str) -> Json {
    call(agent, "SendMessage", message(id, text)).await["result"]["task"].clone()
}

#[tokio::test]
async fn what_is_wrong_has_its_number() {
    let agent = agent(&[]);
    for (body, code) in [
        ("{", codes::PARSE_ERROR),
        ("[]", codes::INVALID_REQUEST),
        (r#"{"jsonrpc": "1.0", "id": 1, "method": "GetTask"}"#, codes::INVALID_REQUEST),
        (r#"{"jsonrpc": "2.0", "id": {}, "method": "GetTask"}"#, codes::INVALID_REQUEST),
        (r#"{"jsonrpc": "2.0", "id": 1}"#, codes::INVALID_REQUEST),
        (r#"{"jsonrpc": "2.0", "id": 1, "method": "Pay"}"#, codes::METHOD_NOT_FOUND),
        (r#"{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": []}"#, codes::INVALID_PARAMS),
        (r#"{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {}}"#, codes::INVALID_PARAMS),
        (r#"{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}"#, codes::TASK_NOT_FOUND),
        (r#"{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {}}"#, codes::INVALID_PARAMS),
        (
            r#"{"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard", "params": {}}"#,
            codes::EXTENDED_AGENT_CARD_NOT_CONFIGURED,
        ),
    ] {
        let (status, answer) = ask(&agent, "POST", "/a2a", &[], body).await;
        let answer: Json = serde_json::from_str(&answer).unwrap();
        assert_eq!((status, answer["error"]["code"].as_i64()), (200, Some(code)), "{body}");
    }
    for (parts, code) in [
        (json!([]), codes::CONTENT_TYPE_NOT_SUPPORTED),
        (json!([{"data": {"a": 1}}]), codes::CONTENT_TYPE_NOT_SUPPORTED),
    ] {
        let params = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": parts}});
        assert_eq!(call(&agent, "SendMessage", params).await["error"]["code"], code);
    }
    let nameless = json!({"message": {"role": "ROLE_USER", "parts": [{"text": "x"}]}});
    assert_eq!(call(&agent, "SendMessage", nameless).await["error"]["code"], codes::INVALID_PARAMS);
    let body = r#"{"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}"#;
    let (_, answer) = ask(&agent, "POST", "/a2a", &[("a2a-version", "2.0")], body).await;
    assert!(answer.contains(&codes::VERSION_NOT_SUPPORTED.to_string()), "{answer}");
    for (method, path, status) in [
        ("GET", "/a2a", 405),
        ("GET", "/a2a/v2/tasks/x", 404),
        ("POST", "/a2a/rest/tasks/x:pay", 404),
        ("GET", "/a2a/v1/tasks", 404),
    ] {
        assert_eq!(ask(&agent, method, path, &[], "").await.0, status, "{path}");
    }
}

#[tokio::test]
async fn a_stream_goes_on_where_it_broke() {
    let agent = agent(&["start flow greet"]);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": message("m1", "hi")});
    let (_, stream) = ask(&agent, "POST", "/a2a", &[], &body.to_string()).await;
    let cursors: Vec<&str> = stream.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    let events: Vec<Json> =
        stream.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
    assert_eq!((cursors.len(), events.len()), (3, 3), "{stream}");
    let id = events[0]["result"]["task"]["id"].as_str().unwrap();
    let again = json!({"jsonrpc": "2.0", "id": 2, "method": "SubscribeToTask", "params": {"id": id}}).to_string();
    let (_, rest) = ask(&agent, "POST", "/a2a", &[("last-event-id", cursors[0])], &again).await;
    let rest: Vec<&str> = rest.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(rest, cursors[1..], "what was heard is not told again");
    // A cursor of before the last restart is nobody's: the task is told as it stands.
    let (_, whole) = ask(&agent, "POST", "/a2a", &[("last-event-id", "gone-7")], &again).await;
    assert_eq!(whole.lines().filter(|line| line.starts_with("data: ")).count(), 3, "{whole}");
}

#[tokio::test]
async fn a_caller_who_does_not_wait_asks_later() {
    let agent = agent(&["start flow greet"]);
    let mut params = message("m1", "hi");
    params["configuration"] = json!({"returnImmediately": true});
    let task = call(&agent, "SendMessage", params).await["result"]["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_WORKING");
    let id = task["id"].as_str().unwrap();
    agent.0.courses.of(&agent.name_of(id)).unwrap().ended().await.unwrap();
    let task = call(&agent, "GetTask", json!({"id": id})).await["result"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
}

const LONG: &str = "0b8e2a34-6c1f-4a55-9d4f-6f1b5d1c9a01";

#[tokio::test]
async fn a_message_that_comes_again_while_it_runs_is_heard_with_the_task_that_it_began() {
    for context in [Some("c"), None] {
        // The model is asked once: two turns would miss a line.
        let agent = agent(&["start flow greet"]);
        let mut params = message(LONG, "hi");
        params["configuration"] = json!({"returnImmediately": true});
        if let Some(context) = context {
            params["message"]["contextId"] = json!(context);
        }
        let (first, again) =
            tokio::join!(call(&agent, "SendMessage", params.clone()), call(&agent, "SendMessage", params.clone()));
        let (first, again) = (&first["result"]["task"], &again["result"]["task"]);
        assert_eq!(
            (&first["status"]["state"], &again["status"]["state"]),
            (&json!("TASK_STATE_WORKING"), &first["status"]["state"])
        );
        assert_eq!((&first["id"], &first["contextId"]), (&again["id"], &again["contextId"]), "one message, one task");
        let id = first["id"].as_str().unwrap();
        agent.0.courses.of(&agent.name_of(id)).unwrap().ended().await.unwrap();
        // Long after: as before, and by the waiting caller as well.
        let later = call(&agent, "SendMessage", message_in(LONG, "hi", context)).await["result"]["task"].clone();
        assert_eq!((&later["id"], &later["status"]["state"]), (&json!(id), &json!("TASK_STATE_INPUT_REQUIRED")));
        let list = call(&agent, "ListTasks", json!({})).await["result"]["tasks"].clone();
        assert_eq!(list.as_array().map(Vec::len), Some(1), "no other task was ever there: {list}");
    }
    // Ids that anybody may happen to use belong to messages of their own.
    let agent = agent(&["start flow greet", "start flow greet"]);
    assert_ne!(send(&agent, "1", "hi").await["contextId"], send(&agent, "1", "hi").await["contextId"]);
}

#[tokio::test]
async fn a_message_that_comes_again_after_a_restart_is_heard_with_its_task() {
    let store: Arc<dyn crate::store::Store> = Arc::new(crate::store::MemoryStore::new());
    let process = |lines: &[&'static str]| {
        let model = Arc::new(ScriptedLlm::strict(lines.iter().copied()));
        let builder = Assistant::builder_from_texts(FILES).unwrap().model(model).store(store.clone());
        agent_of(&builder.clock(Arc::new(ManualClock::new())).build().unwrap())
    };
    // What the process before left: an accepted message whose turn never ended.
    let before = process(&[]);
    let id = tasks::new_id("c");
    let own = crate::a2a::model::Message::text(crate::a2a::model::Role::User, LONG, "hi");
    let inbound = crate::store::InboxMessage {
        tenant: "".into(),
        account: "".into(),
        conversation: before.conversation_of("c"),
        message: segue_engine::conversation::UserMessage {
            text: "hi".into(),
            message_id: LONG.into(),
            input_channel: NAME.into(),
            metadata: tasks::marked(&id, &own),
        },
        at: before.0.assistant.clock().now(),
        seed: 1,
    };
    store.accept(inbound).await.unwrap();
    let after = process(&["start flow greet"]);
    let task = call(&after, "SendMessage", message_in(LONG, "hi", Some("c"))).await["result"]["task"].clone();
    assert_eq!((&task["id"], &task["status"]["state"]), (&json!(id), &json!("TASK_STATE_INPUT_REQUIRED")), "{task}");
}

#[tokio::test]
async fn a_message_with_too_much_beside_it_is_refused() {
    let agent = agent(&["start flow greet"]);
    let mut params = message("m1", "hi");
    params["message"]["metadata"] = json!({"k": "x".repeat(limits::METADATA)});
    let refused = call(&agent, "SendMessage", params).await;
    assert_eq!(refused["error"]["code"], codes::INVALID_PARAMS, "{refused}");
}

#[tokio::test]
async fn conversations_of_other_channels_are_out_of_reach() {
    let agent = agent(&["start flow greet", "start flow greet"]);
    let incoming = crate::runtime::IncomingMessage::text("ada", "hi", "rest");
    agent.0.assistant.receive(incoming, Box::new(crate::conversation::DiscardReplies)).await.unwrap();
    let mut params = message("m1", "hi");
    params["message"]["contextId"] = json!("ada");
    let task = call(&agent, "SendMessage", params).await["result"]["task"].clone();
    assert_eq!(task["history"].as_array().map(Vec::len), Some(1), "{task}");
    let all = call(&agent, "ListTasks", json!({})).await["result"]["tasks"].clone();
    assert_eq!(all.as_array().map(Vec::len), Some(1), "{all}");
}

#[tokio::test]
async fn without_repair_what_is_not_understood_is_refused() {
    let def = A2aServerDef { include_repair: false, ..def() };
    let agent = agent_with(&def, &["cannot handle"]);
    assert_eq!(send(&agent, "m1", "xyzzy").await["status"]["state"], "TASK_STATE_REJECTED");
}

#[tokio::test]
async fn a_card_of_the_authors_own_gets_the_addresses() {
    let own = json!({"name": "mine", "url": "https://elsewhere.example", "skills": []});
    let def = A2aServerDef { card: Some(own), token: Some("t".into()), ..def() };
    let host = [("host", "127.0.0.1:5005")];
    let (status, card) = ask(&agent_with(&def, &[]), "GET", WELL_KNOWN[0], &host, "").await;
    let card: Json = serde_json::from_str(&card).unwrap();
    assert_eq!((status, &card["name"], &card["url"]), (200, &json!("mine"), &json!("http://127.0.0.1:5005/a2a")));
    assert_eq!(card["supportedInterfaces"].as_array().map(Vec::len), Some(4));
    assert_eq!(card["securitySchemes"]["bearer"]["scheme"], "bearer");
}

#[tokio::test]
async fn callers_that_can_be_told_apart_have_tasks_of_their_own() {
    let secret = "a secret of thirty-two bytes, or more";
    let rules = json!({"issuer": "https://i", "audience": "me", "secret": secret});
    let jwt = Some(segue_engine::project::JwtDef::read(rules.as_object().unwrap()).unwrap());
    let agent = agent_with(&A2aServerDef { jwt, ..def() }, &["start flow greet", "start flow greet"]);
    let asks = async |who: &str, method: &str, params: Json| {
        let bearer = format!("Bearer {}", crate::channels::auth::tests::token_of(who, secret));
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string();
        let (status, answer) = ask(&agent, "POST", "/a2a", &[("authorization", &bearer)], &body).await;
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str::<Json>(answer.strip_prefix("data: ").unwrap_or(&answer).trim()).unwrap()
    };
    let mut hello = message("m1", "hi");
    hello["message"]["contextId"] = json!("c");
    let ada = asks("ada", "SendMessage", hello.clone()).await["result"]["task"].clone();
    let bob = asks("bob", "SendMessage", hello).await["result"]["task"].clone();
    assert_eq!((&ada["contextId"], &bob["contextId"]), (&json!("c"), &json!("c")));
    assert_ne!(ada["id"], bob["id"]);
    let id = &ada["id"];
    assert_eq!(asks("ada", "GetTask", json!({"id": id})).await["result"]["id"], *id);
    for (method, params) in [
        ("GetTask", json!({"id": id})),
        ("CancelTask", json!({"id": id})),
        ("SubscribeToTask", json!({"id": id})),
        ("ListTaskPushNotificationConfigs", json!({"taskId": id})),
        ("CreateTaskPushNotificationConfig", json!({"taskId": id, "url": "https://example.org/x"})),
        (
            "SendMessage",
            json!({"message": {"messageId": "m2", "taskId": id, "role": "ROLE_USER", "parts": [{"text": "x"}]}}),
        ),
    ] {
        let refused = asks("bob", method, params).await;
        assert_eq!(refused["error"]["code"], codes::TASK_NOT_FOUND, "{method}: {refused}");
    }
    for params in [json!({"contextId": "c"}), json!({})] {
        let list = asks("bob", "ListTasks", params).await;
        let ids: Vec<&Json> = list["result"]["tasks"].as_array().unwrap().iter().map(|task| &task["id"]).collect();
        assert_eq!(ids, [&bob["id"]]);
    }
    let (status, answer) = ask(&agent, "POST", "/a2a", &[], "{}").await;
    assert_eq!(status, 401, "{answer}");
    let (_, card) = ask(&agent, "GET", WELL_KNOWN[0], &[], "").await;
    let card: Json = serde_json::from_str(&card).unwrap();
    assert_eq!(card["securitySchemes"]["bearer"]["bearerFormat"], "JWT");
}

#[tokio::test]
async fn where_to_report_is_looked_at() {
    let agent = agent(&["start flow greet"]);
    let task = send(&agent, "m1", "hi").await;
    let set = async |url: &str, id: &str| {
        let params = json!({"taskId": task["id"], "id": id, "url": url, "token": "w"});
        call(&agent, "CreateTaskPushNotificationConfig", params).await
    };
    for bad in ["http://example.org/x", "https://192.168.0.1/", "https://169.254.169.254/latest", "ftp://x", "x"] {
        assert_eq!(set(bad, "a").await["error"]["code"], codes::INVALID_PARAMS, "{bad}");
    }
    let long = format!("https://example.org/{}", "x".repeat(limits::A2A_PUSH));
    assert_eq!(set(&long, "a").await["error"]["code"], codes::INVALID_PARAMS);
    for at in 0..=limits::A2A_PUSHES {
        set("http://127.0.0.1:1/x", &format!("c{at}")).await;
    }
    let all = call(&agent, "ListTaskPushNotificationConfigs", json!({"taskId": task["id"]})).await;
    assert_eq!(all["result"]["configs"].as_array().map(Vec::len), Some(limits::A2A_PUSHES));
    call(&agent, "DeleteTaskPushNotificationConfig", json!({"taskId": task["id"], "id": "c0"})).await;
    let one = call(&agent, "GetTaskPushNotificationConfig", json!({"taskId": task["id"], "id": "c0"})).await;
    assert!(one["error"].is_object(), "{one}");

    let def = A2aServerDef { push: false, ..def() };
    let without = agent_with(&def, &["start flow greet"]);
    let mut params = message("m1", "hi");
    params["configuration"] = json!({"taskPushNotificationConfig": {"url": "https://example.org"}});
    assert_eq!(call(&without, "SendMessage", params).await["error"]["code"], codes::PUSH_NOTIFICATION_NOT_SUPPORTED);
}

#[tokio::test]
async fn credentials_of_a_caller_stand_in_no_event_and_go_with_the_task() {
    let store: Arc<dyn crate::store::Store> = Arc::new(crate::store::MemoryStore::new());
    let clock = ManualClock::new();
    let process = |lines: &[&'static str]| {
        let model = Arc::new(ScriptedLlm::strict(lines.iter().copied()));
        let builder = Assistant::builder_from_texts(FILES).unwrap().model(model).store(store.clone());
        agent_of(&builder.clock(Arc::new(clock.clone())).build().unwrap())
    };
    // Nobody takes the reports: they are given up after a while.
    let closed = async |agent: &A2aServer| {
        let passing = async {
            loop {
                tokio::task::yield_now().await;
                clock.advance(Duration::from_secs(1));
            }
        };
        tokio::select! {
            () = agent.0.assistant.close(Duration::from_secs(3600)) => {}
            () = passing => {}
        }
    };
    let config = json!({
        "url": "http://127.0.0.1:1/x?key=s3cret", "token": "s3cret",
        "authentication": {"scheme": "Bearer", "credentials": "s3cret"},
    });
    let before = process(&["start flow greet"]);
    let mut params = message("m1", "hi");
    params["configuration"] = json!({"taskPushNotificationConfig": config});
    let task = call(&before, "SendMessage", params).await["result"]["task"].clone();
    let id = task["id"].as_str().unwrap();
    call(
        &before,
        "CreateTaskPushNotificationConfig",
        json!({"taskId": id, "id": "two", "url": "http://127.0.0.1:1/y", "token": "s3cret"}),
    )
    .await;
    closed(&before).await;

    let conversation = before.conversation_of(task["contextId"].as_str().unwrap());
    let events = store.turns(&conversation).await.unwrap();
    let stored = store.load(&conversation).await.unwrap();
    for text in [format!("{events:?}"), format!("{:?} {:?}", stored.snapshot, stored.tail)] {
        assert!(text.contains(id) && !text.contains("s3cret") && !text.contains("127.0.0.1"), "{text}");
    }
    let after = process(&["set slot name Ada"]);
    let listed = after.pushes_of(id).await.unwrap();
    assert_eq!(listed.len(), 2, "a restart forgets none");
    let shown = call(&after, "GetTaskPushNotificationConfig", json!({"taskId": id, "id": "two"})).await;
    assert_eq!(shown["result"]["token"], "s3cret", "its owner may see it");
    let name = json!({"message": {"messageId": "m2", "taskId": id, "role": "ROLE_USER", "parts": [{"text": "Ada"}]}});
    let done = call(&after, "SendMessage", name).await["result"]["task"].clone();
    assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED");
    closed(&after).await;
    let kept = store.private_text(&conversation, &format!("a2a push {id}")).await.unwrap();
    assert_eq!(kept, None, "they go with the task");
}

#[tokio::test]
async fn a_report_that_fails_is_tried_a_few_times() {
    let clock = ManualClock::auto_advancing();
    let model = Arc::new(ScriptedLlm::strict(["start flow greet"]));
    let builder = Assistant::builder_from_texts(FILES).unwrap().model(model);
    let assistant = builder.clock(Arc::new(clock.clone())).build().unwrap();
    let agent = agent_of(&assistant);
    let config = push::Config::read(&json!({"url": "http://127.0.0.1:1/x"}), crate::a2a::A2aVersion::V1_0).unwrap();
    let task = Task::new(&tasks::new_id("c"), "c");
    agent.0.pushes.as_ref().unwrap().add(&agent.name_of(&task.id), config);
    agent.report(&task).await;
    // Each try waits for an answer that never comes; between them are the pauses.
    let slept = clock.slept();
    let tries = slept.iter().filter(|wait| **wait == limits::A2A_PUSH_WAIT).count();
    assert!(tries <= limits::A2A_PUSH_TRIES as usize, "{slept:?}");
    assert!(slept.contains(&limits::A2A_PUSH_PAUSE) && slept.contains(&(limits::A2A_PUSH_PAUSE * 2)), "{slept:?}");
}

#[tokio::test]
async fn what_runs_and_what_is_told_is_bounded() {
    let agent = agent(&[]);
    let course = agent.0.courses.begin("t", "", Vec::new()).unwrap_or_else(|_| panic!());
    for _ in 0..limits::A2A_UPDATES + 10 {
        course.tell(course::working("t", "c", None));
    }
    course.end(vec![Update::Task(Task::new("t", "c"))], Ok(Task::new("t", "c")));
    let mut listening = course.listen(None);
    let mut heard = 0;
    while listening.next().await.is_some() {
        heard += 1;
    }
    assert_eq!(heard, limits::A2A_UPDATES + 1, "the end is always told");
    let far = format!("{}{}", course.cursor(0).trim_end_matches('0'), usize::MAX);
    assert!(course.listen(Some(&far)).next().await.is_none(), "a cursor that nobody was given");
    for at in 0..limits::A2A_TASK_RUNS {
        assert!(agent.0.courses.begin(&format!("t{at}"), "", Vec::new()).is_ok());
    }
    assert_eq!(agent.0.courses.running(), limits::A2A_TASK_RUNS);
    assert!(agent.0.courses.of("t").is_none(), "one that ended made room");
    let refused = call(&agent, "SendMessage", message("m1", "hi")).await;
    assert_eq!(refused["error"]["code"], codes::INTERNAL_ERROR, "{refused}");
    let pushes = agent.0.pushes.as_ref().unwrap();
    for at in 0..limits::A2A_TASK_RUNS + 10 {
        pushes.nothing_stored(&format!("t{at}"));
    }
    assert_eq!(pushes.tasks(), limits::A2A_TASK_RUNS);
}

#[test]
fn a_long_history_is_shown_in_part() {
    let mut task = Task::new("t", "c");
    let said = crate::a2a::model::Message::text(crate::a2a::model::Role::User, "m", "x");
    task.history = vec![said; limits::A2A_HISTORY_SHOWN + 5];
    tasks::cut_history(&mut task, None);
    assert_eq!(task.history.len(), limits::A2A_HISTORY_SHOWN);
    tasks::cut_history(&mut task, Some(2));
    assert_eq!(task.history.len(), 2);
}

#[tokio::test]
async fn a_list_is_bounded_and_a_turn_is_read_from_the_newest_events() {
    let agent = agent(&["start flow greet"]);
    let task = send(&agent, "m1", "hi").await;
    let list = call(&agent, "ListTasks", json!({"pageSize": 1_000_000})).await;
    assert_eq!(list["result"]["pageSize"], limits::A2A_LISTED);
    assert_eq!(list["result"]["tasks"][0]["id"], task["id"]);
    let events = agent.0.assistant.store().latest_events(&agent.conversation_of("x"), limits::A2A_EVENTS).await;
    assert!(events.unwrap().is_empty());
    let stored = agent.turns(task["contextId"].as_str().unwrap()).await.unwrap();
    assert!(stored[0].events.len() < limits::A2A_EVENTS);
}

#[tokio::test]
async fn a_list_comes_in_pages_and_shows_each_task_as_it_stands() {
    let lines = ["start flow greet", "set slot name Ada", "start flow greet", "start flow greet", "start flow greet"];
    let agent = agent(&lines);
    let in_c = async |id: &str, task: Option<&Json>| {
        let mut params = message_in(id, "hi", Some("c"));
        if let Some(task) = task {
            params["message"]["taskId"] = task["id"].clone();
        }
        call(&agent, "SendMessage", params).await["result"]["task"].clone()
    };
    let done = in_c("m1", None).await;
    in_c("m2", Some(&done)).await;
    in_c("m3", None).await;
    in_c("m4", None).await;
    send(&agent, "m5", "hi").await;
    let mut listed = Vec::new();
    let mut token = json!("");
    loop {
        let page =
            call(&agent, "ListTasks", json!({"pageSize": 2, "pageToken": token, "historyLength": 9})).await["result"]
                .clone();
        assert_eq!((&page["totalSize"], &page["pageSize"]), (&json!(4), &json!(2)));
        listed.extend(page["tasks"].as_array().unwrap().clone());
        token = page["nextPageToken"].clone();
        if token == "" {
            break;
        }
    }
    assert_eq!(listed.len(), 4, "each once");
    let states: Vec<&str> = listed[1..].iter().map(|task| task["status"]["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_CANCELED", "TASK_STATE_COMPLETED"]);
    for task in &listed {
        let alone = call(&agent, "GetTask", json!({"id": task["id"]})).await["result"].clone();
        assert_eq!((&task["status"], &task["history"]), (&alone["status"], &alone["history"]));
    }
    let wrong = call(&agent, "ListTasks", json!({"pageToken": "x"})).await;
    assert_eq!(wrong["error"]["code"], codes::INVALID_PARAMS);
}

#[tokio::test]
async fn what_a_task_owes_is_done_before_the_assistant_closes() {
    let reports = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", reports.local_addr().unwrap());
    let model = Arc::new(ScriptedLlm::strict(["start flow greet"]));
    let builder = Assistant::builder_from_texts(FILES).unwrap().model(model);
    let assistant = builder.clock(Arc::new(ManualClock::new())).build().unwrap();
    let agent = agent_of(&assistant);
    let mut params = message("m1", "hi");
    params["configuration"] = json!({"returnImmediately": true, "taskPushNotificationConfig": {"url": url}});
    let task = call(&agent, "SendMessage", params).await["result"]["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_WORKING");
    let reported = async {
        let (mut socket, _) = reports.accept().await.unwrap();
        let mut heard = vec![0; 65536];
        let read = tokio::io::AsyncReadExt::read(&mut socket, &mut heard).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut socket, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .await
            .unwrap();
        read
    };
    let ((), heard) = tokio::join!(assistant.close(limits::DRAIN_TIMEOUT), reported);
    assert!(heard > 0);
    let elsewhere = agent_of(&assistant);
    assert_eq!(elsewhere.pushes_of(task["id"].as_str().unwrap()).await.unwrap().len(), 1, "and it is written down");
}

#[test]
fn ids_of_tasks_name_their_context_and_nothing_else_does() {
    let id = tasks::new_id("a.b");
    assert_eq!(tasks::context_of(&id), Some("a.b"));
    assert_ne!(tasks::new_id("a.b"), id);
    for other in ["", "x", "x.y", &id[1..], &format!("{}.", &id[..32])] {
        assert_eq!(tasks::context_of(other), None, "{other}");
    }
    let said = standing::parts(&segue_engine::conversation::Reply::text("x"));
    assert_eq!((said, TaskState::Completed.is_terminal()), (vec![Part::Text("x".into())], true));
}

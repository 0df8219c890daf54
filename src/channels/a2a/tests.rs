//! Tests of the A2A server without a network: cases that the third-party clients of `tests/interop` do not cover.

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

mod store_reads;

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

fn server_with(def: &A2aServerDef, replies: &[&'static str]) -> A2aServer {
    let model = Arc::new(ScriptedLlm::strict(replies.iter().copied()));
    let builder = Assistant::builder_from_texts(FILES).unwrap().model(model);
    let assistant = builder.clock(Arc::new(ManualClock::new())).build().unwrap();
    server_of_with(&assistant, def)
}

/// A server of an assistant, on loopback, with these settings.
fn server_of_with(assistant: &Assistant, def: &A2aServerDef) -> A2aServer {
    A2aServerChannel::new(def, true).unwrap().server(Inbox::new(assistant.clone(), NAME))
}

/// A server of an assistant, with the settings of [`def`].
fn server_of(assistant: &Assistant) -> A2aServer {
    server_of_with(assistant, &def())
}

/// A server whose model gives these replies, one per call.
fn server(replies: &[&'static str]) -> A2aServer {
    server_with(&def(), replies)
}

async fn body_text(response: Response<Body>) -> String {
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn request(server: &A2aServer, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
    let mut builder = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    let request = builder.body(Bytes::from(body.to_owned())).unwrap();
    let response = server.service().oneshot(request).await.unwrap();
    (response.status().as_u16(), body_text(response).await)
}

async fn call(server: &A2aServer, method: &str, params: Json) -> Json {
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string();
    serde_json::from_str(&request(server, "POST", "/a2a", &[], &body).await.1).unwrap()
}

fn message(id: &str, text: &str) -> Json {
    json!({"message": {"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]}})
}

fn message_in_context(id: &str, text: &str, context: Option<&str>) -> Json {
    let mut params = message(id, text);
    if let Some(context) = context {
        params["message"]["contextId"] = json!(context);
    }
    params
}

async fn send(server: &A2aServer, id: &str, text: &str) -> Json {
    call(server, "SendMessage", message(id, text)).await["result"]["task"].clone()
}

#[tokio::test]
async fn invalid_requests_have_the_error_codes_of_the_protocol() {
    let server = server(&[]);
    for (body, code) in [
        ("{", codes::PARSE_ERROR),
        ("[]", codes::INVALID_REQUEST),
        (r#"{"jsonrpc": "1.0", "id": 1, "method": "GetTask"}"#, codes::INVALID_REQUEST),
        (r#"{"jsonrpc": "2.0", "id": {}, "method": "GetTask"}"#, codes::INVALID_REQUEST),
        (r#"{"jsonrpc": "2.0", "id": 1}"#, codes::INVALID_REQUEST),
        (r#"{"jsonrpc": "2.0", "id": 1, "method": "UnknownMethod"}"#, codes::METHOD_NOT_FOUND),
        (r#"{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": []}"#, codes::INVALID_PARAMS),
        (r#"{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {}}"#, codes::INVALID_PARAMS),
        (r#"{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}"#, codes::TASK_NOT_FOUND),
        (r#"{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {}}"#, codes::INVALID_PARAMS),
        (
            r#"{"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard", "params": {}}"#,
            codes::EXTENDED_AGENT_CARD_NOT_CONFIGURED,
        ),
    ] {
        let (status, response) = request(&server, "POST", "/a2a", &[], body).await;
        let response: Json = serde_json::from_str(&response).unwrap();
        assert_eq!((status, response["error"]["code"].as_i64()), (200, Some(code)), "{body}");
    }
    for (parts, code) in [
        (json!([]), codes::CONTENT_TYPE_NOT_SUPPORTED),
        (json!([{"data": {"a": 1}}]), codes::CONTENT_TYPE_NOT_SUPPORTED),
    ] {
        let params = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": parts}});
        assert_eq!(call(&server, "SendMessage", params).await["error"]["code"], code);
    }
    let without_id = json!({"message": {"role": "ROLE_USER", "parts": [{"text": "x"}]}});
    assert_eq!(call(&server, "SendMessage", without_id).await["error"]["code"], codes::INVALID_PARAMS);
    let body = r#"{"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}"#;
    let (_, response) = request(&server, "POST", "/a2a", &[("a2a-version", "2.0")], body).await;
    assert!(response.contains(&codes::VERSION_NOT_SUPPORTED.to_string()), "{response}");
    for (method, path, status) in [
        ("GET", "/a2a", 405),
        ("GET", "/a2a/v2/tasks/x", 404),
        ("POST", "/a2a/rest/tasks/x:unknown", 404),
        ("GET", "/a2a/v1/tasks", 404),
    ] {
        assert_eq!(request(&server, method, path, &[], "").await.0, status, "{path}");
    }
}

#[tokio::test]
async fn broken_stream_is_resumed_after_the_last_event_id() {
    let server = server(&["start flow greet"]);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": message("m1", "hi")});
    let (_, stream) = request(&server, "POST", "/a2a", &[], &body.to_string()).await;
    let event_ids: Vec<&str> = stream.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    let events: Vec<Json> =
        stream.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
    assert_eq!((event_ids.len(), events.len()), (3, 3), "{stream}");
    let id = events[0]["result"]["task"]["id"].as_str().unwrap();
    let subscribe = json!({"jsonrpc": "2.0", "id": 2, "method": "SubscribeToTask", "params": {"id": id}}).to_string();
    let (_, rest) = request(&server, "POST", "/a2a", &[("last-event-id", event_ids[0])], &subscribe).await;
    let rest: Vec<&str> = rest.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(rest, event_ids[1..], "updates that the client has are not repeated");
    // An unknown event id, for example of a previous process: all updates of the run are sent.
    let (_, all) = request(&server, "POST", "/a2a", &[("last-event-id", "gone-7")], &subscribe).await;
    assert_eq!(all.lines().filter(|line| line.starts_with("data: ")).count(), 3, "{all}");
}

#[tokio::test]
async fn non_blocking_caller_gets_a_working_task_and_polls_it() {
    let server = server(&["start flow greet"]);
    let mut params = message("m1", "hi");
    params["configuration"] = json!({"returnImmediately": true});
    let task = call(&server, "SendMessage", params).await["result"]["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_WORKING");
    let id = task["id"].as_str().unwrap();
    server.0.task_runs.latest(&server.task_key(id)).unwrap().wait_for_result().await.unwrap();
    let task = call(&server, "GetTask", json!({"id": id})).await["result"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
}

/// A message id that is long enough to deduplicate a message without a context.
const LONG_ID: &str = "0b8e2a34-6c1f-4a55-9d4f-6f1b5d1c9a01";

#[tokio::test]
async fn duplicate_message_joins_the_running_task_of_the_first_one() {
    for context in [Some("c"), None] {
        // The strict model fails if it is called twice.
        let server = server(&["start flow greet"]);
        let mut params = message(LONG_ID, "hi");
        params["configuration"] = json!({"returnImmediately": true});
        if let Some(context) = context {
            params["message"]["contextId"] = json!(context);
        }
        let (first, duplicate) =
            tokio::join!(call(&server, "SendMessage", params.clone()), call(&server, "SendMessage", params.clone()));
        let (first, duplicate) = (&first["result"]["task"], &duplicate["result"]["task"]);
        assert_eq!(
            (&first["status"]["state"], &duplicate["status"]["state"]),
            (&json!("TASK_STATE_WORKING"), &first["status"]["state"])
        );
        assert_eq!(
            (&first["id"], &first["contextId"]),
            (&duplicate["id"], &duplicate["contextId"]),
            "one message, one task"
        );
        let id = first["id"].as_str().unwrap();
        server.0.task_runs.latest(&server.task_key(id)).unwrap().wait_for_result().await.unwrap();
        // After the end of the turn, a duplicate gets the same task.
        let later =
            call(&server, "SendMessage", message_in_context(LONG_ID, "hi", context)).await["result"]["task"].clone();
        assert_eq!((&later["id"], &later["status"]["state"]), (&json!(id), &json!("TASK_STATE_INPUT_REQUIRED")));
        let list = call(&server, "ListTasks", json!({})).await["result"]["tasks"].clone();
        assert_eq!(list.as_array().map(Vec::len), Some(1), "there is only one task: {list}");
    }
    // Short ids are not unique: two messages with the same one are different messages.
    let server = server(&["start flow greet", "start flow greet"]);
    assert_ne!(send(&server, "1", "hi").await["contextId"], send(&server, "1", "hi").await["contextId"]);
}

#[tokio::test]
async fn message_sent_again_after_a_restart_continues_its_task() {
    let store: Arc<dyn crate::store::Store> = Arc::new(crate::store::MemoryStore::new());
    let start_process = |replies: &[&'static str]| {
        let model = Arc::new(ScriptedLlm::strict(replies.iter().copied()));
        let builder = Assistant::builder_from_texts(FILES).unwrap().model(model).store(store.clone());
        server_of(&builder.clock(Arc::new(ManualClock::new())).build().unwrap())
    };
    // The previous process has accepted a message and stopped before the end of its turn.
    let before = start_process(&[]);
    let id = tasks::new_id("c");
    let message = crate::a2a::model::Message::text(crate::a2a::model::Role::User, LONG_ID, "hi");
    let inbound = crate::store::InboxMessage {
        tenant: "".into(),
        account: "".into(),
        conversation: before.conversation_id("c"),
        message: segue_engine::conversation::UserMessage {
            via: "".into(),
            holds_writes: false,
            before_question: false,
            text: "hi".into(),
            message_id: LONG_ID.into(),
            input_channel: NAME.into(),
            metadata: tasks::message_metadata(&id, &message),
        },
        at: before.0.assistant.clock().now(),
        seed: 1,
    };
    store.accept(inbound).await.unwrap();
    let after = start_process(&["start flow greet"]);
    let task =
        call(&after, "SendMessage", message_in_context(LONG_ID, "hi", Some("c"))).await["result"]["task"].clone();
    assert_eq!((&task["id"], &task["status"]["state"]), (&json!(id), &json!("TASK_STATE_INPUT_REQUIRED")), "{task}");
}

#[tokio::test]
async fn metadata_beyond_the_limit_is_rejected() {
    let server = server(&["start flow greet"]);
    let mut params = message("m1", "hi");
    params["message"]["metadata"] = json!({"k": "x".repeat(limits::METADATA)});
    let response = call(&server, "SendMessage", params).await;
    assert_eq!(response["error"]["code"], codes::INVALID_PARAMS, "{response}");
}

#[tokio::test]
async fn conversations_of_other_channels_cannot_be_reached() {
    let server = server(&["start flow greet", "start flow greet"]);
    let incoming = crate::runtime::IncomingMessage::new("ada", "hi").input_channel("rest");
    server.0.assistant.receive(incoming, Box::new(crate::conversation::DiscardReplies)).await.unwrap();
    let mut params = message("m1", "hi");
    params["message"]["contextId"] = json!("ada");
    let task = call(&server, "SendMessage", params).await["result"]["task"].clone();
    assert_eq!(task["history"].as_array().map(Vec::len), Some(1), "{task}");
    let all = call(&server, "ListTasks", json!({})).await["result"]["tasks"].clone();
    assert_eq!(all.as_array().map(Vec::len), Some(1), "{all}");
}

#[tokio::test]
async fn message_that_is_not_understood_is_rejected_without_conversation_repair() {
    let def = A2aServerDef { include_repair: false, ..def() };
    let server = server_with(&def, &["cannot handle"]);
    assert_eq!(send(&server, "m1", "xyzzy").await["status"]["state"], "TASK_STATE_REJECTED");
}

#[tokio::test]
async fn configured_agent_card_gets_the_urls_of_the_server() {
    let card = json!({"name": "mine", "url": "https://elsewhere.example", "skills": []});
    let def = A2aServerDef { card: Some(card), token: Some("t".into()), ..def() };
    let host = [("host", "127.0.0.1:5005")];
    let (status, card) = request(&server_with(&def, &[]), "GET", WELL_KNOWN[0], &host, "").await;
    let card: Json = serde_json::from_str(&card).unwrap();
    assert_eq!((status, &card["name"], &card["url"]), (200, &json!("mine"), &json!("http://127.0.0.1:5005/a2a")));
    assert_eq!(card["supportedInterfaces"].as_array().map(Vec::len), Some(4));
    assert_eq!(card["securitySchemes"]["bearer"]["scheme"], "bearer");
}

#[tokio::test]
async fn authenticated_callers_have_separate_tasks() {
    let secret = "a secret of thirty-two bytes, or more";
    let settings = json!({"issuer": "https://i", "audience": "me", "secret": secret});
    let jwt = Some(segue_engine::project::JwtDef::read(settings.as_object().unwrap()).unwrap());
    let server = server_with(&A2aServerDef { jwt, ..def() }, &["start flow greet", "start flow greet"]);
    let call_as = async |who: &str, method: &str, params: Json| {
        let bearer = format!("Bearer {}", crate::channels::auth::tests::signed_token(who, secret));
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string();
        let (status, response) = request(&server, "POST", "/a2a", &[("authorization", &bearer)], &body).await;
        assert_eq!(status, 200, "{response}");
        serde_json::from_str::<Json>(response.strip_prefix("data: ").unwrap_or(&response).trim()).unwrap()
    };
    let mut hello = message("m1", "hi");
    hello["message"]["contextId"] = json!("c");
    let ada = call_as("ada", "SendMessage", hello.clone()).await["result"]["task"].clone();
    let bob = call_as("bob", "SendMessage", hello).await["result"]["task"].clone();
    assert_eq!((&ada["contextId"], &bob["contextId"]), (&json!("c"), &json!("c")));
    assert_ne!(ada["id"], bob["id"]);
    let id = &ada["id"];
    assert_eq!(call_as("ada", "GetTask", json!({"id": id})).await["result"]["id"], *id);
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
        let response = call_as("bob", method, params).await;
        assert_eq!(response["error"]["code"], codes::TASK_NOT_FOUND, "{method}: {response}");
    }
    for params in [json!({"contextId": "c"}), json!({})] {
        let list = call_as("bob", "ListTasks", params).await;
        let ids: Vec<&Json> = list["result"]["tasks"].as_array().unwrap().iter().map(|task| &task["id"]).collect();
        assert_eq!(ids, [&bob["id"]]);
    }
    let (status, response) = request(&server, "POST", "/a2a", &[], "{}").await;
    assert_eq!(status, 401, "{response}");
    let (_, card) = request(&server, "GET", WELL_KNOWN[0], &[], "").await;
    let card: Json = serde_json::from_str(&card).unwrap();
    assert_eq!(card["securitySchemes"]["bearer"]["bearerFormat"], "JWT");
}

#[tokio::test]
async fn push_urls_and_their_number_are_checked() {
    let server = server(&["start flow greet"]);
    let task = send(&server, "m1", "hi").await;
    let set_url = async |url: &str, id: &str| {
        let params = json!({"taskId": task["id"], "id": id, "url": url, "token": "w"});
        call(&server, "CreateTaskPushNotificationConfig", params).await
    };
    for invalid in ["http://example.org/x", "https://192.168.0.1/", "https://169.254.169.254/latest", "ftp://x", "x"] {
        assert_eq!(set_url(invalid, "a").await["error"]["code"], codes::INVALID_PARAMS, "{invalid}");
    }
    let long = format!("https://example.org/{}", "x".repeat(limits::A2A_PUSH));
    assert_eq!(set_url(&long, "a").await["error"]["code"], codes::INVALID_PARAMS);
    for index in 0..=limits::A2A_PUSHES {
        set_url("http://127.0.0.1:1/x", &format!("c{index}")).await;
    }
    let all = call(&server, "ListTaskPushNotificationConfigs", json!({"taskId": task["id"]})).await;
    assert_eq!(all["result"]["configs"].as_array().map(Vec::len), Some(limits::A2A_PUSHES));
    call(&server, "DeleteTaskPushNotificationConfig", json!({"taskId": task["id"], "id": "c0"})).await;
    let removed = call(&server, "GetTaskPushNotificationConfig", json!({"taskId": task["id"], "id": "c0"})).await;
    assert!(removed["error"].is_object(), "{removed}");

    let def = A2aServerDef { push: false, ..def() };
    let without = server_with(&def, &["start flow greet"]);
    let mut params = message("m1", "hi");
    params["configuration"] = json!({"taskPushNotificationConfig": {"url": "https://example.org"}});
    assert_eq!(call(&without, "SendMessage", params).await["error"]["code"], codes::PUSH_NOTIFICATION_NOT_SUPPORTED);
}

#[tokio::test]
async fn push_credentials_are_in_no_event_and_are_deleted_with_the_task() {
    let store: Arc<dyn crate::store::Store> = Arc::new(crate::store::MemoryStore::new());
    let clock = ManualClock::new();
    let start_process = |replies: &[&'static str]| {
        let model = Arc::new(ScriptedLlm::strict(replies.iter().copied()));
        let builder = Assistant::builder_from_texts(FILES).unwrap().model(model).store(store.clone());
        server_of(&builder.clock(Arc::new(clock.clone())).build().unwrap())
    };
    // No receiver accepts the notifications, so they fail after their attempts.
    let close = async |server: &A2aServer| {
        let advance_time = async {
            loop {
                tokio::task::yield_now().await;
                clock.advance(Duration::from_secs(1));
            }
        };
        tokio::select! {
            () = server.0.assistant.close(Duration::from_secs(3600)) => {}
            () = advance_time => {}
        }
    };
    let config = json!({
        "url": "http://127.0.0.1:1/x?key=s3cret", "token": "s3cret",
        "authentication": {"scheme": "Bearer", "credentials": "s3cret"},
    });
    let before = start_process(&["start flow greet"]);
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
    close(&before).await;

    let conversation = before.conversation_id(task["contextId"].as_str().unwrap());
    let events = store.turns(&conversation).await.unwrap();
    let stored = store.load(&conversation).await.unwrap();
    for text in [format!("{events:?}"), format!("{:?} {:?}", stored.snapshot, stored.tail)] {
        assert!(text.contains(id) && !text.contains("s3cret") && !text.contains("127.0.0.1"), "{text}");
    }
    let after = start_process(&["set slot name Ada"]);
    let listed = after.push_configs(id).await.unwrap();
    assert_eq!(listed.len(), 2, "they survive a restart");
    let setting = call(&after, "GetTaskPushNotificationConfig", json!({"taskId": id, "id": "two"})).await;
    assert_eq!(setting["result"]["token"], "s3cret", "the caller may read its own token");
    let name = json!({"message": {"messageId": "m2", "taskId": id, "role": "ROLE_USER", "parts": [{"text": "Ada"}]}});
    let done = call(&after, "SendMessage", name).await["result"]["task"].clone();
    assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED");
    close(&after).await;
    let stored = store.private_text(&conversation, &format!("a2a push {id}")).await.unwrap();
    assert_eq!(stored, None, "they are deleted when the task has ended");
}

#[tokio::test]
async fn failed_push_notification_is_retried_a_few_times() {
    let clock = ManualClock::auto_advancing();
    let model = Arc::new(ScriptedLlm::strict(["start flow greet"]));
    let builder = Assistant::builder_from_texts(FILES).unwrap().model(model);
    let assistant = builder.clock(Arc::new(clock.clone())).build().unwrap();
    let server = server_of(&assistant);
    let config =
        push::PushConfig::from_json(&json!({"url": "http://127.0.0.1:1/x"}), crate::a2a::A2aVersion::V1_0).unwrap();
    let task = Task::new(&tasks::new_id("c"), "c");
    server.0.push.as_ref().unwrap().add(&server.task_key(&task.id), config);
    server.notify(&task).await;
    // Each attempt may wait for a response; between attempts are the pauses.
    let slept = clock.slept();
    let attempts = slept.iter().filter(|wait| **wait == limits::A2A_PUSH_WAIT).count();
    assert!(attempts <= limits::A2A_PUSH_TRIES as usize, "{slept:?}");
    assert!(slept.contains(&limits::A2A_PUSH_PAUSE) && slept.contains(&(limits::A2A_PUSH_PAUSE * 2)), "{slept:?}");
}

#[tokio::test]
async fn running_tasks_updates_and_cached_push_settings_are_limited() {
    let server = server(&[]);
    let run = server.0.task_runs.start("t", "", Vec::new()).unwrap_or_else(|_| panic!());
    for _ in 0..limits::A2A_UPDATES + 10 {
        run.publish(task_run::working_update("t", "c", None));
    }
    run.finish(vec![Update::Task(Task::new("t", "c"))], Ok(Task::new("t", "c")));
    let mut updates = run.subscribe(None);
    let mut received = 0;
    while updates.next().await.is_some() {
        received += 1;
    }
    assert_eq!(received, limits::A2A_UPDATES + 1, "the last update is always sent");
    let invalid = format!("{}{}", run.event_id(0).trim_end_matches('0'), usize::MAX);
    assert!(run.subscribe(Some(&invalid)).next().await.is_none(), "an event id beyond the last update");
    for index in 0..limits::A2A_TASK_RUNS {
        assert!(server.0.task_runs.start(&format!("t{index}"), "", Vec::new()).is_ok());
    }
    assert_eq!(server.0.task_runs.running_count(), limits::A2A_TASK_RUNS);
    assert!(server.0.task_runs.latest("t").is_none(), "the finished run has been removed");
    let response = call(&server, "SendMessage", message("m1", "hi")).await;
    assert_eq!(response["error"]["code"], codes::INTERNAL_ERROR, "{response}");
    let push = server.0.push.as_ref().unwrap();
    for index in 0..limits::A2A_TASK_RUNS + 10 {
        push.add_new_task(&format!("t{index}"));
    }
    assert_eq!(push.cached_tasks(), limits::A2A_TASK_RUNS);
}

#[test]
fn long_history_is_truncated_in_responses() {
    let mut task = Task::new("t", "c");
    let message = crate::a2a::model::Message::text(crate::a2a::model::Role::User, "m", "x");
    task.history = vec![message; limits::A2A_HISTORY_SHOWN + 5];
    tasks::truncate_history(&mut task, None);
    assert_eq!(task.history.len(), limits::A2A_HISTORY_SHOWN);
    tasks::truncate_history(&mut task, Some(2));
    assert_eq!(task.history.len(), 2);
}

#[tokio::test]
async fn list_of_tasks_is_limited_and_a_turn_fits_into_the_newest_events() {
    let server = server(&["start flow greet"]);
    let task = send(&server, "m1", "hi").await;
    let list = call(&server, "ListTasks", json!({"pageSize": 1_000_000})).await;
    assert_eq!(list["result"]["pageSize"], limits::A2A_LISTED);
    assert_eq!(list["result"]["tasks"][0]["id"], task["id"]);
    let events = server.0.assistant.store().latest_events(&server.conversation_id("x"), limits::A2A_EVENTS).await;
    assert!(events.unwrap().is_empty());
    let stored = server.turns(task["contextId"].as_str().unwrap()).await.unwrap();
    assert!(stored[0].events.len() < limits::A2A_EVENTS);
}

#[tokio::test]
async fn list_of_tasks_is_paged_and_each_task_equals_the_one_read_alone() {
    let replies = ["start flow greet", "set slot name Ada", "start flow greet", "start flow greet", "start flow greet"];
    let server = server(&replies);
    let send_in_context = async |id: &str, task: Option<&Json>| {
        let mut params = message_in_context(id, "hi", Some("c"));
        if let Some(task) = task {
            params["message"]["taskId"] = task["id"].clone();
        }
        call(&server, "SendMessage", params).await["result"]["task"].clone()
    };
    let done = send_in_context("m1", None).await;
    send_in_context("m2", Some(&done)).await;
    send_in_context("m3", None).await;
    send_in_context("m4", None).await;
    send(&server, "m5", "hi").await;
    let mut listed = Vec::new();
    let mut token = json!("");
    loop {
        let page =
            call(&server, "ListTasks", json!({"pageSize": 2, "pageToken": token, "historyLength": 9})).await["result"]
                .clone();
        assert_eq!((&page["totalSize"], &page["pageSize"]), (&json!(4), &json!(2)));
        listed.extend(page["tasks"].as_array().unwrap().clone());
        token = page["nextPageToken"].clone();
        if token == "" {
            break;
        }
    }
    assert_eq!(listed.len(), 4, "each task appears once");
    let states: Vec<&str> = listed[1..].iter().map(|task| task["status"]["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_CANCELED", "TASK_STATE_COMPLETED"]);
    for task in &listed {
        let read = call(&server, "GetTask", json!({"id": task["id"]})).await["result"].clone();
        assert_eq!((&task["status"], &task["history"]), (&read["status"], &read["history"]));
    }
    let invalid = call(&server, "ListTasks", json!({"pageToken": "x"})).await;
    assert_eq!(invalid["error"]["code"], codes::INVALID_PARAMS);
}

#[tokio::test]
async fn push_notification_is_sent_before_the_assistant_closes() {
    let receiver = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", receiver.local_addr().unwrap());
    let model = Arc::new(ScriptedLlm::strict(["start flow greet"]));
    let builder = Assistant::builder_from_texts(FILES).unwrap().model(model);
    let assistant = builder.clock(Arc::new(ManualClock::new())).build().unwrap();
    let server = server_of(&assistant);
    let mut params = message("m1", "hi");
    params["configuration"] = json!({"returnImmediately": true, "taskPushNotificationConfig": {"url": url}});
    let task = call(&server, "SendMessage", params).await["result"]["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_WORKING");
    let receive = async {
        let (mut socket, _) = receiver.accept().await.unwrap();
        let mut bytes = vec![0; 65536];
        let read = tokio::io::AsyncReadExt::read(&mut socket, &mut bytes).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut socket, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .await
            .unwrap();
        read
    };
    let ((), received) = tokio::join!(assistant.close(limits::DRAIN_TIMEOUT), receive);
    assert!(received > 0);
    let other = server_of(&assistant);
    assert_eq!(other.push_configs(task["id"].as_str().unwrap()).await.unwrap().len(), 1, "the setting is stored");
}

#[test]
fn task_id_contains_its_context_and_other_ids_are_invalid() {
    let id = tasks::new_id("a.b");
    assert_eq!(tasks::context_of(&id), Some("a.b"));
    assert_ne!(tasks::new_id("a.b"), id);
    for other in ["", "x", "x.y", &id[1..], &format!("{}.", &id[..32])] {
        assert_eq!(tasks::context_of(other), None, "{other}");
    }
    let parts = task_result::parts_of_reply(&segue_engine::conversation::Reply::text("x"));
    assert_eq!((parts, TaskState::Completed.is_terminal()), (vec![Part::Text("x".into())], true));
}

//! Questions put to the person: by the host's form in the middle of a call, or between two calls.

use std::collections::BTreeMap;

use rmcp::{
    model::{CallToolResponse, InputRequest, InputRequiredResult, ProtocolVersion},
    service::{ClientLifecycleMode, ClientServiceExt},
};

use super::*;

fn asking() -> McpServerSettings {
    McpServerSettings { elicits: true, ..McpServerSettings::default() }
}

#[tokio::test]
async fn questions_that_follow_each_other_are_one_form_and_a_confirmation_is_its_own() {
    let server = serving(&assistant(&[]), asking());
    let host = Host::default();
    *host.answers.lock().unwrap() = vec![json!({"size": "small", "count": 2}), json!({"sure": true})];
    let client = at(&server, host.clone()).await;
    let done = call(&client, "order", json!({})).await;
    assert!(texts(&done).contains("Sent.") && data(&done)["waiting_for_input"] == false, "{done:?}");
    assert!(!texts(&done).contains("How many?"), "what the form has answered was not asked: {done:?}");
    let asked = host.asked.lock().unwrap().clone();
    let words: Vec<&str> = asked.iter().map(|(words, _)| words.as_str()).collect();
    assert!(words.len() == 2 && words[0] == "Which size?" && words[1].starts_with("Send 2"), "{words:?}");
    let form = &asked[0].1;
    let choices = json!([{"const": "small", "title": "Small"}, {"const": "large", "title": "large"}]);
    assert_eq!(form["properties"]["size"], json!({"type": "string", "oneOf": choices}));
    assert_eq!(form["properties"]["count"]["description"], "How many?");
    assert_eq!(form["required"], json!(["size"]), "the others may wait");
    // Nobody answers: the call ends where it would have without asking.
    let open = call(&client, "order", json!({})).await;
    assert_eq!(data(&open)["question"]["slot"], "size");
    let without = at(&server, Host { cannot_ask: true, ..Host::default() }).await;
    assert_eq!(data(&call(&without, "order", json!({})).await)["waiting_for_input"], true);
}

#[tokio::test]
async fn what_is_left_empty_is_asked_by_itself_and_what_is_refused_is_asked_again() {
    let server = serving(&assistant(&[]), asking());
    let host = Host::default();
    *host.answers.lock().unwrap() =
        vec![json!({"size": "huge", "count": 3}), json!({"size": "large"}), json!({"count": 4}), json!({"sure": true})];
    let done = call(&at(&server, host.clone()).await, "order", json!({})).await;
    assert!(texts(&done).contains("Sent."), "{done:?}");
    let asked = host.asked.lock().unwrap().clone();
    assert_eq!(asked[1].1["properties"]["count"]["default"], 3.0, "what was written need not be written again");
    assert!(asked[2].1["properties"].get("size").is_none() && asked[3].0.starts_with("Send 4"), "{asked:?}");
}

#[tokio::test]
async fn a_suggestion_is_a_field_with_its_default() {
    let server = serving(&assistant(&[]), asking());
    let host = Host::default();
    *host.answers.lock().unwrap() = vec![json!({"pace": "fast", "note": "with care"})];
    let done = call(&at(&server, host.clone()).await, "notes", json!({})).await;
    assert!(texts(&done).contains("with care, fast"), "{done:?}");
    let asked = host.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].1["properties"]["note"]["default"], "no");
    assert_eq!(asked[0].1["properties"]["pace"]["oneOf"][1], json!({"const": "fast", "title": "At once"}));
}

/// A host of the revision without sessions, and its server.
async fn newer(server: &Arc<McpServerState>) -> Client {
    let (here, there) = tokio::io::duplex(64 * 1024);
    let server = server.clone();
    tokio::spawn(async move { server.serve(tokio::io::split(there), CancellationToken::new()).await });
    let versions = vec![ProtocolVersion::V_2026_07_28];
    let mode = ClientLifecycleMode::Discover { preferred_versions: versions };
    Host::default().serve_with_lifecycle(here, mode).await.unwrap()
}

/// What a call waits for.
async fn waits(client: &Client, params: CallToolRequestParams) -> InputRequiredResult {
    match client.call_tool_once(params).await.unwrap() {
        CallToolResponse::InputRequired(waits) => waits,
        other => panic!("{other:?}"),
    }
}

async fn done(client: &Client, params: CallToolRequestParams) -> CallToolResult {
    match client.call_tool_once(params).await.unwrap() {
        CallToolResponse::Complete(done) => done,
        other => panic!("{other:?}"),
    }
}

/// The step that asks, the words, and the names of the fields.
fn asked(waits: &InputRequiredResult) -> (String, String, Vec<String>) {
    let (step, request) = waits.input_requests.as_ref().unwrap().first_key_value().unwrap();
    let InputRequest::Elicitation(request) = request else { panic!("{request:?}") };
    let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = &request.params else {
        panic!()
    };
    (step.clone(), message.clone(), requested_schema.properties.keys().cloned().collect())
}

/// The same call again, with an answer.
fn again(tool: &str, waits: &InputRequiredResult, answer: Json) -> CallToolRequestParams {
    let (step, ..) = asked(waits);
    let mut params = params(tool, json!({}), "").with_input_responses(BTreeMap::from([(step, answer)]));
    params.request_state = waits.request_state.clone();
    params
}

fn accept(values: Json) -> Json {
    json!({"action": "accept", "content": values})
}

#[tokio::test]
async fn without_a_session_a_call_waits_for_input_and_goes_on_when_it_is_called_again() {
    let assistant = assistant(&[]);
    let server = serving(&assistant, asking());
    let client = newer(&server).await;
    let first = waits(&client, params("order", json!({}), "")).await;
    let (_, words, fields) = asked(&first);
    assert_eq!((words.as_str(), fields), ("Which size?", vec!["count".to_owned(), "size".to_owned()]));
    // Another connection, as another process would be.
    let other = newer(&serving(&assistant, asking())).await;
    let second = waits(&other, again("order", &first, accept(json!({"size": "small", "count": 2})))).await;
    assert!(asked(&second).1.starts_with("Send 2"), "{second:?}");
    assert_ne!(second.request_state, first.request_state);
    let last = done(&client, again("order", &second, accept(json!({"sure": true})))).await;
    assert!(texts(&last).starts_with("Sent."), "{last:?}");
    // The answer got lost: the same call again does nothing, and is told where things stand.
    let repeated = done(&client, again("order", &second, accept(json!({"sure": true})))).await;
    assert!(texts(&repeated).starts_with("Sent.") && data(&repeated)["repeated"] == true, "{repeated:?}");
    let talk = talk(&repeated).into();
    assert_eq!(assistant.store().turns(&talk).await.unwrap().len(), 4, "begun, two fields, the confirmation");
}

#[tokio::test]
async fn an_answer_that_is_missing_is_asked_for_again_and_one_that_is_declined_ends_the_call() {
    let client = newer(&serving(&assistant(&[]), asking())).await;
    let first = waits(&client, params("order", json!({}), "")).await;
    let mut empty = again("order", &first, accept(json!({"size": "small"})));
    empty.input_responses = Some(BTreeMap::from([("other".to_owned(), accept(json!({})))]));
    let same = waits(&client, empty).await;
    assert_eq!((asked(&same), &same.request_state), (asked(&first), &first.request_state));
    let declined = done(&client, again("order", &same, json!({"action": "decline"}))).await;
    assert_eq!(data(&declined)["question"]["slot"], "size");
}

#[tokio::test]
async fn a_state_that_was_changed_or_an_answer_that_is_none_is_an_error() {
    let client = newer(&serving(&assistant(&[]), asking())).await;
    let first = waits(&client, params("order", json!({}), "")).await;
    let mut changed = again("order", &first, accept(json!({"size": "small"})));
    changed.request_state = changed.request_state.map(|state| state + "x");
    assert!(client.call_tool_once(changed).await.is_err());
    assert!(client.call_tool_once(again("greet", &first, accept(json!({})))).await.is_err(), "another tool");
    assert!(client.call_tool_once(again("order", &first, json!(12345))).await.is_err());
}

#[tokio::test]
async fn what_is_known_before_it_is_asked_counts_unless_it_is_a_confirmation() {
    let client = newer(&serving(&assistant(&["start flow notes"]), asking())).await;
    let given = BTreeMap::from([("how".to_owned(), accept(json!({"pace": "fast", "note": "nothing"})))]);
    let open = done(&client, params("notes", json!({}), "").with_input_responses(given)).await;
    assert!(texts(&open).contains("nothing, fast"), "{open:?}");
    let sure = BTreeMap::from([("order_2_collect_sure".to_owned(), accept(json!({"sure": true})))]);
    let known = params("order", json!({"size": "small", "count": 1}), "").with_input_responses(sure);
    let first = waits(&client, known).await;
    assert_eq!(asked(&first).0, "order_2_collect_sure", "a person has to see what they confirm");
}

#[tokio::test]
async fn without_a_form_the_question_is_the_answer() {
    let client = newer(&serving(&assistant(&[]), McpServerSettings::default())).await;
    let open = done(&client, params("order", json!({}), "")).await;
    assert_eq!(data(&open)["question"]["slot"], "size", "nobody wished for forms");
}

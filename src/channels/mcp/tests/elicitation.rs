//! Elicitation: a form during a call, or between two calls where the protocol has no sessions.

use std::collections::BTreeMap;

use rmcp::{
    model::{CallToolResponse, InputRequest, InputRequiredResult, ProtocolVersion},
    service::{ClientLifecycleMode, ClientServiceExt},
};

use super::*;

fn eliciting() -> McpServerSettings {
    McpServerSettings { elicits: true, ..McpServerSettings::default() }
}

#[tokio::test]
async fn consecutive_questions_share_a_form_and_a_confirmation_has_its_own() {
    let server = mcp_server(&assistant(&[]), eliciting());
    let host = Host::default();
    *host.answers.lock().unwrap() = vec![json!({"size": "small", "count": 2}), json!({"sure": true})];
    let client = connect(&server, host.clone()).await;
    let done = call(&client, "order", json!({})).await;
    assert!(texts(&done).contains("Sent.") && data(&done)["waiting_for_input"] == false, "{done:?}");
    assert!(!texts(&done).contains("How many?"), "questions that a form has shown are not in the result: {done:?}");
    let forms = host.forms.lock().unwrap().clone();
    let messages: Vec<&str> = forms.iter().map(|(message, _)| message.as_str()).collect();
    assert!(messages.len() == 2 && messages[0] == "Which size?" && messages[1].starts_with("Send 2"), "{messages:?}");
    let form = &forms[0].1;
    let choices = json!([{"const": "small", "title": "Small"}, {"const": "large", "title": "large"}]);
    assert_eq!(form["properties"]["size"], json!({"type": "string", "oneOf": choices}));
    assert_eq!(form["properties"]["count"]["description"], "How many?");
    assert_eq!(form["required"], json!(["size"]), "other questions may stay open");
    // The host declines: the call ends with the question, as without elicitation.
    let open = call(&client, "order", json!({})).await;
    assert_eq!(data(&open)["question"]["slot"], "size");
    let without = connect(&server, Host { has_no_elicitation: true, ..Host::default() }).await;
    assert_eq!(data(&call(&without, "order", json!({})).await)["waiting_for_input"], true);
}

#[tokio::test]
async fn empty_and_refused_fields_are_asked_again() {
    let server = mcp_server(&assistant(&[]), eliciting());
    let host = Host::default();
    *host.answers.lock().unwrap() =
        vec![json!({"size": "huge", "count": 3}), json!({"size": "large"}), json!({"count": 4}), json!({"sure": true})];
    let done = call(&connect(&server, host.clone()).await, "order", json!({})).await;
    assert!(texts(&done).contains("Sent."), "{done:?}");
    let forms = host.forms.lock().unwrap().clone();
    assert_eq!(forms[1].1["properties"]["count"]["default"], 3.0, "an earlier answer is the default");
    assert!(forms[2].1["properties"].get("size").is_none() && forms[3].0.starts_with("Send 4"), "{forms:?}");
}

#[tokio::test]
async fn initial_value_of_a_slot_is_the_default_of_its_field() {
    let server = mcp_server(&assistant(&[]), eliciting());
    let host = Host::default();
    *host.answers.lock().unwrap() = vec![json!({"pace": "fast", "note": "with care"})];
    let done = call(&connect(&server, host.clone()).await, "notes", json!({})).await;
    assert!(texts(&done).contains("with care, fast"), "{done:?}");
    let forms = host.forms.lock().unwrap().clone();
    assert_eq!(forms.len(), 1);
    assert_eq!(forms[0].1["properties"]["note"]["default"], "no");
    assert_eq!(forms[0].1["properties"]["pace"]["oneOf"][1], json!({"const": "fast", "title": "At once"}));
}

/// A host that speaks MCP 2026-07-28, which has no sessions.
async fn connect_sessionless(server: &Arc<McpServerState>) -> Client {
    let (client_end, server_end) = tokio::io::duplex(64 * 1024);
    let server = server.clone();
    tokio::spawn(async move { server.serve(tokio::io::split(server_end), CancellationToken::new()).await });
    let versions = vec![ProtocolVersion::V_2026_07_28];
    let mode = ClientLifecycleMode::Discover { preferred_versions: versions };
    Host::default().serve_with_lifecycle(client_end, mode).await.unwrap()
}

/// Calls a tool that asks for input.
async fn call_for_input(client: &Client, params: CallToolRequestParams) -> InputRequiredResult {
    match client.call_tool_once(params).await.unwrap() {
        CallToolResponse::InputRequired(required) => required,
        other => panic!("{other:?}"),
    }
}

/// Calls a tool that returns its result.
async fn call_for_result(client: &Client, params: CallToolRequestParams) -> CallToolResult {
    match client.call_tool_once(params).await.unwrap() {
        CallToolResponse::Complete(result) => result,
        other => panic!("{other:?}"),
    }
}

/// The step that asks, the message of the form, and the names of its fields.
fn form_of(required: &InputRequiredResult) -> (String, String, Vec<String>) {
    let (step, request) = required.input_requests.as_ref().unwrap().first_key_value().unwrap();
    let InputRequest::Elicitation(request) = request else { panic!("{request:?}") };
    let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = &request.params else {
        panic!()
    };
    (step.clone(), message.clone(), requested_schema.properties.keys().cloned().collect())
}

/// The call that follows a request for input, with the answer.
fn with_answer(tool: &str, required: &InputRequiredResult, answer: Json) -> CallToolRequestParams {
    let (step, ..) = form_of(required);
    let mut params = params(tool, json!({}), "").with_input_responses(BTreeMap::from([(step, answer)]));
    params.request_state = required.request_state.clone();
    params
}

fn accept(values: Json) -> Json {
    json!({"action": "accept", "content": values})
}

#[tokio::test]
async fn sessionless_call_resumes_with_request_state_and_a_repeated_answer_runs_no_turn() {
    let assistant = assistant(&[]);
    let server = mcp_server(&assistant, eliciting());
    let client = connect_sessionless(&server).await;
    let first = call_for_input(&client, params("order", json!({}), "")).await;
    let (_, message, fields) = form_of(&first);
    assert_eq!((message.as_str(), fields), ("Which size?", vec!["count".to_owned(), "size".to_owned()]));
    // Another connection and another server over the same assistant: no state is in memory.
    let other = connect_sessionless(&mcp_server(&assistant, eliciting())).await;
    let second =
        call_for_input(&other, with_answer("order", &first, accept(json!({"size": "small", "count": 2})))).await;
    assert!(form_of(&second).1.starts_with("Send 2"), "{second:?}");
    assert_ne!(second.request_state, first.request_state);
    let last = call_for_result(&client, with_answer("order", &second, accept(json!({"sure": true})))).await;
    assert!(texts(&last).starts_with("Sent."), "{last:?}");
    // The result was lost: the same call again runs no turn, and returns the replies of the last turn.
    let repeated = call_for_result(&client, with_answer("order", &second, accept(json!({"sure": true})))).await;
    assert!(texts(&repeated).starts_with("Sent.") && data(&repeated)["repeated"] == true, "{repeated:?}");
    let conversation = conversation_id(&repeated).into();
    let turns = assistant.store().turns(&conversation).await.unwrap();
    assert_eq!(turns.len(), 4, "the start, two fields, the confirmation");
}

#[tokio::test]
async fn missing_answer_is_requested_again_and_a_declined_form_ends_the_call() {
    let client = connect_sessionless(&mcp_server(&assistant(&[]), eliciting())).await;
    let first = call_for_input(&client, params("order", json!({}), "")).await;
    let mut empty = with_answer("order", &first, accept(json!({"size": "small"})));
    empty.input_responses = Some(BTreeMap::from([("other".to_owned(), accept(json!({})))]));
    let same = call_for_input(&client, empty).await;
    assert_eq!((form_of(&same), &same.request_state), (form_of(&first), &first.request_state));
    let declined = call_for_result(&client, with_answer("order", &same, json!({"action": "decline"}))).await;
    assert_eq!(data(&declined)["question"]["slot"], "size");
}

#[tokio::test]
async fn changed_request_state_or_malformed_answer_is_a_protocol_error() {
    let client = connect_sessionless(&mcp_server(&assistant(&[]), eliciting())).await;
    let first = call_for_input(&client, params("order", json!({}), "")).await;
    let mut changed = with_answer("order", &first, accept(json!({"size": "small"})));
    changed.request_state = changed.request_state.map(|state| state + "x");
    assert!(client.call_tool_once(changed).await.is_err());
    assert!(client.call_tool_once(with_answer("greet", &first, accept(json!({})))).await.is_err(), "another tool");
    assert!(client.call_tool_once(with_answer("order", &first, json!(12345))).await.is_err());
}

#[tokio::test]
async fn answers_sent_before_the_question_count_except_for_a_confirmation() {
    let client = connect_sessionless(&mcp_server(&assistant(&["start flow notes"]), eliciting())).await;
    let given = BTreeMap::from([("how".to_owned(), accept(json!({"pace": "fast", "note": "nothing"})))]);
    let open = call_for_result(&client, params("notes", json!({}), "").with_input_responses(given)).await;
    assert!(texts(&open).contains("nothing, fast"), "{open:?}");
    let sure = BTreeMap::from([("order_2_collect_sure".to_owned(), accept(json!({"sure": true})))]);
    let known = params("order", json!({"size": "small", "count": 1}), "").with_input_responses(sure);
    let first = call_for_input(&client, known).await;
    assert_eq!(form_of(&first).0, "order_2_collect_sure", "the user must see what they confirm");
}

#[tokio::test]
async fn sessionless_call_without_elicitation_ends_with_the_question() {
    let client = connect_sessionless(&mcp_server(&assistant(&[]), McpServerSettings::default())).await;
    let open = call_for_result(&client, params("order", json!({}), "")).await;
    assert_eq!(data(&open)["question"]["slot"], "size", "elicitation is off");
}

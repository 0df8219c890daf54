#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use axum::{
    body::to_bytes,
    http::{HeaderMap, header::CONTENT_TYPE},
};
use tower::ServiceExt as _;

use super::{
    request::{Position, parse},
    *,
};
use crate::{
    channels::tests::channel,
    llm::{ChatResponse, Usage},
    runtime::Assistant,
    testing::{ManualClock, ScriptedLlm},
};

const MODEL: &str = "assistant";

fn open_channel(settings: &Json) -> OpenAiChannel {
    let ChannelSettings::OpenAi(settings) = channel(NAME, settings).unwrap().settings else { panic!("{settings}") };
    OpenAiChannel::new(&settings).unwrap()
}

const FILES: [(&str, &str); 3] = [
    ("config.yml", "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n"),
    (
        "domain.yml",
        "slots: {sure: {type: bool}}
responses:
  utter_hello: [{text: Hello!}]
  utter_more: [{text: There is more., image: 'https://x.example/y.png'}]
  utter_ask_sure: [{text: Sure?, buttons: [{title: Very, payload: /SetSlots(sure=true)}, {title: No, payload: /SetSlots(sure=false)}]}]
  utter_sure: [{text: Good.}]
",
    ),
    (
        "flows/greet.yml",
        "flows:
  greet: {description: greets, run_pattern_completed: false, steps: [{action: utter_hello}, {action: utter_more}]}
  ask:
    description: asks
    run_pattern_completed: false
    steps:
      - collect: sure
        next:
          - {if: slots.sure, then: [{action: utter_sure, next: END}]}
          - else: END
",
    ),
];

/// Status, headers and body of the response to a request.
async fn respond(
    assistant: &Assistant,
    channel: &OpenAiChannel,
    request: http::request::Builder,
    body: &Json,
) -> (StatusCode, HeaderMap, String) {
    let inbox = Inbox::new(assistant.clone(), NAME);
    let (mut head, body) = request.body(Bytes::from(body.to_string())).unwrap().into_parts();
    if let Err(response) = channel.check(&mut head, assistant.clock()).await {
        return text(response).await;
    }
    text(channel.service(inbox).oneshot(Request::from_parts(head, body)).await.unwrap()).await
}

async fn text(response: Response<Body>) -> (StatusCode, HeaderMap, String) {
    let (head, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    (head.status, head.headers, String::from_utf8(bytes.to_vec()).unwrap())
}

fn post(path: &str) -> http::request::Builder {
    Request::post(format!("http://localhost{path}"))
}

fn assistant(commands: &[&str]) -> Assistant {
    let usage = Usage { input: 12, output: 3, ..Usage::default() };
    let answers = commands.iter().map(|text| ChatResponse { usage, ..ChatResponse::text(*text) });
    let model = Arc::new(ScriptedLlm::strict(answers));
    let builder = Assistant::builder_from_texts(FILES).unwrap().model(model).clock(Arc::new(ManualClock::new()));
    builder.seeds(|| 7).build().unwrap()
}

fn error_of(body: &str) -> Json {
    serde_json::from_str::<Json>(body).unwrap()["error"].clone()
}

#[tokio::test]
async fn a_completion_has_the_replies_of_the_turn_as_one_text() {
    let (assistant, channel) = (assistant(&["start flow greet"]), open_channel(&json!({})));
    let body = json!({"model": MODEL, "user": "ada", "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]});
    let (status, _, text) = respond(&assistant, &channel, post("/v1/chat/completions"), &body).await;
    let completion: Json = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (status, &completion["object"], &completion["model"]),
        (StatusCode::OK, &json!("chat.completion"), &json!(MODEL))
    );
    let choice = &completion["choices"][0];
    assert_eq!(choice["message"]["content"], "Hello! There is more.\nImage: https://x.example/y.png");
    assert_eq!((&choice["message"]["role"], &choice["finish_reason"]), (&json!("assistant"), &json!("stop")));
    assert!(completion["id"].as_str().unwrap().starts_with("chatcmpl-"));
    let usage = &completion["usage"];
    let tokens = (&usage["prompt_tokens"], &usage["completion_tokens"], &usage["total_tokens"]);
    assert_eq!(tokens, (&json!(12), &json!(3), &json!(15)));
    // The same request again: the recorded answer, as the same completion.
    let (_, _, again) = respond(&assistant, &channel, post("/v1/chat/completions"), &body).await;
    let again: Json = serde_json::from_str(&again).unwrap();
    assert_eq!((&again["id"], &again["choices"]), (&completion["id"], &completion["choices"]));
}

#[tokio::test]
async fn a_stream_has_a_role_then_texts_then_the_reason_of_its_end() {
    let (assistant, channel) = (assistant(&["start flow greet"]), open_channel(&json!({"mode": "chat"})));
    let messages = json!([{"role": "system", "content": "x"}, {"role": "user", "content": "hi"}]);
    let body = json!({"stream": true, "stream_options": {"include_usage": true}, "messages": messages});
    let (status, headers, text) = respond(&assistant, &channel, post("/v1/c/ada%20l/chat/completions"), &body).await;
    assert_eq!((status, headers[CONTENT_TYPE].to_str().unwrap()), (StatusCode::OK, "text/event-stream"));
    let lines: Vec<&str> = text.split_terminator("\n\n").map(|line| line.strip_prefix("data: ").unwrap()).collect();
    let (done, chunks) = lines.split_last().unwrap();
    let mut chunks: Vec<Json> = chunks.iter().map(|chunk| serde_json::from_str(chunk).unwrap()).collect();
    let usage = chunks.pop().unwrap();
    assert_eq!((&usage["choices"], &usage["usage"]["total_tokens"]), (&json!([]), &json!(15)));
    assert!(chunks.iter().all(|chunk| chunk["usage"].is_null()));
    assert_eq!(*done, "[DONE]");
    assert!(chunks.iter().all(|chunk| chunk["object"] == "chat.completion.chunk" && chunk["id"] == chunks[0]["id"]));
    let delta = |at: usize| &chunks[at]["choices"][0]["delta"];
    let content: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(content, "Hello!\n\nThere is more.\nImage: https://x.example/y.png");
    assert_eq!((&delta(0)["role"], delta(chunks.len() - 1)), (&json!("assistant"), &json!({})));
    assert_eq!(chunks[chunks.len() - 1]["choices"][0]["finish_reason"], "stop");
    assert!(assistant.conversation(&"openai:ada l".into()).await.unwrap().latest_message.is_some());
}

#[tokio::test]
async fn buttons_are_a_numbered_list_and_a_number_is_an_answer() {
    let (assistant, channel) = (assistant(&["start flow ask"]), open_channel(&json!({})));
    let mut messages = vec![json!({"role": "user", "content": "ask me"})];
    for (answer, next) in [("Sure?\n1. Very\n2. No", "1."), ("Good.", "")] {
        let body = json!({"user": "ada", "messages": messages});
        let (_, _, text) = respond(&assistant, &channel, post("/v1/chat/completions"), &body).await;
        let completion: Json = serde_json::from_str(&text).unwrap();
        let message = completion["choices"][0]["message"].clone();
        assert_eq!(message["content"], answer);
        messages.extend([message, json!({"role": "user", "content": next})]);
    }
}

#[tokio::test]
async fn a_request_names_its_conversation_in_one_of_several_ways() {
    let (assistant, channel) = (assistant(&[]), open_channel(&json!({"conversation_from": ["/phone/number"]})));
    let messages = json!([{"role": "user", "content": ""}]);
    let named = [
        (post("/v1/c/ada/chat/completions"), json!({"user": "b"}), "openai:ada"),
        (post("/v1/chat/completions").header("X-Conversation-Id", "head"), json!({"user": "b"}), "openai:head"),
        (post("/v1/chat/completions"), json!({"phone": {"number": 491}, "user": "b"}), "openai:491"),
        (post("/v1/chat/completions"), json!({"metadata": {"session_id": "s"}, "call": {"id": "c"}}), "openai:s"),
        (post("/v1/chat/completions"), json!({"call": {"id": "c"}, "user": "b"}), "openai:c"),
        (post("/v1/chat/completions"), json!({"user": " ", "safety_identifier": "x"}), "openai:x"),
    ];
    for (request, mut body, id) in named {
        body["messages"] = messages.clone();
        let (status, _, text) = respond(&assistant, &channel, request, &body).await;
        assert_eq!(status, StatusCode::OK, "{text}");
        assert!(assistant.conversation(&id.into()).await.unwrap().latest_message.is_some(), "{id}: {body}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_told_in_the_form_of_the_api() {
    let (assistant, channel) = (assistant(&[]), open_channel(&json!({"auth_token": "key"})));
    let user = |content: Json| json!({"user": "a", "messages": [{"role": "user", "content": content}]});
    let wrong = [
        (json!({"messages": [{"role": "user", "content": "hi"}]}), 400, "conversation_id_required", "/v1/c/<id>"),
        (json!({"user": "rest@x", "messages": []}), 400, "invalid_value", "must not begin with"),
        (json!({"user": "a"}), 400, "invalid_value", "missing field `messages`"),
        (json!({"user": "a", "messages": [{"content": "x"}]}), 400, "invalid_value", "role"),
        (
            user(json!([{"type": "image_url", "image_url": {"url": "x"}}])),
            400,
            "invalid_value",
            "`image_url` is not supported",
        ),
        (json!({"user": "a", "n": 2, "messages": []}), 400, "invalid_value", "one answer"),
        (json!({"user": "a", "model": "gpt-9", "messages": []}), 404, "model_not_found", "the model `assistant`"),
        (json!([]), 400, "invalid_value", "expected"),
    ];
    for (body, status, code, part) in wrong {
        let request = post("/v1/chat/completions").header("Authorization", "Bearer key");
        let (found, _, text) = respond(&assistant, &channel, request, &body).await;
        let error = error_of(&text);
        assert_eq!((found.as_u16(), &error["code"]), (status, &json!(code)), "{body}: {text}");
        assert!(error["message"].as_str().unwrap().contains(part), "{body}: {text}");
        assert!(error["type"] == "invalid_request_error" && error.get("param").is_some(), "{text}");
    }
    let (status, headers, text) = respond(&assistant, &channel, post("/v1/chat/completions"), &user(json!("hi"))).await;
    assert_eq!((status, &error_of(&text)["code"]), (StatusCode::UNAUTHORIZED, &json!("invalid_api_key")));
    assert!(headers.contains_key(http::header::WWW_AUTHENTICATE) && headers[CONTENT_TYPE] == "application/json");
    let key = |request: http::request::Builder| request.header("Authorization", "Bearer key");
    let (_, _, models) =
        respond(&assistant, &channel, key(Request::get("http://localhost/v1/models")), &Json::Null).await;
    assert_eq!(serde_json::from_str::<Json>(&models).unwrap()["data"][0]["id"], MODEL);
    let (status, _, text) = respond(&assistant, &channel, key(post("/v1/embeddings")), &Json::Null).await;
    assert_eq!((status, &error_of(&text)["code"]), (StatusCode::NOT_FOUND, &json!("unknown_url")));
}

#[test]
fn settings_that_cannot_be_kept_are_rejected() {
    for (settings, part) in [
        (json!({"hold_writes_ms": 60_001}), "at most 60000"),
        (json!({"conversation_from": ["call.id"]}), "JSON pointer"),
    ] {
        let ChannelSettings::OpenAi(settings) = channel(NAME, &settings).unwrap().settings else { panic!() };
        assert!(OpenAiChannel::new(&settings).err().unwrap().contains(part));
    }
    let hold = |settings: &Json| open_channel(settings).hold_writes.as_millis();
    assert_eq!(hold(&json!({})), 3200);
    assert_eq!(hold(&json!({"mode": "chat"})), 0);
    assert_eq!(hold(&json!({"early_generation": false})), 0);
    assert_eq!(hold(&json!({"mode": "chat", "hold_writes_ms": 5})), 5);
}

/// The new text of a request with these messages (`u:` of the user, `a:` of the assistant) after the message at `last`.
fn new_text(messages: &[&str], last: Option<&Position>) -> (String, Position, bool) {
    let messages: Vec<Json> = messages
        .iter()
        .map(|message| {
            let role = if message.starts_with("u:") { "user" } else { "assistant" };
            json!({"role": role, "content": &message[2..]})
        })
        .collect();
    let request = parse(json!({"messages": messages}).to_string().as_bytes(), MODEL).unwrap();
    let turn = request.user_turn(last).unwrap();
    let repeats = last.is_some_and(|last| turn.repeats(last));
    let position = turn.position(10);
    (turn.text.unwrap_or_default(), position, repeats)
}

#[test]
fn of_a_request_only_what_the_user_has_said_since_the_last_one_is_new() {
    let (text, first, _) = new_text(&["u:one"], None);
    assert_eq!(text, "one");
    assert_eq!(new_text(&["u:one", "a:yes", "u:two"], Some(&first)).0, "two");
    // The user went on: the client sends both parts, and the first one was processed.
    assert_eq!(new_text(&["u:one", "u:two"], Some(&first)).0, "two");
    assert_eq!(new_text(&["u:one", "u:two", "u:three"], Some(&first)).0, "two\nthree");
    assert_eq!(new_text(&["u:one", "u:two"], None).0, "one\ntwo");
    // Without its history.
    assert_eq!(new_text(&["u:two"], Some(&first)).0, "two");
    assert_eq!(new_text(&["a:Hello!"], Some(&first)).0, "");
}

#[test]
fn a_repeated_request_is_recognised_whatever_its_case_and_its_last_punctuation() {
    let (_, last, _) = new_text(&["u:one", "a:yes", "u:Book it"], None);
    let repeats = |messages: &[&str]| new_text(messages, Some(&last)).2;
    assert!(repeats(&["u:one", "a:yes", "u:Book it"]));
    assert!(repeats(&["u:one", "a:ye", "u: book it. "]));
    assert!(!repeats(&["u:one", "a:yes", "u:book it now"]));
    assert!(!repeats(&["u:one", "a:yes", "u:Book it", "a:done", "u:Book it"]));
    // A client that sends one message at a time says the same again.
    let (_, only, _) = new_text(&["u:yes"], None);
    assert!(!new_text(&["u:yes"], Some(&only)).2);
    assert_eq!(Position::parse(&last.message_id()), Some(last));
    assert_eq!(Position::parse("chat:1:x:2"), None);
}

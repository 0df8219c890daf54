#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use axum::http::HeaderValue;
use tower::ServiceExt as _;

use segue_engine::project::ChannelSettings;

use super::{
    super::{auth, tests::channel},
    *,
};
use crate::{runtime::Assistant, testing::ScriptedLlm};

/// A channel with these settings.
fn rest_channel(settings: &Json) -> Result<RestChannel, String> {
    let channel = channel("rest", settings)?;
    channel.check_spelling()?;
    OriginPolicy::from_channel(&channel)?;
    let ChannelSettings::Rest(settings) = &channel.settings else { panic!("{channel:?}") };
    RestChannel::new(settings)
}

fn parse(body: &str) -> Result<IncomingMessage, String> {
    parse_message(body.as_bytes(), &HeaderMap::new())
}

#[test]
fn broken_characters_in_a_message_are_replaced() {
    let body = [b"\xef\xbb\xbf{\"message\": \"hello \\ud83d ".as_slice(), b"\xff\"}"].concat();
    let message = parse_message(&body, &HeaderMap::new()).unwrap();
    assert_eq!(&*message.text, "hello \u{FFFD} \u{FFFD}");
}

#[test]
fn all_fields_of_a_request_are_parsed() {
    let body = json!({
        "sender": "u1", "message": "hi", "input_channel": "app", "message_id": "m1", "metadata": {"k": [1]}, "unknown": 1,
    });
    let message = parse(&body.to_string()).unwrap();
    assert_eq!((message.conversation.as_str(), &*message.text), ("u1", "hi"));
    assert_eq!((message.message_id.as_str(), message.input_channel.as_deref()), ("m1", Some("app")));
    assert_eq!(message.metadata["k"], json!([1]));
}

#[test]
fn absent_and_null_fields_are_empty_and_a_number_can_be_a_sender() {
    for body in
        [r#"{"message": ""}"#, r#"{"sender": null, "message": null, "metadata": null}"#, "\u{feff}{\"message\": null}"]
    {
        assert_eq!(parse(body).unwrap(), IncomingMessage::new("", ""), "{body}");
    }
    assert_eq!(&*recipient(""), "default");
    assert_eq!(parse(r#"{"sender": 42, "message": ""}"#).unwrap().conversation, "42");
}

#[test]
fn errors_name_the_invalid_field() {
    for (body, mentioned) in [
        ("", "not JSON"),
        ("[]", "not a JSON object"),
        (r#"{"message": {"text": "x"}}"#, "`message`"),
        ("{}", "no `message`"),
        (r#"{"sender": "u1"}"#, "no `message`"),
        (r#"{"mesage": "hi"}"#, "did you mean `message` instead of `mesage`"),
        (r#"{"sender": "u1", "Query": "hi"}"#, "did you mean `message` instead of `Query`"),
        (
            r#"{"text": "hi", "user": "a"}"#,
            "did you mean `message` instead of `text`?; did you mean `sender` instead of `user`?",
        ),
        (r#"{"message": "", "metadata": 3}"#, "`metadata`"),
        (r#"{"message": "", "sender": "a2a:c"}"#, "`a2a:`"),
        (r#"{"message": "", "sender": "a2a@0123:c"}"#, "`a2a@`"),
        (r#"{"message": "", "sender": "mcp-0123"}"#, "`mcp-`"),
        (r#"{"message": "", "sender": "rest@0123:u1"}"#, "`rest@`"),
        (&json!({"message": "", "sender": "x".repeat(limits::WIRE_ID + 1)}).to_string(), "`sender`"),
    ] {
        let problem = parse(body).unwrap_err();
        assert!(problem.contains(mentioned), "{body}: {problem}");
    }
}

#[test]
fn idempotency_key_header_is_the_message_id_unless_the_body_has_one() {
    let mut headers = HeaderMap::new();
    headers.insert("Idempotency-Key", HeaderValue::from_static("k1"));
    assert_eq!(parse_message(br#"{"message": ""}"#, &headers).unwrap().message_id, "k1");
    assert_eq!(parse_message(br#"{"message": "", "message_id": "m"}"#, &headers).unwrap().message_id, "m");
}

#[test]
fn stream_format_is_selected_by_query_and_accept_header() {
    let plain = HeaderMap::new();
    let mut deltas = HeaderMap::new();
    deltas.insert(ACCEPT, HeaderValue::from_static("application/x-ndjson; deltas=1"));
    for (query, headers, expected) in [
        (None, &plain, None),
        (Some("stream=false"), &plain, None),
        (Some("token=x&stream=true"), &plain, Some(StreamFormat::MessageLines)),
        (Some("stream=True"), &plain, Some(StreamFormat::MessageLines)),
        (Some("stream=true"), &deltas, Some(StreamFormat::NdJson)),
        (Some("stream=deltas"), &plain, Some(StreamFormat::NdJson)),
        (Some("stream=sse"), &deltas, Some(StreamFormat::Sse)),
        (None, &deltas, None),
    ] {
        assert_eq!(requested_stream_format(query, headers), expected, "{query:?}");
    }
}

#[tokio::test]
async fn callers_with_the_same_sender_have_separate_conversations() {
    let domain = "slots: {name: {type: text, mappings: [{type: from_llm}]}}\nresponses: {utter_ask_name: [{text: Who are you?}], utter_hello: [{text: 'Hello {name}!'}]}\n";
    let files = [
        (
            "config.yml",
            "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n",
        ),
        ("domain.yml", domain),
        ("flows/greet.yml", "flows: {greet: {description: greets, steps: [{collect: name}, {action: utter_hello}]}}\n"),
    ];
    let model = Arc::new(ScriptedLlm::strict(["start flow greet"; 3]));
    let assistant = Assistant::builder_from_texts(files).unwrap().model(model).build().unwrap();
    let secret = "a secret of thirty-two bytes, or more";
    let settings = json!({"auth_token": "s3cret", "jwt": {"issuer": "https://i", "audience": "me", "secret": secret}});
    let service = rest_channel(&settings).unwrap().service(Inbox::new(assistant, "rest"));
    let say = async |token: &str, text: &str| {
        let body = json!({"sender": "u1", "message": text}).to_string();
        let request = Request::post("/webhook").header("authorization", format!("Bearer {token}")).body(body.into());
        let response = service.clone().oneshot(request.unwrap()).await.unwrap();
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let messages: Json = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(messages[0]["recipient_id"], "u1", "{messages}");
        messages[0]["text"].as_str().unwrap().to_owned()
    };
    let (ada, bob) = (auth::tests::signed_token("ada", secret), auth::tests::signed_token("bob", secret));
    let callers = [(ada.as_str(), "Ada"), (bob.as_str(), "Bob"), ("s3cret", "Eve")];
    for (token, _) in callers {
        assert_eq!(say(token, "hi").await, "Who are you?");
    }
    for (token, name) in callers {
        assert_eq!(say(token, &format!("/SetSlots(name={name})")).await, format!("Hello {name}!"));
    }
}

/// Status and body of the response of a channel with these settings to a message with `token`.
async fn respond(settings: &Json, token: &str, sender: &str, text: &str) -> (StatusCode, String) {
    respond_to_body(settings, token, json!({"sender": sender, "message": text})).await
}

async fn respond_to_body(settings: &Json, token: &str, body: Json) -> (StatusCode, String) {
    let files = [
        (
            "config.yml",
            "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n",
        ),
        ("domain.yml", "responses: {utter_hello: [{text: Hello!}]}\n"),
        ("flows/greet.yml", "flows: {greet: {description: greets, steps: [{action: utter_hello}]}}\n"),
    ];
    let model = Arc::new(ScriptedLlm::strict(["start flow greet"]));
    let assistant = Assistant::builder_from_texts(files).unwrap().model(model).build().unwrap();
    let service = rest_channel(settings).unwrap().service(Inbox::new(assistant.clone(), "rest"));
    let body = body.to_string();
    let request = Request::post("/webhook").header("authorization", format!("Bearer {token}")).body(body.into());
    let response = service.oneshot(request.unwrap()).await.unwrap();
    let status = response.status();
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn fixed_token_is_restricted_to_the_configured_senders() {
    let settings = json!({"token": "s3cret", "senders": ["u1", "shop-*"]});
    for (sender, expected) in [
        ("u1", StatusCode::OK),
        ("shop-7", StatusCode::OK),
        ("u2", StatusCode::FORBIDDEN),
        ("u1x", StatusCode::FORBIDDEN),
        ("my-shop-7", StatusCode::FORBIDDEN),
        ("", StatusCode::FORBIDDEN),
    ] {
        assert_eq!(respond(&settings, "s3cret", sender, "hi").await.0, expected, "{sender}");
    }
    assert_eq!(respond(&settings, "wrong", "u1", "hi").await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(respond(&json!({"auth_token": "s3cret"}), "s3cret", "u9", "hi").await.0, StatusCode::OK);
}

#[tokio::test]
async fn disabled_payloads_are_ordinary_text() {
    // Ordinary text is sent to the model, which starts the flow. A payload is not sent to the model.
    for text in ["/greet", " /greet", "//greet", "/SetSlots(name=Ada)", "/ /SetSlots(name=Ada)"] {
        let (_, body) = respond(&json!({"payloads": false}), "", "u", text).await;
        assert!(body.contains("Hello!"), "{text}: {body}");
        let (_, body) = respond(&json!({}), "", "u", "/SetSlots(name=Ada)").await;
        assert!(!body.contains("Hello!"), "{text}: {body}");
    }
}

#[tokio::test]
async fn metadata_beyond_the_limit_is_rejected() {
    for (settings, max) in [(json!({}), limits::METADATA), (json!({"metadata_bytes": 100}), 100)] {
        // `{"k":""}` has 8 characters.
        for (size, expected) in [(max, StatusCode::OK), (max + 1, StatusCode::PAYLOAD_TOO_LARGE)] {
            let body = json!({"message": "hi", "metadata": {"k": "x".repeat(size - 8)}});
            let (status, text) = respond_to_body(&settings, "", body).await;
            assert_eq!(status, expected, "{size}: {text}");
        }
    }
}

#[test]
fn channel_with_an_invalid_setting_is_not_opened() {
    for (settings, mentioned) in [
        (json!({"auth_tokn": "x"}), "`auth_tokn`"),
        (json!({"auth_token": " "}), "`auth_token`"),
        (json!({"token": ["x"]}), "`token`"),
        (json!({"senders": ["u1"]}), "`auth_token`"),
        (json!({"auth_token": "x", "senders": []}), "`senders`"),
        (json!({"auth_token": "x", "senders": [["u1"]]}), "`senders`"),
        (json!({"payloads": "no"}), "`payloads`"),
        (json!({"metadata_bytes": -1}), "`metadata_bytes`"),
        (json!({"allowed_origins": ["shop.example"]}), "`allowed_origins`"),
    ] {
        let problem = rest_channel(&settings).unwrap_err();
        assert!(problem.contains(mentioned), "{settings}: {problem}");
    }
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn store_failure_is_a_retryable_error_and_the_retry_is_answered_once() {
    let files = [
        (
            "config.yml",
            "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n",
        ),
        ("domain.yml", "responses: {utter_hello: [{text: Hello!}]}\n"),
        (
            "flows/greet.yml",
            "flows: {greet: {description: greets, run_pattern_completed: false, steps: [{action: utter_hello}]}}\n",
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("conversations.db");
    let store = Arc::new(crate::store::SqliteStore::open(&path, false).unwrap());
    let model = Arc::new(ScriptedLlm::strict(["start flow greet"; 12]));
    let builder = Assistant::builder_from_texts(files).unwrap().model(model).store(store);
    let service = RestChannel::default().service(Inbox::new(builder.build().unwrap(), "rest"));
    let execute_sql = |sql: &str| rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    let say = async |query: &str, id: &str| {
        let body = json!({"sender": "u1", "message": "hi", "message_id": id}).to_string();
        let request = Request::post(format!("/webhook{query}")).body(body.into());
        service.clone().oneshot(request.unwrap()).await.unwrap()
    };
    execute_sql("ALTER TABLE inbox RENAME TO missing");
    for query in ["", "?stream=true", "?stream=sse"] {
        let response = say(query, "m1").await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE, "{query}");
        let headers = response.headers();
        assert!(headers[RETRY_AFTER] == "1" && headers[TURN_ERROR] == "S0103", "{query}: {headers:?}");
    }
    execute_sql("ALTER TABLE missing RENAME TO inbox");
    assert_eq!(say("", "m1").await.status(), StatusCode::OK);
    // A message that is accepted and whose turn cannot be stored: a client without an id must not send it again.
    execute_sql("ALTER TABLE batches RENAME TO missing");
    for (query, in_body) in [("", false), ("?stream=sse", true)] {
        let response = say(query, "").await;
        let (status, headers) = (response.status(), response.headers().clone());
        assert_eq!((status.is_success(), headers.get(RETRY_AFTER)), (in_body, None), "{query}: {status}");
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(
            text.contains("the message was accepted; its replies follow with your next request"),
            in_body,
            "{text}"
        );
    }
    execute_sql("ALTER TABLE missing RENAME TO batches");
    assert_eq!(say("", "m0").await.status(), StatusCode::OK);
    // With an id it may: the retry gets the replies once.
    execute_sql("ALTER TABLE batches RENAME TO missing");
    let response = say("", "m2").await;
    assert!(response.status() == StatusCode::SERVICE_UNAVAILABLE && response.headers()[RETRY_AFTER] == "1");
    execute_sql("ALTER TABLE missing RENAME TO batches");
    let response = say("", "m2").await;
    assert_eq!(response.status(), StatusCode::OK);
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let messages: Json = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(messages.as_array().unwrap().len(), 1, "{messages}");
}

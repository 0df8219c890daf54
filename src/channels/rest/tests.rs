#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use axum::http::HeaderValue;
use tower::ServiceExt as _;

use segue_engine::project::ChannelSettings;

use super::{
    super::{auth, tests::channel},
    *,
};
use crate::{runtime::Assistant, testing::ScriptedLlm};

/// The channel with these settings.
fn rest(settings: &Json) -> Result<RestChannel, String> {
    let channel = channel("rest", settings)?;
    channel.check_spelling()?;
    super::super::pages::Pages::of(&channel)?;
    let ChannelSettings::Rest(settings) = &channel.settings else { panic!("{channel:?}") };
    RestChannel::new(settings)
}

fn read(body: &str) -> Result<Arrival, String> {
    arrival(body.as_bytes(), &HeaderMap::new())
}

#[test]
fn a_body_with_everything() {
    let body = json!({
        "sender": "u1", "message": "hi", "input_channel": "app", "message_id": "m1", "metadata": {"k": [1]}, "more": 1,
    });
    let arrival = read(&body.to_string()).unwrap();
    assert_eq!((arrival.sender.as_str(), arrival.text.as_str()), ("u1", "hi"));
    assert_eq!((arrival.message_id.as_str(), arrival.input_channel.as_deref()), ("m1", Some("app")));
    assert_eq!(arrival.metadata["k"], json!([1]));
}

#[test]
fn what_is_absent_or_null_is_empty_and_a_number_is_a_name() {
    for body in ["{}", r#"{"sender": null, "message": null, "metadata": null}"#, "\u{feff}{}"] {
        assert_eq!(read(body).unwrap(), Arrival::default(), "{body}");
    }
    assert_eq!(&*recipient(&Arrival::default()), "default");
    assert_eq!(read(r#"{"sender": 42}"#).unwrap().sender, "42");
}

#[test]
fn what_is_wrong_is_named() {
    for (body, named) in [
        ("", "no JSON"),
        ("[]", "no object"),
        (r#"{"message": {"text": "x"}}"#, "`message`"),
        (r#"{"metadata": 3}"#, "`metadata`"),
        (r#"{"sender": "a2a:c"}"#, "`a2a:`"),
        (r#"{"sender": "a2a@0123:c"}"#, "`a2a@`"),
        (r#"{"sender": "mcp-0123"}"#, "`mcp-`"),
        (r#"{"sender": "rest@0123:u1"}"#, "`rest@`"),
        (&json!({"sender": "x".repeat(limits::WIRE_ID + 1)}).to_string(), "`sender`"),
    ] {
        let problem = read(body).unwrap_err();
        assert!(problem.contains(named), "{body}: {problem}");
    }
}

#[test]
fn the_idempotency_key_stands_for_a_message_id_and_the_body_wins() {
    let mut headers = HeaderMap::new();
    headers.insert("Idempotency-Key", HeaderValue::from_static("k1"));
    assert_eq!(arrival(b"{}", &headers).unwrap().message_id, "k1");
    assert_eq!(arrival(br#"{"message_id": "m"}"#, &headers).unwrap().message_id, "m");
}

#[test]
fn forms_of_the_answer() {
    let plain = HeaderMap::new();
    let mut deltas = HeaderMap::new();
    deltas.insert(ACCEPT, HeaderValue::from_static("application/x-ndjson; deltas=1"));
    for (query, headers, expected) in [
        (None, &plain, None),
        (Some("stream=false"), &plain, None),
        (Some("token=x&stream=true"), &plain, Some(Form::Lines)),
        (Some("stream=True"), &plain, Some(Form::Lines)),
        (Some("stream=true"), &deltas, Some(Form::Events)),
        (Some("stream=deltas"), &plain, Some(Form::Events)),
        (Some("stream=sse"), &deltas, Some(Form::Sse)),
        (None, &deltas, None),
    ] {
        assert_eq!(form(query, headers), expected, "{query:?}");
    }
}

#[tokio::test]
async fn a_conversation_is_nobodys_but_the_callers_who_began_it() {
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
    let service = rest(&settings).unwrap().service(Inbox::new(assistant, "rest"));
    let say = async |token: &str, text: &str| {
        let body = json!({"sender": "u1", "message": text}).to_string();
        let request = Request::post("/webhook").header("authorization", format!("Bearer {token}")).body(body.into());
        let answer = service.clone().oneshot(request.unwrap()).await.unwrap();
        let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        let said: Json = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(said[0]["recipient_id"], "u1", "{said}");
        said[0]["text"].as_str().unwrap().to_owned()
    };
    let (ada, bob) = (auth::tests::token_of("ada", secret), auth::tests::token_of("bob", secret));
    let all = [(ada.as_str(), "Ada"), (bob.as_str(), "Bob"), ("s3cret", "Eve")];
    for (token, _) in all {
        assert_eq!(say(token, "hi").await, "Who are you?");
    }
    for (token, name) in all {
        assert_eq!(say(token, &format!("/SetSlots(name={name})")).await, format!("Hello {name}!"));
    }
}

/// What a channel with these settings answers to a message, shown with `token`.
async fn answered(settings: &Json, token: &str, sender: &str, text: &str) -> (StatusCode, String) {
    answered_with(settings, token, json!({"sender": sender, "message": text})).await
}

async fn answered_with(settings: &Json, token: &str, body: Json) -> (StatusCode, String) {
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
    let service = rest(settings).unwrap().service(Inbox::new(assistant.clone(), "rest"));
    let body = body.to_string();
    let request = Request::post("/webhook").header("authorization", format!("Bearer {token}")).body(body.into());
    let answer = service.oneshot(request.unwrap()).await.unwrap();
    let status = answer.status();
    let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn a_token_speaks_for_its_senders_alone() {
    let bound = json!({"token": "s3cret", "senders": ["u1", "shop-*"]});
    for (sender, wanted) in [
        ("u1", StatusCode::OK),
        ("shop-7", StatusCode::OK),
        ("u2", StatusCode::FORBIDDEN),
        ("u1x", StatusCode::FORBIDDEN),
        ("my-shop-7", StatusCode::FORBIDDEN),
        ("", StatusCode::FORBIDDEN),
    ] {
        assert_eq!(answered(&bound, "s3cret", sender, "hi").await.0, wanted, "{sender}");
    }
    assert_eq!(answered(&bound, "wrong", "u1", "hi").await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(answered(&json!({"auth_token": "s3cret"}), "s3cret", "anybody", "hi").await.0, StatusCode::OK);
}

#[tokio::test]
async fn payloads_that_are_switched_off_are_words() {
    // The model is asked: it is words. As a payload the message has no model and ends in an unknown intent.
    for text in ["/greet", " /greet", "//greet", "/SetSlots(name=Ada)", "/ /SetSlots(name=Ada)"] {
        let (_, said) = answered(&json!({"payloads": false}), "", "u", text).await;
        assert!(said.contains("Hello!"), "{text}: {said}");
        let (_, said) = answered(&json!({}), "", "u", "/SetSlots(name=Ada)").await;
        assert!(!said.contains("Hello!"), "{text}: {said}");
    }
}

#[tokio::test]
async fn metadata_has_a_limit() {
    for (settings, most) in [(json!({}), limits::METADATA), (json!({"metadata_bytes": 100}), 100)] {
        // `{"k":""}` and so many letters.
        for (size, wanted) in [(most, StatusCode::OK), (most + 1, StatusCode::PAYLOAD_TOO_LARGE)] {
            let body = json!({"message": "hi", "metadata": {"k": "x".repeat(size - 8)}});
            let (status, text) = answered_with(&settings, "", body).await;
            assert_eq!(status, wanted, "{size}: {text}");
        }
    }
}

#[test]
fn a_setting_that_makes_no_sense_keeps_the_channel_closed() {
    for (settings, named) in [
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
        let problem = rest(&settings).unwrap_err();
        assert!(problem.contains(named), "{settings}: {problem}");
    }
}

#[test]
fn the_end_of_a_stream_tells_codes_and_no_causes() {
    let report = TurnReport {
        turn: crate::store::TurnNumber(9),
        earlier_replies: Vec::new(),
        replies: Vec::new(),
        failures: vec![crate::runtime::Failure { code: "A0509".into(), reason: "secret host".into() }],
        session_ended: true,
        is_duplicate: false,
    };
    let text = last_events("u", Form::Events, &Ok(report.clone())).unwrap();
    let lines: Vec<Json> =
        std::str::from_utf8(&text).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["code"], "A0509");
    assert_eq!(lines[1], json!({"type": "turn_finished", "turn_id": "t_9", "listening": false, "session_ended": true}));
    assert!(!String::from_utf8_lossy(&text).contains("secret"));
    assert_eq!(last_events("u", Form::Lines, &Ok(report)), None);
    let broken = last_events("u", Form::Sse, &Err(ReceiveError::TurnFailed)).unwrap();
    assert!(broken.starts_with(b"event: error\ndata: {"));
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_store_that_fails_is_told_before_anything_is_half_done() {
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
    let path = folder.path().join("talks.db");
    let store = Arc::new(crate::store::SqliteStore::open(&path, false).unwrap());
    let model = Arc::new(ScriptedLlm::strict(["start flow greet"; 12]));
    let builder = Assistant::builder_from_texts(files).unwrap().model(model).store(store);
    let service = RestChannel::default().service(Inbox::new(builder.build().unwrap(), "rest"));
    let spoil = |sql: &str| rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    let say = async |query: &str, id: &str| {
        let body = json!({"sender": "u1", "message": "hi", "message_id": id}).to_string();
        let request = Request::post(format!("/webhook{query}")).body(body.into());
        service.clone().oneshot(request.unwrap()).await.unwrap()
    };
    spoil("ALTER TABLE inbox RENAME TO away");
    for query in ["", "?stream=true", "?stream=sse"] {
        let answer = say(query, "m1").await;
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE, "{query}");
        let headers = answer.headers();
        assert!(headers[RETRY_AFTER] == "1" && headers[TURN_ERROR] == "S0103", "{query}: {headers:?}");
    }
    spoil("ALTER TABLE away RENAME TO inbox");
    assert_eq!(say("", "m1").await.status(), StatusCode::OK);
    // The same where the message is accepted and its turn cannot be stored: a repetition is answered once.
    spoil("ALTER TABLE batches RENAME TO away");
    let answer = say("", "m2").await;
    assert!(answer.status() == StatusCode::SERVICE_UNAVAILABLE && answer.headers()[RETRY_AFTER] == "1");
    spoil("ALTER TABLE away RENAME TO batches");
    let answer = say("", "m2").await;
    assert_eq!(answer.status(), StatusCode::OK);
    let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    let said: Json = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(said.as_array().unwrap().len(), 1, "{said}");
}

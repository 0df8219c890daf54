#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use axum::http::HeaderValue;

use super::*;

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
        (&json!({"sender": "x".repeat(limits::WIRE_NAME + 1)}).to_string(), "`sender`"),
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

#[test]
fn the_end_of_a_stream_tells_codes_and_no_causes() {
    let report = Report {
        turn: crate::store::TurnNumber(9),
        replies: Vec::new(),
        failures: vec![crate::runtime::Failure { code: "A0509".into(), reason: "secret host".into() }],
        session_ended: true,
        repeated: false,
    };
    let text = last_events("u", Form::Events, &Ok(report.clone())).unwrap();
    let lines: Vec<Json> =
        std::str::from_utf8(&text).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["code"], "A0509");
    assert_eq!(lines[1], json!({"type": "turn_finished", "turn_id": "t_9", "listening": false, "session_ended": true}));
    assert!(!String::from_utf8_lossy(&text).contains("secret"));
    assert_eq!(last_events("u", Form::Lines, &Ok(report)), None);
    let broken = last_events("u", Form::Sse, &Err(ReceiveError::Broken)).unwrap();
    assert!(broken.starts_with(b"event: error\ndata: {"));
}

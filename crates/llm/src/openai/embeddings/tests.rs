//! The Embeddings API against recorded responses of a local server.

use std::{sync::Arc, time::Duration};

use segue_base::{limits, manual_clock::ManualClock, secret::Secret};
use serde_json::{Value, json};

use crate::{
    LlmEnvironment, LlmErrorKind, ModelConfig,
    embeddings::open,
    error::InvalidResponse,
    test_server::{ReceivedRequest, serve_responses},
};

fn entry(base: &str) -> ModelConfig {
    ModelConfig {
        provider: "openai".into(),
        model: "text-embedding-3-small".into(),
        api_base: Some(base.into()),
        api_key: Some(Secret::new("hunter2-long")),
        num_retries: Some(0),
        extra: serde_json::from_value(json!({"dimensions": 3})).unwrap(),
        ..ModelConfig::default()
    }
}

fn texts(list: &[&str]) -> Vec<Arc<str>> {
    list.iter().map(|text| Arc::from(*text)).collect()
}

async fn embed(
    answers: Vec<(u16, String)>,
    list: &[&str],
) -> (Result<Vec<Vec<f32>>, crate::LlmError>, Vec<ReceivedRequest>) {
    let (base, requests) = serve_responses(answers).await;
    let model = open(&[entry(&format!("{base}/v1"))], &LlmEnvironment::default()).unwrap();
    let cx = ManualClock::new().context(Duration::from_secs(60));
    let vectors = model.embed(&texts(list), &cx).await;
    (vectors.map(|all| all.iter().map(|one| one.to_vec()).collect()), requests.take())
}

fn recorded(data: Value) -> (u16, String) {
    // The format of OpenAI's responses, November 2025.
    let body = json!({"object": "list", "model": "text-embedding-3-small", "data": data,
                      "usage": {"prompt_tokens": 5, "total_tokens": 5}});
    (200, body.to_string())
}

#[tokio::test]
async fn vectors_are_normalised_and_in_the_order_of_the_texts() {
    let data = json!([
        {"object": "embedding", "index": 1, "embedding": [0.0, 2.0, 0.0]},
        {"object": "embedding", "index": 0, "embedding": [3.0, 0.0, 4.0]},
    ]);
    let (vectors, requests) = embed(vec![recorded(data)], &["one", "two"]).await;
    assert_eq!(vectors.unwrap(), [[0.6, 0.0, 0.8], [0.0, 1.0, 0.0]], "in the order of the texts, of length 1");
    let [exchange] = requests.as_slice() else { panic!("{requests:?}") };
    assert!(exchange.head.starts_with("POST /v1/embeddings HTTP/1.1\r\n"), "{}", exchange.head);
    assert!(exchange.head.to_lowercase().contains("authorization: bearer hunter2-long"), "{}", exchange.head);
    let sent: Value = serde_json::from_str(&exchange.body).unwrap();
    assert_eq!(
        sent,
        json!({"model": "text-embedding-3-small", "input": ["one", "two"], "encoding_format": "float", "dimensions": 3})
    );
}

#[tokio::test]
async fn invalid_responses_and_errors_are_classified() {
    let vector = |index: usize, vector: Value| json!({"index": index, "embedding": vector});
    let wide = vec![0.5_f32; limits::EMBED_DIMENSIONS + 1];
    for (answer, kind) in [
        (recorded(json!([vector(0, json!([1.0]))])), LlmErrorKind::InvalidResponse(InvalidResponse::UnexpectedFormat)),
        (
            recorded(json!([vector(0, json!([1.0])), vector(2, json!([1.0]))])),
            LlmErrorKind::InvalidResponse(InvalidResponse::UnexpectedFormat),
        ),
        (
            recorded(json!([vector(0, json!([1.0])), vector(1, json!([]))])),
            LlmErrorKind::InvalidResponse(InvalidResponse::UnexpectedFormat),
        ),
        (
            recorded(json!([vector(0, json!([1.0])), vector(1, json!([1, 2]))])),
            LlmErrorKind::InvalidResponse(InvalidResponse::UnexpectedFormat),
        ),
        (
            recorded(json!([vector(0, json!(wide)), vector(1, json!(wide))])),
            LlmErrorKind::InvalidResponse(InvalidResponse::UnexpectedFormat),
        ),
        ((200, "<html>".into()), LlmErrorKind::InvalidResponse(InvalidResponse::NotJson)),
        ((200, " ".repeat(limits::EMBED_ANSWER + 1)), LlmErrorKind::InvalidResponse(InvalidResponse::TextTooLong)),
        ((404, json!({"error": {"message": "no", "code": "model_not_found"}}).to_string()), LlmErrorKind::NotFound),
        ((503, "{}".into()), LlmErrorKind::Overloaded { after: None }),
    ] {
        let start: String = answer.1.chars().take(80).collect();
        let (vectors, _) = embed(vec![answer], &["one", "two"]).await;
        assert_eq!(vectors.unwrap_err().kind, kind, "{start}");
    }
}

#[tokio::test]
async fn the_key_is_masked_in_errors() {
    let body = json!({"error": {"message": "Incorrect API key provided: hunter2-long", "code": "invalid_api_key"}});
    let (vectors, _) = embed(vec![(401, body.to_string())], &["one"]).await;
    let error = vectors.unwrap_err();
    assert_eq!(error.kind, LlmErrorKind::Unauthorised);
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}

#[tokio::test]
async fn a_silent_server_times_out() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let model = open(&[entry(&base)], &LlmEnvironment::default()).unwrap();
    let clock = ManualClock::new();
    let cx = clock.context(Duration::from_secs(600));
    let call = tokio::spawn(async move { model.embed(&texts(&["one"]), &cx).await });
    while clock.slept().is_empty() {
        tokio::task::yield_now().await;
    }
    clock.advance(limits::EMBED_WAIT);
    assert_eq!(call.await.unwrap().unwrap_err().kind, LlmErrorKind::CallTimeout);
}

//! The embeddings API against a mock model server.

use std::{fs, sync::Arc, time::Duration};

use segue::{
    clock::SystemClock,
    context::CallContext,
    llm::{LlmEnvironment, LlmErrorKind, ModelConfig, embeddings},
    secret::Secret,
};
use serde_json::json;

use crate::processes::{ChildProcess, aimock_journal, aimock_with};

#[tokio::test(flavor = "multi_thread")]
async fn embeddings_are_normalised_deduplicated_and_rate_limits_reported() {
    let rules = tempfile::NamedTempFile::with_suffix(".json").unwrap();
    let fixtures = json!({"fixtures": [
        {"match": {"inputText": "a dog"}, "response": {"embedding": [3.0, 0.0, 4.0]}},
        {"match": {"inputText": "too many"}, "response": {"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429}},
    ]});
    fs::write(rules.path(), fixtures.to_string()).unwrap();
    let mut mock = ChildProcess::start(&mut aimock_with(rules.path()));
    let port = mock.port();
    let config = ModelConfig {
        provider: "openai".into(),
        model: "text-embedding-3-small".into(),
        api_base: Some(format!("http://127.0.0.1:{port}/v1")),
        api_key: Some(Secret::new("sk-test")),
        num_retries: Some(0),
        ..ModelConfig::default()
    };
    let embedder = embeddings::open(&[config], &LlmEnvironment::default()).unwrap();
    let cx = CallContext::new(Arc::new(SystemClock), Duration::from_secs(30));
    let texts: [Arc<str>; 2] = ["a dog".into(), "a dog".into()];
    let vectors = embedder.embed(&texts, &cx).await.unwrap();
    assert_eq!((&*vectors[0], &vectors[0]), ([0.6_f32, 0.0, 0.8].as_slice(), &vectors[1]));
    let rejected: [Arc<str>; 1] = ["too many".into()];
    let error = embedder.embed(&rejected, &cx).await.unwrap_err();
    assert!(matches!(error.kind, LlmErrorKind::RateLimited { .. }), "{error:?}");

    let requests = aimock_journal(port);
    assert_eq!(requests[0]["path"], "/v1/embeddings");
    assert_eq!(requests.len(), 2, "equal texts are requested once: {requests:#?}");
}

//! Compressed responses, decoded by a model client over HTTP.
#![allow(clippy::unwrap_used)]
use std::{io::Write, time::Duration};

use flate2::{Compression, write::GzEncoder};
use segue_base::{limits, manual_clock::ManualClock};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::{
    ChatMessage, ChatRequest, ChatResponse, InvalidResponse, Llm, LlmEnvironment, LlmError, LlmErrorKind, ModelConfig,
    Purpose, openai::OpenAi,
};

/// The result of a call whose response is `body`, compressed with gzip; the last `cut` bytes are missing.
async fn respond(body: &[u8], cut: usize) -> Result<std::sync::Arc<ChatResponse>, LlmError> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).unwrap();
    let compressed = encoder.finish().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"}") {
            let mut some = [0; 4096];
            let read = stream.read(&mut some).await.unwrap();
            received.extend_from_slice(some.get(..read).unwrap());
        }
        let head = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n";
        // The client closes the connection when it has read enough.
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(compressed.get(..compressed.len() - cut).unwrap()).await;
    });
    let provider = "self-hosted".into();
    let config = ModelConfig { provider, model: "m".into(), api_base: Some(base), ..ModelConfig::default() };
    let model = OpenAi::new(&config, &LlmEnvironment::default()).unwrap();
    let cx = ManualClock::new().context(Duration::from_secs(60));
    model.chat(ChatRequest::new(Purpose::AGENT, vec![ChatMessage::user("hello")]), &cx).await?.finish().await
}

const EVENT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

#[tokio::test]
async fn a_compressed_response_is_read_and_a_damaged_one_is_truncated() {
    let body = [EVENT, STOP].concat();
    assert_eq!(&*respond(body.as_bytes(), 0).await.unwrap().text, "hi");
    let half = EVENT.repeat(2000);
    assert_eq!(respond(half.as_bytes(), 20).await.unwrap_err().kind, LlmErrorKind::Truncated);
}

/// A few kilobytes that decompress to 100 MB fail at the limits of a response, in every body format.
#[tokio::test]
async fn a_gzip_bomb_fails_at_the_limits_of_a_response() {
    const HUGE: usize = 5 * limits::MODEL_BODY;
    let whole = [b"{".to_vec(), vec![b' '; HUGE]].concat();
    let line = [b"data: ".to_vec(), vec![b'x'; HUGE]].concat();
    let event = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "x".repeat(1000));
    let text = event.repeat(HUGE / event.len());
    for (body, expected) in [
        (whole, InvalidResponse::TextTooLong),
        (line, InvalidResponse::LineTooLong),
        (text.into_bytes(), InvalidResponse::TextTooLong),
    ] {
        assert!(body.len() > limits::MODEL_BODY * 4);
        assert_eq!(respond(&body, 0).await.unwrap_err(), expected.into());
    }
}

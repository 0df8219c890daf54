//! The client against a faulty local server: raw TCP, manual clock.

use std::time::Duration;

use segue_base::{context::CallContext, http::HttpClients, manual_clock::ManualClock, secret::Secret};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use crate::{
    ChatMessage, ChatRequest, Delta, Llm, LlmEnvironment, LlmError, LlmErrorKind, ModelConfig, Purpose,
    ResponseWarning, RouterConfig, ScriptSource, open_group, openai::OpenAi,
};

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
const EVENT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

/// Sends the bytes that the server writes next. Dropping it closes the connection.
type ServerWriter = mpsc::UnboundedSender<String>;

/// A server that reads one request, passes it to the receiver, and then writes the bytes it gets.
async fn server() -> (String, ServerWriter, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let (writer, mut to_write) = mpsc::unbounded_channel::<String>();
    let (received, requests) = mpsc::unbounded_channel();
    tokio::task::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        received.send(request(&mut stream).await).unwrap();
        while let Some(bytes) = to_write.recv().await {
            if stream.write_all(bytes.as_bytes()).await.is_err() {
                // The client closed the connection, which some tests wait for.
                let _ = received.send("closed".into());
                return;
            }
        }
    });
    (base, writer, requests)
}

async fn request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let mut some = [0; 4096];
        let n = stream.read(&mut some).await.unwrap();
        bytes.extend_from_slice(&some[..n]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse::<usize>().unwrap();
        if body.len() >= length {
            return text;
        }
    }
}

fn model(base: &str) -> OpenAi {
    OpenAi::new(&entry(base), &LlmEnvironment::default()).unwrap()
}

fn entry(base: &str) -> ModelConfig {
    ModelConfig {
        provider: "self-hosted".into(),
        model: "m".into(),
        api_base: Some(base.into()),
        api_key: Some(Secret::new("hunter2-long")),
        timeout: Some(Duration::from_secs(30)),
        ..ModelConfig::default()
    }
}

fn hello() -> ChatRequest {
    ChatRequest::new(Purpose::AGENT, vec![ChatMessage::user("hello")])
}

fn setting() -> (ManualClock, CallContext) {
    let clock = ManualClock::new();
    let cx = clock.context(Duration::from_secs(60));
    (clock, cx)
}

/// Lets other tasks run until `sleepers` of them sleep on the clock.
async fn settle(clock: &ManualClock, sleepers: usize) {
    while clock.slept().len() < sleepers {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_request_and_its_response() {
    let (base, writer, mut requests) = server().await;
    let (_, cx) = setting();
    writer.send([HEAD, EVENT, STOP, "data: [DONE]\n\n"].concat()).unwrap();
    let answer = model(&base).chat(hello(), &cx).await.unwrap().finish().await.unwrap();
    assert_eq!(&*answer.text, "hi");
    let request = requests.recv().await.unwrap();
    assert!(request.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{request}");
    assert!(request.to_lowercase().contains("authorization: bearer hunter2-long"), "{request}");
}

#[tokio::test]
async fn text_is_returned_while_the_stream_is_open() {
    let (base, writer, _requests) = server().await;
    let (_, cx) = setting();
    writer.send([HEAD, EVENT].concat()).unwrap();
    let mut stream = model(&base).chat(hello(), &cx).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap(), Delta::Text("hi".into()));
    writer.send(STOP.into()).unwrap();
    drop(writer);
    assert!(matches!(stream.next().await, Some(Ok(Delta::Done(_)))));
    assert!(stream.next().await.is_none());
}

/// Runs a call against `response`, advances the clock once the call sleeps, and returns the result.
async fn result_after(response: &str, sleepers: usize, wait: Duration) -> Result<String, LlmError> {
    let (base, writer, _requests) = server().await;
    let (clock, cx) = setting();
    if !response.is_empty() {
        writer.send(response.into()).unwrap();
    }
    let model = model(&base);
    let call = async { model.chat(hello(), &cx).await?.finish().await.map(|answer| answer.text.to_string()) };
    let time = async {
        settle(&clock, sleepers).await;
        clock.advance(wait);
    };
    let (end, ()) = tokio::join!(call, time);
    end
}

#[tokio::test]
async fn silence_after_the_request_is_a_first_token_timeout() {
    let end = result_after("", 1, Duration::from_secs(15)).await;
    assert_eq!(end.unwrap_err().kind, LlmErrorKind::FirstTokenTimeout);
}

#[tokio::test]
async fn a_response_without_streaming_has_no_first_token_timeout() {
    let (base, writer, _requests) = server().await;
    let (clock, cx) = setting();
    let mut entry = entry(&base);
    entry.extra.insert("stream".into(), false.into());
    let model = OpenAi::new(&entry, &LlmEnvironment::default()).unwrap();
    let call = async { model.chat(hello(), &cx).await.unwrap().finish().await.unwrap() };
    let server = async {
        settle(&clock, 1).await;
        clock.advance(segue_base::limits::MODEL_FIRST_TOKEN + Duration::from_secs(5));
        let body = r#"{"choices":[{"message":{"content":"whole"},"finish_reason":"stop"}]}"#;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
        writer.send(format!("{head}content-length: {}\r\n\r\n{body}", body.len())).unwrap();
    };
    let (answer, ()) = tokio::join!(call, server);
    assert_eq!(&*answer.text, "whole");
}

/// The `timeout` of the entry ends the call to one model; the caller has time left for another.
#[tokio::test]
async fn after_the_timeout_of_an_entry_the_next_model_is_called() {
    let whole = json!({"stream": false}).as_object().cloned().unwrap();
    let seconds = Duration::from_secs;
    for (change, wait) in [
        (ModelConfig { timeout: Some(seconds(10)), ..ModelConfig::default() }, 10),
        (ModelConfig { timeout: Some(seconds(20)), extra: whole, ..ModelConfig::default() }, 20),
        (ModelConfig { timeout: Some(seconds(20)), model: "gpt-oss-20b".into(), ..ModelConfig::default() }, 20),
    ] {
        let (base, _writer, _requests) = server().await;
        let (clock, cx) = setting();
        let first = ModelConfig { timeout: change.timeout, extra: change.extra, ..entry(&base) };
        let first = if change.model.is_empty() { first } else { ModelConfig { model: change.model, ..first } };
        let source = ScriptSource::Text { name: "s.yml".into(), text: "rules: [{say: second}]".into() };
        let second = ModelConfig { provider: "scripted".into(), source: Some(source), ..ModelConfig::default() };
        let group = open_group(&[first, second], &RouterConfig::default(), &LlmEnvironment::default()).unwrap();
        let call = async { group.chat(hello(), &cx).await?.finish().await.map(|answer| answer.text.to_string()) };
        let time = async {
            settle(&clock, 1).await;
            clock.advance(seconds(wait));
        };
        let (end, ()) = tokio::join!(call, time);
        assert_eq!(end, Ok("second".to_owned()), "after {wait} s");
        assert_eq!(cx.remaining(), seconds(60 - wait));
    }
}

#[tokio::test]
async fn silence_after_the_head_is_a_first_token_timeout() {
    // The first sleeper waits for the head, the second for the first event.
    let end = result_after(HEAD, 2, Duration::from_secs(15)).await;
    assert_eq!(end.unwrap_err().kind, LlmErrorKind::FirstTokenTimeout);
}

#[tokio::test]
async fn silence_within_the_response_is_an_idle_timeout() {
    let (base, writer, _requests) = server().await;
    let (clock, cx) = setting();
    writer.send([HEAD, EVENT].concat()).unwrap();
    let mut stream = model(&base).chat(hello(), &cx).await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(Delta::Text(_)))));
    let before = clock.slept().len();
    let (next, ()) = tokio::join!(stream.next(), async {
        settle(&clock, before + 1).await;
        clock.advance(Duration::from_secs(10));
    });
    assert_eq!(next.unwrap().unwrap_err().kind, LlmErrorKind::IdleTimeout);
    assert!(stream.next().await.is_none(), "a failure is returned once");
}

#[tokio::test]
async fn the_whole_call_has_a_timeout() {
    let (base, writer, _requests) = server().await;
    let (clock, cx) = setting();
    writer.send([HEAD, EVENT].concat()).unwrap();
    let mut stream = model(&base).chat(hello(), &cx).await.unwrap();
    let mut end = None;
    for _ in 0..10 {
        match stream.next().await.unwrap() {
            Ok(_) => {
                clock.advance(Duration::from_secs(7));
                writer.send(EVENT.into()).unwrap();
            }
            Err(error) => {
                end = Some(error);
                break;
            }
        }
    }
    assert_eq!(end.unwrap().kind, LlmErrorKind::CallTimeout);
}

#[tokio::test]
async fn after_the_finish_reason_an_open_connection_costs_only_the_grace_period() {
    let (base, writer, _requests) = server().await;
    let (clock, cx) = setting();
    writer.send([HEAD, EVENT, STOP].concat()).unwrap();
    let mut stream = model(&base).chat(hello(), &cx).await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(Delta::Text(_)))));
    let before = clock.slept().len();
    let (next, ()) = tokio::join!(stream.next(), async {
        settle(&clock, before + 1).await;
        clock.advance(segue_base::limits::MODEL_AFTER_END);
    });
    assert!(matches!(next, Some(Ok(Delta::Done(_)))), "{next:?}");
}

#[tokio::test]
async fn cancelling_ends_the_call_and_closes_the_connection() {
    let (base, writer, mut requests) = server().await;
    let (_, cx) = setting();
    writer.send([HEAD, EVENT].concat()).unwrap();
    let mut stream = model(&base).chat(hello(), &cx).await.unwrap();
    stream.next().await.unwrap().unwrap();
    cx.cancel.cancel();
    assert_eq!(stream.next().await.unwrap().unwrap_err().kind, LlmErrorKind::Cancelled);
    requests.recv().await.unwrap();
    // The server notices as soon as it writes into the closed connection.
    while requests.try_recv().is_err() {
        let _ = writer.send(EVENT.repeat(100));
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn error_responses_are_classified_and_the_key_is_masked() {
    let (base, writer, _requests) = server().await;
    let (_, cx) = setting();
    let body = r#"{"error":{"message":"wrong key hunter2-long","code":"invalid_api_key"}}"#;
    writer.send(format!("HTTP/1.1 401 No\r\ncontent-length: {}\r\n\r\n{body}", body.len())).unwrap();
    let error = model(&base).chat(hello(), &cx).await.unwrap_err();
    assert_eq!(error.kind, LlmErrorKind::Unauthorised);
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}

#[tokio::test]
async fn a_rate_limit_error_has_the_retry_after_of_the_response() {
    let (base, writer, _requests) = server().await;
    let (_, cx) = setting();
    writer.send("HTTP/1.1 429 Slow\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n".into()).unwrap();
    let error = model(&base).chat(hello(), &cx).await.unwrap_err();
    assert_eq!(error.kind, LlmErrorKind::RateLimited { after: Some(Duration::from_secs(7)) });
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (base, writer, _requests) = server().await;
    let (_, cx) = setting();
    writer.send("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n".into()).unwrap();
    assert_eq!(model(&base).chat(hello(), &cx).await.unwrap_err().kind, LlmErrorKind::NotFound);
}

#[tokio::test]
async fn a_broken_connection_is_a_truncated_response() {
    let (base, writer, _requests) = server().await;
    let (_, cx) = setting();
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    writer.send(format!("{head}{:x}\r\n{EVENT}\r\n5\r\nda", EVENT.len())).unwrap();
    drop(writer);
    let mut stream = model(&base).chat(hello(), &cx).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap(), Delta::Text("hi".into()));
    assert_eq!(stream.next().await.unwrap().unwrap_err().kind, LlmErrorKind::Truncated);
}

#[tokio::test]
async fn a_refused_connection_is_unreachable() {
    // Bound but not listening: connections are refused, and no other test gets the port.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let base = format!("http://{}/v1", socket.local_addr().unwrap());
    let (_, cx) = setting();
    assert_eq!(model(&base).chat(hello(), &cx).await.unwrap_err().kind, LlmErrorKind::Unreachable);
}

/// Without `timeout` in its entry, a call ends after [`segue_base::limits::MODEL_TOTAL`].
#[tokio::test]
async fn a_call_without_timeout_ends_after_the_default() {
    let (base, writer, _requests) = server().await;
    let clock = ManualClock::new();
    let cx = clock.context(Duration::from_secs(600));
    writer.send([HEAD, EVENT].concat()).unwrap();
    let model = OpenAi::new(&ModelConfig { timeout: None, ..entry(&base) }, &LlmEnvironment::default()).unwrap();
    let mut stream = model.chat(hello(), &cx).await.unwrap();
    let began = cx.remaining();
    let interval = Duration::from_secs(7);
    let end = loop {
        match stream.next().await.unwrap() {
            Ok(_) => {
                clock.advance(interval);
                writer.send(EVENT.into()).unwrap();
            }
            Err(error) => break error,
        }
    };
    assert_eq!(end.kind, LlmErrorKind::CallTimeout);
    let took = began - cx.remaining();
    assert!(took >= segue_base::limits::MODEL_TOTAL && took < segue_base::limits::MODEL_TOTAL + interval, "{took:?}");
}

/// The first address closes the connection; the second answers.
#[tokio::test]
async fn the_next_address_of_a_host_is_tried() {
    let (dead, alive) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let outbound =
        HttpClients::with_resolved("models.test", &[dead.local_addr().unwrap(), alive.local_addr().unwrap()]);
    let environment = LlmEnvironment { outbound, ..LlmEnvironment::default() };
    let model = OpenAi::new(&entry("http://models.test/v1"), &environment).unwrap();
    let clock = ManualClock::new();
    let cx = clock.context(Duration::from_secs(60));
    let closes = async { drop(dead.accept().await.unwrap()) };
    let (failed, ()) = tokio::join!(model.chat(hello(), &cx), closes);
    assert_eq!(failed.unwrap_err().kind, LlmErrorKind::Unreachable);
    for _ in 0..2 {
        let answers = async {
            let (mut stream, _) = alive.accept().await.unwrap();
            request(&mut stream).await;
            stream.write_all(format!("{HEAD}{EVENT}{STOP}data: [DONE]\n\n").as_bytes()).await.unwrap();
        };
        let call = async { model.chat(hello(), &cx).await.unwrap().finish().await };
        let (answer, ()) = tokio::join!(call, answers);
        assert_eq!(&*answer.unwrap().text, "hi", "it is used as long as it answers");
    }
}

/// Two concurrent failures of the first address count as one, so the next call goes to the second address.
#[tokio::test]
async fn concurrent_failures_move_on_by_one_address() {
    let (dead, alive) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let outbound =
        HttpClients::with_resolved("models.test", &[dead.local_addr().unwrap(), alive.local_addr().unwrap()]);
    let environment = LlmEnvironment { outbound, ..LlmEnvironment::default() };
    let model = OpenAi::new(&entry("http://models.test/v1"), &environment).unwrap();
    let clock = ManualClock::new();
    let cx = clock.context(Duration::from_secs(60));
    let closes = async { drop((dead.accept().await.unwrap(), dead.accept().await.unwrap())) };
    let (first, second, ()) = tokio::join!(model.chat(hello(), &cx), model.chat(hello(), &cx), closes);
    for failed in [first, second] {
        assert_eq!(failed.unwrap_err().kind, LlmErrorKind::Unreachable);
    }
    let answers = async {
        let (mut stream, _) = tokio::select! {
            accepted = alive.accept() => accepted.unwrap(),
            _ = dead.accept() => panic!("the failed address is called again"),
        };
        request(&mut stream).await;
        stream.write_all(format!("{HEAD}{EVENT}{STOP}data: [DONE]\n\n").as_bytes()).await.unwrap();
    };
    let call = async { model.chat(hello(), &cx).await.unwrap().finish().await };
    let (answer, ()) = tokio::join!(call, answers);
    assert_eq!(&*answer.unwrap().text, "hi");
}

#[tokio::test]
async fn a_deprecation_notice_is_a_warning_of_the_response() {
    let (base, writer, _requests) = server().await;
    writer.send(HEAD.replace("\r\nconnection", "\r\nsunset: Fri, 01 Jan 2027 00:00:00 GMT\r\nconnection")).unwrap();
    writer.send(format!("{EVENT}{STOP}data: [DONE]\n\n")).unwrap();
    let clock = ManualClock::new();
    let answer =
        model(&base).chat(hello(), &clock.context(Duration::from_secs(60))).await.unwrap().finish().await.unwrap();
    assert_eq!(
        answer.warnings,
        [ResponseWarning::Deprecated { notice: "sunset: Fri, 01 Jan 2027 00:00:00 GMT".into() }]
    );
}

//! The wire against a faulty server on loopback: raw TCP, manual time.

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
    ResponseWarning, RouterConfig, Source, open_group, openai::OpenAi,
};

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
const EVENT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

/// What the server is told to do next. Dropping the sender closes the connection.
type Orders = mpsc::UnboundedSender<String>;

/// A server that takes one request, hands it over, and then writes what it is told.
async fn server() -> (String, Orders, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let (orders, mut told) = mpsc::unbounded_channel::<String>();
    let (heard, requests) = mpsc::unbounded_channel();
    tokio::task::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        heard.send(request(&mut stream).await).unwrap();
        while let Some(bytes) = told.recv().await {
            if stream.write_all(bytes.as_bytes()).await.is_err() {
                // The client hung up, which some tests wait for.
                let _ = heard.send("gone".into());
                return;
            }
        }
    });
    (base, orders, requests)
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

/// Waits until the clock's sleepers, if any, are asleep: by letting the others run.
async fn settle(clock: &ManualClock, sleepers: usize) {
    while clock.slept().len() < sleepers {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_whole_exchange() {
    let (base, orders, mut requests) = server().await;
    let (_, cx) = setting();
    orders.send([HEAD, EVENT, STOP, "data: [DONE]\n\n"].concat()).unwrap();
    let answer = model(&base).chat(hello(), &cx).await.unwrap().finish().await.unwrap();
    assert_eq!(&*answer.text, "hi");
    let request = requests.recv().await.unwrap();
    assert!(request.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{request}");
    assert!(request.to_lowercase().contains("authorization: bearer hunter2-long"), "{request}");
}

#[tokio::test]
async fn text_is_told_while_the_stream_is_open() {
    let (base, orders, _requests) = server().await;
    let (_, cx) = setting();
    orders.send([HEAD, EVENT].concat()).unwrap();
    let mut stream = model(&base).chat(hello(), &cx).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap(), Delta::Text("hi".into()));
    orders.send(STOP.into()).unwrap();
    drop(orders);
    assert!(matches!(stream.next().await, Some(Ok(Delta::Done(_)))));
    assert!(stream.next().await.is_none());
}

/// Runs a call against what the server wrote, lets time pass once the call sleeps, and gives its end.
async fn end_after(orders_text: &str, sleepers: usize, wait: Duration) -> Result<String, LlmError> {
    let (base, orders, _requests) = server().await;
    let (clock, cx) = setting();
    if !orders_text.is_empty() {
        orders.send(orders_text.into()).unwrap();
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
async fn silence_after_the_request() {
    let end = end_after("", 1, Duration::from_secs(15)).await;
    assert_eq!(end.unwrap_err().kind, LlmErrorKind::FirstTokenTimeout);
}

/// Nothing comes before a whole answer is whole: only the time of the whole call ends it.
#[tokio::test]
async fn a_whole_answer_may_take_longer_than_a_first_token() {
    let (base, orders, _requests) = server().await;
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
        orders.send(format!("{head}content-length: {}\r\n\r\n{body}", body.len())).unwrap();
    };
    let (answer, ()) = tokio::join!(call, server);
    assert_eq!(&*answer.text, "whole");
}

/// Its `timeout` ends the call to this model; the group has time left.
#[tokio::test]
async fn a_silent_model_hands_over_when_the_time_of_its_entry_is_over() {
    let whole = json!({"stream": false}).as_object().cloned().unwrap();
    let seconds = Duration::from_secs;
    for (change, wait) in [
        (ModelConfig { timeout: Some(seconds(10)), ..ModelConfig::default() }, 10),
        (ModelConfig { timeout: Some(seconds(20)), extra: whole, ..ModelConfig::default() }, 20),
        (ModelConfig { timeout: Some(seconds(20)), model: "gpt-oss-20b".into(), ..ModelConfig::default() }, 20),
    ] {
        let (base, _orders, _requests) = server().await;
        let (clock, cx) = setting();
        let first = ModelConfig { timeout: change.timeout, extra: change.extra, ..entry(&base) };
        let first = if change.model.is_empty() { first } else { ModelConfig { model: change.model, ..first } };
        let source = Source::Text { name: "s.yml".into(), text: "rules: [{say: second}]".into() };
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
async fn silence_after_the_head() {
    // The first sleeper waits for the head, the second for the first event.
    let end = end_after(HEAD, 2, Duration::from_secs(15)).await;
    assert_eq!(end.unwrap_err().kind, LlmErrorKind::FirstTokenTimeout);
}

#[tokio::test]
async fn silence_within_the_answer() {
    let (base, orders, _requests) = server().await;
    let (clock, cx) = setting();
    orders.send([HEAD, EVENT].concat()).unwrap();
    let mut stream = model(&base).chat(hello(), &cx).await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(Delta::Text(_)))));
    let before = clock.slept().len();
    let (next, ()) = tokio::join!(stream.next(), async {
        settle(&clock, before + 1).await;
        clock.advance(Duration::from_secs(10));
    });
    assert_eq!(next.unwrap().unwrap_err().kind, LlmErrorKind::Idle);
    assert!(stream.next().await.is_none(), "a failure is told once");
}

#[tokio::test]
async fn the_whole_call_has_an_end() {
    let (base, orders, _requests) = server().await;
    let (clock, cx) = setting();
    orders.send([HEAD, EVENT].concat()).unwrap();
    let mut stream = model(&base).chat(hello(), &cx).await.unwrap();
    let mut end = None;
    for _ in 0..10 {
        match stream.next().await.unwrap() {
            Ok(_) => {
                clock.advance(Duration::from_secs(7));
                orders.send(EVENT.into()).unwrap();
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
async fn a_server_that_never_closes_costs_only_the_grace() {
    let (base, orders, _requests) = server().await;
    let (clock, cx) = setting();
    orders.send([HEAD, EVENT, STOP].concat()).unwrap();
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
async fn cancelling_ends_the_call_and_the_connection() {
    let (base, orders, mut requests) = server().await;
    let (_, cx) = setting();
    orders.send([HEAD, EVENT].concat()).unwrap();
    let mut stream = model(&base).chat(hello(), &cx).await.unwrap();
    stream.next().await.unwrap().unwrap();
    cx.cancel.cancel();
    assert_eq!(stream.next().await.unwrap().unwrap_err().kind, LlmErrorKind::Cancelled);
    requests.recv().await.unwrap();
    // The server notices as soon as it writes into the closed connection.
    while requests.try_recv().is_err() {
        let _ = orders.send(EVENT.repeat(100));
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn refusals_become_decisions_and_hide_the_key() {
    let (base, orders, _requests) = server().await;
    let (_, cx) = setting();
    let body = r#"{"error":{"message":"wrong key hunter2-long","code":"invalid_api_key"}}"#;
    orders.send(format!("HTTP/1.1 401 No\r\ncontent-length: {}\r\n\r\n{body}", body.len())).unwrap();
    let error = model(&base).chat(hello(), &cx).await.unwrap_err();
    assert_eq!(error.kind, LlmErrorKind::Unauthorised);
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}

#[tokio::test]
async fn a_limit_says_how_long_to_wait() {
    let (base, orders, _requests) = server().await;
    let (_, cx) = setting();
    orders.send("HTTP/1.1 429 Slow\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n".into()).unwrap();
    let error = model(&base).chat(hello(), &cx).await.unwrap_err();
    assert_eq!(error.kind, LlmErrorKind::RateLimited { after: Some(Duration::from_secs(7)) });
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (base, orders, _requests) = server().await;
    let (_, cx) = setting();
    orders.send("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n".into()).unwrap();
    assert_eq!(model(&base).chat(hello(), &cx).await.unwrap_err().kind, LlmErrorKind::NotFound);
}

#[tokio::test]
async fn a_broken_connection_is_a_cut() {
    let (base, orders, _requests) = server().await;
    let (_, cx) = setting();
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    orders.send(format!("{head}{:x}\r\n{EVENT}\r\n5\r\nda", EVENT.len())).unwrap();
    drop(orders);
    let mut stream = model(&base).chat(hello(), &cx).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap(), Delta::Text("hi".into()));
    assert_eq!(stream.next().await.unwrap().unwrap_err().kind, LlmErrorKind::CutShort);
}

#[tokio::test]
async fn nobody_there() {
    // Bound and never listening: nobody else gets the port, and nobody answers there.
    let nobody = tokio::net::TcpSocket::new_v4().unwrap();
    nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let base = format!("http://{}/v1", nobody.local_addr().unwrap());
    let (_, cx) = setting();
    assert_eq!(model(&base).chat(hello(), &cx).await.unwrap_err().kind, LlmErrorKind::Unreachable);
}

/// Without a `timeout` in its entry, a call ends when the table says.
#[tokio::test]
async fn a_call_without_a_timeout_of_its_own_ends_all_the_same() {
    let (base, orders, _requests) = server().await;
    let clock = ManualClock::new();
    let cx = clock.context(Duration::from_secs(600));
    orders.send([HEAD, EVENT].concat()).unwrap();
    let model = OpenAi::new(&ModelConfig { timeout: None, ..entry(&base) }, &LlmEnvironment::default()).unwrap();
    let mut stream = model.chat(hello(), &cx).await.unwrap();
    let began = cx.remaining();
    let pace = Duration::from_secs(7);
    let end = loop {
        match stream.next().await.unwrap() {
            Ok(_) => {
                clock.advance(pace);
                orders.send(EVENT.into()).unwrap();
            }
            Err(error) => break error,
        }
    };
    assert_eq!(end.kind, LlmErrorKind::CallTimeout);
    let took = began - cx.remaining();
    assert!(took >= segue_base::limits::MODEL_TOTAL && took < segue_base::limits::MODEL_TOTAL + pace, "{took:?}");
}

/// The first address takes the connection and says nothing; the second answers.
#[tokio::test]
async fn the_next_address_of_a_host_is_tried() {
    let (dead, alive) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let outbound =
        HttpClients::with_resolved("models.test", &[dead.local_addr().unwrap(), alive.local_addr().unwrap()]);
    let around = LlmEnvironment { outbound, ..LlmEnvironment::default() };
    let model = OpenAi::new(&entry("http://models.test/v1"), &around).unwrap();
    let clock = ManualClock::new();
    let cx = clock.context(Duration::from_secs(60));
    let hangs_up = async { drop(dead.accept().await.unwrap()) };
    let (failed, ()) = tokio::join!(model.chat(hello(), &cx), hangs_up);
    assert_eq!(failed.unwrap_err().kind, LlmErrorKind::Unreachable);
    for _ in 0..2 {
        let answers = async {
            let (mut stream, _) = alive.accept().await.unwrap();
            request(&mut stream).await;
            stream.write_all(format!("{HEAD}{EVENT}{STOP}data: [DONE]\n\n").as_bytes()).await.unwrap();
        };
        let asks = async { model.chat(hello(), &cx).await.unwrap().finish().await };
        let (answer, ()) = tokio::join!(asks, answers);
        assert_eq!(&*answer.unwrap().text, "hi", "and kept, while it answers");
    }
}

/// Both were on their way to the first address when it hung up: its failure is one, and what comes next goes to the second.
#[tokio::test]
async fn two_that_fail_together_go_on_to_the_same_next_address() {
    let (dead, alive) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let outbound =
        HttpClients::with_resolved("models.test", &[dead.local_addr().unwrap(), alive.local_addr().unwrap()]);
    let around = LlmEnvironment { outbound, ..LlmEnvironment::default() };
    let model = OpenAi::new(&entry("http://models.test/v1"), &around).unwrap();
    let clock = ManualClock::new();
    let cx = clock.context(Duration::from_secs(60));
    let hangs_up = async { drop((dead.accept().await.unwrap(), dead.accept().await.unwrap())) };
    let (first, second, ()) = tokio::join!(model.chat(hello(), &cx), model.chat(hello(), &cx), hangs_up);
    for failed in [first, second] {
        assert_eq!(failed.unwrap_err().kind, LlmErrorKind::Unreachable);
    }
    let answers = async {
        let (mut stream, _) = tokio::select! {
            accepted = alive.accept() => accepted.unwrap(),
            _ = dead.accept() => panic!("the address that failed is asked again"),
        };
        request(&mut stream).await;
        stream.write_all(format!("{HEAD}{EVENT}{STOP}data: [DONE]\n\n").as_bytes()).await.unwrap();
    };
    let asks = async { model.chat(hello(), &cx).await.unwrap().finish().await };
    let (answer, ()) = tokio::join!(asks, answers);
    assert_eq!(&*answer.unwrap().text, "hi");
}

#[tokio::test]
async fn an_end_that_a_vendor_announces_stands_with_the_answer() {
    let (base, orders, _requests) = server().await;
    orders.send(HEAD.replace("\r\nconnection", "\r\nsunset: Fri, 01 Jan 2027 00:00:00 GMT\r\nconnection")).unwrap();
    orders.send(format!("{EVENT}{STOP}data: [DONE]\n\n")).unwrap();
    let clock = ManualClock::new();
    let answer =
        model(&base).chat(hello(), &clock.context(Duration::from_secs(60))).await.unwrap().finish().await.unwrap();
    assert_eq!(answer.oddities, [ResponseWarning::Deprecated { said: "sunset: Fri, 01 Jan 2027 00:00:00 GMT".into() }]);
}

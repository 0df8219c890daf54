//! A channel written in Rust: plain text in, plain text out, over `POST /webhooks/plain/<who>`.
//!
//! `cargo run --example custom_channel`

use std::{convert::Infallible, error::Error, sync::Arc};

use axum::http::{Request, Response, StatusCode};
use bytes::Bytes;
use segue::{
    Arrival, Assistant, Channel, Inbox, NoSink,
    channels::{Body, Service, wire},
    server,
};

/// Plain text, for `curl`.
struct Plain;

impl Channel for Plain {
    fn name(&self) -> &str {
        "plain"
    }
    /// Any tower service over `http` types will do; the server has read the body within its limits.
    fn service(&self, inbox: Inbox) -> Service {
        Service::new(tower::service_fn(move |request: Request<Bytes>| {
            let inbox = inbox.clone();
            async move { Ok::<_, Infallible>(answer(&inbox, &request).await) }
        }))
    }
}

async fn answer(inbox: &Inbox, request: &Request<Bytes>) -> Response<Body> {
    let arrival = Arrival {
        sender: request.uri().path().trim_matches('/').to_owned(),
        text: String::from_utf8_lossy(request.body()).into_owned(),
        ..Arrival::default()
    };
    // Replies are in the report, whatever the sink took; one that shows pieces as they come is a `ReplySink` of your own.
    let (status, text) = match inbox.receive(arrival, Box::new(NoSink)).await {
        Ok(report) => {
            let texts: Vec<_> = report.replies.iter().flat_map(|reply| wire::texts(&reply.reply)).collect();
            (StatusCode::OK, texts.join("\n"))
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    };
    let mut answer = Response::new(Body::from(text));
    *answer.status_mut() = status;
    answer
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/projects/desk");
    let assistant = Assistant::load(folder)?;
    let channels: [Arc<dyn Channel>; 1] = [Arc::new(Plain)];

    // Port 0 takes a free one; the server ends with the program.
    let settings =
        server::Settings { host: [127, 0, 0, 1].into(), port: 0, api: false, api_has_token: false, open_agent: false };
    let listener = server::listen(&settings).await?;
    let address = format!("http://{}/webhooks/plain/ada", listener.local_addr()?);
    let router = server::router(&assistant, &channels);
    tokio::spawn(async move { server::serve(listener, router, &assistant, std::future::pending()).await });

    let outbound = segue::http::Outbound::new();
    for (message, expected) in [("hello", "What is your name?"), ("I am Ada", "Hello Ada!")] {
        let text = outbound.client()?.post(&address).body(message).send().await?.text().await?;
        assert!(text.starts_with(expected), "{text}");
    }
    Ok(())
}

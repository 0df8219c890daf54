//! A custom channel in Rust: plain text in both directions over `POST /webhooks/plain/<sender>`.
//!
//! `cargo run --example custom_channel`

use std::{error::Error, sync::Arc};

use segue::{
    channels,
    http::HttpClients,
    prelude::*,
    server::{self, ServerSettings},
};

/// A channel for plain text.
struct Plain;

impl Channel for Plain {
    fn name(&self) -> &str {
        "plain"
    }
    fn service(&self, inbox: Inbox) -> ChannelService {
        // The server has read the body within its limits. A message that is not accepted gets the right HTTP status.
        channels::request_response(
            inbox,
            |request| {
                let text = std::str::from_utf8(request.body()).map_err(|_| "the body is not UTF-8")?;
                Ok(IncomingMessage::new(request.uri().path().trim_matches('/'), text))
            },
            |report| report.text(),
        )
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let assistant = Assistant::load(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/projects/rust_examples"))?;
    let router = server::router(&assistant, &[Arc::new(Plain)]);

    // Port 0 is a free port. The server ends with the program.
    let listener = server::listen(&ServerSettings::new().port(0)).await?;
    let address = format!("http://{}/webhooks/plain/ada", listener.local_addr()?);
    tokio::spawn(async move { server::serve(listener, router, &assistant, std::future::pending()).await });

    let outbound = HttpClients::new();
    for (message, expected) in [("hello", "What is your name?"), ("I am Ada", "Hello Ada!")] {
        let text = outbound.client()?.post(&address).body(message).send().await?.text().await?;
        assert!(text.starts_with(expected), "{text}");
    }
    Ok(())
}

//! Segue in your own axum server: its routes next to yours.
//!
//! `cargo run --example embed_axum`

use std::{error::Error, time::Duration};

use axum::{Router, routing::get};
use segue::{http::HttpClients, prelude::*};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let assistant = Assistant::load(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/projects/rust_examples"))?;
    // `/livez`, `/readyz`, `/health` and the channels of the project, as in `segue run`.
    let app = Router::new().route("/", get(|| async { "my own page" })).nest("/assistant", axum_router(&assistant));

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });

    let outbound = HttpClients::new();
    let client = outbound.client()?;
    assert_eq!(client.get(&address).send().await?.text().await?, "my own page");
    let hello = json!({"sender": "ada", "message": "hello"}).to_string();
    let webhook = format!("{address}/assistant/webhooks/rest/webhook");
    let answer = client.post(webhook).body(hello).send().await?.text().await?;
    assert_eq!(answer, r#"[{"recipient_id":"ada","text":"What is your name?"}]"#);

    // Waits for running turns, at most five seconds.
    assistant.close(Duration::from_secs(5)).await;
    Ok(())
}

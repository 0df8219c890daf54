//! Segue inside an axum server of your own: its routes beside yours.
//!
//! `cargo run --example embed_axum`

use std::{error::Error, sync::Arc};

use axum::{Router, routing::get};
use segue::{Assistant, Channel, Rest, server};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/projects/desk");
    let assistant = Assistant::load(folder)?;
    let channels: [Arc<dyn Channel>; 1] = [Arc::new(Rest::default())];
    let app = Router::new().route("/", get(|| async { "my own page" })).merge(server::router(&assistant, &channels));

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });

    let outbound = segue::http::Outbound::new();
    let client = outbound.client()?;
    assert_eq!(client.get(&address).send().await?.text().await?, "my own page");
    let hello =
        client.post(format!("{address}/webhooks/rest/webhook")).body(r#"{"sender": "ada", "message": "hello"}"#);
    let answer = hello.send().await?.text().await?;
    assert_eq!(answer, r#"[{"recipient_id":"ada","text":"What is your name?"}]"#);

    assistant.close(std::time::Duration::from_secs(5)).await;
    Ok(())
}

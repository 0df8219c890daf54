//! A custom channel for a chat platform: it sends messages to a webhook, and takes replies over an API of its own.
//!
//! `cargo run --example push_channel`

use std::{error::Error, sync::Arc};

use axum::http::StatusCode;
use segue::{
    CallContext, ConversationId, DeliveryError, Receipt, ReplySink, TurnEvent, channels,
    http::HttpClients,
    prelude::*,
    server::{self, ServerSettings},
};
use tokio::sync::mpsc;

/// The platform. Here its API is a queue of receivers and texts; a real one is an HTTP client.
#[derive(Clone)]
struct Platform {
    api: mpsc::Sender<(String, String)>,
}

/// A user of the platform, to whom replies are sent.
struct User {
    id: String,
    platform: Platform,
}

#[derive(Deserialize)]
struct Update {
    id: String,
    from: String,
    text: String,
}

#[async_trait]
impl ReplySink for User {
    fn wants_deltas(&self) -> bool {
        false
    }
    async fn send(&mut self, event: TurnEvent, _: &CallContext) -> Result<Receipt, DeliveryError> {
        // A reply that is not delivered is sent again later, with a growing pause.
        let TurnEvent::Message { message, .. } = event else { return Ok(Receipt::Skipped) };
        let text = message.text.as_deref().unwrap_or_default().to_owned();
        let sent = self.platform.api.send((self.id.clone(), text)).await;
        sent.map(|()| Receipt::Delivered).map_err(|error| DeliveryError::Temporary(error.to_string()))
    }
}

impl Platform {
    fn user(&self, id: &str) -> Box<dyn ReplySink> {
        Box::new(User { id: id.to_owned(), platform: self.clone() })
    }
}

impl Channel for Platform {
    fn name(&self) -> &str {
        "platform"
    }
    fn service(&self, inbox: Inbox) -> ChannelService {
        let platform = self.clone();
        channels::webhook(
            inbox,
            |request| {
                // A real platform signs the body: check the signature here, and return 401 if it is wrong.
                let update: Update = serde_json::from_slice(request.body())
                    .map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
                Ok(Some(IncomingMessage::new(update.from, update.text).message_id(update.id)))
            },
            move |message| platform.user(message.conversation.as_str()),
        )
    }
    /// For reminders and other messages that answer no webhook.
    fn sink(&self, to: &ConversationId) -> Option<Box<dyn ReplySink>> {
        Some(self.user(to.as_str()))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let assistant = Assistant::load(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/projects/rust_examples"))?;
    let (api, mut sent) = mpsc::channel(16);
    let router = server::router(&assistant, &[Arc::new(Platform { api })]);
    let listener = server::listen(&ServerSettings::new().port(0)).await?;
    let address = format!("http://{}/webhooks/platform", listener.local_addr()?);
    tokio::spawn(async move { server::serve(listener, router, &assistant, std::future::pending()).await });

    let outbound = HttpClients::new();
    // The platform repeats the first update: it is answered once.
    for (id, text, expected) in
        [("1", "hello", Some("What is your name?")), ("1", "hello", None), ("2", "I am Ada", Some("Hello Ada!"))]
    {
        let update = json!({"id": id, "from": "ada", "text": text}).to_string();
        outbound.client()?.post(&address).body(update).send().await?.error_for_status()?;
        if let Some(expected) = expected {
            let (to, text) = sent.recv().await.ok_or("the platform is gone")?;
            assert!(to == "ada" && text.starts_with(expected), "{to}: {text}");
        }
    }
    Ok(())
}

//! A service for channels of chat platforms: a webhook with one message is answered as soon as the message is stored, and the replies go to
//! the platform over its own API.

use std::{convert::Infallible, sync::Arc};

use axum::http::{Request, StatusCode};
use bytes::Bytes;
use serde_json::json;

use super::{ChannelService, Inbox, json, problem, request_response::error_response};
use crate::{conversation::ReplySink, runtime::IncomingMessage};

/// A service that parses each request as a message and answers 200 when the message is stored: it is then answered even if this process
/// ends. The replies are sent to the sink of its sender, which is best that of [`Channel::sink`](super::Channel::sink).
///
/// `parse` sees the head and the whole body, so it is the place to check a signature over the body. `Ok(None)` is answered with 200 and does
/// nothing, for updates without a message. Give the message the id that the platform gives to it: platforms repeat a webhook whose answer takes
/// too long, and a message with a known id is not processed again, and its delivered replies are not sent again.
///
/// If `parse` fails, the response has the returned status and the body `{"error": …}`. A message that was not accepted gets 429 or 503 with
/// `Retry-After`, and 500 if it is unknown whether it was: the platform then sends it again.
pub fn webhook<P, S>(inbox: Inbox, parse: P, sink: S) -> ChannelService
where
    P: Fn(&Request<Bytes>) -> Result<Option<IncomingMessage>, (StatusCode, String)> + Send + Sync + 'static,
    S: Fn(&IncomingMessage) -> Box<dyn ReplySink> + Send + Sync + 'static,
{
    let functions = Arc::new((parse, sink));
    ChannelService::new(tower::service_fn(move |request: Request<Bytes>| {
        let (inbox, functions) = (inbox.clone(), functions.clone());
        async move {
            let (parse, sink) = &*functions;
            let message = match parse(&request) {
                Ok(Some(message)) => message,
                Ok(None) => return Ok::<_, Infallible>(json(StatusCode::OK, &json!({}))),
                Err((status, reason)) => return Ok(problem(status, &reason)),
            };
            let sink = sink(&message);
            Ok(match inbox.accept(message, sink).await {
                Ok(_) => json(StatusCode::OK, &json!({})),
                Err(error) => error_response(&error),
            })
        }
    }))
}

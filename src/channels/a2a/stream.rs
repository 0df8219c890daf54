//! Task updates as server-sent events. The event id of an update lets a client resume a broken stream after it.

use std::sync::Arc;

use axum::http::Response;
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::{Value as Json, json};

use super::{A2aRequestError, http_json, jsonrpc, task_run::UpdateStream};
use crate::{
    a2a::{A2aWireFormat, encode, model::Update},
    channels::{
        Body,
        stream::{SSE_HEARTBEAT, stream_response},
    },
    clock::Clock,
};

/// The envelope of each update.
#[derive(Clone)]
pub(super) enum Envelope {
    /// A JSON-RPC response to the request with this id.
    JsonRpc(Json),
    /// None, as in the binding HTTP+JSON.
    None,
}

impl Envelope {
    fn update(&self, update: &Update, format: A2aWireFormat) -> Json {
        let update = encode::update(update, format);
        match self {
            Self::JsonRpc(id) => json!({"jsonrpc": "2.0", "id": id, "result": update}),
            Self::None => update,
        }
    }
    fn error(&self, error: &A2aRequestError) -> Json {
        match self {
            Self::JsonRpc(id) => jsonrpc::error_response(id, error),
            Self::None => http_json::status_and_error(error).1,
        }
    }
}

/// The source of the updates of a stream.
pub(super) enum UpdateSource {
    /// One update: a task that is not running.
    Single(Box<Update>),
    /// A run, until it has finished.
    Run(UpdateStream),
}

/// A response that streams updates. *Cancellation*: if the caller disconnects, the task continues.
pub(super) fn sse_response(
    source: UpdateSource,
    envelope: Envelope,
    format: A2aWireFormat,
    clock: &Arc<dyn Clock>,
) -> Response<Body> {
    let chunks = match source {
        UpdateSource::Single(update) => {
            let bytes = event(None, &envelope.update(&update, format));
            stream::iter([bytes]).boxed()
        }
        UpdateSource::Run(updates) => {
            let updates = stream::unfold(updates, |mut updates| async move {
                let next = updates.next().await?;
                Some((next, updates))
            });
            let events = updates.map(move |next| match next {
                Ok((id, update)) => event(Some(&id), &envelope.update(&update, format)),
                Err(error) => event(None, &envelope.error(&error)),
            });
            events.boxed()
        }
    };
    stream_response(chunks, "text/event-stream", Some(SSE_HEARTBEAT), clock)
}

fn event(id: Option<&str>, json: &Json) -> Bytes {
    match id {
        Some(id) => format!("id: {id}\ndata: {json}\n\n").into(),
        None => format!("data: {json}\n\n").into(),
    }
}

//! A course as server-sent events: one update each, with the cursor from which a broken connection goes on.

use std::sync::Arc;

use axum::http::Response;
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::{Value as Json, json};

use super::{A2aRequestError, course::Listening, rest, rpc};
use crate::{
    a2a::{A2aWireFormat, encode, model::Update},
    channels::{
        Body,
        stream::{PING, respond},
    },
    clock::Clock,
};

/// How events are wrapped.
#[derive(Clone)]
pub(super) enum Wrap {
    /// As answers to the request of this id.
    Rpc(Json),
    /// Not at all.
    Rest,
}

impl Wrap {
    fn event(&self, update: &Update, dialect: A2aWireFormat) -> Json {
        let inner = encode::update(update, dialect);
        match self {
            Self::Rpc(id) => json!({"jsonrpc": "2.0", "id": id, "result": inner}),
            Self::Rest => inner,
        }
    }
    fn refusal(&self, refusal: &A2aRequestError) -> Json {
        match self {
            Self::Rpc(id) => rpc::error(id, refusal),
            Self::Rest => rest::error(refusal).1,
        }
    }
}

/// What a stream shows: a few updates, or a course.
pub(super) enum Show {
    /// These, and nothing more.
    Only(Vec<Update>),
    /// A course to its end.
    Course(Listening),
}

/// The answer. *Cancellation*: when the caller goes away, the task goes on.
pub(super) fn answer(show: Show, wrap: Wrap, dialect: A2aWireFormat, clock: &Arc<dyn Clock>) -> Response<Body> {
    let pieces = match show {
        Show::Only(updates) => {
            let events: Vec<Bytes> = updates.iter().map(|update| event(None, &wrap.event(update, dialect))).collect();
            stream::iter(events).boxed()
        }
        Show::Course(listening) => {
            let updates = stream::unfold(listening, |mut listening| async move {
                let next = listening.next().await?;
                Some((next, listening))
            });
            let events = updates.map(move |next| match next {
                Ok((cursor, update)) => event(Some(&cursor), &wrap.event(&update, dialect)),
                Err(refusal) => event(None, &wrap.refusal(&refusal)),
            });
            events.boxed()
        }
    };
    respond(pieces, "text/event-stream", Some(PING), clock)
}

fn event(cursor: Option<&str>, json: &Json) -> Bytes {
    match cursor {
        Some(cursor) => format!("id: {cursor}\ndata: {json}\n\n").into(),
        None => format!("data: {json}\n\n").into(),
    }
}

//! Calls that are made many times to the same place, in the middle of a turn: those of models.
//!
//! They leave on hyper's connections, which a pool of our own keeps (`pool`), for one reason: a connection of HTTP/1 has no task here, and
//! whoever asks on it runs it (`line`). With a task, every request and every piece of an answer goes from one task to another and wakes it,
//! which cost a turn with a model a twentieth of its time. The general client does the same and more (redirects, proxies, forms) in
//! further layers, of no use here. What goes out and what comes back is what it would be there, byte for byte and word for word.

mod connector;
mod line;
mod pool;
mod reply;

use std::{error::Error, future::poll_fn, pin::pin};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, Uri, client::conn::TrySendError};
use percent_encoding::percent_decode_str;
use reqwest::{
    Url,
    header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, HOST, HeaderMap, HeaderValue, USER_AGENT},
};
use rustls::pki_types::CertificateDer;

pub use self::reply::Reply;
use self::{
    connector::Connector,
    pool::{Pool, Way},
    reply::Answer,
};
use super::{AGENT, Unbuilt, addresses::Addresses};
use crate::limits;

type Post = Request<Full<Bytes>>;

/// The client for calls. Get it by [`Outbound::calls`](super::Outbound::calls).
pub struct Calls(Pool);

/// A place that is called again and again: everything that is the same each time, prepared once.
pub struct Target {
    /// None when the address is one that no request can carry.
    place: Option<Box<Place>>,
    headers: HeaderMap,
    /// The host was given with the headers, and is sent in every version of HTTP.
    named: bool,
}

/// An address, as connections and requests want it.
struct Place {
    whole: Uri,
    /// What requests of HTTP/1 name: the path and the query.
    path: Uri,
    /// The server: scheme, host and port.
    server: String,
}

/// A call that failed on its way, with the cause at the root and without the address, which may hold a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// No answer came.
    #[error("error sending request: {0}")]
    Unanswered(String),
    /// The answer broke off.
    #[error("error decoding response body: {0}")]
    Cut(String),
}

impl Calls {
    pub(super) fn new(addresses: Addresses, trusted: &[CertificateDer<'static>]) -> Result<Self, Unbuilt> {
        Ok(Self(Pool::new(Connector::new(addresses, connector::tls(trusted)?))))
    }

    /// Sends `body` and waits for the head of what comes back, for as long as it takes.
    ///
    /// # Errors
    /// [`Lost`]: no answer came.
    ///
    /// # Cancellation
    /// Dropping the future takes the call back or closes its connection.
    pub async fn post(&self, to: &Target, body: impl Into<Bytes>) -> Result<Reply, Lost> {
        let place = to.place.as_ref().ok_or_else(|| Lost::Unanswered("the address is too long".to_owned()))?;
        let (body, mut left) = (body.into(), limits::HTTP_UNTOUCHED);
        loop {
            let (way, used) = self.0.way(place).await.map_err(|error| Lost::Unanswered(root(&*error)))?;
            let error = match ask(way, to, place, body.clone()).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            // The server had closed a kept connection before anything of the request was sent on it.
            if used && error.message().is_some() {
                continue;
            }
            let error = error.into_error();
            left = left.saturating_sub(1);
            if left == 0 || !untouched(&error) {
                return Err(Lost::Unanswered(root(&error)));
            }
        }
    }
}

async fn ask(way: Way, to: &Target, place: &Place, body: Bytes) -> Result<Reply, TrySendError<Post>> {
    match way {
        Way::Own(mut line) => {
            let mut answer = pin!(line.send(to.post(&place.path, body)));
            let mut sent = false;
            let response = poll_fn(|task| line.poll(task, std::mem::replace(&mut sent, true), answer.as_mut())).await?;
            Ok(Reply::new(response, |body| Answer::own(body, line)))
        }
        Way::Shared(mut send) => {
            let mut post = to.post(&place.whole, body);
            if !to.named {
                post.headers_mut().remove(HOST);
            }
            Ok(Reply::new(send.try_send_request(post).await?, Answer::shared))
        }
    }
}

impl Target {
    /// The place at `url`, with these headers and those that every request has.
    pub fn new(url: &Url, headers: HeaderMap) -> Self {
        let (mut bare, mut all) = (url.clone(), HeaderMap::new());
        if let Some(proof) = proof(url) {
            all.insert(AUTHORIZATION, proof);
        }
        // An address with a host always has room for a user, so that nothing fails here.
        let _ = bare.set_username("").and_then(|()| bare.set_password(None));
        all.extend(headers);
        for (name, value) in [(ACCEPT, "*/*"), (USER_AGENT, AGENT), (ACCEPT_ENCODING, "gzip")] {
            all.entry(name).or_insert(HeaderValue::from_static(value));
        }
        let named = all.contains_key(HOST);
        if let Some(host) = host(&bare).filter(|_| !named) {
            all.insert(HOST, host);
        }
        // What hyper adds finds room: each request has a copy of the table, as large as this one.
        all.reserve(2);
        Self { place: Place::new(&bare).map(Box::new), headers: all, named }
    }

    fn post(&self, uri: &Uri, body: Bytes) -> Post {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}

impl Place {
    fn new(url: &Url) -> Option<Self> {
        let whole: Uri = url.as_str().parse().ok()?;
        let path = whole.path_and_query()?.clone().into();
        let server = format!("{}://{}", whole.scheme_str()?, whole.authority()?);
        Some(Self { whole, path, server })
    }
}

/// The host as requests of HTTP/1 name it.
fn host(url: &Url) -> Option<HeaderValue> {
    let name = url.host_str()?;
    url.port().map_or_else(|| name.try_into(), |port| format!("{name}:{port}").try_into()).ok()
}

/// The proof that an address like `https://user:password@host/` holds.
fn proof(url: &Url) -> Option<HeaderValue> {
    let plain = |text| percent_decode_str(text).decode_utf8().ok();
    let (user, password) = (plain(url.username())?, url.password().and_then(plain));
    if user.is_empty() && password.is_none() {
        return None;
    }
    let both = BASE64_STANDARD.encode(format!("{user}:{}", password.unwrap_or_default()));
    let mut proof = HeaderValue::try_from(format!("Basic {both}")).ok()?;
    proof.set_sensitive(true);
    Some(proof)
}

/// The cause at the root of an error.
fn root(error: &(dyn Error + 'static)) -> String {
    causes(error).last().unwrap_or(error).to_string()
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// Whether the server said that it did not begin with the request: it is about to close the connection, or takes no more
/// requests on it. Requests on one connection share that fate by chance, so it is no failure of this one.
fn untouched(error: &(dyn Error + 'static)) -> bool {
    let said = causes(error).find_map(|cause| cause.downcast_ref::<h2::Error>()).filter(|error| error.is_remote());
    said.is_some_and(|error| {
        let reason = error.reason();
        error.is_go_away() && reason == Some(h2::Reason::NO_ERROR)
            || error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM)
    })
}

#[cfg(test)]
mod tests;

//! The callback channel, compatible with Rasa's: a request contains one message and is answered at once; the replies are posted to a URL.

use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
};

use async_trait::async_trait;
use axum::http::{
    self, Method, Request, Response, StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
};
use bytes::Bytes;
use ring::hmac;
use segue_engine::{
    conversation::{BotKind, Reply},
    ids::ConversationId,
    project::{CallbackSettings, ChannelSettings},
};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{
    Body, Caller, Capabilities, Channel, ChannelService, Inbox, Markup, RestChannel, encode, json as json_response,
    origin_policy::OriginPolicy,
    problem,
    registry::{self, ChannelFactory, ChannelSource},
    request_response::error_response,
    rest,
};
use crate::{
    clock::Clock,
    context::CallContext,
    conversation::{DeliveryError, Receipt, ReplySink, TurnEvent},
    http::{SsrfGuard, parse_endpoint_url},
    limits,
};

const NAME: &str = "callback";
/// The header with the signature of a request to the URL.
const SIGNATURE: &str = "x-signature";
/// The header with the id of a message, which stays the same when it is sent again.
const MESSAGE_ID: &str = "idempotency-key";

pub(super) const FACTORY: ChannelFactory = ChannelFactory {
    name: NAME,
    is_wanted: |_, _| false,
    open,
    place: "credentials.yml: `callback`",
    code: registry::CODE_CANNOT_OPEN,
    is_required: false,
};

fn open(source: &ChannelSource<'_>) -> Result<Arc<dyn Channel>, String> {
    let entry = source.entry.ok_or("set `url` under `callback:`")?;
    entry.check_spelling()?;
    OriginPolicy::from_channel(entry)?;
    match &entry.settings {
        ChannelSettings::Callback(settings) => Ok(Arc::new(CallbackChannel::new(settings)?)),
        _ => Err("set `url` under `callback:`".to_owned()),
    }
}

/// The callback channel.
struct CallbackChannel {
    /// Which callers and messages are accepted: as over REST.
    messages: RestChannel,
    url: reqwest::Url,
    batch: bool,
    key: Option<hmac::Key>,
    /// The way to the URL, once the channel serves.
    target: OnceLock<Arc<Target>>,
}

/// The way to the URL.
struct Target {
    client: reqwest::Client,
    clock: Arc<dyn Clock>,
    url: reqwest::Url,
    batch: bool,
    key: Option<hmac::Key>,
}

impl CallbackChannel {
    fn new(settings: &CallbackSettings) -> Result<Self, String> {
        let key = match settings.signing_secret.as_deref() {
            Some("") => return Err("`signing_secret` is empty".to_owned()),
            secret => secret.map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes())),
        };
        Ok(Self {
            messages: RestChannel::new(&settings.messages)?,
            url: parse_endpoint_url(&settings.url).map_err(|reason| format!("`url`: {reason}"))?,
            batch: settings.batch,
            key,
            target: OnceLock::new(),
        })
    }

    /// The way to the URL. Redirects lead to its host, or to the public internet.
    fn target(&self, inbox: &Inbox) -> Option<Arc<Target>> {
        if let Some(target) = self.target.get() {
            return Some(target.clone());
        }
        let guard = SsrfGuard::for_server(&self.url, []).with_proxy_of(inbox.assistant().outbound());
        let client = match guard.client() {
            Ok(client) => client,
            Err(error) => {
                tracing::error!(channel = NAME, "no replies can be sent: {error}");
                return None;
            }
        };
        let (url, batch, key) = (self.url.clone(), self.batch, self.key.clone());
        let target = Arc::new(Target { client, clock: inbox.clock().clone(), url, batch, key });
        Some(self.target.get_or_init(|| target).clone())
    }
}

#[async_trait]
impl Channel for CallbackChannel {
    fn name(&self) -> &str {
        NAME
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { streaming: false, buttons: usize::MAX, text: None, images: true, markup: Markup::Markdown }
    }
    fn requires_authentication(&self) -> bool {
        self.messages.auth().requires_authentication()
    }
    async fn check(&self, head: &mut http::request::Parts, clock: &Arc<dyn Clock>) -> Result<(), Response<Body>> {
        if head.uri.path() == "/webhook" {
            let caller = self.messages.auth().authenticate(&head.headers, clock).await;
            head.extensions.insert(caller.map_err(|error| error.response("this channel"))?);
        }
        Ok(())
    }
    fn service(&self, inbox: Inbox) -> ChannelService {
        let inbox = self.messages.inbox(inbox);
        let (messages, target) = (self.messages.clone(), self.target(&inbox));
        ChannelService::new(tower::service_fn(move |request: Request<Bytes>| {
            let (messages, inbox, target) = (messages.clone(), inbox.clone(), target.clone());
            async move { Ok::<_, Infallible>(respond(messages, inbox, target, request).await) }
        }))
    }
    fn sink(&self, to: &ConversationId) -> Option<Box<dyn ReplySink>> {
        Some(Box::new(CallbackSink { target: self.target.get()?.clone(), conversation: to.clone(), has_failed: false }))
    }
}

async fn respond(
    messages: RestChannel,
    inbox: Inbox,
    target: Option<Arc<Target>>,
    request: Request<Bytes>,
) -> Response<Body> {
    let (mut head, body) = request.into_parts();
    match (&head.method, head.uri.path()) {
        (&Method::GET, "" | "/") => return json_response(StatusCode::OK, &json!({"status": "ok"})),
        (&Method::POST, "/webhook") => {}
        (_, "/webhook") => return problem(StatusCode::METHOD_NOT_ALLOWED, "send messages to this path with POST"),
        _ => return problem(StatusCode::NOT_FOUND, "unknown path; send messages to `webhook`"),
    }
    // `check` has stored the caller, if the server calls it.
    let caller = match head.extensions.remove::<Caller>() {
        Some(caller) => Ok(caller),
        None => messages.auth().authenticate(&head.headers, inbox.clock()).await,
    };
    let caller = match caller {
        Ok(caller) => caller,
        Err(error) => return error.response("this channel"),
    };
    let Some(target) = target else {
        return problem(StatusCode::SERVICE_UNAVAILABLE, "no replies can be sent at present");
    };
    let mut message = match rest::parse_message(&body, &head.headers) {
        Ok(message) => message,
        Err(error) => return problem(StatusCode::BAD_REQUEST, &error),
    };
    if let Err((status, error)) = messages.address(&caller, &mut message) {
        return problem(status, &error);
    }
    let sink = CallbackSink { target, conversation: message.conversation.clone(), has_failed: false };
    match inbox.for_caller(caller.id.as_ref()).accept(message, Box::new(sink)).await {
        Ok(_) => {
            let mut response = Response::new(Body::from("success"));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
            response
        }
        Err(error) => error_response(&error),
    }
}

/// Posts complete replies to the URL.
struct CallbackSink {
    target: Arc<Target>,
    conversation: ConversationId,
    /// A reply was not delivered. Those after it wait in the outbox too, so that they stay in order.
    has_failed: bool,
}

#[async_trait]
impl ReplySink for CallbackSink {
    fn wants_deltas(&self) -> bool {
        // Complete messages are then sent as soon as they are there, such as a filler before the result.
        true
    }
    async fn send(&mut self, event: TurnEvent, _: &CallContext) -> Result<Receipt, DeliveryError> {
        let (id, message, kind) = match event {
            TurnEvent::Message { id, message, kind }
            | TurnEvent::MessageEnd { id, message, kind, interrupted: false } => (id, message, kind),
            _ => return Ok(Receipt::Skipped),
        };
        let failed = DeliveryError::Temporary;
        if self.has_failed {
            return Err(failed("a message before it was not delivered".to_owned()));
        }
        self.target.post(&self.conversation, &id, &message, kind).await.map_err(|reason| {
            self.has_failed = true;
            failed(reason)
        })?;
        Ok(Receipt::Delivered)
    }
}

impl Target {
    async fn post(&self, to: &ConversationId, id: &str, reply: &Reply, kind: BotKind) -> Result<(), String> {
        let messages = encode::messages(rest::recipient_of(to.as_str()), reply, kind);
        let bodies = match self.batch {
            true if messages.is_empty() => Vec::new(),
            true => vec![encode::json_text(&messages)],
            false => messages.iter().map(encode::json_text).collect(),
        };
        for (at, body) in bodies.into_iter().enumerate() {
            let mut request = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/json");
            request = request.header(MESSAGE_ID, message_id(to, id, at));
            if let Some(key) = &self.key {
                request = request.header(SIGNATURE, signature(key, &body));
            }
            let cx = CallContext::new(self.clock.clone(), limits::CALLBACK_TIMEOUT);
            match cx.wait(request.body(body).send()).await {
                Ok(Ok(response)) if response.status().is_success() => {}
                Ok(Ok(response)) => return Err(format!("the callback URL returned {}", response.status())),
                Ok(Err(error)) => return Err(error.without_url().to_string()),
                Err(timeout) => return Err(timeout.to_string()),
            }
        }
        Ok(())
    }
}

/// The id of a message: ids of replies are unique in their conversation only.
fn message_id(conversation: &ConversationId, reply: &str, at: usize) -> String {
    let hash = Sha256::digest(format!("{conversation}\n{reply}\n{at}"));
    hex(&hash)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn signature(key: &hmac::Key, body: &str) -> String {
    let tag = hmac::sign(key, body.as_bytes());
    format!("sha256={}", hex(tag.as_ref()))
}

#[cfg(test)]
mod tests;

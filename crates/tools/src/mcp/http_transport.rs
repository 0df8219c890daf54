//! The HTTP client of a session: the pooled client with three corrections.
//!
//! An error response without an id cannot be matched to its request, so the caller would wait forever. Some servers
//! respond like this to a forgotten session, so it counts as an expired session. The MCP library must not reopen an
//! expired session, because it would repeat calls without knowing their effect class. Errors do not contain the URL,
//! which may contain a key.

use std::{collections::HashMap, sync::Arc};

use reqwest::header::{HeaderName, HeaderValue};
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage},
    transport::{
        StreamableHttpClientTransport,
        common::client_side_sse::{BoxedSseResponse, ExponentialBackoff},
        streamable_http_client::{
            AuthRequiredError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
            StreamableHttpPostResponse,
        },
    },
};

use super::auth::{Refusal, Tokens};
use segue_base::{limits, outbound_auth::TokenError, secret::Secret};

type Headers = HashMap<HeaderName, HeaderValue>;
type Failure = StreamableHttpError<reqwest::Error>;

/// The pooled client with the tokens of one server.
#[derive(Clone)]
pub(super) struct AuthorizedHttpClient {
    client: reqwest::Client,
    tokens: Option<Arc<Tokens>>,
}

/// The transport to `url`, with these headers on every request.
///
/// # Errors
/// A text for operators: a header cannot be sent.
pub(super) fn transport(
    client: &reqwest::Client,
    url: &str,
    headers: &[(String, Secret)],
    tokens: Option<Arc<Tokens>>,
) -> Result<StreamableHttpClientTransport<AuthorizedHttpClient>, String> {
    let mut sent = Headers::new();
    for (name, value) in headers {
        let header = HeaderName::try_from(name.as_str()).map_err(|_| format!("`{name}` is no name of a header"))?;
        let mut value = HeaderValue::try_from(value.expose())
            .map_err(|_| format!("the value of the header `{name}` holds characters that cannot be sent"))?;
        value.set_sensitive(true);
        sent.insert(header, value);
    }
    let mut config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(sent)
        .max_sse_event_size(limits::MCP_LINE)
        .max_concurrent_requests(limits::MCP_QUEUE)
        .reinit_on_expired_session(false);
    let mut again = ExponentialBackoff::default();
    again.max_times = Some(2);
    again.base_duration = limits::MCP_CLOSE;
    config.retry_config = Arc::new(again);
    Ok(StreamableHttpClientTransport::with_client(AuthorizedHttpClient { client: client.clone(), tokens }, config))
}

/// Whether a response means that the session has expired: an error without an id, for a request within a session.
fn forgotten(message: &ClientJsonRpcMessage, session: bool, answer: &StreamableHttpPostResponse) -> bool {
    let asks = match message {
        JsonRpcMessage::Request(request) => !matches!(request.request, ClientRequest::InitializeRequest(_)),
        _ => false,
    };
    session
        && asks
        && matches!(answer, StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), _) if error.id.is_none())
}

/// Whether a response refuses the credentials.
pub(super) fn wants_credentials(error: &Failure) -> bool {
    match error {
        StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) => true,
        // Without a challenge the library keeps only the status as text.
        StreamableHttpError::UnexpectedServerResponse(text) => {
            text.starts_with("HTTP 401") || text.starts_with("HTTP 403")
        }
        _ => false,
    }
}

/// Why a token was refused, if it was.
fn refusal(error: &Failure) -> Option<Refusal> {
    match error {
        StreamableHttpError::AuthRequired(refused) => {
            Some(Refusal::Unknown { challenge: Some(refused.www_authenticate_header.clone()) })
        }
        StreamableHttpError::InsufficientScope(refused) => match &refused.required_scope {
            Some(wanted) => {
                let challenge = refused.www_authenticate_header.clone();
                Some(Refusal::Scope { wanted: wanted.clone(), challenge })
            }
            None => None,
        },
        StreamableHttpError::UnexpectedServerResponse(text) if text.starts_with("HTTP 401") => {
            Some(Refusal::Unknown { challenge: None })
        }
        _ => None,
    }
}

/// The error without the URL: errors are logged, stored and shown, and URLs may contain keys.
fn without_url(error: Failure) -> Failure {
    match error {
        StreamableHttpError::Client(cause) => StreamableHttpError::Client(cause.without_url()),
        other => other,
    }
}

impl AuthorizedHttpClient {
    /// Sends a request with a token, if this server wants one. A token may be revoked before it expires, or lack a
    /// scope: a request refused for that was not performed, and is sent once more with another token.
    async fn with_token<T, F>(&self, given: Option<String>, send: impl Fn(Option<String>) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let Some(tokens) = &self.tokens else { return send(given).await.map_err(without_url) };
        let none = |error: TokenError| StreamableHttpError::AuthRequired(AuthRequiredError::new(error.to_string()));
        let mut token = tokens.token().await.map_err(none)?.or(given);
        let mut seen: Vec<std::mem::Discriminant<Refusal>> = Vec::new();
        loop {
            let error = match send(token.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => without_url(error),
            };
            // Once per reason, so that a server that refuses every token cannot cause endless requests.
            let Some(why) = refusal(&error).filter(|why| !seen.contains(&std::mem::discriminant(why))) else {
                return Err(error);
            };
            seen.push(std::mem::discriminant(&why));
            token = Some(tokens.instead_of(token.as_deref(), &why).await.map_err(none)?);
        }
    }
}

impl StreamableHttpClient for AuthorizedHttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        self.post_message_with_max_sse_event_size(
            uri,
            message,
            session_id,
            auth_header,
            custom_headers,
            limits::MCP_LINE,
        )
        .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
        max_sse_event_size: usize,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let session = session_id.is_some();
        let post = |bearer: Option<String>| {
            let (uri, session_id, headers) = (uri.clone(), session_id.clone(), custom_headers.clone());
            let message = message.clone();
            self.client.post_message_with_max_sse_event_size(
                uri,
                message,
                session_id,
                bearer,
                headers,
                max_sse_event_size,
            )
        };
        let answer = self.with_token(auth_header, post).await?;
        if forgotten(&message, session, &answer) { Err(StreamableHttpError::SessionExpired) } else { Ok(answer) }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<(), Failure> {
        let delete =
            |bearer| self.client.delete_session(uri.clone(), session_id.clone(), bearer, custom_headers.clone());
        self.with_token(auth_header, delete).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<BoxedSseResponse, Failure> {
        self.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            custom_headers,
            limits::MCP_LINE,
        )
        .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
        max_sse_event_size: usize,
    ) -> Result<BoxedSseResponse, Failure> {
        let get = |bearer| {
            let (uri, session_id, headers) = (uri.clone(), session_id.clone(), custom_headers.clone());
            let last_event_id = last_event_id.clone();
            self.client.get_stream_with_max_sse_event_size(
                uri,
                session_id,
                last_event_id,
                bearer,
                headers,
                max_sse_event_size,
            )
        };
        self.with_token(auth_header, get).await
    }
}

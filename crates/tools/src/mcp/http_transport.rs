//! The HTTP transport of a session: the pooled client with tokens, with [its own reading of messages](super::http_messages),
//! and with two changes to the MCP library.
//!
//! * The library does not reopen an expired session, because it would repeat calls without knowing their effect class.
//! * Errors do not contain the URL, which may contain a key.

use std::{collections::HashMap, sync::Arc};

use reqwest::header::{ACCEPT, HeaderName, HeaderValue};
use rmcp::{
    model::ClientJsonRpcMessage,
    transport::{
        StreamableHttpClientTransport,
        common::{
            client_side_sse::{BoxedSseResponse, ExponentialBackoff},
            http_header::{HEADER_LAST_EVENT_ID, HEADER_SESSION_ID},
        },
        streamable_http_client::{
            AuthRequiredError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
            StreamableHttpPostResponse,
        },
    },
};

use super::{
    auth::{TokenRefusal, Tokens},
    http_messages,
};
use segue_base::{limits, outbound_auth::TokenError, secret::Secret};

type Headers = HashMap<HeaderName, HeaderValue>;
type HttpError = StreamableHttpError<reqwest::Error>;

/// The pooled client with the tokens of one server.
#[derive(Clone)]
pub(super) struct AuthorizedHttpClient {
    client: reqwest::Client,
    tokens: Option<Arc<Tokens>>,
}

/// Headers of the protocol, in lower case. A second value would make requests ambiguous.
const OWN_HEADERS: [&str; 3] = ["accept", "mcp-session-id", "last-event-id"];

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
    let mut header_map = Headers::new();
    for (name, value) in headers {
        let header = HeaderName::try_from(name.as_str()).map_err(|_| format!("`{name}` is not a valid header name"))?;
        if OWN_HEADERS.contains(&header.as_str()) {
            return Err(format!("the header `{name}` cannot be set: the protocol sets it; remove it"));
        }
        let mut value = HeaderValue::try_from(value.expose())
            .map_err(|_| format!("the value of the header `{name}` contains characters that cannot be sent"))?;
        value.set_sensitive(true);
        header_map.insert(header, value);
    }
    let mut config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(header_map)
        .max_sse_event_size(limits::MCP_LINE)
        .max_concurrent_requests(limits::MCP_QUEUE)
        .reinit_on_expired_session(false);
    let mut retry = ExponentialBackoff::default();
    retry.max_times = Some(2);
    retry.base_duration = limits::MCP_CLOSE;
    config.retry_config = Arc::new(retry);
    Ok(StreamableHttpClientTransport::with_client(AuthorizedHttpClient { client: client.clone(), tokens }, config))
}

/// Whether the server rejected the credentials (401 or 403).
pub(super) fn is_credentials_error(error: &HttpError) -> bool {
    match error {
        StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) => true,
        // Without a challenge the library keeps only the status as text.
        StreamableHttpError::UnexpectedServerResponse(text) => {
            text.starts_with("HTTP 401") || text.starts_with("HTTP 403")
        }
        _ => false,
    }
}

/// Why the server rejected the token; `None` for other errors.
fn token_refusal(error: &HttpError) -> Option<TokenRefusal> {
    match error {
        StreamableHttpError::AuthRequired(error) => {
            Some(TokenRefusal::Invalid { challenge: Some(error.www_authenticate_header.clone()) })
        }
        StreamableHttpError::InsufficientScope(error) => match &error.required_scope {
            Some(scopes) => {
                let challenge = error.www_authenticate_header.clone();
                Some(TokenRefusal::InsufficientScope { scopes: scopes.clone(), challenge })
            }
            None => None,
        },
        StreamableHttpError::UnexpectedServerResponse(text) if text.starts_with("HTTP 401") => {
            Some(TokenRefusal::Invalid { challenge: None })
        }
        _ => None,
    }
}

/// The error without the URL: errors are logged, stored and shown, and URLs may contain keys.
fn without_url(error: HttpError) -> HttpError {
    match error {
        StreamableHttpError::Client(cause) => StreamableHttpError::Client(cause.without_url()),
        other => other,
    }
}

impl AuthorizedHttpClient {
    /// Sends a request with a token, if the server has `oauth` settings. A request that the server rejects because of its
    /// token, which may be revoked or lack a scope, was not performed; it is sent once more with another token.
    async fn with_token<T, F>(
        &self,
        configured: Option<String>,
        send: impl Fn(Option<String>) -> F,
    ) -> Result<T, HttpError>
    where
        F: Future<Output = Result<T, HttpError>>,
    {
        let Some(tokens) = &self.tokens else { return send(configured).await.map_err(without_url) };
        let no_token = |error: TokenError| StreamableHttpError::AuthRequired(AuthRequiredError::new(error.to_string()));
        let mut token = tokens.token().await.map_err(no_token)?.or(configured);
        let mut earlier_refusals: Vec<std::mem::Discriminant<TokenRefusal>> = Vec::new();
        loop {
            let error = match send(token.clone()).await {
                Ok(response) => return Ok(response),
                Err(error) => without_url(error),
            };
            // Once per reason, so that a server that rejects every token cannot cause endless requests.
            let Some(refusal) =
                token_refusal(&error).filter(|refusal| !earlier_refusals.contains(&std::mem::discriminant(refusal)))
            else {
                return Err(error);
            };
            earlier_refusals.push(std::mem::discriminant(&refusal));
            token = Some(tokens.replacement_for(token.as_deref(), &refusal).await.map_err(no_token)?);
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
    ) -> Result<StreamableHttpPostResponse, HttpError> {
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
        _: usize,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let has_session = session_id.is_some();
        let post = |bearer: Option<String>| {
            let mut request = self.client.post(&*uri).header(ACCEPT, "application/json, text/event-stream");
            if let Some(session_id) = &session_id {
                request = request.header(HEADER_SESSION_ID, &**session_id);
            }
            let request = http_messages::with_headers(request, bearer, custom_headers.clone());
            http_messages::post(request, &message, has_session)
        };
        self.with_token(auth_header, post).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<(), HttpError> {
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
    ) -> Result<BoxedSseResponse, HttpError> {
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
        _: usize,
    ) -> Result<BoxedSseResponse, HttpError> {
        let get = |bearer| {
            let mut request = self.client.get(&*uri).header(ACCEPT, "text/event-stream, application/json");
            if let Some(session_id) = &session_id {
                request = request.header(HEADER_SESSION_ID, &**session_id);
            }
            if let Some(last_event_id) = &last_event_id {
                request = request.header(HEADER_LAST_EVENT_ID, last_event_id);
            }
            http_messages::get(http_messages::with_headers(request, bearer, custom_headers.clone()))
        };
        self.with_token(auth_header, get).await
    }
}

//! The HTTP side of a session: the pooled client, with two corrections.
//!
//! An error without an id cannot be matched to its request, so the caller would wait for ever: some servers answer a
//! session that they forgot this way. Here such an answer counts as an expired session. And a session that expired is
//! not opened anew by the library, which would repeat calls without knowing their effect class.

use std::{collections::HashMap, sync::Arc};

use reqwest::header::{HeaderName, HeaderValue};
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage},
    transport::{
        StreamableHttpClientTransport,
        common::client_side_sse::{BoxedSseResponse, ExponentialBackoff},
        streamable_http_client::{
            StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError, StreamableHttpPostResponse,
        },
    },
};

use crate::{limits, secret::Secret};

type Headers = HashMap<HeaderName, HeaderValue>;
type Failure = StreamableHttpError<reqwest::Error>;

/// The pooled client.
#[derive(Clone)]
pub(super) struct Wire(reqwest::Client);

/// The transport to `url`, with these headers on every request.
///
/// # Errors
/// In words, for operators: a header cannot be sent.
pub(super) fn transport(
    client: &reqwest::Client,
    url: &str,
    headers: &[(String, Secret)],
) -> Result<StreamableHttpClientTransport<Wire>, String> {
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
    Ok(StreamableHttpClientTransport::with_client(Wire(client.clone()), config))
}

/// Whether an answer says that the session is gone: an error that names no request, to a request within a session.
fn forgotten(message: &ClientJsonRpcMessage, session: bool, answer: &StreamableHttpPostResponse) -> bool {
    let asks = match message {
        JsonRpcMessage::Request(request) => !matches!(request.request, ClientRequest::InitializeRequest(_)),
        _ => false,
    };
    session
        && asks
        && matches!(answer, StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), _) if error.id.is_none())
}

impl StreamableHttpClient for Wire {
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
        let answer = self
            .0
            .post_message_with_max_sse_event_size(
                uri,
                message.clone(),
                session_id,
                auth_header,
                custom_headers,
                max_sse_event_size,
            )
            .await?;
        if forgotten(&message, session, &answer) { Err(StreamableHttpError::SessionExpired) } else { Ok(answer) }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<(), Failure> {
        self.0.delete_session(uri, session_id, auth_header, custom_headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<BoxedSseResponse, Failure> {
        self.0.get_stream(uri, session_id, last_event_id, auth_header, custom_headers).await
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
        self.0
            .get_stream_with_max_sse_event_size(
                uri,
                session_id,
                last_event_id,
                auth_header,
                custom_headers,
                max_sse_event_size,
            )
            .await
    }
}

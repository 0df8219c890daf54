//! Discovery of the authorization server from responses of the MCP server.

use std::sync::Arc;

use reqwest::header::{ACCEPT, WWW_AUTHENTICATE};
use rmcp::transport::auth::{AuthError, AuthorizationManager, AuthorizationMetadata};
use serde_json::json;

use super::oauth_http::OAuthHttp;
use crate::with_causes;

/// The challenge (`WWW-Authenticate`) with which the server rejects requests without a token. It is sent `initialize`, then
/// `tools/list`; `None` if it accepts both, or sends no challenge.
pub(super) async fn fetch_challenge(http: &reqwest::Client, url: &str) -> Option<String> {
    const SESSION: &str = "mcp-session-id";
    let initialize = json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {
            "protocolVersion": rmcp::model::ProtocolVersion::LATEST_WITH_INITIALIZE,
            "capabilities": {}, "clientInfo": {"name": "segue", "version": env!("CARGO_PKG_VERSION")}
        }
    });
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
    let mut session = None;
    let mut challenge = None;
    for message in [initialize, list] {
        let mut request = http.post(url).header(ACCEPT, "application/json, text/event-stream").json(&message);
        if let Some(session) = &session {
            request = request.header(SESSION, session);
        }
        let Ok(response) = request.send().await else { break };
        if response.status() == reqwest::StatusCode::UNAUTHORIZED {
            challenge = response.headers().get(WWW_AUTHENTICATE).and_then(|text| text.to_str().ok()).map(str::to_owned);
            break;
        }
        session = response.headers().get(SESSION).cloned().or(session);
    }
    if let Some(session) = session {
        // The session was opened only for this, so errors when closing it do not matter.
        let _ = http.delete(url).header(SESSION, session).send().await;
    }
    challenge
}

/// Fetches the metadata of the authorization server of the MCP server at `url`, starting at the URL in its challenge.
///
/// # Errors
/// A text for operators: the metadata cannot be fetched, or names an endpoint that must not be called.
pub(super) async fn discover(
    url: &str,
    challenge: Option<&str>,
    oauth_http: &Arc<OAuthHttp>,
) -> Result<(AuthorizationManager, AuthorizationMetadata), String> {
    let mut manager =
        AuthorizationManager::new_with_oauth_http_client(url, oauth_http.clone()).await.map_err(|e| error_text(&e))?;
    let resolution = manager.resolve_metadata_from_challenge(challenge).await.map_err(|e| error_text(&e))?;
    let metadata = resolution.metadata;
    oauth_http.check(&metadata.token_endpoint).await?;
    manager.set_metadata(metadata.clone());
    Ok((manager, metadata))
}

/// An error with its causes, truncated to [`MAX_ERROR_TEXT`] bytes. None of them contains a secret.
pub(super) fn error_text(error: &AuthError) -> String {
    let mut text = with_causes(error);
    text.truncate(text.floor_char_boundary(MAX_ERROR_TEXT));
    text
}

/// The maximum size, in bytes, of an error text that contains text of another server.
const MAX_ERROR_TEXT: usize = 400;

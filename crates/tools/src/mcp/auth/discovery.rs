//! Discovery of the authorization server from responses of the MCP server.

use std::sync::Arc;

use reqwest::header::{ACCEPT, WWW_AUTHENTICATE};
use rmcp::transport::auth::{AuthError, AuthorizationManager, AuthorizationMetadata};
use serde_json::json;

use super::oauth_http::OAuthHttp;

/// The challenge of a server without a login: it is called without a token, and if it accepts that, its tools are
/// listed. `None` if it accepts that too, or sends no challenge.
pub(super) async fn challenge(http: &reqwest::Client, url: &str) -> Option<String> {
    const SESSION: &str = "mcp-session-id";
    let greeting = json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {
            "protocolVersion": rmcp::model::ProtocolVersion::LATEST_WITH_INITIALIZE,
            "capabilities": {}, "clientInfo": {"name": "segue", "version": env!("CARGO_PKG_VERSION")}
        }
    });
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
    let mut session = None;
    let mut challenge = None;
    for message in [greeting, list] {
        let mut asked = http.post(url).header(ACCEPT, "application/json, text/event-stream").json(&message);
        if let Some(session) = &session {
            asked = asked.header(SESSION, session);
        }
        let Ok(response) = asked.send().await else { break };
        if response.status() == reqwest::StatusCode::UNAUTHORIZED {
            challenge = response.headers().get(WWW_AUTHENTICATE).and_then(|text| text.to_str().ok()).map(str::to_owned);
            break;
        }
        session = response.headers().get(SESSION).cloned().or(session);
    }
    if let Some(session) = session {
        // The session was opened only for this; errors at its end do not matter.
        let _ = http.delete(url).header(SESSION, session).send().await;
    }
    challenge
}

/// Fetches the metadata of the server at `url`, starting at the URL of its challenge.
///
/// # Errors
/// A text for operators.
pub(super) async fn discovered(
    url: &str,
    challenge: Option<&str>,
    oauth_http: &Arc<OAuthHttp>,
) -> Result<(AuthorizationManager, AuthorizationMetadata), String> {
    let mut manager =
        AuthorizationManager::new_with_oauth_http_client(url, oauth_http.clone()).await.map_err(|e| words(&e))?;
    let resolution = manager.resolve_metadata_from_challenge(challenge).await.map_err(|e| words(&e))?;
    let metadata = resolution.metadata;
    oauth_http.check(&metadata.token_endpoint).await?;
    manager.set_metadata(metadata.clone());
    Ok((manager, metadata))
}

/// An error with its causes; none of them contains a secret.
pub(super) fn words(error: &AuthError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text.truncate(text.floor_char_boundary(LONGEST));
    text
}

/// The maximum size in bytes of a forwarded error of another server.
const LONGEST: usize = 400;

//! Finding out where tokens are given, from what the server itself says.

use std::sync::Arc;

use reqwest::header::{ACCEPT, WWW_AUTHENTICATE};
use rmcp::transport::auth::{AuthError, AuthorizationManager, AuthorizationMetadata};
use serde_json::json;

use super::errand::Errand;

/// What a server asks for when nobody is logged in: it is greeted without a token and, where it does not mind that, asked
/// for its tools. `None` where it does not mind that either, or does not say what it wants.
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
        // It was opened for this alone. Whether the server lets it end is its own matter.
        let _ = http.delete(url).header(SESSION, session).send().await;
    }
    challenge
}

/// Asks the metadata of the server at `url`, beginning where its challenge points.
///
/// # Errors
/// In words, for operators.
pub(super) async fn discovered(
    url: &str,
    challenge: Option<&str>,
    errand: &Arc<Errand>,
) -> Result<(AuthorizationManager, AuthorizationMetadata), String> {
    let mut manager =
        AuthorizationManager::new_with_oauth_http_client(url, errand.clone()).await.map_err(|e| words(&e))?;
    let resolution = manager.resolve_metadata_from_challenge(challenge).await.map_err(|e| words(&e))?;
    let metadata = resolution.metadata;
    errand.check(&metadata.token_endpoint).await?;
    manager.set_metadata(metadata.clone());
    Ok((manager, metadata))
}

/// An error with its causes; none of them holds a secret.
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

/// Bytes of an error of another server that are passed on.
const LONGEST: usize = 400;

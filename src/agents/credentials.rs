//! Outgoing authentication to remote agents and hook servers: `auth` and `hook_auth`.

use std::sync::Arc;

use segue_engine::project::{AuthDef, OAuthDef};

use crate::{
    clock::Clock,
    http::HttpClients,
    limits,
    outbound_auth::{ClientCredentials, ClientGrant, OutboundCredentials},
    secret::Secret,
};

/// The credentials that an `auth` section of the project defines.
///
/// # Errors
/// A text for operators: a key is missing.
pub fn credentials(auth: &AuthDef, clock: &Arc<dyn Clock>, http: &HttpClients) -> Result<OutboundCredentials, String> {
    if let Some(oauth) = &auth.oauth {
        let url = required(&oauth.token_url, "token_url")?;
        let timeout = oauth.timeout.unwrap_or(limits::TOKEN_WAIT);
        let tokens = ClientCredentials::token_cache(
            client_grant(oauth)?,
            url,
            &oauth.scope,
            timeout,
            clock.clone(),
            http.clone(),
        )?;
        return Ok(OutboundCredentials::Token(Box::new(tokens)));
    }
    let text = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
    if let Some(key) = text(&auth.api_key) {
        let format = text(&auth.header_format).unwrap_or_else(|| "Bearer {key}".to_owned());
        let name = text(&auth.header_name).unwrap_or_else(|| "Authorization".to_owned());
        return Ok(OutboundCredentials::Header(name, Secret::new(format.replace("{key}", &key))));
    }
    Ok(match text(&auth.token) {
        Some(token) => OutboundCredentials::Header("Authorization".to_owned(), Secret::new(format!("Bearer {token}"))),
        None => OutboundCredentials::None,
    })
}

fn client_grant(oauth: &OAuthDef) -> Result<ClientGrant, String> {
    let id = required(&oauth.client_id, "client_id")?;
    let secret = required(&oauth.client_secret, "client_secret")?;
    Ok(ClientGrant::new(id.to_owned(), Secret::new(secret), oauth.audience.clone()))
}

fn required<'a>(value: &'a Option<String>, key: &str) -> Result<&'a str, String> {
    value.as_deref().ok_or_else(|| format!("`oauth` lacks `{key}`"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use serde_json::{Value as Json, json};

    use super::*;
    use crate::testing::ManualClock;

    #[test]
    fn an_auth_is_a_header_or_a_token_server() {
        let read = |auth: Json| {
            let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
            credentials(&serde_json::from_value(auth).unwrap(), &clock, &HttpClients::new())
        };
        for (auth, name, value) in [
            (json!({"api_key": "k1"}), "Authorization", "Bearer k1"),
            (json!({"api_key": "k1", "header_name": "X-Key", "header_format": "key={key}"}), "X-Key", "key=k1"),
            (json!({"token": "t1"}), "Authorization", "Bearer t1"),
        ] {
            let OutboundCredentials::Header(found, secret) = read(auth).unwrap() else { panic!("{name}") };
            assert_eq!((found.as_str(), secret.expose()), (name, value));
        }
        assert!(matches!(read(json!({"token": " "})).unwrap(), OutboundCredentials::None));
        let oauth =
            |secret: &str| json!({"oauth": {"client_id": "me", "client_secret": secret, "token_url": "https://t"}});
        assert!(matches!(read(oauth("s")).unwrap(), OutboundCredentials::Token(_)));
        assert_eq!(read(oauth("")).unwrap_err(), "`oauth` lacks `client_secret`");
        let shown = format!("{:?}", read(json!({"token": "s3cret"})).unwrap());
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}

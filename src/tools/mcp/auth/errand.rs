//! Requests to where metadata points: guarded and capped.

use futures::future::BoxFuture;
use reqwest::Url;
use rmcp::transport::auth::{OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest};

use crate::{
    http::{Guard, destination},
    limits,
};

type Answer = axum::http::Response<Vec<u8>>;

/// Performs what the OAuth dance wants performed. The client is built at the first errand.
pub(super) struct Errand {
    guard: Guard,
    client: std::sync::OnceLock<Result<reqwest::Client, String>>,
}

impl Errand {
    /// For a server at `url`; `hosts` are allowed beside it.
    ///
    /// # Errors
    /// In words, for operators: the address is none.
    pub(super) fn new(url: &str, hosts: &[String]) -> Result<Self, String> {
        let configured = destination(url)?;
        let guard = Guard::around(&configured, hosts.iter().map(String::as_str));
        Ok(Self { guard, client: std::sync::OnceLock::new() })
    }

    /// The guarded client.
    ///
    /// # Errors
    /// In words: TLS is unusable here.
    pub(super) fn client(&self) -> Result<&reqwest::Client, String> {
        self.client.get_or_init(|| self.guard.client().map_err(|e| e.to_string())).as_ref().map_err(Clone::clone)
    }

    /// Whether metadata may point there.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn admits(&self, url: &str) -> Result<Url, String> {
        let url = Url::parse(url).map_err(|error| format!("metadata names an address that is none: {error}"))?;
        self.guard.admits(&url).map(|()| url)
    }

    /// Sends one request. Redirects are not followed here: those of metadata are the library's matter, within one host.
    async fn run(&self, errand: OAuthHttpRequest) -> Result<Answer, String> {
        let request = reqwest::Request::try_from(errand.request).map_err(|error| error.to_string())?;
        self.guard.admits(request.url())?;
        read(self.client()?.execute(request).await.map_err(|error| error.without_url().to_string())?).await
    }
}

async fn read(mut response: reqwest::Response) -> Result<Answer, String> {
    let mut answer = axum::http::Response::builder().status(response.status());
    for (name, value) in response.headers() {
        answer = answer.header(name, value);
    }
    let body = capped(&mut response).await?;
    answer.body(body).map_err(|error| error.to_string())
}

/// The body, as far as [`limits::MCP_TOKEN`] allows.
///
/// # Errors
/// In words: it breaks off, or is too large.
async fn capped(response: &mut reqwest::Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| error.without_url().to_string())? {
        body.extend_from_slice(&chunk);
        if body.len() > limits::MCP_TOKEN {
            return Err("the answer of the token server is too large".to_owned());
        }
    }
    Ok(body)
}

impl OAuthHttpClient for Errand {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        let ran: BoxFuture<'_, _> =
            Box::pin(async move { self.run(request).await.map_err(OAuthHttpClientError::from) });
        ran
    }
}

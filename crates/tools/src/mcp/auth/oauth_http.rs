//! HTTP requests to URLs from metadata, with SSRF protection and size limits.

use futures::future::BoxFuture;
use reqwest::Url;
use rmcp::transport::auth::{OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest};

use segue_base::{
    http::{BodyError, HttpClients, SsrfGuard, parse_endpoint_url, read_limited},
    limits,
};

type OAuthResponse = http::Response<Vec<u8>>;

/// The HTTP client of the OAuth flow. It is built at the first request.
pub(super) struct OAuthHttp {
    guard: SsrfGuard,
    client: std::sync::OnceLock<Result<reqwest::Client, String>>,
}

impl OAuthHttp {
    /// A client for a server at `url`; `hosts` are allowed besides it. A configured proxy is that of `outbound`.
    ///
    /// # Errors
    /// A text for operators: the URL is invalid.
    pub(super) fn new(url: &str, hosts: &[String], outbound: &HttpClients) -> Result<Self, String> {
        let configured = parse_endpoint_url(url)?;
        let guard = SsrfGuard::for_server(&configured, hosts.iter().map(String::as_str)).with_proxy_of(outbound);
        Ok(Self { guard, client: std::sync::OnceLock::new() })
    }

    /// The client with SSRF protection.
    ///
    /// # Errors
    /// A text: TLS cannot be initialised.
    pub(super) fn client(&self) -> Result<&reqwest::Client, String> {
        self.client.get_or_init(|| self.guard.client().map_err(|e| e.to_string())).as_ref().map_err(Clone::clone)
    }

    /// Checks that metadata may name this URL.
    ///
    /// # Errors
    /// The reason why not.
    pub(super) async fn check(&self, url: &str) -> Result<Url, String> {
        let url = Url::parse(url).map_err(|error| format!("the metadata contains an invalid URL: {error}"))?;
        self.guard.check(&url).await.map(|()| url)
    }

    /// Sends one request. Redirects are not followed here: the library follows those of metadata within one host.
    async fn run(&self, request: OAuthHttpRequest) -> Result<OAuthResponse, String> {
        let request = reqwest::Request::try_from(request.request).map_err(|error| error.to_string())?;
        self.guard.check(request.url()).await?;
        read(self.client()?.execute(request).await.map_err(|error| error.without_url().to_string())?).await
    }
}

/// The response, with a body of at most [`limits::MCP_TOKEN`].
///
/// # Errors
/// A text: it was truncated, or is too large.
async fn read(response: reqwest::Response) -> Result<OAuthResponse, String> {
    let mut parsed = http::Response::builder().status(response.status());
    for (name, value) in response.headers() {
        parsed = parsed.header(name, value);
    }
    let body = read_limited(response, limits::MCP_TOKEN).await.map_err(|error| match error {
        BodyError::TooLong { .. } => "the response of the authorization server is too large".to_owned(),
        BodyError::Broken(error) => error.to_string(),
    })?;
    parsed.body(body).map_err(|error| error.to_string())
}

impl OAuthHttpClient for OAuthHttp {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        let response: BoxFuture<'_, _> =
            Box::pin(async move { self.run(request).await.map_err(OAuthHttpClientError::from) });
        response
    }
}

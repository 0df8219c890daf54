//! Requests to where metadata points: guarded and capped.

use futures::future::BoxFuture;
use reqwest::Url;
use rmcp::transport::auth::{OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest};

use segue_base::{
    http::{BodyError, HttpClients, SsrfGuard, parse_endpoint_url, read_limited},
    limits,
};

type Answer = http::Response<Vec<u8>>;

/// Performs what the OAuth dance wants performed. The client is built at the first errand.
pub(super) struct Errand {
    guard: SsrfGuard,
    client: std::sync::OnceLock<Result<reqwest::Client, String>>,
}

impl Errand {
    /// For a server at `url`; `hosts` are allowed beside it. A proxy that the project names is that of `outbound`.
    ///
    /// # Errors
    /// In words, for operators: the address is none.
    pub(super) fn new(url: &str, hosts: &[String], outbound: &HttpClients) -> Result<Self, String> {
        let configured = parse_endpoint_url(url)?;
        let guard = SsrfGuard::for_server(&configured, hosts.iter().map(String::as_str)).with_proxy_of(outbound);
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
    pub(super) async fn check(&self, url: &str) -> Result<Url, String> {
        let url = Url::parse(url).map_err(|error| format!("metadata names an address that is none: {error}"))?;
        self.guard.check(&url).await.map(|()| url)
    }

    /// Sends one request. Redirects are not followed here: those of metadata are the library's matter, within one host.
    async fn run(&self, errand: OAuthHttpRequest) -> Result<Answer, String> {
        let request = reqwest::Request::try_from(errand.request).map_err(|error| error.to_string())?;
        self.guard.check(request.url()).await?;
        read(self.client()?.execute(request).await.map_err(|error| error.without_url().to_string())?).await
    }
}

/// The answer, whose body is as long as [`limits::MCP_TOKEN`] allows.
///
/// # Errors
/// In words: it breaks off, or is too large.
async fn read(response: reqwest::Response) -> Result<Answer, String> {
    let mut answer = http::Response::builder().status(response.status());
    for (name, value) in response.headers() {
        answer = answer.header(name, value);
    }
    let body = read_limited(response, limits::MCP_TOKEN).await.map_err(|error| match error {
        BodyError::TooLong { .. } => "the answer of the token server is too large".to_owned(),
        BodyError::Broken(error) => error.to_string(),
    })?;
    answer.body(body).map_err(|error| error.to_string())
}

impl OAuthHttpClient for Errand {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        let ran: BoxFuture<'_, _> =
            Box::pin(async move { self.run(request).await.map_err(OAuthHttpClientError::from) });
        ran
    }
}

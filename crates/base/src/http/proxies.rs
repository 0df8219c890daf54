//! The selection of the proxy for outbound requests.

use reqwest::{ClientBuilder, NoProxy, Proxy};

use super::{ClientBuildError, redact_url};

/// The proxies of outbound requests: one for `http`, one for `https`, and the hosts that are reached directly.
///
/// `endpoints.yml` takes precedence over the variables `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, in upper or lower case. A
/// user and password in the address of a proxy are sent to it. They are secret, so there is no `Debug`.
#[derive(Clone, Default)]
pub(super) struct Proxies {
    http: Option<ProxyAddress>,
    https: Option<ProxyAddress>,
    /// Hosts that are reached directly, in the syntax of `NO_PROXY`.
    no_proxy: String,
    /// Whether the address comes from `endpoints.yml`.
    from_project: bool,
}

/// The address of a proxy, and the setting it comes from.
#[derive(Clone)]
struct ProxyAddress {
    setting: &'static str,
    url: String,
}

/// Loopback addresses, which are always reached directly.
const LOOPBACK: &str = "localhost,localhost.,127.0.0.0/8,::1,::ffff:127.0.0.0/104";

const SCHEMES: [&str; 6] = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"];

impl Proxies {
    /// The proxies of a project: `proxy` and `no_proxy` are those of `http` in `endpoints.yml`, `variable` reads the environment.
    pub(super) fn new(proxy: Option<&str>, no_proxy: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Self {
        let filled = |text: String| Some(text).filter(|text| !text.trim().is_empty());
        let read =
            |name: &str| variable(name).and_then(filled).or_else(|| filled(variable(&name.to_ascii_lowercase())?));
        let address = |name: &'static str| read(name).map(|url| ProxyAddress { setting: name, url });
        let no_proxy = no_proxy.map(str::to_owned).or_else(|| read("NO_PROXY")).unwrap_or_default();
        match proxy {
            Some(url) => {
                let proxy = Some(ProxyAddress { setting: "`proxy` of `http` in endpoints.yml", url: url.to_owned() });
                Self { http: proxy.clone(), https: proxy, no_proxy, from_project: true }
            }
            None => Self {
                http: address("HTTP_PROXY").or_else(|| address("ALL_PROXY")),
                https: address("HTTPS_PROXY").or_else(|| address("ALL_PROXY")),
                no_proxy,
                from_project: false,
            },
        }
    }

    /// The proxy of `endpoints.yml`; empty if the proxies come from the environment.
    pub(super) fn configured(&self) -> Self {
        if self.from_project { self.clone() } else { Self::default() }
    }

    /// Without the proxy for `http`.
    #[cfg(feature = "grpc")]
    pub(super) fn encrypted_only(&self) -> Self {
        Self { http: None, ..self.clone() }
    }

    /// The hosts of the proxies themselves.
    pub(super) fn hosts(&self) -> impl Iterator<Item = String> {
        let host = |address: &ProxyAddress| Some(address.parse_url().ok()?.host_str()?.to_owned());
        [&self.http, &self.https].into_iter().flatten().filter_map(host)
    }

    /// Whether there is no proxy.
    pub(super) fn is_empty(&self) -> bool {
        self.http.is_none() && self.https.is_none()
    }

    /// Makes a client use these proxies and no others.
    ///
    /// # Errors
    /// [`ClientBuildError`] that names the setting whose address is invalid.
    pub(super) fn apply(&self, mut client: ClientBuilder) -> Result<ClientBuilder, ClientBuildError> {
        // Without this, reqwest reads the environment itself and sends loopback requests through the proxy.
        client = client.no_proxy();
        let no_proxy = NoProxy::from_string(&format!("{LOOPBACK},{}", self.no_proxy));
        if let Some(address) = &self.http {
            client = client.proxy(address.proxy(Proxy::http)?.no_proxy(no_proxy.clone()));
        }
        if let Some(address) = &self.https {
            client = client.proxy(address.proxy(Proxy::https)?.no_proxy(no_proxy));
        }
        Ok(client)
    }
}

impl ProxyAddress {
    /// The parsed address; without a scheme it is `http`.
    fn parse_url(&self) -> Result<reqwest::Url, ClientBuildError> {
        let text = self.url.trim();
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = reqwest::Url::parse(&whole).ok().filter(|url| SCHEMES.contains(&url.scheme()) && url.has_host());
        url.ok_or_else(|| {
            let (setting, shown) = (self.setting, redact_url(&whole));
            ClientBuildError(format!("{setting}: `{shown}` is not a proxy address; expected `http://host:port`"))
        })
    }

    fn proxy(&self, of: impl FnOnce(reqwest::Url) -> reqwest::Result<Proxy>) -> Result<Proxy, ClientBuildError> {
        let broken = |error: reqwest::Error| ClientBuildError(format!("{}: {}", self.setting, error.without_url()));
        of(self.parse_url()?).map_err(broken)
    }
}

#[cfg(test)]
mod tests;

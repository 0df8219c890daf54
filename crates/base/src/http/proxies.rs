//! Which requests go through a proxy.

use reqwest::{ClientBuilder, NoProxy, Proxy};

use super::{ClientBuildError, shown};

/// The proxies of outbound requests: one for `http`, one for `https`, and the hosts that are reached directly.
///
/// What `endpoints.yml` says wins over the variables `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, in capital or small letters.
/// A user and password in the address of a proxy are shown to it. There is no `Debug`: they are secret.
#[derive(Clone, Default)]
pub(super) struct Proxies {
    http: Option<Address>,
    https: Option<Address>,
    /// Hosts that are reached directly, as `NO_PROXY` writes them.
    exempt: String,
    /// Whether the address comes from `endpoints.yml`.
    is_configured: bool,
}

/// The address of a proxy, and the setting it comes from.
#[derive(Clone)]
struct Address {
    setting: &'static str,
    url: String,
}

/// This machine, which no proxy reaches.
const LOOPBACK: &str = "localhost,localhost.,127.0.0.0/8,::1,::ffff:127.0.0.0/104";

const SCHEMES: [&str; 6] = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"];

impl Proxies {
    /// The proxies of a project: `proxy` and `no_proxy` are those of `http` in `endpoints.yml`, `variable` reads the environment.
    pub(super) fn new(proxy: Option<&str>, no_proxy: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Self {
        let filled = |text: String| Some(text).filter(|text| !text.trim().is_empty());
        let read =
            |name: &str| variable(name).and_then(filled).or_else(|| filled(variable(&name.to_ascii_lowercase())?));
        let address = |name: &'static str| read(name).map(|url| Address { setting: name, url });
        let exempt = no_proxy.map(str::to_owned).or_else(|| read("NO_PROXY")).unwrap_or_default();
        match proxy {
            Some(url) => {
                let proxy = Some(Address { setting: "`proxy` of `http` in endpoints.yml", url: url.to_owned() });
                Self { http: proxy.clone(), https: proxy, exempt, is_configured: true }
            }
            None => Self {
                http: address("HTTP_PROXY").or_else(|| address("ALL_PROXY")),
                https: address("HTTPS_PROXY").or_else(|| address("ALL_PROXY")),
                exempt,
                is_configured: false,
            },
        }
    }

    /// Those that `endpoints.yml` names; none where they come from the environment.
    pub(super) fn configured(&self) -> Self {
        if self.is_configured { self.clone() } else { Self::default() }
    }

    /// Without the proxy for `http`.
    #[cfg(feature = "grpc")]
    pub(super) fn encrypted_only(&self) -> Self {
        Self { http: None, ..self.clone() }
    }

    /// The hosts of the proxies themselves.
    pub(super) fn hosts(&self) -> impl Iterator<Item = String> {
        let host = |address: &Address| Some(address.parsed().ok()?.host_str()?.to_owned());
        [&self.http, &self.https].into_iter().flatten().filter_map(host)
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.http.is_none() && self.https.is_none()
    }

    /// Makes a client use them, and no others.
    ///
    /// # Errors
    /// [`ClientBuildError`], with the setting whose address is none.
    pub(super) fn apply(&self, mut client: ClientBuilder) -> Result<ClientBuilder, ClientBuildError> {
        // Without this the client would read the environment itself, and send loopback through the proxy.
        client = client.no_proxy();
        let exempt = NoProxy::from_string(&format!("{LOOPBACK},{}", self.exempt));
        if let Some(address) = &self.http {
            client = client.proxy(address.proxy(Proxy::http)?.no_proxy(exempt.clone()));
        }
        if let Some(address) = &self.https {
            client = client.proxy(address.proxy(Proxy::https)?.no_proxy(exempt));
        }
        Ok(client)
    }
}

impl Address {
    /// The address; without a scheme it is one of `http`.
    fn parsed(&self) -> Result<reqwest::Url, ClientBuildError> {
        let text = self.url.trim();
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = reqwest::Url::parse(&whole).ok().filter(|url| SCHEMES.contains(&url.scheme()) && url.has_host());
        url.ok_or_else(|| {
            let (setting, shown) = (self.setting, shown(&whole));
            ClientBuildError(format!("{setting}: `{shown}` is no address of a proxy; expected `http://host:port`"))
        })
    }

    fn proxy(&self, of: impl FnOnce(reqwest::Url) -> reqwest::Result<Proxy>) -> Result<Proxy, ClientBuildError> {
        let broken = |error: reqwest::Error| ClientBuildError(format!("{}: {}", self.setting, error.without_url()));
        of(self.parsed()?).map_err(broken)
    }
}

#[cfg(test)]
mod tests;

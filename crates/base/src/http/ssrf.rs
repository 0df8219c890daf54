//! Protection against server-side request forgery (SSRF). Addresses that come from data, not from project files, are checked before a
//! request and again when the connection is opened, so that a host name cannot resolve to another address in between (DNS rebinding).
//!
//! A host in the configuration is allowed as configured. Any other host must be reached by TLS and have a public address. A loopback
//! address is allowed only if the configuration itself points to a loopback address.
//!
//! A proxy resolves names itself, so the check at the connection does not cover requests through a proxy. Proxies of the environment are
//! therefore not used here. The proxy in `endpoints.yml` is used, and [`SsrfGuard::check`] then resolves the name before each request. The
//! proxy may still resolve it to another address afterwards; only the rules of the proxy can prevent that.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use reqwest::{
    Url,
    dns::{Name, Resolve, Resolving},
};

use super::{ClientBuildError, HttpClients, METADATA_HOSTS, Proxies, build, settings};

/// The rule that decides which addresses from data may be called.
#[derive(Clone)]
pub struct SsrfGuard {
    /// Hosts in the configuration, in lower case.
    configured_hosts: Arc<[String]>,
    /// Whether the configuration points to a loopback address.
    allow_loopback: bool,
    /// Proxies in the configuration.
    proxies: Proxies,
}

/// The scope of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressScope {
    /// Public internet.
    Public,
    /// This machine.
    Loopback,
    /// Any other: private, shared, reserved, multicast, for documentation, or an address that embeds another one.
    Other,
}

impl SsrfGuard {
    /// The guard for data that comes from the server at the address `configured`. Allows its host, `hosts`, and public addresses by TLS.
    pub fn for_server<'a>(configured: &'a Url, hosts: impl IntoIterator<Item = &'a str>) -> Self {
        let own = configured.host_str().unwrap_or_default();
        let configured_hosts = std::iter::once(own).chain(hosts).map(|host| normalized_host(host).to_ascii_lowercase());
        let allow_loopback =
            normalized_host(own).parse().map_or(is_local_name(own), |address| scope(address) == AddressScope::Loopback);
        let configured_hosts = configured_hosts.filter(|host| !host.is_empty()).collect();
        Self { configured_hosts, allow_loopback, proxies: Proxies::default() }
    }

    /// The guard for addresses that a model writes. Allows these hosts, and public addresses by TLS.
    pub fn for_hosts<'a>(hosts: impl IntoIterator<Item = &'a str>) -> Self {
        let hosts = hosts.into_iter().map(|host| normalized_host(host).to_ascii_lowercase());
        Self { configured_hosts: hosts.collect(), allow_loopback: false, proxies: Proxies::default() }
    }

    /// The same guard with the proxy of the configuration, if there is one; callers must then [`check`](Self::check) each address.
    #[must_use]
    pub fn with_proxy_of(self, clients: &HttpClients) -> Self {
        Self { proxies: clients.0.proxies.configured(), ..self }
    }

    /// Checks an address without resolving its host.
    ///
    /// # Errors
    /// A message that names the address and the reason.
    pub fn check_without_dns(&self, url: &Url) -> Result<(), String> {
        let refused = |reason: &str| Err(format!("{} is not called: {reason}", origin(url)));
        let Some(host) = url.host_str().map(normalized_host) else { return refused("it has no host") };
        if METADATA_HOSTS.contains(&host) {
            return refused("it is a cloud metadata service");
        }
        if !matches!(url.scheme(), "http" | "https") {
            return refused("it is neither `http` nor `https`");
        }
        if self.is_configured_host(host) {
            return Ok(());
        }
        let local = host.parse().map_or(is_local_name(host), |address| scope(address) == AddressScope::Loopback);
        if local && self.allow_loopback {
            return Ok(());
        }
        if url.scheme() != "https" {
            return refused("an address from a server must be `https`");
        }
        match host.parse() {
            Ok(address) if scope(address) != AddressScope::Public => refused("an address from a server must be public"),
            Err(_) if is_local_name(host) => refused("an address from a server must not be this machine"),
            _ => Ok(()),
        }
    }

    /// Checks an address as [`check_without_dns`](Self::check_without_dns) does and, if there is a proxy, also every address to which its host resolves now.
    ///
    /// # Errors
    /// A message that names the address and the reason.
    pub async fn check(&self, url: &Url) -> Result<(), String> {
        self.check_without_dns(url)?;
        let host = url.host_str().map(normalized_host).unwrap_or_default();
        if self.proxies.is_empty() || self.is_configured_host(host) || host.parse::<IpAddr>().is_ok() {
            return Ok(());
        }
        let unknown = |error| format!("{} is not called: its host cannot be resolved ({error})", origin(url));
        let mut found = tokio::net::lookup_host((host, 0)).await.map_err(unknown)?;
        match found.find(|found| !self.allows_address(host, found.ip())) {
            Some(_) => Err(format!("{} is not called: an address from a server must be public", origin(url))),
            None => Ok(()),
        }
    }

    /// A client whose connections obey this guard. It follows no redirects.
    ///
    /// # Errors
    /// [`ClientBuildError`]: the certificates of the machine or TLS are unusable.
    pub fn client(&self) -> Result<reqwest::Client, ClientBuildError> {
        build(self.proxies.apply(settings())?.dns_resolver(self.clone()))
    }

    /// The same client for gRPC.
    ///
    /// # Errors
    /// [`ClientBuildError`]: the certificates of the machine or TLS are unusable.
    #[cfg(feature = "grpc")]
    pub fn http2(&self) -> Result<reqwest::Client, ClientBuildError> {
        build(super::http2(self.proxies.encrypted_only().apply(settings())?).dns_resolver(self.clone()))
    }

    fn is_configured_host(&self, host: &str) -> bool {
        self.configured_hosts.iter().any(|configured| configured.eq_ignore_ascii_case(host))
    }

    fn allows_address(&self, host: &str, address: IpAddr) -> bool {
        if METADATA_HOSTS.contains(&address.to_string().as_str()) {
            return false;
        }
        self.is_configured_host(host)
            || match scope(address) {
                AddressScope::Public => true,
                AddressScope::Loopback => self.allow_loopback,
                AddressScope::Other => false,
            }
    }
}

impl Resolve for SsrfGuard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let host = name.as_str();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host, 0)).await?.collect();
            // The proxy itself may have any address; `check` finds data that names the proxy as its target.
            let is_proxy = guard.proxies.hosts().any(|proxy| proxy.eq_ignore_ascii_case(host));
            let allows = |found: &SocketAddr| is_proxy || guard.allows_address(host, found.ip());
            let allowed: Vec<SocketAddr> = found.into_iter().filter(allows).collect();
            if allowed.is_empty() {
                return Err(format!("the host `{host}` came from a server and has no public address").into());
            }
            Ok(Box::new(allowed.into_iter()) as reqwest::dns::Addrs)
        })
    }
}

/// Scheme, host and port, for messages: path and query may contain a secret.
fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

fn normalized_host(host: &str) -> &str {
    host.trim_matches(['[', ']']).trim_end_matches('.')
}

fn is_local_name(host: &str) -> bool {
    let host = normalized_host(host).to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

fn scope(address: IpAddr) -> AddressScope {
    match address {
        IpAddr::V4(address) => scope4(address),
        IpAddr::V6(address) => scope6(address),
    }
}

/// The blocks of the IANA special-purpose address registries (RFC 6890,
/// <https://www.iana.org/assignments/iana-ipv4-special-registry/>), and multicast.
fn scope4(address: Ipv4Addr) -> AddressScope {
    let [a, b, c, _] = address.octets();
    let special = matches!(
        (a, b, c),
        (0 | 10, ..)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (192, 168, _)
            | (198, 18 | 19, _)
            | (198, 51, 100)
            | (203, 0, 113)
            | (224.., ..)
    );
    match a {
        127 => AddressScope::Loopback,
        _ if special => AddressScope::Other,
        _ => AddressScope::Public,
    }
}

fn scope6(address: Ipv6Addr) -> AddressScope {
    if address.is_loopback() {
        return AddressScope::Loopback;
    }
    if let Some(inner) = address.to_ipv4_mapped() {
        return scope4(inner);
    }
    match address.segments() {
        // Global unicast is 2000::/3, except Teredo, ORCHID, the documentation blocks and 6to4.
        [0x2001, b, ..] if b < 0x0200 => AddressScope::Other,
        [0x2001, 0x0db8, ..] | [0x2002, ..] | [0x3fff, 0..=0x0fff, ..] => AddressScope::Other,
        [0x2000..=0x3fff, ..] => AddressScope::Public,
        _ => AddressScope::Other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
    use super::*;

    fn guard(configured: &str) -> SsrfGuard {
        SsrfGuard::for_server(&Url::parse(configured).unwrap(), ["sso.corp"])
    }

    fn admits(guard: &SsrfGuard, url: &str) -> bool {
        guard.check_without_dns(&Url::parse(url).unwrap()).is_ok()
    }

    #[test]
    fn data_may_name_public_addresses_by_tls_and_configured_hosts() {
        let remote_guard = guard("https://mcp.example.com/mcp");
        for good in
            ["https://login.example.org/x", "https://1.1.1.1/", "http://mcp.example.com/", "http://sso.corp:8080/"]
        {
            assert!(admits(&remote_guard, good), "{good}");
        }
        for bad in [
            "http://login.example.org/",
            "https://10.0.0.1/",
            "https://127.0.0.1/",
            "https://localhost/",
            "https://a.localhost./",
            "https://100.64.0.1/",
            "https://169.254.169.254/",
            "https://192.0.2.7/",
            "https://[::1]/",
            "https://[::ffff:10.0.0.1]/",
            "https://[2002:7f00:1::]/",
            "https://[64:ff9b::7f00:1]/",
            "https://[fe80::1]/",
            "https://2130706433/",
            "ftp://login.example.org/",
        ] {
            assert!(!admits(&remote_guard, bad), "{bad}");
        }
        assert!(admits(&remote_guard, "https://[2606:4700::1111]/"));
    }

    #[test]
    fn loopback_is_allowed_only_if_the_configuration_points_to_it() {
        for configured in ["http://localhost:8000/mcp", "http://127.0.0.1:1/mcp", "http://[::1]:9/"] {
            let guard = guard(configured);
            assert!(
                admits(&guard, "http://127.0.0.1:9000/token") && admits(&guard, "http://localhost/"),
                "{:?}",
                guard.configured_hosts
            );
            assert!(
                !admits(&guard, "http://10.0.0.1/") && !admits(&guard, "https://169.254.169.254/"),
                "{:?}",
                guard.configured_hosts
            );
        }
    }

    #[tokio::test]
    async fn the_connection_refuses_a_name_that_resolves_to_loopback() {
        let remote_guard = guard("https://mcp.example.com/mcp");
        let resolve = |guard: &SsrfGuard, name: &str| guard.resolve(name.parse().unwrap());
        let refused = resolve(&remote_guard, "localhost").await.err().unwrap().to_string();
        assert!(refused.contains("no public address"), "{refused}");
        let near = guard("http://127.0.0.1/mcp");
        assert!(resolve(&near, "localhost").await.unwrap().all(|found| found.ip().is_loopback()));
    }

    #[test]
    fn a_refusal_names_the_address_without_its_path() {
        let refused = guard("https://a.example/")
            .check_without_dns(&Url::parse("http://b.example/s?key=1").unwrap())
            .unwrap_err();
        assert_eq!(refused, "http://b.example is not called: an address from a server must be `https`");
    }
}

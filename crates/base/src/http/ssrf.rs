//! Protection against server-side request forgery: addresses that come from data, not from a file of the project, are checked before
//! anything connects, and once more at the connection itself, so that a name cannot lead somewhere else between the two.
//!
//! A host that the configuration names is reached as it is written there. Any other must be reached by TLS and lie on
//! the public net; only where the configuration itself points to this machine may data do so too.
//!
//! A proxy resolves names itself, so the check at the connection does not reach what goes through one. Therefore proxies of the environment
//! are not used here. The one that `endpoints.yml` names is, and then [`SsrfGuard::check`] resolves the name before each request; what the
//! proxy finds a moment later may still be something else, which is for the rules of that proxy.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use reqwest::{
    Url,
    dns::{Name, Resolve, Resolving},
};

use super::{ClientBuildError, HttpClients, METADATA, Proxies, build, settings};

/// Which addresses may be asked for one purpose.
#[derive(Clone)]
pub struct SsrfGuard {
    /// Hosts that the configuration names, in lower case.
    named: Arc<[String]>,
    /// Whether the configuration points to this machine.
    allow_loopback: bool,
    /// Proxies that the configuration names.
    proxies: Proxies,
}

/// Where an address lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressScope {
    /// On the public net.
    Public,
    /// On this machine.
    Loopback,
    /// Anywhere else: private, shared, reserved, several receivers, for documents, or a form that hides another.
    Other,
}

impl SsrfGuard {
    /// Allows what data says near the address `configured`, and whatever lies on one of `hosts`.
    pub fn around<'a>(configured: &'a Url, hosts: impl IntoIterator<Item = &'a str>) -> Self {
        let own = configured.host_str().unwrap_or_default();
        let named = std::iter::once(own).chain(hosts).map(|host| bare(host).to_ascii_lowercase());
        let allow_loopback =
            bare(own).parse().map_or(is_local_name(own), |address| scope(address) == AddressScope::Loopback);
        let named = named.filter(|host| !host.is_empty()).collect();
        Self { named, allow_loopback, proxies: Proxies::default() }
    }

    /// The same, going through the proxy that the configuration names, if it does; callers then [`check`](Self::check) each address.
    #[must_use]
    pub fn through_proxy_of(self, outbound: &HttpClients) -> Self {
        Self { proxies: outbound.0.proxies.configured(), ..self }
    }

    /// Whether this address may be asked, as far as its text tells.
    ///
    /// # Errors
    /// Why not, in words that name the address.
    pub fn admits(&self, url: &Url) -> Result<(), String> {
        let refused = |why: &str| Err(format!("{} is not asked: {why}", origin(url)));
        let Some(host) = url.host_str().map(bare) else { return refused("it names no host") };
        if METADATA.contains(&host) {
            return refused("it is a cloud's metadata service");
        }
        if !matches!(url.scheme(), "http" | "https") {
            return refused("it is neither `http` nor `https`");
        }
        if self.names(host) {
            return Ok(());
        }
        let local = host.parse().map_or(is_local_name(host), |address| scope(address) == AddressScope::Loopback);
        if local && self.allow_loopback {
            return Ok(());
        }
        if url.scheme() != "https" {
            return refused("it came from a server and is not `https`");
        }
        match host.parse() {
            Ok(address) if scope(address) != AddressScope::Public => {
                refused("it came from a server and is no public address")
            }
            Err(_) if is_local_name(host) => refused("it came from a server and is this machine"),
            _ => Ok(()),
        }
    }

    /// Whether this address may be asked: [`admits`](Self::admits), and where there is a proxy, every address that its host has now.
    ///
    /// # Errors
    /// Why not, in words that name the address.
    pub async fn check(&self, url: &Url) -> Result<(), String> {
        self.admits(url)?;
        let host = url.host_str().map(bare).unwrap_or_default();
        if self.proxies.is_empty() || self.names(host) || host.parse::<IpAddr>().is_ok() {
            return Ok(());
        }
        let unknown = |error| format!("{} is not asked: its host cannot be resolved here ({error})", origin(url));
        let mut found = tokio::net::lookup_host((host, 0)).await.map_err(unknown)?;
        match found.find(|found| !self.allows(host, found.ip())) {
            Some(_) => {
                Err(format!("{} is not asked: it came from a server and leads to no public address", origin(url)))
            }
            None => Ok(()),
        }
    }

    /// A client whose connections keep to this guard. It follows no redirect.
    ///
    /// # Errors
    /// [`ClientBuildError`]: the machine's certificates or TLS are unusable.
    pub fn client(&self) -> Result<reqwest::Client, ClientBuildError> {
        build(self.proxies.apply(settings())?.dns_resolver(self.clone()))
    }

    /// The same for gRPC.
    ///
    /// # Errors
    /// [`ClientBuildError`]: the machine's certificates or TLS are unusable.
    #[cfg(feature = "grpc")]
    pub fn http2(&self) -> Result<reqwest::Client, ClientBuildError> {
        build(super::http2(self.proxies.encrypted_only().apply(settings())?).dns_resolver(self.clone()))
    }

    fn names(&self, host: &str) -> bool {
        self.named.iter().any(|named| named.eq_ignore_ascii_case(host))
    }

    fn allows(&self, host: &str, address: IpAddr) -> bool {
        if METADATA.contains(&address.to_string().as_str()) {
            return false;
        }
        self.names(host)
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
            // The proxy itself may lie anywhere; that data names it as a target is found by `check`.
            let is_proxy = guard.proxies.hosts().any(|proxy| proxy.eq_ignore_ascii_case(host));
            let allows = |found: &SocketAddr| is_proxy || guard.allows(host, found.ip());
            let allowed: Vec<SocketAddr> = found.into_iter().filter(allows).collect();
            if allowed.is_empty() {
                return Err(format!("`{host}` came from a server and leads to no public address").into());
            }
            Ok(Box::new(allowed.into_iter()) as reqwest::dns::Addrs)
        })
    }
}

/// Scheme, host and port: a path or a query may hold a secret.
fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

fn bare(host: &str) -> &str {
    host.trim_matches(['[', ']']).trim_end_matches('.')
}

fn is_local_name(host: &str) -> bool {
    let host = bare(host).to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

fn scope(address: IpAddr) -> AddressScope {
    match address {
        IpAddr::V4(address) => scope4(address),
        IpAddr::V6(address) => scope6(address),
    }
}

/// The blocks are those of the registries of special-purpose addresses (RFC 6890 and its updates).
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
        // Global unicast is 2000::/3; inside it lie Teredo, ORCHID, documents and 6to4, which hide other addresses.
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
        SsrfGuard::around(&Url::parse(configured).unwrap(), ["sso.corp"])
    }

    fn admits(guard: &SsrfGuard, url: &str) -> bool {
        guard.admits(&Url::parse(url).unwrap()).is_ok()
    }

    #[test]
    fn data_may_name_public_addresses_by_tls_and_what_the_configuration_names() {
        let far = guard("https://mcp.example.com/mcp");
        for good in
            ["https://login.example.org/x", "https://1.1.1.1/", "http://mcp.example.com/", "http://sso.corp:8080/"]
        {
            assert!(admits(&far, good), "{good}");
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
            assert!(!admits(&far, bad), "{bad}");
        }
        assert!(admits(&far, "https://[2606:4700::1111]/"));
    }

    #[test]
    fn only_a_configuration_that_points_to_this_machine_lets_data_do_so() {
        for home in ["http://localhost:8000/mcp", "http://127.0.0.1:1/mcp", "http://[::1]:9/"] {
            let home = guard(home);
            assert!(
                admits(&home, "http://127.0.0.1:9000/token") && admits(&home, "http://localhost/"),
                "{:?}",
                home.named
            );
            assert!(
                !admits(&home, "http://10.0.0.1/") && !admits(&home, "https://169.254.169.254/"),
                "{:?}",
                home.named
            );
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_elsewhere_is_found_out_at_the_connection() {
        let far = guard("https://mcp.example.com/mcp");
        let resolve = |guard: &SsrfGuard, name: &str| guard.resolve(name.parse().unwrap());
        let refused = resolve(&far, "localhost").await.err().unwrap().to_string();
        assert!(refused.contains("no public address"), "{refused}");
        let near = guard("http://127.0.0.1/mcp");
        assert!(resolve(&near, "localhost").await.unwrap().all(|found| found.ip().is_loopback()));
    }

    #[test]
    fn what_is_refused_is_named_without_its_path() {
        let refused = guard("https://a.example/").admits(&Url::parse("http://b.example/s?key=1").unwrap()).unwrap_err();
        assert_eq!(refused, "http://b.example is not asked: it came from a server and is not `https`");
    }
}

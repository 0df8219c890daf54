//! Addresses that come from data, not from a file of the project: checked before anything connects, and once more at the
//! connection itself, so that a name cannot lead somewhere else between the two.
//!
//! A host that the configuration names is reached as it is written there. Any other must be reached by TLS and lie on
//! the public net; only where the configuration itself points to this machine may data do so too.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use reqwest::{
    Url,
    dns::{Name, Resolve, Resolving},
};

use super::{METADATA, Unbuilt, build_with};

/// Which addresses may be asked for one purpose.
#[derive(Clone, Debug)]
pub struct Guard {
    /// Hosts that the configuration names, in lower case.
    named: Arc<[String]>,
    /// Whether the configuration points to this machine.
    at_home: bool,
}

/// Where an address lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Net {
    /// On the public net.
    Public,
    /// On this machine.
    Loopback,
    /// Anywhere else: private, shared, reserved, several receivers, for documents, or a form that hides another.
    Other,
}

impl Guard {
    /// Allows what data says near the address `configured`, and whatever lies on one of `hosts`.
    pub fn around<'a>(configured: &'a Url, hosts: impl IntoIterator<Item = &'a str>) -> Self {
        let own = configured.host_str().unwrap_or_default();
        let named = std::iter::once(own).chain(hosts).map(|host| bare(host).to_ascii_lowercase());
        let at_home = bare(own).parse().map_or(is_local_name(own), |address| net(address) == Net::Loopback);
        Self { named: named.filter(|host| !host.is_empty()).collect(), at_home }
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
        let local = host.parse().map_or(is_local_name(host), |address| net(address) == Net::Loopback);
        if local && self.at_home {
            return Ok(());
        }
        if url.scheme() != "https" {
            return refused("it came from a server and is not `https`");
        }
        match host.parse() {
            Ok(address) if net(address) != Net::Public => refused("it came from a server and is no public address"),
            Err(_) if is_local_name(host) => refused("it came from a server and is this machine"),
            _ => Ok(()),
        }
    }

    /// A client whose connections keep to this guard. It follows no redirect.
    ///
    /// # Errors
    /// [`Unbuilt`]: the machine's certificates or TLS are unusable.
    pub fn client(&self) -> Result<reqwest::Client, Unbuilt> {
        build_with(|settings| settings.dns_resolver(self.clone()))
    }

    /// The same for gRPC.
    ///
    /// # Errors
    /// [`Unbuilt`]: the machine's certificates or TLS are unusable.
    #[cfg(feature = "grpc")]
    pub fn http2(&self) -> Result<reqwest::Client, Unbuilt> {
        build_with(|settings| super::http2(settings).dns_resolver(self.clone()))
    }

    fn names(&self, host: &str) -> bool {
        self.named.iter().any(|named| named.eq_ignore_ascii_case(host))
    }

    fn allows(&self, host: &str, address: IpAddr) -> bool {
        if METADATA.contains(&address.to_string().as_str()) {
            return false;
        }
        self.names(host)
            || match net(address) {
                Net::Public => true,
                Net::Loopback => self.at_home,
                Net::Other => false,
            }
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let host = name.as_str();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host, 0)).await?.collect();
            let allowed: Vec<SocketAddr> = found.into_iter().filter(|found| guard.allows(host, found.ip())).collect();
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

fn net(address: IpAddr) -> Net {
    match address {
        IpAddr::V4(address) => net4(address),
        IpAddr::V6(address) => net6(address),
    }
}

/// The blocks are those of the registries of special-purpose addresses (RFC 6890 and its updates).
fn net4(address: Ipv4Addr) -> Net {
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
        127 => Net::Loopback,
        _ if special => Net::Other,
        _ => Net::Public,
    }
}

fn net6(address: Ipv6Addr) -> Net {
    if address.is_loopback() {
        return Net::Loopback;
    }
    if let Some(inner) = address.to_ipv4_mapped() {
        return net4(inner);
    }
    match address.segments() {
        // Global unicast is 2000::/3; inside it lie Teredo, ORCHID, documents and 6to4, which hide other addresses.
        [0x2001, b, ..] if b < 0x0200 => Net::Other,
        [0x2001, 0x0db8, ..] | [0x2002, ..] | [0x3fff, 0..=0x0fff, ..] => Net::Other,
        [0x2000..=0x3fff, ..] => Net::Public,
        _ => Net::Other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
    use super::*;

    fn guard(configured: &str) -> Guard {
        Guard::around(&Url::parse(configured).unwrap(), ["sso.corp"])
    }

    fn admits(guard: &Guard, url: &str) -> bool {
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
            assert!(admits(&home, "http://127.0.0.1:9000/token") && admits(&home, "http://localhost/"), "{home:?}");
            assert!(!admits(&home, "http://10.0.0.1/") && !admits(&home, "https://169.254.169.254/"), "{home:?}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_elsewhere_is_found_out_at_the_connection() {
        let far = guard("https://mcp.example.com/mcp");
        let resolve = |guard: &Guard, name: &str| guard.resolve(name.parse().unwrap());
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

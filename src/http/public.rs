//! Addresses that stand in data and not in the configuration: cards of others, addresses for reports (reliability.md 3.7).
//!
//! Such an address is asked over HTTPS only, and only at hosts of the open network: every address that a name leads to is looked
//! at before a connection, and no second look-up comes in between. Whoever writes such an address must not reach what is
//! next to us.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Whether an address is one of the open network, which anybody may reach.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Blocks of IPv4 that are not of the open network: the first address, and the length of what they share. After the registry of
/// special-purpose addresses (RFC 6890) and multicast (RFC 5771).
const CLOSED_V4: &[([u8; 4], u32)] = &[
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];

fn is_public_v4(address: Ipv4Addr) -> bool {
    let address = u32::from(address);
    !CLOSED_V4.iter().any(|(block, length)| (address ^ u32::from_be_bytes(*block)) >> (32 - length) == 0)
}

/// Only the block of unicast addresses that are given out is open, without what in it is for documents, for tunnels, or holds an
/// IPv4 address that is not open.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let inner = |high: u16, low: u16| {
        let [w, x] = high.to_be_bytes();
        let [y, z] = low.to_be_bytes();
        is_public_v4(Ipv4Addr::new(w, x, y, z))
    };
    match (a, b) {
        // An IPv4 address in the clothes of IPv6, old and new.
        (0, 0) if [c, d, e] == [0, 0, 0] && matches!(f, 0 | 0xffff) => inner(g, h),
        // Translation between the two (RFC 6052).
        (0x64, 0xff9b) if [c, d, e, f] == [0, 0, 0, 0] => inner(g, h),
        // A tunnel that names its end (RFC 3056).
        (0x2002, _) => inner(b, c),
        // Teredo, benchmarks and the like; documents.
        (0x2001, 0..=0x01ff | 0x0db8) | (0x3fff, 0..=0x0fff) => false,
        _ => a & 0xe000 == 0x2000,
    }
}

/// Reads an address from data: `https` at a host of the open network. `local` also admits `http`, and hosts that are this very
/// machine, for those who develop on it.
///
/// # Errors
/// What is wrong with it, in words that end a sentence.
pub fn public_destination(text: &str, local: bool) -> Result<reqwest::Url, String> {
    let url = reqwest::Url::parse(text).map_err(|error| format!("`{text}` is no address ({error})"))?;
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let literal: Option<IpAddr> = host.parse().ok();
    let is_here = host.eq_ignore_ascii_case("localhost") || literal.is_some_and(|address| address.is_loopback());
    match url.scheme() {
        "https" => {}
        "http" if local && is_here => {}
        "http" => return Err(format!("`{text}` must begin with `https`")),
        _ => return Err(format!("`{text}` is no address of the web")),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("an address may not hold a user name or a password".to_owned());
    }
    if is_here && local {
        return Ok(url);
    }
    if is_here || literal.is_some_and(|address| !is_public(address)) || host.is_empty() {
        return Err(format!("`{host}` is not a host of the open network"));
    }
    Ok(url)
}

/// Looks names up and keeps the addresses that may be asked; a name that leads to another one as well is refused whole.
pub(super) struct Guarded {
    /// Whether this very machine may be asked.
    pub(super) local: bool,
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let local = self.local;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let allowed = |ip: IpAddr| is_public(ip) || (local && ip.is_loopback());
            if found.is_empty() || !found.iter().all(|address| allowed(address.ip())) {
                return Err(format!("`{}` is not a host of the open network", name.as_str()).into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// For the builder of a client.
pub(super) fn guarded(local: bool) -> Arc<Guarded> {
    Arc::new(Guarded { local })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_next_to_us_is_not_the_open_network() {
        for closed in [
            "127.0.0.1",
            "10.1.2.3",
            "172.31.255.255",
            "192.168.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.127.255.255",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "198.19.0.1",
            "192.0.2.1",
            "203.0.113.9",
            "192.0.0.8",
            "::1",
            "::",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::7f00:1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001:0:7f00:1::",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001:db8::1",
            "3fff::1",
            "100::1",
        ] {
            assert!(!is_public(closed.parse().unwrap()), "{closed}");
        }
        for open in [
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "198.20.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
        ] {
            assert!(is_public(open.parse().unwrap()), "{open}");
        }
    }

    #[test]
    fn addresses_from_data_are_looked_at() {
        assert!(public_destination("https://example.org/x", false).is_ok());
        for bad in [
            "http://example.org/",
            "ftp://example.org/",
            "https://127.0.0.1/",
            "https://localhost/",
            "https://[::1]/",
            "https://2130706433/",
            "https://0x7f.1/",
            "https://user:word@example.org/",
            "https://169.254.169.254/",
            "x",
        ] {
            assert!(public_destination(bad, false).is_err(), "{bad}");
        }
        for here in ["http://127.0.0.1:9/", "http://localhost:9/", "https://[::1]/"] {
            assert!(public_destination(here, true).is_ok(), "{here}");
        }
        for bad in ["http://10.0.0.1/", "https://10.0.0.1/", "http://example.org/"] {
            assert!(public_destination(bad, true).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_home_is_refused_before_a_connection() {
        let ask = |local: bool| async move {
            let name = "localhost".parse::<Name>().unwrap();
            Guarded { local }.resolve(name).await.map(Iterator::count)
        };
        assert!(ask(false).await.is_err());
        assert!(ask(true).await.is_ok_and(|count| count > 0));
    }
}

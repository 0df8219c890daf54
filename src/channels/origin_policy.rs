//! The settings `allowed_origins` and `allowed_hosts` of a channel, and their comparison with the headers `Origin` and `Host`.
//!
//! The check protects against cross-site requests and DNS rebinding. Names are compared case-insensitively. An entry without a port,
//! or with the port `*`, matches every port.

use axum::http::{Uri, uri::Authority};
use segue_engine::project::ChannelDef;

/// The origins and host names that a channel in `credentials.yml` accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginPolicy {
    /// The origins of web pages that may send requests, as `https://host:port` or `https://host:*`.
    pub origins: Vec<String>,
    /// The host names that requests may use. Empty: any, unless the server listens on loopback only.
    pub hosts: Vec<String>,
}

impl OriginPolicy {
    /// The policy in the settings of a channel.
    ///
    /// # Errors
    /// An entry is not an origin or not a host name; the message says how to write it.
    pub fn from_channel(channel: &ChannelDef) -> Result<Self, String> {
        let policy = Self { origins: channel.origins.clone(), hosts: channel.hosts.clone() };
        if let Some(invalid) = policy.origins.iter().find(|origin| split_origin(origin).is_none()) {
            return Err(format!(
                "`allowed_origins`: `{invalid}` is not an origin; write it as \"https://shop.example\""
            ));
        }
        if let Some(invalid) = policy.hosts.iter().find(|host| split_host(host).is_none()) {
            return Err(format!("`allowed_hosts`: `{invalid}` is not a host name; write it as \"assistant.example\""));
        }
        Ok(policy)
    }
}

/// Whether the value of an `Origin` header matches the entry `allowed`. Browsers omit the default port of a scheme.
pub fn origin_matches(allowed: &str, origin: &str) -> bool {
    let (Some((scheme, host, port)), Some((origin_scheme, origin_host, origin_port))) =
        (split_origin(allowed), split_origin(origin))
    else {
        return false;
    };
    let default = if origin_scheme == "https" { 443 } else { 80 };
    (scheme, host) == (origin_scheme, origin_host) && port.is_none_or(|port| port == origin_port.unwrap_or(default))
}

/// Whether the value of a `Host` header matches the entry `allowed`.
pub fn host_matches(allowed: &str, host: &str) -> bool {
    let (Some((name, port)), Some((host_name, host_port))) = (split_host(allowed), split_host(host)) else {
        return false;
    };
    name == host_name && port.is_none_or(|port| Some(port) == host_port)
}

/// Whether the value of a `Host` header names this machine: `localhost` or a loopback address. A page that an attacker serves under
/// its own domain name cannot make a browser send such a value.
pub fn is_loopback_host(host: &str) -> bool {
    split_host(host).is_some_and(|(name, _)| {
        let address = name.parse::<std::net::IpAddr>();
        name == "localhost" || address.is_ok_and(|address| address.is_loopback())
    })
}

/// The host of a URL, with the port if the URL has one.
pub fn authority_of(url: &str) -> Option<String> {
    url.parse::<Uri>().ok()?.authority().map(|authority| authority.as_str().to_owned())
}

/// Scheme, host and port of an origin; `None` for the origin `null`, which any page can have.
fn split_origin(origin: &str) -> Option<(String, String, Option<u16>)> {
    let origin = origin.trim();
    let uri: Uri = origin.strip_suffix(":*").unwrap_or(origin).parse().ok()?;
    let scheme = uri.scheme_str()?.to_ascii_lowercase();
    let (host, port) = split_host(uri.authority()?.as_str())?;
    Some((scheme, host, port))
}

/// Lower-case name and port of a host, without the brackets of an IPv6 address and without a final dot.
fn split_host(host: &str) -> Option<(String, Option<u16>)> {
    let host = host.trim();
    let authority: Authority = host.strip_suffix(":*").unwrap_or(host).parse().ok()?;
    let name = authority.host().trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
    let is_plain = !name.is_empty() && !authority.as_str().contains('@');
    is_plain.then(|| (name, authority.port_u16()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn origins_are_compared_by_scheme_host_and_port() {
        for (allowed, origin, is_match) in [
            ("https://shop.example", "https://shop.example", true),
            ("https://shop.example", "https://SHOP.example:8443", true),
            ("https://shop.example:*", "https://shop.example:8443", true),
            ("https://shop.example:443", "https://shop.example", true),
            ("https://shop.example:443", "https://shop.example:8443", false),
            ("https://shop.example", "http://shop.example", false),
            ("https://shop.example", "https://evil.example", false),
            ("https://shop.example", "https://shop.example.evil.example", false),
            ("https://shop.example", "https://shop.example@evil.example", false),
            ("http://[::1]:*", "http://[::1]:3000", true),
            ("https://shop.example", "null", false),
            ("https://shop.example", "", false),
        ] {
            assert_eq!(origin_matches(allowed, origin), is_match, "{allowed} {origin}");
        }
    }

    #[test]
    fn only_localhost_and_loopback_addresses_are_loopback_hosts() {
        for host in ["localhost", "localhost:5005", "LOCALHOST.", "127.0.0.1:5005", "127.8.0.1", "[::1]:5005"] {
            assert!(is_loopback_host(host), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "10.0.0.5:5005", "127.0.0.1.evil.example", "", "a@localhost"]
        {
            assert!(!is_loopback_host(host), "{host}");
        }
        assert!(
            host_matches("assistant.example", "Assistant.Example:5005") && host_matches("a.example:80", "a.example:80")
        );
        assert!(!host_matches("a.example:80", "a.example") && !host_matches("a.example", "b.a.example"));
    }

    #[test]
    fn invalid_origin_or_host_in_the_settings_is_an_error() {
        let channel = |origins: &[&str], hosts: &[&str]| {
            let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
            ChannelDef { origins: owned(origins), hosts: owned(hosts), ..ChannelDef::default() }
        };
        for (channel, mentioned) in
            [(channel(&["a.example"], &[]), "https://"), (channel(&[], &["https://a.example/x"]), "host name")]
        {
            let problem = OriginPolicy::from_channel(&channel).unwrap_err();
            assert!(problem.contains(mentioned), "{channel:?}: {problem}");
        }
        let policy = OriginPolicy::from_channel(&channel(&["https://a.example"], &[]));
        assert_eq!(policy, Ok(OriginPolicy { origins: vec!["https://a.example".to_owned()], hosts: Vec::new() }));
    }
}

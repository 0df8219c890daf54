//! Which web pages may call a channel, and under which names: the settings `allowed_origins` and `allowed_hosts`, and how they
//! are compared with the headers `Origin` and `Host`. Names are compared without regard to case; an entry without a port, or with
//! `:*` for one, stands for every port.

use axum::http::{Uri, uri::Authority};
use segue_engine::project::ChannelDef;

/// The settings of a channel in `credentials.yml`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Pages that may call, as `https://host:port` or `https://host:*`.
    pub origins: Vec<String>,
    /// Names under which the channel is called; empty means any that the server's address admits.
    pub hosts: Vec<String>,
}

impl Pages {
    /// Those of a channel.
    ///
    /// # Errors
    /// What is wrong with an entry, and the fix.
    pub fn of(channel: &ChannelDef) -> Result<Self, String> {
        let pages = Self { origins: channel.origins.clone(), hosts: channel.hosts.clone() };
        if let Some(wrong) = pages.origins.iter().find(|origin| split_origin(origin).is_none()) {
            return Err(format!("`allowed_origins`: `{wrong}` is no origin; write it as \"https://shop.example\""));
        }
        if let Some(wrong) = pages.hosts.iter().find(|host| split_host(host).is_none()) {
            return Err(format!("`allowed_hosts`: `{wrong}` is no host name; write it as \"assistant.example\""));
        }
        Ok(pages)
    }
}

/// Whether an `Origin` header is that of the page `allowed`. A browser leaves the usual port of a scheme out.
pub fn is_origin(allowed: &str, origin: &str) -> bool {
    let (Some((scheme, host, port)), Some((own_scheme, own_host, own_port))) =
        (split_origin(allowed), split_origin(origin))
    else {
        return false;
    };
    let usual = if own_scheme == "https" { 443 } else { 80 };
    (scheme, host) == (own_scheme, own_host) && port.is_none_or(|port| port == own_port.unwrap_or(usual))
}

/// Whether a `Host` header is the name `allowed`.
pub fn is_host(allowed: &str, host: &str) -> bool {
    let (Some((name, port)), Some((own_name, own_port))) = (split_host(allowed), split_host(host)) else {
        return false;
    };
    name == own_name && port.is_none_or(|port| Some(port) == own_port)
}

/// Whether a `Host` header names this machine: `localhost`, or an address that leads nowhere else. No page of others can have
/// such an address as its own name.
pub fn is_this_machine(host: &str) -> bool {
    split_host(host).is_some_and(|(name, _)| {
        let address = name.parse::<std::net::IpAddr>();
        name == "localhost" || address.is_ok_and(|address| address.is_loopback())
    })
}

/// The host of an address, with its port if it has one.
pub fn host_of(url: &str) -> Option<String> {
    url.parse::<Uri>().ok()?.authority().map(|authority| authority.as_str().to_owned())
}

/// Scheme, host and port of an origin; `null` is none, since any page can have it.
fn split_origin(origin: &str) -> Option<(String, String, Option<u16>)> {
    let origin = origin.trim();
    let uri: Uri = origin.strip_suffix(":*").unwrap_or(origin).parse().ok()?;
    let scheme = uri.scheme_str()?.to_ascii_lowercase();
    let (host, port) = split_host(uri.authority()?.as_str())?;
    Some((scheme, host, port))
}

/// Name and port, without brackets and a final dot.
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
        for (allowed, origin, is_it) in [
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
            assert_eq!(is_origin(allowed, origin), is_it, "{allowed} {origin}");
        }
    }

    #[test]
    fn names_of_this_machine_are_known_and_no_others() {
        for host in ["localhost", "localhost:5005", "LOCALHOST.", "127.0.0.1:5005", "127.8.0.1", "[::1]:5005"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "10.0.0.5:5005", "127.0.0.1.evil.example", "", "a@localhost"]
        {
            assert!(!is_this_machine(host), "{host}");
        }
        assert!(is_host("assistant.example", "Assistant.Example:5005") && is_host("a.example:80", "a.example:80"));
        assert!(!is_host("a.example:80", "a.example") && !is_host("a.example", "b.a.example"));
    }

    #[test]
    fn a_setting_that_cannot_be_compared_is_named() {
        let channel = |origins: &[&str], hosts: &[&str]| {
            let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
            ChannelDef { origins: owned(origins), hosts: owned(hosts), ..ChannelDef::default() }
        };
        for (channel, named) in
            [(channel(&["a.example"], &[]), "https://"), (channel(&[], &["https://a.example/x"]), "host name")]
        {
            let problem = Pages::of(&channel).unwrap_err();
            assert!(problem.contains(named), "{channel:?}: {problem}");
        }
        let pages = Pages::of(&channel(&["https://a.example"], &[]));
        assert_eq!(pages, Ok(Pages { origins: vec!["https://a.example".to_owned()], hosts: Vec::new() }));
    }
}

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
};

use super::*;
use crate::http::{Clients, HttpClients, SsrfGuard, resolver::RotatingResolver};

/// A proxy that responds to `http` requests itself and refuses tunnels; also returns the request line and the credentials of each request.
async fn proxy() -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (sender, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = [0; 4096];
            // One read is one request, because it is small and arrives in one packet.
            let read = stream.read(&mut bytes).await.unwrap();
            let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
            let line = text.lines().next().unwrap_or_default();
            let credentials = text.lines().find_map(|line| line.strip_prefix("proxy-authorization: "));
            let _ = sender.send([line, credentials.unwrap_or_default()].join(" ").trim_end().to_owned());
            let status = if line.starts_with("CONNECT") { "403 Forbidden" } else { "200 OK" };
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 7\r\nconnection: close\r\n\r\nproxied");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (at, requests)
}

/// A loopback server that responds to every request.
async fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\ndirect").await;
        }
    });
    at
}

fn from(variables: &[(&str, String)], proxy: Option<&str>, no_proxy: Option<&str>) -> HttpClients {
    let variables: HashMap<_, _> = variables.iter().cloned().collect();
    HttpClients::with_proxies(Proxies::new(proxy, no_proxy, |name| variables.get(name).cloned()))
}

async fn get(clients: &HttpClients, url: &str) -> Result<String, reqwest::Error> {
    clients.client().unwrap().get(url).send().await?.text().await
}

#[tokio::test]
async fn requests_use_the_proxy_of_the_environment_or_the_project() {
    let (at, mut requests) = proxy().await;
    let (whole, bare) = (format!("http://{at}"), at.to_string());
    let direct = "http://127.0.0.1:1".to_owned();
    for clients in [
        from(&[("HTTP_PROXY", whole.clone())], None, None),
        from(&[("http_proxy", bare.clone()), ("HTTPS_PROXY", direct.clone())], None, None),
        from(&[("ALL_PROXY", whole.clone())], None, None),
        from(&[("ALL_PROXY", direct.clone()), ("HTTP_PROXY", whole.clone())], None, None),
        from(&[("HTTP_PROXY", direct.clone())], Some(&whole), None),
        from(&[("NO_PROXY", "models.test".to_owned())], Some(&whole), Some("other.test")),
    ] {
        assert_eq!(get(&clients, "http://models.test/v1?a=b").await.unwrap(), "proxied");
        assert_eq!(requests.recv().await.unwrap(), "GET http://models.test/v1?a=b HTTP/1.1");
    }
    let authenticated = from(&[], Some(&format!("http://me:s%26cret@{at}")), None);
    assert_eq!(get(&authenticated, "http://models.test/").await.unwrap(), "proxied");
    assert_eq!(requests.recv().await.unwrap(), "GET http://models.test/ HTTP/1.1 Basic bWU6cyZjcmV0");
}

#[tokio::test]
async fn encrypted_requests_ask_the_proxy_for_a_tunnel() {
    let (at, mut requests) = proxy().await;
    for clients in [
        from(&[("HTTPS_PROXY", format!("http://{at}"))], None, None),
        from(&[("all_proxy", format!("http://{at}"))], None, None),
        from(&[], Some(&format!("http://{at}")), None),
    ] {
        assert!(get(&clients, "https://models.test/").await.unwrap_err().is_connect(), "the proxy refuses");
        assert_eq!(requests.recv().await.unwrap(), "CONNECT models.test:443 HTTP/1.1");
    }
}

#[tokio::test]
async fn loopback_and_exempt_hosts_are_reached_directly() {
    let ((at, mut requests), server) = (proxy().await, server().await);
    let through = Some(format!("http://{at}"));
    let clients = from(&[], through.as_deref(), None);
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("http://{host}:{}/", server.port());
        assert_eq!(get(&clients, &url).await.unwrap(), "direct", "{host}");
    }
    for (variable, exempt) in [("a.example, .test", None), ("", Some("test")), ("", Some("*"))] {
        let variable = |name: &str| (name == "NO_PROXY").then(|| variable.to_owned());
        let resolver = RotatingResolver::with_resolved("models.test", &[server]);
        let proxies = Proxies::new(through.as_deref(), exempt, variable);
        let clients = HttpClients(Arc::new(Clients { proxies, resolver, ..Clients::default() }));
        assert_eq!(get(&clients, "http://models.test/").await.unwrap(), "direct", "{exempt:?}");
    }
    assert!(requests.try_recv().is_err(), "the proxy received no request");
}

/// Only addresses that the guard allows reach the proxy.
#[tokio::test]
async fn guarded_addresses_are_checked_before_the_proxy_is_called() {
    let (at, mut requests) = proxy().await;
    let url = |text: &str| reqwest::Url::parse(text).unwrap();
    let configured = url("https://mcp.example.com/mcp");
    let guard = SsrfGuard::for_server(&configured, []).with_proxy_of(&from(&[], Some(&format!("http://{at}")), None));
    for bad in ["https://localhost/", "https://10.0.0.1/", "https://unknown.invalid/", "http://1.1.1.1/"] {
        assert!(guard.check(&url(bad)).await.is_err(), "{bad}");
    }
    for good in ["https://mcp.example.com/token", "https://1.1.1.1/"] {
        assert_eq!(guard.check(&url(good)).await, Ok(()), "{good}");
    }
    assert!(requests.try_recv().is_err());
    assert!(guard.client().unwrap().get("https://1.1.1.1/").send().await.unwrap_err().is_connect());
    assert_eq!(requests.recv().await.unwrap(), "CONNECT 1.1.1.1:443 HTTP/1.1");
}

#[tokio::test]
async fn guarded_addresses_never_use_a_proxy_of_the_environment() {
    let (at, mut requests) = proxy().await;
    let variables = [("HTTPS_PROXY", format!("http://{at}")), ("HTTP_PROXY", format!("http://{at}"))];
    let configured = reqwest::Url::parse("https://mcp.invalid/mcp").unwrap();
    let guard = SsrfGuard::for_server(&configured, []).with_proxy_of(&from(&variables, None, None));
    assert!(guard.client().unwrap().get("https://mcp.invalid/").send().await.is_err());
    assert!(requests.try_recv().is_err());
}

#[test]
fn an_invalid_proxy_address_is_reported_with_its_setting_and_without_secrets() {
    for (clients, setting) in [
        (from(&[("HTTP_PROXY", "ftp://me:secret@proxy.test".to_owned())], None, None), "HTTP_PROXY"),
        (from(&[("ALL_PROXY", "http://".to_owned())], None, None), "ALL_PROXY"),
        (from(&[], Some("gopher://me:secret@proxy.test"), None), "endpoints.yml"),
    ] {
        let error = clients.client().unwrap_err().to_string();
        assert!(error.contains(setting) && error.contains("http://host:port"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
    assert!(
        from(&[("HTTP_PROXY", " ".to_owned()), ("ALL_PROXY", "socks5://127.0.0.1:9".to_owned())], None, None)
            .client()
            .is_ok()
    );
}

//! Authorization at MCP servers over HTTP: credentials are sent only to the configured server, whatever responses, metadata and redirects
//! say. A refused token is replaced once.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::response::Response;
use serde_json::{Value as Json, json};
use tokio::net::{TcpListener, TcpStream};

use super::{
    http_sessions::{HttpMcpServer, respond, start_server, yes},
    *,
};

const OAUTH: &str = "oauth: {client_id: me, client_secret: '${SERVER_SECRET}'}";
const CREDENTIALS_REFUSED: &str = "unavailable: It does not accept our credentials";

/// A private address that no request may reach. Counts connections.
struct PrivateAddress {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl PrivateAddress {
    async fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, connections) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        let count = connections.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                drop(connection);
            }
        });
        Self { port, connections }
    }

    /// A URL of this address. It is not public; a server on this machine may name its loopback address, but not this one.
    fn url(&self, path: &str) -> String {
        format!("http://0.0.0.0:{}{path}", self.port)
    }

    /// The number of connections. First checks that a connection is counted.
    async fn count(&self) -> usize {
        let before = self.connections.load(Ordering::SeqCst);
        TcpStream::connect(("0.0.0.0", self.port)).await.unwrap();
        while self.connections.load(Ordering::SeqCst) == before {
            tokio::task::yield_now().await;
        }
        before
    }
}

/// Publishes the metadata of the resource and of its authorization server (RFC 9728 and RFC 8414).
fn publish(server: &HttpMcpServer, resource: &str, authorization_server: &str, token_endpoint: &str) {
    let address = &server.address;
    let mut pages = server.pages.lock().unwrap();
    pages.insert("/meta".into(), json!({"resource": resource, "authorization_servers": [authorization_server]}));
    let metadata = json!({
        "issuer": address, "token_endpoint": token_endpoint, "authorization_endpoint": format!("{address}/authorize"),
        "response_types_supported": ["code"]
    });
    pages.insert("/.well-known/oauth-authorization-server".into(), metadata);
    *server.challenge.lock().unwrap() = Some(format!("Bearer resource_metadata=\"{address}/meta\""));
}

/// Publishes correct metadata.
fn publish_valid(server: &HttpMcpServer) {
    publish(server, &format!("{}/mcp", server.address), &server.address, &format!("{}/token", server.address));
}

/// The response to a token that is not accepted.
fn invalid_token() -> Response {
    respond(401, &[("www-authenticate", "Bearer error=\"invalid_token\"")], &json!({}))
}

#[tokio::test]
async fn refused_token_is_replaced_once_and_the_call_is_retried() {
    let (conversation, server) =
        start_server(OAUTH, |request, n| if n == 0 { invalid_token() } else { yes(request) }).await;
    publish_valid(&server);
    conversation.assert_succeeds("/work", "yes").await;
    assert_eq!(server.calls.load(Ordering::SeqCst), 2);
    let tokens = server.token_requests.lock().unwrap();
    assert_eq!(tokens.len(), 2, "the refused token and a new one");
    let resource = server.address.replace(':', "%3A").replace('/', "%2F") + "%2Fmcp";
    assert!(
        tokens.iter().all(|form| form.contains(&format!("resource={resource}"))),
        "the tokens are for this resource: {tokens:?}"
    );
    assert_eq!(server.credentials.lock().unwrap().last().unwrap().as_deref(), Some("Bearer token-2"));
}

#[tokio::test]
async fn persistent_401_fails_the_call() {
    let (conversation, server) = start_server(OAUTH, |_, _| invalid_token()).await;
    publish_valid(&server);
    conversation.assert_fails("/work", CREDENTIALS_REFUSED).await;
    assert_eq!((server.calls.load(Ordering::SeqCst), server.token_requests.lock().unwrap().len()), (2, 2));
    let (replies, failures) = conversation.say("/ask").await;
    let output = format!("{replies:?} {failures} {:?}", conversation.model.tool_results());
    assert!(output.contains("does not accept our credentials"), "{output}");
    assert!(!output.contains("s3cret") && !output.contains("token-"), "{output}");
}

#[tokio::test]
async fn refused_static_key_starts_no_oauth_discovery() {
    let (conversation, server) =
        start_server("headers: {Authorization: 'Bearer s3cret'}", |_, _| invalid_token()).await;
    conversation.assert_fails("/work", CREDENTIALS_REFUSED).await;
    let (_, failures) = conversation.say("/work").await;
    assert!(!failures.contains("s3cret"), "{failures}");
    assert_eq!(server.calls.load(Ordering::SeqCst), 2, "once per turn");
    assert!(server.other_paths.lock().unwrap().is_empty(), "{:?}", server.other_paths);
}

/// A response can name an address in three places. Each of them names a private address here.
#[tokio::test]
async fn oauth_metadata_with_private_addresses_is_not_followed() {
    for place in ["the challenge", "the metadata of the resource", "the metadata of the token server"] {
        let private = PrivateAddress::listen().await;
        let (conversation, server) = start_server(OAUTH, |request, _| yes(request)).await;
        publish_valid(&server);
        let resource = format!("{}/mcp", server.address);
        match place {
            "the challenge" => {
                server.pages.lock().unwrap().clear();
                *server.challenge.lock().unwrap() =
                    Some(format!("Bearer resource_metadata=\"{}\"", private.url("/meta")));
                // The metadata at the well-known path of the server itself is used instead.
                conversation.assert_succeeds("/work", "yes").await;
            }
            _ => {
                let addresses = (private.url(""), private.url("/token"));
                let (authorization_server, token_endpoint) = if place.ends_with("resource") {
                    (&*addresses.0, "unused")
                } else {
                    (&*server.address, &*addresses.1)
                };
                publish(&server, &resource, authorization_server, token_endpoint);
                let (replies, failures) = conversation.say("/work").await;
                assert_eq!(replies, ["Broken."], "{place}: {failures}");
                assert!(failures.starts_with("T0502: remote") && !failures.contains("s3cret"), "{place}: {failures}");
                assert!(server.token_requests.lock().unwrap().is_empty(), "{place}");
            }
        }
        assert_eq!(private.count().await, 0, "{place}");
    }
}

#[tokio::test]
async fn oauth_metadata_of_another_resource_is_refused() {
    let (conversation, server) = start_server(OAUTH, |request, _| yes(request)).await;
    publish(&server, "https://mcp.example.com/mcp", &server.address, &format!("{}/token", server.address));
    let (replies, failures) = conversation.say("/work").await;
    assert_eq!(replies, ["Broken."], "{failures}");
    assert!(failures.starts_with("T0502: remote") && failures.contains("mismatch"), "{failures}");
    assert!(server.token_requests.lock().unwrap().is_empty(), "no token of another resource is requested");
}

/// Neither a call nor a token request follows a redirect: no credentials are sent to another address.
#[tokio::test]
async fn credentials_are_not_sent_to_other_hosts() {
    let private = PrivateAddress::listen().await;
    let target = private.url("/mcp");
    let redirect = move |_: &Json, _| respond(307, &[("location", &target)], &json!({}));
    let (conversation, server) = start_server("headers: {Authorization: 'Bearer s3cret'}", redirect).await;
    conversation.assert_unknown("/work", "unavailable: The connection to it was lost").await;
    assert_eq!((server.calls.load(Ordering::SeqCst), private.count().await), (1, 0));

    let target = format!("http://127.0.0.1:{}/token", private.port);
    let token_server =
        axum::Router::new().fallback(move || std::future::ready(axum::response::Redirect::temporary(&target)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/token", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, token_server).await });
    let before = private.connections.load(Ordering::SeqCst);
    let oauth = format!("oauth: {{client_id: me, client_secret: '${{SERVER_SECRET}}', token_url: '{url}'}}");
    let (conversation, server) = start_server(&oauth, |request, _| yes(request)).await;
    let (replies, failures) = conversation.say("/work").await;
    assert_eq!(replies, ["Broken."], "{failures}");
    assert!(
        failures.starts_with("T0502: remote") && failures.contains("307") && !failures.contains("s3cret"),
        "{failures}"
    );
    assert_eq!((server.calls.load(Ordering::SeqCst), private.count().await), (0, before));
}

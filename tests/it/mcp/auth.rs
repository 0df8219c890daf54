//! Row M19 of the fault matrix: who we are is proved to the server that was meant, once more where that may help, and to
//! nobody else, whatever answers, metadata and redirects say.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::response::Response;
use serde_json::{Value as Json, json};
use tokio::net::{TcpListener, TcpStream};

use super::{
    web::{Site, respond, site, yes},
    *,
};

const OAUTH: &str = "oauth: {client_id: me, client_secret: '${FAR_SECRET}'}";
const REFUSED: &str = "unavailable: It does not accept our credentials";

/// Where nobody should come: counts who does.
struct Trap {
    port: u16,
    came: Arc<AtomicUsize>,
}

impl Trap {
    async fn set() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, came) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        let count = came.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                drop(connection);
            }
        });
        Self { port, came }
    }

    /// An address that leads here and is none of the public net: a server on this machine may name its loopback, not this.
    fn inside(&self, path: &str) -> String {
        format!("http://0.0.0.0:{}{path}", self.port)
    }

    /// How many came; shows first that whoever goes there is counted.
    async fn came(&self) -> usize {
        let before = self.came.load(Ordering::SeqCst);
        TcpStream::connect(("0.0.0.0", self.port)).await.unwrap();
        while self.came.load(Ordering::SeqCst) == before {
            tokio::task::yield_now().await;
        }
        before
    }
}

/// Publishes where tokens for this site are given, as a server that stands alone does.
fn publish(site: &Site, resource: &str, authorization_server: &str, token_endpoint: &str) {
    let home = &site.home;
    let mut pages = site.pages.lock().unwrap();
    pages.insert("/meta".into(), json!({"resource": resource, "authorization_servers": [authorization_server]}));
    let server = json!({
        "issuer": home, "token_endpoint": token_endpoint, "authorization_endpoint": format!("{home}/authorize"),
        "response_types_supported": ["code"]
    });
    pages.insert("/.well-known/oauth-authorization-server".into(), server);
    *site.gate.lock().unwrap() = Some(format!("Bearer resource_metadata=\"{home}/meta\""));
}

fn publish_well(site: &Site) {
    publish(site, &format!("{}/mcp", site.home), &site.home, &format!("{}/token", site.home));
}

fn refusal() -> Response {
    respond(401, &[("www-authenticate", "Bearer error=\"invalid_token\"")], &json!({}))
}

#[tokio::test]
async fn m19_a_refused_token_is_replaced_once_and_the_call_goes_once_more() {
    let (talk, site) = site(OAUTH, |request, n| if n == 0 { refusal() } else { yes(request) }).await;
    publish_well(&site);
    talk.works("/work", "yes").await;
    assert_eq!(site.calls.load(Ordering::SeqCst), 2);
    let tokens = site.tokens.lock().unwrap();
    assert_eq!(tokens.len(), 2, "one that was refused, and one other");
    let resource = site.home.replace(':', "%3A").replace('/', "%2F") + "%2Fmcp";
    assert!(tokens.iter().all(|form| form.contains(&format!("resource={resource}"))), "for this server: {tokens:?}");
    assert_eq!(site.credentials.lock().unwrap().last().unwrap().as_deref(), Some("Bearer token-2"));
}

#[tokio::test]
async fn m19_a_server_that_refuses_every_token_is_an_honest_failure() {
    let (talk, site) = site(OAUTH, |_, _| refusal()).await;
    publish_well(&site);
    talk.breaks("/work", REFUSED).await;
    assert_eq!((site.calls.load(Ordering::SeqCst), site.tokens.lock().unwrap().len()), (2, 2));
    let (replies, told) = talk.say("/ask").await;
    let heard = format!("{replies:?} {told} {:?}", talk.clerk.told());
    assert!(heard.contains("does not accept our credentials"), "{heard}");
    assert!(!heard.contains("s3cret") && !heard.contains("token-"), "{heard}");
}

#[tokio::test]
async fn m19_a_fixed_key_that_is_refused_is_looked_for_nowhere_else() {
    let (talk, site) = site("headers: {Authorization: 'Bearer s3cret'}", |_, _| refusal()).await;
    talk.breaks("/work", REFUSED).await;
    let (_, told) = talk.say("/work").await;
    assert!(!told.contains("s3cret"), "{told}");
    assert_eq!(site.calls.load(Ordering::SeqCst), 2, "once a turn");
    assert!(site.asked.lock().unwrap().is_empty(), "{:?}", site.asked);
}

/// Each of the three places where an answer names an address names one inside.
#[tokio::test]
async fn m19_metadata_that_points_inside_is_not_followed() {
    for place in ["the challenge", "the metadata of the resource", "the metadata of the token server"] {
        let trap = Trap::set().await;
        let (talk, site) = site(OAUTH, |request, _| yes(request)).await;
        publish_well(&site);
        let resource = format!("{}/mcp", site.home);
        match place {
            "the challenge" => {
                site.pages.lock().unwrap().clear();
                *site.gate.lock().unwrap() = Some(format!("Bearer resource_metadata=\"{}\"", trap.inside("/meta")));
                // What the server itself offers at the usual place counts: it is who we mean.
                talk.works("/work", "yes").await;
            }
            _ => {
                let inside = (trap.inside(""), trap.inside("/token"));
                let named =
                    if place.ends_with("resource") { (&*inside.0, "unused") } else { (&*site.home, &*inside.1) };
                publish(&site, &resource, named.0, named.1);
                let (replies, told) = talk.say("/work").await;
                assert_eq!(replies, ["Broken."], "{place}: {told}");
                assert!(told.starts_with("T0502: far") && !told.contains("s3cret"), "{place}: {told}");
                assert!(site.tokens.lock().unwrap().is_empty(), "{place}");
            }
        }
        assert_eq!(trap.came().await, 0, "{place}");
    }
}

#[tokio::test]
async fn m19_metadata_of_another_resource_brings_no_token() {
    let (talk, site) = site(OAUTH, |request, _| yes(request)).await;
    publish(&site, "https://mcp.example.com/mcp", &site.home, &format!("{}/token", site.home));
    let (replies, told) = talk.say("/work").await;
    assert_eq!(replies, ["Broken."], "{told}");
    assert!(told.starts_with("T0502: far") && told.contains("mismatch"), "{told}");
    assert!(site.tokens.lock().unwrap().is_empty(), "nobody is asked for a token of another server");
}

/// A call, and the request for a token: neither follows, so nothing that proves who we are leaves.
#[tokio::test]
async fn m19_credentials_never_cross_hosts() {
    let trap = Trap::set().await;
    let there = trap.inside("/mcp");
    let elsewhere = move |_: &Json, _| respond(307, &[("location", &there)], &json!({}));
    let (talk, site) = site("headers: {Authorization: 'Bearer s3cret'}", elsewhere).await;
    talk.is_in_doubt("/work", "unavailable: The connection to it was lost").await;
    assert_eq!((site.calls.load(Ordering::SeqCst), trap.came().await), (1, 0));

    let there = format!("http://127.0.0.1:{}/token", trap.port);
    let giver = axum::Router::new().fallback(move || std::future::ready(axum::response::Redirect::temporary(&there)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/token", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, giver).await });
    let before = trap.came.load(Ordering::SeqCst);
    let oauth = format!("oauth: {{client_id: me, client_secret: '${{FAR_SECRET}}', token_url: '{url}'}}");
    let (talk, site) = self::site(&oauth, |request, _| yes(request)).await;
    let (replies, told) = talk.say("/work").await;
    assert_eq!(replies, ["Broken."], "{told}");
    assert!(told.starts_with("T0502: far") && told.contains("307") && !told.contains("s3cret"), "{told}");
    assert_eq!((site.calls.load(Ordering::SeqCst), trap.came().await), (0, before));
}

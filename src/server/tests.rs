#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use segue_engine::project::{CallerAuth, RestSettings};

use super::*;

fn settings(host: &str, api: bool, api_has_token: bool) -> ServerSettings {
    let settings = ServerSettings::new().host(host.parse::<IpAddr>().unwrap()).port(0);
    if api { settings.api(api_has_token) } else { settings }
}

#[tokio::test]
async fn an_open_api_is_refused_off_loopback_alone() {
    let refused = listen(&settings("0.0.0.0", true, false)).await.unwrap_err();
    assert!(matches!(refused, ServeError::Unguarded(_)) && refused.to_string().contains("--auth-token"), "{refused}");
    for allowed in [settings("127.0.0.1", true, false), settings("0.0.0.0", true, true)] {
        assert!(listen(&allowed).await.is_ok(), "{allowed:?}");
    }
}

#[tokio::test]
async fn a_taken_port_is_named_with_its_cure() {
    let first = listen(&settings("127.0.0.1", false, false)).await.unwrap();
    let again = ServerSettings::new().port(first.local_addr().unwrap().port());
    let error = listen(&again).await.unwrap_err();
    assert!(error.to_string().contains("--port") && error.code() == "V0102", "{error}");
}

#[test]
fn a_channel_that_asks_for_nothing_is_refused_off_loopback() {
    let rest = |token: Option<&str>| -> Vec<Arc<dyn Channel>> {
        let auth = CallerAuth { token: token.map(str::to_owned), jwt: None };
        vec![Arc::new(channels::Rest::new(&RestSettings { auth, ..RestSettings::default() }).unwrap())]
    };
    let (open, closed) = (rest(None), rest(Some("t")));
    let (far, near) = ("0.0.0.0".parse().unwrap(), "127.0.0.1".parse().unwrap());
    let refused = guarded(&open, far).unwrap_err();
    assert!(refused.code() == "V0105" && refused.to_string().contains("--insecure"), "{refused}");
    assert!(guarded(&open, near).is_ok() && guarded(&closed, far).is_ok());
}

#[tokio::test]
async fn an_agent_for_everybody_is_refused_off_loopback() {
    let open = |host: &str| settings(host, false, false).open_agent(true);
    let refused = listen(&open("0.0.0.0")).await.unwrap_err();
    assert!(refused.to_string().contains("auth") && refused.code() == "V0103", "{refused}");
    assert!(listen(&open("127.0.0.1")).await.is_ok());
}

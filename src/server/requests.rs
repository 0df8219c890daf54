//! The checks of `Origin` and `Host`, before a request's body is read, and the CORS headers of the responses.
//!
//! A browser lets any web page send requests to any address, including a server on the developer's machine; `Origin` names the page.
//! A page can also make its own host name resolve to that address (DNS rebinding); `Host` has that name then. Programs send no `Origin`,
//! and are served.
//!
//! A page on another origin can read a response only if a CORS header names its origin. Exactly the origins that credentials.yml lists
//! for the path get it: pages on this machine may send requests to a server on loopback, and read no responses unless they are listed.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode,
        header::{HOST, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE},
        uri::Authority,
    },
    middleware::{self, Next},
};
use segue_engine::project::Project;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use crate::channels::{
    Channel, Routes, ServerAddress, TURN_ERROR,
    origin_policy::{OriginPolicy, authority_of, host_matches, is_loopback_host, origin_matches},
    problem as error_response,
};

/// The error code of a refused request.
const CODE: &str = "V0106";
/// The origins of pages on this machine.
const LOOPBACK_ORIGINS: [&str; 3] = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"];
/// Characters of a header value that a response quotes.
const QUOTED_CHARS: usize = 200;
/// The methods that pages may use.
const METHODS: [Method; 3] = [Method::GET, Method::POST, Method::DELETE];
/// For how long a browser may reuse the answer to its question about a request.
const PREFLIGHT_AGE: Duration = Duration::from_secs(600);

/// The origins and hosts that are allowed.
#[derive(Debug)]
struct RequestCheck {
    /// The path prefix of each channel, and its settings.
    routes: Vec<(String, OriginPolicy)>,
    /// Host names that the project's files contain: `allowed_hosts` of all channels, and the public URLs for A2A.
    host_names: Vec<String>,
}

/// Adds the checks to all routes. A path that belongs to none of these channels, nor to an entry of credentials.yml, allows the origins
/// of all channels.
pub(super) fn with_checks(router: Router, project: &Project, channels: &[Arc<dyn Channel>]) -> Router {
    let check = Arc::new(RequestCheck::new(project, channels));
    router.layer(middleware::from_fn_with_state(check, check_request))
}

/// Adds the CORS headers to the responses for listed pages, and answers the questions (`OPTIONS`) that a browser asks before the requests
/// of a page.
pub(super) fn with_cors(router: Router, project: &Project, channels: &[Arc<dyn Channel>]) -> Router {
    let check = RequestCheck::new(project, channels);
    let is_listed = move |origin: &HeaderValue, head: &axum::http::request::Parts| {
        origin.to_str().is_ok_and(|origin| check.is_listed(head.uri.path(), origin))
    };
    let readable =
        [HeaderName::from_static(TURN_ERROR), HeaderName::from_static("mcp-session-id"), RETRY_AFTER, WWW_AUTHENTICATE];
    router.layer(
        CorsLayer::new()
            .allow_origin(AllowOrigin::predicate(is_listed))
            .allow_methods(METHODS)
            // A listed page may send any header; cookies are never allowed.
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers(readable)
            .max_age(PREFLIGHT_AGE),
    )
}

/// The path prefixes of a channel: its routes without wildcards.
fn path_prefixes(channel: &dyn Channel) -> Vec<String> {
    match channel.routes() {
        Routes::Webhooks => vec![format!("/webhooks/{}", channel.name())],
        Routes::Paths(paths) => {
            paths.into_iter().map(|path| path.split("/{").next().unwrap_or_default().to_owned()).collect()
        }
        Routes::None => Vec::new(),
    }
}

async fn check_request(State(check): State<Arc<RequestCheck>>, mut request: Request, next: Next) -> Response<Body> {
    let is_local = request.extensions().get::<ServerAddress>().map(|ServerAddress(address)| address.ip().is_loopback());
    let problem = check.problem(request.uri().path(), request.uri().authority(), request.headers(), is_local);
    let Some(problem) = problem else {
        // Who reads the header later, reads the host that was checked.
        let host = request.uri().authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
        if let Some(host) = host {
            request.headers_mut().insert(HOST, host);
        }
        return next.run(request).await;
    };
    tracing::info!(code = CODE, path = request.uri().path(), "a request was refused: {problem}");
    error_response(StatusCode::FORBIDDEN, &format!("{problem} [{CODE}]"))
}

impl RequestCheck {
    fn new(project: &Project, channels: &[Arc<dyn Channel>]) -> Self {
        // Wrong settings allow no page; opening the channel reports them. A channel without an entry allows pages on this machine only.
        let pages = |name: &str| {
            let entry =
                project.credentials.get(name).map(|entry| OriginPolicy::from_channel(entry).unwrap_or_default());
            entry.unwrap_or_default()
        };
        let open = channels
            .iter()
            .flat_map(|channel| path_prefixes(&**channel).into_iter().map(move |prefix| (prefix, channel.name())));
        let listed = project.credentials.keys().map(|name| (format!("/webhooks/{name}"), &**name));
        let routes: Vec<_> = open.chain(listed).map(|(prefix, name)| (prefix, pages(name))).collect();
        let a2a_url = project.endpoints.a2a_server.as_ref().and_then(|server| server.url.as_deref());
        let push_urls =
            project.agents.values().filter_map(|agent| agent.remote.as_ref()?.push_notification_url.as_deref());
        let listed = routes.iter().flat_map(|(_, pages)| pages.hosts.iter().cloned());
        let host_names = listed.chain(a2a_url.into_iter().chain(push_urls).filter_map(authority_of)).collect();
        Self { routes, host_names }
    }

    /// The settings of the channel that a path belongs to.
    fn pages(&self, path: &str) -> Option<&OriginPolicy> {
        let is_below =
            |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        self.routes.iter().find(|(prefix, _)| is_below(prefix)).map(|(_, pages)| pages)
    }

    /// Whether the settings of the channel that a path belongs to list this origin. A path that belongs to no channel: those of any channel.
    fn is_listed(&self, path: &str, origin: &str) -> bool {
        let listed = |pages: &OriginPolicy| pages.origins.iter().any(|one| origin_matches(one, origin));
        match self.pages(path) {
            Some(pages) => listed(pages),
            None => self.routes.iter().any(|(_, pages)| listed(pages)),
        }
    }

    /// The reason to refuse a request; `None` if it is allowed. `is_local`: whether the server listens on loopback. It is `None` in a server
    /// that embeds the routes; then a request is local if its `Host` is a name of this machine.
    fn problem(
        &self,
        path: &str,
        authority: Option<&Authority>,
        headers: &HeaderMap,
        is_local: Option<bool>,
    ) -> Option<String> {
        let pages = self.pages(path);
        let host = match single_value(headers, &HOST) {
            // The host of a target in absolute form replaces the header (RFC 9112, section 3.2.2).
            Ok(host) => authority.map(Authority::as_str).or(host),
            Err(problem) => return Some(problem),
        };
        let is_local = is_local.unwrap_or_else(|| host.is_some_and(is_loopback_host));
        if let Some(host) = host {
            let is_allowed = if is_local {
                is_loopback_host(host) || self.host_names.iter().any(|name| host_matches(name, host))
            } else {
                pages.is_none_or(|pages| {
                    pages.hosts.is_empty() || pages.hosts.iter().any(|name| host_matches(name, host))
                })
            };
            if !is_allowed {
                let host: String = host.chars().take(QUOTED_CHARS).collect();
                return Some(format!(
                    "the host `{host}` is not allowed; list it under `allowed_hosts` of the channel in credentials.yml"
                ));
            }
        }
        let origin = match single_value(headers, &ORIGIN) {
            Ok(origin) => origin?,
            Err(problem) => return Some(problem),
        };
        let is_allowed =
            self.is_listed(path, origin) || is_local && LOOPBACK_ORIGINS.iter().any(|one| origin_matches(one, origin));
        (!is_allowed).then(|| {
            let origin: String = origin.chars().take(QUOTED_CHARS).collect();
            format!(
                "the origin `{origin}` is not allowed; list it under `allowed_origins` of the channel in credentials.yml"
            )
        })
    }
}

/// The value of a header that may occur only once: if it occurs twice, a proxy might use one value and this server the other.
///
/// # Errors
/// The header occurs twice, or its value is not visible ASCII.
fn single_value<'a>(headers: &'a HeaderMap, name: &axum::http::HeaderName) -> Result<Option<&'a str>, String> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (None, _) => Ok(None),
        (Some(one), None) => one.to_str().map(Some).map_err(|_| format!("the header `{name}` cannot be read")),
        _ => Err(format!("the header `{name}` occurs more than once")),
    }
}

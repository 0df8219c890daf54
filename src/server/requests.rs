//! The check of every request before anything of it is read: which web page sends it (`Origin`), and under which name the server
//! is called (`Host`).
//!
//! A browser lets any page send requests to any address, a program on the developer's machine included, and a page of others may
//! point a name of its own at that address. Programs send no `Origin` and are served.

use std::{net::IpAddr, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{
        HeaderMap, Response, StatusCode,
        header::{HOST, ORIGIN},
        uri::Authority,
    },
    middleware::{self, Next},
};
use segue_engine::project::Project;

use super::bridge::refusal;
use crate::{
    channels::pages::{Pages, host_of, is_host, is_origin, is_this_machine},
    failpoint,
};

/// The code of a request that is refused.
const CODE: &str = "V0106";
/// Pages of this machine.
const HERE: [&str; 3] = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"];
/// Characters of a header that an answer repeats.
const SHOWN: usize = 200;

/// What is allowed, for a server with one address.
#[derive(Debug)]
struct RequestCheck {
    /// Whether only this machine reaches the server.
    local: bool,
    /// The beginning of the paths of each channel, and its settings.
    routes: Vec<(String, Pages)>,
    /// Names under which the project says that it is called.
    names: Vec<String>,
}

/// The routes, with the check in front of each.
pub(super) fn checked(router: Router, project: &Project, address: IpAddr) -> Router {
    let check = Arc::new(RequestCheck::new(project, address.is_loopback()));
    router.layer(middleware::from_fn_with_state(check, answer))
}

async fn answer(State(check): State<Arc<RequestCheck>>, request: Request, next: Next) -> Response<Body> {
    let problem = check.problem(request.uri().path(), request.uri().authority(), request.headers());
    let problem = problem.filter(|_| !failpoint::is_armed("defect:any-origin"));
    let Some(problem) = problem else { return next.run(request).await };
    tracing::info!(code = CODE, path = request.uri().path(), "a request was refused: {problem}");
    refusal(StatusCode::FORBIDDEN, &format!("{problem} [{CODE}]"))
}

impl RequestCheck {
    fn new(project: &Project, local: bool) -> Self {
        // Settings that cannot be read admit nobody; opening the channel says what is wrong with them.
        let routes = project.credentials.iter().map(|(name, channel)| {
            let path = if name == "mcp" { "/mcp".to_owned() } else { format!("/webhooks/{name}") };
            (path, Pages::of(channel).unwrap_or_default())
        });
        // What is switched on elsewhere admits no pages but those of this machine.
        let beside = ["/mcp", "/a2a"].map(|path| (path.to_owned(), Pages::default()));
        let routes: Vec<(String, Pages)> = routes.chain(beside).collect();
        let offered = project.endpoints.a2a_server.as_ref().and_then(|offer| offer.url.as_deref());
        let reports =
            project.agents.values().filter_map(|agent| agent.remote.as_ref()?.push_notification_url.as_deref());
        let listed = routes.iter().flat_map(|(_, pages)| pages.hosts.iter().cloned());
        let names = listed.chain(offered.into_iter().chain(reports).filter_map(host_of)).collect();
        Self { local, routes, names }
    }

    /// The settings of the channel that a path belongs to.
    fn pages(&self, path: &str) -> Option<&Pages> {
        let is_below =
            |base: &str| path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        self.routes.iter().find(|(base, _)| is_below(base)).map(|(_, pages)| pages)
    }

    /// Why a request is refused, if it is.
    fn problem(&self, path: &str, authority: Option<&Authority>, headers: &HeaderMap) -> Option<String> {
        let pages = self.pages(path);
        let host = match only(headers, &HOST) {
            Ok(host) => host.or(authority.map(Authority::as_str)),
            Err(problem) => return Some(problem),
        };
        if let Some(host) = host {
            let is_known = if self.local {
                is_this_machine(host) || self.names.iter().any(|name| is_host(name, host))
            } else {
                pages.is_none_or(|pages| pages.hosts.is_empty() || pages.hosts.iter().any(|name| is_host(name, host)))
            };
            if !is_known {
                let host: String = host.chars().take(SHOWN).collect();
                return Some(format!(
                    "this server is not called `{host}`; list the name under `allowed_hosts` of the channel in credentials.yml"
                ));
            }
        }
        let origin = match only(headers, &ORIGIN) {
            Ok(origin) => origin?,
            Err(problem) => return Some(problem),
        };
        let mut listed = match pages {
            Some(pages) => pages.origins.iter().collect::<Vec<_>>(),
            // Of no channel: what any of them admits.
            None => self.routes.iter().flat_map(|(_, pages)| &pages.origins).collect(),
        }
        .into_iter();
        let is_known =
            listed.any(|one| is_origin(one, origin)) || self.local && HERE.iter().any(|one| is_origin(one, origin));
        (!is_known).then(|| {
            let origin: String = origin.chars().take(SHOWN).collect();
            format!(
                "pages of `{origin}` may not call this server; list them under `allowed_origins` of the channel in credentials.yml"
            )
        })
    }
}

/// The value of a header that may come once at most. Two could be read as either.
fn only<'a>(headers: &'a HeaderMap, name: &axum::http::HeaderName) -> Result<Option<&'a str>, String> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (None, _) => Ok(None),
        (Some(one), None) => one.to_str().map(Some).map_err(|_| format!("the header `{name}` cannot be read")),
        _ => Err(format!("the header `{name}` comes twice")),
    }
}

//! The check of every request before anything of it is read: which web page sends it (`Origin`), and under which name the server
//! is called (`Host`).
//!
//! A browser lets any page send requests to any address, a program on the developer's machine included, and a page of others may
//! point a name of its own at that address. Programs send no `Origin` and are served.

use std::sync::Arc;

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

use crate::{
    channels::{
        Channel, Routes, ServerAddress,
        origin_policy::{OriginPolicy, authority_of, host_matches, is_loopback_host, origin_matches},
        problem,
    },
    failpoint,
};

/// The code of a request that is refused.
const CODE: &str = "V0106";
/// Pages of this machine.
const HERE: [&str; 3] = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"];
/// Characters of a header that an answer repeats.
const SHOWN: usize = 200;

/// What is allowed.
#[derive(Debug)]
struct RequestCheck {
    /// The beginning of the paths of each channel, and its settings.
    routes: Vec<(String, OriginPolicy)>,
    /// Names under which the project says that it is called.
    names: Vec<String>,
}

/// The routes, with the check in front of each. Paths of no channel among these admit what any channel admits.
pub(super) fn checked(router: Router, project: &Project, channels: &[Arc<dyn Channel>]) -> Router {
    let check = Arc::new(RequestCheck::new(project, channels));
    router.layer(middleware::from_fn_with_state(check, answer))
}

/// The paths of a channel, without what stands for everything below.
pub(super) fn bases(channel: &dyn Channel) -> Vec<String> {
    match channel.routes() {
        Routes::Webhooks => vec![format!("/webhooks/{}", channel.name())],
        Routes::Paths(paths) => {
            paths.into_iter().map(|path| path.split("/{").next().unwrap_or_default().to_owned()).collect()
        }
        Routes::None => Vec::new(),
    }
}

async fn answer(State(check): State<Arc<RequestCheck>>, request: Request, next: Next) -> Response<Body> {
    let is_local = request.extensions().get::<ServerAddress>().map(|ServerAddress(address)| address.ip().is_loopback());
    let wrong = check.problem(request.uri().path(), request.uri().authority(), request.headers(), is_local);
    let wrong = wrong.filter(|_| !failpoint::is_armed("defect:any-origin"));
    let Some(wrong) = wrong else { return next.run(request).await };
    tracing::info!(code = CODE, path = request.uri().path(), "a request was refused: {wrong}");
    problem(StatusCode::FORBIDDEN, &format!("{wrong} [{CODE}]"))
}

impl RequestCheck {
    fn new(project: &Project, channels: &[Arc<dyn Channel>]) -> Self {
        // Settings that cannot be read admit nobody; opening the channel says what is wrong with them. A channel without an entry
        // admits no pages but those of this machine.
        let pages = |name: &str| {
            let entry =
                project.credentials.get(name).map(|entry| OriginPolicy::from_channel(entry).unwrap_or_default());
            entry.unwrap_or_default()
        };
        let open =
            channels.iter().flat_map(|channel| bases(&**channel).into_iter().map(move |base| (base, channel.name())));
        let listed = project.credentials.keys().map(|name| (format!("/webhooks/{name}"), &**name));
        let routes: Vec<_> = open.chain(listed).map(|(base, name)| (base, pages(name))).collect();
        let offered = project.endpoints.a2a_server.as_ref().and_then(|offer| offer.url.as_deref());
        let reports =
            project.agents.values().filter_map(|agent| agent.remote.as_ref()?.push_notification_url.as_deref());
        let listed = routes.iter().flat_map(|(_, pages)| pages.hosts.iter().cloned());
        let names = listed.chain(offered.into_iter().chain(reports).filter_map(authority_of)).collect();
        Self { routes, names }
    }

    /// The settings of the channel that a path belongs to.
    fn pages(&self, path: &str) -> Option<&OriginPolicy> {
        let is_below =
            |base: &str| path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        self.routes.iter().find(|(base, _)| is_below(base)).map(|(_, pages)| pages)
    }

    /// Why a request is refused, if it is. `is_local`: whether only this machine reaches the server; in a server of others, which does
    /// not say, a request that calls it by a name of this machine comes from this machine.
    fn problem(
        &self,
        path: &str,
        authority: Option<&Authority>,
        headers: &HeaderMap,
        is_local: Option<bool>,
    ) -> Option<String> {
        let pages = self.pages(path);
        let host = match only(headers, &HOST) {
            Ok(host) => host.or(authority.map(Authority::as_str)),
            Err(problem) => return Some(problem),
        };
        let is_local = is_local.unwrap_or_else(|| host.is_some_and(is_loopback_host));
        if let Some(host) = host {
            let is_known = if is_local {
                is_loopback_host(host) || self.names.iter().any(|name| host_matches(name, host))
            } else {
                pages.is_none_or(|pages| {
                    pages.hosts.is_empty() || pages.hosts.iter().any(|name| host_matches(name, host))
                })
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
        let is_known = listed.any(|one| origin_matches(one, origin))
            || is_local && HERE.iter().any(|one| origin_matches(one, origin));
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

//! `segue mcp`: the assistant as an MCP server (`mcp_stdio`), logins at the MCP servers of a project that want one, and pins (`pins`).

use anyhow::{Context, anyhow, bail};
use axum::{
    Router,
    http::{StatusCode, Uri},
    response::{Html, IntoResponse},
    routing::get,
};
use segue::{
    clock::SystemClock,
    context::CallContext,
    environment,
    http::HttpClients,
    limits,
    project::{HttpDef, McpServerDef, Project},
    tools::mcp::{LOGINS, Login, McpEnvironment},
};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;

use super::{CommandResult, EXIT_FINDINGS, EXIT_USAGE, mcp_pins, mcp_stdio, output, project_args::ProjectArgs};

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    stdio: mcp_stdio::Args,
}

#[derive(clap::Subcommand)]
enum What {
    /// Log in at a server that wants the consent of a person; its page is opened by hand, anywhere on this machine
    Login(Server),
    /// Forget the login at a server
    Logout(Server),
    /// Show which tools of pinned servers are not what they were; with --write, accept them
    Pins(mcp_pins::Args),
}

#[derive(clap::Args)]
struct Server {
    /// The server, by its name in endpoints.yml
    server: String,
    #[command(flatten)]
    place: ProjectArgs,
}

/// The path to which a consent leads back.
const BACK: &str = "/callback";

pub(super) async fn mcp(args: Args) -> CommandResult {
    match args.what {
        Some(What::Login(server)) => Box::pin(login(server)).await,
        Some(What::Logout(server)) => logout(server).await,
        Some(What::Pins(args)) => Box::pin(mcp_pins::pins(args)).await,
        None => Box::pin(mcp_stdio::serve(args.stdio)).await,
    }
}

async fn login(asked: Server) -> CommandResult {
    let Some(opened) = asked.place.open()? else { return Ok(EXIT_FINDINGS) };
    let Some(def) = found(&opened.project, &asked.server) else { return Ok(EXIT_USAGE) };
    let around = around(&asked.place, &opened.project);
    let port = Login::port(def).unwrap_or(0);
    let listener = TcpListener::bind(("127.0.0.1", port))
        .await
        .with_context(|| format!("port {port} is in use; free it, or set another `oauth.redirect_port`"))?;
    let here = format!("http://{}", listener.local_addr()?);
    let cx = CallContext::new(around.clock.clone(), limits::MCP_CONSENT);
    let failed = |reason: String| anyhow!("no login at {}: {reason}", asked.server);
    let back = format!("{here}{BACK}");
    let login = Box::pin(Login::begin(def, &back, &around));
    let login = cx.with_timeout(limits::MCP_INITIALISE * 3).wait(login).await?.map_err(failed)?;
    output::status("open this address in a browser on this machine, and give your consent:");
    output::println(login.authorization_url())?;
    let (send, mut consents) = mpsc::channel(1);
    let stop = CancellationToken::new();
    let serving = axum::serve(listener, callbacks(send)).with_graceful_shutdown(stop.clone().cancelled_owned());
    let serving = tokio::spawn(serving.into_future());
    let Consent { target, page } = consent(&mut consents, &cx).await?;
    let ended = cx.wait(Box::pin(login.finish(&format!("{here}{target}")))).await?;
    let words = if ended.is_ok() { "You are logged in. This page can be closed." } else { "The login failed." };
    // The user may have closed the page.
    let _ = page.send(words);
    stop.cancel();
    let _ = cx.with_timeout(limits::MCP_PING).wait(serving).await;
    let scopes = ended.map_err(failed)?;
    let rights = if scopes.is_empty() { String::new() } else { format!(" ({})", scopes.join(" ")) };
    output::status(&format!("logged in at {}{rights}", asked.server));
    Ok(0)
}

async fn logout(asked: Server) -> CommandResult {
    let Some(opened) = asked.place.open()? else { return Ok(EXIT_FINDINGS) };
    let Some(def) = found(&opened.project, &asked.server) else { return Ok(EXIT_USAGE) };
    let there = Login::delete(def, &around(&asked.place, &opened.project))
        .await
        .map_err(|reason| anyhow!("{}: {reason}", asked.server))?;
    let words = if there { "the login is forgotten" } else { "there was no login" };
    output::status(&format!("{}: {words}", asked.server));
    Ok(0)
}

/// The entry of a server; says which there are when there is none of this name.
pub(super) fn found<'a>(project: &'a Project, name: &str) -> Option<&'a McpServerDef> {
    let servers = &project.endpoints.mcp_servers;
    let def = servers.iter().find(|(known, _)| known.as_str() == name).map(|(_, def)| def);
    if def.is_none() {
        let names: Vec<_> = servers.keys().map(|name| name.as_str()).collect();
        output::status(&format!("endpoints.yml has no MCP server `{name}`; it has: {}", names.join(", ")));
    }
    def
}

/// What a server of the project is reached with.
pub(super) fn around(place: &ProjectArgs, project: &Project) -> McpEnvironment {
    let HttpDef { proxy, no_proxy } = &project.endpoints.http;
    McpEnvironment {
        clock: std::sync::Arc::new(SystemClock),
        http: HttpClients::with_proxy(proxy.as_deref(), no_proxy.as_deref()),
        program: environment::program(),
        directory: Some(place.project.clone()),
        variables: environment::all().into(),
        logins: Some(place.project.join(LOGINS)),
    }
}

/// A browser that came back with an answer, and waits for the words of its page.
struct Consent {
    /// Path and query of its request.
    target: String,
    page: oneshot::Sender<&'static str>,
}

/// The way back of browsers: one page, which shows what became of the login.
fn callbacks(consents: mpsc::Sender<Consent>) -> Router {
    let back = async move |uri: Uri| {
        if uri.query().is_none() {
            return StatusCode::NOT_FOUND.into_response();
        }
        let (page, words) = oneshot::channel();
        let asked = consents.send(Consent { target: uri.to_string(), page }).await;
        let words = if asked.is_ok() { words.await.ok() } else { None };
        let words = words.unwrap_or("This login is over.");
        Html(format!("<!doctype html><meta charset=\"utf-8\"><title>Segue</title><p>{words}</p>\n")).into_response()
    };
    Router::new().route(BACK, get(back))
}

/// Waits for a browser to come back.
async fn consent(consents: &mut mpsc::Receiver<Consent>, cx: &CallContext) -> anyhow::Result<Consent> {
    match cx.wait(consents.recv()).await {
        Ok(consent) => consent.context("the server for the way back has ended"),
        Err(_) => bail!("nobody gave consent in {} minutes", limits::MCP_CONSENT.as_secs() / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn consent_is_waited_for_only_so_long() {
        let (_open, mut consents) = mpsc::channel(1);
        let cx = CallContext::new(std::sync::Arc::new(SystemClock), limits::MCP_CONSENT);
        let error = consent(&mut consents, &cx).await.err().unwrap();
        assert_eq!(error.to_string(), "nobody gave consent in 5 minutes");
    }

    #[tokio::test]
    async fn the_browser_that_comes_back_is_told_from_others() {
        let (send, mut consents) = mpsc::channel(1);
        let router = callbacks(send);
        let ask = |path: &str| {
            let request = axum::http::Request::get(path).body(axum::body::Body::empty()).unwrap();
            tower::ServiceExt::oneshot(router.clone(), request)
        };
        for other in ["/favicon.ico", "/callback"] {
            assert_eq!(ask(other).await.unwrap().status(), StatusCode::NOT_FOUND, "{other}");
        }
        let answered = async {
            let consent = consents.recv().await.unwrap();
            consent.page.send("Fine.").unwrap();
            consent.target
        };
        let (page, target) = tokio::join!(ask("/callback?code=a&state=b"), answered);
        let page = axum::body::to_bytes(page.unwrap().into_body(), 1024).await.unwrap();
        assert!(String::from_utf8_lossy(&page).contains("<p>Fine.</p>"), "{page:?}");
        assert_eq!(target, "/callback?code=a&state=b");
    }
}

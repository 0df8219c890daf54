//! `segue mcp`: serves the assistant over MCP (`mcp_stdio`), manages OAuth logins at the MCP servers of a project, and compares pinned
//! tools (`mcp_pins`).
//!
//! A login is an OAuth authorization code flow with a loopback redirect
//! ([RFC 8252, section 7.3](https://www.rfc-editor.org/rfc/rfc8252#section-7.3)).

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
    command: Option<McpCommand>,
    #[command(flatten)]
    stdio: mcp_stdio::Args,
}

#[derive(clap::Subcommand)]
enum McpCommand {
    /// Log in to a server that uses OAuth; open the printed URL in a browser on this machine
    Login(Server),
    /// Delete the stored login of a server
    Logout(Server),
    /// Show which tools of pinned servers have changed; with --write, accept them
    Pins(mcp_pins::Args),
}

#[derive(clap::Args)]
struct Server {
    /// The server, by its name in endpoints.yml
    server: String,
    #[command(flatten)]
    project: ProjectArgs,
}

/// The path of the redirect URI.
const CALLBACK_PATH: &str = "/callback";

pub(super) async fn mcp(args: Args) -> CommandResult {
    match args.command {
        Some(McpCommand::Login(server)) => Box::pin(login(server)).await,
        Some(McpCommand::Logout(server)) => logout(server).await,
        Some(McpCommand::Pins(args)) => Box::pin(mcp_pins::pins(args)).await,
        None => Box::pin(mcp_stdio::serve(args.stdio)).await,
    }
}

async fn login(args: Server) -> CommandResult {
    let Some(opened) = args.project.open()? else { return Ok(EXIT_FINDINGS) };
    let Some(def) = find_server(&opened.project, &args.server) else { return Ok(EXIT_USAGE) };
    let environment = environment_of(&args.project, &opened.project);
    let port = Login::port(def).unwrap_or(0);
    let listener = TcpListener::bind(("127.0.0.1", port))
        .await
        .with_context(|| format!("port {port} is in use; free it, or set another `oauth.redirect_port`"))?;
    let origin = format!("http://{}", listener.local_addr()?);
    let cx = CallContext::new(environment.clock.clone(), limits::MCP_CONSENT);
    let failed = |reason: String| anyhow!("the login at {} failed: {reason}", args.server);
    let redirect_uri = format!("{origin}{CALLBACK_PATH}");
    let login = Box::pin(Login::begin(def, &redirect_uri, &environment));
    let login = cx.with_timeout(limits::MCP_INITIALISE * 3).wait(login).await?.map_err(failed)?;
    output::status("open this address in a browser on this machine and grant access:");
    output::println(login.authorization_url())?;
    let (callback_sender, mut callbacks) = mpsc::channel(1);
    let stop = CancellationToken::new();
    let server =
        axum::serve(listener, callback_router(callback_sender)).with_graceful_shutdown(stop.clone().cancelled_owned());
    let server = tokio::spawn(server.into_future());
    let Callback { target, page_text } = wait_for_callback(&mut callbacks, &cx).await?;
    let result = cx.wait(Box::pin(login.finish(&format!("{origin}{target}")))).await?;
    let text = if result.is_ok() { "You are logged in. You can close this page." } else { "The login failed." };
    // The user may have closed the page.
    let _ = page_text.send(text);
    stop.cancel();
    let _ = cx.with_timeout(limits::MCP_PING).wait(server).await;
    let scopes = result.map_err(failed)?;
    let scopes = if scopes.is_empty() { String::new() } else { format!(" ({})", scopes.join(" ")) };
    output::status(&format!("logged in at {}{scopes}", args.server));
    Ok(0)
}

async fn logout(args: Server) -> CommandResult {
    let Some(opened) = args.project.open()? else { return Ok(EXIT_FINDINGS) };
    let Some(def) = find_server(&opened.project, &args.server) else { return Ok(EXIT_USAGE) };
    let is_deleted = Login::delete(def, &environment_of(&args.project, &opened.project))
        .await
        .map_err(|reason| anyhow!("{}: {reason}", args.server))?;
    let message = if is_deleted { "the login is deleted" } else { "there was no login" };
    output::status(&format!("{}: {message}", args.server));
    Ok(0)
}

/// The entry of a server in `endpoints.yml`. If there is none with this name, prints the names of the servers.
pub(super) fn find_server<'a>(project: &'a Project, name: &str) -> Option<&'a McpServerDef> {
    let servers = &project.endpoints.mcp_servers;
    let def = servers.iter().find(|(server, _)| server.as_str() == name).map(|(_, def)| def);
    if def.is_none() {
        let names: Vec<_> = servers.keys().map(|name| name.as_str()).collect();
        output::status(&format!("endpoints.yml has no MCP server `{name}`; it has: {}", names.join(", ")));
    }
    def
}

/// The dependencies of a client of the project's MCP servers.
pub(super) fn environment_of(args: &ProjectArgs, project: &Project) -> McpEnvironment {
    let HttpDef { proxy, no_proxy } = &project.endpoints.http;
    McpEnvironment {
        clock: std::sync::Arc::new(SystemClock),
        http: HttpClients::with_proxy(proxy.as_deref(), no_proxy.as_deref()),
        program: environment::program(),
        directory: Some(args.folder.clone()),
        variables: environment::all().into(),
        logins: Some(args.folder.join(LOGINS)),
    }
}

/// A request of the browser to the redirect URI. The browser waits for the text of the page.
struct Callback {
    /// The path and query of the request.
    target: String,
    page_text: oneshot::Sender<&'static str>,
}

/// The routes of the redirect URI: one page, which shows the result of the login.
fn callback_router(callbacks: mpsc::Sender<Callback>) -> Router {
    let handler = async move |uri: Uri| {
        if uri.query().is_none() {
            return StatusCode::NOT_FOUND.into_response();
        }
        let (page_text, text) = oneshot::channel();
        let sent = callbacks.send(Callback { target: uri.to_string(), page_text }).await;
        let text = if sent.is_ok() { text.await.ok() } else { None };
        let text = text.unwrap_or("This login has ended.");
        Html(format!("<!doctype html><meta charset=\"utf-8\"><title>Segue</title><p>{text}</p>\n")).into_response()
    };
    Router::new().route(CALLBACK_PATH, get(handler))
}

/// Waits for the redirect of the browser.
async fn wait_for_callback(callbacks: &mut mpsc::Receiver<Callback>, cx: &CallContext) -> anyhow::Result<Callback> {
    match cx.wait(callbacks.recv()).await {
        Ok(callback) => callback.context("the server of the redirect URI has stopped"),
        Err(_) => bail!("access was not granted within {} minutes", limits::MCP_CONSENT.as_secs() / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_login_without_a_callback_times_out() {
        let (_sender, mut callbacks) = mpsc::channel(1);
        let cx = CallContext::new(std::sync::Arc::new(SystemClock), limits::MCP_CONSENT);
        let error = wait_for_callback(&mut callbacks, &cx).await.err().unwrap();
        assert_eq!(error.to_string(), "access was not granted within 5 minutes");
    }

    #[tokio::test]
    async fn only_the_callback_with_a_query_is_accepted() {
        let (sender, mut callbacks) = mpsc::channel(1);
        let router = callback_router(sender);
        let get = |path: &str| {
            let request = axum::http::Request::get(path).body(axum::body::Body::empty()).unwrap();
            tower::ServiceExt::oneshot(router.clone(), request)
        };
        for other in ["/favicon.ico", "/callback"] {
            assert_eq!(get(other).await.unwrap().status(), StatusCode::NOT_FOUND, "{other}");
        }
        let accepted = async {
            let callback = callbacks.recv().await.unwrap();
            callback.page_text.send("Fine.").unwrap();
            callback.target
        };
        let (page, target) = tokio::join!(get("/callback?code=a&state=b"), accepted);
        let page = axum::body::to_bytes(page.unwrap().into_body(), 1024).await.unwrap();
        assert!(String::from_utf8_lossy(&page).contains("<p>Fine.</p>"), "{page:?}");
        assert_eq!(target, "/callback?code=a&state=b");
    }
}

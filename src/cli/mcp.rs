//! `segue mcp`: the assistant as an MCP server (`offer`), logins at the MCP servers of a project that want one, and pins (`pins`).

use anyhow::{Context, anyhow, bail};
use segue::{
    clock::SystemClock,
    cx::Cx,
    environment,
    http::Outbound,
    limits,
    project::McpServerDef,
    tools::mcp::{LOGINS, Login, Surroundings},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::{Done, FINDINGS, USAGE, offer, out, pins, place::Place};

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    offer: offer::Args,
}

#[derive(clap::Subcommand)]
enum What {
    /// Log in at a server that wants the consent of a person; its page is opened by hand, anywhere on this machine
    Login(Server),
    /// Forget the login at a server
    Logout(Server),
    /// Show which tools of pinned servers are not what they were; with --write, accept them
    Pins(pins::Args),
}

#[derive(clap::Args)]
struct Server {
    /// The server, by its name in endpoints.yml
    server: String,
    #[command(flatten)]
    place: Place,
}

/// The path to which a consent leads back.
const BACK: &str = "/callback";

pub(super) async fn mcp(args: Args) -> Done {
    match args.what {
        Some(What::Login(server)) => login(server).await,
        Some(What::Logout(server)) => logout(server).await,
        Some(What::Pins(args)) => Box::pin(pins::pins(args)).await,
        None => Box::pin(offer::offer(args.offer)).await,
    }
}

async fn login(asked: Server) -> Done {
    let Some(opened) = asked.place.open()? else { return Ok(FINDINGS) };
    let Some(def) = found(&opened.project, &asked.server) else { return Ok(USAGE) };
    let around = around(&asked.place);
    let port = Login::port(def).unwrap_or(0);
    let listener = TcpListener::bind(("127.0.0.1", port)).await.with_context(|| {
        format!("port {port} of this machine is taken; end what holds it, or set another `oauth.redirect_port`")
    })?;
    let here = format!("http://{}", listener.local_addr()?);
    let cx = Cx::new(around.clock.clone(), limits::MCP_CONSENT);
    let failed = |reason: String| anyhow!("no login at {}: {reason}", asked.server);
    let back = format!("{here}{BACK}");
    let login = Login::begin(def, &back, &around);
    let login = cx.within(limits::MCP_INITIALISE * 3).wait(login).await?.map_err(failed)?;
    out::note("open this address in a browser on this machine, and give your consent:");
    out::line(login.address())?;
    let (callback, stream) = consent(&listener, &here, &cx).await?;
    let ended = cx.wait(login.finish(&callback)).await?;
    let words = if ended.is_ok() { "You are logged in. This page can be closed." } else { "The login failed." };
    say(stream, "200 OK", words).await;
    let scopes = ended.map_err(failed)?;
    let rights = if scopes.is_empty() { String::new() } else { format!(" ({})", scopes.join(" ")) };
    out::note(&format!("logged in at {}{rights}", asked.server));
    Ok(0)
}

async fn logout(asked: Server) -> Done {
    let Some(opened) = asked.place.open()? else { return Ok(FINDINGS) };
    let Some(def) = found(&opened.project, &asked.server) else { return Ok(USAGE) };
    let there =
        Login::forget(def, &around(&asked.place)).await.map_err(|reason| anyhow!("{}: {reason}", asked.server))?;
    let words = if there { "the login is forgotten" } else { "there was no login" };
    out::note(&format!("{}: {words}", asked.server));
    Ok(0)
}

/// The entry of a server; says which there are when there is none of this name.
pub(super) fn found<'a>(project: &'a segue::project::Project, name: &str) -> Option<&'a McpServerDef> {
    let servers = &project.endpoints.mcp_servers;
    let def = servers.iter().find(|(known, _)| known.as_str() == name).map(|(_, def)| def);
    if def.is_none() {
        let names: Vec<_> = servers.keys().map(|name| name.as_str()).collect();
        out::note(&format!("endpoints.yml has no MCP server `{name}`; it has: {}", names.join(", ")));
    }
    def
}

/// What a server of the project is reached with.
pub(super) fn around(place: &Place) -> Surroundings {
    Surroundings {
        clock: std::sync::Arc::new(SystemClock),
        http: Outbound::new(),
        program: environment::program(),
        directory: Some(place.project.clone()),
        environment: environment::all().into(),
        logins: Some(place.project.join(LOGINS)),
    }
}

/// The address to which the browser is sent back, and its connection.
async fn consent(listener: &TcpListener, here: &str, cx: &Cx) -> anyhow::Result<(String, TcpStream)> {
    match cx.wait(awaited(listener, here)).await {
        Ok(answer) => answer,
        Err(_) => bail!("nobody gave consent in {} minutes", limits::MCP_CONSENT.as_secs() / 60),
    }
}

/// Waits for the browser to come back; other requests are answered and forgotten.
async fn awaited(listener: &TcpListener, here: &str) -> anyhow::Result<(String, TcpStream)> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        let Some(target) = target(&mut stream).await else { continue };
        match target.strip_prefix(BACK) {
            Some(rest) if rest.starts_with('?') => return Ok((format!("{here}{target}"), stream)),
            _ => say(stream, "404 Not Found", "There is nothing here.").await,
        }
    }
}

/// The target of the request: the second word of its first line.
async fn target(stream: &mut TcpStream) -> Option<String> {
    const LONGEST: usize = 8 * 1024;
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = tokio::time::timeout(limits::MCP_PING, stream.read(&mut piece)).await.ok()?.ok()?;
        head.extend_from_slice(piece.get(..read)?);
        if read == 0 || head.len() > LONGEST {
            return None;
        }
    }
    let head = String::from_utf8(head).ok()?;
    let mut words = head.lines().next()?.split(' ');
    (words.next()? == "GET").then(|| words.next().map(str::to_owned)).flatten()
}

async fn say(mut stream: TcpStream, status: &str, words: &str) {
    let body = format!("<!doctype html><meta charset=\"utf-8\"><title>Segue</title><p>{words}</p>\n");
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    // Whoever closed the page has seen enough.
    let _ = stream.write_all((head + &body).as_bytes()).await;
    let _ = stream.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn consent_is_waited_for_only_so_long() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let cx = Cx::new(std::sync::Arc::new(SystemClock), limits::MCP_CONSENT);
        let error = consent(&listener, "http://127.0.0.1", &cx).await.unwrap_err();
        assert_eq!(error.to_string(), "nobody gave consent in 5 minutes");
    }

    #[tokio::test]
    async fn the_browser_that_comes_back_is_told_from_others() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, cx) =
            (listener.local_addr().unwrap(), Cx::new(std::sync::Arc::new(SystemClock), limits::MCP_PING));
        let ask = |path: &'static str| async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let asked = async { (ask("/favicon.ico").await, ask("/callback?code=a&state=b").await) };
        let answered = async {
            let (callback, stream) = consent(&listener, "http://here", &cx).await.unwrap();
            say(stream, "200 OK", "Fine.").await;
            callback
        };
        let ((icon, page), callback) = tokio::join!(asked, answered);
        assert!(icon.starts_with("HTTP/1.1 404") && page.contains("<p>Fine.</p>"), "{icon} {page}");
        assert_eq!(callback, "http://here/callback?code=a&state=b");
    }
}

//! The assistant as an MCP server beside the channels of `segue run`.

use std::net::IpAddr;

use axum::Router;
use segue::{
    channels::{
        Bearer, ChannelError,
        mcp::{Desk, NAME, Offer, PATH},
    },
    project::Project,
    runtime::Assistant,
    server::{self, ServeError},
};

use super::{USAGE, out};

/// Why it is not offered.
pub(super) enum Refused {
    /// A setting is wrong.
    Setting(String),
    /// The network would reach it.
    Open(ServeError),
}

impl Refused {
    /// Says it; the exit code.
    pub(super) fn said(self) -> u8 {
        match self {
            Self::Setting(problem) => {
                out::note(&format!("credentials.yml: `{NAME}`: {problem} [{}]", ChannelError::CODE))
            }
            Self::Open(error) => out::note(&format!("{error} [{}]", error.code())),
        }
        USAGE
    }
}

/// Adds it to the routes where it is wished for: by the flag, or by an entry in `credentials.yml`.
pub(super) fn opened(
    project: &Project,
    assistant: &Assistant,
    router: Router,
    (by_flag, host, insecure): (bool, IpAddr, bool),
    token: Option<&str>,
) -> Result<(Router, Option<Desk>), Refused> {
    let entry = project.credentials.get(NAME);
    if !by_flag && entry.is_none() {
        return Ok((router, None));
    }
    let mut offer = Offer::new(&entry.cloned().unwrap_or_default(), project).map_err(Refused::Setting)?;
    offer.door = offer.door.or_token(token.and_then(Bearer::new));
    (offer.local, offer.insecure) = (host.is_loopback(), insecure);
    let desk = Desk::new(assistant, offer);
    let router = server::with_desk(router, &desk, assistant, host).map_err(Refused::Open)?;
    tracing::info!("offered as an MCP server under {PATH}");
    Ok((router, Some(desk)))
}

/// Completes when the process is asked to end. Sessions stay open until their calls are done: otherwise the server would wait
/// for every host that listens.
pub(super) async fn closing(desk: Option<Desk>) {
    server::end_asked().await;
    if let Some(desk) = desk {
        tokio::spawn(async move { desk.close().await });
    }
}

//! The task that owns the session of one server: only it connects, reconnects and closes.
//!
//! For each command it ensures an open session and runs the request concurrently with the others; the report of the
//! request says whether the session still works. A session is dropped once, however many requests saw it fail: reports
//! carry the number of their session, and those of an older one are ignored.
//!
//! What a failed request says about its session depends on the transport. When a child process ends, all its requests
//! fail. Over HTTP each request is independent: a failed one says nothing about the others, whose effects the server
//! may be performing. An HTTP session is dropped when the server has forgotten it, when it does not respond to a ping,
//! or when several requests in a row fail; its running requests may finish.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    call::{self, CallError},
    server::{Command, ServerTransport, Shared},
    session::{self, McpSession, SessionHandle},
    tool_list,
};
use crate::SourceStatus;
use segue_base::{clock::Deadline, context::CallContext, limits};

/// The report of a request about its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionHealth {
    /// It works.
    Good,
    /// A request was late: a ping must check the session.
    Doubtful,
    /// A request failed in transport: a pipe is broken then, an HTTP session may work.
    Lost,
    /// The server has forgotten it, or does not respond.
    Broken,
}

struct RequestReport {
    session: u64,
    /// Whether it is the report of a ping, which says nothing about requests.
    is_ping: bool,
    fate: SessionHealth,
}

pub(super) struct SessionManager {
    shared: Arc<Shared>,
    link: Option<McpSession>,
    /// The number of the latest session.
    session: u64,
    /// Consecutive requests of it that failed in transport.
    lost: usize,
    /// Whether a ping is running.
    asking: bool,
    /// The times of the latest connection attempts.
    tries: VecDeque<Duration>,
    /// Consecutive failures: connections that failed or were lost soon.
    failures: usize,
    /// The time and the reason of the latest failure.
    failed: Option<(Duration, String)>,
    /// Running requests, and sessions that are being closed.
    running: JoinSet<RequestReport>,
    leaving: JoinSet<()>,
}

impl SessionManager {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            link: None,
            session: 0,
            lost: 0,
            asking: false,
            tries: VecDeque::new(),
            failures: 0,
            failed: None,
            running: JoinSet::new(),
            leaving: JoinSet::new(),
        }
    }

    /// Performs commands until the server is closed.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let closing = self.shared.closing.clone();
        loop {
            let gone = self.link.as_ref().map_or_else(CancellationToken::new, |link| link.line.gone.clone());
            tokio::select! {
                biased;
                () = closing.cancelled() => break,
                Some(ended) = self.running.join_next() => {
                    if let Ok(aftermath) = ended {
                        self.after(aftermath);
                    }
                }
                Some(_) = self.leaving.join_next() => {}
                () = gone.cancelled() => self.give_up(),
                command = commands.recv(), if self.running.len() < limits::MCP_QUEUE => match command {
                    Some(command) => self.serve(command).await,
                    None => break,
                }
            }
        }
        commands.close();
        self.running.abort_all();
        if let Some(link) = self.link.take() {
            link.close().await;
        }
        while self.leaving.join_next().await.is_some() {}
        self.shared.closed.cancel();
    }

    async fn serve(&mut self, command: Command) {
        // The caller may have stopped waiting while the command was queued.
        let left = match &command {
            Command::List { reply } => reply.is_closed(),
            Command::Call(request) => request.reply.is_closed(),
        };
        if left {
            return;
        }
        let session = self.line().await;
        let number = self.session;
        match (command, session) {
            (Command::List { reply }, Err(reason)) => {
                let _ = reply.send(Err(self.shared.error(reason)));
            }
            (Command::Call(request), Err(reason)) => {
                let _ = request.reply.send(Err(CallError::Away(reason)));
            }
            (Command::List { reply }, Ok(line)) => {
                let (shared, under_way) = (self.shared.clone(), line.requests.token());
                self.running.spawn(async move {
                    let (result, fate) = tool_list::read(&shared, &line).await;
                    let _ = reply.send(result.map_err(|reason| shared.error(reason)));
                    drop(under_way);
                    RequestReport { session: number, is_ping: false, fate }
                });
            }
            (Command::Call(request), Ok(line)) => {
                let (listener, under_way) = (self.shared.listener.clone(), line.requests.token());
                self.running.spawn(async move {
                    let fate = call::perform(&line, *request, &listener).await;
                    drop(under_way);
                    RequestReport { session: number, is_ping: false, fate }
                });
            }
        }
    }

    fn after(&mut self, aftermath: RequestReport) {
        if aftermath.session != self.session {
            return;
        }
        let Some(link) = &self.link else { return };
        if aftermath.is_ping {
            self.asking = false;
        }
        match aftermath.fate {
            SessionHealth::Good if aftermath.is_ping => {}
            SessionHealth::Good => self.lost = 0,
            SessionHealth::Broken => self.give_up(),
            SessionHealth::Lost if !self.is_http() || !link.line.is_alive() => self.give_up(),
            SessionHealth::Lost => {
                self.lost += 1;
                // Not earlier: provoked failures must not open sessions without limit.
                let age = self.shared.around.clock.elapsed().saturating_sub(link.since);
                if self.lost >= limits::MCP_FAILED_REQUESTS && age >= limits::MCP_STABLE {
                    self.replace()
                } else {
                    self.ask()
                }
            }
            SessionHealth::Doubtful => self.ask(),
        }
    }

    /// Pings the session. Over HTTP a single ping may fail, so it is sent twice.
    fn ask(&mut self) {
        let Some(link) = self.link.as_ref().filter(|_| !self.asking) else { return };
        self.asking = true;
        let (line, session, clock) = (link.line.clone(), self.session, self.shared.around.clock.clone());
        let tries = if self.is_http() { 2 } else { 1 };
        self.running.spawn(async move {
            for attempt in 0..tries {
                if attempt > 0 {
                    clock.sleep(clock.deadline(limits::MCP_BACKOFF_WAIT)).await;
                }
                if line.answers(&CallContext::new(clock.clone(), limits::MCP_PING)).await {
                    return RequestReport { session, is_ping: true, fate: SessionHealth::Good };
                }
            }
            RequestReport { session, is_ping: true, fate: SessionHealth::Broken }
        });
    }

    fn is_http(&self) -> bool {
        matches!(self.shared.reach, ServerTransport::Http { .. })
    }

    /// Drops the session, because it has ended.
    fn give_up(&mut self) {
        let Some(link) = self.link.take() else { return };
        let now = self.shared.around.clock.elapsed();
        if now.saturating_sub(link.since) >= limits::MCP_STABLE {
            self.failures = 0;
            self.tries.clear();
        }
        let reason = link.reason();
        tracing::warn!(server = %self.shared.name, reason, "the MCP session is over");
        self.fail(now, reason);
        self.leave(link);
    }

    /// Drops a session in which several requests in a row failed although the server responds to pings. The server
    /// itself seems to work, so the next session is opened at once.
    fn replace(&mut self) {
        let Some(link) = self.link.take() else { return };
        tracing::warn!(server = %self.shared.name, failed = self.lost, "request after request fails: the MCP session is replaced");
        self.leave(link);
    }

    /// Closes a session in the background. Over HTTP its running requests may finish; otherwise they fail at once.
    fn leave(&mut self, link: McpSession) {
        if self.is_http() {
            self.leaving.spawn(link.retire(self.shared.closing.clone()));
        } else {
            link.line.gone.cancel();
            self.leaving.spawn(link.close());
        }
    }

    fn fail(&mut self, now: Duration, reason: String) {
        self.failures += 1;
        self.shared.set_status(SourceStatus::Down { reason: reason.clone() });
        self.failed = Some((now, reason));
    }

    /// An open session: the present one, or a new one.
    async fn line(&mut self) -> Result<SessionHandle, String> {
        match &self.link {
            Some(link) if link.line.is_alive() => return Ok(link.line.clone()),
            Some(_) => self.give_up(),
            None => {}
        }
        self.pause().await?;
        let clock = self.shared.around.clock.clone();
        self.tries.push_back(clock.elapsed());
        let cx = CallContext {
            cancel: self.shared.closing.clone().into(),
            ..CallContext::new(clock.clone(), self.shared.connect_timeout)
        };
        let result = match cx.wait(session::connect(&self.shared)).await {
            Ok(result) => result,
            Err(stopped) => Err(format!("it was not ready to work in {:?}: {stopped}", self.shared.connect_timeout)),
        };
        match result {
            Ok(link) => {
                self.session += 1;
                (self.lost, self.asking) = (0, false);
                self.shared.set_status(SourceStatus::Up);
                // A new session may have a different tool list.
                self.shared.listener.changed();
                Ok(self.link.insert(link).line.clone())
            }
            Err(reason) => {
                tracing::warn!(server = %self.shared.name, reason, "the MCP server cannot be reached");
                self.fail(clock.elapsed(), reason.clone());
                Err(reason)
            }
        }
    }

    /// Limits the rate of connections: a short pause is awaited, a long one is an error at once.
    async fn pause(&mut self) -> Result<(), String> {
        let clock = self.shared.around.clock.clone();
        let now = clock.elapsed();
        while self.tries.front().is_some_and(|at| now.saturating_sub(*at) >= limits::MCP_RECONNECT_WINDOW) {
            self.tries.pop_front();
        }
        let Some((at, reason)) = &self.failed else { return Ok(()) };
        // The very first connection does not count as a reconnection.
        if self.tries.len() > limits::MCP_RECONNECTS {
            let minutes = limits::MCP_RECONNECT_WINDOW.as_secs() / 60;
            return Err(format!("{reason}; it was tried {} times in {minutes} minutes, and rests", self.tries.len()));
        }
        let step = self.failures.saturating_sub(1).min(limits::MCP_BACKOFF.len() - 1);
        let pause = limits::MCP_BACKOFF.get(step).copied().unwrap_or_default();
        let due = at.saturating_add(pause);
        let left = due.saturating_sub(now);
        if left > limits::MCP_BACKOFF_WAIT {
            return Err(format!("{reason}; the next try is in {} s", left.as_secs() + 1));
        }
        if !left.is_zero() {
            tokio::select! {
                () = clock.sleep(Deadline(due)) => {}
                () = self.shared.closing.cancelled() => return Err("the server is closed".to_owned()),
            }
        }
        Ok(())
    }
}

//! The session manager: the task that owns the session of one MCP server. Only it connects, reconnects and closes.
//!
//! For each command it ensures an open session and runs the request concurrently with the others; the report of the
//! request says whether the session still works. A session is dropped once, however many requests saw it fail: reports
//! carry the number of their session, and those of an older one are ignored.
//!
//! What a failed request says about its session depends on the transport. When a child process ends, all its requests
//! fail. Over HTTP each request is independent: a failed one says nothing about the others, whose effects the server
//! may be performing. An HTTP session is dropped when the server no longer knows it, when the server does not respond to
//! two pings, or, once it is older than [`limits::MCP_STABLE`], when [`limits::MCP_FAILED_REQUESTS`] requests in a row fail;
//! its running requests may finish.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    call::{self, CallError},
    server::{Command, ServerState, ServerTransport},
    session::{self, McpSession, SessionHandle},
    tool_list,
};
use crate::Health;
use segue_base::{clock::Deadline, context::CallContext, limits};

/// The health of a session, as a request reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionHealth {
    /// It works.
    Healthy,
    /// A request timed out. A ping checks the session.
    Suspect,
    /// A request failed in transport. A pipe is broken then; an HTTP session may still work.
    TransportFailed,
    /// The server no longer knows it, or does not respond.
    Broken,
}

/// The report of a finished request.
struct RequestReport {
    /// The number of its session.
    session: u64,
    /// Whether it is the report of a ping, which says nothing about requests.
    is_ping: bool,
    health: SessionHealth,
}

/// The state of the session manager.
pub(super) struct SessionManager {
    state: Arc<ServerState>,
    session: Option<McpSession>,
    /// The number of the latest session.
    session_number: u64,
    /// The number of its consecutive requests that failed in transport.
    failed_requests: usize,
    /// Whether a ping is running.
    is_pinging: bool,
    /// The times of the latest connection attempts.
    attempts: VecDeque<Duration>,
    /// The number of consecutive connections that failed or were lost soon.
    consecutive_failures: usize,
    /// The time and the reason of the latest failure.
    last_failure: Option<(Duration, String)>,
    /// The running requests, including pings.
    requests: JoinSet<RequestReport>,
    closing_sessions: JoinSet<()>,
}

impl SessionManager {
    pub(super) fn new(state: Arc<ServerState>) -> Self {
        Self {
            state,
            session: None,
            session_number: 0,
            failed_requests: 0,
            is_pinging: false,
            attempts: VecDeque::new(),
            consecutive_failures: 0,
            last_failure: None,
            requests: JoinSet::new(),
            closing_sessions: JoinSet::new(),
        }
    }

    /// Performs commands until the server is closed.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let closing = self.state.closing.clone();
        loop {
            let ended =
                self.session.as_ref().map_or_else(CancellationToken::new, |session| session.handle.ended.clone());
            tokio::select! {
                biased;
                () = closing.cancelled() => break,
                Some(result) = self.requests.join_next() => {
                    if let Ok(report) = result {
                        self.handle_report(report);
                    }
                }
                Some(_) = self.closing_sessions.join_next() => {}
                () = ended.cancelled() => self.drop_session(),
                command = commands.recv(), if self.requests.len() < limits::MCP_QUEUE => match command {
                    Some(command) => self.handle_command(command).await,
                    None => break,
                }
            }
        }
        commands.close();
        self.requests.abort_all();
        if let Some(session) = self.session.take() {
            session.close().await;
        }
        while self.closing_sessions.join_next().await.is_some() {}
        self.state.closed.cancel();
    }

    async fn handle_command(&mut self, command: Command) {
        // The caller may have stopped waiting while the command was queued.
        let is_abandoned = match &command {
            Command::List { reply } => reply.is_closed(),
            Command::Call(request) => request.reply.is_closed(),
        };
        if is_abandoned {
            return;
        }
        let session = self.ensure_session().await;
        let number = self.session_number;
        match (command, session) {
            (Command::List { reply }, Err(reason)) => {
                let _ = reply.send(Err(self.state.error(reason)));
            }
            (Command::Call(request), Err(reason)) => {
                let _ = request.reply.send(Err(CallError::Unavailable(reason)));
            }
            (Command::List { reply }, Ok(handle)) => {
                let (state, request_token) = (self.state.clone(), handle.requests.token());
                self.requests.spawn(async move {
                    let (result, health) = tool_list::list_tools(&state, &handle).await;
                    let _ = reply.send(result.map_err(|reason| state.error(reason)));
                    drop(request_token);
                    RequestReport { session: number, is_ping: false, health }
                });
            }
            (Command::Call(request), Ok(handle)) => {
                let (handler, request_token) = (self.state.handler.clone(), handle.requests.token());
                self.requests.spawn(async move {
                    let health = call::perform(&handle, *request, &handler).await;
                    drop(request_token);
                    RequestReport { session: number, is_ping: false, health }
                });
            }
        }
    }

    fn handle_report(&mut self, report: RequestReport) {
        if report.session != self.session_number {
            return;
        }
        let Some(session) = &self.session else { return };
        if report.is_ping {
            self.is_pinging = false;
        }
        match report.health {
            SessionHealth::Healthy if report.is_ping => {}
            SessionHealth::Healthy => self.failed_requests = 0,
            SessionHealth::Broken => self.drop_session(),
            SessionHealth::TransportFailed if !self.is_http() || !session.handle.is_alive() => self.drop_session(),
            SessionHealth::TransportFailed => {
                self.failed_requests += 1;
                // A young session is kept, because otherwise provoked failures could open sessions without limit.
                let age = self.state.environment.clock.elapsed().saturating_sub(session.opened_at);
                if self.failed_requests >= limits::MCP_FAILED_REQUESTS && age >= limits::MCP_STABLE {
                    tracing::warn!(server = %self.state.name, failed = self.failed_requests, "consecutive requests failed: the MCP session is replaced");
                    self.replace_session()
                } else {
                    self.ping()
                }
            }
            SessionHealth::Suspect => self.ping(),
        }
    }

    /// Pings the session, unless a ping is running. Over HTTP a single ping may fail, so a second one is sent.
    fn ping(&mut self) {
        let Some(session) = self.session.as_ref().filter(|_| !self.is_pinging) else { return };
        self.is_pinging = true;
        let (handle, session, clock) =
            (session.handle.clone(), self.session_number, self.state.environment.clock.clone());
        let attempts = if self.is_http() { 2 } else { 1 };
        self.requests.spawn(async move {
            for attempt in 0..attempts {
                if attempt > 0 {
                    clock.sleep(clock.deadline(limits::MCP_BACKOFF_WAIT)).await;
                }
                if handle.ping(&CallContext::new(clock.clone(), limits::MCP_PING)).await {
                    return RequestReport { session, is_ping: true, health: SessionHealth::Healthy };
                }
            }
            RequestReport { session, is_ping: true, health: SessionHealth::Broken }
        });
    }

    fn is_http(&self) -> bool {
        matches!(self.state.transport, ServerTransport::Http { .. })
    }

    /// Drops the session, because it has ended or does not work.
    fn drop_session(&mut self) {
        let Some(session) = self.session.take() else { return };
        let now = self.state.environment.clock.elapsed();
        if now.saturating_sub(session.opened_at) >= limits::MCP_STABLE {
            self.consecutive_failures = 0;
            self.attempts.clear();
        }
        let reason = session.reason();
        tracing::warn!(server = %self.state.name, reason, "the MCP session ended");
        self.record_failure(now, reason);
        self.close_in_background(session);
    }

    /// Drops a session that is of no more use although the server itself seems to work. The next one is opened at once.
    fn replace_session(&mut self) {
        let Some(session) = self.session.take() else { return };
        self.close_in_background(session);
    }

    /// Whether an abandoned call keeps requests of the server from being answered in this session, for as long as it is
    /// open. Over HTTP another session costs little; a young one is kept, as above. The end of a process also ends the work of
    /// its calls, so a process is replaced only if all its calls waited for forms that were cancelled.
    fn is_blocked(&self, session: &McpSession) -> bool {
        let allowed = self.state.handler.allowed;
        let age = self.state.environment.clock.elapsed().saturating_sub(session.opened_at);
        let calls = &session.handle.calls;
        let is_replaceable = match session.handle.is_http {
            true => calls.has_abandoned() && age >= limits::MCP_STABLE,
            false => calls.has_only_cancelled(),
        };
        (allowed.elicitation || allowed.sampling) && is_replaceable
    }

    /// Closes a session in the background. Over HTTP its running requests may finish; otherwise they fail at once.
    fn close_in_background(&mut self, session: McpSession) {
        if self.is_http() {
            self.closing_sessions.spawn(session.close_after_requests(self.state.closing.clone()));
        } else {
            session.handle.ended.cancel();
            self.closing_sessions.spawn(session.close());
        }
    }

    fn record_failure(&mut self, now: Duration, reason: String) {
        self.consecutive_failures += 1;
        self.state.set_status(Health::Down { reason: reason.clone() });
        self.last_failure = Some((now, reason));
    }

    /// Returns the open session, or opens a new one.
    ///
    /// # Errors
    /// A text for operators: no session can be opened now.
    async fn ensure_session(&mut self) -> Result<SessionHandle, String> {
        match &self.session {
            Some(session) if session.handle.is_alive() && self.is_blocked(session) => {
                tracing::info!(server = %self.state.name, "a call was abandoned without a response: the MCP session is replaced");
                self.replace_session();
            }
            Some(session) if session.handle.is_alive() => return Ok(session.handle.clone()),
            Some(_) => self.drop_session(),
            None => {}
        }
        self.wait_before_reconnect().await?;
        let clock = self.state.environment.clock.clone();
        self.attempts.push_back(clock.elapsed());
        let cx = CallContext {
            cancel: self.state.closing.clone().into(),
            ..CallContext::new(clock.clone(), self.state.connect_timeout)
        };
        let result = match cx.wait(session::connect(&self.state)).await {
            Ok(result) => result,
            Err(error) => {
                Err(format!("it did not complete the handshake within {:?}: {error}", self.state.connect_timeout))
            }
        };
        match result {
            Ok(session) => {
                self.session_number += 1;
                (self.failed_requests, self.is_pinging) = (0, false);
                self.state.set_status(Health::Up);
                // A new session may have a different tool list.
                self.state.handler.list_changed();
                Ok(self.session.insert(session).handle.clone())
            }
            Err(reason) => {
                tracing::warn!(server = %self.state.name, reason, "no session with the MCP server can be opened");
                self.record_failure(clock.elapsed(), reason.clone());
                Err(reason)
            }
        }
    }

    /// Limits the rate of connections. A pause of at most [`limits::MCP_BACKOFF_WAIT`] is waited for; a longer one is an error at
    /// once.
    async fn wait_before_reconnect(&mut self) -> Result<(), String> {
        let clock = self.state.environment.clock.clone();
        let now = clock.elapsed();
        while self.attempts.front().is_some_and(|at| now.saturating_sub(*at) >= limits::MCP_RECONNECT_WINDOW) {
            self.attempts.pop_front();
        }
        let Some((at, reason)) = &self.last_failure else { return Ok(()) };
        // The very first connection does not count as a reconnection.
        if self.attempts.len() > limits::MCP_RECONNECTS {
            let minutes = limits::MCP_RECONNECT_WINDOW.as_secs() / 60;
            return Err(format!(
                "{reason}; after {} attempts within {minutes} minutes, no more are made for now",
                self.attempts.len()
            ));
        }
        let step = self.consecutive_failures.saturating_sub(1).min(limits::MCP_BACKOFF.len() - 1);
        let pause = limits::MCP_BACKOFF.get(step).copied().unwrap_or_default();
        let due = at.saturating_add(pause);
        let left = due.saturating_sub(now);
        if left > limits::MCP_BACKOFF_WAIT {
            return Err(format!("{reason}; the next attempt is in {} s", left.as_secs() + 1));
        }
        if !left.is_zero() {
            tokio::select! {
                () = clock.sleep(Deadline(due)) => {}
                () = self.state.closing.cancelled() => return Err("the server is closed".to_owned()),
            }
        }
        Ok(())
    }
}

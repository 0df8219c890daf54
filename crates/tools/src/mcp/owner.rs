//! The task that owns one server's session: the only one that connects, reconnects and closes.
//!
//! Order: a command is taken, a live session is made sure of, the request runs beside the others, and its aftermath says
//! whether the session is still good. A session is given up once, however many requests saw it break: aftermaths carry
//! the number of their session, and those of an older one change nothing.
//!
//! What a failed request says of its session depends on the transport. A process that ends takes all requests with it. Over
//! HTTP each request stands alone: one that failed says nothing of the others, whose writes the server may be carrying out.
//! There a session is given up when the server has forgotten it, when it answers no ping, or when request after request fails;
//! what is under way in it is left to finish.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    call::{self, CallEnd},
    catalog,
    client::{Command, Reach, Shared},
    connection::{self, Line, Link},
};
use crate::SourceStatus;
use segue_base::{clock::Deadline, context::CallContext, limits};

/// What a request says of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It works.
    Good,
    /// A request was too late: ask whether anybody is there.
    Doubtful,
    /// A request failed on its way: a pipe is broken then, an HTTP session need not be.
    Lost,
    /// It is forgotten by the server, or nobody answers.
    Broken,
}

struct Aftermath {
    session: u64,
    /// Whether it is that of a ping, which says nothing of how requests fare.
    is_ping: bool,
    fate: Fate,
}

pub(super) struct Owner {
    shared: Arc<Shared>,
    link: Option<Link>,
    /// The number of the newest session.
    session: u64,
    /// Requests of it that failed on their way, in a row.
    lost: usize,
    /// Whether it is being asked whether anybody is there.
    asking: bool,
    /// When connections were tried lately.
    tries: VecDeque<Duration>,
    /// Failures in a row: connections that failed or broke soon.
    failures: usize,
    /// When the newest failure was, and why.
    failed: Option<(Duration, String)>,
    /// Requests in flight, and sessions being closed.
    running: JoinSet<Aftermath>,
    leaving: JoinSet<()>,
}

impl Owner {
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

    /// Serves commands until the server is closed.
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
        // The caller may have left while the command waited.
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
                let _ = request.reply.send(Err(CallEnd::Away(reason)));
            }
            (Command::List { reply }, Ok(line)) => {
                let (shared, under_way) = (self.shared.clone(), line.requests.token());
                self.running.spawn(async move {
                    let (result, fate) = catalog::read(&shared, &line).await;
                    let _ = reply.send(result.map_err(|reason| shared.error(reason)));
                    drop(under_way);
                    Aftermath { session: number, is_ping: false, fate }
                });
            }
            (Command::Call(request), Ok(line)) => {
                let (listener, under_way) = (self.shared.listener.clone(), line.requests.token());
                self.running.spawn(async move {
                    let fate = call::perform(&line, *request, &listener).await;
                    drop(under_way);
                    Aftermath { session: number, is_ping: false, fate }
                });
            }
        }
    }

    fn after(&mut self, aftermath: Aftermath) {
        if aftermath.session != self.session {
            return;
        }
        let Some(link) = &self.link else { return };
        if aftermath.is_ping {
            self.asking = false;
        }
        match aftermath.fate {
            Fate::Good if aftermath.is_ping => {}
            Fate::Good => self.lost = 0,
            Fate::Broken => self.give_up(),
            Fate::Lost if !self.is_http() || !link.line.is_alive() => self.give_up(),
            Fate::Lost => {
                self.lost += 1;
                // Not sooner: who provokes failures must not make us begin sessions without end.
                let age = self.shared.around.clock.elapsed().saturating_sub(link.since);
                if self.lost >= limits::MCP_FAILED_REQUESTS && age >= limits::MCP_STABLE {
                    self.replace()
                } else {
                    self.ask()
                }
            }
            Fate::Doubtful => self.ask(),
        }
    }

    /// Asks the session whether anybody is there. Over HTTP a ping may fail as alone as any request: it is sent twice.
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
                    return Aftermath { session, is_ping: true, fate: Fate::Good };
                }
            }
            Aftermath { session, is_ping: true, fate: Fate::Broken }
        });
    }

    fn is_http(&self) -> bool {
        matches!(self.shared.reach, Reach::Http { .. })
    }

    /// Lets the session go, because it is over.
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

    /// Lets a session go in which request after request fails, though somebody is there. Nothing is wrong with the server as
    /// far as we know, so the next one begins at once.
    fn replace(&mut self) {
        let Some(link) = self.link.take() else { return };
        tracing::warn!(server = %self.shared.name, failed = self.lost, "request after request fails: the MCP session is replaced");
        self.leave(link);
    }

    /// Closes a session beside the other work. Over HTTP what is under way in it is left to finish; elsewhere it fails at once.
    fn leave(&mut self, link: Link) {
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

    /// A live session: the present one, or a new one.
    async fn line(&mut self) -> Result<Line, String> {
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
        let result = match cx.wait(connection::connect(&self.shared)).await {
            Ok(result) => result,
            Err(stopped) => Err(format!("it was not ready to work in {:?}: {stopped}", self.shared.connect_timeout)),
        };
        match result {
            Ok(link) => {
                self.session += 1;
                (self.lost, self.asking) = (0, false);
                self.shared.set_status(SourceStatus::Up);
                // The list of a new session may be another one.
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

    /// Keeps connections apart. A short pause is waited for, a long one is an error at once.
    async fn pause(&mut self) -> Result<(), String> {
        let clock = self.shared.around.clock.clone();
        let now = clock.elapsed();
        while self.tries.front().is_some_and(|at| now.saturating_sub(*at) >= limits::MCP_RECONNECT_WINDOW) {
            self.tries.pop_front();
        }
        let Some((at, reason)) = &self.failed else { return Ok(()) };
        // The first connection of all is none of the reconnections.
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

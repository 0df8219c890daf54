//! A Python module of actions, served by `rasa-sdk` as a supervised child process on a free port of the loopback interface.
//!
//! The child starts at the first use. When it ends, it is restarted: at once if it ran long enough, with growing pauses if it ended
//! early. A child that never became ready is restarted only at the next use. While there is no child, calls fail at once with the
//! reason. The child ends with this process, even if this process is killed, because it watches its standard input.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use segue_engine::{
    conversation::{ActionOutcome, StepError},
    project::{ActionEndpointDef, TrackerEvents},
};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{ActionEnvironment, ActionRequest, ActionServer, Health, http::ActionEndpoint};
use crate::{
    child::{self, Child, ChildCommand, OutputTail},
    context::CallContext,
    limits,
};

/// The script of the child; the module and the port are its arguments. Like `python3 -m rasa_sdk --actions MODULE --port PORT`, but it
/// ends when this process ends.
const SUPERVISED_SCRIPT: &str = include_str!("supervised.py");
/// Bytes of the output of an ended child that are part of the reason.
const MAX_OUTPUT_TAIL: usize = 600;

/// A Python module that is served as an action server.
pub(super) struct PythonActionServer {
    supervisor: Arc<Supervisor>,
}

struct Supervisor {
    module: String,
    endpoint: ActionEndpoint,
    process: ActionEnvironment,
    state: watch::Sender<State>,
    /// Notified when a call needs the child.
    demand: Notify,
    started: AtomicBool,
    closing: CancellationToken,
    closed: CancellationToken,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    /// The child is starting.
    Starting,
    /// The child is ready at this URL.
    Up(Arc<str>),
    /// There is no child, for this reason; a restart is pending.
    Down(Arc<str>),
    /// The child never became ready; the next call starts it.
    Idle,
}

impl PythonActionServer {
    pub(super) fn new(module: &str, endpoint: ActionEndpoint, process: ActionEnvironment) -> Self {
        let supervisor = Supervisor {
            module: module.to_owned(),
            endpoint,
            process,
            state: watch::Sender::new(State::Starting),
            demand: Notify::new(),
            started: AtomicBool::new(false),
            closing: CancellationToken::new(),
            closed: CancellationToken::new(),
        };
        Self { supervisor: Arc::new(supervisor) }
    }

    /// The URL of the running child; starts it if necessary.
    async fn ready(&self, cx: &CallContext) -> Result<Arc<str>, String> {
        if !self.supervisor.started.swap(true, Ordering::SeqCst) {
            tokio::spawn(self.supervisor.clone().supervise());
        }
        let mut states = self.supervisor.state.subscribe();
        let cx = cx.with_timeout(limits::ACTION_START);
        loop {
            let state = states.borrow_and_update().clone();
            match state {
                State::Up(url) => return Ok(url),
                State::Down(reason) => return Err(reason.to_string()),
                State::Idle => self.supervisor.demand.notify_one(),
                State::Starting => {}
            }
            match cx.wait(states.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err("the module of actions is closed".to_owned()),
                Err(stopped) => {
                    return Err(format!("the module `{}` is still starting: {stopped}", self.supervisor.module));
                }
            }
        }
    }

    async fn run_action(&self, request: ActionRequest<'_>, cx: &CallContext) -> ActionOutcome {
        let refused = |reason| ActionOutcome::Failed(StepError::new("unreachable", reason));
        let url = match self.ready(cx).await {
            Ok(url) => url,
            Err(reason) => return refused(reason),
        };
        let outcome = self.supervisor.endpoint.run(&url, request, cx).await;
        // The child may have ended unnoticed. Nothing was sent, so the call may go to the next child.
        let was_not_sent = matches!(&outcome, ActionOutcome::Failed(error) if error.code == "unreachable");
        if !was_not_sent || !self.has_ended(&url, cx).await {
            return outcome;
        }
        match self.ready(cx).await {
            Ok(url) => self.supervisor.endpoint.run(&url, request, cx).await,
            Err(reason) => refused(reason),
        }
    }

    /// Whether the child at this URL ends within [`limits::ACTION_HEALTH`].
    async fn has_ended(&self, url: &str, cx: &CallContext) -> bool {
        let mut states = self.supervisor.state.subscribe();
        let gone = states.wait_for(|state| !matches!(state, State::Up(at) if **at == *url));
        cx.with_timeout(limits::ACTION_HEALTH).wait(gone).await.is_ok_and(|gone| gone.is_ok())
    }

    async fn list(&self, cx: &CallContext) -> Result<Vec<String>, String> {
        let url = self.ready(cx).await?;
        self.supervisor.endpoint.list_actions(&url, cx).await
    }

    async fn shut_down(&self, cx: &CallContext) {
        self.supervisor.closing.cancel();
        if self.supervisor.started.load(Ordering::SeqCst) {
            // After the deadline the supervisor continues to close in the background.
            let _ = cx.wait(self.supervisor.closed.cancelled()).await;
        }
    }
}

#[async_trait]
impl ActionServer for PythonActionServer {
    async fn run(&self, request: ActionRequest<'_>, cx: &CallContext) -> ActionOutcome {
        self.run_action(request, cx).await
    }
    fn tracker_events(&self) -> TrackerEvents {
        self.supervisor.endpoint.tracker_events
    }
    async fn list_actions(&self, cx: &CallContext) -> Result<Vec<String>, String> {
        self.list(cx).await
    }
    fn status(&self) -> Health {
        match &*self.supervisor.state.borrow() {
            State::Up(_) => Health::Up,
            State::Down(reason) => Health::Down { reason: reason.to_string() },
            State::Starting | State::Idle => Health::Unknown,
        }
    }
    async fn close(&self, cx: &CallContext) {
        self.shut_down(cx).await
    }
}

impl Drop for PythonActionServer {
    fn drop(&mut self) {
        self.supervisor.closing.cancel();
    }
}

/// The end of one run of the child.
struct ChildRun {
    /// Whether it became ready.
    became_ready: bool,
    reason: String,
}

impl Supervisor {
    /// Restarts the child until the server is closed. *Cancellation*: dropping the future kills the child.
    async fn supervise(self: Arc<Self>) {
        let clock = self.process.clock.clone();
        let mut failures = 0;
        while !self.closing.is_cancelled() {
            self.state.send_replace(State::Starting);
            let started_at = clock.elapsed();
            let run = self.run_child().await;
            if self.closing.is_cancelled() {
                break;
            }
            if run.became_ready && clock.elapsed().saturating_sub(started_at) >= limits::ACTION_STABLE {
                failures = 0;
            }
            let [.., last] = limits::ACTION_BACKOFF;
            let pause = limits::ACTION_BACKOFF.get(failures).copied().unwrap_or(last);
            failures += 1;
            tracing::warn!(code = "T0601", "the module of actions `{}` is down: {}", self.module, run.reason);
            if !(run.became_ready && pause.is_zero()) {
                self.state.send_replace(State::Down(run.reason.into()));
            }
            let closing = self.closing.cancelled();
            tokio::select! {
                () = closing => break,
                () = clock.sleep(clock.deadline(pause)) => {}
            }
            if !run.became_ready {
                self.state.send_replace(State::Idle);
                tokio::select! {
                    () = self.closing.cancelled() => break,
                    () = self.demand.notified() => {}
                }
            }
        }
        self.state.send_replace(State::Down("the module of actions is closed".into()));
        self.closed.cancel();
    }

    /// One run of the child, from its start to its end.
    async fn run_child(&self) -> ChildRun {
        let not_ready = |reason: String| ChildRun { became_ready: false, reason };
        let python = python(&self.process.environment);
        let port = match free_port() {
            Ok(port) => port,
            Err(error) => return not_ready(format!("there is no free port on this machine: {error}")),
        };
        let args = ["-c".to_owned(), SUPERVISED_SCRIPT.to_owned(), self.module.clone(), port.to_string()];
        let started = match child::spawn(ChildCommand {
            program: &python,
            args: &args,
            environment: child_environment(&self.process.environment),
            directory: directory(&self.process.directory),
        }) {
            Ok(started) => started,
            Err(reason) => return not_ready(format!("{reason}; {INSTALL_HINT}")),
        };
        let child::SpawnedChild { mut child, input, output, errors, .. } = started;
        tokio::spawn(child::drain(output, errors.clone()));
        let url = format!("http://127.0.0.1:{port}/webhook");
        let (became_ready, reason) = match self.wait_until_ready(&mut child, &url).await {
            Err(reason) => (false, reason),
            Ok(()) => {
                self.state.send_replace(State::Up(url.into()));
                tokio::select! {
                    () = self.closing.cancelled() => {}
                    _ = child.wait() => {}
                }
                (true, "it ended".to_owned())
            }
        };
        drop(input);
        child.terminate().await;
        ChildRun { became_ready, reason: self.describe_end(&python, &reason, &errors).await }
    }

    /// Waits until the child is ready.
    async fn wait_until_ready(&self, child: &mut Child, url: &str) -> Result<(), String> {
        let clock = &self.process.clock;
        let cx = CallContext {
            cancel: self.closing.clone().into(),
            ..CallContext::new(clock.clone(), limits::ACTION_START)
        };
        let answers = async {
            while !self.endpoint.is_alive(url, &cx).await {
                clock.sleep(clock.deadline(limits::ACTION_POLL)).await;
            }
        };
        tokio::select! {
            biased;
            _ = child.wait() => Err("it ended before it was ready".to_owned()),
            waited = cx.wait(answers) => waited.map_err(|stopped| format!("it does not respond: {stopped}")),
        }
    }

    /// The reason why a child ended, with the end of its output and the fix.
    async fn describe_end(&self, python: &Path, reason: &str, errors: &OutputTail) -> String {
        // The output may not have passed the pipe yet.
        let clock = &self.process.clock;
        clock.sleep(clock.deadline(limits::ACTION_POLL)).await;
        let output = errors.last(MAX_OUTPUT_TAIL);
        if is_library_missing(&output) {
            return missing_library(python);
        }
        if output.is_empty() { reason.to_owned() } else { format!("{reason}; its last output: {output}") }
    }
}

const INSTALL_HINT: &str =
    "install Python, name another one with `SEGUE_PYTHON`, or give the `url` of an action server";

fn is_library_missing(output: &str) -> bool {
    output.contains("No module named rasa_sdk") || output.contains("No module named 'rasa_sdk'")
}

fn missing_library(python: &Path) -> String {
    let python = python.display();
    format!(
        "`rasa-sdk` is not installed for `{python}`: run `{python} -m pip install rasa-sdk`, name another Python with \
         `SEGUE_PYTHON`, or give the `url` of an action server"
    )
}

/// The Python interpreter.
fn python(environment: &[(String, String)]) -> PathBuf {
    let named = environment.iter().find(|(name, value)| name == "SEGUE_PYTHON" && !value.trim().is_empty());
    named
        .map_or_else(|| PathBuf::from(if cfg!(windows) { "python" } else { "python3" }), |(_, path)| path.trim().into())
}

/// The environment of the child: that of this process (actions are code of the project), loopback only, and unbuffered output.
fn child_environment(ours: &[(String, String)]) -> Vec<(String, String)> {
    let own = [("SANIC_HOST", "127.0.0.1"), ("PYTHONUNBUFFERED", "1")];
    ours.iter().cloned().chain(own.map(|(name, value)| (name.to_owned(), value.to_owned()))).collect()
}

/// An empty path is the current directory.
fn directory(path: &Path) -> Option<&Path> {
    (!path.as_os_str().is_empty()).then_some(path)
}

/// A free port. If another process takes it first, the child ends and is restarted with another port.
fn free_port() -> std::io::Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Starts a Python interpreter to check that the module of this endpoint can be served. Returns the problem (no Python, or no
/// `rasa-sdk`); `None` if there is none, or if the endpoint has no module.
pub async fn check_python(def: &ActionEndpointDef, process: &ActionEnvironment) -> Option<String> {
    if def.url.is_some() || def.module.is_none() {
        return None;
    }
    let python = python(&process.environment);
    let args = ["-c".to_owned(), "import rasa_sdk".to_owned()];
    let launch = ChildCommand {
        program: &python,
        args: &args,
        environment: child_environment(&process.environment),
        directory: directory(&process.directory),
    };
    let mut started = match child::spawn(launch) {
        Ok(started) => started,
        Err(reason) => return Some(format!("{reason}; {INSTALL_HINT}")),
    };
    let cx = CallContext::new(process.clock.clone(), limits::ACTION_START);
    let ended = cx.wait(started.child.wait()).await;
    started.child.terminate().await;
    match ended {
        Ok(true) => None,
        Ok(false) => Some(missing_library(&python)),
        Err(stopped) => Some(format!("`{}` does not say whether it has `rasa-sdk`: {stopped}", python.display())),
    }
}

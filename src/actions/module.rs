//! A module of actions that this program serves: Python with `rasa-sdk` as a supervised child on a free port of this machine.
//!
//! It is started at the first need. When it dies, it is started again: at once after a good life, later and later when it dies
//! early; one that never came up is tried again only when somebody needs it. While it cannot be had, calls fail at once and
//! say why. It ends with us, even when we are killed: it watches its standard input.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::future::BoxFuture;
use segue_engine::{
    conversation::{ActionOutcome, StepError},
    project::{ActionEndpointDef, TrackerEvents},
};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{ActionEnvironment, ActionRequest, ActionServer, Health, wire::Wire};
use crate::{
    child::{self, Child, ChildCommand, OutputTail},
    context::CallContext,
    limits,
};

/// What the child runs; the module and the port follow as arguments. As `python3 -m rasa_sdk --actions MODULE --port PORT`, with a
/// watch over our end.
const GUARD: &str = include_str!("guard.py");
/// Bytes of a dead child's last words that are told.
const LAST_WORDS: usize = 600;

/// A module that is served.
pub(super) struct ModuleServer {
    keeper: Arc<Keeper>,
}

struct Keeper {
    module: String,
    wire: Wire,
    around: ActionEnvironment,
    state: watch::Sender<State>,
    /// Somebody needs it.
    need: Notify,
    begun: AtomicBool,
    closing: CancellationToken,
    closed: CancellationToken,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    /// It is coming up.
    Starting,
    /// It answers at this address.
    Up(Arc<str>),
    /// It cannot be had for now.
    Down(Arc<str>),
    /// It never came up; the next need starts it.
    Resting,
}

impl ModuleServer {
    pub(super) fn new(module: &str, wire: Wire, around: ActionEnvironment) -> Self {
        let keeper = Keeper {
            module: module.to_owned(),
            wire,
            around,
            state: watch::Sender::new(State::Starting),
            need: Notify::new(),
            begun: AtomicBool::new(false),
            closing: CancellationToken::new(),
            closed: CancellationToken::new(),
        };
        Self { keeper: Arc::new(keeper) }
    }

    /// The address of the running server; starts it if need be.
    async fn ready(&self, cx: &CallContext) -> Result<Arc<str>, String> {
        if !self.keeper.begun.swap(true, Ordering::SeqCst) {
            tokio::spawn(self.keeper.clone().supervise());
        }
        let mut states = self.keeper.state.subscribe();
        let cx = cx.with_timeout(limits::ACTION_START);
        loop {
            let state = states.borrow_and_update().clone();
            match state {
                State::Up(url) => return Ok(url),
                State::Down(reason) => return Err(reason.to_string()),
                State::Resting => self.keeper.need.notify_one(),
                State::Starting => {}
            }
            match cx.wait(states.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err("the module of actions is closed".to_owned()),
                Err(stopped) => {
                    return Err(format!("the module `{}` is still starting: {stopped}", self.keeper.module));
                }
            }
        }
    }

    async fn ran(&self, request: ActionRequest<'_>, cx: &CallContext) -> ActionOutcome {
        let refused = |reason| ActionOutcome::Failed(StepError::new("unreachable", reason));
        let url = match self.ready(cx).await {
            Ok(url) => url,
            Err(reason) => return refused(reason),
        };
        let outcome = self.keeper.wire.run(&url, request, cx).await;
        // A child that has just died is not known to be dead yet. Nothing left us, so the next one may be asked.
        let never_left = matches!(&outcome, ActionOutcome::Failed(error) if error.code == "unreachable");
        if !never_left || !self.is_gone(&url, cx).await {
            return outcome;
        }
        match self.ready(cx).await {
            Ok(url) => self.keeper.wire.run(&url, request, cx).await,
            Err(reason) => refused(reason),
        }
    }

    /// Whether the child at this address turns out to be dead.
    async fn is_gone(&self, url: &str, cx: &CallContext) -> bool {
        let mut states = self.keeper.state.subscribe();
        let gone = states.wait_for(|state| !matches!(state, State::Up(at) if **at == *url));
        cx.with_timeout(limits::ACTION_HEALTH).wait(gone).await.is_ok_and(|gone| gone.is_ok())
    }

    async fn named(&self, cx: &CallContext) -> Result<Vec<String>, String> {
        let url = self.ready(cx).await?;
        self.keeper.wire.names(&url, cx).await
    }

    async fn ended(&self, cx: &CallContext) {
        self.keeper.closing.cancel();
        if self.keeper.begun.load(Ordering::SeqCst) {
            // When the time is over, the keeper goes on closing by itself.
            let _ = cx.wait(self.keeper.closed.cancelled()).await;
        }
    }
}

impl ActionServer for ModuleServer {
    fn run<'a>(&'a self, request: ActionRequest<'a>, cx: &'a CallContext) -> BoxFuture<'a, ActionOutcome> {
        Box::pin(self.ran(request, cx))
    }
    fn wants(&self) -> TrackerEvents {
        self.keeper.wire.wants
    }
    fn names<'a>(&'a self, cx: &'a CallContext) -> BoxFuture<'a, Result<Vec<String>, String>> {
        Box::pin(self.named(cx))
    }
    fn status(&self) -> Health {
        match &*self.keeper.state.borrow() {
            State::Up(_) => Health::Up,
            State::Down(reason) => Health::Down { reason: reason.to_string() },
            State::Starting | State::Resting => Health::Unknown,
        }
    }
    fn close<'a>(&'a self, cx: &'a CallContext) -> BoxFuture<'a, ()> {
        Box::pin(self.ended(cx))
    }
}

impl Drop for ModuleServer {
    fn drop(&mut self) {
        self.keeper.closing.cancel();
    }
}

/// How one life of the child ended.
struct Life {
    /// Whether it ever answered.
    came_up: bool,
    reason: String,
}

impl Keeper {
    /// Keeps the child alive until we close. *Cancellation*: dropping it kills the child.
    async fn supervise(self: Arc<Self>) {
        let clock = self.around.clock.clone();
        let mut failures = 0;
        while !self.closing.is_cancelled() {
            self.state.send_replace(State::Starting);
            let began = clock.elapsed();
            let life = self.live().await;
            if self.closing.is_cancelled() {
                break;
            }
            if life.came_up && clock.elapsed().saturating_sub(began) >= limits::ACTION_STABLE {
                failures = 0;
            }
            let [.., last] = limits::ACTION_BACKOFF;
            let pause = limits::ACTION_BACKOFF.get(failures).copied().unwrap_or(last);
            failures += 1;
            tracing::warn!(code = "T0601", "the module of actions `{}` is down: {}", self.module, life.reason);
            if !(life.came_up && pause.is_zero()) {
                self.state.send_replace(State::Down(life.reason.into()));
            }
            let closing = self.closing.cancelled();
            tokio::select! {
                () = closing => break,
                () = clock.sleep(clock.deadline(pause)) => {}
            }
            if !life.came_up {
                self.state.send_replace(State::Resting);
                tokio::select! {
                    () = self.closing.cancelled() => break,
                    () = self.need.notified() => {}
                }
            }
        }
        self.state.send_replace(State::Down("the module of actions is closed".into()));
        self.closed.cancel();
    }

    /// One life of the child, from its start to its end.
    async fn live(&self) -> Life {
        let never = |reason: String| Life { came_up: false, reason };
        let python = python(&self.around.environment);
        let port = match free_port() {
            Ok(port) => port,
            Err(error) => return never(format!("there is no free port on this machine: {error}")),
        };
        let args = ["-c".to_owned(), GUARD.to_owned(), self.module.clone(), port.to_string()];
        let started = match child::spawn(ChildCommand {
            program: &python,
            args: &args,
            environment: environment(&self.around.environment),
            directory: directory(&self.around.directory),
        }) {
            Ok(started) => started,
            Err(reason) => return never(format!("{reason}; {CURE}")),
        };
        let child::SpawnedChild { mut child, input, output, errors } = started;
        tokio::spawn(child::drain(output, errors.clone()));
        let url = format!("http://127.0.0.1:{port}/webhook");
        let (came_up, reason) = match self.comes_up(&mut child, &url).await {
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
        Life { came_up, reason: self.told(&python, &reason, &errors).await }
    }

    /// Waits until the child answers.
    async fn comes_up(&self, child: &mut Child, url: &str) -> Result<(), String> {
        let clock = &self.around.clock;
        let cx = CallContext {
            cancel: self.closing.clone().into(),
            ..CallContext::new(clock.clone(), limits::ACTION_START)
        };
        let answers = async {
            while !self.wire.lives(url, &cx).await {
                clock.sleep(clock.deadline(limits::ACTION_POLL)).await;
            }
        };
        tokio::select! {
            biased;
            _ = child.wait() => Err("it ended before it answered".to_owned()),
            waited = cx.wait(answers) => waited.map_err(|stopped| format!("it does not answer: {stopped}")),
        }
    }

    /// Why a child is gone, with its last words and the cure.
    async fn told(&self, python: &Path, reason: &str, errors: &OutputTail) -> String {
        // The words may still be on their way through the pipe.
        let clock = &self.around.clock;
        clock.sleep(clock.deadline(limits::ACTION_POLL)).await;
        let words = errors.last(LAST_WORDS);
        if lacks_library(&words) {
            return missing(python);
        }
        if words.is_empty() { reason.to_owned() } else { format!("{reason}; it last said: {words}") }
    }
}

const CURE: &str = "install Python, name another one with `SEGUE_PYTHON`, or give the `url` of an action server";

fn lacks_library(words: &str) -> bool {
    words.contains("No module named rasa_sdk") || words.contains("No module named 'rasa_sdk'")
}

fn missing(python: &Path) -> String {
    let python = python.display();
    format!(
        "`rasa-sdk` is not installed for `{python}`: run `{python} -m pip install rasa-sdk`, name another Python with \
         `SEGUE_PYTHON`, or give the `url` of an action server"
    )
}

/// The interpreter.
fn python(environment: &[(String, String)]) -> PathBuf {
    let named = environment.iter().find(|(name, value)| name == "SEGUE_PYTHON" && !value.trim().is_empty());
    named
        .map_or_else(|| PathBuf::from(if cfg!(windows) { "python" } else { "python3" }), |(_, path)| path.trim().into())
}

/// Actions are code of the project: they see what we see, listen on this machine alone, and say at once what they say.
fn environment(ours: &[(String, String)]) -> Vec<(String, String)> {
    let own = [("SANIC_HOST", "127.0.0.1"), ("PYTHONUNBUFFERED", "1")];
    ours.iter().cloned().chain(own.map(|(name, value)| (name.to_owned(), value.to_owned()))).collect()
}

/// An empty path is the folder we are in.
fn directory(path: &Path) -> Option<&Path> {
    (!path.as_os_str().is_empty()).then_some(path)
}

/// A port that is free now; should somebody take it meanwhile, the child dies and is started with another one.
fn free_port() -> std::io::Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Why the module of this endpoint cannot be served here, if so: no Python, or no `rasa-sdk`. Starts an interpreter to find
/// out; `None` too when no module is to be served.
pub async fn python_trouble(def: &ActionEndpointDef, around: &ActionEnvironment) -> Option<String> {
    if def.url.is_some() || def.module.is_none() {
        return None;
    }
    let python = python(&around.environment);
    let args = ["-c".to_owned(), "import rasa_sdk".to_owned()];
    let launch = ChildCommand {
        program: &python,
        args: &args,
        environment: environment(&around.environment),
        directory: directory(&around.directory),
    };
    let mut started = match child::spawn(launch) {
        Ok(started) => started,
        Err(reason) => return Some(format!("{reason}; {CURE}")),
    };
    let cx = CallContext::new(around.clock.clone(), limits::ACTION_START);
    let ended = cx.wait(started.child.wait()).await;
    started.child.terminate().await;
    match ended {
        Ok(true) => None,
        Ok(false) => Some(missing(&python)),
        Err(stopped) => Some(format!("`{}` does not say whether it has `rasa-sdk`: {stopped}", python.display())),
    }
}

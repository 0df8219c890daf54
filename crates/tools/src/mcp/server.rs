//! One server as a tool source: the handle of the task that [`owner`](super::owner) describes.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use indexmap::IndexMap;
use segue_engine::project::{McpServerDef, McpTransport, OAuthDef};
use serde_json::{Map, Value as Json};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, oneshot, watch},
};
use tokio_util::sync::CancellationToken;

use super::{
    auth::Tokens,
    call::CallRequest,
    client_handler::{McpClientHandler, ProgressRegistry},
    elicitation::{AllowedRequests, InteractiveCalls},
    session_manager::SessionManager,
};
use crate::{EffectClass, SourceError, SourceStatus, ToolCatalog, ToolSource};
use segue_base::{clock::Clock, context::CallContext, http::HttpClients, limits, secret::Secret};

/// The dependencies of a server.
#[derive(Clone)]
pub struct McpEnvironment {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The pooled HTTP client.
    pub http: HttpClients,
    /// The path of the running program, which `command: segue` starts.
    pub program: PathBuf,
    /// The working directory of child processes: the project folder.
    pub directory: Option<PathBuf>,
    /// The environment of this process; children get only allowed variables of it.
    pub environment: Arc<[(String, String)]>,
    /// The folder of logins; `None`: no login is possible.
    pub logins: Option<PathBuf>,
}

/// Opens both directions to a server in this process: its output and its input.
pub type Pipes = Arc<dyn Fn() -> (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>) + Send + Sync>;

/// The transport of a server.
pub(super) enum ServerTransport {
    Http { url: String },
    Stdio { command: String, args: Vec<String>, env: Vec<(String, Secret)> },
    Pipes(Pipes),
}

/// The state shared by the handle, its tools and the owner task.
pub(super) struct Shared {
    pub(super) name: Arc<str>,
    pub(super) reach: ServerTransport,
    pub(super) headers: Vec<(String, Secret)>,
    /// The `oauth` settings of the entry, and the token source after the first connection.
    oauth: Option<OAuthDef>,
    tokens: OnceLock<Result<Arc<Tokens>, String>>,
    /// The `_meta` object of every call.
    pub(super) meta: Map<String, Json>,
    pub(super) connect_timeout: Duration,
    pub(super) tool_timeout: Option<Duration>,
    pub(super) tool_timeout_total: Option<Duration>,
    pub(super) protocol_version: Option<String>,
    pub(super) offers: Vec<String>,
    pub(super) trust_annotations: bool,
    pub(super) effects: IndexMap<String, EffectClass>,
    pub(super) around: McpEnvironment,
    pub(super) listener: McpClientHandler,
    pub(super) status: Mutex<SourceStatus>,
    /// The latest list; valid while its version equals that of the listener.
    pub(super) catalog: Mutex<Option<ToolCatalog>>,
    commands: mpsc::Sender<Command>,
    /// The receiver of commands, until the owner task takes it at the first command.
    unowned: Mutex<Option<mpsc::Receiver<Command>>>,
    /// Cancelled when the server is to be closed.
    pub(super) closing: CancellationToken,
    /// Cancelled when the owner task has ended.
    pub(super) closed: CancellationToken,
}

/// A command for the owner task.
pub(super) enum Command {
    List { reply: oneshot::Sender<Result<ToolCatalog, SourceError>> },
    Call(Box<CallRequest>),
}

impl Shared {
    /// Sends a command to the owner task, which the first command starts. Waits while the queue is full.
    ///
    /// # Errors
    /// The server is closed.
    pub(super) async fn send(self: &Arc<Self>, command: Command) -> Result<(), Closed> {
        let unowned = self.unowned.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(commands) = unowned {
            tokio::spawn(SessionManager::new(self.clone()).run(commands));
        }
        self.commands.send(command).await.map_err(|_| Closed)
    }

    pub(super) fn set_status(&self, status: SourceStatus) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// The token source of this server, shared by all its sessions.
    ///
    /// # Errors
    /// A text for operators: the entry is incomplete.
    pub(super) fn tokens(&self) -> Result<Option<Arc<Tokens>>, String> {
        let (Some(oauth), ServerTransport::Http { url }) = (&self.oauth, &self.reach) else { return Ok(None) };
        let made = || {
            let (clock, logins) = (self.around.clock.clone(), self.around.logins.clone());
            Tokens::new((&self.name, url), oauth, &self.around.http, clock, logins).map(Arc::new)
        };
        self.tokens.get_or_init(made).clone().map(Some)
    }

    /// An error of this source.
    pub(super) fn error(&self, reason: impl Into<String>) -> SourceError {
        SourceError { source_name: self.name.to_string(), reason: reason.into() }
    }

    fn cached(&self) -> Option<ToolCatalog> {
        let catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        let version = *self.listener.version.borrow();
        catalog.as_ref().filter(|catalog| catalog.version == version).cloned()
    }
}

/// The server was closed permanently.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closed;

/// One MCP server. It connects at the first request; dropping it ends its session and its process.
pub struct McpServer {
    shared: Arc<Shared>,
}

impl McpServer {
    /// The server of an entry in `endpoints.yml`.
    pub fn new(def: &McpServerDef, around: McpEnvironment) -> Self {
        let secret = |(name, value): &(String, String)| (name.clone(), Secret::new(value.clone()));
        let reach = match &def.transport {
            McpTransport::Http { url } => ServerTransport::Http { url: url.clone() },
            McpTransport::Stdio { command, args, env } => ServerTransport::Stdio {
                command: command.clone(),
                args: args.clone(),
                env: env.iter().map(secret).collect(),
            },
        };
        Self::build(def, reach, around)
    }

    /// A server in this process, connected by pipes; the entry has its name and settings.
    pub fn in_process(def: &McpServerDef, pipes: Pipes, around: McpEnvironment) -> Self {
        Self::build(def, ServerTransport::Pipes(pipes), around)
    }

    fn build(def: &McpServerDef, reach: ServerTransport, around: McpEnvironment) -> Self {
        let (commands, unowned) = mpsc::channel(limits::MCP_QUEUE);
        let effect = |class: &str| EffectClass::from_name(class).unwrap_or_default();
        let allowed = AllowedRequests { elicitation: !def.elicitation.is_empty(), sampling: def.sampling };
        let listener = McpClientHandler {
            server: def.name.as_str().into(),
            version: watch::Sender::new(0),
            watchers: ProgressRegistry::default(),
            askable: InteractiveCalls::default(),
            allowed,
            clock: around.clock.clone(),
        };
        let headers = def.headers.iter().map(|(name, value)| (name.clone(), Secret::new(value.clone())));
        let shared = Shared {
            name: def.name.as_str().into(),
            reach,
            headers: headers.collect(),
            oauth: def.oauth.clone(),
            tokens: OnceLock::new(),
            meta: def.meta_static.clone(),
            connect_timeout: def.connect_timeout.unwrap_or(limits::MCP_INITIALISE),
            tool_timeout: def.tool_timeout,
            tool_timeout_total: def.tool_timeout_total,
            protocol_version: def.protocol_version.clone(),
            offers: def.offers.clone(),
            trust_annotations: def.trust_annotations,
            effects: def.effects.iter().map(|(tool, class)| (tool.clone(), effect(class))).collect(),
            around,
            listener,
            status: Mutex::new(SourceStatus::Unknown),
            catalog: Mutex::new(None),
            commands,
            unowned: Mutex::new(Some(unowned)),
            closing: CancellationToken::new(),
            closed: CancellationToken::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    async fn listed(&self, cx: &CallContext) -> Result<ToolCatalog, SourceError> {
        if let Some(catalog) = self.shared.cached() {
            return Ok(catalog);
        }
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.shared.send(Command::List { reply }).await.ok()?;
            answer.await.ok()
        };
        match cx.wait(asked).await {
            Ok(Some(result)) => result,
            Ok(None) => Err(self.shared.error("the server is closed")),
            Err(stopped) => Err(self.shared.error(format!("its tools were not listed in time: {stopped}"))),
        }
    }

    async fn ended(&self, cx: &CallContext) {
        self.shared.closing.cancel();
        let never_began = self.shared.unowned.lock().unwrap_or_else(PoisonError::into_inner).take().is_some();
        if !never_began {
            // After the deadline the owner task continues closing.
            let _ = cx.wait(self.shared.closed.cancelled()).await;
        }
    }
}

impl ToolSource for McpServer {
    fn name(&self) -> &str {
        &self.shared.name
    }
    fn list<'a>(&'a self, cx: &'a CallContext) -> BoxFuture<'a, Result<ToolCatalog, SourceError>> {
        Box::pin(self.listed(cx))
    }
    fn changes(&self) -> watch::Receiver<u64> {
        self.shared.listener.version.subscribe()
    }
    fn status(&self) -> SourceStatus {
        self.shared.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    fn close<'a>(&'a self, cx: &'a CallContext) -> BoxFuture<'a, ()> {
        Box::pin(self.ended(cx))
    }
}

impl Drop for McpServer {
    fn drop(&mut self) {
        self.shared.closing.cancel();
    }
}

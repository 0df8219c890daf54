//! One MCP server as a tool source. It sends commands to its [session manager](super::session_manager).

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
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
    elicitation::{AllowedRequests, CallsInWork},
    session_manager::SessionManager,
};
use crate::{EffectClass, Health, SourceError, ToolCatalog, ToolSource};
use segue_base::{clock::Clock, context::CallContext, http::HttpClients, limits, secret::Secret};

/// What all MCP servers of a process share: clock, HTTP client, and the settings of child processes.
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
    /// The environment variables of this process; a child gets only those on a list of harmless ones.
    pub variables: Arc<[(String, String)]>,
    /// The folder of stored logins; without one, no login is possible.
    pub logins: Option<PathBuf>,
}

impl McpEnvironment {
    /// An environment without settings for child processes and without stored logins. `program` is the path of the running program.
    pub fn new(clock: Arc<dyn Clock>, program: impl Into<PathBuf>) -> Self {
        Self {
            clock,
            http: HttpClients::new(),
            program: program.into(),
            directory: None,
            variables: Arc::from([]),
            logins: None,
        }
    }
}

/// Opens both directions to a server in this process: its output and its input.
pub type Pipes = Arc<dyn Fn() -> (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>) + Send + Sync>;

/// The transport of a server.
pub(super) enum ServerTransport {
    Http { url: String },
    Stdio { command: String, args: Vec<String>, env: Vec<(String, Secret)> },
    Pipes(Pipes),
}

/// The state that [`McpServer`], its tools and its session manager share.
pub(super) struct ServerState {
    pub(super) name: Arc<str>,
    pub(super) transport: ServerTransport,
    pub(super) headers: Vec<(String, Secret)>,
    /// The `oauth` settings of the entry.
    oauth: Option<OAuthDef>,
    /// The token source, created at the first connection; an error if the settings are incomplete.
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
    pub(super) environment: McpEnvironment,
    pub(super) handler: McpClientHandler,
    pub(super) status: Mutex<Health>,
    /// The latest catalogue; valid while its version equals that of the handler.
    pub(super) catalog: Mutex<Option<ToolCatalog>>,
    commands: mpsc::Sender<Command>,
    /// The receiver of commands, until the session manager takes it at the first command.
    command_receiver: Mutex<Option<mpsc::Receiver<Command>>>,
    /// Cancelled when the server is to be closed.
    pub(super) closing: CancellationToken,
    /// Cancelled when the session manager has ended.
    pub(super) closed: CancellationToken,
}

/// A command for the session manager.
pub(super) enum Command {
    List { reply: oneshot::Sender<Result<ToolCatalog, SourceError>> },
    Call(Box<CallRequest>),
}

impl ServerState {
    /// Sends a command to the session manager, which the first command starts. Waits while the queue is full.
    ///
    /// # Errors
    /// The server is closed.
    pub(super) async fn send(self: &Arc<Self>, command: Command) -> Result<(), ServerClosed> {
        let receiver = self.command_receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(commands) = receiver {
            tokio::spawn(SessionManager::new(self.clone()).run(commands));
        }
        self.commands.send(command).await.map_err(|_| ServerClosed)
    }

    pub(super) fn set_status(&self, status: Health) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// The token source of this server, which all its sessions share; `None` without `oauth` settings.
    ///
    /// # Errors
    /// A text for operators: the entry is incomplete.
    pub(super) fn tokens(&self) -> Result<Option<Arc<Tokens>>, String> {
        let (Some(oauth), ServerTransport::Http { url }) = (&self.oauth, &self.transport) else { return Ok(None) };
        let create = || {
            let (clock, logins) = (self.environment.clock.clone(), self.environment.logins.clone());
            Tokens::new((&self.name, url), oauth, &self.environment.http, clock, logins).map(Arc::new)
        };
        self.tokens.get_or_init(create).clone().map(Some)
    }

    /// An error of this source.
    pub(super) fn error(&self, reason: impl Into<String>) -> SourceError {
        SourceError { source_name: self.name.to_string(), reason: reason.into() }
    }

    /// The latest catalogue, unless the list may have changed since.
    fn cached_catalog(&self) -> Option<ToolCatalog> {
        let catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        let version = *self.handler.version.borrow();
        catalog.as_ref().filter(|catalog| catalog.version == version).cloned()
    }
}

/// The server was closed; it cannot be opened again.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerClosed;

/// One MCP server. It connects at the first request; dropping it ends its session and its process.
pub struct McpServer {
    state: Arc<ServerState>,
}

impl McpServer {
    /// The server of an entry in `endpoints.yml`.
    pub fn new(def: &McpServerDef, environment: McpEnvironment) -> Self {
        let secret = |(name, value): &(String, String)| (name.clone(), Secret::new(value.clone()));
        let transport = match &def.transport {
            McpTransport::Http { url } => ServerTransport::Http { url: url.clone() },
            McpTransport::Stdio { command, args, env } => ServerTransport::Stdio {
                command: command.clone(),
                args: args.clone(),
                env: env.iter().map(secret).collect(),
            },
        };
        Self::build(def, transport, environment)
    }

    /// A server in this process, connected by pipes. The entry contains its name and settings; its transport is ignored.
    pub fn in_process(def: &McpServerDef, pipes: Pipes, environment: McpEnvironment) -> Self {
        Self::build(def, ServerTransport::Pipes(pipes), environment)
    }

    fn build(def: &McpServerDef, transport: ServerTransport, environment: McpEnvironment) -> Self {
        let (commands, command_receiver) = mpsc::channel(limits::MCP_QUEUE);
        let effect = |class: &str| EffectClass::from_name(class).unwrap_or_default();
        let allowed = AllowedRequests { elicitation: !def.elicitation.is_empty(), sampling: def.sampling };
        let handler = McpClientHandler {
            server: def.name.as_str().into(),
            version: watch::Sender::new(0),
            progress: ProgressRegistry::default(),
            calls: CallsInWork::default(),
            allowed,
            clock: environment.clock.clone(),
        };
        let headers = def.headers.iter().map(|(name, value)| (name.clone(), Secret::new(value.clone())));
        let state = ServerState {
            name: def.name.as_str().into(),
            transport,
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
            environment,
            handler,
            status: Mutex::new(Health::Unknown),
            catalog: Mutex::new(None),
            commands,
            command_receiver: Mutex::new(Some(command_receiver)),
            closing: CancellationToken::new(),
            closed: CancellationToken::new(),
        };
        Self { state: Arc::new(state) }
    }

    async fn list_tools(&self, cx: &CallContext) -> Result<ToolCatalog, SourceError> {
        if let Some(catalog) = self.state.cached_catalog() {
            return Ok(catalog);
        }
        let (reply, catalog) = oneshot::channel();
        let list = async {
            self.state.send(Command::List { reply }).await.ok()?;
            catalog.await.ok()
        };
        match cx.wait(list).await {
            Ok(Some(result)) => result,
            Ok(None) => Err(self.state.error("the server is closed")),
            Err(error) => Err(self.state.error(format!("its tools were not listed in time: {error}"))),
        }
    }

    async fn close_session(&self, cx: &CallContext) {
        self.state.closing.cancel();
        let is_unused = self.state.command_receiver.lock().unwrap_or_else(PoisonError::into_inner).take().is_some();
        if !is_unused {
            // After the deadline the session manager continues closing.
            let _ = cx.wait(self.state.closed.cancelled()).await;
        }
    }
}

#[async_trait]
impl ToolSource for McpServer {
    fn name(&self) -> &str {
        &self.state.name
    }
    async fn list(&self, cx: &CallContext) -> Result<ToolCatalog, SourceError> {
        self.list_tools(cx).await
    }
    fn changes(&self) -> watch::Receiver<u64> {
        self.state.handler.version.subscribe()
    }
    fn status(&self) -> Health {
        self.state.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    async fn close(&self, cx: &CallContext) {
        self.close_session(cx).await
    }
}

impl Drop for McpServer {
    fn drop(&mut self) {
        self.state.closing.cancel();
    }
}

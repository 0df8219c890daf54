//! The client for one remote agent: it fetches the agent card, selects an interface, and calls the operations.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use segue_base::{
    clock::{Clock, Deadline},
    context::CallContext,
    failpoint,
    health::Health,
    http::{self, HttpClients, SsrfGuard},
    json::from_slice_lossy,
    limits,
    outbound_auth::OutboundCredentials,
};
use serde_json::{Map, Value as Json, json};

#[cfg(feature = "grpc")]
use super::card::ProtocolBinding;
use super::{
    A2aClient, FirstResponse, SendReceipt, SendRequest, TaskListener,
    card::{AgentCard, AgentInterface, WELL_KNOWN},
    decode, encode,
    error::{A2aError, A2aErrorKind},
    events::StreamItem,
    follow,
    model::{Message, Part, Role, Task, Update},
    transport::{A2aConnection, AgentResponse, Request, read_body, wait_error},
    version::{A2aVersion, A2aWireFormat, Operation, codes},
};

/// Where the agent card comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum CardLocation {
    /// A file of the project. Its content is trusted like other configuration.
    File(Json),
    /// A URL. For a host without a path, the well-known paths are tried.
    Address(String),
}

/// The dependencies of a remote agent.
#[derive(Clone)]
pub struct A2aEnvironment {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The HTTP clients for configured addresses.
    pub http: HttpClients,
}

/// The configuration of a remote agent.
pub struct RemoteAgentConfig {
    /// Its card.
    pub card: CardLocation,
    /// The credentials for its requests.
    pub credentials: OutboundCredentials,
    /// Hosts that may receive the credentials, besides the host of the card.
    pub credential_hosts: Vec<String>,
    /// The timeout of one request, up to its first response.
    pub timeout: Duration,
    /// Attempts to fetch the card.
    pub card_attempts: u32,
    /// Whether to use streaming, if the agent supports it.
    pub streaming: bool,
    /// The first pause between two polls.
    pub polling_initial_delay: Duration,
    /// The longest time to poll a task.
    pub max_polling_time: Duration,
    /// Whether to request push notifications for tasks that outlast a turn, if the agent supports them.
    pub push_notifications: bool,
}

/// A client for one remote agent.
pub struct RemoteAgent {
    pub(super) config: RemoteAgentConfig,
    credentials: Arc<OutboundCredentials>,
    environment: A2aEnvironment,
    state: Mutex<State>,
    /// The HTTP client for hosts that only the card names: it checks every address for SSRF.
    guarded_client: OnceLock<Result<reqwest::Client, http::ClientBuildError>>,
    /// The same for HTTP/2 (gRPC).
    #[cfg(feature = "grpc")]
    guarded_http2_client: OnceLock<Result<reqwest::Client, http::ClientBuildError>>,
}

struct State {
    card: Option<(Arc<AgentCard>, Deadline)>,
    health: Health,
}

impl RemoteAgent {
    /// Creates the client. It does not connect yet.
    pub fn new(mut config: RemoteAgentConfig, environment: A2aEnvironment) -> Self {
        let credentials = Arc::new(std::mem::replace(&mut config.credentials, OutboundCredentials::None));
        let state = Mutex::new(State { card: None, health: Health::Unknown });
        Self {
            config,
            credentials,
            environment,
            state,
            guarded_client: OnceLock::new(),
            #[cfg(feature = "grpc")]
            guarded_http2_client: OnceLock::new(),
        }
    }

    /// The health according to the latest attempt to fetch the card.
    pub fn health(&self) -> Health {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).health.clone()
    }

    /// The agent card; fetched if there is none or it is too old.
    ///
    /// # Errors
    /// [`A2aError`] of the kind [`A2aErrorKind::Card`].
    pub async fn card(&self, cx: &CallContext) -> Result<Arc<AgentCard>, A2aError> {
        {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((card, until)) = &state.card
                && self.environment.clock.elapsed() < until.0
            {
                return Ok(card.clone());
            }
        }
        let read = self.fetch_card(cx).await;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(card) => {
                if let Some(note) = &card.note {
                    tracing::info!(agent = %card.name, "{note}");
                }
                if let Some(interface) = card.interfaces.first().filter(|one| !self.may_send_credentials(one))
                    && !matches!(*self.credentials, OutboundCredentials::None)
                {
                    let host =
                        http::parse_endpoint_url(&interface.url).ok().and_then(|url| url.host_str().map(str::to_owned));
                    tracing::warn!(
                        agent = %card.name,
                        "the credentials are not sent: the card names {}, which is another host; list it under `auth: {{hosts: […]}}` if it may receive them",
                        host.unwrap_or_default()
                    );
                }
                let card = Arc::new(card);
                state.card = Some((card.clone(), self.environment.clock.deadline(limits::A2A_CARD_MAX_AGE)));
                state.health = Health::Up;
                Ok(card)
            }
            Err(reason) => {
                state.health = Health::Down { reason: reason.clone() };
                Err(A2aError::new(A2aErrorKind::Card, reason))
            }
        }
    }

    /// Fetches the card if necessary, and returns the health.
    pub async fn refresh_health(&self, cx: &CallContext) -> Health {
        let _ = self.card(cx).await;
        self.health()
    }

    fn drop_cached_card(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).card = None;
    }

    async fn fetch_card(&self, cx: &CallContext) -> Result<AgentCard, String> {
        let address = match &self.config.card {
            CardLocation::File(json) => return AgentCard::from_json(json).map_err(|why| format!("the card {why}")),
            CardLocation::Address(address) => address,
        };
        let mut pause = limits::A2A_CARD_PAUSE;
        let mut last = String::new();
        for attempt in 0..self.config.card_attempts.max(1) {
            if attempt > 0 {
                let until = self.environment.clock.deadline(pause);
                cx.wait(self.environment.clock.sleep(until)).await.map_err(|stopped| format!("{last}; {stopped}"))?;
                pause = (pause * 2).min(limits::A2A_PAUSE_MAX);
            }
            match self.fetch_card_once(address, cx).await {
                Ok(card) => return Ok(card),
                Err(reason) => last = reason,
            }
        }
        Err(last)
    }

    async fn fetch_card_once(&self, address: &str, cx: &CallContext) -> Result<AgentCard, String> {
        let base = http::parse_endpoint_url(address)?;
        // For a host without a path the well-known paths are tried.
        let places: Vec<String> = if matches!(base.path(), "" | "/") {
            WELL_KNOWN.iter().filter_map(|path| base.join(path).ok()).map(String::from).collect()
        } else {
            vec![base.to_string()]
        };
        let mut missing = String::new();
        for place in places {
            match self.fetch_json(&place, cx).await {
                Ok(json) => {
                    let place = http::redact_url(&place);
                    let card = AgentCard::from_json(&json).map_err(|why| format!("the card at {place} {why}"))?;
                    return reachable_interfaces(card, &base).map_err(|why| format!("the card at {place} {why}"));
                }
                Err((404 | 410, reason)) => missing = reason,
                Err((_, reason)) => return Err(reason),
            }
        }
        Err(missing)
    }

    /// Fetches JSON from a URL. Cards are public by convention, so credentials are sent only after a 401 or 403.
    async fn fetch_json(&self, place: &str, cx: &CallContext) -> Result<Json, (u16, String)> {
        let shown = http::redact_url(place);
        let failed = |reason: String| (0, format!("the card at {shown}: {reason}"));
        let client = self.environment.http.client().map_err(|error| failed(error.to_string()))?;
        let cx = cx.with_timeout(self.config.timeout);
        let mut header = None;
        loop {
            let mut request = client.get(place).header("accept", "application/json").header("A2A-Version", "1.0");
            if let Some((name, value)) = &header {
                let value: &segue_base::secret::Secret = value;
                request = request.header::<&String, &str>(name, value.expose());
            }
            let response = match cx.wait(request.send()).await {
                Ok(Ok(response)) => response,
                Ok(Err(error)) => return Err(failed(error.without_url().to_string())),
                Err(stopped) => return Err(failed(stopped.to_string())),
            };
            let status = response.status().as_u16();
            if matches!(status, 401 | 403) && header.is_none() {
                let said =
                    cx.wait(self.credentials.header(None)).await.map_err(|stopped| failed(stopped.to_string()))?;
                header = said.map_err(|why| failed(why.to_string()))?;
                if header.is_some() {
                    continue;
                }
            }
            if !response.status().is_success() {
                return Err((status, format!("the card at {shown}: status {status}")));
            }
            let body = cx.wait(read_body(response)).await.map_err(|stopped| failed(stopped.to_string()))?;
            let body = body.map_err(|error| failed(error.message))?;
            return from_slice_lossy(&body)
                .map(|(card, _)| card)
                .map_err(|error| failed(format!("it is not JSON: {error}")));
        }
    }

    pub(super) async fn connect(&self, cx: &CallContext) -> Result<(A2aConnection, Arc<AgentCard>), A2aError> {
        let card = self.card(cx).await?;
        let interface = card.interfaces.first().cloned();
        let interface = interface.ok_or_else(|| A2aError::new(A2aErrorKind::Card, "the card has no interface"))?;
        let client =
            self.client_for(&interface).map_err(|error| A2aError::new(A2aErrorKind::Unreachable, error.to_string()))?;
        if let (Some(guard), Ok(to)) = (self.ssrf_guard_for(&interface), http::parse_endpoint_url(&interface.url)) {
            let unreachable = |why: String| A2aError::new(A2aErrorKind::Unreachable, why);
            let checked =
                cx.wait(guard.check(&to)).await.map_err(|stopped| wait_error(stopped, "the address is looked up"))?;
            checked.map_err(unreachable)?;
        }
        let credentials = if self.may_send_credentials(&interface) {
            self.credentials.clone()
        } else {
            Arc::new(OutboundCredentials::None)
        };
        let connection = A2aConnection { client, credentials, interface };
        Ok((connection, card))
    }

    /// Whether credentials may be sent to an interface: at the host of the card, and at the configured hosts. A card in
    /// a project file is trusted; a fetched one is not.
    pub(super) fn may_send_credentials(&self, interface: &AgentInterface) -> bool {
        let host = |url: &str| http::parse_endpoint_url(url).ok()?.host_str().map(str::to_ascii_lowercase);
        let CardLocation::Address(from) = &self.config.card else { return true };
        let (own, to) = (host(from), host(&interface.url));
        to.is_some()
            && (own == to || self.config.credential_hosts.iter().any(|named| Some(named.to_ascii_lowercase()) == to))
    }

    /// The SSRF guard for a host that only the card names; `None` for a configured host.
    fn ssrf_guard_for(&self, interface: &AgentInterface) -> Option<SsrfGuard> {
        let from = match &self.config.card {
            CardLocation::File(_) => None,
            CardLocation::Address(from) => http::parse_endpoint_url(from).ok(),
        }?;
        let to = http::parse_endpoint_url(&interface.url).ok()?;
        let is_elsewhere = from.host_str() != to.host_str();
        is_elsewhere.then(|| SsrfGuard::for_server(&from, []).with_proxy_of(&self.environment.http))
    }

    /// The shared client for configured hosts; for a host that only the card names, a client that checks every address
    /// before it connects.
    fn client_for(&self, interface: &AgentInterface) -> Result<reqwest::Client, http::ClientBuildError> {
        let guard = self.ssrf_guard_for(interface);
        #[cfg(feature = "grpc")]
        if interface.binding == ProtocolBinding::Grpc {
            return match guard {
                Some(guard) => self.guarded_http2_client.get_or_init(|| guard.http2()).clone(),
                None => self.environment.http.http2().cloned(),
            };
        }
        match guard {
            Some(guard) => self.guarded_client.get_or_init(|| guard.client()).clone(),
            None => self.environment.http.client().cloned(),
        }
    }

    /// Gets a task.
    ///
    /// # Errors
    /// [`A2aError`].
    pub async fn task(&self, id: &str, history: u32, cx: &CallContext) -> Result<Task, A2aError> {
        let (connection, _) = self.connect(cx).await?;
        let body = Map::from_iter([("historyLength".to_owned(), Json::from(history))]);
        let request = Request { operation: Operation::Get, task: Some(id.to_owned()), body, id: id.to_owned() };
        let cx = cx.with_timeout(self.config.timeout);
        match connection.call(&request, &cx).await? {
            AgentResponse::Complete(json) => {
                // Some servers wrap the task.
                let inner = json.get("task").filter(|task| task.is_object()).unwrap_or(&json);
                decode::task(inner, connection.interface.wire_format())
                    .map_err(|why| A2aError::new(A2aErrorKind::InvalidResponse, why))
            }
            AgentResponse::Stream(_) => {
                Err(A2aError::new(A2aErrorKind::InvalidResponse, "a stream where a task was asked for"))
            }
        }
    }

    /// Finds the task that received a message, after an interruption: the task the message names, or one of its
    /// context. `None` if the agent certainly has not received it, which only the history of the named task can show: an
    /// agent may answer a message that names no task without a task.
    ///
    /// # Errors
    /// [`A2aError`] if this cannot be determined.
    pub async fn find_task_for_message(&self, message: &Message, cx: &CallContext) -> Result<Option<Task>, A2aError> {
        let unknown = |what: &str| {
            A2aError::new(A2aErrorKind::OutcomeUnknown, format!("{what}, so it is unknown whether the message arrived"))
        };
        if let Some(id) = &message.task_id {
            let task = self.task(id, limits::A2A_HISTORY, cx).await?;
            if task.history_contains(&message.id) {
                return Ok(Some(task));
            }
            // The history is optional in the protocol, and it may contain the agent's messages only.
            return match task.history.iter().any(|entry| entry.role == Role::User) {
                true => Ok(None),
                false => Err(unknown("the agent returns no history of the task with messages that it received")),
            };
        }
        let (connection, _) = self.connect(cx).await?;
        let Some(context) = message.context_id.as_ref().filter(|_| connection.interface.version == A2aVersion::V1_0)
        else {
            return Err(A2aError::new(A2aErrorKind::OutcomeUnknown, "it may have been sent before an interruption"));
        };
        let mut page = String::new();
        for _ in 0..limits::A2A_TASK_PAGES {
            let mut body = Map::from_iter([
                ("contextId".to_owned(), Json::from(context.as_str())),
                ("historyLength".to_owned(), Json::from(limits::A2A_HISTORY)),
            ]);
            if !page.is_empty() {
                body.insert("pageToken".to_owned(), Json::from(page.as_str()));
            }
            let request = Request { operation: Operation::List, task: None, body, id: message.id.clone() };
            let AgentResponse::Complete(json) =
                connection.call(&request, &cx.with_timeout(self.config.timeout)).await?
            else {
                return Err(A2aError::new(A2aErrorKind::InvalidResponse, "a stream where tasks were asked for"));
            };
            let tasks = json.get("tasks").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
            let mut tasks = tasks.iter().filter_map(|task| decode::task(task, connection.interface.wire_format()).ok());
            if let Some(task) = tasks.find(|task| task.history_contains(&message.id)) {
                return Ok(Some(task));
            }
            match json.get("nextPageToken").and_then(Json::as_str) {
                None | Some("") => break,
                Some(next) => next.clone_into(&mut page),
            }
        }
        Err(unknown("no task of the agent has the message, and the agent may have answered it without a task"))
    }

    async fn send_message(&self, outgoing: &SendRequest, cx: &CallContext) -> Result<SendReceipt, A2aError> {
        let (connection, card) = self.connect(cx).await?;
        let streaming = card.streaming && self.config.streaming;
        let request = Request {
            operation: if streaming { Operation::Stream } else { Operation::Send },
            task: None,
            body: self.body(outgoing, &connection.interface, card.push_notifications),
            id: outgoing.message.id.clone(),
        };
        let head = cx.with_timeout(self.config.timeout);
        let answer = match connection.call(&request, &head).await {
            Err(error) => {
                if matches!(
                    error.kind,
                    A2aErrorKind::Status(404 | 410) | A2aErrorKind::Protocol(codes::VERSION_NOT_SUPPORTED)
                ) {
                    // The agent may have moved: the next call fetches the card again.
                    self.drop_cached_card();
                }
                return Err(error);
            }
            Ok(answer) => answer,
        };
        failpoint::hit("C17");
        let format = connection.interface.wire_format();
        let (update, live) = match answer {
            AgentResponse::Complete(json) => (decode_update(&json, format)?, None),
            AgentResponse::Stream(mut stream) => loop {
                match head.wait(stream.next()).await {
                    Ok(Ok(StreamItem::Update(update))) => break (*update, Some(stream)),
                    Ok(Ok(StreamItem::Alive)) => {}
                    Ok(Ok(StreamItem::End)) => {
                        return Err(A2aError::new(
                            A2aErrorKind::ConnectionLost,
                            "the stream ended before the first event",
                        ));
                    }
                    Ok(Err(error)) => return Err(error),
                    Err(stopped) => return Err(wait_error(stopped, "no event was received")),
                }
            },
        };
        let first = FirstResponse::from_update(update)
            .ok_or_else(|| A2aError::new(A2aErrorKind::InvalidResponse, "the response has no content"))?;
        Ok(SendReceipt { first, live })
    }

    /// The parameters of a message.
    fn body(&self, outgoing: &SendRequest, interface: &AgentInterface, push_notifications: bool) -> Map<String, Json> {
        let format = interface.wire_format();
        let modes = ["text/plain", "application/json", "text"];
        let mut how = Map::from_iter([("acceptedOutputModes".to_owned(), json!(modes))]);
        // The agent responds as soon as the task has an id, so that a lost connection loses nothing.
        match interface.version {
            A2aVersion::V0_3 => how.insert("blocking".into(), Json::Bool(false)),
            A2aVersion::V1_0 => how.insert("returnImmediately".into(), Json::Bool(true)),
        };
        if let Some(url) = outgoing.report_to.as_ref().filter(|_| push_notifications && self.config.push_notifications)
        {
            let key = match format {
                A2aWireFormat::JsonRpcV0_3 => "pushNotificationConfig",
                A2aWireFormat::ProtoJsonV0_3 => "pushNotification",
                A2aWireFormat::ProtoJsonV1_0 => "taskPushNotificationConfig",
            };
            how.insert(key.into(), json!({"url": url}));
        }
        Map::from_iter([
            ("message".to_owned(), encode::message(&outgoing.message, format)),
            ("configuration".to_owned(), Json::Object(how)),
        ])
    }

    async fn cancel_task(&self, task: &str, cx: &CallContext) -> Result<(), A2aError> {
        let (connection, _) = self.connect(cx).await?;
        let request = Request {
            operation: Operation::Cancel,
            task: Some(task.to_owned()),
            body: Map::new(),
            id: task.to_owned(),
        };
        connection.call(&request, &cx.with_timeout(self.config.timeout)).await.map(|_| ())
    }

    /// Sends a greeting as a health check that starts a task at the remote agent. The content of the response does not
    /// matter.
    ///
    /// # Errors
    /// [`A2aError`] if the agent does not respond.
    pub async fn send_test_message(&self, id: &str, cx: &CallContext) -> Result<(), A2aError> {
        let mut message = Message::text(Role::User, id, "");
        message.parts = vec![Part::Text("Hello".to_owned())];
        self.send_message(&SendRequest { message, report_to: None }, cx).await.map(|_| ())
    }
}

fn decode_update(json: &Json, format: A2aWireFormat) -> Result<Update, A2aError> {
    decode::update(json, format)
        .map_err(|why| A2aError::new(A2aErrorKind::InvalidResponse, format!("the response is {why}")))
}

/// Removes interfaces that a fetched card may not name: it may name addresses of its own host, and other addresses only
/// in the public network.
fn reachable_interfaces(mut card: AgentCard, from: &reqwest::Url) -> Result<AgentCard, String> {
    let guard = SsrfGuard::for_server(from, []);
    let named: Vec<String> = card.interfaces.iter().map(|interface| interface.url.clone()).collect();
    card.interfaces.retain(|interface| {
        http::parse_endpoint_url(&interface.url).is_ok_and(|url| guard.check_without_dns(&url).is_ok())
    });
    if card.interfaces.is_empty() {
        return Err(format!("names only {}, which is neither at its own host nor a public address", named.join(", ")));
    }
    Ok(card)
}

impl A2aClient for RemoteAgent {
    fn send<'a>(
        &'a self,
        outgoing: &'a SendRequest,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<SendReceipt, A2aError>> {
        Box::pin(self.send_message(outgoing, cx))
    }
    fn follow<'a>(
        &'a self,
        accepted: SendReceipt,
        listener: &'a mut dyn TaskListener,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<Task, A2aError>> {
        Box::pin(follow::follow(self, accepted, listener, cx))
    }
    fn cancel<'a>(&'a self, task: &'a str, cx: &'a CallContext) -> BoxFuture<'a, Result<(), A2aError>> {
        Box::pin(self.cancel_task(task, cx))
    }
}

impl std::fmt::Debug for RemoteAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("health", &self.health()).finish_non_exhaustive()
    }
}

//! One remote agent: its card, and what can be asked of it.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use segue_base::{
    auth::Credentials,
    clock::{Clock, Deadline},
    context::CallContext,
    failpoint,
    health::Health,
    http::{self, HttpClients, SsrfGuard},
    limits,
};
use serde_json::{Map, Value as Json, json};

#[cfg(feature = "grpc")]
use super::card::ProtocolBinding;
use super::{
    A2aClient, FirstResponse, SendReceipt, SendRequest, TaskListener,
    card::{AgentCard, AgentInterface, WELL_KNOWN},
    dialect::{A2aVersion, A2aWireFormat, Operation, codes},
    events::StreamItem,
    fault::{A2aError, A2aErrorKind},
    follow,
    model::{Message, Part, Task, Update},
    reading,
    wire::{Answered, Request, Wire, stopped_as, whole},
    writing,
};

/// Where a card comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum CardLocation {
    /// A file of the project; what it says counts as configured.
    File(Json),
    /// An address; a host alone stands for its well-known paths.
    Address(String),
}

/// What a remote agent is made of.
#[derive(Clone)]
pub struct A2aEnvironment {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// For addresses that were configured.
    pub http: HttpClients,
}

/// How a remote agent is reached.
pub struct Access {
    /// Its card.
    pub card: CardLocation,
    /// Who we are.
    pub credentials: Credentials,
    /// Hosts beside that of a fetched card that are told who we are.
    pub hosts: Vec<String>,
    /// Time for one request and for its first answer.
    pub timeout: Duration,
    /// Tries to get the card.
    pub tries: u32,
    /// Whether answers come in pieces, where the agent can.
    pub streams: bool,
    /// The first pause between two questions.
    pub first_pause: Duration,
    /// The longest wait for a task by questions.
    pub patience: Duration,
    /// Whether it may report on tasks that outlast a turn, where it can.
    pub reports: bool,
}

/// One remote agent.
pub struct Remote {
    pub(super) access: Access,
    credentials: Arc<Credentials>,
    around: A2aEnvironment,
    state: Mutex<State>,
    /// For hosts that only the card names.
    guarded: OnceLock<Result<reqwest::Client, http::ClientBuildError>>,
    /// The same for gRPC.
    #[cfg(feature = "grpc")]
    guarded_http2: OnceLock<Result<reqwest::Client, http::ClientBuildError>>,
}

struct State {
    card: Option<(Arc<AgentCard>, Deadline)>,
    health: Health,
}

impl Remote {
    /// An agent that is reached in this way. Connects to nothing yet.
    pub fn new(mut access: Access, around: A2aEnvironment) -> Self {
        let credentials = Arc::new(std::mem::replace(&mut access.credentials, Credentials::None));
        let state = Mutex::new(State { card: None, health: Health::Unknown });
        Self {
            access,
            credentials,
            around,
            state,
            guarded: OnceLock::new(),
            #[cfg(feature = "grpc")]
            guarded_http2: OnceLock::new(),
        }
    }

    /// What is known of its health.
    pub fn health(&self) -> Health {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).health.clone()
    }

    /// Its card; fetched when it is not there or old.
    ///
    /// # Errors
    /// [`A2aError`] of the kind [`A2aErrorKind::Card`].
    pub async fn card(&self, cx: &CallContext) -> Result<Arc<AgentCard>, A2aError> {
        {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((card, until)) = &state.card
                && self.around.clock.elapsed() < until.0
            {
                return Ok(card.clone());
            }
        }
        let read = self.fetched(cx).await;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(card) => {
                if let Some(note) = &card.note {
                    tracing::info!(agent = %card.name, "{note}");
                }
                if let Some(interface) = card.interfaces.first().filter(|one| !self.may_know_us(one))
                    && !matches!(*self.credentials, Credentials::None)
                {
                    let host = http::destination(&interface.url).ok().and_then(|url| url.host_str().map(str::to_owned));
                    tracing::warn!(
                        agent = %card.name,
                        "the credentials stay here: the card names {}, which is another host; list it under `auth: {{hosts: […]}}` if it may see them",
                        host.unwrap_or_default()
                    );
                }
                let card = Arc::new(card);
                state.card = Some((card.clone(), self.around.clock.deadline(limits::A2A_CARD_LIFE)));
                state.health = Health::Up;
                Ok(card)
            }
            Err(reason) => {
                state.health = Health::Down { reason: reason.clone() };
                Err(A2aError::new(A2aErrorKind::Card, reason))
            }
        }
    }

    /// Asks for the card, and remembers whether it came.
    pub async fn look(&self, cx: &CallContext) -> Health {
        let _ = self.card(cx).await;
        self.health()
    }

    fn forget_card(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).card = None;
    }

    async fn fetched(&self, cx: &CallContext) -> Result<AgentCard, String> {
        let address = match &self.access.card {
            CardLocation::File(json) => return AgentCard::read(json).map_err(|why| format!("the card {why}")),
            CardLocation::Address(address) => address,
        };
        let mut pause = limits::A2A_CARD_PAUSE;
        let mut last = String::new();
        for attempt in 0..self.access.tries.max(1) {
            if attempt > 0 {
                let until = self.around.clock.deadline(pause);
                cx.wait(self.around.clock.sleep(until)).await.map_err(|stopped| format!("{last}; {stopped}"))?;
                pause = (pause * 2).min(limits::A2A_PAUSE_MOST);
            }
            match self.fetched_once(address, cx).await {
                Ok(card) => return Ok(card),
                Err(words) => last = words,
            }
        }
        Err(last)
    }

    async fn fetched_once(&self, address: &str, cx: &CallContext) -> Result<AgentCard, String> {
        let base = http::destination(address)?;
        // A host without a path stands for the places where cards are by custom.
        let places: Vec<String> = if matches!(base.path(), "" | "/") {
            WELL_KNOWN.iter().filter_map(|path| base.join(path).ok()).map(String::from).collect()
        } else {
            vec![base.to_string()]
        };
        let mut missing = String::new();
        for place in places {
            match self.json_at(&place, cx).await {
                Ok(json) => {
                    let place = http::shown(&place);
                    let card = AgentCard::read(&json).map_err(|why| format!("the card at {place} {why}"))?;
                    return within(card, &base).map_err(|why| format!("the card at {place} {why}"));
                }
                Err((404 | 410, words)) => missing = words,
                Err((_, words)) => return Err(words),
            }
        }
        Err(missing)
    }

    /// What stands at an address. Cards are public by custom, so who we are is said only where that is asked for.
    async fn json_at(&self, place: &str, cx: &CallContext) -> Result<Json, (u16, String)> {
        let shown = http::shown(place);
        let failed = |words: String| (0, format!("the card at {shown}: {words}"));
        let client = self.around.http.client().map_err(|error| failed(error.to_string()))?;
        let cx = cx.within(self.access.timeout);
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
            let body = cx.wait(whole(response)).await.map_err(|stopped| failed(stopped.to_string()))?;
            let body = body.map_err(|fault| failed(fault.message))?;
            return serde_json::from_slice(&body).map_err(|error| failed(format!("it is no JSON: {error}")));
        }
    }

    pub(super) async fn wire(&self, cx: &CallContext) -> Result<(Wire, Arc<AgentCard>), A2aError> {
        let card = self.card(cx).await?;
        let interface = card.interfaces.first().cloned();
        let interface = interface.ok_or_else(|| A2aError::new(A2aErrorKind::Card, "the card names no address"))?;
        let client =
            self.client_for(&interface).map_err(|error| A2aError::new(A2aErrorKind::Unreachable, error.to_string()))?;
        if let (Some(guard), Ok(to)) = (self.guard_for(&interface), http::destination(&interface.url)) {
            let unreachable = |why: String| A2aError::new(A2aErrorKind::Unreachable, why);
            let checked =
                cx.wait(guard.check(&to)).await.map_err(|stopped| stopped_as(stopped, "the address is looked up"))?;
            checked.map_err(unreachable)?;
        }
        let credentials =
            if self.may_know_us(&interface) { self.credentials.clone() } else { Arc::new(Credentials::None) };
        let wire = Wire { client, credentials, interface };
        Ok((wire, card))
    }

    /// Whether an address may be told who we are: at the host of the card, and at those that the author names. What stands in a
    /// card of the project is the author's word; what stands in one that was fetched is not.
    pub(super) fn may_know_us(&self, interface: &AgentInterface) -> bool {
        let host = |url: &str| http::destination(url).ok()?.host_str().map(str::to_ascii_lowercase);
        let CardLocation::Address(from) = &self.access.card else { return true };
        let (own, to) = (host(from), host(&interface.url));
        to.is_some() && (own == to || self.access.hosts.iter().any(|named| Some(named.to_ascii_lowercase()) == to))
    }

    /// What guards the way to a host that only the card names; `None` for one that the configuration names.
    fn guard_for(&self, interface: &AgentInterface) -> Option<SsrfGuard> {
        let from = match &self.access.card {
            CardLocation::File(_) => None,
            CardLocation::Address(from) => http::destination(from).ok(),
        }?;
        let to = http::destination(&interface.url).ok()?;
        let is_elsewhere = from.host_str() != to.host_str();
        is_elsewhere.then(|| SsrfGuard::around(&from, []).through_proxy_of(&self.around.http))
    }

    /// The shared client for what the configuration names; for a host that only the card names one that looks at every address
    /// before it connects.
    fn client_for(&self, interface: &AgentInterface) -> Result<reqwest::Client, http::ClientBuildError> {
        let guard = self.guard_for(interface);
        #[cfg(feature = "grpc")]
        if interface.binding == ProtocolBinding::Grpc {
            return match guard {
                Some(guard) => self.guarded_http2.get_or_init(|| guard.http2()).clone(),
                None => self.around.http.http2().cloned(),
            };
        }
        match guard {
            Some(guard) => self.guarded.get_or_init(|| guard.client()).clone(),
            None => self.around.http.client().cloned(),
        }
    }

    /// Asks for a task as it stands.
    ///
    /// # Errors
    /// [`A2aError`].
    pub async fn task(&self, id: &str, history: u32, cx: &CallContext) -> Result<Task, A2aError> {
        let (wire, _) = self.wire(cx).await?;
        let body = Map::from_iter([("historyLength".to_owned(), Json::from(history))]);
        let request = Request { operation: Operation::Get, task: Some(id.to_owned()), body, id: id.to_owned() };
        let cx = cx.within(self.access.timeout);
        match wire.ask(&request, &cx).await? {
            Answered::Whole(json) => {
                // Some servers wrap what others do not.
                let inner = json.get("task").filter(|task| task.is_object()).unwrap_or(&json);
                reading::task(inner, wire.interface.dialect())
                    .map_err(|why| A2aError::new(A2aErrorKind::Unreadable, why))
            }
            Answered::Stream(_) => Err(A2aError::new(A2aErrorKind::Unreadable, "a stream where a task was asked for")),
        }
    }

    /// The task that took a message, after an interruption of ours: the task that the message names, or one of its context.
    /// `None` when the other side surely has not heard it.
    ///
    /// # Errors
    /// [`A2aError`]: it cannot be found out.
    pub async fn who_heard(&self, message: &Message, cx: &CallContext) -> Result<Option<Task>, A2aError> {
        // A history is optional in the protocol: one that is absent says nothing.
        let unknown =
            |what: &str| A2aError::new(A2aErrorKind::Unknown, format!("{what}, so what it heard is not known"));
        if let Some(id) = &message.task_id {
            let task = self.task(id, limits::A2A_HISTORY, cx).await?;
            return match task.has_heard(&message.id) {
                true => Ok(Some(task)),
                false if task.history.is_empty() => Err(unknown("the agent tells no history of the task")),
                false => Ok(None),
            };
        }
        let (wire, _) = self.wire(cx).await?;
        let Some(context) = message.context_id.as_ref().filter(|_| wire.interface.generation == A2aVersion::New) else {
            return Err(A2aError::new(A2aErrorKind::Unknown, "it may have been sent before an interruption"));
        };
        let body = Map::from_iter([
            ("contextId".to_owned(), Json::from(context.as_str())),
            ("historyLength".to_owned(), Json::from(limits::A2A_HISTORY)),
        ]);
        let request = Request { operation: Operation::List, task: None, body, id: message.id.clone() };
        let Answered::Whole(json) = wire.ask(&request, &cx.within(self.access.timeout)).await? else {
            return Err(A2aError::new(A2aErrorKind::Unreadable, "a stream where tasks were asked for"));
        };
        let tasks = json.get("tasks").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
        let told = tasks.len();
        let tasks = tasks.iter().filter_map(|task| reading::task(task, wire.interface.dialect()).ok());
        let tasks: Vec<Task> = tasks.collect();
        if let Some(heard) = tasks.iter().find(|task| task.has_heard(&message.id)) {
            return Ok(Some(heard.clone()));
        }
        if tasks.len() < told || tasks.iter().any(|task| task.history.is_empty()) {
            return Err(unknown("the agent tells no history of its tasks"));
        }
        match json.get("nextPageToken").and_then(Json::as_str) {
            None | Some("") => Ok(None),
            Some(_) => Err(unknown("the agent has more tasks than it lists at once")),
        }
    }

    async fn sent(&self, outgoing: &SendRequest, cx: &CallContext) -> Result<SendReceipt, A2aError> {
        let (wire, card) = self.wire(cx).await?;
        let streams = card.streams && self.access.streams;
        let request = Request {
            operation: if streams { Operation::Stream } else { Operation::Send },
            task: None,
            body: self.body(outgoing, &wire.interface, card.pushes),
            id: outgoing.message.id.clone(),
        };
        let head = cx.within(self.access.timeout);
        let answer = match wire.ask(&request, &head).await {
            Err(fault) => {
                if matches!(fault.kind, A2aErrorKind::Status(404 | 410) | A2aErrorKind::Protocol(codes::VERSION)) {
                    // It moved: the next one asks where to.
                    self.forget_card();
                }
                return Err(fault);
            }
            Ok(answer) => answer,
        };
        failpoint::hit("C17");
        let dialect = wire.interface.dialect();
        let (update, live) = match answer {
            Answered::Whole(json) => (read(&json, dialect)?, None),
            Answered::Stream(mut stream) => loop {
                match head.wait(stream.next()).await {
                    Ok(Ok(StreamItem::Update(update))) => break (*update, Some(stream)),
                    Ok(Ok(StreamItem::Alive)) => {}
                    Ok(Ok(StreamItem::End)) => {
                        return Err(A2aError::new(A2aErrorKind::Broken, "the stream ended before anything was said"));
                    }
                    Ok(Err(fault)) => return Err(fault),
                    Err(stopped) => return Err(stopped_as(stopped, "nothing was said")),
                }
            },
        };
        let first = FirstResponse::of(update)
            .ok_or_else(|| A2aError::new(A2aErrorKind::Unreadable, "an answer that says nothing"))?;
        Ok(SendReceipt { first, live })
    }

    /// What stands around a message.
    fn body(&self, outgoing: &SendRequest, interface: &AgentInterface, pushes: bool) -> Map<String, Json> {
        let dialect = interface.dialect();
        let modes = ["text/plain", "application/json", "text"];
        let mut how = Map::from_iter([("acceptedOutputModes".to_owned(), json!(modes))]);
        // The answer comes as soon as the task has an id: a connection that breaks then loses nothing.
        match interface.generation {
            A2aVersion::Old => how.insert("blocking".into(), Json::Bool(false)),
            A2aVersion::New => how.insert("returnImmediately".into(), Json::Bool(true)),
        };
        if let Some(url) = outgoing.report_to.as_ref().filter(|_| pushes && self.access.reports) {
            let key = match dialect {
                A2aWireFormat::Old => "pushNotificationConfig",
                A2aWireFormat::OldRest => "pushNotification",
                A2aWireFormat::New => "taskPushNotificationConfig",
            };
            how.insert(key.into(), json!({"url": url}));
        }
        Map::from_iter([
            ("message".to_owned(), writing::message(&outgoing.message, dialect)),
            ("configuration".to_owned(), Json::Object(how)),
        ])
    }

    async fn cancelled(&self, task: &str, cx: &CallContext) -> Result<(), A2aError> {
        let (wire, _) = self.wire(cx).await?;
        let request = Request {
            operation: Operation::Cancel,
            task: Some(task.to_owned()),
            body: Map::new(),
            id: task.to_owned(),
        };
        wire.ask(&request, &cx.within(self.access.timeout)).await.map(|_| ())
    }

    /// Says hello and reads the answer, as a check that costs the other side a task. What it says does not matter.
    ///
    /// # Errors
    /// [`A2aError`]: it does not answer.
    pub async fn greet(&self, id: &str, cx: &CallContext) -> Result<(), A2aError> {
        let mut message = Message::text(super::model::Role::User, id, "");
        message.parts = vec![Part::Text("Hello".to_owned())];
        self.sent(&SendRequest { message, report_to: None }, cx).await.map(|_| ())
    }
}

fn read(json: &Json, dialect: A2aWireFormat) -> Result<Update, A2aError> {
    reading::update(json, dialect)
        .map_err(|why| A2aError::new(A2aErrorKind::Unreadable, format!("the answer is {why}")))
}

/// A card that was fetched may name addresses of the host that it came from; others only in the open network (reliability.md
/// 3.7). Ways to elsewhere are left out.
fn within(mut card: AgentCard, from: &reqwest::Url) -> Result<AgentCard, String> {
    let guard = SsrfGuard::around(from, []);
    let named: Vec<String> = card.interfaces.iter().map(|interface| interface.url.clone()).collect();
    card.interfaces.retain(|interface| http::destination(&interface.url).is_ok_and(|url| guard.admits(&url).is_ok()));
    if card.interfaces.is_empty() {
        return Err(format!(
            "names {} alone, which is neither at its own host nor in the open network",
            named.join(", ")
        ));
    }
    Ok(card)
}

impl A2aClient for Remote {
    fn send<'a>(
        &'a self,
        outgoing: &'a SendRequest,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<SendReceipt, A2aError>> {
        Box::pin(self.sent(outgoing, cx))
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
        Box::pin(self.cancelled(task, cx))
    }
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("health", &self.health()).finish_non_exhaustive()
    }
}

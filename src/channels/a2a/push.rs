//! Reports: a task that stands still is told to the addresses that its caller named.
//!
//! Such an address comes from outside, so it leads to the open network or nowhere. A report is a courtesy:
//! it is tried a few times, and a caller who misses it asks.

use std::sync::{Mutex, MutexGuard, PoisonError};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use super::{A2aRequestError, A2aServer, tasks::context_of};
use crate::{
    a2a::{A2aVersion, A2aWireFormat, codes, encode, model::Task},
    context::CallContext,
    http::{HttpClients, SsrfGuard, parse_endpoint_url},
    limits,
};

/// What the names of private texts begin with that say where a task is reported.
const PRIVATE: &str = "a2a push ";

/// Where and how a task is reported.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Config {
    /// Its id within the task.
    pub(super) id: String,
    /// The address; empty for one that was taken away.
    pub(super) url: String,
    /// The word that the receiver knows us by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// The value of the header `Authorization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    authorization: Option<String>,
    /// Whether it is written as the older generation does.
    #[serde(default)]
    old: bool,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Config {
    /// Reads one as a caller writes it.
    pub(super) fn read(json: &Json, generation: A2aVersion) -> Result<Self, A2aRequestError> {
        let text = |json: &Json, key: &str| {
            json.get(key).and_then(Json::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let url = text(json, "url").ok_or_else(|| A2aRequestError::params("a report needs a `url`"))?;
        let auth = json.get("authentication").unwrap_or(&Json::Null);
        let scheme = text(auth, "scheme").or_else(|| auth.pointer("/schemes/0")?.as_str().map(str::to_owned));
        let authorization = scheme.zip(text(auth, "credentials")).map(|(scheme, word)| format!("{scheme} {word}"));
        let id = text(json, "id").unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        let config = Self { id, url, token: text(json, "token"), authorization, old: generation == A2aVersion::V0_3 };
        let size = [Some(&config.id), Some(&config.url), config.token.as_ref(), config.authorization.as_ref()];
        if size.into_iter().flatten().map(String::len).sum::<usize>() > limits::A2A_PUSH {
            return Err(A2aRequestError::params("where to report is too long"));
        }
        Ok(config)
    }
    /// Reads one as it was stored.
    pub(super) fn kept(json: &Json) -> Option<Self> {
        serde_json::from_value(json.clone()).ok()
    }
    /// The mark of one that was taken away.
    pub(super) fn gone(id: &str) -> Self {
        Self { id: id.to_owned(), url: String::new(), token: None, authorization: None, old: false }
    }
    /// As a caller reads it; secrets are known to whoever gave them.
    pub(super) fn shown(&self, task: &str, dialect: A2aWireFormat) -> Json {
        let mut own = Map::from_iter([("id".to_owned(), json!(self.id)), ("url".to_owned(), json!(self.url))]);
        own.extend(self.token.as_ref().map(|token| ("token".to_owned(), json!(token))));
        match dialect {
            A2aWireFormat::JsonRpcV0_3 => json!({"taskId": task, "pushNotificationConfig": own}),
            A2aWireFormat::ProtoJsonV0_3 => {
                json!({"name": format!("tasks/{task}/pushNotificationConfigs/{}", self.id), "pushNotificationConfig": own})
            }
            A2aWireFormat::ProtoJsonV1_0 => {
                own.insert("taskId".into(), json!(task));
                Json::Object(own)
            }
        }
    }
}

/// Where tasks are reported, as far as this process knows.
pub(super) struct Pushes {
    guard: SsrfGuard,
    client: reqwest::Client,
    known: Mutex<IndexMap<String, Vec<Config>>>,
}

impl Pushes {
    /// Reports to the open network; where the server is reached from this machine alone, to this machine too. `None` when no
    /// client can be built.
    pub(super) fn new(local: bool, outbound: &HttpClients) -> Option<Self> {
        // A name that nobody has: nothing is configured, so nothing near us is allowed.
        let home = if local { "http://127.0.0.1/" } else { "https://nobody.invalid/" };
        let guard = SsrfGuard::for_server(&reqwest::Url::parse(home).ok()?, []).with_proxy_of(outbound);
        Some(Self { client: guard.client().ok()?, guard, known: Mutex::default() })
    }
    fn known(&self) -> MutexGuard<'_, IndexMap<String, Vec<Config>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Whether an address may be reported to.
    pub(super) async fn check(&self, url: &str) -> Result<(), String> {
        let parsed = parse_endpoint_url(url).map_err(|why| format!("nothing is reported there: {why}"))?;
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err("nothing is reported there: an address may not hold a user name or a password".to_owned());
        }
        self.guard.check(&parsed).await.map_err(|why| format!("nothing is reported there: {why}"))
    }
    /// Remembers one; the same id replaces.
    pub(super) fn add(&self, task: &str, config: Config) {
        let mut known = self.known();
        let configs = known.entry(task.to_owned()).or_default();
        configs.retain(|other| other.id != config.id);
        if !config.url.is_empty() && configs.len() < limits::A2A_PUSHES {
            configs.push(config);
        }
        trim(&mut known);
    }
    /// How many tasks are remembered.
    #[cfg(test)]
    pub(super) fn tasks(&self) -> usize {
        self.known().len()
    }
    /// The task is new: the store has nothing about it.
    pub(super) fn nothing_stored(&self, task: &str) {
        let mut known = self.known();
        known.entry(task.to_owned()).or_default();
        trim(&mut known);
    }
    fn set(&self, task: &str, configs: Vec<Config>) {
        let mut known = self.known();
        known.insert(task.to_owned(), configs);
        trim(&mut known);
    }
}

/// Forgets the oldest beyond the limit: they are read from the store when they are wanted.
fn trim(known: &mut IndexMap<String, Vec<Config>>) {
    while known.len() > limits::A2A_TASK_RUNS {
        known.shift_remove_index(0);
    }
}

impl A2aServer {
    /// Where a task is reported.
    pub(super) async fn pushes_of(&self, task: &str) -> Result<Vec<Config>, A2aRequestError> {
        let Some(pushes) = &self.0.pushes else { return Err(no_push()) };
        let known = pushes.known().get(&self.name_of(task)).cloned();
        match known {
            Some(configs) => Ok(configs),
            None => {
                let configs = match self.kept_pushes(task).await? {
                    Some(kept) => kept,
                    // Before there were private texts they stood among the events.
                    None => self.found(task).await?.pushes,
                };
                pushes.set(&self.name_of(task), configs.clone());
                Ok(configs)
            }
        }
    }

    /// Adds one, or takes it away.
    pub(super) async fn set_push(&self, task: &str, config: Config) -> Result<(), A2aRequestError> {
        let Some(pushes) = &self.0.pushes else { return Err(no_push()) };
        if !config.url.is_empty() {
            pushes.check(&config.url).await.map_err(A2aRequestError::params)?;
        }
        if context_of(task).is_none() {
            return Err(A2aRequestError::no_task(task));
        }
        self.found(task).await?;
        self.pushes_of(task).await?;
        pushes.add(&self.name_of(task), config);
        self.keep_pushes(task).await;
        Ok(())
    }

    /// Where a task is reported, as it was written down: beside the conversation, since addresses and credentials of callers belong
    /// in no event.
    async fn kept_pushes(&self, task: &str) -> Result<Option<Vec<Config>>, A2aRequestError> {
        let context = context_of(task).ok_or_else(|| A2aRequestError::no_task(task))?;
        let (id, name) = (self.conversation_of(context), format!("{PRIVATE}{task}"));
        let kept = self.0.assistant.store().private_text(&id, &name).await;
        let kept = kept.map_err(|error| A2aRequestError::new(codes::INTERNAL_ERROR, error.to_string()))?;
        Ok(kept.and_then(|json| serde_json::from_str(&json).ok()))
    }

    /// Writes down where changes of a task are reported.
    pub(super) async fn keep_pushes(&self, task: &str) {
        let known = self.0.pushes.as_ref().and_then(|pushes| pushes.known().get(&self.name_of(task)).cloned());
        let Some(configs) = known else { return };
        self.write_pushes(task, serde_json::to_string(&configs).ok()).await;
    }

    async fn write_pushes(&self, task: &str, configs: Option<String>) {
        let Some(context) = context_of(task) else { return };
        let (id, name) = (self.conversation_of(context), format!("{PRIVATE}{task}"));
        let at = self.0.assistant.clock().now();
        if let Err(error) = self.0.assistant.store().set_private_text(&id, &name, configs, at).await {
            let code = error.code();
            tracing::warn!(code, "where changes of a task are reported is lost when this process ends: {error}");
        }
    }

    /// Reports a task as it stands to everybody who wants to know.
    pub(super) async fn report(&self, task: &Task) {
        let Ok(configs) = self.pushes_of(&task.id).await else { return };
        for config in configs {
            if let Err(reason) = self.report_to(&config, task).await {
                tracing::warn!(code = "C0201", "a change of a task could not be reported: {reason}");
            }
        }
        if task.status.state.is_terminal() {
            // Nothing more is reported.
            self.write_pushes(&task.id, None).await;
        }
    }

    async fn report_to(&self, config: &Config, task: &Task) -> Result<(), String> {
        let Some(pushes) = &self.0.pushes else { return Ok(()) };
        pushes.check(&config.url).await?;
        let body = if config.old {
            encode::task(task, A2aWireFormat::JsonRpcV0_3)
        } else {
            json!({"task": encode::task(task, A2aWireFormat::ProtoJsonV1_0)})
        };
        let clock = self.0.assistant.clock();
        let mut pause = limits::A2A_PUSH_PAUSE;
        let mut last = String::new();
        for attempt in 0..limits::A2A_PUSH_TRIES {
            if attempt > 0 {
                clock.sleep(clock.deadline(pause)).await;
                pause *= 2;
            }
            let mut request = pushes.client.post(&config.url).json(&body);
            if let Some(token) = &config.token {
                request = request.header("X-A2A-Notification-Token", token);
            }
            if let Some(value) = &config.authorization {
                request = request.header("Authorization", value);
            }
            let cx = CallContext::new(clock.clone(), limits::A2A_PUSH_WAIT);
            match cx.wait(request.send()).await {
                Ok(Ok(response)) if response.status().is_success() => return Ok(()),
                Ok(Ok(response)) => last = format!("the receiver answers {}", response.status()),
                Ok(Err(error)) => last = error.without_url().to_string(),
                Err(stopped) => last = stopped.to_string(),
            }
        }
        Err(last)
    }
}

fn no_push() -> A2aRequestError {
    A2aRequestError::new(codes::PUSH_NOTIFICATION_NOT_SUPPORTED, "changes are not reported by this agent")
}

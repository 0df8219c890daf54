//! Push notifications of the A2A server: when a task ends or waits for input, it is sent to the URLs that its caller has set.
//!
//! The URLs come from outside, so they must lead to the public internet; only a server on loopback also allows loopback addresses. A
//! notification is sent with a few attempts and may be lost: a caller who misses it can poll the task.

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

/// The prefix of the names of the private texts that store the settings of a task. A private text belongs to a conversation, but is not
/// part of its events.
const PRIVATE_TEXT_PREFIX: &str = "a2a push ";

/// A push notification setting of a task.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PushConfig {
    /// Its id, unique in the task.
    pub(super) id: String,
    /// The URL; empty if the setting was removed.
    pub(super) url: String,
    /// The token by which the receiver recognises a notification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// The value of the header `Authorization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    authorization: Option<String>,
    /// Whether notifications are written in the format of A2A 0.3.
    #[serde(default, rename = "old")]
    uses_v0_3: bool,
}

impl std::fmt::Debug for PushConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PushConfig").field("id", &self.id).finish_non_exhaustive()
    }
}

impl PushConfig {
    /// Parses a setting in a request.
    ///
    /// # Errors
    /// The URL is missing, or the setting is too long.
    pub(super) fn from_json(json: &Json, version: A2aVersion) -> Result<Self, A2aRequestError> {
        let text = |json: &Json, key: &str| {
            json.get(key).and_then(Json::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let url = text(json, "url")
            .ok_or_else(|| A2aRequestError::invalid_params("a push notification setting needs a `url`"))?;
        let auth = json.get("authentication").unwrap_or(&Json::Null);
        let scheme = text(auth, "scheme").or_else(|| auth.pointer("/schemes/0")?.as_str().map(str::to_owned));
        let authorization =
            scheme.zip(text(auth, "credentials")).map(|(scheme, credentials)| format!("{scheme} {credentials}"));
        let id = text(json, "id").unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        let uses_v0_3 = version == A2aVersion::V0_3;
        let config = Self { id, url, token: text(json, "token"), authorization, uses_v0_3 };
        let texts = [Some(&config.id), Some(&config.url), config.token.as_ref(), config.authorization.as_ref()];
        if texts.into_iter().flatten().map(String::len).sum::<usize>() > limits::A2A_PUSH {
            return Err(A2aRequestError::invalid_params("the push notification setting is too long"));
        }
        Ok(config)
    }
    /// Parses a stored setting.
    pub(super) fn from_stored(json: &Json) -> Option<Self> {
        serde_json::from_value(json.clone()).ok()
    }
    /// The entry for a removed setting: without a URL.
    pub(super) fn removed(id: &str) -> Self {
        Self { id: id.to_owned(), url: String::new(), token: None, authorization: None, uses_v0_3: false }
    }
    /// The setting in a response. It contains the token, which its caller has set, but not the `Authorization` value.
    pub(super) fn to_json(&self, task: &str, format: A2aWireFormat) -> Json {
        let mut config = Map::from_iter([("id".to_owned(), json!(self.id)), ("url".to_owned(), json!(self.url))]);
        config.extend(self.token.as_ref().map(|token| ("token".to_owned(), json!(token))));
        match format {
            A2aWireFormat::JsonRpcV0_3 => json!({"taskId": task, "pushNotificationConfig": config}),
            A2aWireFormat::ProtoJsonV0_3 => {
                json!({"name": format!("tasks/{task}/pushNotificationConfigs/{}", self.id), "pushNotificationConfig": config})
            }
            A2aWireFormat::ProtoJsonV1_0 => {
                config.insert("taskId".into(), json!(task));
                Json::Object(config)
            }
        }
    }
}

/// The HTTP client for push notifications, and a cache of the settings of tasks.
pub(super) struct PushNotifier {
    guard: SsrfGuard,
    client: reqwest::Client,
    /// The settings by task key, at most [`limits::A2A_TASK_RUNS`] tasks. The store has all of them.
    configs: Mutex<IndexMap<String, Vec<PushConfig>>>,
}

impl PushNotifier {
    /// A notifier that sends to the public internet and, if `is_local`, to loopback addresses. `None` if no HTTP client can be built.
    pub(super) fn new(is_local: bool, outbound: &HttpClients) -> Option<Self> {
        // The guard allows the host of a configured server. There is none here, so it gets a name that never resolves (RFC 2606).
        let server = if is_local { "http://127.0.0.1/" } else { "https://unconfigured.invalid/" };
        let guard = SsrfGuard::for_server(&reqwest::Url::parse(server).ok()?, []).with_proxy_of(outbound);
        Some(Self { client: guard.client().ok()?, guard, configs: Mutex::default() })
    }
    fn configs(&self) -> MutexGuard<'_, IndexMap<String, Vec<PushConfig>>> {
        self.configs.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Checks whether notifications may be sent to a URL. May resolve its host name.
    ///
    /// # Errors
    /// The reason why not, for the caller.
    pub(super) async fn check_url(&self, url: &str) -> Result<(), String> {
        let parsed = parse_endpoint_url(url)
            .map_err(|reason| format!("no push notifications are sent to this URL: {reason}"))?;
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err("no push notifications are sent to this URL: it contains a user name or a password".to_owned());
        }
        self.guard
            .check(&parsed)
            .await
            .map_err(|reason| format!("no push notifications are sent to this URL: {reason}"))
    }
    /// Adds a setting to the cache, or removes one. It replaces the setting with the same id. Beyond [`limits::A2A_PUSHES`] settings, a new
    /// one is dropped.
    pub(super) fn add(&self, task: &str, config: PushConfig) {
        let mut all = self.configs();
        let configs = all.entry(task.to_owned()).or_default();
        configs.retain(|other| other.id != config.id);
        if !config.url.is_empty() && configs.len() < limits::A2A_PUSHES {
            configs.push(config);
        }
        remove_oldest(&mut all);
    }
    /// The number of tasks in the cache.
    #[cfg(test)]
    pub(super) fn cached_tasks(&self) -> usize {
        self.configs().len()
    }
    /// Adds a new task to the cache, without settings: the store has none for it and need not be read.
    pub(super) fn add_new_task(&self, task: &str) {
        let mut all = self.configs();
        all.entry(task.to_owned()).or_default();
        remove_oldest(&mut all);
    }
    fn set(&self, task: &str, configs: Vec<PushConfig>) {
        let mut all = self.configs();
        all.insert(task.to_owned(), configs);
        remove_oldest(&mut all);
    }
}

/// Removes the oldest tasks beyond the limit from the cache.
fn remove_oldest(all: &mut IndexMap<String, Vec<PushConfig>>) {
    while all.len() > limits::A2A_TASK_RUNS {
        all.shift_remove_index(0);
    }
}

impl A2aServer {
    /// The push notification settings of a task, from the cache or the store.
    ///
    /// # Errors
    /// This server sends no push notifications, or the task cannot be read.
    pub(super) async fn push_configs(&self, task: &str) -> Result<Vec<PushConfig>, A2aRequestError> {
        let Some(push) = &self.0.push else { return Err(not_supported()) };
        let cached = push.configs().get(&self.task_key(task)).cloned();
        match cached {
            Some(configs) => Ok(configs),
            None => {
                let configs = match self.load_push_configs(task).await? {
                    Some(configs) => configs,
                    // Earlier versions stored them in events.
                    None => self.read_task(task).await?.push_configs,
                };
                push.set(&self.task_key(task), configs.clone());
                Ok(configs)
            }
        }
    }

    /// Adds or replaces a push notification setting of a task, or removes it.
    ///
    /// # Errors
    /// This server sends no push notifications, the URL is not allowed, or there is no such task.
    pub(super) async fn set_push_config(&self, task: &str, config: PushConfig) -> Result<(), A2aRequestError> {
        let Some(push) = &self.0.push else { return Err(not_supported()) };
        if !config.url.is_empty() {
            push.check_url(&config.url).await.map_err(A2aRequestError::invalid_params)?;
        }
        if context_of(task).is_none() {
            return Err(A2aRequestError::task_not_found(task));
        }
        self.read_task(task).await?;
        self.push_configs(task).await?;
        push.add(&self.task_key(task), config);
        self.save_push_configs(task).await;
        Ok(())
    }

    /// The stored settings of a task; `None` if none are stored as a private text. They contain URLs and credentials of callers, which must
    /// not be in events.
    async fn load_push_configs(&self, task: &str) -> Result<Option<Vec<PushConfig>>, A2aRequestError> {
        let context = context_of(task).ok_or_else(|| A2aRequestError::task_not_found(task))?;
        let (id, name) = (self.conversation_id(context), format!("{PRIVATE_TEXT_PREFIX}{task}"));
        let text = self.0.assistant.store().private_text(&id, &name).await;
        let text = text.map_err(|error| A2aRequestError::internal(error.to_string()))?;
        Ok(text.and_then(|json| serde_json::from_str(&json).ok()))
    }

    /// Stores the cached settings of a task.
    pub(super) async fn save_push_configs(&self, task: &str) {
        let cached = self.0.push.as_ref().and_then(|push| push.configs().get(&self.task_key(task)).cloned());
        let Some(configs) = cached else { return };
        self.write_push_configs(task, serde_json::to_string(&configs).ok()).await;
    }

    /// Stores settings, or deletes them. A failure is logged.
    async fn write_push_configs(&self, task: &str, json: Option<String>) {
        let Some(context) = context_of(task) else { return };
        let (id, name) = (self.conversation_id(context), format!("{PRIVATE_TEXT_PREFIX}{task}"));
        let at = self.0.assistant.clock().now();
        if let Err(error) = self.0.assistant.store().set_private_text(&id, &name, json, at).await {
            let code = error.code();
            tracing::warn!(code, "the push notification settings of a task could not be stored: {error}");
        }
    }

    /// Sends a task to all its push notification URLs. A failure is logged. If the task has ended, its stored settings are deleted.
    pub(super) async fn notify(&self, task: &Task) {
        let Ok(configs) = self.push_configs(&task.id).await else { return };
        for config in configs {
            if let Err(reason) = self.send_notification(&config, task).await {
                tracing::warn!(code = "C0201", "a push notification for a task could not be sent: {reason}");
            }
        }
        if task.status.state.is_terminal() {
            self.write_push_configs(&task.id, None).await;
        }
    }

    async fn send_notification(&self, config: &PushConfig, task: &Task) -> Result<(), String> {
        let Some(push) = &self.0.push else { return Ok(()) };
        push.check_url(&config.url).await?;
        let body = if config.uses_v0_3 {
            encode::task(task, A2aWireFormat::JsonRpcV0_3)
        } else {
            json!({"task": encode::task(task, A2aWireFormat::ProtoJsonV1_0)})
        };
        let clock = self.0.assistant.clock();
        let mut pause = limits::A2A_PUSH_PAUSE;
        let mut failure = String::new();
        for attempt in 0..limits::A2A_PUSH_TRIES {
            if attempt > 0 {
                clock.sleep(clock.deadline(pause)).await;
                pause *= 2;
            }
            let mut request = push.client.post(&config.url).json(&body);
            if let Some(token) = &config.token {
                request = request.header("X-A2A-Notification-Token", token);
            }
            if let Some(value) = &config.authorization {
                request = request.header("Authorization", value);
            }
            let cx = CallContext::new(clock.clone(), limits::A2A_PUSH_WAIT);
            match cx.wait(request.send()).await {
                Ok(Ok(response)) if response.status().is_success() => return Ok(()),
                Ok(Ok(response)) => failure = format!("the receiver returned {}", response.status()),
                Ok(Err(error)) => failure = error.without_url().to_string(),
                Err(timeout) => failure = timeout.to_string(),
            }
        }
        Err(failure)
    }
}

/// The error of a server that sends no push notifications.
pub(super) fn not_supported() -> A2aRequestError {
    A2aRequestError::new(codes::PUSH_NOTIFICATION_NOT_SUPPORTED, "this agent sends no push notifications")
}

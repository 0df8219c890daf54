//! Opens the models and embedding models that a project configures.

use std::{cell::RefCell, collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use segue_engine::project::{ModelChoice, ModelDef, Project, RouterDef};
use serde_json::{Map, Value as Json};

use crate::{
    environment,
    http::HttpClients,
    llm::{
        self, Embedder, Llm, LlmEnvironment, ModelConfig, ModelConfigError, RouterConfig, RoutingStrategy, ScriptSource,
    },
    secret::Secret,
};

/// The model if a project names none.
const DEFAULT_MODEL: &str = "gpt-5.1-2025-11-13";

/// The embedding model if a project names none: the default of Rasa.
const DEFAULT_EMBEDDINGS: &str = "text-embedding-3-large";

/// Opens the models of a project, each group once.
pub(super) struct ModelFactory<'a> {
    project: &'a Project,
    root: &'a Path,
    environment: LlmEnvironment,
    /// Open groups with their fallbacks, by id. Components with the same group share its connections and circuit breakers.
    open_groups: RefCell<BTreeMap<Arc<str>, Arc<dyn Llm>>>,
    /// Open groups without their fallbacks, by id. Fallbacks of a fallback do not apply, so that two groups may name each other.
    open_groups_alone: RefCell<BTreeMap<Arc<str>, Arc<dyn Llm>>>,
    /// Open embedding models, by group id.
    embedders: RefCell<BTreeMap<Arc<str>, Arc<dyn Embedder>>>,
}

impl<'a> ModelFactory<'a> {
    /// For a project in the folder `root`.
    pub(super) fn new(project: &'a Project, root: &'a Path, outbound: HttpClients, seed: u64) -> Self {
        let key = |name: &str| environment::variable(name).map(Secret::new);
        let other_keys: BTreeMap<String, Secret> =
            ["anthropic", "mistral", "gemini", "cohere", "groq", "deepseek", "openrouter"]
                .into_iter()
                .filter_map(|provider| {
                    Some((provider.to_owned(), key(&format!("{}_API_KEY", provider.to_uppercase()))?))
                })
                .collect();
        let environment = LlmEnvironment {
            openai_base_url: environment::variable("OPENAI_BASE_URL"),
            openai_api_base: environment::variable("OPENAI_API_BASE"),
            openai_api_key: key("OPENAI_API_KEY"),
            anthropic_base_url: environment::variable("ANTHROPIC_BASE_URL"),
            azure_api_base: environment::variable("AZURE_API_BASE"),
            azure_api_version: environment::variable("AZURE_API_VERSION"),
            azure_api_key: key("AZURE_API_KEY"),
            other_keys,
            outbound,
            seed,
            rate_limits: llm::router::RateLimits::default(),
        };
        Self {
            project,
            root,
            environment,
            open_groups: RefCell::default(),
            open_groups_alone: RefCell::default(),
            embedders: RefCell::default(),
        }
    }

    /// The model of a component: of its group, else of its own settings, else of the first group, else the default.
    pub(super) fn open(&self, group: Option<&str>, own: &Map<String, Json>) -> Result<Arc<dyn Llm>, ModelConfigError> {
        let groups = &self.project.endpoints.model_groups;
        let named = match (group, own.is_empty()) {
            (Some(id), _) => groups.get(id).map(|group| group.id.clone()),
            (None, true) => groups.values().next().map(|group| group.id.clone()),
            (None, false) => None,
        };
        if let Some(open) = named.as_ref().and_then(|id| self.open_groups.borrow().get(id).cloned()) {
            return Ok(open);
        }
        let Some(id) = named else {
            let def =
                if group.is_some() { model_def(&Map::new(), DEFAULT_MODEL) } else { model_def(own, DEFAULT_MODEL) };
            return llm::open(&[self.config(&def)], &self.environment);
        };
        let model = self.open_without_fallbacks(&id)?;
        let fallbacks: Vec<Arc<dyn Llm>> =
            self.fallbacks_of(&id).iter().map(|other| self.open_without_fallbacks(other)).collect::<Result<_, _>>()?;
        let model =
            if fallbacks.is_empty() { model } else { llm::with_fallback_groups(model, &fallbacks, &self.environment) };
        self.open_groups.borrow_mut().insert(id, model.clone());
        Ok(model)
    }

    /// The model of a group without its fallbacks.
    fn open_without_fallbacks(&self, id: &Arc<str>) -> Result<Arc<dyn Llm>, ModelConfigError> {
        if let Some(open) = self.open_groups_alone.borrow().get(id).cloned() {
            return Ok(open);
        }
        let group = self.project.endpoints.model_groups.get(id);
        let defs = group.map(|group| group.models.clone()).filter(|defs| !defs.is_empty());
        let defs = defs.unwrap_or_else(|| vec![model_def(&Map::new(), DEFAULT_MODEL)]);
        let configs: Vec<ModelConfig> = defs.iter().map(|def| self.config(def)).collect();
        let router = group.and_then(|group| group.router.as_ref()).map(router_config).unwrap_or_default();
        let model = llm::open_group(&configs, &router, &self.environment)?;
        self.open_groups_alone.borrow_mut().insert(id.clone(), model.clone());
        Ok(model)
    }

    /// The existing groups among the `fallbacks` of a group.
    fn fallbacks_of(&self, id: &Arc<str>) -> Vec<Arc<str>> {
        let groups = &self.project.endpoints.model_groups;
        let named = groups.get(id).map(|group| group.fallbacks.as_slice()).unwrap_or_default();
        named.iter().filter(|name| groups.contains_key(*name)).cloned().collect()
    }

    /// The embedding model of a component: of its group, else of its own settings.
    pub(super) fn embedder(&self, choice: &ModelChoice) -> Result<Arc<dyn Embedder>, ModelConfigError> {
        if let Some(open) = choice.group.as_ref().and_then(|id| self.embedders.borrow().get(id).cloned()) {
            return Ok(open);
        }
        let group = choice.group.as_ref().and_then(|id| self.project.endpoints.model_groups.get(id));
        let defs = group.map(|group| group.models.clone());
        let defs = defs.unwrap_or_else(|| vec![model_def(&choice.own, DEFAULT_EMBEDDINGS)]);
        let configs: Vec<ModelConfig> = defs.iter().map(|def| self.config(def)).collect();
        let embedder = llm::embeddings::open(&configs, &self.environment)?;
        if let Some(id) = &choice.group {
            self.embedders.borrow_mut().insert(id.clone(), embedder.clone());
        }
        Ok(embedder)
    }

    fn config(&self, def: &ModelDef) -> ModelConfig {
        let mut settings = def.settings.clone();
        let mut text = |key: &str| settings.shift_remove(key).and_then(|value| value.as_str().map(str::to_owned));
        let deployment = text("deployment");
        let (api_base, api_version) = (text("api_base"), text("api_version"));
        let api_key = text("api_key").map(Secret::new);
        let effort = text("reasoning_effort");
        let file = text("script").or_else(|| text("cassette")).or_else(|| text("path"));
        text("api_type");
        let mut number = |keys: &[&str]| {
            let found: Vec<f64> = keys.iter().filter_map(|key| settings.shift_remove(*key)?.as_f64()).collect();
            found.first().copied()
        };
        let seconds = |value: Option<f64>| value.and_then(|value| Duration::try_from_secs_f64(value).ok());
        let timeout = seconds(number(&["timeout", "request_timeout"]));
        let first_token_timeout = seconds(number(&["first_token_timeout"]));
        let idle_timeout = seconds(number(&["idle_timeout"]));
        let temperature = number(&["temperature"]);
        let max_tokens = number(&["max_completion_tokens", "max_tokens"]).map(|tokens| tokens as u32);
        let num_retries = number(&["num_retries"]).map(|retries| retries as u32);
        let parallel_tool_calls = settings.shift_remove("parallel_tool_calls").and_then(|value| value.as_bool());
        ModelConfig {
            provider: def.provider.to_string(),
            model: def.model.to_string(),
            deployment,
            api_base,
            api_version,
            api_key,
            timeout,
            first_token_timeout,
            idle_timeout,
            num_retries,
            temperature,
            max_tokens,
            reasoning_effort: effort.and_then(|effort| serde_json::from_value(Json::String(effort)).ok()),
            parallel_tool_calls,
            extra: settings,
            source: file.map(|file| ScriptSource::File(self.root.join(file))),
        }
    }
}

fn model_def(own: &Map<String, Json>, default: &str) -> ModelDef {
    let mut settings = own.clone();
    let mut take = |key: &str| settings.shift_remove(key).and_then(|value| value.as_str().map(str::to_owned));
    let (provider, model) = (take("provider"), take("model"));
    let model = take("model_name").filter(|_| model.is_none()).or(model);
    ModelDef {
        provider: provider.unwrap_or_else(|| "openai".into()).into(),
        model: model.unwrap_or_else(|| default.into()).into(),
        settings,
    }
}

/// A model that fails every request: for replays, and for pipelines without a command generator.
#[derive(Debug)]
pub(super) struct OfflineModel(llm::ModelProfile);

impl Default for OfflineModel {
    fn default() -> Self {
        Self(llm::ModelProfile::for_model("offline", ""))
    }
}

#[async_trait]
impl Llm for OfflineModel {
    fn profile(&self) -> &llm::ModelProfile {
        &self.0
    }
    async fn chat(
        &self,
        _: llm::ChatRequest,
        _: &crate::context::CallContext,
    ) -> Result<llm::ChatStream, llm::LlmError> {
        Err(llm::LlmErrorKind::NotInScript.into())
    }
}

/// The settings of a group's `router`.
fn router_config(router: &RouterDef) -> RouterConfig {
    RouterConfig {
        strategy: RoutingStrategy::from_router_key(router.strategy.as_deref()),
        cooldown: router.cooldown,
        allowed_fails: router.allowed_fails,
        num_retries: router.num_retries,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;
    use crate::{
        llm::{ChatMessage, ChatRequest, LlmErrorKind, Purpose},
        project::from_texts,
        testing::ManualClock,
    };

    /// The first group fails, and the group in `fallbacks` of its router answers.
    #[tokio::test]
    async fn a_fallback_group_of_the_router_answers_when_the_first_group_fails() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(
            folder.path().join("spare.yml"),
            "rules: [{when: {purpose: agent}, say: 'Hello from the spare.'}]",
        )
        .unwrap();
        let endpoints = |fallbacks: &str| {
            format!(
                "model_groups: [{{id: main, router: {{{fallbacks}}}, models: [{{provider: self-hosted, model: m, \
                 api_base: 'http://127.0.0.1:9/v1', num_retries: 0}}]}}, \
                 {{id: spare, models: [{{provider: scripted, script: spare.yml}}]}}]"
            )
        };
        for (written, uses_fallback) in
            [("fallbacks: [spare]", true), ("fallbacks: [{main: [spare]}]", true), ("cooldown_time: 5", false)]
        {
            let endpoints = endpoints(written);
            let config =
                "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n";
            let loaded = from_texts([("config.yml", config), ("domain.yml", ""), ("endpoints.yml", &*endpoints)]);
            let project = loaded.project.unwrap_or_else(|| unreachable!("{:?}", loaded.findings));
            let models = ModelFactory::new(&project, folder.path(), HttpClients::new(), 7);
            let model = models.open(Some("main"), &Map::new()).unwrap();
            let cx = ManualClock::new().context(Duration::from_secs(60));
            let request = ChatRequest::new(Purpose::AGENT, vec![ChatMessage::user("hello")]);
            let answer = match model.chat(request, &cx).await {
                Ok(stream) => stream.finish().await,
                Err(error) => Err(error),
            };
            match uses_fallback {
                true => assert_eq!(&*answer.unwrap().text, "Hello from the spare.", "{written}"),
                false => assert_eq!(answer.unwrap_err().kind, LlmErrorKind::Unreachable, "{written}"),
            }
        }
    }
}

//! Resolves the URL and the credentials of a model entry.

use reqwest::{
    Url,
    header::{AUTHORIZATION, HeaderName, HeaderValue},
};
use segue_base::{http, secret::Secret};

use crate::{LlmEnvironment, ModelConfig, ModelConfigError};

/// The endpoint of a model entry: URL and authentication header.
pub(crate) struct ResolvedEndpoint {
    /// The full URL.
    pub(crate) url: Url,
    /// `Authorization` or `api-key`; local servers need none.
    pub(crate) auth_header: Option<(HeaderName, HeaderValue)>,
    /// The API key, to mask it in errors.
    pub(crate) key: Option<Secret>,
    /// Azure's `api-version`, where the URL has one.
    pub(crate) azure_version: Option<String>,
}

/// Base URLs of providers with a Chat Completions API, for entries without `api_base`. From their API references, November 2025.
const PROVIDERS: &[(&str, &str)] = &[
    ("cohere", "https://api.cohere.ai/compatibility/v1"),
    ("deepinfra", "https://api.deepinfra.com/v1/openai"),
    ("deepseek", "https://api.deepseek.com/v1"),
    ("fireworks_ai", "https://api.fireworks.ai/inference/v1"),
    ("gemini", "https://generativelanguage.googleapis.com/v1beta/openai"),
    ("groq", "https://api.groq.com/openai/v1"),
    ("mistral", "https://api.mistral.ai/v1"),
    ("ollama", "http://localhost:11434/v1"),
    ("openrouter", "https://openrouter.ai/api/v1"),
    ("together_ai", "https://api.together.xyz/v1"),
    ("xai", "https://api.x.ai/v1"),
];

const OPENAI_API_BASE: &str = "https://api.openai.com/v1";

/// Which API of a provider is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiKind {
    /// Chat Completions.
    Chat,
    /// Embeddings.
    Embeddings,
}

impl ApiKind {
    fn path(self) -> &'static str {
        match self {
            Self::Chat => "/chat/completions",
            Self::Embeddings => "/embeddings",
        }
    }
}

impl ResolvedEndpoint {
    pub(crate) fn from_config(
        config: &ModelConfig,
        environment: &LlmEnvironment,
        api: ApiKind,
    ) -> Result<Self, ModelConfigError> {
        if config.provider == "azure" {
            azure_endpoint(config, environment, api)
        } else {
            standard_endpoint(config, environment, api)
        }
    }
}

fn standard_endpoint(
    config: &ModelConfig,
    environment: &LlmEnvironment,
    api: ApiKind,
) -> Result<ResolvedEndpoint, ModelConfigError> {
    let provider = config.provider.as_str();
    let default_base = match provider {
        "openai" => {
            environment.openai_base_url.as_deref().or(environment.openai_api_base.as_deref()).or(Some(OPENAI_API_BASE))
        }
        _ => PROVIDERS.iter().find(|(name, _)| *name == provider).map(|(_, base)| *base),
    };
    let base = filled(config.api_base.as_deref()).or(filled(default_base)).ok_or_else(|| {
        let known: Vec<&str> = PROVIDERS.iter().map(|(name, _)| *name).collect();
        ModelConfigError::new(config, "api_base", format_args!(
            "the base URL of the server is missing; set it, as in `http://localhost:8000/v1` (not needed for: openai, {})",
            known.join(", ")
        ))
    })?;
    let key = config.api_key.clone().or_else(|| match provider {
        "openai" => environment.openai_api_key.clone(),
        _ => environment.other_keys.get(provider).cloned(),
    });
    // A self-hosted server often needs no key; OpenAI always does.
    if key.is_none() && base == OPENAI_API_BASE {
        return Err(ModelConfigError::new(
            config,
            "api_key",
            "no key; set the variable OPENAI_API_KEY, or `api_key: ${…}`",
        ));
    }
    let auth_header = match &key {
        Some(key) => Some((AUTHORIZATION, header(config, &format!("Bearer {}", key.expose()))?)),
        None => None,
    };
    Ok(ResolvedEndpoint { url: api_url(config, base, "", api)?, auth_header, key, azure_version: None })
}

fn azure_endpoint(
    config: &ModelConfig,
    environment: &LlmEnvironment,
    api: ApiKind,
) -> Result<ResolvedEndpoint, ModelConfigError> {
    let missing =
        |key, variable| ModelConfigError::new(config, key, format_args!("missing; set it, or the variable {variable}"));
    let base = filled(config.api_base.as_deref()).or(filled(environment.azure_api_base.as_deref()));
    let base = base.ok_or_else(|| missing("api_base", "AZURE_API_BASE"))?.trim_end_matches('/');
    let key = config.api_key.clone().or_else(|| environment.azure_api_key.clone());
    let key = key.ok_or_else(|| missing("api_key", "AZURE_API_KEY"))?;
    let auth_header = Some((HeaderName::from_static("api-key"), header(config, key.expose())?));
    // Azure's v1 API has OpenAI's paths and no version: <https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle>.
    if base.ends_with("/openai/v1") {
        return Ok(ResolvedEndpoint {
            url: api_url(config, base, "", api)?,
            auth_header,
            key: Some(key),
            azure_version: None,
        });
    }
    let version = filled(config.api_version.as_deref()).or(filled(environment.azure_api_version.as_deref()));
    let version = version.ok_or_else(|| missing("api_version", "AZURE_API_VERSION"))?;
    let deployment = filled(config.deployment.as_deref()).unwrap_or(&config.model);
    if deployment.is_empty() {
        return Err(ModelConfigError::new(config, "deployment", "missing; set it to the name of the deployment"));
    }
    let mut url = api_url(config, base, "/openai/deployments", api)?;
    if let Ok(mut path) = url.path_segments_mut() {
        let parts: Vec<&str> = api.path().split('/').filter(|part| !part.is_empty()).collect();
        parts.iter().for_each(|_| {
            path.pop();
        });
        path.push(deployment).extend(parts);
    }
    url.query_pairs_mut().append_pair("api-version", version);
    Ok(ResolvedEndpoint { url, auth_header, key: Some(key), azure_version: Some(version.into()) })
}

fn filled(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

fn api_url(config: &ModelConfig, base: &str, prefix: &str, api: ApiKind) -> Result<Url, ModelConfigError> {
    let base = base.trim_end_matches('/');
    let path = api.path();
    let base = base.strip_suffix(path).unwrap_or(base);
    http::parse_endpoint_url(&format!("{base}{prefix}{path}"))
        .map_err(|error| ModelConfigError::new(config, "api_base", error))
}

fn header(config: &ModelConfig, text: &str) -> Result<HeaderValue, ModelConfigError> {
    let mut value = HeaderValue::from_str(text.trim()).map_err(|_| {
        ModelConfigError::new(
            config,
            "api_key",
            "the key contains characters that are not allowed in a header; look for a line break",
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn config(provider: &str, api_base: Option<&str>) -> ModelConfig {
        ModelConfig {
            provider: provider.into(),
            model: "m".into(),
            api_base: api_base.map(Into::into),
            api_key: Some(Secret::new("k")),
            api_version: Some("2024-10-21".into()),
            ..ModelConfig::default()
        }
    }

    #[test]
    fn chat_urls() {
        let environment = LlmEnvironment { openai_api_base: Some("http://b/v1".into()), ..LlmEnvironment::default() };
        let wins = LlmEnvironment { openai_base_url: Some("http://a/v1/".into()), ..environment.clone() };
        let none = LlmEnvironment::default();
        for (provider, base, environment, url) in [
            ("openai", None, &none, "https://api.openai.com/v1/chat/completions"),
            ("openai", None, &environment, "http://b/v1/chat/completions"),
            ("openai", None, &wins, "http://a/v1/chat/completions"),
            ("openai", Some("http://c/v1"), &wins, "http://c/v1/chat/completions"),
            ("openai", Some("http://c/v1/chat/completions"), &wins, "http://c/v1/chat/completions"),
            ("ollama", None, &none, "http://localhost:11434/v1/chat/completions"),
            (
                "azure",
                Some("https://x.example/"),
                &none,
                "https://x.example/openai/deployments/m/chat/completions?api-version=2024-10-21",
            ),
            ("azure", Some("https://x.example/openai/v1/"), &none, "https://x.example/openai/v1/chat/completions"),
        ] {
            assert_eq!(
                ResolvedEndpoint::from_config(&config(provider, base), environment, ApiKind::Chat)
                    .unwrap()
                    .url
                    .as_str(),
                url,
                "{provider} {base:?}"
            );
        }
    }

    #[test]
    fn embeddings_have_their_own_urls() {
        let none = LlmEnvironment::default();
        for (provider, base, url) in [
            ("openai", None, "https://api.openai.com/v1/embeddings"),
            ("self-hosted", Some("http://c/v1/embeddings"), "http://c/v1/embeddings"),
            (
                "azure",
                Some("https://x.example"),
                "https://x.example/openai/deployments/m/embeddings?api-version=2024-10-21",
            ),
        ] {
            let endpoint = ResolvedEndpoint::from_config(&config(provider, base), &none, ApiKind::Embeddings).unwrap();
            assert_eq!(endpoint.url.as_str(), url, "{provider} {base:?}");
        }
    }

    #[test]
    fn the_authentication_header_depends_on_the_provider() {
        let none = LlmEnvironment::default();
        let endpoint =
            ResolvedEndpoint::from_config(&config("azure", Some("https://x.example")), &none, ApiKind::Chat).unwrap();
        let (name, value) = endpoint.auth_header.unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap(), value.is_sensitive()), ("api-key", "k", true));
        let endpoint =
            ResolvedEndpoint::from_config(&config("self-hosted", Some("http://x")), &none, ApiKind::Chat).unwrap();
        assert_eq!(endpoint.auth_header.unwrap().1.to_str().unwrap(), "Bearer k");
    }

    #[test]
    fn missing_and_invalid_settings_are_reported_with_a_fix() {
        let none = LlmEnvironment::default();
        let bare =
            |provider: &str| ModelConfig { provider: provider.into(), model: "m".into(), ..ModelConfig::default() };
        for (provider, key, fix) in [
            ("openai", "api_key", "OPENAI_API_KEY"),
            ("self-hosted", "api_base", "http://localhost:8000/v1"),
            ("azure", "api_base", "AZURE_API_BASE"),
        ] {
            let error = ResolvedEndpoint::from_config(&bare(provider), &none, ApiKind::Chat).err().unwrap();
            assert_eq!(error.key, key);
            assert!(error.to_string().contains(fix), "{error}");
        }
        let error = ResolvedEndpoint::from_config(&config("self-hosted", Some("not an address")), &none, ApiKind::Chat)
            .err()
            .unwrap();
        assert_eq!(error.key, "api_base");
        let newline = ModelConfig { api_key: Some(Secret::new("a\nb")), ..config("openai", None) };
        assert!(
            !ResolvedEndpoint::from_config(&newline, &none, ApiKind::Chat).err().unwrap().to_string().contains("a\nb")
        );
    }
}

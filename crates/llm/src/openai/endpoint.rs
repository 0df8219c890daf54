//! Where a model is asked, and with which proof.

use reqwest::{
    Url,
    header::{AUTHORIZATION, HeaderName, HeaderValue},
};
use segue_base::{http, secret::Secret};

use crate::{LlmEnvironment, ModelConfig, ModelConfigError};

/// The address of one model and the header that proves who asks.
pub(crate) struct Endpoint {
    /// The whole address.
    pub(crate) url: Url,
    /// `Authorization` or `api-key`; local servers need none.
    pub(crate) proof: Option<(HeaderName, HeaderValue)>,
    /// The key itself, to mask it in what comes back.
    pub(crate) key: Option<Secret>,
    /// Azure's `api-version`, when the path carries one.
    pub(crate) azure_version: Option<String>,
}

/// Where vendors offer chat completions, for entries without `api_base`. From their API references, November 2025.
const VENDORS: &[(&str, &str)] = &[
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

const OPENAI: &str = "https://api.openai.com/v1";

/// What is asked for at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// Answers.
    Chat,
    /// Vectors.
    Embeddings,
}

impl Service {
    fn path(self) -> &'static str {
        match self {
            Self::Chat => "/chat/completions",
            Self::Embeddings => "/embeddings",
        }
    }
}

impl Endpoint {
    pub(crate) fn of(
        config: &ModelConfig,
        around: &LlmEnvironment,
        service: Service,
    ) -> Result<Self, ModelConfigError> {
        if config.provider == "azure" { azure(config, around, service) } else { plain(config, around, service) }
    }
}

fn plain(config: &ModelConfig, around: &LlmEnvironment, service: Service) -> Result<Endpoint, ModelConfigError> {
    let provider = config.provider.as_str();
    let from_outside = match provider {
        "openai" => around.openai_base_url.as_deref().or(around.openai_api_base.as_deref()).or(Some(OPENAI)),
        _ => VENDORS.iter().find(|(name, _)| *name == provider).map(|(_, base)| *base),
    };
    let base = filled(config.api_base.as_deref()).or(filled(from_outside)).ok_or_else(|| {
        let known: Vec<&str> = VENDORS.iter().map(|(name, _)| *name).collect();
        ModelConfigError::new(config, "api_base", format_args!(
            "the address of the server is missing; set it, as in `http://localhost:8000/v1` (known without it: openai, {})",
            known.join(", ")
        ))
    })?;
    let key = config.api_key.clone().or_else(|| match provider {
        "openai" => around.openai_api_key.clone(),
        _ => around.other_keys.get(provider).cloned(),
    });
    // A server of one's own at OpenAI's place often needs no key; the vendor itself always does.
    if key.is_none() && base == OPENAI {
        return Err(ModelConfigError::new(
            config,
            "api_key",
            "no key; set the variable OPENAI_API_KEY, or `api_key: ${…}`",
        ));
    }
    let proof = match &key {
        Some(key) => Some((AUTHORIZATION, header(config, &format!("Bearer {}", key.expose()))?)),
        None => None,
    };
    Ok(Endpoint { url: address(config, base, "", service)?, proof, key, azure_version: None })
}

fn azure(config: &ModelConfig, around: &LlmEnvironment, service: Service) -> Result<Endpoint, ModelConfigError> {
    let missing =
        |key, variable| ModelConfigError::new(config, key, format_args!("missing; set it, or the variable {variable}"));
    let base = filled(config.api_base.as_deref()).or(filled(around.azure_api_base.as_deref()));
    let base = base.ok_or_else(|| missing("api_base", "AZURE_API_BASE"))?.trim_end_matches('/');
    let key = config.api_key.clone().or_else(|| around.azure_api_key.clone());
    let key = key.ok_or_else(|| missing("api_key", "AZURE_API_KEY"))?;
    let proof = Some((HeaderName::from_static("api-key"), header(config, key.expose())?));
    // The newer door of Azure has OpenAI's own paths and no version.
    if base.ends_with("/openai/v1") {
        return Ok(Endpoint { url: address(config, base, "", service)?, proof, key: Some(key), azure_version: None });
    }
    let version = filled(config.api_version.as_deref()).or(filled(around.azure_api_version.as_deref()));
    let version = version.ok_or_else(|| missing("api_version", "AZURE_API_VERSION"))?;
    let deployment = filled(config.deployment.as_deref()).unwrap_or(&config.model);
    if deployment.is_empty() {
        return Err(ModelConfigError::new(config, "deployment", "missing; set it to the name of the deployment"));
    }
    let mut url = address(config, base, "/openai/deployments", service)?;
    if let Ok(mut path) = url.path_segments_mut() {
        let parts: Vec<&str> = service.path().split('/').filter(|part| !part.is_empty()).collect();
        parts.iter().for_each(|_| {
            path.pop();
        });
        path.push(deployment).extend(parts);
    }
    url.query_pairs_mut().append_pair("api-version", version);
    Ok(Endpoint { url, proof, key: Some(key), azure_version: Some(version.into()) })
}

fn filled(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

fn address(config: &ModelConfig, base: &str, prefix: &str, service: Service) -> Result<Url, ModelConfigError> {
    let base = base.trim_end_matches('/');
    let path = service.path();
    let base = base.strip_suffix(path).unwrap_or(base);
    http::parse_endpoint_url(&format!("{base}{prefix}{path}"))
        .map_err(|error| ModelConfigError::new(config, "api_base", error))
}

fn header(config: &ModelConfig, text: &str) -> Result<HeaderValue, ModelConfigError> {
    let mut value = HeaderValue::from_str(text.trim()).map_err(|_| {
        ModelConfigError::new(
            config,
            "api_key",
            "the key holds characters that no header may carry; look for a line break",
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
    fn addresses() {
        let around = LlmEnvironment { openai_api_base: Some("http://b/v1".into()), ..LlmEnvironment::default() };
        let wins = LlmEnvironment { openai_base_url: Some("http://a/v1/".into()), ..around.clone() };
        let none = LlmEnvironment::default();
        for (provider, base, around, url) in [
            ("openai", None, &none, "https://api.openai.com/v1/chat/completions"),
            ("openai", None, &around, "http://b/v1/chat/completions"),
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
                Endpoint::of(&config(provider, base), around, Service::Chat).unwrap().url.as_str(),
                url,
                "{provider} {base:?}"
            );
        }
    }

    #[test]
    fn embeddings_have_an_address_of_their_own() {
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
            let endpoint = Endpoint::of(&config(provider, base), &none, Service::Embeddings).unwrap();
            assert_eq!(endpoint.url.as_str(), url, "{provider} {base:?}");
        }
    }

    #[test]
    fn proofs() {
        let none = LlmEnvironment::default();
        let endpoint = Endpoint::of(&config("azure", Some("https://x.example")), &none, Service::Chat).unwrap();
        let (name, value) = endpoint.proof.unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap(), value.is_sensitive()), ("api-key", "k", true));
        let endpoint = Endpoint::of(&config("self-hosted", Some("http://x")), &none, Service::Chat).unwrap();
        assert_eq!(endpoint.proof.unwrap().1.to_str().unwrap(), "Bearer k");
    }

    #[test]
    fn what_is_missing_is_named_with_its_cure() {
        let none = LlmEnvironment::default();
        let bare =
            |provider: &str| ModelConfig { provider: provider.into(), model: "m".into(), ..ModelConfig::default() };
        for (provider, key, cure) in [
            ("openai", "api_key", "OPENAI_API_KEY"),
            ("self-hosted", "api_base", "http://localhost:8000/v1"),
            ("azure", "api_base", "AZURE_API_BASE"),
        ] {
            let error = Endpoint::of(&bare(provider), &none, Service::Chat).err().unwrap();
            assert_eq!(error.key, key);
            assert!(error.to_string().contains(cure), "{error}");
        }
        let error = Endpoint::of(&config("self-hosted", Some("not an address")), &none, Service::Chat).err().unwrap();
        assert_eq!(error.key, "api_base");
        let newline = ModelConfig { api_key: Some(Secret::new("a\nb")), ..config("openai", None) };
        assert!(!Endpoint::of(&newline, &none, Service::Chat).err().unwrap().to_string().contains("a\nb"));
    }
}

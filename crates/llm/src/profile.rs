//! What each model family supports. Callers ask the profile and never test for a provider's name.
//!
//! Sources, as of November 2025: <https://platform.openai.com/docs/models> and
//! <https://platform.openai.com/docs/api-reference/chat/create>.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// What a model supports, as far as it changes what may be sent to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelProfile {
    /// The model's name, as configured.
    pub model: String,
    /// When `temperature` may be sent.
    pub temperature: TemperatureSupport,
    /// Which parameter carries the token limit.
    pub token_limit: TokenLimitParam,
    /// Values of `reasoning_effort` that it accepts, lowest first. Empty: the parameter is never sent.
    pub efforts: &'static [ReasoningEffort],
    /// Whether it accepts tools.
    pub supports_tools: bool,
    /// Whether it accepts `parallel_tool_calls`.
    pub supports_parallel_tool_calls: bool,
    /// Whether it accepts `strict` on a tool.
    pub supports_strict_tools: bool,
    /// Whether system messages may follow other messages. Otherwise later ones are sent with the role `user`.
    pub allows_late_system_messages: bool,
    /// Whether it accepts `stream_options`, and so reports the token usage of a stream.
    pub supports_stream_options: bool,
}

/// When `temperature` may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemperatureSupport {
    /// Always.
    Always,
    /// Only while the reasoning effort is `none`.
    WithoutReasoning,
    /// Never: the model rejects it.
    Never,
}

/// Which parameter carries the token limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenLimitParam {
    /// `max_tokens`, which every compatible server accepts.
    MaxTokens,
    /// `max_completion_tokens`, which newer OpenAI models require.
    MaxCompletionTokens,
}

/// How much a model reasons before it answers: the API parameter `reasoning_effort`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningEffort {
    /// No reasoning.
    None,
    /// `minimal`.
    Minimal,
    /// `low`.
    Low,
    /// `medium`.
    Medium,
    /// `high`.
    High,
    /// `xhigh`.
    Xhigh,
    /// `max`: as much as the model can.
    Max,
}

const FROM_LOW: &[ReasoningEffort] = &[ReasoningEffort::Low, ReasoningEffort::Medium, ReasoningEffort::High];
const FROM_MINIMAL: &[ReasoningEffort] =
    &[ReasoningEffort::Minimal, ReasoningEffort::Low, ReasoningEffort::Medium, ReasoningEffort::High];
const FROM_NONE: &[ReasoningEffort] =
    &[ReasoningEffort::None, ReasoningEffort::Low, ReasoningEffort::Medium, ReasoningEffort::High];
const FROM_NONE_TO_XHIGH: &[ReasoningEffort] = &[
    ReasoningEffort::None,
    ReasoningEffort::Low,
    ReasoningEffort::Medium,
    ReasoningEffort::High,
    ReasoningEffort::Xhigh,
];

impl ModelProfile {
    /// The profile of `model` at `provider`. Unknown models get what every compatible server understands.
    pub fn for_model(provider: &str, model: &str) -> Self {
        // Gateways prefix the name with the provider: `openai/gpt-5.1`.
        let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
        let is_openai = matches!(provider, "openai" | "azure") || model.starts_with("openai/");
        let default = Self {
            model: model.into(),
            temperature: TemperatureSupport::Always,
            token_limit: if is_openai { TokenLimitParam::MaxCompletionTokens } else { TokenLimitParam::MaxTokens },
            efforts: &[],
            supports_tools: true,
            supports_parallel_tool_calls: is_openai,
            supports_strict_tools: is_openai,
            allows_late_system_messages: is_openai,
            supports_stream_options: true,
        };
        // A self-hosted model may have any name, so OpenAI's rules hold only at OpenAI and Azure.
        if !is_openai {
            return Self { efforts: if name.starts_with("gpt-oss") { FROM_LOW } else { &[] }, ..default };
        }
        let reasoning = |efforts, temperature| Self { efforts, temperature, ..default.clone() };
        let old_series =
            ["o1", "o3", "o4"].iter().any(|series| name == *series || name.starts_with(&format!("{series}-")));
        if old_series {
            Self { supports_parallel_tool_calls: false, ..reasoning(FROM_LOW, TemperatureSupport::Never) }
        } else if name.starts_with("gpt-5") && name.contains("-chat") {
            default
        } else if name == "gpt-5" || name.starts_with("gpt-5-") {
            reasoning(FROM_MINIMAL, TemperatureSupport::Never)
        } else if name.starts_with("gpt-5.1") {
            reasoning(FROM_NONE, TemperatureSupport::WithoutReasoning)
        } else if name.starts_with("gpt-5.") {
            reasoning(FROM_NONE_TO_XHIGH, TemperatureSupport::WithoutReasoning)
        } else {
            default
        }
    }

    /// The effort to send: `asked` unchanged if the model has efforts at all; the lowest it has, if none was asked for.
    pub fn effort(&self, asked: Option<ReasoningEffort>) -> Option<ReasoningEffort> {
        let lowest = self.efforts.first()?;
        Some(asked.unwrap_or(*lowest))
    }

    /// The temperature to send when the effort is `effort`.
    pub fn temperature(&self, asked: Option<f64>, effort: Option<ReasoningEffort>) -> Option<f64> {
        match self.temperature {
            TemperatureSupport::Always => asked,
            TemperatureSupport::WithoutReasoning if effort.is_none_or(|effort| effort == ReasoningEffort::None) => {
                asked
            }
            TemperatureSupport::WithoutReasoning | TemperatureSupport::Never => None,
        }
    }

    /// Whether the model uses hidden reasoning at this effort, so that its first token may take long.
    pub fn uses_reasoning(&self, effort: Option<ReasoningEffort>) -> bool {
        effort.is_some_and(|effort| effort > ReasoningEffort::Minimal)
    }

    /// Like [`Self::uses_reasoning`], with the effort that the settings of model entries ask for; the highest, where several do.
    pub fn uses_reasoning_with<'a>(&self, settings: impl Iterator<Item = &'a Map<String, Json>>) -> bool {
        let asked =
            settings.filter_map(|settings| ReasoningEffort::deserialize(settings.get("reasoning_effort")?).ok()).max();
        self.uses_reasoning(self.effort(asked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temperature_is_omitted_where_reasoning_models_reject_it() {
        for (provider, model, effort, sent) in [
            ("openai", "gpt-4o-2024-11-20", None, Some(0.0)),
            ("openai", "gpt-5.1-2025-11-13", None, Some(0.0)),
            ("openai", "gpt-5.1-2025-11-13", Some(ReasoningEffort::Low), None),
            ("openai", "gpt-5-mini-2025-08-07", None, None),
            ("openai", "gpt-5-chat-latest", None, Some(0.0)),
            ("azure", "o3-mini", None, None),
            ("self-hosted", "o3-mini", None, Some(0.0)),
            ("openai", "o3000", None, Some(0.0)),
        ] {
            let profile = ModelProfile::for_model(provider, model);
            let effort = profile.effort(effort);
            assert_eq!(profile.temperature(Some(0.0), effort), sent, "{provider} {model}");
        }
    }

    #[test]
    fn the_default_effort_is_the_lowest_of_the_model() {
        for (model, lowest) in [
            ("gpt-5.1", Some(ReasoningEffort::None)),
            ("gpt-5-mini", Some(ReasoningEffort::Minimal)),
            ("o4-mini", Some(ReasoningEffort::Low)),
            ("gpt-4.1", None),
        ] {
            assert_eq!(ModelProfile::for_model("openai", model).effort(None), lowest, "{model}");
        }
        assert_eq!(ModelProfile::for_model("openai", "gpt-4.1").effort(Some(ReasoningEffort::High)), None);
    }

    #[test]
    fn reasoning_depends_on_the_effort_in_use() {
        for (provider, model, effort, reasons) in [
            ("openai", "gpt-5.1", None, false),
            ("openai", "gpt-5.1", Some("high"), true),
            ("openai", "gpt-5-mini", None, false),
            ("openai", "o4-mini", None, true),
            ("self-hosted", "gpt-oss-20b", None, true),
            ("openai", "gpt-4o", Some("high"), false),
        ] {
            let settings = effort.map(|effort| Map::from_iter([("reasoning_effort".to_owned(), Json::from(effort))]));
            let profile = ModelProfile::for_model(provider, model);
            assert_eq!(profile.uses_reasoning_with(settings.iter()), reasons, "{model} {effort:?}");
        }
    }

    #[test]
    fn unknown_servers_get_the_parameters_that_all_accept() {
        let profile = ModelProfile::for_model("self-hosted", "llama");
        assert_eq!(profile.token_limit, TokenLimitParam::MaxTokens);
        assert!(
            !profile.supports_strict_tools
                && !profile.supports_parallel_tool_calls
                && !profile.allows_late_system_messages
        );
    }
}

//! Facts about model families. The loops ask the profile, never for a vendor's name.
//!
//! Sources: the vendors' model pages and parameter references as of November 2025.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// Facts about a model that change what may be sent to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelProfile {
    /// The model's name, as configured.
    pub model: String,
    /// When `temperature` may be sent.
    pub temperature: Temperature,
    /// Under which name the token limit goes.
    pub token_limit: TokenLimitParam,
    /// Values of `reasoning_effort` it takes, lowest first; empty: the key is never sent.
    pub efforts: &'static [ReasoningEffort],
    /// Whether it takes tools at all.
    pub tools: bool,
    /// Whether it takes `parallel_tool_calls`.
    pub parallel_switch: bool,
    /// Whether it takes `strict` on a tool.
    pub strict_tools: bool,
    /// Whether system messages may follow other messages. Otherwise later ones are sent as the user's side.
    pub system_anywhere: bool,
    /// Whether it takes `stream_options`, and so tells the usage of a stream.
    pub stream_options: bool,
}

/// When `temperature` may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temperature {
    /// Always.
    Always,
    /// Only while the reasoning effort is `none`.
    WithoutReasoning,
    /// Never: the model refuses it.
    Never,
}

/// Under which name the token limit goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenLimitParam {
    /// `max_tokens`, which every compatible server knows.
    MaxTokens,
    /// `max_completion_tokens`, which newer vendor models insist on.
    MaxCompletionTokens,
}

/// How much a model shall think before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningEffort {
    /// Not at all.
    None,
    /// Hardly.
    Minimal,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// Very much.
    Xhigh,
    /// As much as it can.
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
    /// The facts for `model` of `provider`. Unknown models get what every compatible server understands.
    pub fn of(provider: &str, model: &str) -> Self {
        // A vendor prefix as gateways write it: `openai/gpt-5.1`.
        let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
        let vendor = matches!(provider, "openai" | "azure") || model.starts_with("openai/");
        let plain = Self {
            model: model.into(),
            temperature: Temperature::Always,
            token_limit: if vendor { TokenLimitParam::MaxCompletionTokens } else { TokenLimitParam::MaxTokens },
            efforts: &[],
            tools: true,
            parallel_switch: vendor,
            strict_tools: vendor,
            system_anywhere: vendor,
            stream_options: true,
        };
        // A self-hosted model may bear any name: vendor rules hold only at the vendor.
        if !vendor {
            return Self { efforts: if name.starts_with("gpt-oss") { FROM_LOW } else { &[] }, ..plain };
        }
        let reasoning = |efforts, temperature| Self { efforts, temperature, ..plain.clone() };
        let old_series =
            ["o1", "o3", "o4"].iter().any(|series| name == *series || name.starts_with(&format!("{series}-")));
        if old_series {
            Self { parallel_switch: false, ..reasoning(FROM_LOW, Temperature::Never) }
        } else if name.starts_with("gpt-5") && name.contains("-chat") {
            plain
        } else if name == "gpt-5" || name.starts_with("gpt-5-") {
            reasoning(FROM_MINIMAL, Temperature::Never)
        } else if name.starts_with("gpt-5.1") {
            reasoning(FROM_NONE, Temperature::WithoutReasoning)
        } else if name.starts_with("gpt-5.") {
            reasoning(FROM_NONE_TO_XHIGH, Temperature::WithoutReasoning)
        } else {
            plain
        }
    }

    /// The effort to send: `asked` untouched if the model knows efforts at all, else the lowest it knows, else none.
    pub fn effort(&self, asked: Option<ReasoningEffort>) -> Option<ReasoningEffort> {
        let lowest = self.efforts.first()?;
        Some(asked.unwrap_or(*lowest))
    }

    /// The temperature to send when the effort is `effort`.
    pub fn temperature(&self, asked: Option<f64>, effort: Option<ReasoningEffort>) -> Option<f64> {
        match self.temperature {
            Temperature::Always => asked,
            Temperature::WithoutReasoning if effort.is_none_or(|effort| effort == ReasoningEffort::None) => asked,
            Temperature::WithoutReasoning | Temperature::Never => None,
        }
    }

    /// Whether the model thinks unseen at this effort, so that its first token may take long.
    pub fn thinks(&self, effort: Option<ReasoningEffort>) -> bool {
        effort.is_some_and(|effort| effort > ReasoningEffort::Minimal)
    }

    /// The same with the effort that settings of entries ask for; the greatest, where several do.
    pub fn thinks_with<'a>(&self, settings: impl Iterator<Item = &'a Map<String, Json>>) -> bool {
        let asked =
            settings.filter_map(|settings| ReasoningEffort::deserialize(settings.get("reasoning_effort")?).ok()).max();
        self.thinks(self.effort(asked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_models_get_no_temperature_they_refuse() {
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
            let profile = ModelProfile::of(provider, model);
            let effort = profile.effort(effort);
            assert_eq!(profile.temperature(Some(0.0), effort), sent, "{provider} {model}");
        }
    }

    #[test]
    fn the_default_effort_is_the_lowest_the_model_knows() {
        for (model, lowest) in [
            ("gpt-5.1", Some(ReasoningEffort::None)),
            ("gpt-5-mini", Some(ReasoningEffort::Minimal)),
            ("o4-mini", Some(ReasoningEffort::Low)),
            ("gpt-4.1", None),
        ] {
            assert_eq!(ModelProfile::of("openai", model).effort(None), lowest, "{model}");
        }
        assert_eq!(ModelProfile::of("openai", "gpt-4.1").effort(Some(ReasoningEffort::High)), None);
    }

    #[test]
    fn who_thinks_is_decided_by_the_effort_and_not_by_what_the_model_could_do() {
        for (provider, model, effort, thinks) in [
            ("openai", "gpt-5.1", None, false),
            ("openai", "gpt-5.1", Some("high"), true),
            ("openai", "gpt-5-mini", None, false),
            ("openai", "o4-mini", None, true),
            ("self-hosted", "gpt-oss-20b", None, true),
            ("openai", "gpt-4o", Some("high"), false),
        ] {
            let settings = effort.map(|effort| Map::from_iter([("reasoning_effort".to_owned(), Json::from(effort))]));
            let profile = ModelProfile::of(provider, model);
            assert_eq!(profile.thinks_with(settings.iter()), thinks, "{model} {effort:?}");
        }
    }

    #[test]
    fn strange_servers_get_the_common_words() {
        let profile = ModelProfile::of("self-hosted", "llama");
        assert_eq!(profile.token_limit, TokenLimitParam::MaxTokens);
        assert!(!profile.strict_tools && !profile.parallel_switch && !profile.system_anywhere);
    }
}

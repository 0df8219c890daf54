//! What the families of Claude models support: how thinking is requested, and which parameters they reject.
//!
//! Sources: Anthropic's documentation on thinking, effort and migration as of November 2026 (<https://platform.claude.com/docs>:
//! "Effort", "Thinking troubleshooting", "What's new" of Opus 5 and 5.5, Sonnet 5.5, Haiku 5.5). A model that is newer than this
//! table is treated like the newest of its name.

use serde_json::{Value, json};

use crate::profile::{ModelProfile, ReasoningEffort, TemperatureSupport, TokenLimitParam};

/// How thinking is requested from a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThinkingMode {
    /// It has no thinking.
    Never,
    /// By a token budget (`thinking.type: enabled`); off by default.
    Budget,
    /// By effort (`thinking.type: adaptive`); off by default.
    Adaptive,
    /// By effort; on by default, and turned off by this `thinking.type`.
    AdaptiveUnless(&'static str),
    /// By effort; cannot be turned off.
    Always,
}

/// One family of models.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    thinking: ThinkingMode,
    efforts: &'static [ReasoningEffort],
    /// Whether it accepts `temperature`, `top_p` and `top_k`.
    pub(super) supports_sampling: bool,
    /// Whether it can enforce the schemas of strict tools.
    pub(super) supports_strict_tools: bool,
}

const BUDGETED: &[ReasoningEffort] =
    &[ReasoningEffort::None, ReasoningEffort::Low, ReasoningEffort::Medium, ReasoningEffort::High];
const OF_4_6: &[ReasoningEffort] = &[
    ReasoningEffort::None,
    ReasoningEffort::Low,
    ReasoningEffort::Medium,
    ReasoningEffort::High,
    ReasoningEffort::Max,
];
const SINCE_4_7: &[ReasoningEffort] = &[
    ReasoningEffort::None,
    ReasoningEffort::Low,
    ReasoningEffort::Medium,
    ReasoningEffort::High,
    ReasoningEffort::Xhigh,
    ReasoningEffort::Max,
];
const ALWAYS: &[ReasoningEffort] = &[
    ReasoningEffort::Low,
    ReasoningEffort::Medium,
    ReasoningEffort::High,
    ReasoningEffort::Xhigh,
    ReasoningEffort::Max,
];

impl Family {
    /// The family of a model, by its name at Anthropic or at a cloud provider (`anthropic.claude-opus-4-6-v1`).
    pub(super) fn from_model_name(model: &str) -> Self {
        let name = model.to_ascii_lowercase();
        let (_, rest) = name.split_once("claude-").unwrap_or(("", ""));
        let parts: Vec<&str> = rest.split(['-', '@', '.', ':']).collect();
        let has = |kind: &str| parts.contains(&kind);
        // Dates have eight digits; a version has one or two.
        let mut numbers = parts.iter().filter(|part| part.len() < 3).filter_map(|part| part.parse::<u32>().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let newest = has("fable") || has("mythos");
        // Amazon Bedrock, whose names begin with `anthropic.`, supports strict tools only for these versions.
        let supports_strict_tools = match name.contains("anthropic.claude") {
            true => matches!(version, (4, 5 | 6)),
            false => newest || version >= (4, 5),
        };
        let of =
            |thinking, efforts, supports_sampling| Self { thinking, efforts, supports_sampling, supports_strict_tools };
        if newest || (has("opus") && version >= (5, 5)) {
            of(ThinkingMode::Always, ALWAYS, false)
        } else if has("sonnet") && version >= (5, 5) {
            of(ThinkingMode::AdaptiveUnless("between_tools"), SINCE_4_7, false)
        } else if version >= (5, 0) {
            of(ThinkingMode::AdaptiveUnless("disabled"), SINCE_4_7, false)
        } else if version >= (4, 7) {
            of(ThinkingMode::Adaptive, SINCE_4_7, false)
        } else if version >= (4, 6) {
            of(ThinkingMode::Adaptive, OF_4_6, true)
        } else if version >= (4, 0) || version == (3, 7) {
            of(ThinkingMode::Budget, BUDGETED, true)
        } else {
            of(ThinkingMode::Never, &[], true)
        }
    }

    /// The profile of `model`.
    pub(super) fn profile(&self, model: &str) -> ModelProfile {
        ModelProfile {
            model: model.into(),
            temperature: if self.supports_sampling {
                TemperatureSupport::WithoutReasoning
            } else {
                TemperatureSupport::Never
            },
            token_limit: TokenLimitParam::MaxTokens,
            efforts: self.efforts,
            supports_tools: true,
            supports_parallel_tool_calls: true,
            supports_strict_tools: self.supports_strict_tools,
            allows_late_system_messages: false,
            supports_stream_options: false,
        }
    }

    /// The highest effort of the family that is not above `asked`; the lowest, when none was asked for.
    pub(super) fn effort(&self, asked: Option<ReasoningEffort>) -> Option<ReasoningEffort> {
        let lowest = self.efforts.first().copied()?;
        let asked = asked.unwrap_or(lowest);
        Some(self.efforts.iter().copied().filter(|effort| *effort <= asked).max().unwrap_or(lowest))
    }

    /// The values of `thinking` and of `output_config.effort` at this effort.
    pub(super) fn thinking_params(&self, effort: Option<ReasoningEffort>) -> (Option<Value>, Option<ReasoningEffort>) {
        let requested = effort.filter(|effort| *effort > ReasoningEffort::Minimal);
        match (self.thinking, requested) {
            (ThinkingMode::Never, _) | (ThinkingMode::Budget | ThinkingMode::Adaptive, None) => (None, None),
            (ThinkingMode::Budget, Some(effort)) => {
                (Some(json!({"type": "enabled", "budget_tokens": thinking_budget(Some(effort))})), None)
            }
            (ThinkingMode::Adaptive | ThinkingMode::AdaptiveUnless(_), Some(effort)) => {
                (Some(json!({"type": "adaptive"})), Some(effort))
            }
            (ThinkingMode::AdaptiveUnless(off), None) => (Some(json!({"type": off})), None),
            (ThinkingMode::Always, effort) => (None, effort.or(Some(ReasoningEffort::Low))),
        }
    }
}

/// Tokens for thinking, which are added to those of the response because `max_tokens` limits both together. The API accepts
/// budgets from 1,024.
pub(super) fn thinking_budget(effort: Option<ReasoningEffort>) -> u32 {
    match effort {
        None | Some(ReasoningEffort::None | ReasoningEffort::Minimal) => 0,
        Some(ReasoningEffort::Low) => 2_048,
        Some(ReasoningEffort::Medium) => 8_192,
        Some(ReasoningEffort::High) => 16_384,
        Some(ReasoningEffort::Xhigh | ReasoningEffort::Max) => 32_768,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_generation_gets_its_own_thinking_parameters() {
        let adaptive = || Some(json!({"type": "adaptive"}));
        let off = |kind: &str| Some(json!({"type": kind}));
        for (model, by_default, at_high) in [
            ("claude-3-5-haiku-20241022", (None, None), (None, None)),
            (
                "claude-3-7-sonnet-20250219",
                (None, None),
                (Some(json!({"type": "enabled", "budget_tokens": 16384})), None),
            ),
            (
                "claude-sonnet-4-20250514",
                (None, None),
                (Some(json!({"type": "enabled", "budget_tokens": 16384})), None),
            ),
            ("claude-haiku-4-5", (None, None), (Some(json!({"type": "enabled", "budget_tokens": 16384})), None)),
            ("anthropic.claude-opus-4-6-v1", (None, None), (adaptive(), Some(ReasoningEffort::High))),
            ("claude-opus-4-8", (None, None), (adaptive(), Some(ReasoningEffort::High))),
            ("anthropic/claude-opus-5", (off("disabled"), None), (adaptive(), Some(ReasoningEffort::High))),
            ("claude-haiku-5-5", (off("disabled"), None), (adaptive(), Some(ReasoningEffort::High))),
            ("claude-sonnet-5-5", (off("between_tools"), None), (adaptive(), Some(ReasoningEffort::High))),
            ("claude-opus-5-5", (None, Some(ReasoningEffort::Low)), (None, Some(ReasoningEffort::High))),
            ("claude-mythos-preview", (None, Some(ReasoningEffort::Low)), (None, Some(ReasoningEffort::High))),
            ("some-proxy-name", (None, None), (None, None)),
        ] {
            let family = Family::from_model_name(model);
            assert_eq!(family.thinking_params(family.effort(None)), by_default, "{model} by default");
            assert_eq!(family.thinking_params(family.effort(Some(ReasoningEffort::High))), at_high, "{model} at high");
        }
    }

    #[test]
    fn an_unsupported_effort_becomes_the_next_lower_one() {
        for (model, asked, sent) in [
            ("claude-opus-4-6", ReasoningEffort::Xhigh, Some(ReasoningEffort::High)),
            ("claude-opus-4-7", ReasoningEffort::Xhigh, Some(ReasoningEffort::Xhigh)),
            ("claude-opus-4-5", ReasoningEffort::Max, Some(ReasoningEffort::High)),
            ("claude-opus-5-5", ReasoningEffort::None, Some(ReasoningEffort::Low)),
            ("claude-opus-4-7", ReasoningEffort::Minimal, Some(ReasoningEffort::None)),
            ("claude-3-haiku-20240307", ReasoningEffort::High, None),
        ] {
            assert_eq!(Family::from_model_name(model).effort(Some(asked)), sent, "{model} at {asked:?}");
        }
    }

    #[test]
    fn models_since_4_5_support_strict_tools() {
        for (model, strict) in [
            ("claude-3-7-sonnet-20250219", false),
            ("claude-opus-4-1-20250805", false),
            ("claude-sonnet-4-20250514", false),
            ("claude-haiku-4-5-20251001", true),
            ("anthropic.claude-opus-4-6-v1", true),
            ("us.anthropic.claude-haiku-4-5-20251001-v1:0", true),
            ("anthropic.claude-opus-4-7", false),
            ("claude-mythos-preview", true),
            ("some-proxy-name", false),
        ] {
            assert_eq!(Family::from_model_name(model).supports_strict_tools, strict, "{model}");
        }
    }

    #[test]
    fn newer_models_do_not_support_sampling_parameters() {
        for (model, supports_sampling) in
            [("claude-sonnet-4-6", true), ("claude-opus-4-7", false), ("claude-haiku-5-5", false), ("mine", true)]
        {
            assert_eq!(Family::from_model_name(model).supports_sampling, supports_sampling, "{model}");
        }
    }
}

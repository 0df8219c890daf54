//! Facts about the Claude models: how each is told to think, and what each refuses.
//!
//! Sources: the vendor's pages on thinking, effort and migration as of November 2026 (platform.claude.com, "Effort",
//! "Thinking troubleshooting", "What's new" of Opus 5 and 5.5, Sonnet 5.5, Haiku 5.5). A model that is newer than this table is
//! taken to be like the newest of its name.

use serde_json::{Value, json};

use crate::profile::{ModelProfile, ReasoningEffort, Temperature, TokenLimitParam};

/// How a model is told to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thinking {
    /// It does not think unseen.
    Never,
    /// With a budget of tokens (`thinking.type: enabled`); off unless asked for.
    Budget,
    /// By effort (`thinking.type: adaptive`); off unless asked for.
    Adaptive,
    /// By effort, and on unless this `thinking.type` turns it off.
    AdaptiveUnless(&'static str),
    /// By effort, always.
    Always,
}

/// One family of models.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    thinking: Thinking,
    efforts: &'static [ReasoningEffort],
    /// Whether it takes `temperature`, `top_p` and `top_k`.
    pub(super) samples: bool,
    /// Whether it can hold calls to the schemas of their tools.
    pub(super) strict: bool,
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
    /// The family of a model, by its name at the vendor or at a cloud (`anthropic.claude-opus-4-6-v1`).
    pub(super) fn of(model: &str) -> Self {
        let name = model.to_ascii_lowercase();
        let (_, rest) = name.split_once("claude-").unwrap_or(("", ""));
        let parts: Vec<&str> = rest.split(['-', '@', '.', ':']).collect();
        let has = |kind: &str| parts.contains(&kind);
        // Dates have eight digits; a version has one or two.
        let mut numbers = parts.iter().filter(|part| part.len() < 3).filter_map(|part| part.parse::<u32>().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let newest = has("fable") || has("mythos");
        // One cloud, whose names begin with `anthropic.`, names only these for it.
        let strict = match name.contains("anthropic.claude") {
            true => matches!(version, (4, 5 | 6)),
            false => newest || version >= (4, 5),
        };
        let of = |thinking, efforts, samples| Self { thinking, efforts, samples, strict };
        if newest || (has("opus") && version >= (5, 5)) {
            of(Thinking::Always, ALWAYS, false)
        } else if has("sonnet") && version >= (5, 5) {
            of(Thinking::AdaptiveUnless("between_tools"), SINCE_4_7, false)
        } else if version >= (5, 0) {
            of(Thinking::AdaptiveUnless("disabled"), SINCE_4_7, false)
        } else if version >= (4, 7) {
            of(Thinking::Adaptive, SINCE_4_7, false)
        } else if version >= (4, 6) {
            of(Thinking::Adaptive, OF_4_6, true)
        } else if version >= (4, 0) || version == (3, 7) {
            of(Thinking::Budget, BUDGETED, true)
        } else {
            of(Thinking::Never, &[], true)
        }
    }

    /// The facts that the loops ask for.
    pub(super) fn profile(&self, model: &str) -> ModelProfile {
        ModelProfile {
            model: model.into(),
            temperature: if self.samples { Temperature::WithoutReasoning } else { Temperature::Never },
            token_limit: TokenLimitParam::MaxTokens,
            efforts: self.efforts,
            tools: true,
            parallel_switch: true,
            strict_tools: self.strict,
            system_anywhere: false,
            stream_options: false,
        }
    }

    /// The effort that this family knows and that is nearest below `asked`; the lowest, when none was asked for.
    pub(super) fn effort(&self, asked: Option<ReasoningEffort>) -> Option<ReasoningEffort> {
        let lowest = self.efforts.first().copied()?;
        let asked = asked.unwrap_or(lowest);
        Some(self.efforts.iter().copied().filter(|effort| *effort <= asked).max().unwrap_or(lowest))
    }

    /// The values of `thinking` and of `output_config.effort` at this effort.
    pub(super) fn words(&self, effort: Option<ReasoningEffort>) -> (Option<Value>, Option<ReasoningEffort>) {
        let thinks = effort.filter(|effort| *effort > ReasoningEffort::Minimal);
        match (self.thinking, thinks) {
            (Thinking::Never, _) | (Thinking::Budget | Thinking::Adaptive, None) => (None, None),
            (Thinking::Budget, Some(effort)) => {
                (Some(json!({"type": "enabled", "budget_tokens": allowance(Some(effort))})), None)
            }
            (Thinking::Adaptive | Thinking::AdaptiveUnless(_), Some(effort)) => {
                (Some(json!({"type": "adaptive"})), Some(effort))
            }
            (Thinking::AdaptiveUnless(off), None) => (Some(json!({"type": off})), None),
            (Thinking::Always, effort) => (None, effort.or(Some(ReasoningEffort::Low))),
        }
    }
}

/// Tokens that thoughts may take beside those of the answer, since `max_tokens` counts both. The least budget that the vendor
/// takes is 1,024.
pub(super) fn allowance(effort: Option<ReasoningEffort>) -> u32 {
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
    fn every_generation_is_told_to_think_in_its_own_words() {
        let adaptive = || Some(json!({"type": "adaptive"}));
        let off = |kind: &str| Some(json!({"type": kind}));
        for (model, unasked, at_high) in [
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
            let family = Family::of(model);
            assert_eq!(family.words(family.effort(None)), unasked, "{model} unasked");
            assert_eq!(family.words(family.effort(Some(ReasoningEffort::High))), at_high, "{model} at high");
        }
    }

    #[test]
    fn an_effort_that_a_model_does_not_know_becomes_the_nearest_below() {
        for (model, asked, sent) in [
            ("claude-opus-4-6", ReasoningEffort::Xhigh, Some(ReasoningEffort::High)),
            ("claude-opus-4-7", ReasoningEffort::Xhigh, Some(ReasoningEffort::Xhigh)),
            ("claude-opus-4-5", ReasoningEffort::Max, Some(ReasoningEffort::High)),
            ("claude-opus-5-5", ReasoningEffort::None, Some(ReasoningEffort::Low)),
            ("claude-opus-4-7", ReasoningEffort::Minimal, Some(ReasoningEffort::None)),
            ("claude-3-haiku-20240307", ReasoningEffort::High, None),
        ] {
            assert_eq!(Family::of(model).effort(Some(asked)), sent, "{model} at {asked:?}");
        }
    }

    #[test]
    fn models_since_4_5_hold_calls_to_their_schemas() {
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
            assert_eq!(Family::of(model).strict, strict, "{model}");
        }
    }

    #[test]
    fn newer_models_take_no_temperature() {
        for (model, samples) in
            [("claude-sonnet-4-6", true), ("claude-opus-4-7", false), ("claude-haiku-5-5", false), ("mine", true)]
        {
            assert_eq!(Family::of(model).samples, samples, "{model}");
        }
    }
}

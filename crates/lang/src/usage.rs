//! What models used: in one turn, or in a whole conversation.

use std::{fmt, ops::AddAssign};

use serde::{Deserialize, Serialize};

/// Tokens of one answer, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the requests, cached ones included.
    pub input: u64,
    /// Tokens of the answers, unseen reasoning included.
    pub output: u64,
    /// Those of `input` that came from a vendor's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached: u64,
    /// Those of `input` that were written to a vendor's cache, where it says so.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_written: u64,
    /// Those of `output` that were unseen reasoning.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning: u64,
    /// A vendor gave no believable figures: some are counted from bytes, four to a token.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
    /// What the answers cost that have prices, in the currency of the project's author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

/// Answers of models, their tokens, and what they cost. Calls that failed are not counted: vendors do not tell what those used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelUsage {
    /// Answers.
    pub answers: u64,
    /// What they used together.
    #[serde(flatten)]
    pub usage: Usage,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A price without the dust of binary fractions: to a millionth of a millionth.
pub fn rounded(cost: f64) -> f64 {
    (cost * 1e12).round() / 1e12
}

impl ModelUsage {
    /// What one answer used.
    pub fn once(usage: Usage) -> Self {
        Self { answers: 1, usage }
    }
    /// Whether no model answered.
    pub fn is_nothing(&self) -> bool {
        self.answers == 0
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, more: Self) {
        self.input = self.input.saturating_add(more.input);
        self.output = self.output.saturating_add(more.output);
        self.cached = self.cached.saturating_add(more.cached);
        self.cache_written = self.cache_written.saturating_add(more.cache_written);
        self.reasoning = self.reasoning.saturating_add(more.reasoning);
        self.estimated |= more.estimated;
        self.cost = match (self.cost, more.cost) {
            (Some(mine), Some(more)) => Some(rounded(mine + more)),
            (mine, more) => mine.or(more),
        };
    }
}

impl AddAssign for ModelUsage {
    fn add_assign(&mut self, more: Self) {
        self.answers = self.answers.saturating_add(more.answers);
        self.usage += more.usage;
    }
}

/// For people: `3 answers, 1,200 tokens in (900 cached), 80 out, cost 0.0042`.
impl fmt::Display for ModelUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Usage { input, output, cached, cache_written, reasoning, estimated, cost } = self.usage;
        let about = if estimated { "about " } else { "" };
        let answers = if self.answers == 1 { "answer" } else { "answers" };
        write!(f, "{} {answers}, {about}{input} tokens in", self.answers)?;
        match (cached, cache_written) {
            (0, 0) => {}
            (cached, 0) => write!(f, " ({cached} cached)")?,
            (cached, written) => write!(f, " ({cached} cached, {written} written to the cache)")?,
        }
        write!(f, ", {about}{output} out")?;
        if reasoning > 0 {
            write!(f, " ({reasoning} reasoning)")?;
        }
        match cost {
            Some(cost) => write!(f, ", cost {cost}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_told_to_people_and_survive_storage() {
        let mut used = ModelUsage::once(Usage { input: 100, output: 7, ..Usage::default() });
        assert_eq!(used.to_string(), "1 answer, 100 tokens in, 7 out");
        used += ModelUsage::once(Usage {
            input: 900,
            cached: 800,
            cache_written: 50,
            output: 40,
            reasoning: 30,
            cost: Some(0.1),
            estimated: true,
        });
        used += ModelUsage::once(Usage { cost: Some(0.2), ..Usage::default() });
        assert_eq!(
            used.to_string(),
            "3 answers, about 1000 tokens in (800 cached, 50 written to the cache), about 47 out (30 reasoning), cost 0.3"
        );
        let text = serde_json::to_string(&used).unwrap_or_default();
        assert_eq!(serde_json::from_str::<ModelUsage>(&text).ok(), Some(used));
    }

    /// Turns that are stored have the figures beside the number of answers.
    #[test]
    fn figures_stand_where_they_always_stood() {
        let stored = r#"{"answers":2,"input":200,"output":20,"cached":120,"cost":0.25}"#;
        let usage = Usage { input: 200, output: 20, cached: 120, cost: Some(0.25), ..Usage::default() };
        let used = ModelUsage { answers: 2, usage };
        assert_eq!(serde_json::from_str::<ModelUsage>(stored).ok(), Some(used));
        assert_eq!(serde_json::to_string(&used).ok().as_deref(), Some(stored));
    }
}

//! Token usage and cost of model calls, of one turn or of a whole conversation. Both are stored in events.

use std::{fmt, ops::AddAssign};

use serde::{Deserialize, Serialize};

/// Token counts of one model response, or the sum of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens, including cached ones.
    pub input: u64,
    /// Output tokens, including hidden reasoning.
    pub output: u64,
    /// The part of `input` that was read from the vendor's prompt cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached: u64,
    /// The part of `input` that was written to the vendor's prompt cache, if the vendor reports it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_written: u64,
    /// The part of `output` that was hidden reasoning.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning: u64,
    /// Some counts are estimates, four bytes to a token, because a vendor reported no plausible ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
    /// The cost of the responses whose model has a price, in the currency of the project's prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

/// A number of model responses with their token usage and cost. Failed calls are not counted, because vendors do not report their
/// usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelUsage {
    /// Number of responses.
    pub answers: u64,
    /// Their usage in total.
    #[serde(flatten)]
    pub usage: Usage,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Rounds a cost to twelve decimal places, which removes the error of binary fractions.
pub fn round_cost(cost: f64) -> f64 {
    (cost * 1e12).round() / 1e12
}

impl ModelUsage {
    /// The usage of one response.
    pub fn single(usage: Usage) -> Self {
        Self { answers: 1, usage }
    }
    /// Whether there is no response.
    pub fn is_empty(&self) -> bool {
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
            (Some(mine), Some(more)) => Some(round_cost(mine + more)),
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

/// For people: `3 responses, 1200 tokens in (900 cached), 80 out, cost 0.0042`.
impl fmt::Display for ModelUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Usage { input, output, cached, cache_written, reasoning, estimated, cost } = self.usage;
        let about = if estimated { "about " } else { "" };
        let answers = if self.answers == 1 { "response" } else { "responses" };
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
    fn sums_print_and_round_trip_as_json() {
        let mut used = ModelUsage::single(Usage { input: 100, output: 7, ..Usage::default() });
        assert_eq!(used.to_string(), "1 response, 100 tokens in, 7 out");
        used += ModelUsage::single(Usage {
            input: 900,
            cached: 800,
            cache_written: 50,
            output: 40,
            reasoning: 30,
            cost: Some(0.1),
            estimated: true,
        });
        used += ModelUsage::single(Usage { cost: Some(0.2), ..Usage::default() });
        assert_eq!(
            used.to_string(),
            "3 responses, about 1000 tokens in (800 cached, 50 written to the cache), about 47 out (30 reasoning), cost 0.3"
        );
        let text = serde_json::to_string(&used).unwrap_or_default();
        assert_eq!(serde_json::from_str::<ModelUsage>(&text).ok(), Some(used));
    }

    /// The stored form is flat: the token counts are next to `answers`.
    #[test]
    fn stored_usage_is_flat() {
        let stored = r#"{"answers":2,"input":200,"output":20,"cached":120,"cost":0.25}"#;
        let usage = Usage { input: 200, output: 20, cached: 120, cost: Some(0.25), ..Usage::default() };
        let used = ModelUsage { answers: 2, usage };
        assert_eq!(serde_json::from_str::<ModelUsage>(stored).ok(), Some(used));
        assert_eq!(serde_json::to_string(&used).ok().as_deref(), Some(stored));
    }
}

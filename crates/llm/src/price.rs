//! The cost of a call: the prices of a model's entry times its token usage.

use segue_lang::usage::round_cost;
use serde_json::Value;

use super::{ModelConfig, message::Usage};

/// Keys of a model entry that configure routing, prices and the prompt cache. They are never sent to the provider.
pub(super) const LOCAL_KEYS: &[&str] =
    &["rpm", "tpm", "weight", INPUT, OUTPUT, CACHE_READ, CACHE_WRITE, REASONING, "prompt_cache"];

const INPUT: &str = "input_cost_per_token";
const OUTPUT: &str = "output_cost_per_token";
const CACHE_READ: &str = "cache_read_input_token_cost";
const CACHE_WRITE: &str = "cache_creation_input_token_cost";
const REASONING: &str = "output_cost_per_reasoning_token";

/// Prices per token, in the currency of the project's author.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// An input token.
    pub input: f64,
    /// An output token.
    pub output: f64,
    /// An input token read from the provider's prompt cache.
    pub cache_read: f64,
    /// An input token written to the provider's prompt cache.
    pub cache_write: f64,
    /// A token of hidden reasoning.
    pub reasoning: f64,
}

impl Prices {
    /// The prices of a model entry; `None` where it has neither an input nor an output price.
    pub fn from_config(config: &ModelConfig) -> Option<Self> {
        let price = |key: &str| config.extra.get(key).and_then(Value::as_f64).filter(|price| *price >= 0.0);
        if price(INPUT).is_none() && price(OUTPUT).is_none() {
            return None;
        }
        let (input, output) = (price(INPUT).unwrap_or(0.0), price(OUTPUT).unwrap_or(0.0));
        Some(Self {
            input,
            output,
            cache_read: price(CACHE_READ).unwrap_or(input),
            cache_write: price(CACHE_WRITE).unwrap_or(input),
            reasoning: price(REASONING).unwrap_or(output),
        })
    }

    /// The cost of `usage`, round_cost.
    pub fn cost(&self, usage: &Usage) -> f64 {
        let plain = usage.input.saturating_sub(usage.cached).saturating_sub(usage.cache_written);
        let visible = usage.output.saturating_sub(usage.reasoning);
        let times = |tokens: u64, price: f64| tokens as f64 * price;
        let cost = times(plain, self.input)
            + times(usage.cached, self.cache_read)
            + times(usage.cache_written, self.cache_write)
            + times(visible, self.output)
            + times(usage.reasoning, self.reasoning);
        round_cost(cost)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn prices(extra: Value) -> Option<Prices> {
        Prices::from_config(&ModelConfig { extra: extra.as_object().unwrap().clone(), ..ModelConfig::default() })
    }

    #[test]
    fn each_kind_of_token_has_its_price() {
        let prices = prices(json!({INPUT: 3e-6, OUTPUT: 15e-6, CACHE_READ: 0.3e-6, CACHE_WRITE: 3.75e-6})).unwrap();
        let usage =
            Usage { input: 1_000, cached: 600, cache_written: 300, output: 50, reasoning: 20, ..Usage::default() };
        let expected = 100.0 * 3e-6 + 600.0 * 0.3e-6 + 300.0 * 3.75e-6 + 50.0 * 15e-6;
        assert!((prices.cost(&usage) - expected).abs() < 1e-12, "{}", prices.cost(&usage));
        assert_eq!(prices.cost(&Usage { input: 1, output: 1, ..Usage::default() }), 1.8e-5);
    }

    #[test]
    fn entries_without_input_and_output_prices_have_no_prices() {
        assert_eq!(prices(json!({"rpm": 5, CACHE_READ: 1e-6})), None);
        assert_eq!(prices(json!({INPUT: -1, OUTPUT: 2e-6})).unwrap().input, 0.0);
    }
}

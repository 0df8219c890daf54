//! Routing strategies: the order in which the members of a group are called.
//!
//! The order depends only on the call and on the members' stats. The same call with the same stats gets the same order, so
//! that a turn that runs again after a crash calls the same model.

use std::{cmp::Ordering, time::Duration};

use serde_json::Value;

use super::circuit_breaker::MemberStats;
use crate::{ModelConfig, price::Prices, retry::random};

/// How the order of the members is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RoutingStrategy {
    /// In the order of the configuration.
    #[default]
    InOrder,
    /// Random, weighted by `weight`, else `rpm`, else `tpm`. The call itself is the seed.
    Shuffle,
    /// The member with the fewest calls in progress.
    LeastBusy,
    /// The member with the lowest latency; members without measurements come first.
    Latency,
    /// The cheapest member; members without prices come last.
    Cost,
    /// The member with the fewest tokens in the current minute; one that reached its `rpm` or `tpm` comes last.
    Usage,
}

impl RoutingStrategy {
    /// The names of `routing_strategy`, with those of older versions.
    pub const NAMES: &'static [(&'static str, Self)] = &[
        ("simple-shuffle", Self::Shuffle),
        ("least-busy", Self::LeastBusy),
        ("latency-based-routing", Self::Latency),
        ("cost-based-routing", Self::Cost),
        ("usage-based-routing", Self::Usage),
        ("usage-based-routing-v2", Self::Usage),
        ("in-order", Self::InOrder),
    ];

    /// The strategy of a router's `routing_strategy`; `Shuffle` where it has none or an unknown one.
    pub fn from_router_key(name: Option<&str>) -> Self {
        name.and_then(Self::from_name).unwrap_or(Self::Shuffle)
    }

    /// The strategy with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, strategy)| *strategy)
    }
}

/// The section `router` of a model group. Fields that are not set take their value from [`segue_base::limits`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouterConfig {
    /// `routing_strategy`.
    pub strategy: RoutingStrategy,
    /// `cooldown_time`: how long the circuit of a failed member stays open.
    pub cooldown: Option<Duration>,
    /// `allowed_fails`: failures within [`segue_base::limits::MODEL_FAILURE_WINDOW`] that open the circuit.
    pub allowed_fails: Option<u32>,
    /// `num_retries`: attempts of one call after the first, over all members.
    pub num_retries: Option<u32>,
}

/// Weight, rate limits and prices of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemberLimits {
    /// Weight of [`RoutingStrategy::Shuffle`].
    pub weight: Option<f64>,
    /// Requests per minute.
    pub rpm: Option<f64>,
    /// Tokens per minute.
    pub tpm: Option<f64>,
    /// Prices of its tokens.
    pub prices: Option<Prices>,
}

impl MemberLimits {
    /// The limits of a model entry.
    pub fn from_config(config: &ModelConfig) -> Self {
        let number = |key: &str| config.extra.get(key).and_then(Value::as_f64).filter(|number| *number > 0.0);
        Self { weight: number("weight"), rpm: number("rpm"), tpm: number("tpm"), prices: Prices::from_config(config) }
    }

    fn effective_weight(&self) -> f64 {
        self.weight.or(self.rpm).or(self.tpm).unwrap_or(1.0)
    }

    fn is_over_limit(&self, stats: &MemberStats) -> bool {
        let over = |limit: Option<f64>, used: u64| limit.is_some_and(|limit| used as f64 >= limit);
        over(self.rpm, stats.requests) || over(self.tpm, stats.tokens)
    }
}

/// The indices of the members in the order in which the call with id `call` uses them.
pub(super) fn order(strategy: RoutingStrategy, members: &[(MemberLimits, MemberStats)], call: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..members.len()).collect();
    let of = |at: &usize| members.get(*at).copied().unwrap_or_default();
    match strategy {
        RoutingStrategy::InOrder => {}
        RoutingStrategy::Shuffle => return weighted_random_order(members, call),
        RoutingStrategy::LeastBusy => order.sort_by_key(|at| of(at).1.active_calls),
        RoutingStrategy::Latency => order.sort_by_key(|at| of(at).1.latency.unwrap_or_default()),
        RoutingStrategy::Cost => {
            order.sort_by(|a, b| price(&of(a).0).partial_cmp(&price(&of(b).0)).unwrap_or(Ordering::Equal))
        }
        RoutingStrategy::Usage => order.sort_by_key(|at| {
            let (limits, stats) = of(at);
            (limits.is_over_limit(&stats), stats.tokens)
        }),
    }
    order
}

fn price(limits: &MemberLimits) -> f64 {
    limits.prices.map_or(f64::INFINITY, |prices| prices.input + prices.output)
}

/// Weighted random order: draws without replacement.
fn weighted_random_order(members: &[(MemberLimits, MemberStats)], call: u64) -> Vec<usize> {
    let mut left: Vec<(usize, f64)> =
        members.iter().enumerate().map(|(at, (limits, _))| (at, limits.effective_weight())).collect();
    let mut order = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let total: f64 = left.iter().map(|(_, weight)| weight).sum();
        let mut point = (random(call, order.len() as u64) >> 11) as f64 / (1u64 << 53) as f64 * total;
        let drawn = left.iter().position(|(_, weight)| {
            point -= weight;
            point < 0.0
        });
        let (at, _) = left.remove(drawn.unwrap_or(left.len() - 1));
        order.push(at);
    }
    order
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use serde_json::json;

    use super::*;

    fn limits(extra: Value) -> MemberLimits {
        MemberLimits::from_config(&ModelConfig { extra: extra.as_object().unwrap().clone(), ..ModelConfig::default() })
    }

    fn members(list: &[(Value, MemberStats)]) -> Vec<(MemberLimits, MemberStats)> {
        list.iter().map(|(extra, stats)| (limits(extra.clone()), *stats)).collect()
    }

    #[test]
    fn the_shuffle_follows_the_weights_and_depends_only_on_the_call() {
        let members = members(&[
            (json!({"weight": 1}), MemberStats::default()),
            (json!({"weight": 3}), MemberStats::default()),
            (json!({"weight": 6}), MemberStats::default()),
        ]);
        let firsts = |calls: std::ops::Range<u64>| {
            let mut firsts = [0; 3];
            calls.for_each(|call| firsts[order(RoutingStrategy::Shuffle, &members, random(9, call))[0]] += 1);
            firsts
        };
        let [one, three, six] = firsts(0..10_000);
        assert!((900..1_100).contains(&one) && (2_850..3_150).contains(&three) && (5_800..6_200).contains(&six));
        for call in 0..50 {
            let first = order(RoutingStrategy::Shuffle, &members, call);
            assert_eq!(first, order(RoutingStrategy::Shuffle, &members, call), "the same call gets the same order");
            let mut all = first.clone();
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2], "every member is in the order");
        }
    }

    #[test]
    fn without_a_weight_the_rate_limit_is_the_weight() {
        assert_eq!(limits(json!({"rpm": 60, "tpm": 9})).effective_weight(), 60.0);
        assert_eq!(limits(json!({"tpm": 9})).effective_weight(), 9.0);
        assert_eq!(limits(json!({"weight": 0})).effective_weight(), 1.0, "a weight of 0 counts as not set");
    }

    #[test]
    fn each_strategy_orders_by_its_measure() {
        let stats = |active_calls, latency: Option<u64>, tokens, requests| MemberStats {
            active_calls,
            latency: latency.map(Duration::from_millis),
            tokens,
            requests,
        };
        let cheap = json!({"input_cost_per_token": 1e-7, "output_cost_per_token": 1e-7, "rpm": 2});
        let dear = json!({"input_cost_per_token": 1e-5, "output_cost_per_token": 1e-5});
        let members = members(&[
            (dear, stats(2, Some(300), 500, 1)),
            (json!({}), stats(0, None, 900, 1)),
            (cheap, stats(1, Some(100), 10, 2)),
        ]);
        for (strategy, expected) in [
            (RoutingStrategy::InOrder, [0, 1, 2]),
            (RoutingStrategy::LeastBusy, [1, 2, 0]),
            (RoutingStrategy::Latency, [1, 2, 0]),
            (RoutingStrategy::Cost, [2, 0, 1]),
            // The third used the fewest tokens, but reached its `rpm`.
            (RoutingStrategy::Usage, [0, 1, 2]),
        ] {
            assert_eq!(order(strategy, &members, 7), expected, "{strategy:?}");
        }
    }

    #[test]
    fn strategies_are_found_by_name() {
        assert_eq!(RoutingStrategy::from_router_key(None), RoutingStrategy::Shuffle);
        for (name, strategy) in RoutingStrategy::NAMES {
            assert_eq!(RoutingStrategy::from_router_key(Some(name)), *strategy);
        }
    }
}

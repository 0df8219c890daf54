//! In which order the members of a group are asked.
//!
//! Every order is a function of the call and of what is known of the members: the same call over the same knowledge is asked in
//! the same order, so that a turn that runs again after a crash asks the same model.

use std::{cmp::Ordering, time::Duration};

use serde_json::Value;

use super::health::Known;
use crate::{ModelConfig, price::Prices, retry::random};

/// How the first member to be asked is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RoutingStrategy {
    /// As they are listed.
    #[default]
    InOrder,
    /// By lot, in proportion to `weight`, else `rpm`, else `tpm`; the lot is drawn from the call itself.
    Shuffle,
    /// Whoever answers the fewest calls now.
    LeastBusy,
    /// Whoever began its latest answers soonest; one that is not known yet is asked first.
    Latency,
    /// The cheapest; those without prices last.
    Cost,
    /// Whoever used the fewest tokens in this minute; one that reached its `rpm` or `tpm` comes last.
    Usage,
}

impl RoutingStrategy {
    /// The names as the format has them, with those of older versions.
    pub const NAMES: &'static [(&'static str, Self)] = &[
        ("simple-shuffle", Self::Shuffle),
        ("least-busy", Self::LeastBusy),
        ("latency-based-routing", Self::Latency),
        ("cost-based-routing", Self::Cost),
        ("usage-based-routing", Self::Usage),
        ("usage-based-routing-v2", Self::Usage),
        ("in-order", Self::InOrder),
    ];

    /// The strategy that a router names; the format's default where it names none, or one that nobody knows.
    pub fn of_router(name: Option<&str>) -> Self {
        name.and_then(Self::named).unwrap_or(Self::Shuffle)
    }

    /// The strategy of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, strategy)| *strategy)
    }
}

/// How a group behaves as a whole: `router` of the project, as plain data. What is not set takes the value of
/// [`segue_base::limits`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouterConfig {
    /// `routing_strategy`.
    pub strategy: RoutingStrategy,
    /// `cooldown_time`: how long a member that failed too often is left alone.
    pub cooldown: Option<Duration>,
    /// `allowed_fails`: failures within [`segue_base::limits::MODEL_FAILURE_WINDOW`] before that.
    pub allowed_fails: Option<u32>,
    /// `num_retries`: how often one call is tried again, over all members.
    pub num_retries: Option<u32>,
}

/// What an entry says about its share of the calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// Its part of the lot.
    pub weight: Option<f64>,
    /// Requests a minute that it may take.
    pub rpm: Option<f64>,
    /// Tokens a minute that it may take.
    pub tpm: Option<f64>,
    /// What its tokens cost.
    pub prices: Option<Prices>,
}

impl Share {
    /// Reads an entry.
    pub fn of(config: &ModelConfig) -> Self {
        let number = |key: &str| config.extra.get(key).and_then(Value::as_f64).filter(|number| *number > 0.0);
        Self { weight: number("weight"), rpm: number("rpm"), tpm: number("tpm"), prices: Prices::of(config) }
    }

    fn lot(&self) -> f64 {
        self.weight.or(self.rpm).or(self.tpm).unwrap_or(1.0)
    }

    fn is_used_up(&self, known: &Known) -> bool {
        let over = |limit: Option<f64>, used: u64| limit.is_some_and(|limit| used as f64 >= limit);
        over(self.rpm, known.requests) || over(self.tpm, known.tokens)
    }
}

/// The members in the order in which `call` asks them.
pub(super) fn order(strategy: RoutingStrategy, members: &[(Share, Known)], call: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..members.len()).collect();
    let of = |at: &usize| members.get(*at).copied().unwrap_or_default();
    match strategy {
        RoutingStrategy::InOrder => {}
        RoutingStrategy::Shuffle => return shuffled(members, call),
        RoutingStrategy::LeastBusy => order.sort_by_key(|at| of(at).1.busy),
        RoutingStrategy::Latency => order.sort_by_key(|at| of(at).1.latency.unwrap_or_default()),
        RoutingStrategy::Cost => {
            order.sort_by(|a, b| price(&of(a).0).partial_cmp(&price(&of(b).0)).unwrap_or(Ordering::Equal))
        }
        RoutingStrategy::Usage => order.sort_by_key(|at| {
            let (share, known) = of(at);
            (share.is_used_up(&known), known.tokens)
        }),
    }
    order
}

fn price(share: &Share) -> f64 {
    share.prices.map_or(f64::INFINITY, |prices| prices.input + prices.output)
}

/// Draws without putting back, each draw in proportion to the shares that are left.
fn shuffled(members: &[(Share, Known)], call: u64) -> Vec<usize> {
    let mut left: Vec<(usize, f64)> = members.iter().enumerate().map(|(at, (share, _))| (at, share.lot())).collect();
    let mut order = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let total: f64 = left.iter().map(|(_, lot)| lot).sum();
        let mut point = (random(call, order.len() as u64) >> 11) as f64 / (1u64 << 53) as f64 * total;
        let drawn = left.iter().position(|(_, lot)| {
            point -= lot;
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

    fn share(extra: Value) -> Share {
        Share::of(&ModelConfig { extra: extra.as_object().unwrap().clone(), ..ModelConfig::default() })
    }

    fn members(list: &[(Value, Known)]) -> Vec<(Share, Known)> {
        list.iter().map(|(extra, known)| (share(extra.clone()), *known)).collect()
    }

    #[test]
    fn lots_follow_the_weights_and_nothing_but_the_call() {
        let members = members(&[
            (json!({"weight": 1}), Known::default()),
            (json!({"weight": 3}), Known::default()),
            (json!({"weight": 6}), Known::default()),
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
            assert_eq!(first, order(RoutingStrategy::Shuffle, &members, call), "the same call is asked the same way");
            let mut all = first.clone();
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2], "everybody is in the order");
        }
    }

    #[test]
    fn without_weights_limits_are_shares() {
        assert_eq!(share(json!({"rpm": 60, "tpm": 9})).lot(), 60.0);
        assert_eq!(share(json!({"tpm": 9})).lot(), 9.0);
        assert_eq!(share(json!({"weight": 0})).lot(), 1.0, "a weight of nothing counts as not set");
    }

    #[test]
    fn every_strategy_has_its_order() {
        let known = |busy, latency: Option<u64>, tokens, requests| Known {
            busy,
            latency: latency.map(Duration::from_millis),
            tokens,
            requests,
        };
        let cheap = json!({"input_cost_per_token": 1e-7, "output_cost_per_token": 1e-7, "rpm": 2});
        let dear = json!({"input_cost_per_token": 1e-5, "output_cost_per_token": 1e-5});
        let members = members(&[
            (dear, known(2, Some(300), 500, 1)),
            (json!({}), known(0, None, 900, 1)),
            (cheap, known(1, Some(100), 10, 2)),
        ]);
        for (strategy, expected) in [
            (RoutingStrategy::InOrder, [0, 1, 2]),
            (RoutingStrategy::LeastBusy, [1, 2, 0]),
            (RoutingStrategy::Latency, [1, 2, 0]),
            (RoutingStrategy::Cost, [2, 0, 1]),
            // The third used least, but reached its limit of requests.
            (RoutingStrategy::Usage, [0, 1, 2]),
        ] {
            assert_eq!(order(strategy, &members, 7), expected, "{strategy:?}");
        }
    }

    #[test]
    fn names_of_strategies() {
        assert_eq!(RoutingStrategy::of_router(None), RoutingStrategy::Shuffle);
        for (name, strategy) in RoutingStrategy::NAMES {
            assert_eq!(RoutingStrategy::of_router(Some(name)), *strategy);
        }
    }
}

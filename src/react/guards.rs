//! Guards against loops that run away: repeated calls and spent budgets.
//!
//! A guard warns first, by a message after the results of the current response. When its limit is reached, the calls are refused, no
//! more tools are offered, and the model is asked for its answer; the end of the run is marked with the [`Cap`].

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use minijinja::context;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use super::{budget::Budget, host::GuardDecision};
use crate::{
    limits,
    llm::{ToolCall, Usage},
    prompts::PromptSet,
    tools::{EffectClass, ToolOutcome},
};

/// The limit that ended a run early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cap {
    /// The budget of tokens or money.
    #[serde(rename = "token_capped")]
    Tokens,
    /// The number of model calls.
    #[serde(rename = "turn_capped")]
    Turns,
    /// Repeated tool calls.
    #[serde(rename = "loop_capped")]
    Loop,
}

impl Cap {
    /// The label in results and metadata.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Tokens => "token_capped",
            Self::Turns => "turn_capped",
            Self::Loop => "loop_capped",
        }
    }
}

/// What a guard makes of what it observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GuardSignal {
    /// Nothing.
    Continue,
    /// The model is warned after the results of the current response.
    Warn(Warning),
    /// The calls are refused and the run ends.
    Stop(Cap),
}

/// A warning for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Warning {
    /// The same calls again.
    RepeatedCalls {
        /// How often.
        times: usize,
        /// How often they are refused.
        most: usize,
        /// The tools.
        tools: Vec<String>,
    },
    /// A share of the budget is spent.
    Budget {
        /// The share in percent.
        percent: u64,
    },
}

/// One guard. Methods with a default belong to some guards only.
pub(crate) trait ToolGuard: Send {
    /// The name under which its state is stored.
    fn name(&self) -> &'static str;
    /// Called for every response of the model, before anything else happens with it.
    fn response_received(&mut self, usage: &Usage) -> GuardSignal {
        let _ = usage;
        GuardSignal::Continue
    }
    /// Called with all calls of a response, before the first of them is checked.
    fn calls_requested(&mut self, calls: &[ToolCall]) -> GuardSignal {
        let _ = calls;
        GuardSignal::Continue
    }
    /// Called before each model call.
    fn exhausted(&self) -> Option<Cap> {
        None
    }
    /// Decides whether a call with valid arguments may run, before the host of the loop decides.
    fn check(&mut self, call: &ToolCall, class: EffectClass) -> GuardDecision {
        let _ = (call, class);
        GuardDecision::Allow
    }
    /// Called after each call that ran.
    fn finished(&mut self, call: &ToolCall, outcome: &ToolOutcome) {
        let _ = (call, outcome);
    }
    /// Called when the work moved on to another item or step: calls that are made for each item are no loop.
    fn moved_on(&mut self) {}
    /// The state to store.
    fn save(&self) -> Json;
    /// Takes a stored state over; an unreadable one counts as none.
    fn load(&mut self, state: &Json);
}

/// The guards of a loop, in the order in which they decide.
pub(crate) struct Guards {
    list: Vec<Box<dyn ToolGuard>>,
    is_loaded: bool,
    warnings: Vec<Warning>,
    stop: Option<Cap>,
}

impl Default for Guards {
    /// The guard against repeated calls.
    fn default() -> Self {
        Self::of(vec![Box::new(RepeatGuard::new(RepeatLimits::default()))])
    }
}

impl Guards {
    /// These guards and no others.
    pub(crate) fn of(list: Vec<Box<dyn ToolGuard>>) -> Self {
        Self { list, is_loaded: false, warnings: Vec::new(), stop: None }
    }
    /// The same guards and one more.
    #[must_use]
    pub(crate) fn with(mut self, guard: impl ToolGuard + 'static) -> Self {
        self.list.push(Box::new(guard));
        self
    }

    /// Takes the stored state over, once.
    pub(super) fn load(&mut self, states: &BTreeMap<String, Json>) {
        if std::mem::replace(&mut self.is_loaded, true) {
            return;
        }
        for guard in &mut self.list {
            if let Some(state) = states.get(guard.name()) {
                guard.load(state);
            }
        }
    }
    /// The state to store.
    pub(super) fn save(&self) -> BTreeMap<String, Json> {
        self.list
            .iter()
            .map(|guard| (guard.name().to_owned(), guard.save()))
            .filter(|(_, state)| !state.is_null())
            .collect()
    }

    /// Whether the run must end before its next model call.
    pub(super) fn exhausted(&self) -> Option<Cap> {
        self.list.iter().find_map(|guard| guard.exhausted())
    }
    /// Reports a response.
    pub(super) fn response_received(&mut self, usage: &Usage) {
        self.stop = None;
        self.observe(|guard| guard.response_received(usage));
    }
    /// Reports the calls of a response; `Some` if they must be refused.
    pub(super) fn calls_requested(&mut self, calls: &[ToolCall]) -> Option<Cap> {
        self.observe(|guard| guard.calls_requested(calls));
        self.stop
    }
    /// The decision on one call.
    pub(super) fn check(&mut self, call: &ToolCall, class: EffectClass) -> GuardDecision {
        let mut first = GuardDecision::Allow;
        for guard in &mut self.list {
            let decision = guard.check(call, class);
            if first == GuardDecision::Allow {
                first = decision;
            }
        }
        first
    }
    /// Reports a call that ran.
    pub(super) fn finished(&mut self, call: &ToolCall, outcome: &ToolOutcome) {
        for guard in &mut self.list {
            guard.finished(call, outcome);
        }
    }
    /// Reports that the work moved on.
    pub(super) fn moved_on(&mut self) {
        for guard in &mut self.list {
            guard.moved_on();
        }
    }
    /// The warnings that the model has not seen.
    pub(super) fn take_warnings(&mut self, prompts: &PromptSet) -> Vec<String> {
        let texts = self.warnings.drain(..).map(|warning| warning.text(prompts));
        texts.filter(|text| !text.is_empty()).collect()
    }

    fn observe(&mut self, mut ask: impl FnMut(&mut Box<dyn ToolGuard>) -> GuardSignal) {
        for guard in &mut self.list {
            match ask(guard) {
                GuardSignal::Continue => {}
                GuardSignal::Warn(warning) => self.warnings.push(warning),
                GuardSignal::Stop(stop) => self.stop = self.stop.or(Some(stop)),
            }
        }
    }
}

impl Warning {
    fn text(&self, prompts: &PromptSet) -> String {
        let variables = match self {
            Self::RepeatedCalls { times, most, tools } => {
                context! { text => "repeated_calls", times, most, tools, calls => tools.len() }
            }
            Self::Budget { percent } => context! { text => "budget", percent },
        };
        prompts.render(&prompts.loop_guards, variables).unwrap_or_default().trim().to_owned()
    }
}

impl Cap {
    /// The result of a call that was refused.
    pub(super) fn refusal(self, prompts: &PromptSet) -> String {
        let text = self.say("refused", prompts);
        if text.is_empty() { format!("error: refused: {}", self.label()) } else { text }
    }
    /// The message that asks for the answer.
    pub(super) fn answer_request(self, prompts: &PromptSet) -> String {
        self.say("answer_now", prompts)
    }
    fn say(self, text: &str, prompts: &PromptSet) -> String {
        let variables = context! { text, cap => self.label() };
        prompts.render(&prompts.loop_guards, variables).unwrap_or_default().trim().to_owned()
    }
}

/// When repeated calls are a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RepeatLimits {
    /// The latest responses that count.
    pub(crate) window: usize,
    /// Responses with the same calls among them: the model is warned.
    pub(crate) warn_calls: usize,
    /// Responses with the same calls among them: the calls are refused.
    pub(crate) stop_calls: usize,
}

impl Default for RepeatLimits {
    fn default() -> Self {
        Self { window: limits::REPEAT_WINDOW, warn_calls: 3, stop_calls: 5 }
    }
}

impl RepeatLimits {
    /// Limits of agents in a conversation, which may ask again at the user's request.
    pub(crate) fn of_dialogues() -> Self {
        Self { warn_calls: 8, stop_calls: 12, ..Self::default() }
    }
}

/// Stops runs that make the same calls with equal arguments again and again. The order of the calls in a response, and of the keys in
/// their arguments, makes no difference. Calls of one tool with different arguments are work, not a repetition.
#[derive(Debug)]
pub(crate) struct RepeatGuard {
    limits: RepeatLimits,
    state: Repeats,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Repeats {
    /// The hashes of the calls of the latest responses, oldest first.
    responses: VecDeque<String>,
}

impl RepeatGuard {
    /// A guard with these limits.
    pub(crate) fn new(limits: RepeatLimits) -> Self {
        Self { limits, state: Repeats::default() }
    }

    fn same_calls(&mut self, calls: &[ToolCall]) -> GuardSignal {
        let hash = hash_of_calls(calls);
        self.state.responses.push_back(hash.clone());
        while self.state.responses.len() > self.limits.window.max(1) {
            self.state.responses.pop_front();
        }
        let times = self.state.responses.iter().filter(|other| **other == hash).count();
        let RepeatLimits { warn_calls, stop_calls, .. } = self.limits;
        if times >= stop_calls {
            return STOP;
        }
        if times != warn_calls {
            return GuardSignal::Continue;
        }
        let tools = calls.iter().map(|call| call.name.to_string()).collect();
        GuardSignal::Warn(Warning::RepeatedCalls { times, most: stop_calls, tools })
    }
}

const STOP: GuardSignal = GuardSignal::Stop(Cap::Loop);

impl ToolGuard for RepeatGuard {
    fn name(&self) -> &'static str {
        "repeats"
    }
    fn calls_requested(&mut self, calls: &[ToolCall]) -> GuardSignal {
        if calls.is_empty() {
            return GuardSignal::Continue;
        }
        self.same_calls(calls)
    }
    fn moved_on(&mut self) {
        self.state = Repeats::default();
    }
    fn save(&self) -> Json {
        if self.state == Repeats::default() {
            return Json::Null;
        }
        serde_json::to_value(&self.state).unwrap_or_default()
    }
    fn load(&mut self, state: &Json) {
        self.state = Repeats::deserialize(state).unwrap_or_default();
    }
}

/// A hash of names and arguments, independent of the order of the calls and of the keys.
fn hash_of_calls(calls: &[ToolCall]) -> String {
    let text = |call: &ToolCall| match call.arguments.as_json() {
        Some(arguments) => format!("{}\u{0}{}", call.name, sorted(arguments)),
        None => format!("{}\u{0}{}", call.name, call.arguments),
    };
    let mut texts: Vec<String> = calls.iter().map(text).collect();
    texts.sort_unstable();
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    let number = hash.finalize().iter().take(8).fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    format!("{number:016x}")
}

/// The value with all keys in the order of the alphabet.
fn sorted(value: &Json) -> Json {
    let mut value = value.clone();
    value.sort_all_objects();
    value
}

/// Ends a run whose budget, or that of one of its parents, is spent.
pub(crate) struct BudgetGuard {
    budget: Arc<Budget>,
    warned: bool,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct BudgetState {
    spent: Usage,
    warned: bool,
}

impl BudgetGuard {
    /// A guard that warns once when the budget is near its end and asks for an answer when it is spent.
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self { budget, warned: false }
    }
}

impl ToolGuard for BudgetGuard {
    fn name(&self) -> &'static str {
        "budget"
    }
    fn response_received(&mut self, usage: &Usage) -> GuardSignal {
        self.budget.spend(usage);
        if let Some(stop) = self.exhausted() {
            return GuardSignal::Stop(stop);
        }
        if self.warned || !self.budget.is_near() {
            return GuardSignal::Continue;
        }
        self.warned = true;
        GuardSignal::Warn(Warning::Budget { percent: (self.budget.share() * 100.0) as u64 })
    }
    fn exhausted(&self) -> Option<Cap> {
        self.budget.is_spent().then_some(Cap::Tokens)
    }
    fn save(&self) -> Json {
        serde_json::to_value(BudgetState { spent: self.budget.spent(), warned: self.warned }).unwrap_or_default()
    }
    fn load(&mut self, state: &Json) {
        let state = BudgetState::deserialize(state).unwrap_or_default();
        self.budget.restore(state.spent);
        self.warned = state.warned;
    }
}

#[cfg(test)]
mod tests;

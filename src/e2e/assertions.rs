//! Checks assertions and step checks against the observed events of a turn. Pure: the same turn gives the same result.

use std::sync::Arc;

use segue_engine::{
    conversation::{BotMessage, Event, EventKind},
    project::{
        Project,
        test_cases::{
            AgentTaskEvent, AssertionKind, BotMessageExpectation, ButtonExpectation, FlowEnd, Flows, SlotCheck,
            TestStep, TestStepKind, ToolCheck,
        },
    },
};
use serde_json::Value as Json;

use super::observed::{ObservedTurn, event_summary, message_summary, truncate};

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AssertionResult {
    /// The expectation is met. The index of the last event that meets it; none for an expectation that no single event can meet.
    Passed(Option<usize>),
    /// The expectation is not met.
    Failed {
        /// The expectation, one line for each part.
        expected: Vec<String>,
        /// The observed events of the json_equal kind, one line each.
        actual: Vec<String>,
    },
}

/// Checks one expectation against the events of a turn.
pub(super) struct AssertionCheck<'a> {
    pub(super) observed: &'a ObservedTurn,
    /// The index of the first event that counts; greater than 0 only if `assertion_order_enabled` is set.
    pub(super) from: usize,
    pub(super) project: &'a Project,
}

impl<'a> AssertionCheck<'a> {
    /// Checks an assertion. Assertions that a model judges pass here; [`Judge`](super::judge::Judge) checks them.
    pub(super) fn assertion(&self, kind: &AssertionKind) -> AssertionResult {
        match kind {
            AssertionKind::FlowStarted(flows) => self.flow_started(flows),
            AssertionKind::FlowCompleted(end) => self.flow_ended(end, "flow_completed", |kind| match kind {
                EventKind::FlowCompleted { flow_id, step_id } => Some((flow_id.as_str(), step_id.as_str())),
                _ => None,
            }),
            AssertionKind::FlowCancelled(end) => self.flow_ended(end, "flow_cancelled", |kind| match kind {
                EventKind::FlowCancelled { flow_id, step_id } => Some((flow_id.as_str(), step_id.as_str())),
                _ => None,
            }),
            AssertionKind::Clarification(flows) => self.clarification(flows),
            AssertionKind::SlotWasSet(slots) => self.slots_set(slots),
            AssertionKind::SlotWasNotSet(slots) => self.slots_not_set(slots),
            AssertionKind::ActionExecuted(name) => self.action(name),
            AssertionKind::BotUttered(uttered) => self.uttered(uttered),
            AssertionKind::BotDidNotUtter(uttered) => self.not_uttered(uttered),
            AssertionKind::Agent(event, agent) => self.agent(*event, agent),
            AssertionKind::ToolCalled(tool) => self.tool_called(tool),
            AssertionKind::ToolNotCalled(tool) => self.tool_not_called(tool),
            AssertionKind::MaxLlmCalls(max) => {
                let calls = self.observed.llm_calls;
                at_most(calls <= *max, format!("model calls: at most {max}"), format!("model calls: {calls}"))
            }
            AssertionKind::MaxTurnLatency(max) => {
                let duration = self.observed.duration;
                at_most(
                    duration <= *max,
                    format!("turn latency: at most {} ms", max.as_millis()),
                    format!("turn latency: {} ms", duration.as_millis()),
                )
            }
            AssertionKind::Relevant(_) | AssertionKind::Grounded(_) => AssertionResult::Passed(None),
        }
    }

    /// The events that count, with their indexes.
    fn events(&self) -> impl Iterator<Item = (usize, &'a Event)> + use<'a> {
        self.observed.events.iter().enumerate().skip(self.from)
    }

    /// The index of the first event that matches.
    fn find_event(&self, matches: impl Fn(&EventKind) -> bool) -> Option<usize> {
        self.events().find(|(_, event)| matches(&event.kind)).map(|(at, _)| at)
    }

    /// The summaries of the events of a kind.
    fn summaries(&self, is_of_kind: impl Fn(&EventKind) -> bool) -> Vec<String> {
        let events = self.events().filter(|(_, event)| is_of_kind(&event.kind));
        events.filter_map(|(_, event)| event_summary(event)).collect()
    }

    /// A failure whose `actual` lists the events of a kind.
    fn failed(&self, expected: impl Into<String>, is_of_kind: impl Fn(&EventKind) -> bool) -> AssertionResult {
        AssertionResult::Failed { expected: vec![expected.into()], actual: self.summaries(is_of_kind) }
    }

    fn flow_started(&self, wanted: &Flows) -> AssertionResult {
        let found: Vec<Option<usize>> = wanted
            .flows
            .iter()
            .map(|flow| {
                self.find_event(|kind| matches!(kind, EventKind::FlowStarted { flow_id, .. } if *flow_id == **flow))
            })
            .collect();
        let passed = if wanted.all { found.iter().all(Option::is_some) } else { found.iter().any(Option::is_some) };
        if passed {
            return AssertionResult::Passed(found.into_iter().flatten().max());
        }
        let quantifier = if wanted.all { "" } else { "one of " };
        let expected = format!("flow_started {quantifier}{}", join_ids(&wanted.flows));
        self.failed(expected, |kind| matches!(kind, EventKind::FlowStarted { .. }))
    }

    /// `ended` returns the flow and the step of an event of this kind.
    fn flow_ended(
        &self,
        end: &FlowEnd,
        event_name: &str,
        ended: impl Fn(&EventKind) -> Option<(&str, &str)>,
    ) -> AssertionResult {
        let is_step = |step: &str| {
            // Older Rasa projects use step ids without the prefix of the flow.
            end.step.as_deref().is_none_or(|wanted| step == wanted || step == format!("{}_{wanted}", end.flow))
        };
        let matches = |kind: &EventKind| ended(kind).is_some_and(|(flow, step)| *flow == *end.flow && is_step(step));
        if let Some(at) = self.find_event(matches) {
            return AssertionResult::Passed(Some(at));
        }
        let step = end.step.as_ref().map(|step| format!(" at {step}")).unwrap_or_default();
        self.failed(format!("{event_name} {}{step}", end.flow), |kind| ended(kind).is_some())
    }

    fn clarification(&self, wanted: &Flows) -> AssertionResult {
        let options = self.observed.clarification_options(self.from, self.project);
        let is_offered = |flow: &Arc<str>| options.iter().any(|(id, name)| **flow == **id || **flow == **name);
        let passed = if wanted.all { wanted.flows.iter().all(is_offered) } else { wanted.flows.iter().any(is_offered) };
        if passed {
            let at = self.find_event(
                |kind| matches!(kind, EventKind::FlowStarted { flow_id, .. } if *flow_id == *"pattern_clarification"),
            );
            return AssertionResult::Passed(at);
        }
        let quantifier = if wanted.all { "" } else { "one of " };
        let ids: Vec<Arc<str>> = options.iter().map(|(id, _)| id.as_str().into()).collect();
        let actual = if ids.is_empty() { Vec::new() } else { vec![format!("clarification of {}", join_ids(&ids))] };
        AssertionResult::Failed {
            expected: vec![format!("clarification of {quantifier}{}", join_ids(&wanted.flows))],
            actual,
        }
    }

    /// Whether an event sets the slot, to the value if the check has one. A reset of all slots sets every slot to null.
    fn sets_slot(check: &SlotCheck, kind: &EventKind) -> bool {
        match (kind, &check.value) {
            (EventKind::Slot { name, value, .. }, wanted) if *name == *check.name => match wanted {
                Some(wanted) => json_equal(wanted, value),
                None => !value.is_null(),
            },
            (EventKind::ResetSlots, Some(Json::Null)) => true,
            _ => false,
        }
    }

    fn slots_set(&self, checks: &[SlotCheck]) -> AssertionResult {
        let mut last = None;
        let mut missing = Vec::new();
        for check in checks {
            match self.find_event(|kind| Self::sets_slot(check, kind)) {
                Some(at) => last = last.max(Some(at)),
                None => missing.push(check),
            }
        }
        if missing.is_empty() {
            return AssertionResult::Passed(last);
        }
        let expected = missing.iter().map(|check| format!("slot {}", describe_slot(check))).collect();
        let is_related = |kind: &EventKind| match kind {
            EventKind::Slot { name, .. } => missing.iter().any(|check| *name == *check.name),
            EventKind::ResetSlots => true,
            _ => false,
        };
        AssertionResult::Failed { expected, actual: self.summaries(is_related) }
    }

    fn slots_not_set(&self, checks: &[SlotCheck]) -> AssertionResult {
        let set: Vec<&SlotCheck> =
            checks.iter().filter(|check| self.find_event(|kind| Self::sets_slot(check, kind)).is_some()).collect();
        if set.is_empty() {
            return AssertionResult::Passed(None);
        }
        let expected = set.iter().map(|check| format!("not slot {}", describe_slot(check))).collect();
        let actual = self.summaries(|kind| set.iter().any(|check| Self::sets_slot(check, kind)));
        AssertionResult::Failed { expected, actual }
    }

    fn action(&self, wanted: &str) -> AssertionResult {
        let matches = |kind: &EventKind| match kind {
            EventKind::Action { name } => *name == *wanted,
            EventKind::Bot(bot) => bot.utter_action.as_deref().is_some_and(|name| name == wanted),
            _ => false,
        };
        match self.find_event(matches) {
            Some(at) => AssertionResult::Passed(Some(at)),
            None => {
                let actions = self.events().filter_map(|(_, event)| match &event.kind {
                    EventKind::Action { name } if *name != *"action_listen" => Some(format!("action {name}")),
                    _ => None,
                });
                AssertionResult::Failed { expected: vec![format!("action {wanted}")], actual: actions.collect() }
            }
        }
    }

    fn uttered(&self, wanted: &BotMessageExpectation) -> AssertionResult {
        let messages = || self.observed.messages().filter(|(at, _)| *at >= self.from);
        match messages().find(|(_, bot)| matches_message(wanted, bot)) {
            Some((at, _)) => AssertionResult::Passed(Some(at)),
            None => AssertionResult::Failed {
                expected: vec![describe_message(wanted)],
                actual: messages().map(|(_, bot)| truncate(&message_summary(bot))).collect(),
            },
        }
    }

    fn not_uttered(&self, unwanted: &BotMessageExpectation) -> AssertionResult {
        let uttered = self.observed.messages().filter(|(at, bot)| *at >= self.from && matches_message(unwanted, bot));
        let actual: Vec<String> = uttered.map(|(_, bot)| truncate(&message_summary(bot))).collect();
        if actual.is_empty() {
            return AssertionResult::Passed(None);
        }
        AssertionResult::Failed { expected: vec![format!("not {}", describe_message(unwanted))], actual }
    }

    fn agent(&self, event: AgentTaskEvent, agent: &str) -> AssertionResult {
        let matches = |kind: &EventKind| match (event, kind) {
            (AgentTaskEvent::Started, EventKind::AgentStarted { agent_id, .. })
            | (AgentTaskEvent::Completed, EventKind::AgentCompleted { agent_id, .. })
            | (AgentTaskEvent::Interrupted, EventKind::AgentInterrupted { agent_id, .. })
            | (AgentTaskEvent::Resumed, EventKind::AgentResumed { agent_id, .. })
            | (AgentTaskEvent::Cancelled, EventKind::AgentCancelled { agent_id, .. }) => *agent_id == *agent,
            _ => false,
        };
        match self.find_event(matches) {
            Some(at) => AssertionResult::Passed(Some(at)),
            None => self.failed(format!("{} {agent}", event.key()), |kind| {
                matches!(
                    kind,
                    EventKind::AgentStarted { .. }
                        | EventKind::AgentCompleted { .. }
                        | EventKind::AgentInterrupted { .. }
                        | EventKind::AgentResumed { .. }
                        | EventKind::AgentCancelled { .. }
                )
            }),
        }
    }

    fn tool_called(&self, wanted: &ToolCheck) -> AssertionResult {
        let calls: Vec<usize> =
            self.events().filter(|(_, event)| matches_tool_call(wanted, &event.kind)).map(|(at, _)| at).collect();
        let count = calls.len() as u64;
        let passed = wanted.times.map_or(count > 0, |times| count == times);
        if passed {
            return AssertionResult::Passed(calls.last().copied());
        }
        let times = wanted.times.map(|times| format!(", {times} times")).unwrap_or_default();
        self.failed(format!("{}{times}", describe_tool_call(wanted)), |kind| {
            matches!(kind, EventKind::ToolExecuted { .. })
        })
    }

    fn tool_not_called(&self, unwanted: &ToolCheck) -> AssertionResult {
        if self.find_event(|kind| matches_tool_call(unwanted, kind)).is_none() {
            return AssertionResult::Passed(None);
        }
        self.failed(format!("not {}", describe_tool_call(unwanted)), |kind| matches_tool_call(unwanted, kind))
    }
}

/// Fails if `is_within` is false.
fn at_most(is_within: bool, expected: String, actual: String) -> AssertionResult {
    if is_within {
        AssertionResult::Passed(None)
    } else {
        AssertionResult::Failed { expected: vec![expected], actual: vec![actual] }
    }
}

/// Checks the steps that follow a message of the user against its turn. Their order does not matter. A bot message meets at most one
/// `bot` step and one `utter` step: two equal steps need two messages.
pub(super) fn check_steps<'s>(
    check: &AssertionCheck<'_>,
    steps: &[&'s TestStep],
) -> Vec<(&'s TestStep, AssertionResult)> {
    let (mut used_texts, mut used_responses): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut results = Vec::new();
    for step in steps {
        let result = match &step.kind {
            TestStepKind::Bot(text) => {
                let has_text = |bot: &BotMessage| bot.reply.text.as_deref().unwrap_or_default().trim() == text.trim();
                find_message(check, &mut used_texts, has_text, format!("bot: {}", Json::from(&**text)))
            }
            TestStepKind::Utter(name) => {
                let is_response = |bot: &BotMessage| bot.utter_action.as_deref() == Some(&**name);
                find_message(check, &mut used_responses, is_response, format!("bot {name}"))
            }
            TestStepKind::SlotWasSet(slots) => check.slots_set(slots),
            TestStepKind::SlotWasNotSet(slots) => check.slots_not_set(slots),
            TestStepKind::User(_) | TestStepKind::Commands(_) => continue,
        };
        results.push((*step, result));
    }
    results
}

/// Finds a message that matches and that no earlier step used.
fn find_message(
    check: &AssertionCheck<'_>,
    used: &mut Vec<usize>,
    matches: impl Fn(&BotMessage) -> bool,
    expected: String,
) -> AssertionResult {
    match check.observed.messages().find(|(at, bot)| !used.contains(at) && matches(bot)) {
        Some((at, _)) => {
            used.push(at);
            AssertionResult::Passed(Some(at))
        }
        None => {
            let unused = check.observed.messages().filter(|(at, _)| !used.contains(at));
            AssertionResult::Failed {
                expected: vec![expected],
                actual: unused.map(|(_, bot)| truncate(&message_summary(bot))).collect(),
            }
        }
    }
}

/// Whether two JSON values are equal; `2` and `2.0` are.
fn json_equal(wanted: &Json, found: &Json) -> bool {
    match (wanted, found) {
        (Json::Array(wanted), Json::Array(found)) => {
            wanted.len() == found.len() && wanted.iter().zip(found).all(|(wanted, found)| json_equal(wanted, found))
        }
        (Json::Object(wanted), Json::Object(found)) => {
            wanted.len() == found.len()
                && wanted.iter().all(|(key, wanted)| found.get(key).is_some_and(|found| json_equal(wanted, found)))
        }
        _ => match (wanted.as_f64(), found.as_f64()) {
            (Some(wanted), Some(found)) => wanted == found,
            _ => wanted == found,
        },
    }
}

fn matches_message(wanted: &BotMessageExpectation, bot: &BotMessage) -> bool {
    let named = wanted.utter_name.as_ref().is_none_or(|name| bot.utter_action.as_ref() == Some(name));
    let text = bot.reply.text.as_deref().unwrap_or_default();
    let matches = wanted.text_matches.as_ref().is_none_or(|(_, pattern)| pattern.is_match(text).is_match());
    let buttons = wanted.buttons.as_ref().is_none_or(|wanted| {
        wanted.len() == bot.reply.buttons.len()
            && wanted.iter().zip(&bot.reply.buttons).all(|(wanted, button)| {
                wanted.title == button.title && wanted.payload.as_ref().is_none_or(|payload| *payload == button.payload)
            })
    });
    named && matches && buttons
}

fn matches_tool_call(wanted: &ToolCheck, kind: &EventKind) -> bool {
    let EventKind::ToolExecuted { server, tool_name, agent_id, arguments, status, .. } = kind else { return false };
    let is = |wanted: &Option<Arc<str>>, found: Option<&str>| wanted.as_deref().is_none_or(|name| found == Some(name));
    *tool_name == *wanted.name
        && is(&wanted.server, server.as_ref().map(|server| server.as_str()))
        && is(&wanted.agent, agent_id.as_ref().map(|agent| agent.as_str()))
        && wanted.success.is_none_or(|success| success == (status == "done"))
        && wanted.arguments.iter().all(|(name, value, pattern)| {
            let Some(found) = arguments.get(name) else { return value.is_null() };
            let by_pattern =
                || pattern.as_ref().zip(found.as_str()).is_some_and(|(p, text)| p.is_match(text).is_match());
            json_equal(value, found) || by_pattern()
        })
}

fn join_ids(flows: &[Arc<str>]) -> String {
    flows.iter().map(|flow| &**flow).collect::<Vec<_>>().join(", ")
}

fn describe_slot(check: &SlotCheck) -> String {
    match &check.value {
        Some(value) => format!("{} = {value}", check.name),
        None => format!("{} = any value", check.name),
    }
}

fn describe_message(uttered: &BotMessageExpectation) -> String {
    let mut words = String::from("bot");
    if let Some(name) = &uttered.utter_name {
        words.push_str(&format!(" {name}"));
    }
    if let Some((pattern, _)) = &uttered.text_matches {
        words.push_str(&format!(" /{pattern}/"));
    }
    for ButtonExpectation { title, payload } in uttered.buttons.iter().flatten() {
        let payload = payload.as_ref().map(|payload| format!(" -> {payload}")).unwrap_or_default();
        words.push_str(&format!(" [{title}{payload}]"));
    }
    truncate(&words)
}

fn describe_tool_call(tool: &ToolCheck) -> String {
    let server = tool.server.as_ref().map(|server| format!("{server}.")).unwrap_or_default();
    let by = tool.agent.as_ref().map(|agent| format!(" by {agent}")).unwrap_or_default();
    let mut words = format!("tool {server}{}{by}", tool.name);
    for (name, value, _) in &tool.arguments {
        words.push_str(&format!(" {name}={value}"));
    }
    match tool.success {
        Some(true) => words.push_str(": done"),
        Some(false) => words.push_str(": failed"),
        None => {}
    }
    truncate(&words)
}

#[cfg(test)]
mod tests;

//! What was expected against what was seen. Pure: the same turn gives the same verdict.

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

use super::seen::{Seen, bot_line, cut, line};

/// What came of an expectation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It holds; by the event at this position, where it is one event.
    Held(Option<usize>),
    /// It does not.
    Missed {
        /// What was expected.
        expected: Vec<String>,
        /// What was seen of the same kind.
        seen: Vec<String>,
    },
}

/// One expectation, and the events it is held against.
pub(super) struct Look<'a> {
    pub(super) seen: &'a Seen,
    /// Events before this one are used up by earlier assertions.
    pub(super) from: usize,
    pub(super) project: &'a Project,
}

impl<'a> Look<'a> {
    /// Whether an assertion holds; those that a model judges are none of ours and hold.
    pub(super) fn assertion(&self, kind: &AssertionKind) -> Verdict {
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
            AssertionKind::Agent(mark, agent) => self.agent(*mark, agent),
            AssertionKind::ToolCalled(tool) => self.tool_called(tool),
            AssertionKind::ToolNotCalled(tool) => self.tool_not_called(tool),
            AssertionKind::MaxLlmCalls(most) => {
                let calls = self.seen.llm_calls;
                self.within(
                    calls <= *most,
                    format!("calls of models: at most {most}"),
                    format!("calls of models: {calls}"),
                )
            }
            AssertionKind::MaxTurnLatency(most) => {
                let took = self.seen.took;
                self.within(
                    took <= *most,
                    format!("a turn of at most {} ms", most.as_millis()),
                    format!("a turn of {} ms", took.as_millis()),
                )
            }
            AssertionKind::Relevant(_) | AssertionKind::Grounded(_) => Verdict::Held(None),
        }
    }

    fn within(&self, holds: bool, expected: String, seen: String) -> Verdict {
        if holds { Verdict::Held(None) } else { Verdict::Missed { expected: vec![expected], seen: vec![seen] } }
    }

    /// The events that still count.
    fn events(&self) -> impl Iterator<Item = (usize, &'a Event)> + use<'a> {
        self.seen.events.iter().enumerate().skip(self.from)
    }

    fn find(&self, fits: impl Fn(&EventKind) -> bool) -> Option<usize> {
        self.events().find(|(_, event)| fits(&event.kind)).map(|(at, _)| at)
    }

    /// Lines of the events of a kind.
    fn lines(&self, of_kind: impl Fn(&EventKind) -> bool) -> Vec<String> {
        self.events().filter(|(_, event)| of_kind(&event.kind)).filter_map(|(_, event)| line(event)).collect()
    }

    fn missed(&self, expected: impl Into<String>, of_kind: impl Fn(&EventKind) -> bool) -> Verdict {
        Verdict::Missed { expected: vec![expected.into()], seen: self.lines(of_kind) }
    }

    fn flow_started(&self, wanted: &Flows) -> Verdict {
        let found: Vec<Option<usize>> = wanted
            .flows
            .iter()
            .map(|flow| self.find(|kind| matches!(kind, EventKind::FlowStarted { flow_id, .. } if *flow_id == **flow)))
            .collect();
        let holds = if wanted.all { found.iter().all(Option::is_some) } else { found.iter().any(Option::is_some) };
        if holds {
            return Verdict::Held(found.into_iter().flatten().max());
        }
        let words = if wanted.all { "" } else { "one of " };
        let expected = format!("flow_started {words}{}", list(&wanted.flows));
        self.missed(expected, |kind| matches!(kind, EventKind::FlowStarted { .. }))
    }

    fn flow_ended(&self, end: &FlowEnd, word: &str, of: impl Fn(&EventKind) -> Option<(&str, &str)>) -> Verdict {
        let is_step = |step: &str| {
            // Ids of older projects stand without the name of the flow before them.
            end.step.as_deref().is_none_or(|wanted| step == wanted || step == format!("{}_{wanted}", end.flow))
        };
        let fits = |kind: &EventKind| of(kind).is_some_and(|(flow, step)| *flow == *end.flow && is_step(step));
        if let Some(at) = self.find(fits) {
            return Verdict::Held(Some(at));
        }
        let step = end.step.as_ref().map(|step| format!(" at {step}")).unwrap_or_default();
        self.missed(format!("{word} {}{step}", end.flow), |kind| of(kind).is_some())
    }

    fn clarification(&self, wanted: &Flows) -> Verdict {
        let options = self.seen.options(self.project);
        let offered = |flow: &Arc<str>| options.iter().any(|(id, name)| **flow == **id || **flow == **name);
        let holds = if wanted.all { wanted.flows.iter().all(offered) } else { wanted.flows.iter().any(offered) };
        if holds {
            let at = self.find(
                |kind| matches!(kind, EventKind::FlowStarted { flow_id, .. } if *flow_id == *"pattern_clarification"),
            );
            return Verdict::Held(at);
        }
        let words = if wanted.all { "" } else { "one of " };
        let ids: Vec<Arc<str>> = options.iter().map(|(id, _)| id.as_str().into()).collect();
        let seen = if ids.is_empty() { Vec::new() } else { vec![format!("clarification of {}", list(&ids))] };
        Verdict::Missed { expected: vec![format!("clarification of {words}{}", list(&wanted.flows))], seen }
    }

    /// Whether an event sets a slot as is said.
    fn sets(check: &SlotCheck, kind: &EventKind) -> bool {
        match (kind, &check.value) {
            (EventKind::Slot { name, value, .. }, wanted) if *name == *check.name => match wanted {
                Some(wanted) => same(wanted, value),
                None => !value.is_null(),
            },
            (EventKind::ResetSlots, Some(Json::Null)) => true,
            _ => false,
        }
    }

    fn slots_set(&self, checks: &[SlotCheck]) -> Verdict {
        let mut last = None;
        let mut missing = Vec::new();
        for check in checks {
            match self.find(|kind| Self::sets(check, kind)) {
                Some(at) => last = last.max(Some(at)),
                None => missing.push(check),
            }
        }
        if missing.is_empty() {
            return Verdict::Held(last);
        }
        let expected = missing.iter().map(|check| format!("slot {}", of_slot(check))).collect();
        let concerns = |kind: &EventKind| match kind {
            EventKind::Slot { name, .. } => missing.iter().any(|check| *name == *check.name),
            EventKind::ResetSlots => true,
            _ => false,
        };
        Verdict::Missed { expected, seen: self.lines(concerns) }
    }

    fn slots_not_set(&self, checks: &[SlotCheck]) -> Verdict {
        let broken: Vec<&SlotCheck> =
            checks.iter().filter(|check| self.find(|kind| Self::sets(check, kind)).is_some()).collect();
        if broken.is_empty() {
            return Verdict::Held(None);
        }
        let expected = broken.iter().map(|check| format!("not slot {}", of_slot(check))).collect();
        let seen = self.lines(|kind| broken.iter().any(|check| Self::sets(check, kind)));
        Verdict::Missed { expected, seen }
    }

    fn action(&self, wanted: &str) -> Verdict {
        let fits = |kind: &EventKind| match kind {
            EventKind::Action { name } => *name == *wanted,
            EventKind::Bot(bot) => bot.utter_action.as_deref().is_some_and(|name| name == wanted),
            _ => false,
        };
        match self.find(fits) {
            Some(at) => Verdict::Held(Some(at)),
            None => {
                let ran = self.events().filter_map(|(_, event)| match &event.kind {
                    EventKind::Action { name } if *name != *"action_listen" => Some(format!("action {name}")),
                    _ => None,
                });
                Verdict::Missed { expected: vec![format!("action {wanted}")], seen: ran.collect() }
            }
        }
    }

    fn uttered(&self, wanted: &BotMessageExpectation) -> Verdict {
        let messages = || self.seen.messages().filter(|(at, _)| *at >= self.from);
        match messages().find(|(_, bot)| is_uttered(wanted, bot)) {
            Some((at, _)) => Verdict::Held(Some(at)),
            None => Verdict::Missed {
                expected: vec![of_uttered(wanted)],
                seen: messages().map(|(_, bot)| cut(&bot_line(bot))).collect(),
            },
        }
    }

    fn not_uttered(&self, unwanted: &BotMessageExpectation) -> Verdict {
        let said = self.seen.messages().filter(|(at, bot)| *at >= self.from && is_uttered(unwanted, bot));
        let seen: Vec<String> = said.map(|(_, bot)| cut(&bot_line(bot))).collect();
        if seen.is_empty() {
            return Verdict::Held(None);
        }
        Verdict::Missed { expected: vec![format!("not {}", of_uttered(unwanted))], seen }
    }

    fn agent(&self, mark: AgentTaskEvent, agent: &str) -> Verdict {
        let of = |kind: &EventKind| match (mark, kind) {
            (AgentTaskEvent::Started, EventKind::AgentStarted { agent_id, .. })
            | (AgentTaskEvent::Completed, EventKind::AgentCompleted { agent_id, .. })
            | (AgentTaskEvent::Interrupted, EventKind::AgentInterrupted { agent_id, .. })
            | (AgentTaskEvent::Resumed, EventKind::AgentResumed { agent_id, .. })
            | (AgentTaskEvent::Cancelled, EventKind::AgentCancelled { agent_id, .. }) => *agent_id == *agent,
            _ => false,
        };
        match self.find(of) {
            Some(at) => Verdict::Held(Some(at)),
            None => self.missed(format!("{} {agent}", mark.key()), |kind| {
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

    fn tool_called(&self, wanted: &ToolCheck) -> Verdict {
        let calls: Vec<usize> =
            self.events().filter(|(_, event)| is_call(wanted, &event.kind)).map(|(at, _)| at).collect();
        let count = calls.len() as u64;
        let holds = wanted.times.map_or(count > 0, |times| count == times);
        if holds {
            return Verdict::Held(calls.last().copied());
        }
        let times = wanted.times.map(|times| format!(", {times} times")).unwrap_or_default();
        self.missed(format!("{}{times}", of_tool(wanted)), |kind| matches!(kind, EventKind::ToolExecuted { .. }))
    }

    fn tool_not_called(&self, unwanted: &ToolCheck) -> Verdict {
        if self.find(|kind| is_call(unwanted, kind)).is_none() {
            return Verdict::Held(None);
        }
        self.missed(format!("not {}", of_tool(unwanted)), |kind| is_call(unwanted, kind))
    }
}

/// Steps between two messages of the user, held against the turn before them. Their order does not matter. A message is used up
/// by one `bot` and by one `utter`: two that expect the same want it twice.
pub(super) fn steps<'s>(look: &Look<'_>, steps: &[&'s TestStep]) -> Vec<(&'s TestStep, Verdict)> {
    let (mut texts, mut responses): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut verdicts = Vec::new();
    for step in steps {
        let verdict = match &step.kind {
            TestStepKind::Bot(text) => {
                let same = |bot: &BotMessage| bot.reply.text.as_deref().unwrap_or_default().trim() == text.trim();
                said(look, &mut texts, same, format!("bot: {}", Json::from(&**text)))
            }
            TestStepKind::Utter(name) => {
                let same = |bot: &BotMessage| bot.utter_action.as_deref() == Some(&**name);
                said(look, &mut responses, same, format!("bot {name}"))
            }
            TestStepKind::SlotWasSet(slots) => look.slots_set(slots),
            TestStepKind::SlotWasNotSet(slots) => look.slots_not_set(slots),
            TestStepKind::User(_) | TestStepKind::Commands(_) => continue,
        };
        verdicts.push((*step, verdict));
    }
    verdicts
}

fn said(look: &Look<'_>, used: &mut Vec<usize>, fits: impl Fn(&BotMessage) -> bool, expected: String) -> Verdict {
    match look.seen.messages().find(|(at, bot)| !used.contains(at) && fits(bot)) {
        Some((at, _)) => {
            used.push(at);
            Verdict::Held(Some(at))
        }
        None => {
            let left = look.seen.messages().filter(|(at, _)| !used.contains(at));
            Verdict::Missed { expected: vec![expected], seen: left.map(|(_, bot)| cut(&bot_line(bot))).collect() }
        }
    }
}

/// Numbers are compared as numbers, everything else exactly.
fn same(wanted: &Json, found: &Json) -> bool {
    match (wanted, found) {
        (Json::Array(wanted), Json::Array(found)) => {
            wanted.len() == found.len() && wanted.iter().zip(found).all(|(wanted, found)| same(wanted, found))
        }
        (Json::Object(wanted), Json::Object(found)) => {
            wanted.len() == found.len()
                && wanted.iter().all(|(key, wanted)| found.get(key).is_some_and(|found| same(wanted, found)))
        }
        _ => match (wanted.as_f64(), found.as_f64()) {
            (Some(wanted), Some(found)) => wanted == found,
            _ => wanted == found,
        },
    }
}

fn is_uttered(wanted: &BotMessageExpectation, bot: &BotMessage) -> bool {
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

fn is_call(wanted: &ToolCheck, kind: &EventKind) -> bool {
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
            same(value, found) || by_pattern()
        })
}

fn list(flows: &[Arc<str>]) -> String {
    flows.iter().map(|flow| &**flow).collect::<Vec<_>>().join(", ")
}

fn of_slot(check: &SlotCheck) -> String {
    match &check.value {
        Some(value) => format!("{} = {value}", check.name),
        None => format!("{} = any value", check.name),
    }
}

fn of_uttered(uttered: &BotMessageExpectation) -> String {
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
    cut(&words)
}

fn of_tool(tool: &ToolCheck) -> String {
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
    cut(&words)
}

#[cfg(test)]
mod tests;

//! Reads the assertions of end-to-end test cases.

use std::{sync::Arc, time::Duration};

use super::super::{
    load_context::{LoadContext, MapFields, describe},
    schema::{
        ASSERTION, FLOW_ASSERTION, FLOWS_ASSERTION, GENERATIVE, SLOT_ASSERTION, TOOL_ASSERTION, UTTERED, UTTERED_BUTTON,
    },
    test_cases::{
        AgentTaskEvent, Assertion, AssertionKind, BotMessageExpectation, ButtonExpectation, FlowEnd, Flows,
        JudgedTextExpectation, SlotCheck, ToolCheck,
    },
    yaml::Node,
};
use crate::regex_dialect::{Flags, PythonRegex, PythonRegexError};

/// The default of `threshold`, as in Rasa.
const THRESHOLD: f64 = 0.5;

/// Reads an assertion: a map with exactly one known key.
pub(super) fn assertion(context: &mut LoadContext<'_>, node: &Node) -> Option<Assertion> {
    let fields = context.fields(node, &ASSERTION)?;
    let written: Vec<&str> = ASSERTION.names().filter(|name| fields.has(name)).collect();
    let [key] = written.as_slice() else {
        if written.len() > 1 {
            let message = format!("this assertion has several kinds: `{}`", written.join("`, `"));
            context.error("E0103", node, message, "Write each as a separate item, starting with `- `.");
        } else if node.map().is_some_and(<[_]>::is_empty) {
            context.error("E0103", node, "this assertion is empty", "Add a key such as `bot_uttered`.");
        }
        return None;
    };
    let place = context.place(fields.at(key));
    // A value of the wrong type is already reported.
    let value = fields.node(key)?;
    let kind = match *key {
        "flow_started" => AssertionKind::FlowStarted(flows(context, value)?),
        "flow_completed" => AssertionKind::FlowCompleted(flow_end(context, value)?),
        "flow_cancelled" => AssertionKind::FlowCancelled(flow_end(context, value)?),
        "pattern_clarification_contains" => AssertionKind::Clarification(flows(context, value)?),
        "slot_was_set" => AssertionKind::SlotWasSet(slots(context, value)),
        "slot_was_not_set" => AssertionKind::SlotWasNotSet(slots(context, value)),
        "action_executed" => AssertionKind::ActionExecuted(value.text()?.into()),
        "bot_uttered" => AssertionKind::BotUttered(uttered(context, value)?),
        "bot_did_not_utter" => AssertionKind::BotDidNotUtter(uttered(context, value)?),
        "generative_response_is_relevant" => AssertionKind::Relevant(generative(context, value)?),
        "generative_response_is_grounded" => AssertionKind::Grounded(generative(context, value)?),
        "agent_started" => AssertionKind::Agent(AgentTaskEvent::Started, value.text()?.into()),
        "agent_completed" => AssertionKind::Agent(AgentTaskEvent::Completed, value.text()?.into()),
        "agent_interrupted" => AssertionKind::Agent(AgentTaskEvent::Interrupted, value.text()?.into()),
        "agent_resumed" => AssertionKind::Agent(AgentTaskEvent::Resumed, value.text()?.into()),
        "agent_cancelled" => AssertionKind::Agent(AgentTaskEvent::Cancelled, value.text()?.into()),
        "tool_called" => AssertionKind::ToolCalled(tool(context, value)?),
        "tool_not_called" => AssertionKind::ToolNotCalled(tool(context, value)?),
        "max_llm_calls" => AssertionKind::MaxLlmCalls(fields.whole(key)?),
        "max_turn_latency_ms" => AssertionKind::MaxTurnLatency(Duration::from_millis(fields.whole(key)?)),
        // A declared key that is not read here.
        _ => return None,
    };
    Some(Assertion { place, kind })
}

fn texts(fields: &MapFields<'_>, key: &str) -> Vec<Arc<str>> {
    fields.texts(key).into_iter().filter_map(|node| node.text().map(Into::into)).collect()
}

/// An id, a list of ids, or `flow_ids` with an operator.
fn flows(context: &mut LoadContext<'_>, node: &Node) -> Option<Flows> {
    if let Some(text) = node.text() {
        return Some(Flows { flows: vec![text.into()], all: true });
    }
    if let Some(items) = node.list() {
        let flows: Vec<Arc<str>> = items.iter().filter_map(|item| item.text().map(Into::into)).collect();
        if flows.len() == items.len() && !flows.is_empty() {
            return Some(Flows { flows, all: true });
        }
        context.error(
            "F0108",
            node,
            "a list of flows must contain flow ids",
            "Write for example `[transfer_money, add_card]`.",
        );
        return None;
    }
    let fields = context.fields(node, &FLOWS_ASSERTION)?;
    let flows = texts(&fields, "flow_ids");
    let all = fields.text("operator") != Some("any");
    (!flows.is_empty()).then_some(Flows { flows, all })
}

fn flow_end(context: &mut LoadContext<'_>, node: &Node) -> Option<FlowEnd> {
    if let Some(text) = node.text() {
        return Some(FlowEnd { flow: text.into(), step: None });
    }
    let fields = context.fields(node, &FLOW_ASSERTION)?;
    Some(FlowEnd { flow: fields.shared("flow_id")?, step: fields.shared("flow_step_id") })
}

fn slots(context: &mut LoadContext<'_>, node: &Node) -> Vec<SlotCheck> {
    let mut checks = Vec::new();
    for item in node.list().unwrap_or_default() {
        let Some(fields) = context.fields(item, &SLOT_ASSERTION) else { continue };
        let Some(name) = fields.shared("name") else { continue };
        // An explicit null is a value: the slot was reset.
        let value = item.get("value").map(Node::json);
        checks.push(SlotCheck { name, value });
    }
    checks
}

fn uttered(context: &mut LoadContext<'_>, node: &Node) -> Option<BotMessageExpectation> {
    let fields = context.fields(node, &UTTERED)?;
    let text_matches = match fields.node("text_matches") {
        Some(node) => Some((node.text()?.into(), pattern(context, node)?)),
        None => None,
    };
    let buttons = fields.node("buttons").map(|_| {
        let button = |node: &Node| {
            let fields = context.fields(node, &UTTERED_BUTTON)?;
            Some(ButtonExpectation { title: fields.shared("title")?, payload: fields.shared("payload") })
        };
        fields.list("buttons").iter().filter_map(button).collect()
    });
    let uttered = BotMessageExpectation { utter_name: fields.shared("utter_name"), text_matches, buttons };
    if uttered.utter_name.is_none() && uttered.text_matches.is_none() && uttered.buttons.is_none() {
        let help = "Add at least one of `utter_name`, `text_matches`, `buttons`.";
        context.error("E0103", node, "the assertion does not describe the message", help);
        return None;
    }
    Some(uttered)
}

fn pattern(context: &mut LoadContext<'_>, node: &Node) -> Option<Arc<PythonRegex>> {
    match PythonRegex::new(node.text()?, Flags::default()) {
        Ok(pattern) => Some(Arc::new(pattern)),
        Err(error) => {
            let offset = if let PythonRegexError::Syntax { offset, .. } = &error { *offset } else { 0 };
            let place = node.place_at(&context.file, offset, 1);
            let help = "Correct the expression; escape special characters such as `(`, `?` and `.` with a backslash.";
            context.findings.error("E0105", &place, error.to_string(), help);
            None
        }
    }
}

fn generative(context: &mut LoadContext<'_>, node: &Node) -> Option<JudgedTextExpectation> {
    let fields = context.fields(node, &GENERATIVE)?;
    let threshold = fields.number("threshold").unwrap_or(THRESHOLD);
    if !(0.0..=1.0).contains(&threshold) {
        let at = fields.node("threshold").unwrap_or(node);
        context.error(
            "E0105",
            at,
            format!("a threshold must be from 0 to 1, but this is {threshold}"),
            "Write for example `0.8`.",
        );
        return None;
    }
    Some(JudgedTextExpectation {
        threshold,
        utter_name: fields.shared("utter_name"),
        utter_source: fields.shared("utter_source"),
        ground_truth: fields.shared("ground_truth"),
    })
}

fn tool(context: &mut LoadContext<'_>, node: &Node) -> Option<ToolCheck> {
    let named = |name: &str| ToolCheck {
        name: name.into(),
        server: None,
        agent: None,
        arguments: Vec::new(),
        success: None,
        times: None,
    };
    if let Some(name) = node.text() {
        return Some(named(name));
    }
    if node.map().is_none() {
        let message = format!("a tool must be a name or a map, but this is {}", describe(node));
        context.error("F0108", node, message, "Write for example `tool_called: search`.");
        return None;
    }
    let fields = context.fields(node, &TOOL_ASSERTION)?;
    let argument = |entry: &super::super::yaml::Entry| {
        let text = entry.node.text().filter(|_| entry.node.number().is_none() && entry.node.bool().is_none());
        // A string that is not a valid expression is compared literally.
        let pattern = text.and_then(|text| PythonRegex::new(&format!(r"\A(?:{text})\Z"), Flags::default()).ok());
        (entry.key.clone(), entry.node.json(), pattern.map(Arc::new))
    };
    Some(ToolCheck {
        server: fields.shared("server"),
        agent: fields.shared("agent_id"),
        arguments: fields.map("arguments").iter().map(argument).collect(),
        success: fields.bool("success"),
        times: fields.whole("times"),
        ..named(fields.text("name")?)
    })
}

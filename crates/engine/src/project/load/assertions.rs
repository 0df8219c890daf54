//! Assertions of end-to-end cases.

use std::{sync::Arc, time::Duration};

use super::super::{
    cases::{
        AgentMark, Assertion, AssertionKind, BotMessageExpectation, FlowEnd, Flows, JudgedTextExpectation, SlotCheck,
        ToolCheck, UtteredButton,
    },
    reader::{Fields, Reader, said},
    schema::{
        ASSERTION, FLOW_ASSERTION, FLOWS_ASSERTION, GENERATIVE, SLOT_ASSERTION, TOOL_ASSERTION, UTTERED, UTTERED_BUTTON,
    },
    yaml::Node,
};
use crate::regex_dialect::{Flags, PythonRegex, PythonRegexError};

/// The least score of a judged text where the author sets none; as in the CALM format.
const THRESHOLD: f64 = 0.5;

/// One assertion: a map of exactly one known key.
pub(super) fn assertion(reader: &mut Reader<'_>, node: &Node) -> Option<Assertion> {
    let fields = reader.fields(node, &ASSERTION)?;
    let written: Vec<&str> = ASSERTION.names().filter(|name| fields.has(name)).collect();
    let [key] = written.as_slice() else {
        if written.len() > 1 {
            let message = format!("this assertion is several at once: `{}`", written.join("`, `"));
            reader.error("E0103", node, message, "Write each with `- ` before it.");
        } else if node.map().is_some_and(<[_]>::is_empty) {
            reader.error("E0103", node, "this assertion says nothing", "Give it a key such as `bot_uttered`.");
        }
        return None;
    };
    let place = reader.place(fields.at(key));
    // What is of the wrong type was told by the table.
    let value = fields.node(key)?;
    let kind = match *key {
        "flow_started" => AssertionKind::FlowStarted(flows(reader, value)?),
        "flow_completed" => AssertionKind::FlowCompleted(flow_end(reader, value)?),
        "flow_cancelled" => AssertionKind::FlowCancelled(flow_end(reader, value)?),
        "pattern_clarification_contains" => AssertionKind::Clarification(flows(reader, value)?),
        "slot_was_set" => AssertionKind::SlotWasSet(slots(reader, value)),
        "slot_was_not_set" => AssertionKind::SlotWasNotSet(slots(reader, value)),
        "action_executed" => AssertionKind::ActionExecuted(value.text()?.into()),
        "bot_uttered" => AssertionKind::BotUttered(uttered(reader, value)?),
        "bot_did_not_utter" => AssertionKind::BotDidNotUtter(uttered(reader, value)?),
        "generative_response_is_relevant" => AssertionKind::Relevant(generative(reader, value)?),
        "generative_response_is_grounded" => AssertionKind::Grounded(generative(reader, value)?),
        "agent_started" => AssertionKind::Agent(AgentMark::Started, value.text()?.into()),
        "agent_completed" => AssertionKind::Agent(AgentMark::Completed, value.text()?.into()),
        "agent_interrupted" => AssertionKind::Agent(AgentMark::Interrupted, value.text()?.into()),
        "agent_resumed" => AssertionKind::Agent(AgentMark::Resumed, value.text()?.into()),
        "agent_cancelled" => AssertionKind::Agent(AgentMark::Cancelled, value.text()?.into()),
        "tool_called" => AssertionKind::ToolCalled(tool(reader, value)?),
        "tool_not_called" => AssertionKind::ToolNotCalled(tool(reader, value)?),
        "max_llm_calls" => AssertionKind::MaxLlmCalls(fields.whole(key)?),
        "max_turn_latency_ms" => AssertionKind::MaxTurnLatency(Duration::from_millis(fields.whole(key)?)),
        // A key that is declared and not read here: nothing can be said about it.
        _ => return None,
    };
    Some(Assertion { place, kind })
}

fn texts(fields: &Fields<'_>, key: &str) -> Vec<Arc<str>> {
    fields.texts(key).into_iter().filter_map(|node| node.text().map(Into::into)).collect()
}

/// An id, a list of ids, or `flow_ids` with an operator.
fn flows(reader: &mut Reader<'_>, node: &Node) -> Option<Flows> {
    if let Some(text) = node.text() {
        return Some(Flows { flows: vec![text.into()], all: true });
    }
    if let Some(items) = node.list() {
        let flows: Vec<Arc<str>> = items.iter().filter_map(|item| item.text().map(Into::into)).collect();
        if flows.len() == items.len() && !flows.is_empty() {
            return Some(Flows { flows, all: true });
        }
        reader.error("F0108", node, "these must be ids of flows", "Write for example `[transfer_money, add_card]`.");
        return None;
    }
    let fields = reader.fields(node, &FLOWS_ASSERTION)?;
    let flows = texts(&fields, "flow_ids");
    let all = fields.text("operator") != Some("any");
    (!flows.is_empty()).then_some(Flows { flows, all })
}

fn flow_end(reader: &mut Reader<'_>, node: &Node) -> Option<FlowEnd> {
    if let Some(text) = node.text() {
        return Some(FlowEnd { flow: text.into(), step: None });
    }
    let fields = reader.fields(node, &FLOW_ASSERTION)?;
    Some(FlowEnd { flow: fields.shared("flow_id")?, step: fields.shared("flow_step_id") })
}

fn slots(reader: &mut Reader<'_>, node: &Node) -> Vec<SlotCheck> {
    let mut checks = Vec::new();
    for item in node.list().unwrap_or_default() {
        let Some(fields) = reader.fields(item, &SLOT_ASSERTION) else { continue };
        let Some(name) = fields.shared("name") else { continue };
        // A null that is written counts: the slot was emptied.
        let value = item.get("value").map(Node::json);
        checks.push(SlotCheck { name, value });
    }
    checks
}

fn uttered(reader: &mut Reader<'_>, node: &Node) -> Option<BotMessageExpectation> {
    let fields = reader.fields(node, &UTTERED)?;
    let text_matches = match fields.node("text_matches") {
        Some(node) => Some((node.text()?.into(), pattern(reader, node)?)),
        None => None,
    };
    let buttons = fields.node("buttons").map(|_| {
        let button = |node: &Node| {
            let fields = reader.fields(node, &UTTERED_BUTTON)?;
            Some(UtteredButton { title: fields.shared("title")?, payload: fields.shared("payload") })
        };
        fields.list("buttons").iter().filter_map(button).collect()
    });
    let uttered = BotMessageExpectation { utter_name: fields.shared("utter_name"), text_matches, buttons };
    if uttered.utter_name.is_none() && uttered.text_matches.is_none() && uttered.buttons.is_none() {
        let help = "Give it at least one of `utter_name`, `text_matches`, `buttons`.";
        reader.error("E0103", node, "nothing is said about the message", help);
        return None;
    }
    Some(uttered)
}

fn pattern(reader: &mut Reader<'_>, node: &Node) -> Option<Arc<PythonRegex>> {
    match PythonRegex::new(node.text()?, Flags::default()) {
        Ok(pattern) => Some(Arc::new(pattern)),
        Err(error) => {
            let offset = if let PythonRegexError::Syntax { offset, .. } = &error { *offset } else { 0 };
            let place = node.place_at(&reader.file, offset, 1);
            let help = "Mend the expression; a backslash before `(`, `?`, `.` and the like takes their meaning away.";
            reader.findings.error("E0105", &place, error.to_string(), help);
            None
        }
    }
}

fn generative(reader: &mut Reader<'_>, node: &Node) -> Option<JudgedTextExpectation> {
    let fields = reader.fields(node, &GENERATIVE)?;
    let threshold = fields.number("threshold").unwrap_or(THRESHOLD);
    if !(0.0..=1.0).contains(&threshold) {
        let at = fields.node("threshold").unwrap_or(node);
        reader.error("E0105", at, format!("a threshold is from 0 to 1, but this is {threshold}"), "Write `0.8`, say.");
        return None;
    }
    Some(JudgedTextExpectation {
        threshold,
        utter_name: fields.shared("utter_name"),
        utter_source: fields.shared("utter_source"),
        ground_truth: fields.shared("ground_truth"),
    })
}

fn tool(reader: &mut Reader<'_>, node: &Node) -> Option<ToolCheck> {
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
        let message = format!("a tool is a name or a map, but this is {}", said(node));
        reader.error("F0108", node, message, "Write for example `tool_called: search`.");
        return None;
    }
    let fields = reader.fields(node, &TOOL_ASSERTION)?;
    let argument = |entry: &super::super::yaml::Entry| {
        let text = entry.node.text().filter(|_| entry.node.number().is_none() && entry.node.bool().is_none());
        // A text that is no expression is only itself.
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

//! The observed events of a turn, and their summaries for reports: one line each.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use segue_engine::{
    conversation::{BotMessage, Event, EventKind},
    project::Project,
};
use serde_json::Value as Json;

use crate::limits::TEST_LINE;

/// The observable results of one turn.
#[derive(Debug, Default)]
pub(super) struct ObservedTurn {
    /// The message of the user.
    pub(super) user: Arc<str>,
    /// The events after the user's message.
    pub(super) events: Vec<Event>,
    /// The number of model calls.
    pub(super) llm_calls: u64,
    /// The duration of the turn; in a replay the recorded one.
    pub(super) duration: Duration,
}

impl ObservedTurn {
    /// The summaries of the events that have one, in order.
    pub(super) fn event_summaries(&self) -> Vec<String> {
        self.events.iter().filter_map(event_summary).collect()
    }

    /// The bot messages and the indexes of their events.
    pub(super) fn messages(&self) -> impl Iterator<Item = (usize, &BotMessage)> {
        self.events.iter().enumerate().filter_map(|(at, event)| match &event.kind {
            EventKind::Bot(bot) => Some((at, &**bot)),
            _ => None,
        })
    }

    /// The source of the message at this index: its agent, or else the last action before it.
    pub(super) fn source(&self, at: usize) -> Option<String> {
        let event = self.events.get(at)?;
        if let EventKind::Bot(bot) = &event.kind
            && let Some(agent) = &bot.agent
        {
            return Some(agent.to_string());
        }
        self.events.iter().take(at).rev().find_map(|event| match &event.kind {
            EventKind::Action { name } => Some(name.to_string()),
            _ => None,
        })
    }

    /// The number of commands of each kind.
    pub(super) fn commands(&self) -> BTreeMap<String, u64> {
        let mut kinds = BTreeMap::new();
        for event in &self.events {
            let EventKind::Understood { commands, .. } = &event.kind else { continue };
            for command in commands {
                let json = serde_json::to_value(command).unwrap_or_default();
                let kind = json.get("command").and_then(Json::as_str).unwrap_or("unknown");
                *kinds.entry(kind.to_owned()).or_default() += 1;
            }
        }
        kinds
    }

    /// The flows that clarification questions offered, in the events from the index `from` on: id and name.
    pub(super) fn clarification_options(&self, from: usize, project: &Project) -> Vec<(String, String)> {
        let mut options = Vec::new();
        for event in self.events.iter().skip(from) {
            let EventKind::FlowStarted { flow_id, context, .. } = &event.kind else { continue };
            if *flow_id != *"pattern_clarification" {
                continue;
            }
            for id in context.get("options").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str) {
                let name = project.flow(id).map_or(String::new(), |flow| flow.name.to_string());
                options.push((id.to_owned(), name));
            }
        }
        options
    }
}

/// The summary of an event on one line. None for internal events, and for the action of a response: its message has a summary.
pub(super) fn event_summary(event: &Event) -> Option<String> {
    let line = match &event.kind {
        EventKind::Bot(bot) => message_summary(bot),
        EventKind::Slot { name, value, .. } => format!("slot {name} = {value}"),
        EventKind::ResetSlots => "all slots are reset".to_owned(),
        EventKind::Action { name } if *name == *"action_listen" || is_response(name.as_str()) => return None,
        EventKind::Action { name } => format!("action {name}"),
        EventKind::FlowStarted { flow_id, .. } => format!("flow_started {flow_id}"),
        EventKind::FlowCompleted { flow_id, step_id } => format!("flow_completed {flow_id} at {step_id}"),
        EventKind::FlowCancelled { flow_id, step_id } => format!("flow_cancelled {flow_id} at {step_id}"),
        EventKind::FlowInterrupted { flow_id, .. } => format!("flow_interrupted {flow_id}"),
        EventKind::FlowResumed { flow_id, .. } => format!("flow_resumed {flow_id}"),
        EventKind::AgentStarted { agent_id, .. } => format!("agent_started {agent_id}"),
        EventKind::AgentCompleted { agent_id, .. } => format!("agent_completed {agent_id}"),
        EventKind::AgentInterrupted { agent_id, .. } => format!("agent_interrupted {agent_id}"),
        EventKind::AgentResumed { agent_id, .. } => format!("agent_resumed {agent_id}"),
        EventKind::AgentCancelled { agent_id, .. } => format!("agent_cancelled {agent_id}"),
        EventKind::ToolExecuted { tool_name, server, agent_id, arguments, status, .. } => {
            let server = server.as_ref().map(|server| format!("{server}.")).unwrap_or_default();
            let by = agent_id.as_ref().map(|agent| format!(" by {agent}")).unwrap_or_default();
            format!("tool {server}{tool_name}{by} {arguments}: {status}")
        }
        EventKind::SessionEnded { .. } => "session_ended".to_owned(),
        EventKind::Restart => "restart".to_owned(),
        _ => return None,
    };
    Some(truncate(&line))
}

fn is_response(action: &str) -> bool {
    action.starts_with("utter_")
}

/// The summary of a message on one line.
pub(super) fn message_summary(bot: &BotMessage) -> String {
    let sender = match (&bot.utter_action, &bot.agent) {
        (Some(utter), _) => format!("bot {utter}"),
        (None, Some(agent)) => format!("bot {agent}"),
        (None, None) => "bot".to_owned(),
    };
    let mut line = format!("{sender}: {}", Json::from(bot.reply.text.as_deref().unwrap_or_default()));
    for button in &bot.reply.buttons {
        line.push_str(&format!(" [{} -> {}]", button.title, button.payload));
    }
    line
}

/// Truncates a line of a report to [`TEST_LINE`] characters and replaces control characters, which could move the cursor of a terminal.
pub(super) fn truncate(line: &str) -> String {
    let mut short: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).take(TEST_LINE).collect();
    if line.chars().nth(TEST_LINE).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_lines_are_truncated_and_have_no_control_characters() {
        assert_eq!(truncate("a\u{1b}[2Jb\nc"), "a [2Jb c");
        let long = truncate(&"ü".repeat(TEST_LINE + 1));
        assert_eq!((long.chars().count(), long.ends_with('…')), (TEST_LINE + 1, true));
        assert_eq!(truncate(&"ü".repeat(TEST_LINE)).chars().count(), TEST_LINE);
    }
}

//! What a turn showed, and how its events read on one line each.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use segue_engine::{
    conversation::{BotMessage, Event, EventKind},
    project::Project,
};
use serde_json::Value as Json;

use crate::limits::TEST_LINE;

/// What one turn showed.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// What the user said.
    pub(super) user: Arc<str>,
    /// The events after the user's message.
    pub(super) events: Vec<Event>,
    /// Calls of models.
    pub(super) llm_calls: u64,
    /// How long it took.
    pub(super) took: Duration,
}

impl Seen {
    /// Events of interest on one line each, in order.
    pub(super) fn lines(&self) -> Vec<String> {
        self.events.iter().filter_map(line).collect()
    }

    /// Bot messages with the position of their events.
    pub(super) fn messages(&self) -> impl Iterator<Item = (usize, &BotMessage)> {
        self.events.iter().enumerate().filter_map(|(at, event)| match &event.kind {
            EventKind::Bot(bot) => Some((at, &**bot)),
            _ => None,
        })
    }

    /// Who said the message at this position: its agent, else the last action before it.
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

    /// Commands by kind.
    pub(super) fn commands(&self) -> BTreeMap<String, u64> {
        let mut kinds = BTreeMap::new();
        for event in &self.events {
            let EventKind::Understood { commands, .. } = &event.kind else { continue };
            for command in commands {
                let written = serde_json::to_value(command).unwrap_or_default();
                let kind = written.get("command").and_then(Json::as_str).unwrap_or("unknown");
                *kinds.entry(kind.to_owned()).or_default() += 1;
            }
        }
        kinds
    }

    /// What the user was asked to choose from in this turn: ids, and readable names.
    pub(super) fn options(&self, project: &Project) -> Vec<(String, String)> {
        let mut options = Vec::new();
        for event in &self.events {
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

/// An event on one line; nothing for those that only keep the books.
pub(super) fn line(event: &Event) -> Option<String> {
    let line = match &event.kind {
        EventKind::Bot(bot) => bot_line(bot),
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
    Some(cut(&line))
}

/// Saying a response shows as its message.
fn is_response(action: &str) -> bool {
    action.starts_with("utter_")
}

/// A message on one line.
pub(super) fn bot_line(bot: &BotMessage) -> String {
    let who = match (&bot.utter_action, &bot.agent) {
        (Some(utter), _) => format!("bot {utter}"),
        (None, Some(agent)) => format!("bot {agent}"),
        (None, None) => "bot".to_owned(),
    };
    let mut line = format!("{who}: {}", Json::from(bot.reply.text.as_deref().unwrap_or_default()));
    for button in &bot.reply.buttons {
        line.push_str(&format!(" [{} -> {}]", button.title, button.payload));
    }
    line
}

/// A line of a report: within its limit, without what moves a cursor.
pub(super) fn cut(line: &str) -> String {
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
    fn a_line_of_a_report_has_an_end() {
        assert_eq!(cut("a\u{1b}[2Jb\nc"), "a [2Jb c");
        let long = cut(&"ü".repeat(TEST_LINE + 1));
        assert_eq!((long.chars().count(), long.ends_with('…')), (TEST_LINE + 1, true));
        assert_eq!(cut(&"ü".repeat(TEST_LINE)).chars().count(), TEST_LINE);
    }
}

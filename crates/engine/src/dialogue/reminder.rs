//! Turns without a user message: reminders, and triggers of other programs.
//!
//! A reminder is an event of the conversation, whose state has the pending ones. The runtime stores the earliest due
//! time of each conversation and sends an [`ExternalTrigger`] when it is due.

use std::{str::FromStr as _, sync::Arc};

use chrono::{DateTime, NaiveDateTime, SecondsFormat};
use serde_json::Value as Json;

use super::{
    Next, advance_context::AdvanceContext, agent_frame, commands, commands::CommandSource, late_confirmations,
    message_payload, pending, session,
};
use crate::{
    conversation::{Command, Event, EventKind, ExternalTrigger, FilledBy, FlowLocation, TriggerAction},
    ids::SlotName,
    limits,
};

/// Completes a reminder: adds a name and a time zone if they are missing. The error is recorded as a reason.
pub(super) fn complete_reminder(
    turn: &AdvanceContext<'_>,
    name: &mut Option<Arc<str>>,
    date_time: &mut String,
) -> Result<(), String> {
    let count = turn.conversation().events;
    let name = name.get_or_insert_with(|| format!("reminder-{count}").into());
    let waiting = &turn.conversation().reminders;
    if waiting.is_full() && waiting.get(name).is_none() {
        return Err(format!("{} reminders are pending already: `{name}` is ignored", limits::REMINDERS));
    }
    let zone = turn.project.config.generator.as_ref().map_or("UTC", |generator| &*generator.timezone);
    let settled = parse_time(date_time, zone);
    *date_time =
        settled.ok_or_else(|| format!("`{date_time}` is not an ISO 8601 time: reminder `{name}` is ignored"))?;
    Ok(())
}

/// Parses a time and adds the zone of the assistant if it has none.
fn parse_time(text: &str, zone: &str) -> Option<String> {
    let text = text.trim();
    let parse = |text: &str| {
        DateTime::parse_from_rfc3339(text)
            .ok()
            .or_else(|| DateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f%:z").ok())
    };
    let with_zone = parse(text).or_else(|| {
        let naive = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"];
        let naive = naive.iter().find_map(|form| NaiveDateTime::parse_from_str(text, form).ok())?;
        let zone = chrono_tz::Tz::from_str(zone).ok()?;
        // An hour that occurs twice when the clock changes means the first; a time that is skipped is moved by one
        // hour.
        let local = naive.and_local_timezone(zone).earliest();
        let later = || (naive + chrono::TimeDelta::hours(1)).and_local_timezone(zone).earliest();
        Some(local.or_else(later)?.fixed_offset())
    })?;
    Some(with_zone.to_rfc3339_opts(SecondsFormat::AutoSi, true))
}

/// Handles a trigger. Starts what it names, whatever the guard says. If it leads to no command, no message is sent.
pub(super) fn on_trigger(turn: &mut AdvanceContext<'_>, trigger: ExternalTrigger) -> Next {
    if let Some(name) = &trigger.reminder {
        // It may have been cancelled or replaced since the runtime read it.
        if turn.conversation().reminders.get(name).is_none_or(|one| one.due > turn.at) {
            turn.add_note(format!("reminder `{name}` is no longer due"));
            return Next::Listen;
        }
        if turn.conversation().session.ended {
            turn.add_note(format!("reminder `{name}` is due after the end of the session"));
            turn.emit(EventKind::CancelReminder { name: Some(name.clone()), intent: None, entities: Json::Null });
            return Next::Listen;
        }
    }
    if session::is_session_needed(turn) {
        session::begin_session(turn, &serde_json::Map::new());
    }
    let commands = commands_of(turn, &trigger);
    turn.record(Event { at: turn.at, kind: EventKind::External { trigger }, location: FlowLocation::default() });
    pending::abandon_pending_effect(turn);
    late_confirmations::on_turn_start(turn);
    if turn.conversation().paused {
        turn.add_note("the conversation is paused: the trigger is recorded and no message is sent");
        return Next::Listen;
    }
    commands::execute(turn, commands, CommandSource::External)
}

fn commands_of(turn: &mut AdvanceContext<'_>, trigger: &ExternalTrigger) -> Vec<Command> {
    match &trigger.action {
        TriggerAction::Intent(name) => message_payload::commands_of_intent(turn, name, "", &trigger.values),
        TriggerAction::StartIfAllowed(flow) if !commands::may_start(&turn.scope(), flow) => {
            turn.add_note(format!("`{flow}` cannot be started now: it does not exist, or its guard does not hold"));
            Vec::new()
        }
        TriggerAction::Flow(flow) | TriggerAction::StartIfAllowed(flow) => {
            let values = trigger.values.iter().map(|(name, value)| Command::SetSlot {
                name: SlotName::from(name.as_str()),
                value: value.clone(),
                extractor: FilledBy::Custom,
            });
            let start = match turn.project.flow(flow.as_str()) {
                Some(known) if known.is_pattern() => Command::StartPattern { flow: flow.clone() },
                _ => Command::StartFlow { flow: flow.clone() },
            };
            std::iter::once(start).chain(values).collect()
        }
        TriggerAction::Cancel { .. } => vec![Command::CancelFlow],
        TriggerAction::Continue(agent) if agent_frame::is_waiting(&turn.stack, agent) => vec![Command::ContinueAgent],
        TriggerAction::Continue(agent) => {
            turn.add_note(format!("agent `{agent}` is not waiting for the user"));
            Vec::new()
        }
        TriggerAction::Note { .. } => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_time;

    #[test]
    fn times_without_a_zone_get_the_zone_of_the_assistant() {
        for (text, zone, want) in [
            ("2026-11-03T08:00:00+01:00", "UTC", Some("2026-11-03T08:00:00+01:00")),
            ("2026-11-03T08:00:00.123456", "UTC", Some("2026-11-03T08:00:00.123456Z")),
            ("2026-07-03 08:00:00", "Europe/Berlin", Some("2026-07-03T08:00:00+02:00")),
            ("2026-03-29T02:30:00", "Europe/Berlin", Some("2026-03-29T03:30:00+02:00")),
            ("2026-10-25T02:30:00", "Europe/Berlin", Some("2026-10-25T02:30:00+02:00")),
            ("soon", "UTC", None),
        ] {
            assert_eq!(parse_time(text, zone).as_deref(), want, "{text} in {zone}");
        }
    }
}

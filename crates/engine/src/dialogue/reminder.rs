//! What comes without a user: reminders that were asked for, and triggers of other programs.
//!
//! A reminder is an event of the conversation; its fold knows which wait. The runtime keeps the earliest time of each
//! conversation and comes back with a [`Trigger`] when it is due.

use std::{str::FromStr as _, sync::Arc};

use chrono::{DateTime, NaiveDateTime, SecondsFormat};
use serde_json::Value as Json;

use super::{Next, agent_frame, commands, commands::Source, pending, session, structured, turn::Turn};
use crate::{
    conversation::{Command, Event, EventKind, FilledBy, FlowLocation, Trigger, TriggerAction},
    ids::SlotName,
    limits,
};

/// Makes a reminder complete: a name where it has none, a zone where its time has none. The error is for the record of why.
pub(super) fn settle(turn: &Turn<'_>, name: &mut Option<Arc<str>>, date_time: &mut String) -> Result<(), String> {
    let count = turn.conversation().events;
    let name = name.get_or_insert_with(|| format!("reminder-{count}").into());
    let waiting = &turn.conversation().reminders;
    if waiting.is_full() && waiting.get(name).is_none() {
        return Err(format!("{} reminders wait already: `{name}` is left out", limits::REMINDERS));
    }
    let zone = turn.project.config.generator.as_ref().map_or("UTC", |generator| &*generator.timezone);
    let settled = read_time(date_time, zone);
    *date_time =
        settled.ok_or_else(|| format!("`{date_time}` is no time of ISO 8601: reminder `{name}` is left out"))?;
    Ok(())
}

/// A time with its zone; one without is in the zone of the assistant, which action servers are told to use.
fn read_time(text: &str, zone: &str) -> Option<String> {
    let text = text.trim();
    let written = |text: &str| {
        DateTime::parse_from_rfc3339(text)
            .ok()
            .or_else(|| DateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f%:z").ok())
    };
    let with_zone = written(text).or_else(|| {
        let naive = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"];
        let naive = naive.iter().find_map(|form| NaiveDateTime::parse_from_str(text, form).ok())?;
        let zone = chrono_tz::Tz::from_str(zone).ok()?;
        // In the hour that a clock shows twice the first counts; a time that a clock leaves out is that of the hour after.
        let local = naive.and_local_timezone(zone).earliest();
        let later = || (naive + chrono::TimeDelta::hours(1)).and_local_timezone(zone).earliest();
        Some(local.or_else(later)?.fixed_offset())
    })?;
    Some(with_zone.to_rfc3339_opts(SecondsFormat::AutoSi, true))
}

/// Takes something that no user wrote. It starts what it names, whatever the guard says; nothing is said about one that
/// leads to nothing.
pub(super) fn triggered(turn: &mut Turn<'_>, trigger: Trigger) -> Next {
    if let Some(name) = &trigger.reminder {
        // It may have been cancelled, or set anew, since the runtime looked.
        if turn.conversation().reminders.get(name).is_none_or(|one| one.due > turn.at) {
            turn.note(format!("reminder `{name}` does not wait for now any more"));
            return Next::Listen;
        }
        if turn.conversation().session.ended {
            turn.note(format!("reminder `{name}` comes after the end of the session"));
            turn.emit(EventKind::CancelReminder { name: Some(name.clone()), intent: None, entities: Json::Null });
            return Next::Listen;
        }
    }
    if session::is_needed(turn) {
        session::begin(turn, &serde_json::Map::new());
    }
    let commands = commands_of(turn, &trigger);
    turn.record(Event { at: turn.at, kind: EventKind::External { trigger }, place: FlowLocation::default() });
    pending::abandon(turn);
    if turn.conversation().paused {
        turn.note("the conversation is paused: what came is recorded and nothing is said");
        return Next::Listen;
    }
    commands::execute(turn, commands, Source::External)
}

fn commands_of(turn: &mut Turn<'_>, trigger: &Trigger) -> Vec<Command> {
    match &trigger.what {
        TriggerAction::Intent(name) => structured::meaning(turn, name, "", &trigger.values),
        TriggerAction::Request(flow) if !commands::may_start(&turn.view(), flow) => {
            turn.note(format!("`{flow}` cannot be asked for now: it is not there, or its guard does not hold"));
            Vec::new()
        }
        TriggerAction::Flow(flow) | TriggerAction::Request(flow) => {
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
            turn.note(format!("agent `{agent}` is not what is waited for"));
            Vec::new()
        }
        TriggerAction::Note { .. } => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::read_time;

    #[test]
    fn times_get_the_zone_of_the_assistant_where_they_have_none() {
        for (text, zone, want) in [
            ("2026-11-03T08:00:00+01:00", "UTC", Some("2026-11-03T08:00:00+01:00")),
            ("2026-11-03T08:00:00.123456", "UTC", Some("2026-11-03T08:00:00.123456Z")),
            ("2026-07-03 08:00:00", "Europe/Berlin", Some("2026-07-03T08:00:00+02:00")),
            ("2026-03-29T02:30:00", "Europe/Berlin", Some("2026-03-29T03:30:00+02:00")),
            ("2026-10-25T02:30:00", "Europe/Berlin", Some("2026-10-25T02:30:00+02:00")),
            ("soon", "UTC", None),
        ] {
            assert_eq!(read_time(text, zone).as_deref(), want, "{text} in {zone}");
        }
    }
}

//! The rules between reading commands and handing them to the brain (dialogue.md 4.5, steps 11 to 14).

use segue_engine::{conversation::Command, ids::FlowId, project::Mapping};

use super::{cannot_handle, view::View};

/// Drops what may not be done now; says of each why.
pub(super) fn sift(view: &View<'_>, commands: Vec<Command>, notes: &mut Vec<String>) -> Vec<Command> {
    let mut kept: Vec<Command> = commands.into_iter().filter_map(|command| startable(view, command, notes)).collect();
    let active = active_flows(view, &kept);
    kept.retain(|command| match command {
        Command::SetSlot { name, .. } if !mapping_allows(view, name.as_str(), &active) => {
            notes.push(format!("set slot {name}: its mappings do not let it be filled in the flows that are active"));
            false
        }
        _ => true,
    });
    forced(view, kept, notes)
}

/// A flow must be one that its guard lets start. The flow under way stays known, for the brain to say that it is active.
fn startable(view: &View<'_>, command: Command, notes: &mut Vec<String>) -> Option<Command> {
    let may_start = |flow: &FlowId| {
        view.startable.iter().any(|known| known.id == *flow) || view.flows_under_way().any(|active| active == flow)
    };
    match command {
        Command::StartFlow { flow } if !may_start(&flow) => {
            notes.push(format!("start flow {flow}: its guard does not hold now"));
            None
        }
        Command::Clarify { mut options } if !options.is_empty() => {
            options.retain(&may_start);
            match <[FlowId; 1]>::try_from(options) {
                Ok([flow]) => Some(Command::StartFlow { flow }),
                Err(options) if options.is_empty() => {
                    notes.push("disambiguate flows: none of them can be started now".to_owned());
                    None
                }
                Err(options) => Some(Command::Clarify { options }),
            }
        }
        command => Some(command),
    }
}

/// The flows under way and those that these commands start, with the flows they call.
fn active_flows<'a>(view: &View<'a>, commands: &'a [Command]) -> Vec<FlowId> {
    let started = commands.iter().filter_map(|command| match command {
        Command::StartFlow { flow } => Some(flow),
        _ => None,
    });
    view.flows_under_way().chain(started).cloned().collect()
}

/// Whether a condition of the slot's mappings stands in the way. A slot that models may not fill at all is left to the brain.
fn mapping_allows(view: &View<'_>, slot: &str, active: &[FlowId]) -> bool {
    let Some(slot) = view.project.slot(slot) else { return true };
    let mut conditions = slot.mappings.iter().filter_map(|mapping| match mapping {
        Mapping::FromLlm { active_flows, .. } => Some(active_flows),
        _ => None,
    });
    let Some(first) = conditions.next() else { return true };
    [first].into_iter().chain(conditions).any(|flows| flows.is_empty() || flows.iter().any(|flow| active.contains(flow)))
}

/// While a question insists on its answer, only that counts.
fn forced(view: &View<'_>, commands: Vec<Command>, notes: &mut Vec<String>) -> Vec<Command> {
    let Some(asked) = view.asked.filter(|asked| asked.collect.is_some_and(|collect| collect.force_slot_filling)) else {
        return commands;
    };
    let before = commands.len();
    let mut kept = commands;
    kept.retain(|command| matches!(command, Command::SetSlot { name, .. } if name == asked.slot));
    if kept.len() < before {
        notes.push(format!("the question about {} insists on its answer: {} commands dropped", asked.slot, before - kept.len()));
    }
    if kept.is_empty() { vec![cannot_handle()] } else { kept }
}

//! Drops commands that start a flow whose guard is false.
//!
//! All other checks (slot mappings, forced slot filling, flows that are active already) are made by the dialogue engine,
//! which reports them in its own trace.

use segue_engine::{conversation::Command, ids::FlowId};

use super::context::GeneratorContext;

/// Removes commands that start flows whose guards are false, and adds a note for each.
pub(super) fn drop_guarded_flows(
    context: &GeneratorContext<'_>,
    commands: Vec<Command>,
    notes: &mut Vec<String>,
) -> Vec<Command> {
    // An active flow passes whatever its guard says: the dialogue engine reports that it is active already.
    let may_start = |flow: &FlowId| {
        context.startable.iter().any(|startable| startable.id == *flow)
            || context.active_flows().any(|active| active == flow)
    };
    let mut remaining = Vec::with_capacity(commands.len());
    for command in commands {
        match command {
            Command::StartFlow { flow } if !may_start(&flow) => {
                notes.push(format!("start flow {flow}: its guard is false"));
            }
            Command::Clarify { mut options } if !options.is_empty() => {
                options.retain(may_start);
                match <[FlowId; 1]>::try_from(options) {
                    Ok([flow]) => remaining.push(Command::StartFlow { flow }),
                    Err(options) if options.is_empty() => {
                        notes.push("disambiguate flows: none of them can be started now".to_owned());
                    }
                    Err(options) => remaining.push(Command::Clarify { options }),
                }
            }
            command => remaining.push(command),
        }
    }
    let starts_flow = |command: &Command| matches!(command, Command::StartFlow { .. });
    if remaining.contains(&Command::ContinueAgent) && remaining.iter().any(starts_flow) {
        notes.push(
            "continue agent: a flow that starts in the same message runs first; the agent gets the message when it resumes"
                .to_owned(),
        );
    }
    remaining
}

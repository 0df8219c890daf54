//! The last look at commands before the dialogue engine gets them: a flow that was not on offer is not started.
//!
//! Everything else that may stand in a command's way (mappings, questions that insist on their answer, what is active
//! already) is the dialogue engine's matter, which tells it in its own record.

use segue_engine::{conversation::Command, ids::FlowId};

use super::view::View;

/// Drops starts of flows whose guards do not hold; says of each why.
pub(super) fn sift(view: &View<'_>, commands: Vec<Command>, notes: &mut Vec<String>) -> Vec<Command> {
    // A flow that is under way stays known, whatever its guard says: the dialogue engine tells that it is active.
    let on_offer = |flow: &FlowId| {
        view.startable.iter().any(|known| known.id == *flow) || view.flows_under_way().any(|active| active == flow)
    };
    let mut kept = Vec::with_capacity(commands.len());
    for command in commands {
        match command {
            Command::StartFlow { flow } if !on_offer(&flow) => {
                notes.push(format!("start flow {flow}: its guard does not hold now"));
            }
            Command::Clarify { mut options } if !options.is_empty() => {
                options.retain(on_offer);
                match <[FlowId; 1]>::try_from(options) {
                    Ok([flow]) => kept.push(Command::StartFlow { flow }),
                    Err(options) if options.is_empty() => {
                        notes.push("disambiguate flows: none of them can be started now".to_owned());
                    }
                    Err(options) => kept.push(Command::Clarify { options }),
                }
            }
            command => kept.push(command),
        }
    }
    let begins = |command: &Command| matches!(command, Command::StartFlow { .. });
    if kept.contains(&Command::ContinueAgent) && kept.iter().any(begins) {
        notes.push(
            "continue agent: a flow that starts with it goes first; the agent hears the message when it goes on"
                .to_owned(),
        );
    }
    kept
}

//! `segue replay`: replays a stored conversation from its record, without calling any external service.

use super::{
    CommandResult, EXIT_FINDINGS, output,
    project_args::{ProjectArgs, describe_build_error},
};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The conversation; `segue conversations` lists the ids
    id: String,
    #[command(flatten)]
    project: ProjectArgs,
    /// The store, as in `sqlite:conversations.db`
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

/// Replays the conversation and compares every event byte for byte.
pub(super) async fn replay(args: Args) -> CommandResult {
    let Some(opened) = args.project.open_to_read(args.store.as_deref())? else { return Ok(EXIT_FINDINGS) };
    let store = args.project.open_existing_store(args.store.as_deref(), &opened.project)?;
    let assistant = opened.builder.store(store).offline().build().map_err(describe_build_error)?;
    let Some(difference) = assistant.replay(&args.id.as_str().into()).await? else {
        output::println("replay matches: every event is identical")?;
        return Ok(0);
    };
    let nothing = "(nothing)".to_owned();
    output::println(&format!("turn {}, event {}: the replay differs", difference.turn, difference.event))?;
    output::println(&format!(
        "  stored:   {}",
        output::strip_control_characters(difference.stored.as_ref().unwrap_or(&nothing))
    ))?;
    output::println(&format!(
        "  replayed: {}",
        output::strip_control_characters(difference.replayed.as_ref().unwrap_or(&nothing))
    ))?;
    Ok(EXIT_FINDINGS)
}

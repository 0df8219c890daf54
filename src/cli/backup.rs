//! `segue backup`: copies a store while it is in use.

use std::path::PathBuf;

use segue::store;

use super::{CommandResult, EXIT_FINDINGS, output, project_args::ProjectArgs};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The file to write; it must not exist yet
    file: PathBuf,
    #[command(flatten)]
    project: ProjectArgs,
    /// The store to copy, as in `sqlite:conversations.db`; the project's store unless set
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

/// Writes a consistent copy of the store, also while another process writes to it.
pub(super) fn backup(args: &Args) -> CommandResult {
    let Some(opened) = args.project.open()? else { return Ok(EXIT_FINDINGS) };
    let location = args.project.existing_location(args.store.as_deref(), &opened.project)?;
    store::backup(&location, &args.file)?;
    output::println(&format!("copied to {}; open it with `--store sqlite:{0}`", args.file.display()))?;
    Ok(0)
}

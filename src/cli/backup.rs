//! `segue backup`: a copy of the store while it is in use.

use std::path::PathBuf;

use segue::store;

use super::{CommandResult, EXIT_FINDINGS, output, project_args::ProjectArgs};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The file to write; it must not exist yet
    file: PathBuf,
    #[command(flatten)]
    place: ProjectArgs,
    /// The store to copy, as in `sqlite:conversations.db`; the project's store unless set
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

/// One state of the store, whatever is written meanwhile.
pub(super) fn backup(args: &Args) -> CommandResult {
    let Some(opened) = args.place.open()? else { return Ok(EXIT_FINDINGS) };
    let location = args.place.existing_location(args.store.as_deref(), &opened.project)?;
    store::backup(&location, &args.file)?;
    output::println(&format!("copied to {}; `--store sqlite:{0}` opens it", args.file.display()))?;
    Ok(0)
}

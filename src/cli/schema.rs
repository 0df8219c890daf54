//! `segue schema`: JSON Schemas of the project files, for editors.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use segue::project::{ProjectFile, json_schema};

use super::{CommandResult, EXIT_USAGE, output};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The kind of file: config, domain, flows, endpoints, credentials, agent, mission, subagents, cases or conftest
    #[arg(required_unless_present = "out")]
    file: Option<ProjectFile>,
    /// Write the schemas into this folder, such as flows.schema.json; only that of FILE if it is set
    #[arg(long, short, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// Prints one schema, or writes one or all schemas to files.
pub(super) fn schema(args: &Args) -> CommandResult {
    let text = |file| Ok::<_, serde_json::Error>(serde_json::to_string_pretty(&json_schema(file))? + "\n");
    match (&args.out, args.file) {
        (None, Some(file)) => output::print(&text(file)?)?,
        (None, None) => return Ok(EXIT_USAGE),
        (Some(folder), only) => {
            fs::create_dir_all(folder).with_context(|| format!("the folder {} cannot be created", folder.display()))?;
            for file in ProjectFile::ALL.into_iter().filter(|file| only.is_none_or(|only| only == *file)) {
                let path = folder.join(format!("{}.schema.json", file.name()));
                fs::write(&path, text(file)?).with_context(|| format!("{} cannot be written", path.display()))?;
                output::status(&format!("wrote {}", path.display()));
            }
        }
    }
    Ok(0)
}

//! `segue init`: a new project that runs at once, written from files that are part of the binary.

use std::{borrow::Cow, fs, io::Write as _, path::Path, path::PathBuf};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use rust_embed::RustEmbed;

use super::{CommandResult, output};

/// The starter's folder below `flows/`.
#[derive(RustEmbed)]
#[folder = "flows/ferries/"]
struct Ferries;

#[derive(RustEmbed)]
#[folder = "examples/projects/blank/"]
struct Blank;

#[derive(RustEmbed)]
#[folder = "examples/projects/agents/"]
struct Agents;

/// How a coding agent builds and tests an assistant.
const SKILL: &[u8] = include_bytes!("../../skills/segue/SKILL.md");

/// What the new project contains.
#[derive(Clone, Copy, ValueEnum)]
enum Template {
    /// One flow with slots, a correction and a confirmation
    Blank,
    /// An open agent and a task agent with tools of an MCP server
    Agents,
    /// Northwater Ferries, the whole example assistant: find, book, change and refund crossings
    #[value(alias = "starter")]
    Ferries,
}

#[derive(clap::Args)]
pub(super) struct Args {
    /// The folder; created if it does not exist
    dir: PathBuf,
    /// What the project contains
    #[arg(long, value_enum, default_value = "blank")]
    template: Template,
    /// Adds a skill for coding agents: `skills/segue/SKILL.md`
    #[arg(long)]
    skill: bool,
}

/// Writes the project. Nothing is overwritten: a file that exists already is an error before the first write.
pub(super) fn init(args: &Args) -> CommandResult {
    let mut files = args.template.files();
    if args.skill {
        files.push(("skills/segue/SKILL.md".to_owned(), Cow::Borrowed(SKILL)));
    }
    // Many new folders contain a `.gitignore` already.
    files.retain(|(path, _)| path != ".gitignore" || args.dir.join(path).symlink_metadata().is_err());
    for (path, _) in &files {
        // A link that leads nowhere is a file of somebody else, too: it is not written through.
        if args.dir.join(path).symlink_metadata().is_ok() {
            bail!("{} exists already; choose an empty folder (nothing was written)", args.dir.join(path).display());
        }
    }
    for (path, text) in &files {
        write(&args.dir.join(path), text)?;
    }
    output::println(&format!("{} files in {}", files.len(), args.dir.display()))?;
    output::println(&format!("talk to it: segue chat {}", args.dir.display()))?;
    Ok(0)
}

fn write(path: &Path, text: &[u8]) -> anyhow::Result<()> {
    let shown = || format!("{} cannot be written", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(shown)?;
    }
    let mut file = fs::File::create_new(path).with_context(shown)?;
    file.write_all(text).with_context(shown)
}

impl Template {
    /// All files, by path from the new project's folder.
    fn files(self) -> Vec<(String, Cow<'static, [u8]>)> {
        let mut files = match self {
            Self::Blank => embedded::<Blank>(""),
            Self::Agents => embedded::<Agents>(""),
            Self::Ferries => embedded::<Ferries>("flows/ferries/"),
        };
        if let Some(readme) = files.iter_mut().find(|(path, _)| path == "flows/ferries/README.md") {
            "README.md".clone_into(&mut readme.0);
        }
        let mut add = |path: &str, text: &'static [u8]| files.push((path.to_owned(), Cow::Borrowed(text)));
        if let Self::Ferries = self {
            add("config.yml", include_bytes!("../../config.yml"));
            add("endpoints.yml", include_bytes!("../../endpoints.yml"));
        }
        add(".gitignore", b".segue/\n");
        add("AGENTS.md", include_bytes!("../../examples/projects/AGENTS.md"));
        files
    }
}

fn embedded<Folder: RustEmbed>(prefix: &str) -> Vec<(String, Cow<'static, [u8]>)> {
    Folder::iter().filter_map(|path| Some((format!("{prefix}{path}"), Folder::get(&path)?.data))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_template_is_complete() {
        for (template, expected) in [
            (Template::Blank, &["README.md", "flows/send_money.yml", "script.yml", "tests/send_money.yml"] as &[_]),
            (Template::Agents, &["README.md", "sub_agents/guide/config.yml", "script.yml", "tests/ferries.yml"]),
            (
                Template::Ferries,
                &[
                    "README.md",
                    "flows/ferries/domain.yml",
                    "flows/ferries/script.yml",
                    "flows/ferries/tests/booking.yml",
                ],
            ),
        ] {
            let files = template.files();
            for path in ["config.yml", "endpoints.yml", ".gitignore", "AGENTS.md"].iter().chain(expected) {
                assert!(files.iter().any(|(file, _)| file == path), "{path}");
            }
        }
    }
}

//! `segue init`: writes a new project that can run immediately. The files of the templates are embedded in the binary.

use std::{borrow::Cow, fs, io::Write as _, path::Path, path::PathBuf};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use rust_embed::RustEmbed;

use super::{CommandResult, output};

/// The flows, domain, agents, script and tests of the starter assistant. [`Template::files`] adds its other files.
#[derive(RustEmbed)]
#[folder = "flows/ferries/"]
struct Ferries;

#[derive(RustEmbed)]
#[folder = "examples/projects/blank/"]
struct Blank;

#[derive(RustEmbed)]
#[folder = "examples/projects/agents/"]
struct Agents;

#[derive(RustEmbed)]
#[folder = "examples/projects/mission/"]
struct Mission;

/// Instructions for coding agents: how to build and test an assistant.
const SKILL: &[u8] = include_bytes!("../../skills/segue/SKILL.md");

/// What the new project contains.
#[derive(Clone, Copy, ValueEnum)]
enum Template {
    /// One flow with slots, a correction and a confirmation
    Blank,
    /// An open agent and a task agent with tools of an MCP server
    Agents,
    /// A mission with three tasks: plan, items side by side, a report in a file
    Mission,
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
    /// Add a skill for coding agents: `skills/segue/SKILL.md`
    #[arg(long)]
    skill: bool,
}

/// Writes the project. If one of the files exists already, nothing is written.
pub(super) fn init(args: &Args) -> CommandResult {
    let mut files = args.template.files();
    if args.skill {
        files.push(("skills/segue/SKILL.md".to_owned(), Cow::Borrowed(SKILL)));
    }
    // A new repository often contains a `.gitignore` already. It is kept.
    files.retain(|(path, _)| path != ".gitignore" || args.dir.join(path).symlink_metadata().is_err());
    for (path, _) in &files {
        // `symlink_metadata` also finds dangling links: writing would create their target.
        if args.dir.join(path).symlink_metadata().is_ok() {
            bail!("{} exists already; choose an empty folder (nothing was written)", args.dir.join(path).display());
        }
    }
    for (path, text) in &files {
        write(&args.dir.join(path), text)?;
    }
    let folder = args.dir.display();
    output::println(&format!("Created {} files in {folder}", files.len()))?;
    output::println(&format!("Next: {}", args.template.next(&args.dir)))?;
    Ok(0)
}

fn write(path: &Path, text: &[u8]) -> anyhow::Result<()> {
    let message = || format!("{} cannot be written", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(message)?;
    }
    let mut file = fs::File::create_new(path).with_context(message)?;
    file.write_all(text).with_context(message)
}

impl Template {
    /// The command to type first.
    fn next(self, folder: &Path) -> String {
        match self {
            Self::Mission => format!("segue mission run research {} --input topic=tea", folder.display()),
            Self::Blank | Self::Agents | Self::Ferries => format!("segue chat {}", folder.display()),
        }
    }

    /// All files of the template: the path relative to the folder of the new project, and the content.
    fn files(self) -> Vec<(String, Cow<'static, [u8]>)> {
        let mut files = match self {
            Self::Blank => embedded::<Blank>(""),
            Self::Agents => embedded::<Agents>(""),
            Self::Mission => embedded::<Mission>(""),
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
            (Template::Mission, &["README.md", "missions/research.yml", "script.yml"]),
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

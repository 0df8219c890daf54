//! `segue init`: a new project that runs at once, written from files that are part of the binary.

use std::{borrow::Cow, fs, io::Write as _, path::Path, path::PathBuf};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use rust_embed::RustEmbed;

use super::{Done, out};

#[derive(RustEmbed)]
#[folder = "flows/"]
struct Flows;

#[derive(RustEmbed)]
#[folder = "sub_agents/"]
struct Agents;

#[derive(RustEmbed)]
#[folder = "tests/e2e/"]
struct Cases;

/// The files of the starter that stand beside other things in the repository.
const SINGLE: [(&str, &str); 4] = [
    ("config.yml", include_str!("../../config.yml")),
    ("domain.yml", include_str!("../../domain.yml")),
    ("endpoints.yml", include_str!("../../endpoints.yml")),
    ("credentials.yml", include_str!("../../credentials.yml")),
];

/// What the new project may begin with.
#[derive(Clone, Copy, ValueEnum)]
enum Template {
    /// Northwater Ferries: find, book, change and refund crossings
    Starter,
}

#[derive(clap::Args)]
pub(super) struct Args {
    /// The folder; made if it is not there
    dir: PathBuf,
    /// What to begin with
    #[arg(long, value_enum, default_value = "starter")]
    template: Template,
}

/// Writes the project. Nothing is overwritten: a file that is there already stops it before the first write.
pub(super) fn init(args: &Args) -> Done {
    let Template::Starter = args.template;
    let mut files = files();
    // Many new folders hold one already.
    files.retain(|(path, _)| path != ".gitignore" || args.dir.join(path).symlink_metadata().is_err());
    for (path, _) in &files {
        // Also a link that leads nowhere is somebody's: it is not written through.
        if args.dir.join(path).symlink_metadata().is_ok() {
            bail!("{} is there already; name an empty folder, nothing is overwritten", args.dir.join(path).display());
        }
    }
    for (path, text) in &files {
        write(&args.dir.join(path), text)?;
    }
    out::line(&format!("{} files in {}", files.len(), args.dir.display()))?;
    out::line(&format!("talk to it: segue chat {}", args.dir.display()))?;
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

/// All files of the starter, by path from the new project's folder.
fn files() -> Vec<(String, Cow<'static, [u8]>)> {
    let mut files: Vec<(String, Cow<'static, [u8]>)> = SINGLE
        .iter()
        .map(|(path, text)| ((*path).to_owned(), Cow::Owned(without_repository(text).into_bytes())))
        .collect();
    // The patterns beside the starter's flows are built in anyway.
    let flows = Flows::iter().filter(|path| path.starts_with("ferries"));
    files.extend(flows.filter_map(|path| Some((format!("flows/{path}"), Flows::get(&path)?.data))));
    files.extend(Agents::iter().filter_map(|path| Some((format!("sub_agents/{path}"), Agents::get(&path)?.data))));
    files.extend(Cases::iter().filter_map(|path| Some((format!("tests/e2e/{path}"), Cases::get(&path)?.data))));
    files.push((".gitignore".to_owned(), Cow::Borrowed(b".segue/\n")));
    files.sort();
    files
}

/// The text without the comment about the repository, in which the starter stands beside other things: a comment line that
/// names the source of Segue, to the end of its paragraph.
fn without_repository(text: &str) -> String {
    let mut kept = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        is_inside = line.starts_with('#') && (is_inside || line.contains("source of Segue"));
        if is_inside {
            // The line that stands alone between two paragraphs of a comment goes too.
            if kept.last() == Some(&"#") {
                kept.pop();
            }
        } else {
            kept.push(line);
        }
    }
    kept.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_starter_is_whole_and_does_not_speak_of_the_repository() {
        let files = files();
        for path in ["config.yml", "domain.yml", "endpoints.yml", "credentials.yml", "flows/ferries/book.yml"] {
            assert!(files.iter().any(|(file, _)| file == path), "{path}");
        }
        let (_, config) = files.iter().find(|(path, _)| path == "config.yml").unwrap();
        let config = std::str::from_utf8(config).unwrap();
        assert!(!config.contains("source of Segue") && config.contains("assistant_id"), "{config}");
        assert!(files.iter().all(|(path, _)| !path.starts_with("flows/patterns")));
    }
}

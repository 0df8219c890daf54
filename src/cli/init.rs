//! `segue init`: a new project that runs at once, written from files that are part of the binary.

use std::{borrow::Cow, fs, io::Write as _, path::Path, path::PathBuf};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use rust_embed::RustEmbed;

use super::{Done, out};

/// The folder of the starter.
#[derive(RustEmbed)]
#[folder = "flows/ferries/"]
struct Ferries;

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
    let beside: [(&str, &[u8]); 3] = [
        ("config.yml", include_bytes!("../../config.yml")),
        ("endpoints.yml", include_bytes!("../../endpoints.yml")),
        (".gitignore", b".segue/\n"),
    ];
    let beside = beside.map(|(path, text)| (path.to_owned(), Cow::Borrowed(text)));
    let ferries = Ferries::iter().filter_map(|path| Some((format!("flows/ferries/{path}"), Ferries::get(&path)?.data)));
    ferries.chain(beside).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_starter_is_whole() {
        let files = files();
        let ferries =
            ["domain.yml", "script.yml", "flows/book.yml", "agents/crossing_finder/config.yml", "tests/booking.yml"];
        let ferries = ferries.map(|path| format!("flows/ferries/{path}"));
        for path in ["config.yml", "endpoints.yml"].into_iter().chain(ferries.iter().map(String::as_str)) {
            assert!(files.iter().any(|(file, _)| file == path), "{path}");
        }
    }
}

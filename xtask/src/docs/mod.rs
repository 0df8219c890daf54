//! The pages that are made from the source: `cargo xtask docs` writes them, `tidy` reports one that is stale.

mod cli;
pub mod environment;
pub mod errors;
mod events;
mod limits;
mod llms;

use std::fs;

use anyhow::{Context, Result};

use crate::place;

/// A generated page: its path, and what makes its text from the files of the repository.
pub struct Page {
    /// The path from the root.
    pub path: &'static str,
    /// The source files that `make` reads, in its order.
    pub sources: &'static [&'static str],
    /// Makes the text from those files.
    pub make: fn(&[&str]) -> Result<String>,
}

/// All of them.
pub const PAGES: [Page; 6] = [
    Page { path: "docs/reference/keys.md", sources: &[], make: |_| Ok(segue_engine::project::reference()) },
    Page { path: "docs/reference/limits.md", sources: &limits::SOURCES, make: limits::page },
    Page { path: "docs/reference/cli.md", sources: &[], make: |_| Ok(cli::page()) },
    Page { path: "docs/reference/environment.md", sources: &[], make: |_| Ok(environment::page()) },
    Page { path: "docs/reference/events.md", sources: &events::SOURCES, make: events::page },
    Page { path: "llms.txt", sources: &llms::SOURCES, make: llms::page },
];

/// Writes all pages.
pub fn write() -> Result<bool> {
    let root = place::root()?;
    for page in &PAGES {
        let read =
            |source: &&str| fs::read_to_string(root.join(source)).with_context(|| format!("cannot read {source}"));
        let sources = page.sources.iter().map(read).collect::<Result<Vec<String>>>()?;
        let text = (page.make)(&sources.iter().map(String::as_str).collect::<Vec<_>>())?;
        fs::write(root.join(page.path), text).with_context(|| format!("cannot write {}", page.path))?;
    }
    let mut pages = Vec::new();
    for entry in fs::read_dir(root.join(errors::FOLDER)).with_context(|| format!("cannot read {}", errors::FOLDER))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let text = fs::read_to_string(entry.path()).with_context(|| format!("cannot read {name}"))?;
        pages.push((name, text));
    }
    let text = errors::index(pages.iter().map(|(name, text)| (name.as_str(), text.as_str())))?;
    fs::write(root.join(errors::INDEX), text).with_context(|| format!("cannot write {}", errors::INDEX))?;
    Ok(true)
}

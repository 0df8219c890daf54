//! The pages that are generated from the source: `cargo xtask docs` writes them, `cargo xtask tidy` reports one that is out of date.

mod cli;
pub mod environment;
pub mod errors;
mod events;
mod limits;
mod llms;
mod mission_events;

use std::fs;

use anyhow::{Context, Result};

use crate::repo;

/// A page that is generated from files of the repository.
pub struct GeneratedPage {
    /// The path from the root of the repository.
    pub path: &'static str,
    /// The files whose texts are the argument of `generate`, in this order.
    pub sources: &'static [&'static str],
    /// Generates the text of the page from the texts of `sources`.
    pub generate: fn(&[&str]) -> Result<String>,
}

/// All generated pages except the index of error codes, whose sources are a folder ([`errors`]).
pub const PAGES: [GeneratedPage; 7] = [
    GeneratedPage {
        path: "docs/reference/keys.md",
        sources: &[],
        generate: |_| Ok(segue_engine::project::reference()),
    },
    GeneratedPage { path: "docs/reference/limits.md", sources: &limits::SOURCES, generate: limits::page },
    GeneratedPage { path: "docs/reference/cli.md", sources: &[], generate: |_| Ok(cli::page()) },
    GeneratedPage { path: "docs/reference/environment.md", sources: &[], generate: |_| Ok(environment::page()) },
    GeneratedPage { path: "docs/reference/events.md", sources: &events::SOURCES, generate: events::page },
    GeneratedPage {
        path: "docs/reference/mission-events.md",
        sources: &mission_events::SOURCES,
        generate: mission_events::page,
    },
    GeneratedPage { path: "llms.txt", sources: &llms::SOURCES, generate: llms::page },
];

/// Writes all generated pages. Returns true; a page that cannot be generated or written is an error.
pub fn write() -> Result<bool> {
    let root = repo::root()?;
    for page in &PAGES {
        let read =
            |source: &&str| fs::read_to_string(root.join(source)).with_context(|| format!("cannot read {source}"));
        let sources = page.sources.iter().map(read).collect::<Result<Vec<String>>>()?;
        let text = (page.generate)(&sources.iter().map(String::as_str).collect::<Vec<_>>())?;
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

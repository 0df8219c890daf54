//! The built-in patterns: the files of `flows/patterns/`, embedded in the binary.

use std::sync::Arc;

use rust_embed::RustEmbed;
use segue_engine::project::SourceFile;

#[derive(RustEmbed)]
#[folder = "flows/patterns/"]
#[allow_missing = true]
struct Patterns;

/// The files, sorted by name. Their paths begin with `(built in)/`, unlike those of the project.
pub(super) fn patterns() -> Vec<SourceFile> {
    let mut names: Vec<_> = Patterns::iter().filter(|name| name.ends_with(".yml")).collect();
    names.sort_unstable();
    let file = |name: &str| {
        let data = Patterns::get(name)?.data;
        let text = std::str::from_utf8(&data).ok()?;
        Some(SourceFile { path: Arc::from(format!("(built in)/{name}")), text: Arc::from(text) })
    };
    names.iter().filter_map(|name| file(name)).collect()
}

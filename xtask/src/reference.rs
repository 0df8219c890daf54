//! Pages that are made from the source, so that they cannot be wrong.

use std::fs;

use anyhow::{Context, Result};

use crate::place;

/// The page of all keys.
pub const KEYS: &str = "docs/reference/keys.md";

/// Its text.
pub fn keys() -> String {
    segue_engine::project::reference()
}

/// Writes all pages.
pub fn write() -> Result<bool> {
    let path = place::root()?.join(KEYS);
    fs::create_dir_all(path.parent().context("the page has no folder")?)?;
    fs::write(&path, keys()).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(true)
}

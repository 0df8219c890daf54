//! `cargo xtask tidy`: the rules of the repository. [`run`] reads the repository once and applies every rule. A rule is a pure function
//! from a [`Tree`] to violations, so that its tests need no files. No rule changes a file.

mod compared;
mod conventions;
mod dependencies;
mod docs;
mod environment;
mod error_codes;
mod layers;
mod links;
mod markdown_tables;
mod paths;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::rust_source::RustSource;
use crate::{planted_faults, repo};

/// The files of the repository. Keys are paths from the root, separated by `/`.
pub struct Tree {
    /// The contents of text files.
    texts: BTreeMap<String, String>,
    /// The tokens of Rust files.
    rust: BTreeMap<String, RustSource>,
    /// All files, binary ones included, and all folders that contain one.
    paths: BTreeSet<String>,
}

impl Tree {
    fn new(files: impl IntoIterator<Item = (String, Option<String>)>) -> Self {
        let (mut texts, mut rust, mut paths) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        for (path, text) in files {
            let folders = path.char_indices().filter(|(_, c)| *c == '/').map(|(i, _)| path[..i].to_owned());
            paths.extend(folders);
            paths.insert(path.clone());
            let Some(text) = text else { continue };
            if path.ends_with(".rs") {
                rust.insert(path.clone(), RustSource::new(&path, &text));
            }
            texts.insert(path, text);
        }
        Self { texts, rust, paths }
    }

    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Self {
        Self::new(files.iter().map(|(path, text)| ((*path).to_owned(), Some((*text).to_owned()))))
    }

    /// Reads the files that git tracks, and untracked ones that are not ignored. Without git: all except build output and installed
    /// packages.
    fn read(root: &Path) -> Result<Self> {
        let mut git = Command::new("git");
        git.args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let paths = match repo::output(git.current_dir(root), "git") {
            Ok(listed) => listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect(),
            Err(_) => {
                let mut paths = Vec::new();
                walk(root, "", &mut paths)?;
                paths
            }
        };
        let mut files = Vec::new();
        for path in paths {
            let file = root.join(&path);
            // Git also lists a file whose deletion is not committed.
            if !file.is_file() {
                continue;
            }
            let bytes = std::fs::read(&file).with_context(|| format!("cannot read {path}"))?;
            files.push((path, String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))));
        }
        Ok(Self::new(files))
    }

    /// The Rust files of the product: `src/` and `crates/`, without `tests/`, `examples/`, `benches/` and `xtask/`.
    fn product(&self) -> impl Iterator<Item = (&String, &RustSource)> {
        self.rust.iter().filter(|(path, _)| path.starts_with("src/") || path.starts_with("crates/"))
    }
}

/// Appends the path of every file below `folder` to `paths`. Paths are relative to `root`.
fn walk(root: &Path, folder: &str, paths: &mut Vec<String>) -> Result<()> {
    let full = root.join(folder);
    for entry in std::fs::read_dir(&full).with_context(|| format!("cannot read {}", full.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if !entry.file_type()?.is_dir() {
            paths.push(path);
        } else if !matches!(name.as_str(), ".git" | ".segue" | "target" | "node_modules" | "__pycache__") {
            walk(root, &path, paths)?;
        }
    }
    Ok(())
}

/// A violation of a rule at one line of a file.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    file: String,
    line: usize,
    rule: &'static str,
    message: String,
}

/// The violations of one rule.
struct Violations {
    rule: &'static str,
    items: Vec<Violation>,
}

impl Violations {
    fn new(rule: &'static str) -> Self {
        Self { rule, items: Vec::new() }
    }
    fn add(&mut self, file: &str, line: usize, message: impl Into<String>) {
        self.items.push(Violation { file: file.to_owned(), line, rule: self.rule, message: message.into() });
    }
}

const RULES: &[fn(&Tree) -> Vec<Violation>] = &[
    compared::check,
    layers::check,
    links::check,
    error_codes::check,
    conventions::check_open_ends,
    conventions::check_tests,
    conventions::check_first_line,
    conventions::check_prompts,
    paths::check,
    dependencies::check,
    docs::check,
    environment::check,
    words::check,
];

/// Checks the repository and prints its violations. Returns whether there are none.
pub fn run() -> Result<bool> {
    let root = repo::root()?;
    let tree = Tree::read(&root)?;
    let mut found: Vec<Violation> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    for (file, problem) in planted_faults::outdated(&root)? {
        found.push(Violation {
            file,
            line: 1,
            rule: "planted-faults",
            message: format!("the patch does not apply any more; write it again: {problem}"),
        });
    }
    found.sort();
    for Violation { file, line, rule, message } in &found {
        println!("{file}:{line}: {rule}: {message}");
    }
    match found.len() {
        0 => println!("tidy: {} files, {} of them Rust, no problems", tree.texts.len(), tree.rust.len()),
        count => println!("tidy: {count} problems"),
    }
    Ok(found.is_empty())
}

/// Prints every error code of the product with the title of its page and the place of its first use.
pub fn print_error_codes() -> Result<bool> {
    let tree = Tree::read(&repo::root()?)?;
    for (code, file, line, title) in error_codes::list(&tree) {
        println!("{code}  {title}  ({file}:{line})");
    }
    Ok(true)
}

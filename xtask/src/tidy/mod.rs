//! The structure check. [`run`] reads the repository once and asks every rule; a rule is a pure function from a [`Tree`]
//! to breaches, so that its tests are small texts. No rule changes a file.

mod codes;
mod conventions;
mod dependencies;
mod docs;
mod environment;
mod layers;
mod links;
mod paths;
mod table;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::place;
use crate::scan::Scan;

/// Every text file of the repository, by its path from the root with `/`.
pub struct Tree {
    /// Text files.
    texts: BTreeMap<String, String>,
    /// The Rust files among them, scanned.
    rust: BTreeMap<String, Scan>,
    /// Every file, binary ones too, and every folder that holds one.
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
                rust.insert(path.clone(), Scan::new(&path, &text));
            }
            texts.insert(path, text);
        }
        Self { texts, rust, paths }
    }

    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Self {
        Self::new(files.iter().map(|(path, text)| ((*path).to_owned(), Some((*text).to_owned()))))
    }

    /// The files that git tracks or would track; without git, all that are not built or installed.
    fn read(root: &Path) -> Result<Self> {
        let mut git = Command::new("git");
        git.args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let paths = match place::output(git.current_dir(root), "git") {
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
            // A file that is deleted but not yet committed as such is not there any more.
            if !file.is_file() {
                continue;
            }
            let bytes = std::fs::read(&file).with_context(|| format!("cannot read {path}"))?;
            files.push((path, String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))));
        }
        Ok(Self::new(files))
    }

    /// The Rust files of the product: not the tests, examples or tools around it.
    fn product(&self) -> impl Iterator<Item = (&String, &Scan)> {
        self.rust.iter().filter(|(path, _)| path.starts_with("src/") || path.starts_with("crates/"))
    }
}

/// Every file below a folder, by its path from the root.
fn walk(root: &Path, folder: &str, paths: &mut Vec<String>) -> Result<()> {
    let place = root.join(folder);
    for entry in std::fs::read_dir(&place).with_context(|| format!("cannot read {}", place.display()))? {
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

/// A breach of one rule at one place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Breach {
    file: String,
    line: usize,
    rule: &'static str,
    message: String,
}

/// Collects the breaches of one rule.
struct Breaches {
    rule: &'static str,
    found: Vec<Breach>,
}

impl Breaches {
    fn new(rule: &'static str) -> Self {
        Self { rule, found: Vec::new() }
    }
    fn add(&mut self, file: &str, line: usize, message: impl Into<String>) {
        self.found.push(Breach { file: file.to_owned(), line, rule: self.rule, message: message.into() });
    }
}

const RULES: &[fn(&Tree) -> Vec<Breach>] = &[
    layers::check,
    links::check,
    codes::check,
    conventions::check_words,
    conventions::check_tests,
    conventions::check_first_line,
    conventions::check_prompts,
    paths::check,
    dependencies::check,
    docs::check,
    environment::check,
    words::check,
];

/// Checks the repository and prints what is wrong. True if nothing is.
pub fn run() -> Result<bool> {
    let tree = Tree::read(&place::root()?)?;
    let mut found: Vec<Breach> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    found.sort();
    for Breach { file, line, rule, message } in &found {
        println!("{file}:{line}: {rule}: {message}");
    }
    match found.len() {
        0 => println!("tidy: {} files, {} of them Rust, no problems", tree.texts.len(), tree.rust.len()),
        count => println!("tidy: {count} problems"),
    }
    Ok(found.is_empty())
}

/// Prints every error code of the product with the title of its page.
pub fn print_codes() -> Result<bool> {
    let tree = Tree::read(&place::root()?)?;
    for (code, file, line, title) in codes::list(&tree) {
        println!("{code}  {title}  ({file}:{line})");
    }
    Ok(true)
}

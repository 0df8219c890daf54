//! `cargo xtask planted-faults`: shows that `tests/outside` detects the faults of `tests/outside/faults`. Each is a patch that removes one
//! safeguard of the program. A copy of the repository gets the patch, the program is built there, and the tests run against it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::repo;

/// Where the patches are.
const FOLDER: &str = "tests/outside/faults";

/// The patches, by name.
fn patches(root: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut patches = Vec::new();
    for entry in fs::read_dir(root.join(FOLDER)).with_context(|| format!("cannot read {FOLDER}"))? {
        let path = entry?.path();
        if let (Some(name), Some("patch")) =
            (path.file_stem().and_then(|name| name.to_str()), path.extension().and_then(|end| end.to_str()))
        {
            patches.push((name.to_owned(), path.clone()));
        }
    }
    patches.sort();
    Ok(patches)
}

/// `git apply` in a folder, whether or not it is in a repository. One line of context is enough, so that a change nearby does not matter.
fn apply(folder: &Path, patch: &Path) -> Command {
    let mut git = Command::new("git");
    git.args(["apply", "-C1"]).arg(patch).current_dir(folder);
    if let Some(parent) = folder.parent() {
        git.env("GIT_CEILING_DIRECTORIES", parent);
    }
    git
}

/// The patches that cannot be applied to the repository, each with the reason.
pub fn outdated(root: &Path) -> Result<Vec<(String, String)>> {
    let mut outdated = Vec::new();
    for (name, patch) in patches(root)? {
        if let Err(error) = repo::output(apply(root, &patch).arg("--check"), "git") {
            outdated.push((format!("{FOLDER}/{name}.patch"), format!("{error:#}")));
        }
    }
    Ok(outdated)
}

/// Plants the faults with these names, or all, one after the other. Returns whether the tests detect each of them.
pub fn run(names: &[String]) -> Result<bool> {
    let root = repo::root()?;
    let work = root.join("target/planted-faults");
    let copy = work.join("copy");
    let all = patches(&root)?;
    if let Some(unknown) = names.iter().find(|name| !all.iter().any(|(known, _)| known == *name)) {
        bail!("there is no fault `{unknown}` in {FOLDER}");
    }
    let mut undetected = Vec::new();
    for (name, patch) in all.iter().filter(|(name, _)| names.is_empty() || names.contains(name)) {
        update_copy(&root, &copy)?;
        repo::run(&mut apply(&copy, patch), "git")?;
        // The program is built beside that of the repository, so that dependencies are built once, and copied before it is replaced.
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let binary = work.join("segue");
        let mut build = repo::cargo();
        build.args(["build", "--quiet", "--bin", "segue", "--target-dir"]).arg(&target).current_dir(&copy);
        repo::run(&mut build, "cargo")?;
        fs::copy(target.join("debug/segue"), &binary).context("cannot copy the program")?;
        let mut test = repo::cargo();
        test.args(["test", "--test", "outside", "--", "--nocapture"]).current_dir(&root);
        test.env("SEGUE_OUTSIDE_BINARY", &binary).env("SEGUE_OUTSIDE_FAULT", name);
        let is_detected = test.status().context("cannot start cargo")?.success();
        println!("{name}: {}", if is_detected { "detected" } else { "NOT DETECTED" });
        if !is_detected {
            undetected.push(name.clone());
        }
    }
    if !undetected.is_empty() {
        println!("not detected: {}", undetected.join(", "));
    }
    Ok(undetected.is_empty())
}

/// Makes the copy equal to the files of the repository. A file that is equal is left as it is, so that cargo builds only what differs.
fn update_copy(root: &Path, copy: &Path) -> Result<()> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    for path in repo::output(&mut git, "git")?.split('\0').filter(|path| !path.is_empty()) {
        let (from, to) = (root.join(path), copy.join(path));
        // Git also lists a file whose deletion is not committed.
        let Ok(content) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|present| present == content) {
            continue;
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&to, content).with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(())
}

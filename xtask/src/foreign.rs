//! The parts of other people: installed by exact version into `target/foreign/`, then tested against.
//!
//! The lists are `tests/foreign/package.json` with its lock (npm), and `tests/foreign/requirements.txt` and its neighbours
//! (PyPI, an environment for each: their parts want different versions of the same). What is
//! installed is remembered in a stamp, written last: an interrupted installation starts anew, a finished one costs nothing.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::place;

/// The lists, as they are copied into the stamp.
const LISTS: [&str; 6] = [
    "package.json",
    "package-lock.json",
    "requirements.txt",
    "requirements-actions.txt",
    "requirements-a2a.txt",
    "requirements-a2a-03.txt",
];
/// The environments of Python, and the list of each.
const ENVIRONMENTS: [(&str, &str); 4] = [
    ("venv", "requirements.txt"),
    ("venv-actions", "requirements-actions.txt"),
    ("venv-a2a", "requirements-a2a.txt"),
    ("venv-a2a-03", "requirements-a2a-03.txt"),
];
/// The oldest Node.js that the npm parts run on.
const NODE: u32 = 20;

/// Installs what is missing and runs the tests, unless only the installation is wanted.
pub fn run(install_only: bool, test_arguments: &[String]) -> Result<bool> {
    let root = place::root()?;
    let home = root.join("target/foreign");
    install(&root.join("tests/foreign"), &home)?;
    if install_only {
        return Ok(true);
    }
    let mut test = place::cargo();
    test.args(["test", "--locked", "--features", "foreign,grpc", "--test", "foreign"]);
    test.arg("--").args(test_arguments).current_dir(&root).env("SEGUE_FOREIGN", &home);
    Ok(test.status().context("cannot start cargo")?.success())
}

fn install(lists: &Path, home: &Path) -> Result<()> {
    let node = place::output(Command::new("node").arg("--version"), "node")?;
    if !node_is_new_enough(&node) {
        bail!("Node.js {NODE} or newer is needed, this is {node}");
    }
    let python = place::output(Command::new("python3").arg("--version"), "python3")?;
    let mut wanted = format!("{node}\n{python}\n");
    for list in LISTS {
        let path = lists.join(list);
        wanted += &fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    }
    let stamp = home.join("installed");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        println!("foreign parts: all there");
        return Ok(());
    }
    if home.exists() {
        fs::remove_dir_all(home).with_context(|| format!("cannot clear {}", home.display()))?;
    }
    fs::create_dir_all(home).with_context(|| format!("cannot create {}", home.display()))?;
    for list in ["package.json", "package-lock.json"] {
        fs::copy(lists.join(list), home.join(list))?;
    }
    println!("foreign parts: installing from npm with {node}, and from PyPI with {python}");
    // Each waits for its registry most of the time, so they go side by side.
    std::thread::scope(|scope| {
        let mut installers = vec![scope.spawn(|| install_npm(home))];
        installers.extend(
            ENVIRONMENTS.map(|(name, list)| scope.spawn(move || install_python(lists, list, &home.join(name)))),
        );
        installers.into_iter().try_for_each(|installer| match installer.join() {
            Ok(result) => result,
            Err(_) => bail!("an installation ended with a panic"),
        })
    })?;
    fs::write(&stamp, wanted).context("cannot write the stamp")
}

/// The lock decides every version; no package may run a script of its own.
fn install_npm(home: &Path) -> Result<()> {
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"]).arg(home);
    place::must(&mut npm, "npm")
}

fn install_python(lists: &Path, list: &str, venv: &Path) -> Result<()> {
    place::must(Command::new("python3").args(["-m", "venv"]).arg(venv), "python3 -m venv")?;
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", "-r"]);
    place::must(pip.arg(lists.join(list)), "pip")
}

fn node_is_new_enough(version: &str) -> bool {
    let major = version.trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
    major.is_some_and(|major| major >= NODE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_node_is_refused() {
        assert!(node_is_new_enough("v20.15.0"));
        assert!(node_is_new_enough("v24.0.1"));
        assert!(!node_is_new_enough("v18.19.0"));
        assert!(!node_is_new_enough("nonsense"));
    }
}

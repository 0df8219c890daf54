//! `cargo xtask interop`: installs third-party implementations into `target/interop/` and runs `tests/interop` against them.
//!
//! The versions are pinned in `tests/interop/package.json` with its lock (npm) and in `tests/interop/requirements*.txt` (PyPI). Each
//! requirements file has a virtual environment of its own, because the packages need conflicting versions of the same dependencies.
//!
//! A stamp file records what is installed. It is written last: an interrupted installation starts from the beginning, and a complete
//! one is not repeated.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::repo;

/// The files that pin versions. Their contents are the stamp: a change of one causes a new installation.
const VERSION_FILES: [&str; 7] = [
    "package.json",
    "package-lock.json",
    "requirements.txt",
    "requirements-actions.txt",
    "requirements-a2a.txt",
    "requirements-a2a-03.txt",
    "requirements-openai.txt",
];
/// The virtual environments of Python, each with its requirements file.
const VIRTUAL_ENVIRONMENTS: [(&str, &str); 5] = [
    ("venv", "requirements.txt"),
    ("venv-actions", "requirements-actions.txt"),
    ("venv-a2a", "requirements-a2a.txt"),
    ("venv-a2a-03", "requirements-a2a-03.txt"),
    ("venv-openai", "requirements-openai.txt"),
];
/// The oldest major version of Node.js that runs the npm packages.
const MIN_NODE: u32 = 20;

/// Installs what is missing and, without `install_only`, runs the tests. Returns whether the tests pass.
pub fn run(install_only: bool, test_arguments: &[String]) -> Result<bool> {
    let root = repo::root()?;
    let target = root.join("target/interop");
    install(&root.join("tests/interop"), &target)?;
    if install_only {
        return Ok(true);
    }
    let mut test = repo::cargo();
    test.args(["test", "--locked", "--features", "interop,grpc", "--test", "interop"]);
    test.arg("--").args(test_arguments).current_dir(&root).env("SEGUE_INTEROP", &target);
    Ok(test.status().context("cannot start cargo")?.success())
}

/// Runs the voice stacks as clients of the channel `openai`, without audio. They are large, so the gate does not install them.
pub fn run_voice_stacks() -> Result<bool> {
    let root = repo::root()?;
    let (source, venv) = (root.join("tests/interop"), root.join("target/interop-voice"));
    let versions = fs::read_to_string(source.join("requirements-voice.txt"))?;
    let stamp = venv.join("installed");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == versions) {
        println!("voice stacks: already installed");
    } else {
        println!("voice stacks: installing from PyPI");
        install_python(&source.join("requirements-voice.txt"), &venv)?;
        fs::write(&stamp, versions).context("cannot write the stamp")?;
    }
    repo::run(repo::cargo().args(["build", "--locked", "--bin", "segue"]).current_dir(&root), "cargo build")?;
    let mut clients = Command::new(venv.join("bin/python"));
    clients.arg(source.join("voice_stacks.py")).arg(root.join("target/debug/segue"));
    Ok(clients.env("PYTHONDONTWRITEBYTECODE", "1").status().context("cannot start Python")?.success())
}

/// Installs the pinned versions of `source` into `target`, unless its stamp says that they are installed.
fn install(source: &Path, target: &Path) -> Result<()> {
    let node = repo::output(Command::new("node").arg("--version"), "node")?;
    if !node_is_new_enough(&node) {
        bail!("Node.js {MIN_NODE} or newer is needed, this is {node}");
    }
    let python = repo::output(Command::new("python3").arg("--version"), "python3")?;
    let mut versions = format!("{node}\n{python}\n");
    for file in VERSION_FILES {
        let path = source.join(file);
        versions += &fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    }
    let stamp = target.join("installed");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == versions) {
        println!("third-party implementations: already installed");
        return Ok(());
    }
    if target.exists() {
        fs::remove_dir_all(target).with_context(|| format!("cannot clear {}", target.display()))?;
    }
    fs::create_dir_all(target).with_context(|| format!("cannot create {}", target.display()))?;
    for file in ["package.json", "package-lock.json"] {
        fs::copy(source.join(file), target.join(file))?;
    }
    println!("third-party implementations: installing from npm with {node}, and from PyPI with {python}");
    // The installers wait for their registries most of the time, so they run in parallel.
    std::thread::scope(|scope| {
        let mut installers = vec![scope.spawn(|| install_npm(target))];
        installers.extend(
            VIRTUAL_ENVIRONMENTS
                .map(|(name, file)| scope.spawn(move || install_python(&source.join(file), &target.join(name)))),
        );
        installers.into_iter().try_for_each(|installer| match installer.join() {
            Ok(result) => result,
            Err(_) => bail!("an installation ended with a panic"),
        })
    })?;
    fs::write(&stamp, versions).context("cannot write the stamp")
}

/// Installs the npm packages exactly as the lock says. `--ignore-scripts`: no package runs an install script.
fn install_npm(target: &Path) -> Result<()> {
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"]).arg(target);
    repo::run(&mut npm, "npm")
}

/// Creates a virtual environment and installs a requirements file into it.
fn install_python(requirements: &Path, venv: &Path) -> Result<()> {
    repo::run(Command::new("python3").args(["-m", "venv"]).arg(venv), "python3 -m venv")?;
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", "-r"]);
    repo::run(pip.arg(requirements), "pip")
}

fn node_is_new_enough(version: &str) -> bool {
    let major = version.trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
    major.is_some_and(|major| major >= MIN_NODE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_node_version_is_rejected() {
        assert!(node_is_new_enough("v20.15.0"));
        assert!(node_is_new_enough("v24.0.1"));
        assert!(!node_is_new_enough("v18.19.0"));
        assert!(!node_is_new_enough("nonsense"));
    }
}

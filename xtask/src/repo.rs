//! The root folder of the repository, and child processes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The root folder of the repository. It is determined at run time, because a path that is compiled in would be wrong in a copy of the
/// build folder.
pub fn root() -> Result<PathBuf> {
    if let Some(package) = std::env::var_os("CARGO_MANIFEST_DIR") {
        return Ok(Path::new(&package).parent().context("the package of xtask has no parent folder")?.to_path_buf());
    }
    let current = std::env::current_dir()?;
    let root = current.ancestors().find(|folder| folder.join("xtask/Cargo.toml").is_file());
    Ok(root.context("not inside the repository: run this as `cargo xtask …`")?.to_path_buf())
}

/// The cargo that started this process, without the variables that describe the package `xtask`. Build scripts that read these variables
/// (ring's does) would run again, and every dependent crate would be rebuilt.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    cargo
}

/// Runs a command with the standard streams of this process. Error if it cannot start or fails.
pub fn run(command: &mut Command, name: &str) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {name}: is it installed?"))?;
    if !status.success() {
        bail!("{name} ended with {status}");
    }
    Ok(())
}

/// The standard output of a command, without trailing white space. Error if it cannot start, fails, or prints invalid UTF-8.
pub fn output(command: &mut Command, name: &str) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {name}: is it installed?"))?;
    if !output.status.success() {
        bail!("{name} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)
        .with_context(|| format!("the output of {name} is not UTF-8"))?
        .trim_end()
        .to_owned())
}

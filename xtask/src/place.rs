//! Where the repository stands, and how its commands are started.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The folder of the repository. Asked at run time: a compiled-in path would be wrong after a build folder was copied.
pub fn root() -> Result<PathBuf> {
    if let Some(package) = std::env::var_os("CARGO_MANIFEST_DIR") {
        return Ok(Path::new(&package).parent().context("the package of xtask has no parent folder")?.to_path_buf());
    }
    let here = std::env::current_dir()?;
    let found = here.ancestors().find(|folder| folder.join("xtask/Cargo.toml").is_file());
    Ok(found.context("not inside the repository: run this as `cargo xtask …`")?.to_path_buf())
}

/// The cargo that started us. It does not inherit what cargo told us about our own package: build scripts that look at these variables
/// (that of ring does) would run again, and everything above them would be built again.
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

/// Runs a command with our own standard streams and fails when it does.
pub fn must(command: &mut Command, what: &str) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {what}: is it installed?"))?;
    if !status.success() {
        bail!("{what} ended with {status}");
    }
    Ok(())
}

/// What a command prints on standard output, without the last line break.
pub fn output(command: &mut Command, what: &str) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {what}: is it installed?"))?;
    if !output.status.success() {
        bail!("{what} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout).with_context(|| format!("{what} printed no UTF-8"))?.trim_end().to_owned())
}

//! The full figures: the test suite with `SEGUE_FULL=1`, where tests take their whole counts instead of samples, and then the
//! mutants of the engine.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::{mutants, place};

/// With the full counts the engine works for minutes; optimised it takes a twentieth of the time.
const OPTIMISED: &str = "profile.test.package.segue-engine.opt-level=2";

/// Runs `cargo test` with the full counts, then the mutants; further arguments go to `cargo test`, and leave the mutants out.
/// True if all passed.
pub fn run(arguments: &[String]) -> Result<bool> {
    let root = place::root()?;
    let mut child = place::cargo()
        .args(["test", "--locked", "--no-fail-fast", "--config", OPTIMISED])
        .args(arguments)
        .current_dir(&root)
        .env("SEGUE_FULL", "1")
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let mut closing = Vec::new();
    let stdout = child.stdout.take().context("cargo has no standard output")?;
    for line in BufReader::new(stdout).lines() {
        let line = line.context("cargo printed no UTF-8")?;
        println!("{line}");
        if is_closing(&line) {
            closing.push(line);
        }
    }
    let passed = child.wait()?.success();
    let commit = place::output(Command::new("git").args(["rev-parse", "HEAD"]).current_dir(&root), "git")
        .unwrap_or_else(|_| "unknown".to_owned());
    println!("\nfull counts at commit {commit}: {}", if passed { "passed" } else { "FAILED" });
    for line in &closing {
        println!("{line}");
    }
    let caught = !arguments.is_empty() || mutants::run(&[])?;
    Ok(passed && caught)
}

/// Whether a line is what the test runner says at the end of a binary, or a figure a test reports for the record.
fn is_closing(line: &str) -> bool {
    line.starts_with("test result:") || line.starts_with("full: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_told_from_the_rest() {
        assert!(is_closing("test result: ok. 3 passed; 0 failed"));
        assert!(is_closing("full: 432 kills, seed 7"));
        assert!(!is_closing("test a::b ... ok"));
    }
}

//! Repository rules and the jobs of the gate: `cargo xtask <verb>`.
//!
//! | verb | does |
//! | --- | --- |
//! | `tidy` | checks the structure of the repository; prints `file:line: rule: message`, exit code 1 on a breach |
//! | `codes` | lists every public error code with the title of its page |
//! | `reference` | writes the pages that are made from the source: `docs/reference/keys.md` |
//! | `foreign` | installs the parts from npm and PyPI, then runs the tests against them |
//! | `full` | runs the test suite with its full counts and repeats the closing lines |

mod foreign;
mod full;
mod place;
mod reference;
mod scan;
mod tidy;

use std::process::ExitCode;

use anyhow::Result;

const USAGE: &str = "usage: cargo xtask tidy | codes | reference | foreign [--install-only] [-- TEST ARGUMENTS] | full [CARGO TEST ARGUMENTS]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((verb, rest)) = arguments.split_first() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let done: Result<bool> = match verb.as_str() {
        "tidy" => tidy::run(),
        "codes" => tidy::print_codes(),
        "reference" => reference::write(),
        "foreign" => foreign::run(rest),
        "full" => full::run(rest),
        _ => {
            eprintln!("`{verb}` is no verb\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("xtask {verb}: {error:#}");
            ExitCode::from(3)
        }
    }
}

//! Repository rules and the jobs of the gate: `cargo xtask <verb>`.

mod docs;
mod foreign;
mod place;
mod scan;
mod tidy;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(bin_name = "cargo xtask", about = "Repository rules and the jobs of the gate")]
enum Verb {
    /// Checks the structure of the repository; prints `file:line: rule: message`, exit code 1 on a breach.
    Tidy,
    /// Lists every public error code with the title of its page.
    Codes,
    /// Writes the pages that are made from the source: most of `docs/reference`, `docs/errors/README.md` and `llms.txt`.
    Docs,
    /// Installs the parts from npm and PyPI, then runs the tests against them.
    Foreign {
        /// Stops after the installation.
        #[arg(long)]
        install_only: bool,
        /// Handed to the test binary.
        #[arg(last = true)]
        test_arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    let done = match Verb::parse() {
        Verb::Tidy => tidy::run(),
        Verb::Codes => tidy::print_codes(),
        Verb::Docs => docs::write(),
        Verb::Foreign { install_only, test_arguments } => foreign::run(install_only, &test_arguments),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(3)
        }
    }
}

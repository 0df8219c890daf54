//! Checks and maintenance tasks of this repository: `cargo xtask <command>`.

mod docs;
mod interop;
mod planted_faults;
mod repo;
mod rust_source;
mod tidy;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(bin_name = "cargo xtask", about = "Checks and maintenance tasks of this repository")]
enum Command {
    /// Checks the rules of the repository; prints `file:line: rule: message`, exit code 1 on a violation.
    Tidy,
    /// Lists every error code with the title of its page.
    Codes,
    /// Writes the generated pages: most of `docs/reference`, `docs/errors/README.md` and `llms.txt`.
    Docs,
    /// Plants the faults of `tests/outside/faults`, one after the other, and runs the fault-injection tests, which must detect each.
    PlantedFaults {
        /// Only the faults with these names.
        names: Vec<String>,
    },
    /// Installs third-party implementations from npm and PyPI, then runs `tests/interop` against them.
    Interop {
        /// Stops after the installation.
        #[arg(long)]
        install_only: bool,
        /// Installs LiveKit Agents and Pipecat (about 750 MB) into `target/interop-voice/`, and only runs these.
        #[arg(long)]
        voice: bool,
        /// Arguments of the test binary, for example the name of a test.
        #[arg(last = true)]
        test_arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Tidy => tidy::run(),
        Command::Codes => tidy::print_error_codes(),
        Command::Docs => docs::write(),
        Command::PlantedFaults { names } => planted_faults::run(&names),
        Command::Interop { voice: true, .. } => interop::run_voice_stacks(),
        Command::Interop { install_only, test_arguments, .. } => interop::run(install_only, &test_arguments),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(3)
        }
    }
}

//! The binary: reads the command line and leaves everything else to `cli`.

mod cli;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let program = std::thread::Builder::new().name("segue".into()).stack_size(cli::STACK_SIZE).spawn(cli::run);
    match program.map(std::thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        // The panic has said what happened.
        Ok(Err(_)) => ExitCode::from(cli::EXIT_ERROR),
        Err(error) => {
            cli::output::status(&format!("no thread could be started: {error}"));
            ExitCode::from(cli::EXIT_ERROR)
        }
    }
}

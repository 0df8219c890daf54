//! The binary: reads the command line and leaves everything else to `cli`.

mod cli;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let program = std::thread::Builder::new().name("segue".into()).stack_size(cli::STACK).spawn(cli::run);
    match program.map(std::thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        // The panic has said what happened.
        Ok(Err(_)) => ExitCode::from(cli::COULD_NOT_RUN),
        Err(error) => {
            cli::out::note(&format!("no thread could be started: {error}"));
            ExitCode::from(cli::COULD_NOT_RUN)
        }
    }
}

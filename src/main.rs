//! The program `segue`. It runs the command line of `cli` in a thread with a large stack.

mod cli;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let program = std::thread::Builder::new().name("segue".into()).stack_size(cli::STACK_SIZE).spawn(cli::run);
    match program.map(std::thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        // The panic message is already printed.
        Ok(Err(_)) => ExitCode::from(cli::EXIT_ERROR),
        Err(error) => {
            cli::output::status(&format!("the main thread cannot be started: {error}"));
            ExitCode::from(cli::EXIT_ERROR)
        }
    }
}

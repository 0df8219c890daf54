//! The `segue` binary. It runs `cli::run` on a thread with a large stack.

mod cli;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let program = std::thread::Builder::new().name("segue".into()).stack_size(cli::STACK_SIZE).spawn(cli::run);
    match program.map(std::thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        // The panic hook has printed the message.
        Ok(Err(_)) => ExitCode::from(cli::EXIT_ERROR),
        Err(error) => {
            cli::output::status(&format!("cannot start a thread: {error}"));
            ExitCode::from(cli::EXIT_ERROR)
        }
    }
}

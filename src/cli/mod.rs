//! The commands of the program.
//!
//! Entry: [`main`]. A command reads its arguments, calls the library and says what came of it; it holds nothing
//! that a user of the library would miss. Standard output carries results alone, everything else goes to standard error.

mod backup;
mod chat;
mod check;
#[cfg(feature = "mcp")]
mod demo;
mod doctor;
mod explain;
mod graph;
mod import;
mod init;
mod logging;
#[cfg(feature = "mcp")]
mod mcp;
#[cfg(feature = "mcp")]
mod mcp_pins;
#[cfg(feature = "mcp")]
mod mcp_stdio;
pub(crate) mod output;
mod project_args;
mod rasa_compat;
mod replay;
mod run;
mod schema;
mod test;
mod trace;

use std::{io, process::ExitCode};

use clap::{CommandFactory as _, Parser, Subcommand};
use segue::{runtime::ReplayError, server, store::StoreError};
use tokio_util::sync::CancellationToken;

/// Findings, failed tests, a replay that differs.
pub(crate) const EXIT_FINDINGS: u8 = 1;
/// The command line makes no sense.
pub(crate) const EXIT_USAGE: u8 = 2;
/// A file, a server or a port is missing.
pub(crate) const EXIT_ERROR: u8 = 3;

/// Conversational assistants from CALM projects: flows, agents and tools in one binary.
#[derive(Parser)]
#[command(name = "segue", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create a project that runs at once
    Init(init::Args),
    /// Load a project and report everything that is wrong with it
    Check(check::Args),
    /// Draw flows as Mermaid or DOT
    Graph(graph::Args),
    /// Chat with the assistant in the terminal; piped input is one message per line
    Chat(chat::Args),
    /// Serve the channels of credentials.yml and GET /health
    Run(run::Args),
    /// Run end-to-end test cases
    Test(test::Args),
    /// Explain the turns of a stored conversation
    Trace(trace::Args),
    /// Replay a stored conversation and compare every event
    Replay(replay::Args),
    /// Import conversations from another tracker store
    Import(import::Args),
    /// Find stuck turns in a store, and end them
    Doctor(doctor::Args),
    /// Copy a store while it is in use
    Backup(backup::Args),
    /// The same as `check`: no training is needed
    Train(rasa_compat::Train),
    /// The same as `chat`
    Shell(rasa_compat::Shell),
    /// The same as `run`
    Inspect(rasa_compat::Inspect),
    /// `data validate` is the same as `check`
    Data(rasa_compat::Data),
    /// Write JSON Schemas of the project files, for editors
    Schema(schema::Args),
    /// Show the page of an error code; without a code, list them
    Explain(explain::Args),
    /// Serve the assistant over MCP, or manage logins and pinned tools of MCP servers
    #[cfg(feature = "mcp")]
    Mcp(mcp::Args),
    /// Run the MCP server of the starter assistant over stdio
    #[cfg(feature = "mcp")]
    Demo(demo::Args),
    /// Anything else: some names are known from unknown_command
    #[command(external_subcommand)]
    External(Vec<String>),
}

/// Deeply nested conditions and templates are walked on the stack; the main thread of some systems has 1 MiB.
const STACK_SIZE: usize = 16 * 1024 * 1024;

/// The command line, as the reference page and the tests of the pages read it.
pub fn command() -> clap::Command {
    Cli::command()
}

/// The program: does what the command line says, on a thread with a stack that is large enough.
pub fn main() -> ExitCode {
    let program = std::thread::Builder::new().name("segue".into()).stack_size(STACK_SIZE).spawn(run);
    match program.map(std::thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        // The panic has said what happened.
        Ok(Err(_)) => ExitCode::from(EXIT_ERROR),
        Err(error) => {
            output::status(&format!("no thread could be started: {error}"));
            ExitCode::from(EXIT_ERROR)
        }
    }
}

/// Reads the command line and does it.
fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are errors to clap, and fine.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { EXIT_USAGE } else { 0 });
        }
    };
    let done = match cli.command {
        Command::Init(args) => init::init(&args),
        Command::Check(args) => check::check(&args),
        Command::Graph(args) => graph::graph(args),
        Command::Chat(args) => wait(chat::chat(args)),
        Command::Run(args) => wait(run::serve(args)),
        Command::Test(args) => wait(test::test(args)),
        Command::Trace(args) => wait(trace::trace(args)),
        Command::Replay(args) => wait(replay::replay(args)),
        Command::Schema(args) => schema::schema(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Import(args) => wait(import::import(args)),
        Command::Doctor(args) => wait(doctor::doctor(args)),
        Command::Backup(args) => backup::backup(&args),
        Command::Train(args) => rasa_compat::train(args),
        Command::Shell(args) => rasa_compat::shell(args),
        Command::Inspect(args) => rasa_compat::inspect(args),
        Command::Data(args) => rasa_compat::data(args),
        Command::External(words) => rasa_compat::unknown_command(&words),
        #[cfg(feature = "mcp")]
        Command::Demo(args) => wait(demo::demo(args)),
        #[cfg(feature = "mcp")]
        Command::Mcp(args) => wait(mcp::mcp(args)),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        // The reader of the output has closed it, `head` for instance.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let code = code(&error).map(|code| format!(" [{code}]")).unwrap_or_default();
            output::status(&format!("{error:#}{code}"));
            ExitCode::from(EXIT_ERROR)
        }
    }
}

/// The exit code of a command; an error is [`EXIT_ERROR`].
type CommandResult = anyhow::Result<u8>;

/// Does what has to be waited for.
fn wait<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    segue::http::install_tls();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(STACK_SIZE).build()?;
    let done = runtime.block_on(command);
    // A thread that reads the terminal cannot be interrupted; nothing else is left to wait for.
    runtime.shutdown_background();
    done
}

/// A token that is cancelled when the process is asked to end.
fn stop_on_signal() -> CancellationToken {
    let stop = CancellationToken::new();
    let asked = stop.clone();
    tokio::spawn(async move {
        server::shutdown_signal().await;
        asked.cancel();
    });
    stop
}

/// The code that `segue explain` knows, of errors that have one.
fn code(error: &anyhow::Error) -> Option<&'static str> {
    let store = error.downcast_ref::<StoreError>().map(StoreError::code);
    store.or_else(|| error.downcast_ref::<ReplayError>().map(ReplayError::code))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_makes_sense() {
        super::command().debug_assert();
    }
}

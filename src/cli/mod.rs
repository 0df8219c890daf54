//! The command line of `segue`.
//!
//! [`main`] parses the arguments and calls the command. A command calls the library and prints the results; it contains no logic that
//! a user of the library would need. Results go to standard output, everything else to standard error.

mod backup;
mod chat;
mod check;
mod check_tools;
mod conversations;
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
mod mission;
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
use segue::{limits, missions::MissionError, runtime::ReplayError, server, store::StoreError};
use tokio_util::sync::CancellationToken;

/// Exit code: the project has findings, a test failed, or a replay differs.
pub(crate) const EXIT_FINDINGS: u8 = 1;
/// Exit code: the command line is wrong, or names something that does not exist.
pub(crate) const EXIT_USAGE: u8 = 2;
/// Exit code: the command could not run; for example, a file or a server is not available.
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
    /// Create a project that can run immediately
    Init(init::Args),
    /// Report all errors and warnings of a project
    Check(check::Args),
    /// Draw flows as Mermaid or DOT
    Graph(graph::Args),
    /// Chat with the assistant in the terminal; piped input is one message per line
    Chat(chat::Args),
    /// Serve the channels of credentials.yml and GET /health
    Run(run::Args),
    /// Run missions, and answer, stop and continue their runs
    Mission(mission::Args),
    /// Run end-to-end test cases
    Test(test::Args),
    /// List the stored conversations with their ids
    Conversations(conversations::Args),
    /// Explain the turns of a stored conversation
    Trace(trace::Args),
    /// Replay a stored conversation and compare every event
    Replay(replay::Args),
    /// Import conversations from a tracker store of Rasa or a file of events
    Import(import::Args),
    /// Find stuck turns and damaged conversations in a store, and close or delete them
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
    /// Any other name: [`rasa_compat::unknown_command`] explains commands of Rasa and suggests similar ones
    #[command(external_subcommand)]
    External(Vec<String>),
}

/// The stack size of threads in bytes. Nested conditions and templates are processed recursively, and the main thread of some
/// systems has a stack of only 1 MiB.
const STACK_SIZE: usize = 16 * 1024 * 1024;

/// The definition of the command line, for the generated reference page and the tests of the pages.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Parses the command line and runs the command, on a thread with a large stack.
pub fn main() -> ExitCode {
    let program = std::thread::Builder::new().name("segue".into()).stack_size(STACK_SIZE).spawn(run);
    match program.map(std::thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        // The panic hook has printed the message.
        Ok(Err(_)) => ExitCode::from(EXIT_ERROR),
        Err(error) => {
            output::status(&format!("cannot start a thread: {error}"));
            ExitCode::from(EXIT_ERROR)
        }
    }
}

/// Parses the command line and runs the command.
fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // clap reports `--help` and `--version` as errors; they go to standard output and succeed.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { EXIT_USAGE } else { 0 });
        }
    };
    let result = match cli.command {
        Command::Init(args) => init::init(&args),
        Command::Check(args) => check::check(&args),
        Command::Graph(args) => graph::graph(args),
        Command::Chat(args) => block_on(chat::chat(args)),
        Command::Run(args) => block_on(run::serve(args)),
        Command::Mission(args) => block_on(mission::mission(args)),
        Command::Test(args) => block_on_until_signal(test::test(args)),
        Command::Conversations(args) => block_on(conversations::conversations(args)),
        Command::Trace(args) => block_on(trace::trace(args)),
        Command::Replay(args) => block_on_until_signal(replay::replay(args)),
        Command::Schema(args) => schema::schema(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Import(args) => block_on(import::import(args)),
        Command::Doctor(args) => block_on_until_signal(doctor::doctor(args)),
        Command::Backup(args) => backup::backup(&args),
        Command::Train(args) => rasa_compat::train(args),
        Command::Shell(args) => rasa_compat::shell(args),
        Command::Inspect(args) => rasa_compat::inspect(args),
        Command::Data(args) => rasa_compat::data(args),
        Command::External(words) => rasa_compat::unknown_command(&words),
        #[cfg(feature = "mcp")]
        Command::Demo(args) => block_on(demo::demo(args)),
        #[cfg(feature = "mcp")]
        Command::Mcp(args) => block_on_until_signal(mcp::mcp(args)),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        // The reader of standard output, such as `head`, has closed it.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let code = error_code(&error).map(|code| format!(" [{code}]")).unwrap_or_default();
            output::status(&format!("{error:#}{code}"));
            ExitCode::from(EXIT_ERROR)
        }
    }
}

/// The exit code of a command; an error is [`EXIT_ERROR`].
type CommandResult = anyhow::Result<u8>;

/// Runs an asynchronous command on a new Tokio runtime.
fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    segue::http::install_tls();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(STACK_SIZE).build()?;
    let result = runtime.block_on(command);
    // Do not wait for other threads: one that reads the terminal cannot be interrupted.
    runtime.shutdown_background();
    result
}

/// Runs a command that has no own handling of signals. A signal to shut down drops it, and with it the processes that it started, such as
/// MCP servers, which would not get the signal.
fn block_on_until_signal<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    segue::http::install_tls();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(STACK_SIZE).build()?;
    let result = runtime.block_on(async {
        tokio::select! {
            result = command => Some(result),
            () = server::shutdown_signal() => None,
        }
    });
    match result {
        Some(result) => {
            runtime.shutdown_background();
            result
        }
        None => {
            // Ends the tasks that own the processes.
            runtime.shutdown_timeout(limits::SOURCE_CLOSE_TIMEOUT);
            anyhow::bail!("stopped by a signal")
        }
    }
}

/// A token that is cancelled when the process gets a signal to shut down; see [`server::shutdown_signal`].
fn stop_on_signal() -> CancellationToken {
    let stop = CancellationToken::new();
    let cancelled = stop.clone();
    tokio::spawn(async move {
        server::shutdown_signal().await;
        cancelled.cancel();
    });
    stop
}

/// The error code, for `segue explain`, of an error that has one.
fn error_code(error: &anyhow::Error) -> Option<&'static str> {
    let store = error.downcast_ref::<StoreError>().map(StoreError::code);
    let mission = || error.downcast_ref::<MissionError>().map(MissionError::code);
    store.or_else(mission).or_else(|| error.downcast_ref::<ReplayError>().map(ReplayError::code))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_definition_of_the_command_line_is_valid() {
        super::command().debug_assert();
    }
}

//! A server as a child process: its environment variables, and the command `segue`.

use std::path::Path;

use super::server::McpEnvironment;
use segue_base::child::{self, ChildCommand};
pub(super) use segue_base::child::{Child, OutputTail, SpawnedChild};

/// Starts a server. The command `segue` starts the program of this process.
///
/// # Errors
/// A text for operators: the program cannot be started.
pub(super) fn start(
    command: &str,
    args: &[String],
    env: &[(String, String)],
    environment: &McpEnvironment,
) -> Result<SpawnedChild, String> {
    let program = if command == "segue" { environment.program.as_path() } else { Path::new(command) };
    let variables = child::inherited(&environment.variables).chain(env).cloned().collect();
    child::spawn(ChildCommand { program, args, environment: variables, directory: environment.directory.as_deref() })
}

#[cfg(all(test, unix))]
mod tests;

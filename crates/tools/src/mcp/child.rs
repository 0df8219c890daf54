//! A server as a child process: its environment variables, and the command `segue`.

use std::path::Path;

use super::server::McpEnvironment;
use segue_base::child::{self, ChildCommand};
pub(super) use segue_base::child::{Child, OutputTail, SpawnedChild};

/// The environment variables that a child inherits besides those of its entry: those that programs need to run and to print. They
/// contain no secrets of this process.
const INHERITED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "TEMP",
    "TMP",
    "SYSTEMROOT",
    "SYSTEMDRIVE",
    "WINDIR",
    "APPDATA",
    "LOCALAPPDATA",
    "PROGRAMFILES",
    "USERPROFILE",
    "USERNAME",
    "PATHEXT",
    "COMSPEC",
];

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
    let inherited = environment.variables.iter().filter(|(name, _)| {
        INHERITED.iter().any(|allowed| if cfg!(windows) { allowed.eq_ignore_ascii_case(name) } else { allowed == name })
    });
    let variables = inherited.chain(env).cloned().collect();
    child::spawn(ChildCommand { program, args, environment: variables, directory: environment.directory.as_deref() })
}

#[cfg(all(test, unix))]
mod tests;

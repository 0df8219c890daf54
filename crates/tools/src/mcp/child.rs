//! A server as a child process: its environment variables, and the command `segue`.

use std::path::Path;

use super::server::McpEnvironment;
use segue_base::child::{self, ChildCommand};
pub(super) use segue_base::child::{Child, OutputTail, SpawnedChild};

/// Variables that a child inherits besides those of its entry: what programs need to run and to print, and no secrets
/// of this process.
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

/// Starts a server. The command `segue` means this program.
///
/// # Errors
/// A text for operators: the program cannot be started.
pub(super) fn start(
    command: &str,
    args: &[String],
    env: &[(String, String)],
    around: &McpEnvironment,
) -> Result<SpawnedChild, String> {
    let program = if command == "segue" { around.program.as_path() } else { Path::new(command) };
    let inherited = around.environment.iter().filter(|(name, _)| {
        INHERITED.iter().any(|known| if cfg!(windows) { known.eq_ignore_ascii_case(name) } else { known == name })
    });
    let environment = inherited.chain(env).cloned().collect();
    child::spawn(ChildCommand { program, args, environment, directory: around.directory.as_deref() })
}

#[cfg(all(test, unix))]
mod tests;

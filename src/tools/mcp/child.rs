//! A server as a child process: started with few variables, its standard error read, ended with all its children.

use std::{
    collections::VecDeque,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
};

use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop};
use tokio::{
    io::AsyncReadExt,
    process::{ChildStderr, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use super::client::Surroundings;
use crate::limits;

/// Variables that a child inherits beside those its entry sets: what programs need to find themselves and to print, and
/// nothing that is ours.
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

/// The signal that asks a process to end.
#[cfg(unix)]
const ASK_TO_END: i32 = 15;

/// The newest bytes of a child's standard error.
#[derive(Clone, Default)]
pub(super) struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl Tail {
    fn push(&self, bytes: &[u8]) {
        let Ok(mut kept) = self.0.lock() else { return };
        kept.extend(bytes);
        let surplus = kept.len().saturating_sub(limits::MCP_STDERR);
        kept.drain(..surplus);
    }

    /// The last lines, as one text of at most `most` bytes; empty when there are none.
    pub(super) fn last(&self, most: usize) -> String {
        let Ok(mut kept) = self.0.lock() else { return String::new() };
        let bytes = kept.make_contiguous();
        let from = bytes.len().saturating_sub(most);
        String::from_utf8_lossy(bytes.get(from..).unwrap_or_default()).trim().to_owned()
    }
}

/// A running child. Dropping it kills its whole process group.
pub(super) struct Child {
    process: Box<dyn ChildWrapper>,
    /// Set once the process was waited for: its number may then belong to somebody else.
    reaped: bool,
}

/// A child that has just been started, with its pipes.
pub(super) struct Started {
    pub(super) child: Child,
    pub(super) input: ChildStdin,
    pub(super) output: ChildStdout,
    pub(super) errors: Tail,
}

/// Starts a server. `segue` as the command is this very program.
///
/// # Errors
/// In words, for operators: the program cannot be started.
pub(super) fn start(
    command: &str,
    args: &[String],
    env: &[(String, String)],
    around: &Surroundings,
) -> Result<Started, String> {
    let program = if command == "segue" { around.program.as_path() } else { Path::new(command) };
    let mut wrapped = CommandWrap::from(prepared(program, args, env, around));
    wrapped.wrap(KillOnDrop);
    #[cfg(unix)]
    wrapped.wrap(process_wrap::tokio::ProcessGroup::leader());
    #[cfg(windows)]
    wrapped.wrap(process_wrap::tokio::JobObject);
    let cannot = |error: &dyn std::fmt::Display| format!("`{command}` cannot be started: {error}");
    let mut process = wrapped.spawn().map_err(|error| cannot(&error))?;
    let pipes = (process.stdin().take(), process.stdout().take(), process.stderr().take());
    let child = Child { process, reaped: false };
    let (Some(input), Some(output), Some(stderr)) = pipes else {
        return Err(cannot(&"it has no pipes"));
    };
    let errors = Tail::default();
    // Ends with the pipe, which ends with the last process that holds it.
    tokio::spawn(drain(stderr, errors.clone()));
    Ok(Started { child, input, output, errors })
}

fn prepared(program: &Path, args: &[String], env: &[(String, String)], around: &Surroundings) -> Command {
    let inherited = around.environment.iter().filter(|(name, _)| {
        INHERITED.iter().any(|known| if cfg!(windows) { known.eq_ignore_ascii_case(name) } else { known == name })
    });
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .envs(inherited.map(|(name, value)| (name, value)))
        .envs(env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(directory) = &around.directory {
        command.current_dir(directory);
    }
    command
}

async fn drain(mut stderr: ChildStderr, tail: Tail) {
    let mut buffer = vec![0; 4096];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        tail.push(buffer.get(..read).unwrap_or_default());
    }
}

impl Child {
    /// Ends the child: waits until it ends by itself after its input was closed, asks it, kills it with its group, and
    /// reaps it. Takes at most twice [`limits::MCP_CLOSE`] and the time of a kill.
    pub(super) async fn end(mut self) {
        let ended = timeout(limits::MCP_CLOSE, self.process.inner_mut().wait()).await.is_ok();
        #[cfg(unix)]
        if !ended && self.process.signal(ASK_TO_END).is_ok() {
            let _ = timeout(limits::MCP_CLOSE, self.process.inner_mut().wait()).await;
        }
        let _ = ended;
        // The group may hold children that outlive their parent, so it is killed in any case. It keeps its number as long as
        // one of them lives; when none does, there is nobody to kill, and the error says so.
        let _ = self.process.start_kill();
        let _ = timeout(limits::MCP_CLOSE, self.process.inner_mut().wait()).await;
        self.reaped = true;
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.process.start_kill();
        }
    }
}

#[cfg(all(test, unix))]
mod tests;

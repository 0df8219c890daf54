//! A process of ours with everything it starts: standard error read, ended as a whole, never left behind.
//!
//! *For*: servers that run beside this program. *Entry*: [`start`]. *Never*: a child outlives its handle, and nothing of it is
//! kept without a limit.

use std::{
    collections::VecDeque,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
};

use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::limits;

/// The signal that asks a process to end.
#[cfg(unix)]
const ASK_TO_END: i32 = 15;

/// The newest bytes of what a child says.
#[derive(Clone, Default)]
pub struct OutputTail(Arc<Mutex<VecDeque<u8>>>);

impl OutputTail {
    fn push(&self, bytes: &[u8]) {
        let Ok(mut kept) = self.0.lock() else { return };
        kept.extend(bytes);
        let surplus = kept.len().saturating_sub(limits::MCP_STDERR);
        kept.drain(..surplus);
    }

    /// The last lines, as one text of at most `most` bytes; empty when there are none.
    pub fn last(&self, most: usize) -> String {
        let Ok(mut kept) = self.0.lock() else { return String::new() };
        let bytes = kept.make_contiguous();
        let from = bytes.len().saturating_sub(most);
        String::from_utf8_lossy(bytes.get(from..).unwrap_or_default()).trim().to_owned()
    }
}

/// What is started.
pub struct ChildCommand<'a> {
    /// The program.
    pub program: &'a Path,
    /// Its arguments.
    pub args: &'a [String],
    /// All variables it gets.
    pub environment: Vec<(String, String)>,
    /// Where it starts; here unless set.
    pub directory: Option<&'a Path>,
}

/// A running child. Dropping it kills its whole process group.
pub struct Child {
    process: Box<dyn ChildWrapper>,
    /// Set once the process was waited for: its number may then belong to somebody else.
    reaped: bool,
}

/// A child that has just been started, with its pipes.
pub struct SpawnedChild {
    /// The process.
    pub child: Child,
    /// Its standard input.
    pub input: ChildStdin,
    /// Its standard output.
    pub output: ChildStdout,
    /// The newest bytes of its standard error.
    pub errors: OutputTail,
}

/// Starts a process.
///
/// # Errors
/// In words, for operators: the program cannot be started.
pub fn start(launch: ChildCommand<'_>) -> Result<SpawnedChild, String> {
    let shown = launch.program.display().to_string();
    let mut wrapped = CommandWrap::from(prepared(launch));
    wrapped.wrap(KillOnDrop);
    #[cfg(unix)]
    wrapped.wrap(process_wrap::tokio::ProcessGroup::leader());
    #[cfg(windows)]
    wrapped.wrap(process_wrap::tokio::JobObject);
    let cannot = |error: &dyn std::fmt::Display| format!("`{shown}` cannot be started: {error}");
    let mut process = wrapped.spawn().map_err(|error| cannot(&error))?;
    let pipes = (process.stdin().take(), process.stdout().take(), process.stderr().take());
    let child = Child { process, reaped: false };
    let (Some(input), Some(output), Some(stderr)) = pipes else {
        return Err(cannot(&"it has no pipes"));
    };
    let errors = OutputTail::default();
    // Ends with the pipe, which ends with the last process that holds it.
    tokio::spawn(drain(stderr, errors.clone()));
    Ok(SpawnedChild { child, input, output, errors })
}

fn prepared(launch: ChildCommand<'_>) -> Command {
    let mut command = Command::new(launch.program);
    command
        .args(launch.args)
        .env_clear()
        .envs(launch.environment)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(directory) = launch.directory {
        command.current_dir(directory);
    }
    command
}

/// Reads a pipe to its end and keeps the newest of it; whoever does not read lets the child stand still.
pub async fn drain(mut pipe: impl AsyncRead + Unpin, tail: OutputTail) {
    let mut buffer = vec![0; 4096];
    while let Ok(read @ 1..) = pipe.read(&mut buffer).await {
        tail.push(buffer.get(..read).unwrap_or_default());
    }
}

impl Child {
    /// Waits until the process ends by itself; whether it ended well.
    pub async fn ended(&mut self) -> bool {
        self.process.inner_mut().wait().await.is_ok_and(|status| status.success())
    }

    /// Ends the child: waits until it ends by itself after its input was closed, asks it, kills it with its group, and
    /// reaps it. Takes at most twice [`limits::MCP_CLOSE`] and the time of a kill.
    pub async fn end(mut self) {
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

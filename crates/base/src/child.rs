//! Child processes, such as MCP servers over standard input and output. [`spawn`] starts one in a process group of its own;
//! [`SpawnedChild::run`] waits for one that does a single piece of work, such as a command or a script.
//!
//! The whole group is killed when the handle is dropped, so no child outlives its owner. Standard error is read all the time, and only
//! its newest bytes are kept.

use std::{
    collections::VecDeque,
    io,
    path::Path,
    pin::pin,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex},
};

use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{ChildStdin, ChildStdout, Command},
    task::JoinHandle,
    time::timeout,
};

use crate::limits;

/// The number of the signal that asks a process to end (POSIX).
#[cfg(unix)]
const SIGTERM: i32 = 15;

/// The newest bytes of the output of a child process, at most [`limits::MCP_STDERR`].
#[derive(Clone, Default)]
pub struct OutputTail(Arc<Mutex<VecDeque<u8>>>);

impl OutputTail {
    fn push(&self, bytes: &[u8]) {
        let Ok(mut tail) = self.0.lock() else { return };
        tail.extend(bytes);
        let surplus = tail.len().saturating_sub(limits::MCP_STDERR);
        tail.drain(..surplus);
    }

    /// The end of the output, at most `max_bytes` bytes, trimmed; empty if there is no output.
    pub fn last(&self, max_bytes: usize) -> String {
        let Ok(mut tail) = self.0.lock() else { return String::new() };
        let bytes = tail.make_contiguous();
        let from = bytes.len().saturating_sub(max_bytes);
        String::from_utf8_lossy(bytes.get(from..).unwrap_or_default()).trim().to_owned()
    }
}

/// The environment variables that a child inherits besides those that it is given: those that programs need to run and to print. They
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

/// Of these environment variables those that a child may inherit.
pub fn inherited(variables: &[(String, String)]) -> impl Iterator<Item = &(String, String)> {
    let is_harmless = |name: &str| {
        INHERITED
            .iter()
            .any(|allowed| if cfg!(windows) { allowed.eq_ignore_ascii_case(name) } else { *allowed == name })
    };
    variables.iter().filter(move |(name, _)| is_harmless(name))
}

/// The command of a child process.
pub struct ChildCommand<'a> {
    /// The program.
    pub program: &'a Path,
    /// Its arguments.
    pub args: &'a [String],
    /// Its complete environment; nothing is inherited.
    pub environment: Vec<(String, String)>,
    /// Its working directory; that of this process if not set.
    pub directory: Option<&'a Path>,
}

/// A running child process. Dropping it kills its whole process group.
pub struct Child {
    process: Box<dyn ChildWrapper>,
    /// Whether the process was waited for. Its id may belong to another process then, so it must not be killed again.
    reaped: bool,
}

/// A child process that was just started, with its pipes.
pub struct SpawnedChild {
    /// The process.
    pub child: Child,
    /// Its standard input.
    pub input: ChildStdin,
    /// Its standard output.
    pub output: ChildStdout,
    /// The newest bytes of its standard error.
    pub errors: OutputTail,
    /// Ends when its standard error is read to the end.
    pub errors_read: JoinHandle<()>,
}

/// How a child process ended that [`SpawnedChild::run`] waited for.
pub struct EndedChild<S> {
    /// Its status, or what the system said instead; the reason, if it was stopped before.
    pub status: Result<io::Result<ExitStatus>, S>,
    /// The newest bytes of its standard error.
    pub errors: OutputTail,
}

impl SpawnedChild {
    /// Gives the process its input and passes its output on until it ends, or until `stop` completes with a reason. Then its whole process
    /// group is killed, and what is left in its pipes is read for at most [`limits::SANDBOX_DRAIN`]: a process that left the group may hold
    /// them open.
    ///
    /// Cancellation: dropping the future kills the process group.
    pub async fn run<S>(
        self,
        input: &[u8],
        mut on_output: impl FnMut(&[u8]),
        stop: impl Future<Output = S>,
    ) -> EndedChild<S> {
        let Self { mut child, input: mut stdin, output: mut stdout, errors, errors_read } = self;
        let write = async move {
            // A process need not read its input.
            let _ = stdin.write_all(input).await;
        };
        let read = async {
            let mut buffer = vec![0; 16 * 1024];
            while let Ok(read @ 1..) = stdout.read(&mut buffer).await {
                on_output(buffer.get(..read).unwrap_or_default());
            }
        };
        let mut pipes = pin!(futures::future::join(write, read));
        let mut pipes_ended = false;
        let status = {
            let (mut waiting, mut stop) = (pin!(child.wait_status()), pin!(stop));
            loop {
                tokio::select! {
                    biased;
                    status = &mut waiting => break Ok(status),
                    reason = &mut stop => break Err(reason),
                    _ = &mut pipes, if !pipes_ended => pipes_ended = true,
                }
            }
        };
        child.kill().await;
        if !pipes_ended {
            let _ = timeout(limits::SANDBOX_DRAIN, &mut pipes).await;
        }
        let _ = timeout(limits::SANDBOX_DRAIN, errors_read).await;
        EndedChild { status, errors }
    }
}

/// Starts a child process.
///
/// # Errors
/// A message for operators: the program cannot be started.
pub fn spawn(command: ChildCommand<'_>) -> Result<SpawnedChild, String> {
    let shown = command.program.display().to_string();
    let mut wrapped = CommandWrap::from(to_command(command));
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
    // The task ends with the pipe, which is closed when the last process that holds it ends.
    let errors_read = tokio::spawn(drain(stderr, errors.clone()));
    Ok(SpawnedChild { child, input, output, errors, errors_read })
}

fn to_command(command: ChildCommand<'_>) -> Command {
    let mut process = Command::new(command.program);
    process
        .args(command.args)
        .env_clear()
        .envs(command.environment)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(directory) = command.directory {
        process.current_dir(directory);
    }
    process
}

/// Reads a pipe to its end and keeps its newest bytes. A pipe must be read, or else the child blocks once it is full.
pub async fn drain(mut pipe: impl AsyncRead + Unpin, tail: OutputTail) {
    let mut buffer = vec![0; 4096];
    while let Ok(read @ 1..) = pipe.read(&mut buffer).await {
        tail.push(buffer.get(..read).unwrap_or_default());
    }
}

impl Child {
    /// Waits until the process ends by itself. Whether its exit status was success.
    pub async fn wait(&mut self) -> bool {
        self.process.inner_mut().wait().await.is_ok_and(|status| status.success())
    }

    /// Waits until the process ends by itself.
    ///
    /// # Errors
    /// The system cannot wait for it.
    pub async fn wait_status(&mut self) -> io::Result<ExitStatus> {
        self.process.inner_mut().wait().await
    }

    /// Kills the process group at once and reaps the child. Waits at most [`limits::MCP_CLOSE`].
    pub async fn kill(mut self) {
        let _ = self.process.start_kill();
        let _ = timeout(limits::MCP_CLOSE, self.process.inner_mut().wait()).await;
        self.reaped = true;
    }

    /// Ends the child: waits for it to end after its input was closed, sends SIGTERM (on Unix), kills its process group, and reaps it. Each
    /// wait takes at most [`limits::MCP_CLOSE`].
    pub async fn terminate(mut self) {
        let ended = timeout(limits::MCP_CLOSE, self.process.inner_mut().wait()).await.is_ok();
        #[cfg(unix)]
        if !ended && self.process.signal(SIGTERM).is_ok() {
            let _ = timeout(limits::MCP_CLOSE, self.process.inner_mut().wait()).await;
        }
        let _ = ended;
        // The group may contain processes that outlive the child, so it is killed in any case. Its id stays reserved while one of them
        // lives; if none does, the kill fails, which is fine.
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

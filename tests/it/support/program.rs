//! The program `segue` as a child process that runs to its end.

use std::{
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

/// What a run of the program printed, and its exit code.
pub(crate) struct ProgramOutput {
    /// The exit code; -1 if a signal ended the process.
    pub(crate) code: i32,
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
}

impl ProgramOutput {
    /// The lines of standard output.
    pub(crate) fn lines(&self) -> Vec<&str> {
        self.out.lines().collect()
    }
}

impl From<Output> for ProgramOutput {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// The program, without the environment variables of this machine that it reads.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    for name in ["LOG_LEVEL", "RUST_LOG", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "SEGUE_AUTH_TOKEN"] {
        command.env_remove(name);
    }
    command
}

/// Runs the program in `folder` with `input` on its standard input and waits for its exit.
pub(crate) fn run_in(folder: &Path, arguments: &[&str], input: &str) -> ProgramOutput {
    run_with(folder, arguments, input, &[])
}

/// The same with environment variables.
pub(crate) fn run_with(folder: &Path, arguments: &[&str], input: &str, environment: &[(&str, &str)]) -> ProgramOutput {
    let mut command = command();
    command.current_dir(folder).args(arguments).envs(environment.iter().copied());
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    // The program may exit without reading its input.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap().into()
}

/// Runs the program in a new empty folder.
pub(crate) fn run(arguments: &[&str], input: &str) -> ProgramOutput {
    run_in(tempfile::tempdir().unwrap().path(), arguments, input)
}

//! The program as a child.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

/// What a run of the program left.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// The lines of standard output.
    pub(crate) fn lines(&self) -> Vec<&str> {
        self.out.lines().collect()
    }
}

/// The program, with nothing of this machine's environment that it would look at.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    for name in ["LOG_LEVEL", "RUST_LOG", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "SEGUE_AUTH_TOKEN"] {
        command.env_remove(name);
    }
    command
}

/// Runs it in a folder, with this input, to its end.
pub(crate) fn run_in(folder: &Path, arguments: &[&str], input: &str) -> Ran {
    let mut command = command();
    command.current_dir(folder).args(arguments);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    // It may end without reading.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let done = child.wait_with_output().unwrap();
    Ran {
        code: done.status.code().unwrap_or(-1),
        out: String::from_utf8(done.stdout).unwrap(),
        err: String::from_utf8(done.stderr).unwrap(),
    }
}

/// Runs it in a new empty folder.
pub(crate) fn run(arguments: &[&str], input: &str) -> Ran {
    run_in(tempfile::tempdir().unwrap().path(), arguments, input)
}

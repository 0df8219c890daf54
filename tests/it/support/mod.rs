//! Helpers that several subjects share: the program as a child process, project files, fake services.

pub(crate) mod action_server;
pub(crate) mod interruptible_sink;
pub(crate) mod json;
pub(crate) mod program;
pub(crate) mod project_copy;
pub(crate) mod project_files;
pub(crate) mod server_process;
pub(crate) mod starter;

/// Whether all cases run (`SEGUE_FULL=1`), and not the sample of them that `cargo test` runs.
pub(crate) fn is_full() -> bool {
    segue::environment::variable("SEGUE_FULL").is_some()
}

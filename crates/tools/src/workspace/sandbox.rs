//! The sandbox in which commands run: a command of the operator, such as bubblewrap, that gets the shell as its last arguments.

use std::{
    ffi::OsStr,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::sync::Semaphore;

use super::{
    Workspace,
    bash::{self, Ending},
    path::{Area, VIRTUAL_ROOT},
};
use crate::ToolCallContext;
use segue_base::limits;

/// The variable part of the arguments: the folder of the run.
const RUN: &str = "{workspace}";
/// The variable parts for the areas that a command may have besides.
const AREAS: [(&str, Area); 2] = [("{uploads}", Area::Uploads), ("{outputs}", Area::Outputs)];

/// Runs commands in a sandbox. Clones share their limit of commands at once.
#[derive(Clone)]
pub struct Sandbox {
    inner: Arc<SandboxInner>,
}

pub(super) struct SandboxInner {
    command: Vec<String>,
    pub(super) time_limit: Duration,
    /// Places for commands at once.
    pub(super) places: Arc<Semaphore>,
    /// `PATH` in the sandbox.
    pub(super) path: String,
}

/// Why there is no sandbox. The texts are for operators.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The command is empty.
    #[error("the sandbox command is empty; give the program and its arguments, such as [bwrap, …, --]")]
    Empty,
    /// Bubblewrap is not installed.
    #[error(
        "bubblewrap (`bwrap`) is not installed; install it (Debian and Ubuntu: `apt-get install bubblewrap`) or configure another \
         sandbox command"
    )]
    NotInstalled,
    /// The sandbox does not start.
    #[error(
        "the sandbox `{program}` does not start: {detail}; check that this system allows user namespaces \
         (`sysctl user.max_user_namespaces`), or configure another sandbox command"
    )]
    DoesNotStart {
        /// Its program.
        program: String,
        /// What it says.
        detail: String,
    },
    /// It is a Unix program.
    #[error("sandboxed commands need a Unix system")]
    Unsupported,
}

impl SandboxError {
    /// The error code; its page is `docs/errors/T0701.md`.
    pub fn code(&self) -> &'static str {
        "T0701"
    }
}

impl Sandbox {
    /// A sandbox with this command, which gets the shell as further arguments. In its arguments, `{workspace}` is the folder of the run,
    /// which contains `workspace`, `uploads` and `outputs`; `{uploads}` and `{outputs}` are these folders. Commands see them at
    /// `/mnt/user-data` if the sandbox command mounts them there.
    ///
    /// # Errors
    /// [`SandboxError::Empty`], or [`SandboxError::Unsupported`] on systems that are not Unix.
    pub fn new(command: Vec<String>) -> Result<Self, SandboxError> {
        if !cfg!(unix) {
            return Err(SandboxError::Unsupported);
        }
        if command.first().is_none_or(|program| program.trim().is_empty()) {
            return Err(SandboxError::Empty);
        }
        Ok(Self {
            inner: Arc::new(SandboxInner {
                command,
                time_limit: limits::SANDBOX_TIME,
                places: Arc::new(Semaphore::new(limits::SANDBOX_PARALLEL)),
                path: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
            }),
        })
    }

    fn changed(self, change: impl FnOnce(&mut SandboxInner)) -> Self {
        let SandboxInner { command, time_limit, places, path } = &*self.inner;
        let (command, path) = (command.clone(), path.clone());
        let mut inner = SandboxInner { command, time_limit: *time_limit, places: places.clone(), path };
        change(&mut inner);
        Self { inner: Arc::new(inner) }
    }

    /// Sets the time for one command, in place of [`limits::SANDBOX_TIME`].
    #[must_use]
    pub fn time_limit(self, limit: Duration) -> Self {
        self.changed(|inner| inner.time_limit = limit)
    }

    /// Sets how many commands run at once, in place of [`limits::SANDBOX_PARALLEL`]; at least one.
    #[must_use]
    pub fn parallel(self, most: usize) -> Self {
        self.changed(|inner| inner.places = Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// Sets the variable `PATH` of commands.
    #[must_use]
    pub fn path(self, path: impl Into<String>) -> Self {
        self.changed(|inner| inner.path = path.into())
    }

    /// Runs `true` in the sandbox, to find out whether it starts.
    ///
    /// # Errors
    /// [`SandboxError::DoesNotStart`].
    pub async fn check(&self, workspace: &Workspace, context: &ToolCallContext) -> Result<(), SandboxError> {
        let failed = |detail: String| SandboxError::DoesNotStart { program: self.program().to_owned(), detail };
        let run = bash::run(self, workspace, "true", &Default::default(), &context.cx).await;
        match run {
            Ok(run) if run.ending == Ending::Exited(0) => Ok(()),
            Ok(run) => Err(failed(format!("{:?} {}", run.ending, run.text))),
            Err(error) => Err(failed(error.detail())),
        }
    }

    pub(super) fn program(&self) -> &str {
        self.inner.command.first().map_or("", String::as_str)
    }

    pub(super) fn inner(&self) -> &SandboxInner {
        &self.inner
    }

    /// The arguments of the sandbox command for a run.
    pub(super) fn arguments(&self, root: &Path) -> Vec<String> {
        let filled = |argument: &String| {
            let mut text = argument.replace(RUN, &root.to_string_lossy());
            for (place, area) in AREAS {
                text = text.replace(place, &root.join(area.as_str()).to_string_lossy());
            }
            text
        };
        self.inner.command.iter().skip(1).map(filled).collect()
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("command", &self.inner.command).finish_non_exhaustive()
    }
}

/// A sandbox command for bubblewrap (<https://github.com/containers/bubblewrap>).
///
/// A command in it sees the programs and libraries of the system read-only, a private `/tmp`, and the three areas of its run, of which
/// `uploads` is read-only. It sees no home folder, no project, no other run and no other process, and has no network unless allowed.
/// Memory and processor time are not limited; put a command such as `systemd-run` in front of a configured one for that.
#[derive(Clone, Debug, Default)]
pub struct SandboxPreset {
    network: bool,
    read_only: Vec<PathBuf>,
}

/// Folders of programs and libraries; links of current distributions into `/usr`.
const SYSTEM: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Settings of the system that programs need and that have no secrets.
const SETTINGS: [&str; 8] = [
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/localtime",
    "/etc/mime.types",
];
/// Settings for the network.
const NETWORK: [&str; 3] = ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"];
/// Folders that a command has for itself.
const PRIVATE: [&str; 2] = ["/tmp", "/dev"];
/// Bytes of the private `/tmp`, and of the private `/dev/shm`.
const TEMPORARY: u64 = 64 * 1024 * 1024;

impl SandboxPreset {
    /// A sandbox without network.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether commands may use the network of the host.
    #[must_use]
    pub fn network(mut self, allowed: bool) -> Self {
        self.network = allowed;
        self
    }

    /// Shows another folder of the host read-only, at the same path, such as that of a compiler.
    #[must_use]
    pub fn read_only(mut self, folder: impl Into<PathBuf>) -> Self {
        self.read_only.push(folder.into());
        self
    }

    /// The sandbox, with the `bwrap` of this search path, such as the value of the environment variable `PATH`.
    ///
    /// # Errors
    /// [`SandboxError::NotInstalled`], with the name of the package.
    pub fn sandbox(&self, search_path: &OsStr) -> Result<Sandbox, SandboxError> {
        Sandbox::new(self.command(search_path)?)
    }

    /// The command and its arguments for [`Sandbox::new`], with the `bwrap` of this search path.
    ///
    /// # Errors
    /// [`SandboxError::NotInstalled`], with the name of the package.
    pub fn command(&self, search_path: &OsStr) -> Result<Vec<String>, SandboxError> {
        let program = std::env::split_paths(search_path)
            .filter(|folder| folder.is_absolute())
            .map(|folder| folder.join("bwrap"))
            .find(|program| program.is_file())
            .ok_or(SandboxError::NotInstalled)?;
        let mut command = vec![program.to_string_lossy().into_owned()];
        let mut add = |arguments: &[&str]| command.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        // No network, no other processes; ends with this program; no terminal to type into; no rights of an administrator.
        add(&["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox"]);
        if self.network {
            add(&["--share-net"]);
        }
        add(&["--ro-bind", "/usr", "/usr"]);
        for folder in SYSTEM {
            match std::fs::read_link(folder) {
                Ok(target) => add(&["--symlink", &target.to_string_lossy(), folder]),
                Err(_) => add(&["--ro-bind-try", folder, folder]),
            }
        }
        let settings = SETTINGS.iter().chain(if self.network { NETWORK.as_slice() } else { &[] });
        for path in settings {
            add(&["--ro-bind-try", path, path]);
        }
        // What is below a private folder is shown after it, which would hide it.
        let (hidden, visible): (Vec<&PathBuf>, Vec<_>) =
            self.read_only.iter().partition(|folder| PRIVATE.iter().any(|private| folder.starts_with(private)));
        for folder in visible {
            let folder = folder.to_string_lossy();
            add(&["--ro-bind", &folder, &folder]);
        }
        let size = TEMPORARY.to_string();
        add(&["--dev", "/dev", "--proc", "/proc", "--size", &size, "--tmpfs", "/tmp"]);
        // Files anywhere else in `/dev` would take memory without a limit.
        add(&["--size", &size, "--tmpfs", "/dev/shm"]);
        for folder in hidden {
            let folder = folder.to_string_lossy();
            add(&["--ro-bind", &folder, &folder]);
        }
        add(&["--remount-ro", "/dev"]);
        let seen = |area: Area| format!("{VIRTUAL_ROOT}/{}", area.as_str());
        let workspace = format!("{RUN}/{}", Area::Workspace.as_str());
        add(&["--bind", &workspace, &seen(Area::Workspace)]);
        add(&["--ro-bind", "{uploads}", &seen(Area::Uploads)]);
        add(&["--bind", "{outputs}", &seen(Area::Outputs)]);
        // Nothing but the mounts can be written.
        add(&["--remount-ro", "/", "--chdir", &seen(Area::Workspace), "--"]);
        Ok(command)
    }
}

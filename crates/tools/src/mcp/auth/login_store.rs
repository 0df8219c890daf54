//! The stored login of one server, in a file that only the user of the process may read, and that only one process at a time
//! changes.
//!
//! A refresh token is often valid for one use: if two processes use the same, the authorization server may revoke all
//! tokens. A process that changes the file therefore holds its [`LoginLock`] from before it reads the file until it has
//! replaced it; other processes then read the result.

use std::{
    fs::TryLockError,
    io::{Error, ErrorKind},
    path::{Path, PathBuf},
    time::Duration,
};

use rmcp::transport::auth::StoredCredentials;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;

use segue_base::{context::CallContext, limits};

/// The pause between two attempts to lock the file.
const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The login file of one server. It is read at each use, so that a login takes effect in an assistant that is running.
#[derive(Clone, Debug)]
pub(super) struct LoginStore {
    name: String,
    path: Option<PathBuf>,
}

/// The content of the file.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct LoginRecord {
    /// The URL of the server. The token is not sent to any other.
    pub(super) url: String,
    pub(super) client_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client_secret: Option<String>,
    pub(super) redirect_uri: String,
    pub(super) credentials: StoredCredentials,
    /// The scopes that the server has required since. The next login requests them.
    #[serde(default, rename = "wanted", skip_serializing_if = "Vec::is_empty")]
    pub(super) required_scopes: Vec<String>,
}

impl LoginStore {
    /// The file of the server `name` in `folder`; without a folder nothing is stored.
    pub(super) fn new(folder: Option<PathBuf>, name: &str) -> Self {
        let safe_character = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' };
        let mut file: String = name.chars().map(safe_character).collect();
        if file != name {
            // Two names may be equal after escaping.
            use sha2::Digest;
            let hash = sha2::Sha256::digest(name.as_bytes());
            file.extend(hash.iter().take(4).map(|byte| format!("{byte:02x}")));
        }
        Self { name: name.to_owned(), path: folder.map(|folder| folder.join(format!("{file}.json"))) }
    }

    /// The login for `url`.
    ///
    /// # Errors
    /// A text for operators: there is no login, with how to create one.
    pub(super) async fn read(&self, url: &str) -> Result<LoginRecord, String> {
        let hint = self.login_hint();
        let Some(path) = &self.path else {
            return Err("a login is not possible: this assistant has no folder for logins".to_owned());
        };
        let bytes = match tokio::fs::read(path).await {
            Ok(bytes) if bytes.len() <= limits::MCP_TOKEN => bytes,
            Ok(_) => return Err(format!("{} is too large; {hint}", path.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(format!("no login is stored; {hint}"));
            }
            Err(error) => return Err(format!("{} cannot be read: {error}", path.display())),
        };
        let record: LoginRecord =
            serde_json::from_slice(&bytes).map_err(|_| format!("{} is damaged; {hint}", path.display()))?;
        if record.url != url {
            return Err(format!("the stored login is for another URL; {hint}"));
        }
        Ok(record)
    }

    /// Locks the file against all other tasks and processes; waits while it is locked. The operating system releases
    /// the lock of a process that ends.
    ///
    /// # Errors
    /// A text for operators: it was locked for longer than [`limits::MCP_LOGIN_LOCK`].
    pub(super) async fn lock(&self, cx: &CallContext) -> Result<LoginLock, String> {
        let path = self.path.as_ref().ok_or("this assistant has no folder for logins")?;
        let lock_error = |error: Error| format!("{} cannot be locked: {error}", path.display());
        let file = open_lock_file(path).await.map_err(lock_error)?;
        let cx = cx.with_timeout(limits::MCP_LOGIN_LOCK);
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {}
                // A file system without locks: processes must not share a folder on it.
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => break,
                Err(TryLockError::Error(error)) => return Err(lock_error(error)),
            }
            let pause = cx.wait(cx.clock.sleep(cx.clock.deadline(LOCK_RETRY_PAUSE))).await;
            if pause.is_err() || cx.remaining().is_zero() {
                return Err(format!("another process does not release the lock of {}", path.display()));
            }
        }
        Ok(LoginLock { file, path: path.clone() })
    }

    /// The command that creates a login, for messages.
    pub(super) fn login_hint(&self) -> String {
        format!("run `segue mcp login {}`", self.name)
    }
}

/// The lock of the login file; released when dropped.
pub(super) struct LoginLock {
    file: std::fs::File,
    path: PathBuf,
}

impl Drop for LoginLock {
    /// Unlocks explicitly, because closing the file may not be enough: a child process that is being started has the file
    /// open until it executes its program, and would keep the lock that long.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl LoginLock {
    /// Replaces the login atomically.
    ///
    /// # Errors
    /// A text for operators.
    pub(super) async fn write(&self, record: &LoginRecord) -> Result<(), String> {
        let text = serde_json::to_vec_pretty(record).map_err(|error| error.to_string())?;
        let wrote = replace(&self.path, &text).await;
        wrote.map_err(|error| format!("{} cannot be written: {error}", self.path.display()))
    }

    /// Deletes the login; returns whether there was one.
    ///
    /// # Errors
    /// A text for operators.
    pub(super) async fn delete(&self) -> Result<bool, String> {
        match tokio::fs::remove_file(&self.path).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(format!("{} cannot be removed: {error}", self.path.display())),
        }
    }
}

/// Opens the lock file beside the login file. The login file itself cannot be locked, because it is replaced. The lock file is
/// never removed, because two processes could then lock two files of the same name.
async fn open_lock_file(path: &Path) -> std::io::Result<std::fs::File> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut builder = tokio::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    builder.mode(0o700);
    builder.create(folder).await?;
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    options.mode(0o600);
    Ok(options.open(path.with_extension("lock")).await?.into_std().await)
}

/// Writes a new file readable by its user only, then renames it over the old one, so that a crash leaves the old file.
/// The temporary name is fixed: the lock excludes others, and what a crash left is overwritten.
async fn replace(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let temporary = path.with_extension("new");
    match tokio::fs::remove_file(&temporary).await {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    options.mode(0o600);
    let wrote = async {
        let mut file = options.open(&temporary).await?;
        file.write_all(text).await?;
        file.sync_all().await?;
        tokio::fs::rename(&temporary, path).await
    };
    let result = wrote.await;
    match &result {
        Ok(()) => sync_folder(path).await,
        Err(_) => drop(tokio::fs::remove_file(&temporary).await),
    }
    result
}

/// Syncs the folder, so that the renaming survives a crash of the machine. Errors are ignored: the content of the file is synced
/// already.
async fn sync_folder(path: &Path) {
    #[cfg(unix)]
    if let Some(folder) = path.parent()
        && let Ok(folder) = tokio::fs::File::open(folder).await
    {
        let _ = folder.sync_all().await;
    }
    #[cfg(not(unix))]
    let _ = path;
}

#[cfg(test)]
mod tests;

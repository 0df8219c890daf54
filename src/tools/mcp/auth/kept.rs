//! What a login gave, in a file that only its owner may read.

use std::path::{Path, PathBuf};

use rmcp::transport::auth::StoredCredentials;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;

use crate::limits;

/// The file of one server. It is read anew whenever it is needed: a login beside a running assistant takes effect at once.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    name: String,
    path: Option<PathBuf>,
}

/// What stands in the file.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Record {
    /// The address it was given for: no token goes to another.
    pub(super) url: String,
    pub(super) client_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client_secret: Option<String>,
    pub(super) redirect_uri: String,
    pub(super) credentials: StoredCredentials,
    /// Rights that the server asked for since, and that a new login should bring.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) wanted: Vec<String>,
}

impl Kept {
    /// The file of the server `name` in `folder`; without a folder nothing is kept.
    pub(super) fn new(folder: Option<PathBuf>, name: &str) -> Self {
        let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' };
        let mut file: String = name.chars().map(plain).collect();
        if file != name {
            // Two names may look alike once they are plain.
            use sha2::Digest;
            let hash = sha2::Sha256::digest(name.as_bytes());
            file.extend(hash.iter().take(4).map(|byte| format!("{byte:02x}")));
        }
        Self { name: name.to_owned(), path: folder.map(|folder| folder.join(format!("{file}.json"))) }
    }

    /// What is kept for `url`.
    ///
    /// # Errors
    /// In words, for operators: there is nothing, with the cure.
    pub(super) async fn read(&self, url: &str) -> Result<Record, String> {
        let login = format!("run `segue mcp login {}`", self.name);
        let Some(path) = &self.path else {
            return Err("nobody can log in: this assistant has no folder to keep logins in".to_owned());
        };
        let bytes = match tokio::fs::read(path).await {
            Ok(bytes) if bytes.len() <= limits::MCP_TOKEN => bytes,
            Ok(_) => return Err(format!("{} is too large; {login}", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(format!("nobody has logged in; {login}"));
            }
            Err(error) => return Err(format!("{} cannot be read: {error}", path.display())),
        };
        let record: Record =
            serde_json::from_slice(&bytes).map_err(|_| format!("{} is damaged; {login}", path.display()))?;
        if record.url != url {
            return Err(format!("the login that is kept is for another address; {login}"));
        }
        Ok(record)
    }

    /// Replaces what is kept, in one step.
    ///
    /// # Errors
    /// In words, for operators.
    pub(super) async fn write(&self, record: &Record) -> Result<(), String> {
        let path = self.path.as_ref().ok_or("this assistant has no folder to keep logins in")?;
        let text = serde_json::to_vec_pretty(record).map_err(|error| error.to_string())?;
        let wrote = replace(path, &text).await;
        wrote.map_err(|error| format!("{} cannot be written: {error}", path.display()))
    }

    /// Forgets the login; whether there was one.
    ///
    /// # Errors
    /// In words, for operators.
    pub(super) async fn forget(&self) -> Result<bool, String> {
        let Some(path) = &self.path else { return Ok(false) };
        match tokio::fs::remove_file(path).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(format!("{} cannot be removed: {error}", path.display())),
        }
    }

    /// How the login that would help is made.
    pub(super) fn cure(&self) -> String {
        format!("run `segue mcp login {}`", self.name)
    }
}

/// Writes beside the file, for its owner alone, then puts the new one in its place.
async fn replace(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut builder = tokio::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    builder.mode(0o700);
    builder.create(folder).await?;
    let fresh = path.with_extension(format!("{}.new", uuid::Uuid::new_v4().simple()));
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    options.mode(0o600);
    let wrote = async {
        let mut file = options.open(&fresh).await?;
        file.write_all(text).await?;
        file.sync_all().await?;
        tokio::fs::rename(&fresh, path).await
    };
    let result = wrote.await;
    if result.is_err() {
        let _ = tokio::fs::remove_file(&fresh).await;
    }
    result
}

//! Pinning of tools (`pin: true` of an MCP server): a tool whose description changes after review is excluded.
//!
//! The first list of a pinned server is trusted, and the hash of each tool (name, description, schema of the arguments)
//! is stored in a file of the project. After that a tool with a different hash and a new tool are excluded with the
//! reason, so no model reads them. A reviewed change is accepted by `segue mcp pins --write`; a server that is removed
//! from the file is trusted again at its next list. The file belongs under version control.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::{Health, SourceError, ToolCatalog, ToolHandler, ToolInfo, ToolSource};
use segue_base::{context::CallContext, limits};

/// The name of the file in the project folder.
pub const FILE: &str = "pins.json";

/// The content of the file: hashes by server and tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Pins(BTreeMap<String, BTreeMap<String, String>>);

/// The status of a tool compared to its pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinStatus {
    /// Unchanged.
    Same,
    /// Its description or its arguments changed.
    Changed,
    /// It is new, or the server is not pinned yet.
    New,
    /// It is no longer listed.
    Gone,
}

/// The pins of a project. Clones share them.
#[derive(Clone)]
pub struct PinFile(Arc<PinState>);

struct PinState {
    /// The file; `None` for a project without a folder.
    path: Option<PathBuf>,
    /// Its content, or why it cannot be read.
    pins: Mutex<Result<Pins, String>>,
    /// Increased when tools are pinned again.
    revision: AtomicU64,
}

impl PinFile {
    /// The pins in this folder; empty if there is no file. If the file cannot be read, all tools of pinned servers are
    /// excluded.
    pub fn open(folder: &Path) -> Self {
        let path = (!folder.as_os_str().is_empty()).then(|| folder.join(FILE));
        let pins = path.as_deref().map_or_else(|| Ok(Pins::default()), read_pins);
        Self(Arc::new(PinState { path, pins: Mutex::new(pins), revision: AtomicU64::new(0) }))
    }

    /// The pin status of the tools of a server: the listed ones in their order, then the removed ones.
    ///
    /// # Errors
    /// A text: the file cannot be read.
    pub fn compare(&self, server: &str, catalog: &ToolCatalog) -> Result<Vec<(String, PinStatus)>, String> {
        let pins = self.0.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let known = pins.as_ref().map_err(Clone::clone)?.0.get(server);
        let status_of = |info: &ToolInfo| match known.and_then(|known| known.get(&*info.name)) {
            Some(pinned) if matches_pin(pinned, info) => PinStatus::Same,
            Some(_) => PinStatus::Changed,
            None => PinStatus::New,
        };
        let listed = catalog.tools.iter().map(|tool| (tool.info().name.to_string(), status_of(tool.info())));
        let mut statuses: Vec<(String, PinStatus)> = listed.collect();
        let is_listed = |name: &str| catalog.tools.iter().any(|tool| &*tool.info().name == name);
        let gone = known.into_iter().flatten().map(|(name, _)| name).filter(|name| !is_listed(name));
        statuses.extend(gone.map(|name| (name.clone(), PinStatus::Gone)));
        Ok(statuses)
    }

    /// Pins the listed tools of a server and replaces its earlier pins.
    ///
    /// # Errors
    /// A text: the file cannot be read or written. Nothing is pinned then.
    pub fn pin(&self, server: &str, catalog: &ToolCatalog) -> Result<(), String> {
        let mut current = self.0.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pins = current.as_ref().map_err(Clone::clone)?.clone();
        pins.0.insert(server.to_owned(), hashes(catalog));
        if let Some(path) = &self.0.path {
            write_pins(path, &pins).map_err(|error| format!("{FILE} cannot be written: {error}"))?;
        }
        *current = Ok(pins);
        self.0.revision.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// The catalogue without new and changed tools. The first catalogue of a server is pinned as it is.
    fn filter_catalog(&self, server: &str, mut catalog: ToolCatalog) -> ToolCatalog {
        let mut pins = self.0.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let pins = match &mut *pins {
            Ok(pins) => pins,
            Err(reason) => {
                let reason = reason.clone();
                catalog.exclude(|_| Some(reason.clone()));
                return catalog;
            }
        };
        if !pins.0.contains_key(server) {
            // An empty list is not pinned: the server may not be ready.
            if catalog.tools.is_empty() {
                return catalog;
            }
            pins.0.insert(server.to_owned(), hashes(&catalog));
            if let Some(path) = &self.0.path
                && let Err(error) = write_pins(path, pins)
            {
                tracing::warn!(server, %error, "{FILE} cannot be written: the tools of this server are pinned only until the program ends");
            }
        }
        let known = pins.0.get(server).cloned().unwrap_or_default();
        catalog.exclude(|info| match known.get(&*info.name) {
            Some(pinned) if matches_pin(pinned, info) => None,
            Some(_) => Some(format!("its description or arguments changed since it was pinned; review them, then run `segue mcp pins --write` or remove `{server}` from {FILE}")),
            None => Some(format!("it is new, and the server is pinned; review it, then run `segue mcp pins --write` or remove `{server}` from {FILE}")),
        });
        catalog
    }
}

impl ToolCatalog {
    /// Moves each tool for which there is a reason to the excluded ones.
    fn exclude(&mut self, reason_for: impl Fn(&ToolInfo) -> Option<String>) {
        let mut remaining: Vec<Arc<dyn ToolHandler>> = Vec::with_capacity(self.tools.len());
        for tool in self.tools.drain(..) {
            match reason_for(tool.info()) {
                None => remaining.push(tool),
                Some(reason) => {
                    tracing::warn!(tool = %tool.info().name, reason, "a tool of a pinned server is excluded");
                    self.excluded.push((tool.info().name.to_string(), reason));
                }
            }
        }
        self.tools = remaining;
    }
}

fn read_pins(path: &Path) -> Result<Pins, String> {
    let unreadable = |reason: String| {
        format!("{FILE} cannot be read ({reason}), so all tools of pinned servers are excluded; fix or remove the file")
    };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Pins::default()),
        Err(error) => return Err(unreadable(error.to_string())),
        Ok(metadata) if metadata.len() > limits::PIN_FILE => return Err(unreadable("it is too large".to_owned())),
        Ok(_) => {}
    }
    let text = fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))
}

fn write_pins(path: &Path, pins: &Pins) -> io::Result<()> {
    let text = serde_json::to_string_pretty(pins).map_err(io::Error::other)?;
    // A unique name, because another process, or another project in this one, may write too.
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let number = WRITES.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_extension(format!("json.{}.{number}.new", std::process::id()));
    fs::write(&temporary, text + "\n")?;
    fs::rename(&temporary, path)
}

fn hashes(catalog: &ToolCatalog) -> BTreeMap<String, String> {
    catalog.tools.iter().map(|tool| (tool.info().name.to_string(), hash(tool.info()))).collect()
}

/// Whether a tool matches its pin. A pin may also be a hash of the schema with its keys in the order in which the server sent
/// them, because earlier versions wrote such pins.
fn matches_pin(pinned: &str, info: &ToolInfo) -> bool {
    pinned == hash(info) || pinned == hash_of(info, &info.parameters)
}

/// The SHA-256 hash of a tool. The order of keys does not matter, because some servers list them in random order.
fn hash(info: &ToolInfo) -> String {
    hash_of(info, &sorted(&info.parameters))
}

/// A value with all object keys sorted.
fn sorted(value: &Json) -> Json {
    let mut value = value.clone();
    value.sort_all_objects();
    value
}

fn hash_of(info: &ToolInfo, parameters: &Json) -> String {
    let mut hash = Sha256::new();
    for part in [&*info.name, &*info.description, &parameters.to_string()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A tool source with pinned tools.
pub struct PinnedSource {
    inner: Arc<dyn ToolSource>,
    pins: PinFile,
    /// The latest catalogue before and after it was filtered, and the revision of the pins: each turn lists the same tools
    /// again, and hashing their schemas takes time.
    latest: Mutex<Option<Filtered>>,
}

/// A catalogue that was filtered.
struct Filtered {
    revision: u64,
    before: Vec<Arc<dyn ToolHandler>>,
    after: ToolCatalog,
}

impl PinnedSource {
    /// Filters the tools of `inner` by these pins.
    pub fn new(inner: Arc<dyn ToolSource>, pins: PinFile) -> Self {
        Self { inner, pins, latest: Mutex::new(None) }
    }

    fn filter(&self, catalog: ToolCatalog) -> ToolCatalog {
        let revision = self.pins.0.revision.load(Ordering::SeqCst);
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*latest
            && known.revision == revision
            && known.after.version == catalog.version
            && known.before.len() == catalog.tools.len()
            && known.before.iter().zip(&catalog.tools).all(|(known, tool)| Arc::ptr_eq(known, tool))
        {
            return known.after.clone();
        }
        let before = catalog.tools.clone();
        let after = self.pins.filter_catalog(self.name(), catalog);
        *latest = Some(Filtered { revision, before, after: after.clone() });
        after
    }
}

#[async_trait]
impl ToolSource for PinnedSource {
    fn name(&self) -> &str {
        self.inner.name()
    }
    async fn list(&self, cx: &CallContext) -> Result<ToolCatalog, SourceError> {
        Ok(self.filter(self.inner.list(cx).await?))
    }
    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes()
    }
    fn status(&self) -> Health {
        self.inner.status()
    }
    async fn close(&self, cx: &CallContext) {
        self.inner.close(cx).await
    }
}

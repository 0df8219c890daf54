//! Tools that stay what they were when somebody looked at them: `pin: true` of an MCP server.
//!
//! The first list of a pinned server is trusted, and the hash of each of its tools (name, description, schema of arguments)
//! is kept in a file of the project. From then on a tool whose hash is another one, and a tool that is new, is left out with
//! its reason, so no model ever reads it. Who has looked at the change accepts it by `segue mcp pins --write`, or takes the server
//! out of the file, and the next list is trusted again. The file belongs under version control.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::{SourceError, SourceStatus, ToolCatalog, ToolHandler, ToolInfo, ToolSource};
use segue_base::{context::CallContext, limits};

/// The name of the file, in the project's folder.
pub const FILE: &str = "pins.json";

/// What the file holds: by server, by tool, a hash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Pins(BTreeMap<String, BTreeMap<String, String>>);

/// How a tool stands to its pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinStatus {
    /// It is what it was.
    Same,
    /// Its description or its arguments are others.
    Changed,
    /// It was not there when the server was pinned, or the server is not pinned yet.
    New,
    /// It is no longer listed.
    Gone,
}

/// The pins of a project. Clones share them.
#[derive(Clone)]
pub struct PinFile(Arc<Shared>);

struct Shared {
    /// Where they are kept; nowhere for a project without a folder.
    path: Option<PathBuf>,
    pins: Mutex<Result<Pins, String>>,
}

impl PinFile {
    /// The pins in this folder; none yet if there is no file. A file that cannot be read pins nothing and lets nothing through.
    pub fn of(folder: &Path) -> Self {
        let path = (!folder.as_os_str().is_empty()).then(|| folder.join(FILE));
        let pins = path.as_deref().map_or_else(|| Ok(Pins::default()), read);
        Self(Arc::new(Shared { path, pins: Mutex::new(pins) }))
    }

    /// How the tools that a server lists stand to its pins: first the listed ones in their order, then those that are gone.
    ///
    /// # Errors
    /// In words: the file cannot be read.
    pub fn compare(&self, server: &str, catalog: &ToolCatalog) -> Result<Vec<(String, PinStatus)>, String> {
        let pins = self.0.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let known = pins.as_ref().map_err(Clone::clone)?.0.get(server);
        let stands = |spec: &ToolInfo| match known.and_then(|known| known.get(&*spec.name)) {
            Some(pinned) if is_pinned(pinned, spec) => PinStatus::Same,
            Some(_) => PinStatus::Changed,
            None => PinStatus::New,
        };
        let listed = catalog.tools.iter().map(|tool| (tool.info().name.to_string(), stands(tool.info())));
        let mut standings: Vec<(String, PinStatus)> = listed.collect();
        let is_listed = |name: &str| catalog.tools.iter().any(|tool| &*tool.info().name == name);
        let gone = known.into_iter().flatten().map(|(name, _)| name).filter(|name| !is_listed(name));
        standings.extend(gone.map(|name| (name.clone(), PinStatus::Gone)));
        Ok(standings)
    }

    /// Pins the tools of a server as it lists them, whatever was pinned before.
    ///
    /// # Errors
    /// In words: the file cannot be read or written. Nothing is pinned then.
    pub fn pin(&self, server: &str, catalog: &ToolCatalog) -> Result<(), String> {
        let mut kept = self.0.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pins = kept.as_ref().map_err(Clone::clone)?.clone();
        pins.0.insert(server.to_owned(), hashes(catalog));
        if let Some(path) = &self.0.path {
            write(path, &pins).map_err(|error| format!("{FILE} cannot be written: {error}"))?;
        }
        *kept = Ok(pins);
        Ok(())
    }

    /// The same list without the tools that are not what they were.
    fn held(&self, server: &str, mut catalog: ToolCatalog) -> ToolCatalog {
        let mut pins = self.0.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let pins = match &mut *pins {
            Ok(pins) => pins,
            Err(why) => {
                let why = why.clone();
                catalog.leave_out(|_| Some(why.clone()));
                return catalog;
            }
        };
        if !pins.0.contains_key(server) {
            // An empty list tells nothing: the server may be about to fill it.
            if catalog.tools.is_empty() {
                return catalog;
            }
            pins.0.insert(server.to_owned(), hashes(&catalog));
            if let Some(path) = &self.0.path
                && let Err(error) = write(path, pins)
            {
                tracing::warn!(server, %error, "the tools of this server are pinned until the program ends: {FILE} cannot be written");
            }
        }
        let known = pins.0.get(server).cloned().unwrap_or_default();
        catalog.leave_out(|spec| match known.get(&*spec.name) {
            Some(pinned) if is_pinned(pinned, spec) => None,
            Some(_) => Some(format!("it is not what it was when it was pinned: look at its description and arguments, then take `{server}` out of {FILE} or run `segue mcp pins --write`")),
            None => Some(format!("it is new, and the server is pinned: look at it, then take `{server}` out of {FILE} or run `segue mcp pins --write`")),
        });
        catalog
    }
}

impl ToolCatalog {
    fn leave_out(&mut self, why: impl Fn(&ToolInfo) -> Option<String>) {
        let mut kept: Vec<Arc<dyn ToolHandler>> = Vec::with_capacity(self.tools.len());
        for tool in self.tools.drain(..) {
            match why(tool.info()) {
                None => kept.push(tool),
                Some(why) => {
                    tracing::warn!(tool = %tool.info().name, why, "a pinned tool is left out");
                    self.excluded.push((tool.info().name.to_string(), why));
                }
            }
        }
        self.tools = kept;
    }
}

fn read(path: &Path) -> Result<Pins, String> {
    let wrong =
        |why: String| format!("{FILE} cannot be read ({why}), so no pinned tool is let through: mend or remove it");
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Pins::default()),
        Err(error) => return Err(wrong(error.to_string())),
        Ok(about) if about.len() > limits::PIN_FILE => return Err(wrong("it is too large".to_owned())),
        Ok(_) => {}
    }
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))
}

fn write(path: &Path, pins: &Pins) -> io::Result<()> {
    let text = serde_json::to_string_pretty(pins).map_err(io::Error::other)?;
    // A name of its own: another process may be writing too.
    let beside = path.with_extension(format!("json.{}.new", std::process::id()));
    fs::write(&beside, text + "\n")?;
    fs::rename(&beside, path)
}

fn hashes(catalog: &ToolCatalog) -> BTreeMap<String, String> {
    catalog.tools.iter().map(|tool| (tool.info().name.to_string(), hash(tool.info()))).collect()
}

/// Whether a tool is what was pinned. Older pins were made of the schema as the server wrote it.
fn is_pinned(pinned: &str, spec: &ToolInfo) -> bool {
    pinned == hash(spec) || pinned == hash_of(spec, &spec.parameters)
}

/// What a tool is, to those who read it: a change of any of it is a change of the tool. The order of keys says nothing: some
/// servers write them as a hash map gives them.
fn hash(spec: &ToolInfo) -> String {
    hash_of(spec, &sorted(&spec.parameters))
}

/// A value with the keys of all its objects in order.
fn sorted(value: &Json) -> Json {
    match value {
        Json::Object(map) => {
            let map: BTreeMap<&String, Json> = map.iter().map(|(key, value)| (key, sorted(value))).collect();
            Json::Object(map.into_iter().map(|(key, value)| (key.clone(), value)).collect())
        }
        Json::Array(items) => Json::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

fn hash_of(spec: &ToolInfo, parameters: &Json) -> String {
    let mut hash = Sha256::new();
    for part in [&*spec.name, &*spec.description, &parameters.to_string()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A source whose tools are pinned.
pub struct PinnedSource {
    inner: Arc<dyn ToolSource>,
    pins: PinFile,
}

impl PinnedSource {
    /// Holds the tools of `inner` against these pins.
    pub fn new(inner: Arc<dyn ToolSource>, pins: PinFile) -> Self {
        Self { inner, pins }
    }
}

impl ToolSource for PinnedSource {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn list<'a>(&'a self, cx: &'a CallContext) -> BoxFuture<'a, Result<ToolCatalog, SourceError>> {
        Box::pin(async move { Ok(self.pins.held(self.name(), self.inner.list(cx).await?)) })
    }
    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes()
    }
    fn status(&self) -> SourceStatus {
        self.inner.status()
    }
    fn close<'a>(&'a self, cx: &'a CallContext) -> BoxFuture<'a, ()> {
        self.inner.close(cx)
    }
}

//! Long tool results: the model gets a preview and an id, and reads the rest with tools (`result_tools`).
//!
//! The [`ResultStore`] belongs to one session of an agent. Its [`ResultIndex`] is a part of the state of the loop, and the contents are
//! [`Blobs`] under the hash of their content, so that the ids in a history are valid after a restart and in a copy of the session.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use minijinja::context;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};

use super::result_tools::{self, ResultError};
use crate::{
    limits,
    prompts::PromptSet,
    tools::{Tool, ToolInfo},
};

/// Items of an array that a preview shows.
const PREVIEW_ITEMS: usize = 5;
/// The bytes of a preview: this part of the threshold, within these limits.
const PREVIEW_PART: usize = 32;
const PREVIEW_MIN: usize = 500;
const PREVIEW_MAX: usize = 8_000;
/// Bytes of a text from which on it is read on a thread that may block.
const COMPUTED_AT_ONCE: usize = 64 * 1024;
/// Fields that a preview of an array describes.
const PREVIEW_FIELDS: usize = 30;

/// Stores contents under the hash of their content.
#[async_trait]
pub(crate) trait Blobs: Send + Sync {
    /// Stores a content under its id.
    ///
    /// # Errors
    /// The reason, for traces.
    async fn put(&self, id: &str, content: Arc<str>) -> Result<(), String>;
    /// The content of an id; `None` if there is none.
    ///
    /// # Errors
    /// The reason, for traces.
    async fn get(&self, id: &str) -> Result<Option<Arc<str>>, String>;
}

/// Blobs in memory, for tests.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct MemoryBlobs(Mutex<std::collections::HashMap<String, Arc<str>>>);

#[cfg(test)]
#[async_trait]
impl Blobs for MemoryBlobs {
    async fn put(&self, id: &str, content: Arc<str>) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned(), content);
        Ok(())
    }
    async fn get(&self, id: &str) -> Result<Option<Arc<str>>, String> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned())
    }
}

/// The length from which on a result is stored. Pages of the result tools have the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Threshold(usize);

impl Threshold {
    /// The threshold of a number of tokens, four bytes each. Numbers out of the limits are clamped.
    pub(crate) fn of_tokens(tokens: u32) -> Self {
        let tokens = tokens.clamp(limits::RESULT_TOKENS_MIN, limits::RESULT_TOKENS_MAX);
        Self(usize::try_from(tokens).unwrap_or(usize::MAX).saturating_mul(limits::RESULT_BYTES_PER_TOKEN))
    }
    /// In bytes.
    pub(crate) fn bytes(self) -> usize {
        self.0
    }
    fn preview_bytes(self) -> usize {
        (self.0 / PREVIEW_PART).clamp(PREVIEW_MIN, PREVIEW_MAX)
    }
}

#[cfg(test)]
impl Default for Threshold {
    fn default() -> Self {
        Self::of_tokens(limits::RESULT_TOKENS)
    }
}

/// What a stored result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResultKind {
    /// A JSON array.
    Array,
    /// A JSON object.
    Object,
    /// Any other text.
    Text,
}

impl ResultKind {
    /// The name that the model reads.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Array => "array",
            Self::Object => "object",
            Self::Text => "text",
        }
    }
}

/// A stored result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredResult {
    /// Its id for the model.
    pub(crate) id: Arc<str>,
    /// What it is.
    #[serde(rename = "type")]
    pub(crate) kind: ResultKind,
    /// The length of its text.
    pub(crate) bytes: usize,
    /// The items of an array, the keys of an object, the lines of a text.
    pub(crate) count: usize,
    /// The id of its content.
    pub(crate) blob: Arc<str>,
}

/// The stored results of one session: serialisable, a part of the state of the loop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ResultIndex {
    /// Results so far; ids are never used again.
    pub(crate) count: u64,
    /// The latest, oldest first.
    pub(crate) results: Vec<StoredResult>,
}

impl ResultIndex {
    /// Whether no result was ever stored.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }
    /// The latest results, oldest first.
    pub(crate) fn latest(&self, most: usize) -> &[StoredResult] {
        self.results.get(self.results.len().saturating_sub(most)..).unwrap_or_default()
    }
}

/// The long results of one session.
pub(crate) struct ResultStore {
    index: Mutex<ResultIndex>,
    blobs: Arc<dyn Blobs>,
    threshold: Threshold,
    pub(super) prompts: Arc<PromptSet>,
    /// The tools that read the results; see [`ResultStore::is_own`].
    tools: Vec<ToolInfo>,
}

impl ResultStore {
    /// A store with the results of `index`; empty for a new session.
    pub(crate) fn new(
        index: ResultIndex,
        blobs: Arc<dyn Blobs>,
        threshold: Threshold,
        prompts: Arc<PromptSet>,
    ) -> Arc<Self> {
        let tools = result_tools::infos(&prompts);
        Arc::new(Self { index: Mutex::new(index), blobs, threshold, prompts, tools })
    }

    /// The tools that read the results, for the tool set of the session.
    pub(crate) fn tools(self: &Arc<Self>) -> Vec<Tool> {
        result_tools::tools(self, &self.tools)
    }

    /// Whether this is one of [`ResultStore::tools`], whose results are never stored again. A tool of another source with such a name is
    /// not.
    pub(crate) fn is_own(&self, tool: &ToolInfo) -> bool {
        self.tools.iter().any(|own| Arc::ptr_eq(&own.parameters, &tool.parameters))
    }

    /// The ids, for the state of the loop and for copies of the session.
    pub(crate) fn index(&self) -> ResultIndex {
        self.lock().clone()
    }

    /// The length of a page in bytes.
    pub(super) fn page_bytes(&self) -> usize {
        self.threshold.bytes()
    }

    /// The items of a stored array.
    ///
    /// # Errors
    /// No such result, or it is not an array.
    pub(crate) async fn items(&self, id: &str) -> Result<Vec<Json>, ResultError> {
        let loaded = self.load(id).await?;
        let json = computed(loaded.text.len(), move || loaded.json()).await.flatten();
        match json {
            Some(Json::Array(items)) => Ok(items),
            other => Err(ResultError::Type {
                id: id.to_owned(),
                path: String::new(),
                found: other.as_ref().map_or("text", result_tools::type_of),
                wanted: "array",
            }),
        }
    }

    /// A stored result with its content.
    pub(super) async fn load(&self, id: &str) -> Result<LoadedResult, ResultError> {
        let (found, known) = {
            let index = self.lock();
            let found = index.results.iter().find(|result| *result.id == *id).cloned();
            (found, index.latest(PREVIEW_ITEMS).iter().map(|result| result.id.to_string()).collect())
        };
        let Some(result) = found else { return Err(ResultError::Unknown { id: id.to_owned(), known }) };
        match self.blobs.get(&result.blob).await {
            Ok(Some(text)) => Ok(LoadedResult { result, text }),
            _ => Err(ResultError::Lost { id: id.to_owned() }),
        }
    }

    /// What the model gets of a result: the text itself, or a preview of a stored result.
    pub(crate) async fn intercept(&self, tool: &str, text: String) -> String {
        let threshold = self.threshold.bytes();
        let is_long = text.len() >= threshold;
        if !is_long && text.len() < limits::RESULT_ARRAY_BYTES {
            return text;
        }
        self.store(tool, text, is_long, self.threshold.preview_bytes(), PREVIEW_MAX).await
    }

    /// Stores a result that the model would get whole, and returns a preview of about `most` bytes. A text that shows the id of a stored
    /// result is a preview already and is not stored again.
    pub(super) async fn shortened(&self, tool: &str, text: &str, most: usize) -> Option<String> {
        if self.lock().results.iter().any(|result| text.contains(&*result.id)) {
            return None;
        }
        let most = most.min(self.threshold.preview_bytes());
        Some(self.store(tool, text.to_owned(), true, most, most).await)
    }

    /// `is_long`: any result is stored; otherwise arrays of many items only.
    async fn store(&self, tool: &str, text: String, is_long: bool, limit: usize, items_limit: usize) -> String {
        let text: Arc<str> = text.into();
        let whole = text.clone();
        let described = computed(text.len(), move || Described::of(&text, is_long, limit, items_limit)).await;
        let Some(described) = described.flatten() else { return whole.to_string() };
        let stored = self.blobs.put(&described.blob, whole.clone()).await.is_ok();
        let id = stored.then(|| self.add(tool, described.kind, whole.len(), described.count, described.blob.clone()));
        self.preview(described, id)
    }

    fn add(&self, tool: &str, kind: ResultKind, bytes: usize, count: usize, blob: Arc<str>) -> Arc<str> {
        let mut index = self.lock();
        index.count += 1;
        let name: String = tool.chars().map(|c| if matches!(c, '.' | '-') { '_' } else { c }).collect();
        let id: Arc<str> = format!("_result_{name}_{}", index.count).into();
        index.results.push(StoredResult { id: id.clone(), kind, bytes, count, blob });
        if index.results.len() > limits::RESULT_IDS {
            index.results.remove(0);
        }
        id
    }

    fn preview(&self, described: Described, id: Option<Arc<str>>) -> String {
        let mut lines = vec![("type", described.kind.as_str().to_owned())];
        lines.extend(id.map(|id| ("id", id.to_string())));
        lines.push(("partial", "true".to_owned()));
        lines.extend(described.lines);
        let preview = described.preview;
        let shown: Vec<_> = lines.iter().map(|(name, value)| context! { name => *name, value }).collect();
        let variables = context! { text => "preview", preview => &preview, lines => shown };
        self.prompts.render(&self.prompts.loop_results, variables).map_or(preview, |text| text.trim_end().to_owned())
    }

    fn lock(&self) -> MutexGuard<'_, ResultIndex> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A result with its content.
pub(super) struct LoadedResult {
    pub(super) result: StoredResult,
    pub(super) text: Arc<str>,
}

impl LoadedResult {
    /// The content as JSON, if it is an array or an object.
    pub(super) fn json(&self) -> Option<Json> {
        parsed(&self.text)
    }
}

/// What a preview is made of.
struct Described {
    kind: ResultKind,
    count: usize,
    blob: Arc<str>,
    lines: Vec<(&'static str, String)>,
    preview: String,
}

impl Described {
    /// The description of a text; `None` for a result that the model gets whole. `limit`: the bytes of the preview, `items_limit` those
    /// of the items of an array.
    fn of(text: &str, is_long: bool, limit: usize, items_limit: usize) -> Option<Self> {
        let (kind, count, lines, preview) = match parsed(text) {
            Some(Json::Array(items)) if items.len() >= limits::RESULT_ARRAY_ITEMS => {
                let (shown, preview) = first_items(&items, items_limit);
                let mut lines = vec![("total_items", items.len().to_string()), ("shown_items", shown.to_string())];
                lines.extend(fields(&items).map(|fields| ("fields", fields)));
                (ResultKind::Array, items.len(), lines, preview)
            }
            _ if !is_long => return None,
            Some(Json::Object(map)) => {
                let (shown, preview) = keys_with_sizes(&map, limit);
                let mut lines = vec![("total_bytes", text.len().to_string()), ("total_keys", map.len().to_string())];
                if shown < map.len() {
                    lines.push(("shown_keys", shown.to_string()));
                }
                (ResultKind::Object, map.len(), lines, preview)
            }
            other => {
                let preview = text.get(..text.floor_char_boundary(limit)).unwrap_or_default().to_owned();
                let mut lines =
                    vec![("total_bytes", text.len().to_string()), ("shown_bytes", preview.len().to_string())];
                match other {
                    // An array with few but long items.
                    Some(Json::Array(items)) => {
                        lines.insert(0, ("total_items", items.len().to_string()));
                        (ResultKind::Array, items.len(), lines, preview)
                    }
                    _ => (ResultKind::Text, text.lines().count(), lines, preview),
                }
            }
        };
        Some(Self { kind, count, blob: content_hash(text).into(), lines, preview })
    }
}

/// Runs work over a text of `bytes`: long work on a thread that may block, so that other conversations and missions go on. `None`: the
/// process ends, or the work panicked.
pub(super) async fn computed<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    if bytes < COMPUTED_AT_ONCE {
        return Some(work());
    }
    tokio::task::spawn_blocking(work).await.ok()
}

/// The text as JSON, if it is an array or an object.
fn parsed(text: &str) -> Option<Json> {
    text.trim_start().starts_with(['[', '{']).then(|| serde_json::from_str(text).ok()).flatten()
}

fn content_hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The first items, as far as they fit, and how many; of the first item at least its beginning.
fn first_items(items: &[Json], limit: usize) -> (usize, String) {
    let pretty = |count: usize| {
        serde_json::to_string_pretty(items.get(..count.min(items.len())).unwrap_or_default()).unwrap_or_default()
    };
    for count in (1..=PREVIEW_ITEMS).rev() {
        let text = pretty(count);
        if text.len() <= limit {
            return (count, text);
        }
    }
    let text = pretty(1);
    (0, text.get(..text.floor_char_boundary(limit)).unwrap_or_default().to_owned())
}

/// The fields of the first items with their types; `None` if they are not objects.
fn fields(items: &[Json]) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    let mut types: BTreeMap<&str, Vec<&'static str>> = BTreeMap::new();
    for (name, value) in items.iter().take(PREVIEW_ITEMS).filter_map(Json::as_object).flatten() {
        let found = types.entry(name).or_insert_with(|| {
            names.push(name);
            Vec::new()
        });
        let kind = result_tools::type_of(value);
        if !found.contains(&kind) {
            found.push(kind);
        }
    }
    let describe =
        |name: &&str| format!("{name} ({})", types.get(*name).map(|kinds| kinds.join("|")).unwrap_or_default());
    let shown: Vec<String> = names.iter().take(PREVIEW_FIELDS).map(describe).collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

/// The keys of an object with the sizes of their values, as far as they fit, and how many.
fn keys_with_sizes(map: &Map<String, Json>, limit: usize) -> (usize, String) {
    let mut text = String::new();
    for (shown, (key, value)) in map.iter().enumerate() {
        let line = format!("{key}: {}, {} bytes", result_tools::type_of(value), value.to_string().len());
        if text.len() + line.len() > limit {
            return (shown, text);
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&line);
    }
    (map.len(), text)
}

#[cfg(test)]
pub(super) mod tests;

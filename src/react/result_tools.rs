//! The tools that read stored results page by page.
//!
//! Numbers out of range are clamped, texts are cut between characters, and one page is never longer than the length from which on
//! results are stored. Errors are JSON with a code and a hint for the model.

use std::sync::Arc;

use minijinja::{context, value::Serde};
use regex::{Regex, RegexBuilder};
use segue_engine::text::{ELLIPSIS, TextLimit, truncate};
use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::interception::{ResultKind, ResultStore};
use crate::{
    prompts::PromptSet,
    tools::{EffectClass, Tool, ToolInfo, ToolOutcome, ToolOutput},
};

/// Items of one page at most.
const ITEMS_MAX: u64 = 500;
/// Bytes of one chunk at most.
const CHUNK_MAX: u64 = 65_536;
/// Matches of one search at most, and without `limit`.
const MATCHES_MAX: u64 = 100;
const MATCHES: u64 = 20;
/// Characters of a search pattern.
const PATTERN_MAX: usize = 200;
/// The compiled size of a search pattern.
const PATTERN_BYTES: usize = 1 << 20;
/// Bytes of text before and after a match.
const AROUND_MATCH: usize = 80;
/// Bytes of a page for everything but its values.
const PAGE_FRAME: usize = 300;
/// Keys that a hint lists.
const HINT_KEYS: usize = 10;
/// Characters of a part of a path, or of a problem, in a message.
const SHOWN_CHARS: usize = 60;

const RESULT_INFO: &str = "result_info";
const RESULT_ITEMS: &str = "result_items";
const RESULT_GET: &str = "result_get";
const RESULT_KEYS: &str = "result_keys";
const RESULT_CHUNK: &str = "result_chunk";
const RESULT_SEARCH: &str = "result_search";

/// The names of the tools.
pub(crate) const RESULT_TOOLS: [&str; 6] =
    [RESULT_INFO, RESULT_ITEMS, RESULT_GET, RESULT_KEYS, RESULT_CHUNK, RESULT_SEARCH];

/// Why a result could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResultError {
    /// There is no result with this id.
    #[error("there is no stored result `{id}`")]
    Unknown {
        /// The id.
        id: String,
        /// The latest ids.
        known: Vec<String>,
    },
    /// The content is not stored any more.
    #[error("the content of `{id}` is not stored any more")]
    Lost {
        /// The id.
        id: String,
    },
    /// The value is of another type.
    #[error("`{path}` of `{id}` is of the type {found}, not {wanted}")]
    Type {
        /// The id.
        id: String,
        /// The path of the value; empty for the whole result.
        path: String,
        /// Its type.
        found: &'static str,
        /// The type that the tool needs.
        wanted: &'static str,
    },
    /// A part of the path is not there.
    #[error("the path `{path}` does not exist")]
    Path {
        /// The path.
        path: String,
        /// The part.
        part: String,
        /// The type of the value in which it was looked for.
        found: &'static str,
        /// The first keys that are there.
        known: Vec<String>,
    },
    /// An index is not in the array.
    #[error("the index {part} of `{path}` is not in the array of {total} items")]
    Range {
        /// The path.
        path: String,
        /// The index.
        part: String,
        /// The length of the array.
        total: usize,
    },
    /// One item is longer than a page.
    #[error("the item {part} alone is longer than one page")]
    ItemTooLong {
        /// The path of the item.
        path: String,
        /// Its index.
        part: String,
        /// Its length.
        total: usize,
    },
    /// The pattern is not a regular expression.
    #[error("the pattern is not a valid regular expression: {part}")]
    Pattern {
        /// The problem.
        part: String,
    },
}

/// The variables of the texts of an error.
#[derive(Default, Serialize)]
struct ErrorWords<'a> {
    text: String,
    id: &'a str,
    path: &'a str,
    part: &'a str,
    found: &'a str,
    wanted: &'a str,
    total: usize,
    known: &'a [String],
}

impl ResultError {
    /// The code for the model.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } | Self::Lost { .. } => "result.unknown",
            Self::Type { .. } => "result.type",
            Self::Path { .. } => "result.path",
            Self::Range { .. } | Self::ItemTooLong { .. } => "result.range",
            Self::Pattern { .. } => "args.invalid",
        }
    }

    fn words(&self) -> (&'static str, ErrorWords<'_>) {
        let words = ErrorWords::default();
        match self {
            Self::Unknown { id, known } => ("unknown", ErrorWords { id, known, ..words }),
            Self::Lost { id } => ("lost", ErrorWords { id, ..words }),
            Self::Type { id, path, found, wanted } => ("type", ErrorWords { id, path, found, wanted, ..words }),
            Self::Path { path, part, found, known } => ("path", ErrorWords { path, part, found, known, ..words }),
            Self::Range { path, part, total } => ("range", ErrorWords { path, part, total: *total, ..words }),
            Self::ItemTooLong { path, part, total } => {
                ("item_too_long", ErrorWords { path, part, total: *total, ..words })
            }
            Self::Pattern { part } => ("pattern", ErrorWords { part, ..words }),
        }
    }

    /// The error as the model reads it.
    pub(crate) fn to_json(&self, prompts: &PromptSet) -> Json {
        let (name, mut words) = self.words();
        let mut say = |part: &str| {
            words.text = format!("{part}.{name}");
            prompts.render(&prompts.loop_results, Serde(&words).into()).ok()
        };
        let message = say("message").map_or_else(|| self.to_string(), |text| text.trim().to_owned());
        let hint = say("hint").map(|text| text.trim().to_owned()).unwrap_or_default();
        json!({"status": "error", "code": self.code(), "message": message, "hint": hint})
    }
}

/// The tools as models see them.
pub(super) fn infos(prompts: &PromptSet) -> Vec<ToolInfo> {
    let describe = |name: &str| {
        let text = prompts.render(&prompts.loop_results, context! { text => name }).unwrap_or_default();
        text.trim().to_owned()
    };
    let id = || json!({"type": "string", "description": "The id that the preview shows"});
    let path = || json!({"type": "string", "description": "Keys and indices with dots between them"});
    let from = || json!({"type": "integer", "minimum": 0});
    let schemas = [
        (RESULT_INFO, json!({"id": id()}), json!(["id"])),
        (
            RESULT_ITEMS,
            json!({
                "id": id(), "offset": from(), "path": path(),
                "count": {"type": "integer", "minimum": 1, "maximum": ITEMS_MAX},
            }),
            json!(["id", "offset", "count"]),
        ),
        (RESULT_GET, json!({"id": id(), "path": path()}), json!(["id", "path"])),
        (RESULT_KEYS, json!({"id": id(), "path": path()}), json!(["id"])),
        (
            RESULT_CHUNK,
            json!({
                "id": id(), "offset": from(),
                "length": {"type": "integer", "minimum": 1, "maximum": CHUNK_MAX},
            }),
            json!(["id", "offset", "length"]),
        ),
        (
            RESULT_SEARCH,
            json!({
                "id": id(),
                "pattern": {"type": "string", "minLength": 1, "maxLength": PATTERN_MAX},
                "limit": {"type": "integer", "minimum": 1, "maximum": MATCHES_MAX, "default": MATCHES},
            }),
            json!(["id", "pattern"]),
        ),
    ];
    let info = |(name, properties, required): (&str, Json, Json)| {
        let schema = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        });
        ToolInfo::new(name, describe(name)).parameters(schema).effect(EffectClass::Read).source("builtin")
    };
    schemas.into_iter().map(info).collect()
}

/// The tools of a store.
pub(super) fn tools(store: &Arc<ResultStore>, infos: &[ToolInfo]) -> Vec<Tool> {
    let tool = |info: &ToolInfo| {
        let (store, name) = (store.clone(), info.name.clone());
        Tool::from_fn(info.clone(), move |arguments, _| {
            let (store, name) = (store.clone(), name.clone());
            async move { ToolOutcome::Done(ToolOutput::text(answer(&store, &name, &arguments).await.to_string())) }
        })
    };
    infos.iter().map(tool).collect()
}

/// What a tool answers.
pub(super) async fn answer(store: &ResultStore, tool: &str, arguments: &Json) -> Json {
    let text = |name: &str| arguments.get(name).and_then(Json::as_str).unwrap_or_default();
    let number = |name: &str| arguments.get(name).and_then(Json::as_f64).map(|number| number.max(0.0) as u64);
    let (id, path) = (text("id"), text("path"));
    let found = match tool {
        RESULT_ITEMS => items(store, id, path, number("offset").unwrap_or(0), number("count").unwrap_or(1)).await,
        RESULT_GET => get(store, id, path).await,
        RESULT_KEYS => keys(store, id, path).await,
        RESULT_CHUNK => chunk(store, id, number("offset").unwrap_or(0), number("length").unwrap_or(CHUNK_MAX)).await,
        RESULT_SEARCH => search(store, id, text("pattern"), number("limit").unwrap_or(MATCHES)).await,
        _ => info(store, id).await,
    };
    found.unwrap_or_else(|error| error.to_json(&store.prompts))
}

async fn info(store: &ResultStore, id: &str) -> Result<Json, ResultError> {
    let loaded = store.load(id).await?;
    let result = &loaded.result;
    let count = match result.kind {
        ResultKind::Array => "items",
        ResultKind::Object => "keys",
        ResultKind::Text => "lines",
    };
    Ok(
        json!({"status": "ok", "id": &*result.id, "type": result.kind.as_str(), "bytes": result.bytes, count: result.count}),
    )
}

async fn items(store: &ResultStore, id: &str, path: &str, offset: u64, count: u64) -> Result<Json, ResultError> {
    let root = root(store, id, "array").await?;
    let Json::Array(all) = value_at(id, &root, path)? else {
        let found = type_of(value_at(id, &root, path)?);
        return Err(ResultError::Type { id: id.into(), path: path.into(), found, wanted: "array" });
    };
    let offset = index(offset).min(all.len());
    let wanted = all.iter().skip(offset).take(index(count.clamp(1, ITEMS_MAX)));
    let (mut page, mut room) = (Vec::new(), room(store));
    for item in wanted {
        let length = item.to_string().len() + 1;
        if length > room {
            if page.is_empty() {
                let at = offset.to_string();
                let path = if path.is_empty() { at.clone() } else { format!("{path}.{at}") };
                return Err(ResultError::ItemTooLong { path: shown(&path), part: at, total: length - 1 });
            }
            break;
        }
        room -= length;
        page.push(item);
    }
    let next = offset + page.len();
    let mut answer = json!({"status": "ok", "items": page, "offset": offset, "total_items": all.len()});
    add_next(&mut answer, next, all.len());
    Ok(answer)
}

async fn get(store: &ResultStore, id: &str, path: &str) -> Result<Json, ResultError> {
    let root = root(store, id, "object or array").await?;
    let value = value_at(id, &root, path)?;
    let (kind, length) = (type_of(value), value.to_string().len());
    if length <= room(store) {
        return Ok(json!({"status": "ok", "type": kind, "value": value}));
    }
    let mut answer = json!({"status": "ok", "type": kind, "partial": true, "total_bytes": length});
    match value {
        Json::Object(map) => add_keys(&mut answer, map, room(store)),
        Json::Array(all) => {
            let mut left = room(store);
            let fits = |item: &&Json| {
                let length = item.to_string().len() + 1;
                let fits = length <= left;
                left = left.saturating_sub(length);
                fits
            };
            let shown: Vec<&Json> = all.iter().take_while(fits).collect();
            add(&mut answer, "total_items", all.len());
            add(&mut answer, "shown_items", shown.len());
            add(&mut answer, "items", json!(shown));
        }
        other => {
            let text = other.as_str().map_or_else(|| other.to_string(), str::to_owned);
            add(&mut answer, "value", fitting(&text, usize::MAX, room(store)));
        }
    }
    Ok(answer)
}

async fn keys(store: &ResultStore, id: &str, path: &str) -> Result<Json, ResultError> {
    let root = root(store, id, "object").await?;
    match value_at(id, &root, path)? {
        Json::Object(map) => {
            let mut answer = json!({"status": "ok"});
            add_keys(&mut answer, map, room(store));
            Ok(answer)
        }
        other => Err(ResultError::Type { id: id.into(), path: path.into(), found: type_of(other), wanted: "object" }),
    }
}

async fn chunk(store: &ResultStore, id: &str, offset: u64, length: u64) -> Result<Json, ResultError> {
    let loaded = store.load(id).await?;
    let text = &*loaded.text;
    let start = text.floor_char_boundary(index(offset));
    let chunk = fitting(text.get(start..).unwrap_or_default(), index(length.clamp(1, CHUNK_MAX)), room(store));
    let mut answer = json!({"status": "ok", "text": chunk, "offset": start, "total_bytes": text.len()});
    add_next(&mut answer, start + chunk.len(), text.len());
    Ok(answer)
}

async fn search(store: &ResultStore, id: &str, pattern: &str, limit: u64) -> Result<Json, ResultError> {
    let loaded = store.load(id).await?;
    let regex = RegexBuilder::new(pattern).case_insensitive(true).size_limit(PATTERN_BYTES).build();
    let regex = regex.map_err(|error| {
        let text = error.to_string();
        ResultError::Pattern { part: shown(text.lines().last().unwrap_or_default().trim_start_matches("error: ")) }
    })?;
    let places: Vec<Json> = match loaded.json() {
        Some(Json::Array(items)) => {
            let place = |(at, item): (usize, &Json)| {
                let text = item.to_string();
                first_match(&regex, &text).map(|found| json!({"item": at, "text": around(&text, found)}))
            };
            items.iter().enumerate().filter_map(place).collect()
        }
        _ => {
            let found = regex.find_iter(&loaded.text).filter(|found| !found.is_empty());
            found.map(|found| json!({"offset": found.start(), "text": around(&loaded.text, found.range())})).collect()
        }
    };
    let (mut matches, mut room) = (Vec::new(), room(store));
    for place in places.iter().take(index(limit.clamp(1, MATCHES_MAX))) {
        let length = place.to_string().len() + 1;
        if length > room {
            break;
        }
        room -= length;
        matches.push(place);
    }
    Ok(json!({"status": "ok", "matches": matches, "total_matches": places.len()}))
}

fn first_match(regex: &Regex, text: &str) -> Option<std::ops::Range<usize>> {
    regex.find_iter(text).find(|found| !found.is_empty()).map(|found| found.range())
}

/// A match with some text before and after it.
fn around(text: &str, found: std::ops::Range<usize>) -> &str {
    let start = text.floor_char_boundary(found.start.saturating_sub(AROUND_MATCH));
    let end = text.floor_char_boundary(found.end.min(found.start + AROUND_MATCH).saturating_add(AROUND_MATCH));
    text.get(start..end).unwrap_or_default()
}

/// The whole result as JSON.
async fn root(store: &ResultStore, id: &str, wanted: &'static str) -> Result<Json, ResultError> {
    let loaded = store.load(id).await?;
    loaded.json().ok_or_else(|| ResultError::Type { id: id.into(), path: String::new(), found: "text", wanted })
}

/// The value at a path. An empty path is the whole value.
fn value_at<'a>(id: &str, root: &'a Json, path: &str) -> Result<&'a Json, ResultError> {
    let mut value = root;
    let mut walked = String::new();
    for part in path.split('.').filter(|_| !path.is_empty()) {
        let missing = |found, known| ResultError::Path { path: shown(path), part: shown(part), found, known };
        value = match value {
            Json::Object(map) => map
                .get(part)
                .ok_or_else(|| missing("object", map.keys().take(HINT_KEYS).map(|key| shown(key)).collect()))?,
            Json::Array(items) => {
                let at: usize = match part.bytes().all(|byte| byte.is_ascii_digit()) && !part.is_empty() {
                    true => part.parse().unwrap_or(usize::MAX),
                    false => return Err(missing("array", Vec::new())),
                };
                items.get(at).ok_or_else(|| ResultError::Range {
                    path: shown(path),
                    part: shown(part),
                    total: items.len(),
                })?
            }
            other => {
                let found = type_of(other);
                return Err(ResultError::Type { id: id.into(), path: walked, found, wanted: "object or array" });
            }
        };
        if !walked.is_empty() {
            walked.push('.');
        }
        walked.push_str(part);
    }
    Ok(value)
}

/// The name of the type of a JSON value.
pub(super) fn type_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(_) => "number",
        Json::String(_) => "text",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

/// The beginning of a text: at most `most` bytes, and at most `room` bytes as JSON; at least one character.
fn fitting(text: &str, most: usize, room: usize) -> &str {
    let mut left = room;
    let mut end = 0;
    for c in text.chars() {
        let length = match c {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            c if c < ' ' => 6,
            c => c.len_utf8(),
        };
        if end > 0 && (length > left || end + c.len_utf8() > most) {
            break;
        }
        left = left.saturating_sub(length);
        end += c.len_utf8();
    }
    text.get(..end).unwrap_or_default()
}

/// The keys of an object with the sizes of their values, as far as they fit.
fn add_keys(answer: &mut Json, map: &Map<String, Json>, room: usize) {
    let mut keys = Map::new();
    let mut left = room;
    for (key, value) in map {
        let size = value.to_string().len();
        let length = Json::from(key.as_str()).to_string().len() + size.to_string().len() + 2;
        if length > left {
            break;
        }
        left -= length;
        keys.insert(key.clone(), Json::from(size));
    }
    let shown = keys.len();
    add(answer, "keys", keys);
    add(answer, "total_keys", map.len());
    if shown < map.len() {
        add(answer, "shown_keys", shown);
    }
}

fn add_next(answer: &mut Json, next: usize, total: usize) {
    if next < total {
        add(answer, "next_offset", next);
    }
}

fn add(answer: &mut Json, name: &str, value: impl Into<Json>) {
    if let Some(answer) = answer.as_object_mut() {
        answer.insert(name.to_owned(), value.into());
    }
}

/// Bytes of a page for its values.
fn room(store: &ResultStore) -> usize {
    store.page_bytes().saturating_sub(PAGE_FRAME)
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn shown(text: &str) -> String {
    truncate(text, TextLimit::Chars(SHOWN_CHARS), ELLIPSIS).into_owned()
}

#[cfg(test)]
mod tests;

//! The tools that read stored results page by page.
//!
//! Numbers out of range are clamped, texts are cut between characters, and one page is never longer than the length from which on
//! results are stored. Errors are JSON with a code and a hint for the model.

use std::{
    ops::{ControlFlow, Range},
    sync::Arc,
};

use minijinja::{context, value::Serde};
use regex::{Regex, RegexBuilder};
use segue_engine::text::{ELLIPSIS, TextLimit, truncate};
use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::interception::{LoadedResult, ResultKind, ResultStore, computed};
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
/// Bytes of the parts of a text that are searched one by one, at the ends of lines where there are any: a match is within one part. A
/// pattern takes time in proportion to the part for each match.
const PART_BYTES: usize = 32 * 1024;
/// How often one search tries a pattern; matches beyond it are not counted.
const TRIES_MAX: usize = 5_000;
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

/// What a tool answers. A long result is read on a thread that may block.
pub(super) async fn answer(store: &ResultStore, tool: &str, arguments: &Json) -> Json {
    let loaded = match store.load(text_of(arguments, "id")).await {
        Ok(loaded) => loaded,
        Err(error) => return error.to_json(&store.prompts),
    };
    let (tool, arguments, page) = (tool.to_owned(), arguments.clone(), store.page_bytes());
    let (bytes, id) = (loaded.text.len(), loaded.result.id.to_string());
    let reader = Reader { loaded, room: page.saturating_sub(PAGE_FRAME) };
    match computed(bytes, move || reader.answer(&tool, &arguments)).await {
        Some(found) => found.unwrap_or_else(|error| error.to_json(&store.prompts)),
        None => ResultError::Lost { id }.to_json(&store.prompts),
    }
}

fn text_of<'a>(arguments: &'a Json, name: &str) -> &'a str {
    arguments.get(name).and_then(Json::as_str).unwrap_or_default()
}

/// Reads a stored result.
struct Reader {
    loaded: LoadedResult,
    /// Bytes of a page for its values.
    room: usize,
}

impl Reader {
    fn answer(&self, tool: &str, arguments: &Json) -> Result<Json, ResultError> {
        let number = |name: &str| arguments.get(name).and_then(Json::as_f64).map(|number| number.max(0.0) as u64);
        let path = text_of(arguments, "path");
        match tool {
            RESULT_ITEMS => self.items(path, number("offset").unwrap_or(0), number("count").unwrap_or(1)),
            RESULT_GET => self.get(path),
            RESULT_KEYS => self.keys(path),
            RESULT_CHUNK => Ok(self.chunk(number("offset").unwrap_or(0), number("length").unwrap_or(CHUNK_MAX))),
            RESULT_SEARCH => self.search(text_of(arguments, "pattern"), number("limit").unwrap_or(MATCHES)),
            _ => Ok(self.info()),
        }
    }

    fn id(&self) -> &str {
        &self.loaded.result.id
    }

    /// The whole result as JSON.
    fn root(&self, wanted: &'static str) -> Result<Json, ResultError> {
        let error = || ResultError::Type { id: self.id().into(), path: String::new(), found: "text", wanted };
        self.loaded.json().ok_or_else(error)
    }

    fn info(&self) -> Json {
        let result = &self.loaded.result;
        let count = match result.kind {
            ResultKind::Array => "items",
            ResultKind::Object => "keys",
            ResultKind::Text => "lines",
        };
        json!({"status": "ok", "id": &*result.id, "type": result.kind.as_str(), "bytes": result.bytes, count: result.count})
    }

    fn items(&self, path: &str, offset: u64, count: u64) -> Result<Json, ResultError> {
        let root = self.root("array")?;
        let Json::Array(all) = value_at(self.id(), &root, path)? else {
            let found = type_of(value_at(self.id(), &root, path)?);
            return Err(ResultError::Type { id: self.id().into(), path: path.into(), found, wanted: "array" });
        };
        let offset = index(offset).min(all.len());
        let wanted = all.iter().skip(offset).take(index(count.clamp(1, ITEMS_MAX)));
        let (mut page, mut room) = (Vec::new(), self.room);
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

    fn get(&self, path: &str) -> Result<Json, ResultError> {
        let root = self.root("object or array")?;
        let value = value_at(self.id(), &root, path)?;
        let (kind, length) = (type_of(value), value.to_string().len());
        if length <= self.room {
            return Ok(json!({"status": "ok", "type": kind, "value": value}));
        }
        let mut answer = json!({"status": "ok", "type": kind, "partial": true, "total_bytes": length});
        match value {
            Json::Object(map) => add_keys(&mut answer, map, self.room),
            Json::Array(all) => {
                let mut left = self.room;
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
                add(&mut answer, "value", fitting(&text, usize::MAX, self.room));
            }
        }
        Ok(answer)
    }

    fn keys(&self, path: &str) -> Result<Json, ResultError> {
        let root = self.root("object")?;
        match value_at(self.id(), &root, path)? {
            Json::Object(map) => {
                let mut answer = json!({"status": "ok"});
                add_keys(&mut answer, map, self.room);
                Ok(answer)
            }
            other => Err(ResultError::Type {
                id: self.id().into(),
                path: path.into(),
                found: type_of(other),
                wanted: "object",
            }),
        }
    }

    fn chunk(&self, offset: u64, length: u64) -> Json {
        let text = &*self.loaded.text;
        let start = text.floor_char_boundary(index(offset));
        let chunk = fitting(text.get(start..).unwrap_or_default(), index(length.clamp(1, CHUNK_MAX)), self.room);
        let mut answer = json!({"status": "ok", "text": chunk, "offset": start, "total_bytes": text.len()});
        add_next(&mut answer, start + chunk.len(), text.len());
        answer
    }

    fn search(&self, pattern: &str, limit: u64) -> Result<Json, ResultError> {
        let regex = RegexBuilder::new(pattern).case_insensitive(true).size_limit(PATTERN_BYTES).build();
        let regex = regex.map_err(|error| {
            let text = error.to_string();
            ResultError::Pattern { part: shown(text.lines().last().unwrap_or_default().trim_start_matches("error: ")) }
        })?;
        let limit = index(limit.clamp(1, MATCHES_MAX));
        let mut search = Search { regex, tries: 0, total: 0, matches: Vec::new(), limit, room: self.room };
        match self.loaded.json() {
            Some(Json::Array(items)) => {
                for (at, item) in items.iter().enumerate() {
                    let text = item.to_string();
                    let found =
                        search.each(&text, |text, found| (json!({"item": at, "text": around(text, found)}), false));
                    if found.is_break() {
                        break;
                    }
                }
            }
            _ => {
                let text = &*self.loaded.text;
                let _ = search
                    .each(text, |text, found| (json!({"offset": found.start, "text": around(text, found)}), true));
            }
        }
        let mut answer = json!({"status": "ok", "matches": search.matches, "total_matches": search.total});
        if search.tries >= TRIES_MAX {
            add(&mut answer, "searched_all", false);
        }
        Ok(answer)
    }
}

/// A search in progress. Its work is bounded: a pattern is tried [`TRIES_MAX`] times at most, each time on a part of at most
/// [`PART_BYTES`].
struct Search {
    regex: Regex,
    tries: usize,
    /// Matches so far.
    total: usize,
    /// The first matches that fit on a page.
    matches: Vec<Json>,
    limit: usize,
    /// Bytes that are left on the page; 0 after a match that did not fit.
    room: usize,
}

impl Search {
    /// Reports the matches of a text; `place` also says whether to look for the next one. Breaks when no more may be tried.
    fn each<'t>(&mut self, text: &'t str, place: impl Fn(&'t str, Range<usize>) -> (Json, bool)) -> ControlFlow<()> {
        let mut start = 0;
        while start < text.len() {
            let end = part_end(text, start);
            let part = text.get(start..end).unwrap_or_default();
            let mut at = 0;
            while at < part.len() {
                let Some(found) = self.regex.find_at(part, at) else { break };
                self.tries += 1;
                if self.tries >= TRIES_MAX {
                    return ControlFlow::Break(());
                }
                if found.is_empty() {
                    at = part.ceil_char_boundary(found.end() + 1);
                    continue;
                }
                at = found.end();
                self.total += 1;
                let (found, goes_on) = place(text, start + found.start()..start + found.end());
                self.add(found);
                if !goes_on {
                    return ControlFlow::Continue(());
                }
            }
            start = end;
        }
        ControlFlow::Continue(())
    }

    fn add(&mut self, found: Json) {
        if self.matches.len() == self.limit {
            return;
        }
        let length = found.to_string().len() + 1;
        if length > self.room {
            self.room = 0;
            return;
        }
        self.room -= length;
        self.matches.push(found);
    }
}

/// The end of the part that begins at `start`: after a line if there is one within [`PART_BYTES`].
fn part_end(text: &str, start: usize) -> usize {
    let end = text.floor_char_boundary(start.saturating_add(PART_BYTES));
    if end >= text.len() {
        return text.len();
    }
    let part = text.get(start..end).unwrap_or_default();
    part.rfind('\n').map_or(end, |line| start + line + 1)
}

/// A match with some text before and after it.
fn around(text: &str, found: Range<usize>) -> &str {
    let start = text.floor_char_boundary(found.start.saturating_sub(AROUND_MATCH));
    let end = text.floor_char_boundary(found.end.min(found.start + AROUND_MATCH).saturating_add(AROUND_MATCH));
    text.get(start..end).unwrap_or_default()
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

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn shown(text: &str) -> String {
    truncate(text, TextLimit::Chars(SHOWN_CHARS), ELLIPSIS).into_owned()
}

#[cfg(test)]
mod tests;

//! The tools for the folders of a mission: `file_list`, `file_read`, `file_create`, `file_delete`, `file_search`, `file_grep`. Their
//! descriptions and parameters are in `prompts/slots.json`.

use std::{
    io::{self, BufReader, Read, Write},
    sync::LazyLock,
};

use cap_fs_ext::DirExt;
use cap_std::fs::{Dir, File};
use segue_base::limits;
use segue_engine::text::{ELLIPSIS, TextLimit, truncate};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value as Json, json};

use super::{
    AbandonGuard, Abandoned,
    error::FileError,
    flattened,
    folder::{self, Node, Writer, open_file, usage_of},
    lines::{is_binary, next_line},
    path::VirtualPath,
    search::{self, DEPTH, Entry, Kind},
    slots::{OpenSlot, Slots},
    tools::bad_arguments,
};
use crate::{EffectClass, Tool, ToolInfo, ToolOutcome, ToolOutput, tool::deserialize_arguments};

/// The source of these tools.
pub const SLOT_SOURCE: &str = "storage";
/// Lists a folder.
pub const FILE_LIST: &str = "file_list";
/// Reads a file.
pub const FILE_READ: &str = "file_read";
/// Writes a file.
pub const FILE_CREATE: &str = "file_create";
/// Deletes a file.
pub const FILE_DELETE: &str = "file_delete";
/// Finds files by name.
pub const FILE_SEARCH: &str = "file_search";
/// Finds lines.
pub const FILE_GREP: &str = "file_grep";
/// All of them.
pub const FILE_TOOLS: [&str; 6] = [FILE_LIST, FILE_READ, FILE_CREATE, FILE_DELETE, FILE_SEARCH, FILE_GREP];

/// Entries of one result of `file_list`.
const LIST_LIMIT: usize = 100;
/// Files or lines of one result of a search.
const SEARCH_LIMIT: usize = 50;
/// The most entries, files or lines of one result.
const MOST: usize = 500;
/// Bytes of one result of `file_read`, unless the call sets another number.
const READ_BYTES: usize = 50_000;
/// The most bytes of one result of `file_read`.
const MOST_READ_BYTES: usize = 60_000;

static DEFINITIONS: LazyLock<Map<String, Json>> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../prompts/slots.json")).unwrap_or_default());

impl Slots {
    /// The tools for these folders; none without a folder, and none that write if all can only be read.
    pub fn tools(&self) -> Vec<Tool> {
        if self.all().is_empty() {
            return Vec::new();
        }
        let mut tools = vec![
            self.tool(FILE_LIST, EffectClass::Read, list),
            self.tool(FILE_READ, EffectClass::Read, read),
            self.tool(FILE_SEARCH, EffectClass::Read, find),
            self.tool(FILE_GREP, EffectClass::Read, grep),
        ];
        if self.all().iter().any(super::Slot::is_writable) {
            tools.push(self.tool(FILE_CREATE, EffectClass::Write, create));
            tools.push(self.tool(FILE_DELETE, EffectClass::Write, delete));
        }
        tools
    }

    fn tool<A: DeserializeOwned + Send + 'static>(
        &self,
        name: &'static str,
        effect: EffectClass,
        work: fn(&Request<'_>, A) -> Result<Json, FileError>,
    ) -> Tool {
        let slots = self.clone();
        Tool::from_fn(self.info(name, effect), move |arguments, context| {
            let inner = slots.inner().clone();
            async move {
                let slot: SlotArgument = match deserialize_arguments(arguments.clone()) {
                    Ok(slot) => slot,
                    Err(problem) => return bad_arguments(&problem),
                };
                let arguments = match deserialize_arguments::<A>(arguments) {
                    Ok(arguments) => arguments,
                    Err(problem) => return bad_arguments(&problem),
                };
                let (run, files, abandoned) = (context.caller.conversation, inner.clone(), Abandoned::default());
                let _guard = AbandonGuard(abandoned.clone());
                let job = move || {
                    let open = files.open(&slot.slot, &run)?;
                    work(&Request { slot: &slot.slot, open: &open, files: &files, abandoned: &abandoned }, arguments)
                };
                let done = flattened(tokio::task::spawn_blocking(job).await);
                let outcome = done
                    .map_or_else(FileError::into_outcome, |result| ToolOutcome::Done(ToolOutput::structured(result)));
                inner.masks.mask_outcome(outcome)
            }
        })
    }

    /// The description of a tool, with the folders as the choices of `slot`.
    fn info(&self, name: &str, effect: EffectClass) -> ToolInfo {
        let definition = DEFINITIONS.get(name);
        let texts = DEFINITIONS.get("slot");
        let text = |key: &str| texts.and_then(|texts| texts.get(key)).and_then(Json::as_str).unwrap_or_default();
        let allowed = self.all().iter().filter(|slot| effect == EffectClass::Read || slot.is_writable());
        let (mut names, mut described) = (Vec::new(), Vec::new());
        for slot in allowed {
            let more = [&*slot.description, text(slot.kind()), if slot.is_writable() { "" } else { text("read_only") }];
            let more: Vec<&str> = more.into_iter().filter(|text| !text.is_empty()).collect();
            described.push(format!("{} ({})", slot.name, more.join("; ")));
            names.push(Json::from(&*slot.name));
        }
        let description = format!("{} {}.", text("description"), described.join(", "));
        let mut properties = Map::new();
        properties.insert("slot".to_owned(), json!({"type": "string", "enum": names, "description": description}));
        let own = definition.and_then(|one| one.get("properties")).and_then(Json::as_object);
        properties.extend(own.cloned().unwrap_or_default());
        let mut required = vec![Json::from("slot")];
        let own = definition.and_then(|one| one.get("required")).and_then(Json::as_array);
        required.extend(own.cloned().unwrap_or_default());
        let description = definition.and_then(|one| one.get("description")).and_then(Json::as_str).unwrap_or_default();
        let parameters = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        });
        ToolInfo::new(name, description).parameters(parameters).effect(effect).source(SLOT_SOURCE)
    }
}

/// One call.
struct Request<'a> {
    slot: &'a str,
    open: &'a OpenSlot,
    files: &'a super::slots::Inner,
    abandoned: &'a Abandoned,
}

impl Request<'_> {
    fn writer(&self) -> Result<&Writer, FileError> {
        self.open.writer.as_ref().ok_or_else(|| FileError::SlotReadOnly(self.slot.to_owned()))
    }
    fn folder(&self, path: &VirtualPath) -> Result<Dir, FileError> {
        folder::folder(&self.open.dir, path)
    }
}

#[derive(Deserialize)]
struct SlotArgument {
    slot: String,
}

#[derive(Deserialize)]
struct ListArguments {
    #[serde(default)]
    path: String,
    #[serde(default)]
    recursive: bool,
    limit: Option<usize>,
    #[serde(default)]
    offset: usize,
}

#[derive(Deserialize)]
struct ReadArguments {
    path: String,
    start_line: Option<u64>,
    max_lines: Option<u64>,
    max_bytes: Option<usize>,
}

#[derive(Deserialize)]
struct CreateArguments {
    path: String,
    content: String,
    #[serde(default)]
    append: bool,
    #[serde(default)]
    overwrite: bool,
}

#[derive(Deserialize)]
struct DeleteArguments {
    path: String,
}

#[derive(Deserialize)]
struct SearchArguments {
    pattern: String,
    #[serde(default)]
    path: String,
    limit: Option<usize>,
    #[serde(default)]
    offset: usize,
}

#[derive(Deserialize)]
struct GrepArguments {
    pattern: String,
    #[serde(default)]
    path: String,
    recursive: Option<bool>,
    limit: Option<usize>,
    #[serde(default)]
    offset: usize,
}

/// One page of what was found; counts the rest.
struct Page {
    offset: usize,
    limit: usize,
    total: usize,
    found: Vec<Json>,
}

impl Page {
    fn new(offset: usize, limit: Option<usize>, default: usize) -> Self {
        Self { offset, limit: limit.unwrap_or(default).clamp(1, MOST), total: 0, found: Vec::new() }
    }
    /// Adds what `item` makes, if it is on the page.
    fn push(&mut self, item: impl FnOnce() -> Json) {
        if self.total >= self.offset && self.found.len() < self.limit {
            self.found.push(item());
        }
        self.total += 1;
    }
    fn is_full(&self) -> bool {
        self.found.len() >= self.limit
    }
}

/// Calls `visit` with every entry below a folder, in the order of names, and with its path below the start; at most
/// [`limits::WORKSPACE_ENTRIES`] of each folder. Ends when `visit` returns `false`.
fn walk(
    request: &Request<'_>,
    dir: &Dir,
    above: &str,
    depth: usize,
    recursive: bool,
    visit: &mut dyn FnMut(&Dir, &Entry, &str) -> Result<bool, FileError>,
) -> Result<bool, FileError> {
    for entry in search::entries(dir)? {
        request.abandoned.check()?;
        let name = search::shown(&entry);
        let path = if above.is_empty() { name } else { format!("{above}/{name}") };
        if !visit(dir, &entry, &path)? {
            return Ok(false);
        }
        if recursive
            && depth < DEPTH
            && matches!(entry.kind, Kind::Folder)
            && let Ok(below) = dir.open_dir_nofollow(&entry.name)
            && !walk(request, &below, &path, depth + 1, recursive, visit)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The path of a folder as the beginning of those in it.
fn above(path: &VirtualPath) -> String {
    path.names().join("/")
}

fn list(request: &Request<'_>, arguments: ListArguments) -> Result<Json, FileError> {
    let path = VirtualPath::in_slot(&arguments.path)?;
    let mut page = Page::new(arguments.offset, arguments.limit, LIST_LIMIT);
    walk(request, &request.folder(&path)?, &above(&path), 0, arguments.recursive, &mut |_, entry, path| {
        page.push(|| match entry.kind {
            Kind::File(bytes) => json!({"path": path, "type": "file", "bytes": bytes}),
            Kind::Folder => json!({"path": path, "type": "folder"}),
            Kind::Link => json!({"path": path, "type": "link"}),
            Kind::Other => json!({"path": path, "type": "other"}),
        });
        Ok(true)
    })?;
    Ok(json!({
        "status": "ok", "slot": request.slot, "path": path.to_string(),
        "total": page.total, "offset": page.offset, "entries": page.found,
    }))
}

fn read(request: &Request<'_>, arguments: ReadArguments) -> Result<Json, FileError> {
    let path = VirtualPath::in_slot(&arguments.path)?;
    let file = folder::file(&request.open.dir, &path)?;
    let system = |error: io::Error| FileError::system(&error);
    let bytes = file.metadata().map_err(system)?.len();
    if bytes > limits::WORKSPACE_EDIT {
        return Err(FileError::FileTooLarge { path, bytes, limit: limits::WORKSPACE_EDIT });
    }
    let mut reader = BufReader::new(file);
    if is_binary(&mut reader).map_err(system)? {
        return Err(FileError::Binary(path));
    }
    let first = arguments.start_line.unwrap_or(1).max(1);
    let most_lines = arguments.max_lines.unwrap_or(u64::MAX).max(1);
    let most_bytes = arguments.max_bytes.unwrap_or(READ_BYTES).clamp(1, MOST_READ_BYTES);
    let masks = &request.files.masks;
    // What is behind the limit is read too: a secret that it divides must be recognised.
    let read_bytes = most_bytes.saturating_add(masks.longest());
    let (mut number, mut shown, mut text) = (0_u64, 0_u64, String::new());
    let (mut is_cut, mut is_divided) = (false, false);
    while let Some(line) = next_line(&mut reader).map_err(system)? {
        number += 1;
        if number.is_multiple_of(1024) {
            request.abandoned.check()?;
        }
        if number < first || is_cut {
            continue;
        }
        if shown == most_lines {
            is_cut = true;
            continue;
        }
        let line_text = String::from_utf8_lossy(&line.bytes);
        let room = read_bytes.saturating_sub(text.len());
        is_divided = line_text.len() > room || line.cut;
        is_cut = is_divided;
        text.push_str(line_text.get(..line_text.floor_char_boundary(room)).unwrap_or_default());
        shown += 1;
    }
    let raw = text;
    let mut text = masks.apply(&raw);
    let end = if is_divided { text.len().saturating_sub(masks.longest()) } else { text.len() };
    is_cut |= end.min(most_bytes) < text.len();
    text.truncate(text.floor_char_boundary(end.min(most_bytes)));
    let shown = if is_cut { text.lines().count() as u64 } else { shown };
    let note = masks.note(&raw, &text);
    let mut result = json!({
        "status": "ok", "slot": request.slot, "path": path.to_string(), "bytes": bytes, "lines": number,
        "start_line": first, "shown_lines": shown, "truncated": is_cut, "text": text,
    });
    if let (Some(note), Some(result)) = (note, result.as_object_mut()) {
        result.insert("note".to_owned(), note.into());
    }
    Ok(result)
}

fn create(request: &Request<'_>, arguments: CreateArguments) -> Result<Json, FileError> {
    let writer = request.writer()?;
    let path = VirtualPath::in_slot(&arguments.path)?;
    let system = |error: io::Error| FileError::system(&error);
    let start = &request.open.dir;
    // One write at a time: what is there and the space are checked and used together.
    let _lock = writer.lock();
    let existing: Option<File> = match folder::file(start, &path) {
        Ok(file) => Some(file),
        Err(FileError::NotFound(_)) => None,
        Err(error) => return Err(error),
    };
    match &existing {
        Some(_) if !arguments.append && !arguments.overwrite => return Err(FileError::Exists(path)),
        None if arguments.append => return Err(FileError::NotFound(path)),
        _ => {}
    }
    let old = match &existing {
        Some(file) => file.metadata().map_err(system)?.len(),
        None => 0,
    };
    let kept = if arguments.append { old } else { 0 };
    let new = kept.saturating_add(arguments.content.len() as u64);
    if new > limits::WORKSPACE_EDIT {
        return Err(FileError::FileTooLarge { path, bytes: new, limit: limits::WORKSPACE_EDIT });
    }
    let replaced = || {
        let mut old = Vec::new();
        if let Some(file) = existing.as_ref().filter(|_| !arguments.append) {
            let file = file.try_clone().map_err(system)?;
            file.take(limits::WORKSPACE_EDIT).read_to_end(&mut old).map_err(system)?;
        }
        Ok(old)
    };
    request.files.masks.check_marks(&path, &arguments.content, replaced)?;
    let usage = usage_of(start).map_err(system)?;
    let needed = usage.bytes.saturating_sub(old).saturating_add(new);
    let limit = request.files.max_bytes;
    if needed > limit && new > old {
        return Err(FileError::Quota { needed, limit });
    }
    let added = folder::missing_folders(start, &path)?.saturating_add(1);
    if existing.is_none() && (usage.too_deep || usage.entries.saturating_add(added) > limits::WORKSPACE_ENTRIES) {
        return Err(FileError::TooManyFiles);
    }
    writer.replace(start, &path, |file| {
        if let Some(old) = existing.as_ref().filter(|_| arguments.append) {
            io::copy(&mut BufReader::new(old.try_clone()?), file)?;
        }
        file.write_all(arguments.content.as_bytes())
    })?;
    let action = match (existing.is_some(), arguments.append) {
        (false, _) => "created",
        (true, true) => "appended",
        (true, false) => "replaced",
    };
    Ok(json!({
        "status": "ok", "slot": request.slot, "path": path.to_string(), "action": action, "bytes": new,
    }))
}

fn delete(request: &Request<'_>, arguments: DeleteArguments) -> Result<Json, FileError> {
    let writer = request.writer()?;
    let path = VirtualPath::in_slot(&arguments.path)?;
    let _lock = writer.lock();
    // Only files: a folder or a link is refused here.
    folder::file(&request.open.dir, &path)?;
    let (dir, name) = folder::parent(&request.open.dir, &path)?;
    dir.remove_file(name).map_err(|error| folder::classified(&dir, name, &path, &error))?;
    Ok(json!({"status": "ok", "slot": request.slot, "path": path.to_string(), "action": "deleted"}))
}

fn find(request: &Request<'_>, arguments: SearchArguments) -> Result<Json, FileError> {
    let regex = search::compiled(&arguments.pattern, false)?;
    let path = VirtualPath::in_slot(&arguments.path)?;
    let mut page = Page::new(arguments.offset, arguments.limit, SEARCH_LIMIT);
    walk(request, &request.folder(&path)?, &above(&path), 0, true, &mut |_, entry, path| {
        if matches!(entry.kind, Kind::File(_)) && regex.is_match(&search::shown(entry)) {
            page.push(|| Json::from(path));
        }
        Ok(true)
    })?;
    Ok(json!({
        "status": "ok", "slot": request.slot, "total": page.total, "offset": page.offset, "paths": page.found,
    }))
}

fn grep(request: &Request<'_>, arguments: GrepArguments) -> Result<Json, FileError> {
    let regex = search::compiled(&arguments.pattern, false)?;
    let path = VirtualPath::in_slot(&arguments.path)?;
    let system = |error: io::Error| FileError::system(&error);
    let mut page = Page::new(arguments.offset, arguments.limit, SEARCH_LIMIT);
    let (mut more, mut binary) = (false, 0_u64);
    let mut search_file = |file: File, shown: &str| -> Result<bool, FileError> {
        let mut reader = BufReader::new(file);
        if is_binary(&mut reader).map_err(system)? {
            binary += 1;
            return Ok(true);
        }
        let mut number = 0_u64;
        while let Some(line) = next_line(&mut reader).map_err(system)? {
            number += 1;
            if number.is_multiple_of(1024) {
                request.abandoned.check()?;
            }
            let text = String::from_utf8_lossy(&line.bytes);
            let text = text.trim_end_matches(['\n', '\r']);
            if !regex.is_match(text) {
                continue;
            }
            if page.is_full() {
                more = true;
                return Ok(false);
            }
            // Masked first: a part of a secret would not be recognised.
            let masked = request.files.masks.apply(text);
            let shown_text = truncate(&masked, TextLimit::Chars(limits::WORKSPACE_GREP_LINE), ELLIPSIS);
            page.push(|| json!({"path": shown, "line": number, "text": shown_text}));
        }
        Ok(true)
    };
    match folder::node(&request.open.dir, &path)? {
        Node::File(file) => {
            search_file(file, &path.to_string())?;
        }
        Node::Folder(dir) => {
            let recursive = arguments.recursive.unwrap_or(true);
            walk(request, &dir, &above(&path), 0, recursive, &mut |dir, entry, path| match entry.kind {
                Kind::File(_) => match open_file(dir, &entry.name) {
                    Ok(Some(file)) => search_file(file, path),
                    _ => Ok(true),
                },
                _ => Ok(true),
            })?;
        }
    }
    Ok(json!({
        "status": "ok", "slot": request.slot, "offset": page.offset, "more": more, "matches": page.found,
        "skipped_files": binary,
    }))
}

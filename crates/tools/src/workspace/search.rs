//! `ls`, `glob` and `grep`: they walk through folders without following links, in the order of names.

use std::io::BufReader;

use cap_fs_ext::DirExt;
use cap_std::fs::Dir;
use globset::{GlobBuilder, GlobMatcher};
use regex::{Regex, RegexBuilder};
use segue_engine::text::{escape_hidden, truncate};

use super::{
    Abandoned, Inner,
    error::FileError,
    folder::{Node, open_file},
    lines::{is_binary, next_line},
    path::{Area, VirtualPath},
};
use crate::{
    mask::Masks,
    messages::{ToolMessage, render_message},
};
use segue_base::limits;
use segue_engine::text::{ELLIPSIS, TextLimit};

/// Levels of folders that a search enters.
pub(super) const DEPTH: usize = 2 * limits::WORKSPACE_DEPTH;

pub(super) enum Kind {
    File(u64),
    Folder,
    Link,
    Other,
}

pub(super) struct Entry {
    pub(super) name: std::ffi::OsString,
    pub(super) kind: Kind,
}

/// The entries of a folder, sorted by name; at most [`limits::WORKSPACE_ENTRIES`].
pub(super) fn entries(dir: &Dir) -> Result<Vec<Entry>, FileError> {
    let mut found = Vec::new();
    let most = usize::try_from(limits::WORKSPACE_ENTRIES).unwrap_or(usize::MAX);
    for entry in dir.entries().map_err(|error| FileError::system(&error))?.take(most) {
        let entry = entry.map_err(|error| FileError::system(&error))?;
        // A command may remove it meanwhile.
        let Ok(metadata) = entry.metadata() else { continue };
        let kind = if metadata.is_symlink() {
            Kind::Link
        } else if metadata.is_dir() {
            Kind::Folder
        } else if metadata.is_file() {
            Kind::File(metadata.len())
        } else {
            Kind::Other
        };
        found.push(Entry { name: entry.file_name(), kind });
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// A name on one line, with invisible characters shown.
pub(super) fn shown(entry: &Entry) -> String {
    escape_hidden(&entry.name.to_string_lossy()).into_owned()
}

/// A text that stops growing at a limit of characters.
struct Listing {
    text: String,
    room: usize,
    cut: bool,
}

impl Listing {
    fn new(limit: usize) -> Self {
        Self { text: String::new(), room: limit, cut: false }
    }
    /// Adds a line; `false` if there is no room for it.
    fn push(&mut self, line: &str) -> bool {
        let length = line.chars().count() + 1;
        if self.cut || length > self.room {
            self.cut = true;
            return false;
        }
        self.room -= length;
        self.text.push_str(line);
        self.text.push('\n');
        true
    }
}

/// The tree of a folder, two levels deep.
pub(super) fn list(inner: &Inner, path: &VirtualPath, abandoned: &Abandoned) -> Result<String, FileError> {
    let folder = inner.opened()?;
    let end = render_message(ToolMessage::ListMore, &[]);
    let mut listing = Listing::new(limits::WORKSPACE_LIST - end.chars().count() - 1);
    listing.push(&path.to_string());
    match path.area() {
        Some(_) => tree(&inner.masks, &folder.folder(path)?, 1, &mut listing, abandoned)?,
        None => {
            for area in Area::ALL {
                listing.push(&format!("  {}/", area.as_str()));
                tree(&inner.masks, folder.area(area), 2, &mut listing, abandoned)?;
            }
        }
    }
    let is_empty = path.area().is_some() && listing.text.lines().count() == 1 && !listing.cut;
    Ok(if is_empty {
        render_message(ToolMessage::ListEmpty, &[])
    } else if listing.cut {
        listing.text + &end
    } else {
        listing.text.trim_end().to_owned()
    })
}

fn tree(masks: &Masks, dir: &Dir, level: usize, listing: &mut Listing, abandoned: &Abandoned) -> Result<(), FileError> {
    abandoned.check()?;
    for entry in entries(dir)? {
        let name = masks.apply(&shown(&entry));
        let indent = "  ".repeat(level);
        let line = match entry.kind {
            Kind::File(bytes) => {
                format!("{indent}{name} {}", render_message(ToolMessage::ListSize, &[("bytes", &bytes)]))
            }
            Kind::Folder => format!("{indent}{name}/"),
            Kind::Link => format!("{indent}{name} {}", render_message(ToolMessage::ListLink, &[])),
            Kind::Other => format!("{indent}{name} {}", render_message(ToolMessage::ListOther, &[])),
        };
        if !listing.push(&line) {
            return Ok(());
        }
        if matches!(entry.kind, Kind::Folder)
            && level < limits::WORKSPACE_LIST_DEPTH
            && let Ok(below) = dir.open_dir_nofollow(&entry.name)
        {
            tree(masks, &below, level + 1, listing, abandoned)?;
        }
    }
    Ok(())
}

/// Calls `visit` with every regular file below a folder: the folder it is in, its name, and its path below the start. Ends early when
/// `visit` returns `false`.
fn walk(
    dir: &Dir,
    above: &str,
    depth: usize,
    abandoned: &Abandoned,
    visit: &mut dyn FnMut(&Dir, &Entry, &str) -> Result<bool, FileError>,
) -> Result<bool, FileError> {
    for entry in entries(dir)? {
        abandoned.check()?;
        let name = shown(&entry);
        let path = if above.is_empty() { name } else { format!("{above}/{name}") };
        let goes_on = match entry.kind {
            Kind::File(_) => visit(dir, &entry, &path)?,
            Kind::Folder if depth < DEPTH => match dir.open_dir_nofollow(&entry.name) {
                Ok(below) => walk(&below, &path, depth + 1, abandoned, visit)?,
                Err(_) => true,
            },
            _ => true,
        };
        if !goes_on {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Walks through the folder at `path`, or through all areas.
fn walk_from(
    inner: &Inner,
    path: &VirtualPath,
    abandoned: &Abandoned,
    visit: &mut dyn FnMut(&Dir, &Entry, &str) -> Result<bool, FileError>,
) -> Result<(), FileError> {
    let folder = inner.opened()?;
    if path.area().is_some() {
        walk(&folder.folder(path)?, "", 0, abandoned, visit)?;
        return Ok(());
    }
    for area in Area::ALL {
        if !walk(folder.area(area), area.as_str(), 0, abandoned, visit)? {
            break;
        }
    }
    Ok(())
}

fn matcher(pattern: &str) -> Result<GlobMatcher, FileError> {
    check_length(pattern)?;
    let glob = GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build();
    Ok(glob.map_err(|error| FileError::Pattern(error.kind().to_string()))?.compile_matcher())
}

fn check_length(pattern: &str) -> Result<(), FileError> {
    let limit = limits::WORKSPACE_PATTERN;
    if pattern.chars().count() > limit {
        return Err(FileError::Pattern(render_message(ToolMessage::SearchPatternLong, &[("limit", &limit)])));
    }
    Ok(())
}

/// A regular expression of a model.
pub(super) fn compiled(pattern: &str, ignore_case: bool) -> Result<Regex, FileError> {
    check_length(pattern)?;
    RegexBuilder::new(pattern)
        .case_insensitive(ignore_case)
        .size_limit(limits::WORKSPACE_COMPILED)
        .dfa_size_limit(limits::WORKSPACE_COMPILED)
        .build()
        .map_err(|error| FileError::Pattern(error.to_string()))
}

/// The files whose path below `path` matches a pattern.
pub(super) fn glob(
    inner: &Inner,
    pattern: &str,
    path: &VirtualPath,
    most: usize,
    abandoned: &Abandoned,
) -> Result<String, FileError> {
    let matcher = matcher(pattern)?;
    let mut found: Vec<String> = Vec::new();
    let mut more = false;
    walk_from(inner, path, abandoned, &mut |_, _, below| {
        if matcher.is_match(below) {
            more = found.len() == most;
            if !more {
                found.push(inner.masks.apply(&format!("{path}/{below}")));
            }
        }
        Ok(!more)
    })?;
    Ok(joined(found, more, 0))
}

/// What `grep` looks for.
pub(super) struct Grep<'a> {
    pub(super) pattern: &'a str,
    pub(super) glob: Option<&'a str>,
    pub(super) ignore_case: bool,
    pub(super) most: usize,
}

/// The lines of text files that match a regular expression.
pub(super) fn grep(
    inner: &Inner,
    search: &Grep<'_>,
    path: &VirtualPath,
    abandoned: &Abandoned,
) -> Result<String, FileError> {
    let regex = compiled(search.pattern, search.ignore_case)?;
    let filter = search.glob.map(matcher).transpose()?;
    let mut found = Matches { lines: Vec::new(), more: false, binary: 0 };
    let mut search_file = |file: cap_std::fs::File, shown: &str| -> Result<bool, FileError> {
        let failed = |error: std::io::Error| FileError::system(&error);
        let mut reader = BufReader::new(file);
        if is_binary(&mut reader).map_err(failed)? {
            found.binary += 1;
            return Ok(true);
        }
        let mut number = 0_u64;
        while let Some(line) = next_line(&mut reader).map_err(failed)? {
            number += 1;
            if number.is_multiple_of(1024) {
                abandoned.check()?;
            }
            let text = String::from_utf8_lossy(&line.bytes);
            let text = text.trim_end_matches(['\n', '\r']);
            if !regex.is_match(text) {
                continue;
            }
            if found.lines.len() == search.most {
                found.more = true;
                return Ok(false);
            }
            let line = inner.masks.apply(&format!("{shown}:{number}: {}", text.replace('\r', " ")));
            let limit = shown.chars().count() + limits::WORKSPACE_GREP_LINE;
            found.lines.push(truncate(&line, TextLimit::Chars(limit), ELLIPSIS).into_owned());
        }
        Ok(true)
    };
    let single = match path.area() {
        Some(_) => match inner.opened()?.node(path)? {
            Node::File(file) => Some(file),
            Node::Folder(_) => None,
        },
        None => None,
    };
    match single {
        Some(file) => {
            search_file(file, &path.to_string())?;
        }
        None => walk_from(inner, path, abandoned, &mut |dir, entry, below| {
            if filter.as_ref().is_some_and(|filter| !filter.is_match(below)) {
                return Ok(true);
            }
            match open_file(dir, &entry.name) {
                Ok(Some(file)) => search_file(file, &format!("{path}/{below}")),
                _ => Ok(true),
            }
        })?,
    }
    Ok(joined(found.lines, found.more, found.binary))
}

struct Matches {
    lines: Vec<String>,
    more: bool,
    /// Files that were left out because they are not text.
    binary: usize,
}

fn joined(mut lines: Vec<String>, more: bool, binary: usize) -> String {
    let count = lines.len();
    if lines.is_empty() {
        lines.push(render_message(ToolMessage::SearchNone, &[]));
    }
    if more {
        lines.push(render_message(ToolMessage::SearchMore, &[("count", &count)]));
    }
    if binary > 0 {
        lines.push(render_message(ToolMessage::SearchBinary, &[("count", &binary)]));
    }
    lines.join("\n")
}

//! Masks host paths and secrets in the results of tools.

use std::path::{Path, PathBuf};

use segue_base::secret::Secret;
use segue_engine::text::strip_hidden;

use serde_json::Value as Json;

use super::{
    FileError,
    path::{VIRTUAL_ROOT, VirtualPath},
};
use crate::{
    ToolOutcome,
    messages::{ToolMessage, render_message},
};

/// Secrets shorter than this are not masked: they would hide ordinary text.
const SHORTEST_SECRET: usize = 4;
/// Lines of secrets of several lines, such as keys, that are masked one by one.
const SHORTEST_LINE: usize = 16;
const SECRET_MARK: &str = "[secret]";
const HOST_MARK: &str = "[host path]";

/// Texts to be replaced, the longest first.
pub(super) struct Masks {
    pairs: Vec<(Secret, &'static str)>,
    longest: usize,
}

impl Masks {
    /// `root`: the folder of the run, shown as its virtual path. `hidden`: other host paths.
    pub(super) fn new(root: &Path, hidden: &[PathBuf], secrets: &[Secret]) -> Self {
        let mut pairs: Vec<(Secret, &'static str)> = Vec::new();
        for path in both_forms(root) {
            pairs.push((Secret::new(path), VIRTUAL_ROOT));
        }
        for path in hidden.iter().flat_map(|path| both_forms(path)) {
            pairs.push((Secret::new(path), HOST_MARK));
        }
        for secret in secrets {
            let whole = secret.expose().trim();
            let lines = whole.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_LINE);
            for part in std::iter::once(whole).chain(lines).filter(|part| part.len() >= SHORTEST_SECRET) {
                pairs.push((Secret::new(part), SECRET_MARK));
            }
        }
        pairs.sort_by_key(|(text, _)| std::cmp::Reverse(text.expose().len()));
        let longest = pairs.first().map_or(0, |(text, _)| text.expose().len());
        Self { pairs, longest }
    }

    /// Without a folder that has a virtual path.
    pub(super) fn hiding(hidden: &[PathBuf], secrets: &[Secret]) -> Self {
        Self::new(Path::new("/"), hidden, secrets)
    }

    /// The length of the longest text that is replaced. A text that was cut may have a part of one at its edges.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// The marks for masked texts that are more often in `new` than in `old`.
    pub(super) fn new_marks(&self, old: &str, new: &str) -> Vec<&'static str> {
        let is_used = |mark: &str| self.pairs.iter().any(|(_, used)| *used == mark);
        let is_new = |mark: &&str| new.matches(mark).count() > old.matches(mark).count();
        [SECRET_MARK, HOST_MARK].into_iter().filter(|mark| is_used(mark)).filter(is_new).collect()
    }

    /// A note for a model that is shown `masked` in place of `text`; `None` if it is not told that something is missing.
    pub(super) fn note(&self, text: &str, masked: &str) -> Option<String> {
        let marks = self.new_marks(text, masked);
        let shown = marks.iter().map(|mark| format!("`{mark}`")).collect::<Vec<_>>().join(", ");
        (!marks.is_empty()).then(|| render_message(ToolMessage::ReadMasked, &[("marks", &shown)]))
    }

    /// Checks that the mark of a masked text is not written in place of the text. `old` reads what the new text replaces.
    pub(super) fn check_marks(
        &self,
        path: &VirtualPath,
        new: &str,
        old: impl FnOnce() -> Result<Vec<u8>, FileError>,
    ) -> Result<(), FileError> {
        if self.new_marks("", new).is_empty() {
            return Ok(());
        }
        match self.new_marks(&String::from_utf8_lossy(&old()?), new).first() {
            Some(mark) => Err(FileError::Masked { path: path.clone(), mark }),
            None => Ok(()),
        }
    }

    /// Removes invisible characters, which could divide a secret, and replaces what must not be seen.
    pub(super) fn apply(&self, text: &str) -> String {
        let mut text = strip_hidden(text).into_owned();
        for (hidden, mark) in &self.pairs {
            if text.contains(hidden.expose()) {
                text = text.replace(hidden.expose(), mark);
            }
        }
        text
    }
}

impl Masks {
    /// Masks every text of an outcome that a model or a user sees.
    pub(super) fn mask_outcome(&self, mut outcome: ToolOutcome) -> ToolOutcome {
        match &mut outcome {
            ToolOutcome::Done(output) => {
                output.structured.iter_mut().chain(&mut output.content).for_each(|value| self.mask_json(value));
            }
            ToolOutcome::Failed(failure) | ToolOutcome::Unknown(failure) => {
                failure.message = self.apply(&failure.message);
            }
            ToolOutcome::Pending(_) => {}
        }
        outcome
    }

    fn mask_json(&self, value: &mut Json) {
        match value {
            Json::String(text) => *text = self.apply(text),
            Json::Array(items) => items.iter_mut().for_each(|item| self.mask_json(item)),
            Json::Object(map) => map.values_mut().for_each(|item| self.mask_json(item)),
            _ => {}
        }
    }
}

/// A path as given and with its links resolved; it need not exist yet. The root of the file system is left out: every path starts with it.
fn both_forms(path: &Path) -> Vec<String> {
    let mut forms = vec![path.to_path_buf()];
    let resolved = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        let above = above.canonicalize().ok()?;
        // Joining nothing would add a separator.
        Some(if rest.as_os_str().is_empty() { above } else { above.join(rest) })
    });
    forms.extend(resolved);
    let mut texts: Vec<String> = forms.iter().map(|form| form.to_string_lossy().into_owned()).collect();
    texts.retain(|text| text.len() > 1);
    texts.dedup();
    texts
}

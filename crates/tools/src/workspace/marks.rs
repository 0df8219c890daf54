//! The marks of masked texts in files: an agent is told that it sees them, and cannot write them in place of the text.

use super::{FileError, path::VirtualPath};
use crate::{
    mask::Masks,
    messages::{ToolMessage, render_message},
};

impl Masks {
    /// A note for a model that is shown `masked` in place of `text`; `None` if nothing is missing.
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
}

//! Why a file operation failed, with its text for models.

use super::path::{PathProblem, VIRTUAL_ROOT, VirtualPath};
use crate::{
    FailureKind, ToolFailure, ToolOutcome,
    messages::{ToolMessage, render_message},
};
use segue_base::limits;

/// Why a file operation failed. It had no effect. Its text, from [`message`](Self::message), is for models and has no host path.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[error("{}", self.message())]
pub enum FileError {
    /// The path is not allowed.
    Path {
        /// As the model wrote it, cut.
        path: String,
        /// Why.
        reason: PathProblem,
    },
    /// There is no such file or folder.
    NotFound(VirtualPath),
    /// It is not a folder.
    NotAFolder(VirtualPath),
    /// It is not a regular file.
    NotAFile(VirtualPath),
    /// It, or a folder on its way, is a symbolic link.
    Link(VirtualPath),
    /// Tools may not write there.
    ReadOnly(VirtualPath),
    /// The path must be below `outputs`.
    NotAnOutput(VirtualPath),
    /// The file exists, and the call does not say what to do with it.
    Exists(VirtualPath),
    /// There is no such folder of the mission.
    SlotUnknown {
        /// As the model wrote it.
        slot: String,
        /// Those that exist.
        known: String,
    },
    /// The folder of the mission can only be read.
    SlotReadOnly(String),
    /// The folder of the mission is missing on disk.
    SlotMissing(String),
    /// The file exists, and the agent has not read it.
    Unread(VirtualPath),
    /// The file was written since the agent read it.
    Changed(VirtualPath),
    /// The mark of a masked text would be written in place of the text.
    Masked {
        /// The file.
        path: VirtualPath,
        /// The mark.
        mark: &'static str,
    },
    /// It is not text.
    Binary(VirtualPath),
    /// The file is too large for this operation.
    FileTooLarge {
        /// The file.
        path: VirtualPath,
        /// Its size.
        bytes: u64,
        /// The most that is accepted.
        limit: u64,
    },
    /// One call writes too much.
    WriteTooLarge {
        /// What it would write.
        bytes: usize,
    },
    /// The files of the run would take too much space.
    Quota {
        /// What they would take.
        needed: u64,
        /// The most that is allowed.
        limit: u64,
    },
    /// There would be too many files and folders.
    TooManyFiles,
    /// `old_str` is empty.
    EmptyOld,
    /// `old_str` and `new_str` are the same.
    SameText,
    /// `old_str` is not in the file.
    Absent(VirtualPath),
    /// `old_str` is in the file more than once.
    Ambiguous {
        /// The file.
        path: VirtualPath,
        /// How often.
        count: usize,
    },
    /// A range of lines is not valid.
    Range,
    /// A pattern is not valid.
    Pattern(String),
    /// The workspace was removed.
    Removed,
    /// The operation was abandoned.
    Abandoned,
    /// The system refused it; the detail is for operators.
    System(String),
}

impl FileError {
    /// A short name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Path { .. } => "file.path",
            Self::NotFound(_) => "file.not_found",
            Self::NotAFolder(_) => "file.not_a_folder",
            Self::NotAFile(_) => "file.not_a_file",
            Self::Link(_) => "file.link",
            Self::ReadOnly(_) => "file.read_only",
            Self::NotAnOutput(_) => "file.not_an_output",
            Self::Exists(_) => "file.exists",
            Self::SlotUnknown { .. } => "slot.unknown",
            Self::SlotReadOnly(_) => "slot.read_only",
            Self::SlotMissing(_) => "slot.missing",
            Self::Unread(_) => "file.unread",
            Self::Changed(_) => "file.changed",
            Self::Masked { .. } => "file.masked",
            Self::Binary(_) => "file.binary",
            Self::FileTooLarge { .. } | Self::WriteTooLarge { .. } => "file.too_large",
            Self::Quota { .. } => "file.quota",
            Self::TooManyFiles => "file.too_many",
            Self::EmptyOld | Self::SameText => "file.edit",
            Self::Absent(_) => "file.absent",
            Self::Ambiguous { .. } => "file.ambiguous",
            Self::Range => "file.range",
            Self::Pattern(_) => "file.pattern",
            Self::Removed => "file.removed",
            Self::Abandoned => "file.abandoned",
            Self::System(_) => "file.system",
        }
    }

    /// The text for a model.
    pub fn message(&self) -> String {
        match self {
            Self::Path { path, reason } => {
                let word = match reason {
                    PathProblem::Empty => ToolMessage::PathEmpty,
                    PathProblem::Outside => ToolMessage::PathOutside,
                    PathProblem::NotRelative => ToolMessage::PathNotRelative,
                    PathProblem::Characters => ToolMessage::PathCharacters,
                    PathProblem::TooLong => ToolMessage::PathTooLong,
                    PathProblem::TooDeep => ToolMessage::PathTooDeep,
                };
                let (bytes, levels) = (limits::WORKSPACE_NAME, limits::WORKSPACE_DEPTH);
                render_message(word, &[("path", path), ("root", &VIRTUAL_ROOT), ("bytes", &bytes), ("levels", &levels)])
            }
            Self::NotFound(path) if path.is_in_slot() => {
                render_message(ToolMessage::SlotFileNotFound, &[("path", path)])
            }
            Self::NotFound(path) => render_message(ToolMessage::FileNotFound, &[("path", path)]),
            Self::NotAFolder(path) => render_message(ToolMessage::FileNotAFolder, &[("path", path)]),
            Self::NotAFile(path) => render_message(ToolMessage::FileNotAFile, &[("path", path)]),
            Self::Link(path) => render_message(ToolMessage::FileLink, &[("path", path)]),
            Self::ReadOnly(path) => {
                render_message(ToolMessage::FileReadOnly, &[("path", path), ("root", &VIRTUAL_ROOT)])
            }
            Self::NotAnOutput(path) => {
                render_message(ToolMessage::FileNotAnOutput, &[("path", path), ("root", &VIRTUAL_ROOT)])
            }
            Self::Exists(path) => render_message(ToolMessage::FileExists, &[("path", path)]),
            Self::SlotUnknown { slot, known } => {
                render_message(ToolMessage::SlotUnknown, &[("slot", slot), ("known", known)])
            }
            Self::SlotReadOnly(slot) => render_message(ToolMessage::SlotReadOnly, &[("slot", slot)]),
            Self::SlotMissing(slot) => render_message(ToolMessage::SlotMissing, &[("slot", slot)]),
            Self::Unread(path) => render_message(ToolMessage::FileUnread, &[("path", path)]),
            Self::Changed(path) => render_message(ToolMessage::FileChanged, &[("path", path)]),
            Self::Masked { path, mark } => render_message(ToolMessage::FileMasked, &[("path", path), ("mark", mark)]),
            Self::Binary(path) => render_message(ToolMessage::FileBinary, &[("path", path)]),
            Self::FileTooLarge { path, bytes, limit } => {
                render_message(ToolMessage::FileTooLarge, &[("path", path), ("bytes", bytes), ("limit", limit)])
            }
            Self::WriteTooLarge { bytes } => {
                render_message(ToolMessage::WriteTooLarge, &[("bytes", bytes), ("limit", &limits::WORKSPACE_WRITE)])
            }
            Self::Quota { needed, limit } => {
                render_message(ToolMessage::FileQuota, &[("needed", needed), ("limit", limit)])
            }
            Self::TooManyFiles => render_message(ToolMessage::FileTooMany, &[("limit", &limits::WORKSPACE_ENTRIES)]),
            Self::EmptyOld => render_message(ToolMessage::EditEmpty, &[]),
            Self::SameText => render_message(ToolMessage::EditSame, &[]),
            Self::Absent(path) => render_message(ToolMessage::EditAbsent, &[("path", path)]),
            Self::Ambiguous { path, count } => {
                render_message(ToolMessage::EditAmbiguous, &[("path", path), ("count", count)])
            }
            Self::Range => render_message(ToolMessage::ReadRange, &[]),
            Self::Pattern(problem) => render_message(ToolMessage::SearchPattern, &[("problem", problem)]),
            Self::Removed => render_message(ToolMessage::FileRemoved, &[]),
            Self::Abandoned => render_message(ToolMessage::Cancelled, &[]),
            Self::System(_) => render_message(ToolMessage::InternalError, &[]),
        }
    }

    /// The text for operators, which may have a host path.
    pub fn detail(&self) -> String {
        match self {
            Self::System(detail) => detail.clone(),
            other => other.message(),
        }
    }

    fn kind(&self) -> FailureKind {
        match self {
            Self::SlotUnknown { .. } => FailureKind::BadArguments,
            Self::Path { .. }
            | Self::SlotReadOnly(_)
            | Self::ReadOnly(_)
            | Self::NotAnOutput(_)
            | Self::Link(_)
            | Self::Masked { .. } => FailureKind::Refused,
            Self::Range | Self::Pattern(_) | Self::EmptyOld | Self::SameText | Self::WriteTooLarge { .. } => {
                FailureKind::BadArguments
            }
            Self::Removed | Self::SlotMissing(_) => FailureKind::Unavailable,
            Self::Abandoned => FailureKind::Cancelled,
            _ => FailureKind::ToolError,
        }
    }

    /// The outcome of the call.
    pub(super) fn into_outcome(self) -> ToolOutcome {
        let mut failure = ToolFailure::new(self.kind(), self.message());
        failure.code = Some(self.code().to_owned());
        if let Self::System(detail) = &self {
            tracing::warn!(detail, "a file operation in a workspace failed");
            failure.detail = Some(detail.clone());
        }
        ToolOutcome::Failed(failure)
    }

    /// A failure of the system.
    pub(super) fn system(error: &std::io::Error) -> Self {
        Self::System(error.to_string())
    }
}

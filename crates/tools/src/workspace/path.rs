//! The paths that models use: `/mnt/user-data/workspace/…`, `/mnt/user-data/uploads/…`, `/mnt/user-data/outputs/…`, and relative ones,
//! which start in `workspace`.
//!
//! They are resolved as text, without the file system: `..` removes a name, and a path that ends outside the three folders is refused.
//! This is right because symbolic links are never followed.

use std::fmt;

use segue_base::limits;
use segue_engine::text::strip_hidden;

use super::error::FileError;

/// The folder above the three areas, as models see it.
pub const VIRTUAL_ROOT: &str = "/mnt/user-data";
const ROOT_NAMES: [&str; 2] = ["mnt", "user-data"];

/// One of the three folders of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Area {
    /// The folder in which agents work.
    Workspace,
    /// Files of the user; tools cannot change them.
    Uploads,
    /// Results for the user.
    Outputs,
}

impl Area {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Workspace, Self::Uploads, Self::Outputs];

    /// Its name, both in virtual paths and on disk.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Uploads => "uploads",
            Self::Outputs => "outputs",
        }
    }

    /// Whether tools may write into it.
    pub fn is_writable(self) -> bool {
        self != Self::Uploads
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|area| area.as_str() == name)
    }
}

/// A path within a workspace or within a folder of a mission. It never leads out of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VirtualPath {
    base: Base,
    names: Vec<String>,
}

/// Where a path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Base {
    /// In the folder above the areas of a workspace.
    AboveAreas,
    /// In an area.
    Area(Area),
    /// In a folder of a mission.
    Slot,
}

impl VirtualPath {
    /// Reads the path that a model wrote.
    ///
    /// # Errors
    /// [`FileError::Path`]: it leads out of the workspace, has characters that are not allowed, or is too long.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        let refused = |reason| Err(FileError::Path { path: shown(text), reason });
        if text.trim().is_empty() {
            return refused(PathProblem::Empty);
        }
        check_text(text)?;
        if text.starts_with('~') {
            return refused(PathProblem::Outside);
        }
        let mut names: Vec<&str> = if text.starts_with('/') {
            Vec::new()
        } else {
            ROOT_NAMES.into_iter().chain([Area::Workspace.as_str()]).collect()
        };
        follow(text, &mut names, PathProblem::Outside)?;
        let Some(below) = names.strip_prefix(&ROOT_NAMES) else { return refused(PathProblem::Outside) };
        let Some((area, names)) = below.split_first() else {
            return Ok(Self { base: Base::AboveAreas, names: Vec::new() });
        };
        let Some(area) = Area::from_name(area) else { return refused(PathProblem::Outside) };
        if names.len() > limits::WORKSPACE_DEPTH {
            return refused(PathProblem::TooDeep);
        }
        Ok(Self { base: Base::Area(area), names: names.iter().map(|name| (*name).to_owned()).collect() })
    }

    /// The path of a file of the user with this name.
    ///
    /// # Errors
    /// [`FileError::Path`]: it is not one name, has characters that are not allowed, or is too long.
    pub fn of_upload(name: &str) -> Result<Self, FileError> {
        let path = Self::parse(&format!("{VIRTUAL_ROOT}/{}/{name}", Area::Uploads.as_str()))?;
        if path.area() != Some(Area::Uploads) || path.names().len() != 1 {
            return Err(FileError::Path { path: shown(name), reason: PathProblem::Empty });
        }
        Ok(path)
    }

    /// Reads the path that a model wrote for a folder of a mission; an empty one is the folder itself.
    ///
    /// # Errors
    /// [`FileError::Path`]: it is absolute, leads out of the folder, has characters that are not allowed, or is too long.
    pub fn in_slot(text: &str) -> Result<Self, FileError> {
        check_text(text)?;
        let refused = |reason| Err(FileError::Path { path: shown(text), reason });
        if text.starts_with(['/', '~']) {
            return refused(PathProblem::NotRelative);
        }
        let mut names = Vec::new();
        follow(text, &mut names, PathProblem::NotRelative)?;
        if names.len() > limits::WORKSPACE_DEPTH {
            return refused(PathProblem::TooDeep);
        }
        Ok(Self { base: Base::Slot, names: names.into_iter().map(str::to_owned).collect() })
    }

    /// An area itself.
    pub fn of(area: Area) -> Self {
        Self { base: Base::Area(area), names: Vec::new() }
    }

    /// Its area; `None` for the folder above the areas, and in a folder of a mission.
    pub fn area(&self) -> Option<Area> {
        match self.base {
            Base::Area(area) => Some(area),
            Base::AboveAreas | Base::Slot => None,
        }
    }

    /// Whether it is in a folder of a mission.
    pub(super) fn is_in_slot(&self) -> bool {
        self.base == Base::Slot
    }

    /// The names below the area or folder.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

impl fmt::Display for VirtualPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.base {
            Base::Slot if self.names.is_empty() => return f.write_str("."),
            Base::Slot => return f.write_str(&self.names.join("/")),
            Base::AboveAreas => f.write_str(VIRTUAL_ROOT)?,
            Base::Area(area) => write!(f, "{VIRTUAL_ROOT}/{}", area.as_str())?,
        }
        self.names.iter().try_for_each(|name| write!(f, "/{name}"))
    }
}

/// Why a path is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathProblem {
    /// It is empty.
    Empty,
    /// It leads out of the three folders.
    Outside,
    /// It must be relative and stay in its folder.
    NotRelative,
    /// It has characters that are not allowed: controls, invisible ones, backslashes.
    Characters,
    /// It, or a name in it, is too long.
    TooLong,
    /// It has more levels than [`limits::WORKSPACE_DEPTH`].
    TooDeep,
}

/// Checks the length and the characters of a path.
fn check_text(text: &str) -> Result<(), FileError> {
    let refused = |reason| Err(FileError::Path { path: shown(text), reason });
    if text.len() > limits::WORKSPACE_PATH {
        return refused(PathProblem::TooLong);
    }
    if text.chars().any(is_refused) || strip_hidden(text) != text {
        return refused(PathProblem::Characters);
    }
    Ok(())
}

/// Adds the names of a path to those of the folder in which it begins; `..` removes one.
fn follow<'t>(text: &'t str, names: &mut Vec<&'t str>, outside: PathProblem) -> Result<(), FileError> {
    let refused = |reason| Err(FileError::Path { path: shown(text), reason });
    for name in text.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                if names.pop().is_none() {
                    return refused(outside);
                }
            }
            name if name.len() > limits::WORKSPACE_NAME => return refused(PathProblem::TooLong),
            name if cfg!(windows) && name.ends_with(['.', ' ']) => return refused(PathProblem::Characters),
            name => names.push(name),
        }
    }
    Ok(())
}

fn is_refused(c: char) -> bool {
    c.is_control() || c == '\\' || (cfg!(windows) && matches!(c, ':' | '<' | '>' | '"' | '|' | '?' | '*'))
}

/// A path as it may be shown in a message: one short line.
fn shown(text: &str) -> String {
    let text = segue_engine::text::escape_hidden(text);
    text.chars().take(200).collect()
}

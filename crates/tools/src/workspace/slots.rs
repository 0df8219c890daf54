//! The folders of missions, which their tools call slots: `memory`, `scratchpad`, shared folders, and read-only packets of the project.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use cap_std::{ambient_authority, fs::Dir};
use segue_base::{limits, secret::Secret};

use super::{
    error::FileError,
    folder::{Writer, create_private, open_or_create},
    path::VirtualPath,
    run_folder,
};
use crate::mask::Masks;

/// The name of the folder that lasts from run to run.
const MEMORY: &str = "memory";
/// The name of the folder of one run, in the folder of the run.
pub const SCRATCHPAD: &str = "scratchpad";

/// The folders of a mission. Cheap to clone.
#[derive(Clone)]
pub struct Slots {
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    slots: Vec<Slot>,
    /// Below it are the folders, as `.segue` of the project.
    base: PathBuf,
    /// The folder that contains those of runs.
    runs: PathBuf,
    project: PathBuf,
    pub(super) max_bytes: u64,
    pub(super) masks: Masks,
}

/// Where the folders of missions are, and what they may take.
#[derive(Clone, Debug)]
pub struct SlotSettings {
    /// The folder of the project.
    pub project: PathBuf,
    /// The folder that contains those of runs.
    pub runs: PathBuf,
    /// Bytes that the files of one folder may have.
    pub max_bytes: u64,
    /// Values that are masked in results.
    pub secrets: Vec<Secret>,
}

/// One folder.
#[derive(Clone, Debug)]
pub struct Slot {
    /// Its name, as models see it.
    pub name: Arc<str>,
    /// What it is for; may be empty.
    pub description: Arc<str>,
    place: SlotPlace,
}

#[derive(Clone, Debug)]
enum SlotPlace {
    /// Of all runs of a mission.
    Memory { mission: Arc<str> },
    /// Of one run.
    Scratchpad,
    /// Of all missions.
    Shared,
    /// A folder of the project, as names of folders.
    Packet { path: Vec<String> },
}

impl Slot {
    /// The folder `memory` of a mission, which lasts from run to run.
    pub fn memory(mission: impl Into<Arc<str>>, description: impl Into<Arc<str>>) -> Self {
        Self::of(MEMORY, description, SlotPlace::Memory { mission: mission.into() })
    }
    /// The folder `scratchpad` of the run that calls.
    pub fn scratchpad() -> Self {
        Self::of(SCRATCHPAD, "", SlotPlace::Scratchpad)
    }
    /// A folder that lasts and that several missions share.
    pub fn shared(name: impl Into<Arc<str>>, description: impl Into<Arc<str>>) -> Self {
        Self::of(name, description, SlotPlace::Shared)
    }
    /// A folder of the project that can only be read, as `packet.<name>`. `path` is relative and has no `..`.
    pub fn packet(name: &str, path: &str, description: impl Into<Arc<str>>) -> Self {
        let path = path.split('/').map(str::to_owned).collect();
        Self::of(format!("packet.{name}"), description, SlotPlace::Packet { path })
    }
    fn of(name: impl Into<Arc<str>>, description: impl Into<Arc<str>>, place: SlotPlace) -> Self {
        Self { name: name.into(), description: description.into(), place }
    }

    /// Whether tools can change its files.
    pub fn is_writable(&self) -> bool {
        !matches!(self.place, SlotPlace::Packet { .. })
    }
    /// The key of the text that says how long it lasts.
    pub(super) fn kind(&self) -> &'static str {
        match self.place {
            SlotPlace::Memory { .. } => MEMORY,
            SlotPlace::Scratchpad => SCRATCHPAD,
            SlotPlace::Shared => "shared",
            SlotPlace::Packet { .. } => "packet",
        }
    }
}

/// An open folder.
pub(super) struct OpenSlot {
    pub(super) dir: Dir,
    /// `None` if it can only be read.
    pub(super) writer: Option<Writer>,
}

impl Slots {
    /// These folders.
    pub fn new(slots: Vec<Slot>, settings: SlotSettings) -> Self {
        let project = std::path::absolute(&settings.project).unwrap_or(settings.project);
        let masks = Masks::hiding(std::slice::from_ref(&project), &settings.secrets);
        let inner = Inner {
            slots,
            base: project.join(".segue"),
            runs: settings.runs,
            project,
            max_bytes: settings.max_bytes,
            masks,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The folders.
    pub fn all(&self) -> &[Slot] {
        &self.inner.slots
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.inner.slots.iter().map(|slot| &slot.name)).finish()
    }
}

impl Inner {
    /// Finds and opens the folder of this name for a run. One that can be written is created if it is missing.
    pub(super) fn open(&self, name: &str, run: &str) -> Result<OpenSlot, FileError> {
        let Some(slot) = self.slots.iter().find(|slot| *slot.name == *name) else {
            let known: Vec<&str> = self.slots.iter().map(|slot| &*slot.name).collect();
            let slot = name.chars().take(limits::WORKSPACE_NAME).collect();
            return Err(FileError::SlotUnknown { slot, known: known.join(", ") });
        };
        match &slot.place {
            SlotPlace::Memory { mission } => writable(&self.base.join("missions").join(&**mission), MEMORY),
            SlotPlace::Scratchpad => writable(&self.runs.join(run_folder(run)?), SCRATCHPAD),
            SlotPlace::Shared => writable(&self.base.join("shared").join(&*slot.name), "files"),
            SlotPlace::Packet { path } => self.packet(path).map_err(|error| {
                tracing::warn!(slot = %slot.name, %error, "a packet of a mission cannot be opened");
                FileError::SlotMissing(slot.name.to_string())
            }),
        }
    }

    /// Opens a folder of the project, one name at a time and without following links.
    fn packet(&self, path: &[String]) -> Result<OpenSlot, FileError> {
        let root =
            Dir::open_ambient_dir(&self.project, ambient_authority()).map_err(|error| FileError::system(&error))?;
        let dir = super::folder::folder(&root, &VirtualPath::in_slot(&path.join("/"))?)?;
        Ok(OpenSlot { dir, writer: None })
    }
}

fn writable(parent: &Path, name: &str) -> Result<OpenSlot, FileError> {
    let open = || -> io::Result<(Dir, Writer)> {
        create_private(parent)?;
        let parent = Dir::open_ambient_dir(parent, ambient_authority())?;
        Ok((open_or_create(&parent, name)?, Writer::open(&parent)?))
    };
    let (dir, writer) = open().map_err(|error| FileError::system(&error))?;
    Ok(OpenSlot { dir, writer: Some(writer) })
}

//! Copies the files of a run into the folder of another one: a rerun goes on with them.

use std::{
    io::{self, ErrorKind, Read},
    path::Path,
};

use cap_fs_ext::DirExt;
use cap_std::{
    ambient_authority,
    fs::{Dir, Permissions},
};

use super::{
    FileError,
    folder::{Usage, create_private, create_private_in, open_file, open_or_create, private_file},
    path::Area,
    remove::remove_folder,
    slots::SCRATCHPAD,
};
use segue_base::limits;

/// Copies the areas of a workspace and the scratchpad. Links and other special files are left out. If there is more than a workspace may
/// have, nothing is left in the target. Returns what was copied.
pub(super) fn copy_run(from: &Path, to: &Path, max_bytes: u64) -> Result<Usage, FileError> {
    let source = match Dir::open_ambient_dir(from, ambient_authority()) {
        Ok(source) => source,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Usage::default()),
        Err(error) => return Err(FileError::system(&error)),
    };
    let copied = copy_all(&source, to, max_bytes);
    if copied.is_err()
        && let Err(error) = remove_folder(to)
    {
        tracing::warn!(%error, "files that were copied in part stay");
    }
    copied
}

fn copy_all(source: &Dir, to: &Path, max_bytes: u64) -> Result<Usage, FileError> {
    let failed = |error: io::Error| FileError::system(&error);
    create_private(to).map_err(failed)?;
    let target = Dir::open_ambient_dir(to, ambient_authority()).map_err(failed)?;
    // The scratchpad has a limit of its own.
    let mut usages = [Usage::default(); 2];
    for name in Area::ALL.map(Area::as_str).into_iter().chain([SCRATCHPAD]) {
        let Ok(from) = source.open_dir_nofollow(name) else { continue };
        let to = open_or_create(&target, name).map_err(failed)?;
        let [workspace, scratchpad] = &mut usages;
        let usage = if name == SCRATCHPAD { scratchpad } else { workspace };
        copy(&from, &to, 0, usage, max_bytes)?;
    }
    let [workspace, scratchpad] = usages;
    let entries = workspace.entries + scratchpad.entries;
    Ok(Usage { bytes: workspace.bytes + scratchpad.bytes, entries, too_deep: false })
}

fn copy(from: &Dir, to: &Dir, depth: usize, usage: &mut Usage, max_bytes: u64) -> Result<(), FileError> {
    let failed = |error: io::Error| FileError::system(&error);
    if depth > limits::WORKSPACE_DEPTH {
        return Err(FileError::TooManyFiles);
    }
    for entry in from.entries().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let metadata = entry.metadata().map_err(failed)?;
        usage.entries += 1;
        if usage.entries > limits::WORKSPACE_ENTRIES {
            return Err(FileError::TooManyFiles);
        }
        if metadata.is_dir() {
            create_private_in(to, &name).map_err(failed)?;
            let below = from.open_dir_nofollow(&name).map_err(failed)?;
            copy(&below, &to.open_dir_nofollow(&name).map_err(failed)?, depth + 1, usage, max_bytes)?;
            continue;
        }
        // What is no regular file is left out.
        let Some(file) = open_file(from, &name).map_err(failed)? else { continue };
        let permissions = private(file.metadata().map_err(failed)?.permissions());
        let mut created = to.open_with(&name, private_file().create_new(true)).map_err(failed)?;
        let left = max_bytes.saturating_sub(usage.bytes);
        usage.bytes += io::copy(&mut file.take(left.saturating_add(1)), &mut created).map_err(failed)?;
        if usage.bytes > max_bytes {
            return Err(FileError::Quota { needed: usage.bytes, limit: max_bytes });
        }
        // A script stays executable.
        created.set_permissions(permissions).map_err(failed)?;
    }
    Ok(())
}

/// Those of the owner alone.
#[cfg(unix)]
fn private(permissions: Permissions) -> Permissions {
    use cap_std::fs::PermissionsExt;
    Permissions::from_mode(permissions.mode() & 0o700)
}

/// Elsewhere they stay.
#[cfg(not(unix))]
fn private(permissions: Permissions) -> Permissions {
    permissions
}

//! Removes folders. A command can nest folders deeper than files can be open at once, so no level stays open while the next one is emptied.

use std::{
    ffi::{OsStr, OsString},
    io::{self, ErrorKind},
    path::Path,
};

use cap_fs_ext::DirExt;
use cap_std::{
    ambient_authority,
    fs::{Dir, DirEntry},
};

/// Entries of a folder that are read before they are removed.
const BATCH: usize = 1_000;

/// Removes a folder with all that is in it, whatever its depth. A link is removed itself, and a folder that does not exist is no error.
/// Blocks the thread. After an error a part may be gone, and the next call goes on.
///
/// # Errors
/// The system cannot remove it; the text names the path.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    match removed(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(io::Error::new(error.kind(), format!("{} cannot be removed: {error}", path.display())))
        }
        _ => Ok(()),
    }
}

fn removed(path: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(ErrorKind::InvalidInput.into());
    };
    remove_entry(&Dir::open_ambient_dir(above, ambient_authority())?, name)
}

/// As [`remove_folder`], for the entry `name` of an open folder.
pub(super) fn remove_entry(parent: &Dir, name: &OsStr) -> io::Result<()> {
    if !parent.symlink_metadata(name)?.is_dir() {
        return parent.remove_file_or_symlink(name);
    }
    unlock(parent, name)?;
    empty(&parent.open_dir_nofollow(name)?)?;
    parent.remove_dir(name)
}

/// Removes all that is in a folder. The folders in its folders are moved to its top, where they are emptied in the same way: at most two
/// are open at once.
fn empty(top: &Dir) -> io::Result<()> {
    let mut moved = 0_u64;
    loop {
        let entries = entries(top)?;
        if entries.is_empty() {
            return Ok(());
        }
        for (name, is_folder) in entries {
            if is_folder {
                flatten(top, &name, &mut moved)?;
            } else {
                top.remove_file_or_symlink(&name)?;
            }
        }
    }
}

/// Removes the folder `name` of `top`, and moves the folders in it to `top`. `moved` counts them.
fn flatten(top: &Dir, name: &OsStr, moved: &mut u64) -> io::Result<()> {
    unlock(top, name)?;
    let folder = top.open_dir_nofollow(name)?;
    loop {
        let entries = entries(&folder)?;
        if entries.is_empty() {
            break;
        }
        for (name, is_folder) in entries {
            if is_folder {
                unlock(&folder, &name)?;
                move_up(&folder, &name, top, moved)?;
            } else {
                folder.remove_file_or_symlink(&name)?;
            }
        }
    }
    drop(folder);
    top.remove_dir(name)
}

fn move_up(folder: &Dir, name: &OsStr, top: &Dir, moved: &mut u64) -> io::Result<()> {
    use ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotADirectory};
    loop {
        *moved += 1;
        match folder.rename(name, top, format!("removed-{moved}")) {
            // Something has this name already.
            Err(error) if matches!(error.kind(), AlreadyExists | DirectoryNotEmpty | NotADirectory) => {}
            done => return done,
        }
    }
}

/// Lets the owner change a folder whose permissions a command has taken away.
fn unlock(parent: &Dir, name: &OsStr) -> io::Result<()> {
    #[cfg(unix)]
    {
        use cap_std::fs::PermissionsExt;

        let mut permissions = parent.symlink_metadata(name)?.permissions();
        let mode = permissions.mode();
        if mode & 0o700 != 0o700 {
            permissions.set_mode(mode | 0o700);
            return parent.set_permissions(name, permissions);
        }
    }
    Ok(())
}

/// Some entries of a folder, and which of them are folders.
fn entries(folder: &Dir) -> io::Result<Vec<(OsString, bool)>> {
    let described = |entry: io::Result<DirEntry>| {
        let entry = entry?;
        Ok((entry.file_name(), entry.file_type()?.is_dir()))
    };
    folder.entries()?.take(BATCH).map(described).collect()
}

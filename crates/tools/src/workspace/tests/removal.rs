//! Tests: the removal of folders.

use super::*;

/// Makes folders in one another, of which no path is as long as a path may be, with a file in the last one.
fn nest(top: &Path, levels: usize) {
    use cap_fs_ext::DirExt;

    let mut folder = cap_std::fs::Dir::open_ambient_dir(top, cap_std::ambient_authority()).unwrap();
    // Names that the removal uses itself.
    folder.create_dir_all("removed-1/removed-1/x").unwrap();
    folder.write("removed-2", "x").unwrap();
    for _ in 0..levels {
        folder.create_dir("d").unwrap();
        folder = folder.open_dir_nofollow("d").unwrap();
    }
    folder.write("private", "x").unwrap();
}

#[tokio::test]
async fn folders_of_any_depth_are_removed_and_links_are_not_followed() {
    let fixture = Fixture::new();
    done(fixture.agent().write("a/b", "x").await);
    let kept = fixture.folder.path().join("kept");
    std::fs::create_dir(&kept).unwrap();
    std::fs::write(kept.join("a"), "x").unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::{PermissionsExt, symlink};

        symlink(&kept, fixture.on_host("workspace/link")).unwrap();
        symlink(&kept, fixture.folder.path().join("link")).unwrap();
        std::fs::set_permissions(fixture.on_host("workspace/a"), std::fs::Permissions::from_mode(0o000)).unwrap();
        remove_folder(&fixture.folder.path().join("link")).unwrap();
    }
    nest(&fixture.on_host("workspace"), 1_000);
    let run = fixture.workspace.folder().to_path_buf();
    // On a stack on which a function cannot call itself for each level.
    let small = std::thread::Builder::new().stack_size(128 * 1024).spawn(move || remove_folder(&run).unwrap());
    small.unwrap().join().unwrap();
    assert_eq!(tree(fixture.folder.path()), [kept.clone(), kept.join("a")]);
    remove_folder(&fixture.folder.path().join("missing")).unwrap();
    let error = remove_folder(Path::new("/dev/null/x")).unwrap_err();
    assert!(error.to_string().starts_with("/dev/null/x cannot be removed: "), "{error}");
}

//! Places of one machine: paths that exist nowhere else, and addresses of package registries in lock files.

use super::{Breach, Breaches, Tree};
use crate::scan::is_test_path;

/// Paths that no file may name. Put together here, so that this file does not hold them itself.
const NOWHERE: [&str; 2] = [concat!("/", "work/"), concat!("/", "root/")];
/// A path that only tests may name.
const SCRATCH: &str = concat!("/", "tmp/");

pub fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Breaches::new("paths");
    for (path, text) in &tree.texts {
        let in_test = |line: usize| is_test_path(path) || tree.rust.get(path).is_some_and(|scan| scan.in_test(line));
        for (index, line) in text.lines().enumerate() {
            for place in NOWHERE.iter().filter(|place| names(line, place)) {
                breaches.add(path, index + 1, format!("`{place}` is a place of one machine"));
            }
            if names(line, SCRATCH) && !in_test(index + 1) {
                breaches.add(
                    path,
                    index + 1,
                    format!("`{SCRATCH}` outside tests: ask the system for its scratch folder"),
                );
            }
        }
        if path.ends_with("package-lock.json") {
            for (index, _) in text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("\"resolved\""))
            {
                breaches.add(
                    path,
                    index + 1,
                    "a lock file names versions and hashes, no registry: take `resolved` away",
                );
            }
        }
        if path.rsplit('/').next().is_some_and(|name| name.starts_with("requirements") && name.ends_with(".txt")) {
            for (index, _) in text.lines().enumerate().filter(|(_, line)| line.contains("://") || line.contains("-url"))
            {
                breaches.add(path, index + 1, "requirements name packages and versions, no registry");
            }
        }
    }
    breaches.found
}

/// Whether a line names a path that starts with `place`; the same letters inside a longer path or address are fine.
fn names(line: &str, place: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || "._-~}>)*/".contains(c);
    line.match_indices(place).any(|(start, _)| !line[..start].ends_with(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|breach| breach.line).collect()
    }

    #[test]
    fn no_place_of_one_machine() {
        let text = format!("a {}x\nhttps://example.org{}y\n\"{}z\"\n", NOWHERE[0], NOWHERE[0], NOWHERE[1]);
        assert_eq!(lines("docs/a.md", &text), [1, 3]);
        assert_eq!(lines("tests/it/a.rs", &text), [1, 3]);
    }

    #[test]
    fn scratch_is_for_tests() {
        let text = format!("let a = \"{SCRATCH}x\";\n#[test]\nfn t() {{ let b = \"{SCRATCH}y\"; }}\n");
        assert_eq!(lines("src/a.rs", &text), [1]);
        assert_eq!(lines("tests/it/a.rs", &text), [0_usize; 0]);
    }

    #[test]
    fn lock_files_name_no_registry() {
        assert_eq!(lines("tests/foreign/package-lock.json", "{\n  \"resolved\": \"https://example.org\"\n}"), [2]);
        assert_eq!(lines("tests/foreign/requirements.txt", "--index-url https://example.org\nmcp==1.0.0\n"), [1]);
    }
}

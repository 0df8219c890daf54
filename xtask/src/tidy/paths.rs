//! The rule `paths`: no file contains a path that exists on one machine only, or the address of a package registry in a lock file.

use super::{Tree, Violation, Violations};
use crate::rust_source::is_test_path;

/// Paths that no file may contain. They are concatenated, so that this file does not contain them.
const MACHINE_PATHS: [&str; 2] = [concat!("/", "work/"), concat!("/", "root/")];
/// A path that only tests may contain.
const TEMP_DIR: &str = concat!("/", "tmp/");

pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Violations::new("paths");
    for (path, text) in &tree.texts {
        let in_test =
            |line: usize| is_test_path(path) || tree.rust.get(path).is_some_and(|source| source.in_test(line));
        for (index, line) in text.lines().enumerate() {
            for machine_path in MACHINE_PATHS.iter().filter(|machine_path| has_path(line, machine_path)) {
                violations.add(path, index + 1, format!("`{machine_path}` is a path of one machine"));
            }
            if has_path(line, TEMP_DIR) && !in_test(index + 1) {
                violations.add(path, index + 1, format!("`{TEMP_DIR}` outside tests: use `std::env::temp_dir`"));
            }
        }
        if path.ends_with("package-lock.json") {
            for (index, _) in text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("\"resolved\""))
            {
                violations.add(
                    path,
                    index + 1,
                    "a lock file contains versions and hashes, no address of a registry: delete `resolved`",
                );
            }
        }
        if path.rsplit('/').next().is_some_and(|name| name.starts_with("requirements") && name.ends_with(".txt")) {
            for (index, _) in text.lines().enumerate().filter(|(_, line)| line.contains("://") || line.contains("-url"))
            {
                violations.add(
                    path,
                    index + 1,
                    "a requirements file contains packages and versions, no address of a registry",
                );
            }
        }
    }
    violations.items
}

/// Whether a line contains a path that starts with `start`. The same characters inside a longer path or URL do not count.
fn has_path(line: &str, start: &str) -> bool {
    let is_path_char = |c: char| c.is_alphanumeric() || "._-~}>)*/".contains(c);
    line.match_indices(start).any(|(index, _)| !line[..index].ends_with(is_path_char))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn path_of_one_machine_is_reported() {
        let text =
            format!("a {}x\nhttps://example.org{}y\n\"{}z\"\n", MACHINE_PATHS[0], MACHINE_PATHS[0], MACHINE_PATHS[1]);
        assert_eq!(lines("docs/a.md", &text), [1, 3]);
        assert_eq!(lines("tests/it/a.rs", &text), [1, 3]);
    }

    #[test]
    fn temporary_folder_outside_tests_is_reported() {
        let text = format!("let a = \"{TEMP_DIR}x\";\n#[test]\nfn t() {{ let b = \"{TEMP_DIR}y\"; }}\n");
        assert_eq!(lines("src/a.rs", &text), [1]);
        assert_eq!(lines("tests/it/a.rs", &text), [0_usize; 0]);
    }

    #[test]
    fn registry_address_in_a_lock_file_is_reported() {
        assert_eq!(lines("tests/interop/package-lock.json", "{\n  \"resolved\": \"https://example.org\"\n}"), [2]);
        assert_eq!(lines("tests/interop/requirements.txt", "--index-url https://example.org\nmcp==1.0.0\n"), [1]);
    }
}

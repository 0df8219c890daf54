//! The rule `words`: no file contains a word or reference of the list `xtask/words.txt`.

use super::{Tree, Violation, Violations};

const LIST: &str = "xtask/words.txt";
/// Folders that are not checked: projects in the words of other authors, the measured project, recordings, and the prompts, on whose exact words the
/// recordings depend.
const EXEMPT: [&str; 5] =
    ["tests/projects/", "tests/cassettes/", "crates/engine/tests/projects/", "benches/project/", "prompts/"];

/// An entry of the list.
struct ForbiddenWord<'a> {
    text: &'a str,
    /// Whether every word that starts with `text` is forbidden.
    is_prefix: bool,
    replacement: &'a str,
}

pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Violations::new("words");
    let words: Vec<ForbiddenWord<'_>> =
        tree.texts.get(LIST).map_or("", String::as_str).lines().filter_map(word).collect();
    for (path, text) in &tree.texts {
        let is_data = path.ends_with(".lock") || path.ends_with(".svg") || path == "LICENSE" || path == LIST;
        if is_data || EXEMPT.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            let line = line.to_lowercase();
            for word in words.iter().filter(|word| contains(&line, word)) {
                violations.add(path, index + 1, format!("`{}`: write `{}`", word.text, word.replacement));
            }
        }
    }
    violations.items
}

/// Reads a line of the list; `None` for comments and empty lines.
fn word(line: &str) -> Option<ForbiddenWord<'_>> {
    let (text, replacement) = line.split_once(" = ").filter(|_| !line.starts_with('#'))?;
    let prefix = text.strip_suffix('*');
    Some(ForbiddenWord { text: prefix.unwrap_or(text), is_prefix: prefix.is_some(), replacement })
}

/// Whether a line in lower case contains the word as a whole word, or as the start of one if it is a prefix.
fn contains(line: &str, word: &ForbiddenWord<'_>) -> bool {
    let is_word_char = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '/');
    line.match_indices(word.text).any(|(start, _)| {
        let (before, after) = (&line[..start], &line[start + word.text.len()..]);
        let ends = word.is_prefix || !after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        !before.ends_with(is_word_char) && ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let list = "# a comment = no word\ngrand hall = runtime\nglimm* = fix\nold.md = docs\n";
        check(&Tree::of(&[(LIST, list), (path, text)])).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn listed_word_is_reported_in_any_case() {
        assert_eq!(lines("src/a.rs", "// The Grand Hall.\n// Halls are grand.\n// It is glimmed.\n"), [1, 3]);
        assert_eq!(lines("docs/a.md", "unglimm aglimms\nsee old.md 3\n[old](../x/old.md)\n"), [2]);
    }

    #[test]
    fn exempt_folders_and_lock_files_are_not_checked() {
        assert_eq!(lines("tests/projects/a/domain.yml", "glimm"), [0_usize; 0]);
        assert_eq!(lines("Cargo.lock", "glimm"), [0_usize; 0]);
    }
}

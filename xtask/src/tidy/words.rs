//! Words and references that no file may contain: the list is `xtask/words.txt`.

use super::{Breach, Breaches, Tree};

const LIST: &str = "xtask/words.txt";
/// Folders with texts of other programs and projects; and the prompts, since recordings depend on their exact words.
const EXEMPT: [&str; 5] =
    ["tests/foreign/", "tests/projects/", "tests/cassettes/", "crates/engine/tests/projects/", "prompts/"];

struct Word<'a> {
    text: &'a str,
    is_prefix: bool,
    instead: &'a str,
}

pub fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Breaches::new("words");
    let words: Vec<Word<'_>> = tree.texts.get(LIST).map_or("", String::as_str).lines().filter_map(word).collect();
    for (path, text) in &tree.texts {
        let is_data = path.ends_with(".lock") || path.ends_with(".svg") || path == "LICENSE" || path == LIST;
        if is_data || EXEMPT.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            let line = line.to_lowercase();
            for word in words.iter().filter(|word| contains(&line, word)) {
                breaches.add(path, index + 1, format!("`{}`: write `{}`", word.text, word.instead));
            }
        }
    }
    breaches.found
}

/// A line of the list; `None` for comments and empty lines.
fn word(line: &str) -> Option<Word<'_>> {
    let (text, instead) = line.split_once(" = ").filter(|_| !line.starts_with('#'))?;
    let prefix = text.strip_suffix('*');
    Some(Word { text: prefix.unwrap_or(text), is_prefix: prefix.is_some(), instead })
}

fn contains(line: &str, word: &Word<'_>) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '/');
    line.match_indices(word.text).any(|(start, _)| {
        let (before, after) = (&line[..start], &line[start + word.text.len()..]);
        !before.ends_with(is_part) && (word.is_prefix || !after.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let list = "# a comment = no word\ngrand hall = runtime\nglimm* = fix\nold.md = docs\n";
        check(&Tree::of(&[(LIST, list), (path, text)])).into_iter().map(|breach| breach.line).collect()
    }

    #[test]
    fn a_listed_word_is_reported_whatever_its_case() {
        assert_eq!(lines("src/a.rs", "// The Grand Hall.\n// Halls are grand.\n// It is glimmed.\n"), [1, 3]);
        assert_eq!(lines("docs/a.md", "unglimm aglimms\nsee old.md 3\n[old](../x/old.md)\n"), [2]);
    }

    #[test]
    fn texts_of_other_projects_are_not_read() {
        assert_eq!(lines("tests/projects/a/domain.yml", "glimm"), [0_usize; 0]);
        assert_eq!(lines("Cargo.lock", "glimm"), [0_usize; 0]);
    }
}

//! Rules for comments, tests, files and prompts: no open end without an issue, no ignored test, no test that waits for or reads real
//! time, no file without a first line that describes it, no unused prompt.

use super::{Tree, Violation, Violations};

/// Markers of an open end. They are concatenated, so that this file does not contain them.
const OPEN_END_MARKERS: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];
/// Calls that wait for real time or read it.
const REAL_TIME_CALLS: [&str; 3] = ["thread::sleep", "tokio::time::sleep(", "Instant::now"];

/// The rule `open ends`.
pub fn check_open_ends(tree: &Tree) -> Vec<Violation> {
    let mut violations = Violations::new("open ends");
    for (path, text) in &tree.texts {
        // Prose may mention the words; there only a word with a colon is a marker.
        let is_prose = path.ends_with(".md");
        for (index, line) in text.lines().enumerate() {
            if OPEN_END_MARKERS.iter().any(|marker| has_open_end(line, marker, is_prose)) {
                violations.add(path, index + 1, "an open end names its issue, as in `(#12)` right after the marker");
            }
        }
    }
    violations.items
}

/// Whether a line contains `marker` as a whole word without the number of an issue.
fn has_open_end(line: &str, marker: &str, is_prose: bool) -> bool {
    line.match_indices(marker).any(|(start, _)| {
        let (before, after) = (&line[..start], &line[start + marker.len()..]);
        let is_word_char = |c: char| c.is_alphanumeric() || c == '_';
        let is_whole_word = !before.ends_with(is_word_char) && !after.starts_with(is_word_char);
        let issue = after.trim_start_matches([' ', '(']).strip_prefix('#').unwrap_or_default();
        is_whole_word && (!is_prose || after.starts_with(':')) && !issue.starts_with(|c: char| c.is_ascii_digit())
    })
}

/// The rule `tests`.
pub fn check_tests(tree: &Tree) -> Vec<Violation> {
    let mut violations = Violations::new("tests");
    for (path, source) in &tree.rust {
        // The fault-injection tests need real time: they kill and restart a server process while clients send messages.
        let may_use_real_time = path.starts_with("tests/outside/");
        for (number, line) in source.lines() {
            if line.contains("#[ignore") {
                violations.add(path, number, "an ignored test proves nothing: fix it or delete it");
            }
            if may_use_real_time || !source.in_test(number) {
                continue;
            }
            for call in REAL_TIME_CALLS.iter().filter(|call| line.contains(**call)) {
                let call = call.trim_end_matches('(');
                violations.add(path, number, format!("`{call}` in a test: pass a clock, or wait for the event itself"));
            }
        }
    }
    violations.items
}

/// The rule `first line`.
pub fn check_first_line(tree: &Tree) -> Vec<Violation> {
    let mut violations = Violations::new("first line");
    // A `tests.rs` belongs to the file beside it, which describes the subject.
    for path in tree.rust.keys().filter(|path| !path.ends_with("/tests.rs")) {
        let first = tree.texts.get(path).and_then(|text| text.lines().next()).unwrap_or_default();
        if first.strip_prefix("//!").is_none_or(|comment| comment.trim().is_empty()) {
            violations.add(
                path,
                1,
                "the first line of a file must be a `//!` comment that says what the file contains",
            );
        }
    }
    violations.items
}

/// The rule `prompts`: each file in `prompts/` is named in the source of the product or in another prompt.
pub fn check_prompts(tree: &Tree) -> Vec<Violation> {
    let mut violations = Violations::new("prompts");
    for path in tree.texts.keys() {
        let Some(name) = path.strip_prefix("prompts/").filter(|name| !name.ends_with("README.md")) else { continue };
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        let in_source = tree.product().any(|(_, source)| {
            let mut literals = source.strings.iter().filter(|(line, _)| !source.in_test(*line));
            literals.any(|(_, text)| text == stem || text.contains(name))
        });
        let in_prompts =
            tree.texts.range("prompts/".to_owned()..).take_while(|(other, _)| other.starts_with("prompts/"));
        if !in_source && !in_prompts.into_iter().any(|(other, text)| other != path && text.contains(name)) {
            violations.add(path, 1, format!("no source names `{name}`: the prompt is unused"));
        }
    }
    violations.items
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(rule: fn(&Tree) -> Vec<Violation>, path: &str, text: &str) -> Vec<usize> {
        rule(&Tree::of(&[(path, text)])).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn open_end_without_an_issue_is_reported() {
        let marker = OPEN_END_MARKERS[0];
        let text = format!("// {marker}: later\n// {marker}(#12) later\n// {marker} #3\nlet A{marker} = 1;\n");
        assert_eq!(lines(check_open_ends, "src/a.rs", &text), [1]);
        let text = format!("No {marker} here.\n{}: x\n", OPEN_END_MARKERS[1]);
        assert_eq!(lines(check_open_ends, "a.md", &text), [2]);
    }

    #[test]
    fn ignored_test_is_reported() {
        assert_eq!(lines(check_tests, "tests/a.rs", "#[test]\n#[ignore = \"slow\"]\nfn a() {}\n// #[ignore]"), [2]);
        assert_eq!(lines(check_tests, "tests/outside/a.rs", "#[test]\n#[ignore]\nfn a() {}\n"), [2]);
    }

    #[test]
    fn sleep_and_real_time_in_a_test_are_reported() {
        let sleeps = "fn a() { std::thread::sleep(d); }\n#[test]\nfn b() { tokio::time::sleep(d).await; }\n";
        assert_eq!(lines(check_tests, "src/a.rs", sleeps), [3]);
        assert_eq!(lines(check_tests, "tests/it/a.rs", "fn c() {\n let t = std::time::Instant::now();\n}"), [2]);
        assert_eq!(lines(check_tests, "tests/it/a.rs", "// thread::sleep\nlet a = \"Instant::now\";"), [0_usize; 0]);
    }

    #[test]
    fn missing_first_line_is_reported() {
        assert_eq!(lines(check_first_line, "src/a.rs", "//! Things.\n"), [0_usize; 0]);
        assert_eq!(lines(check_first_line, "src/a.rs", "use a;\n//! Things.\n"), [1]);
        assert_eq!(lines(check_first_line, "src/a.rs", "//!\n"), [1]);
    }

    #[test]
    fn unused_prompt_is_reported() {
        let tree = |source: &str| {
            Tree::of(&[
                ("prompts/agents/open.j2", "{% include 'agents/part.j2' %}"),
                ("prompts/agents/part.j2", ""),
                ("prompts/README.md", ""),
                ("src/a.rs", source),
            ])
        };
        assert_eq!(check_prompts(&tree("load(\"agents/open\")")), []);
        assert_eq!(check_prompts(&tree("load(\"agents/open.j2\")")), []);
        assert_eq!(check_prompts(&tree("#[test] fn a() { load(\"agents/open.j2\") }")).len(), 1);
    }
}

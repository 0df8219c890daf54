//! What may not be written: open ends without an issue, tests that are switched off or wait for real time, files that do
//! not say what they are for, prompts that nobody reads.

use super::{Breach, Breaches, Tree};

/// Marks of an open end. Put together here, so that this file does not hold them itself.
const OPEN_ENDS: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];
/// What no test may do: wait for real time, or read it.
const REAL_TIME: [&str; 3] = ["thread::sleep", "tokio::time::sleep(", "Instant::now"];

pub fn check_words(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Breaches::new("words");
    for (path, text) in &tree.texts {
        // Prose may speak about the marks; there only the mark with a colon is one.
        let prose = path.ends_with(".md");
        for (index, line) in text.lines().enumerate() {
            if OPEN_ENDS.iter().any(|mark| open_end(line, mark, prose)) {
                breaches.add(path, index + 1, "an open end names its issue, as in `(#12)` right after the mark");
            }
        }
    }
    for (path, scan) in &tree.rust {
        for (number, line) in scan.lines() {
            if line.contains("#[ignore") {
                breaches.add(path, number, "a test that never runs proves nothing: fix it or delete it");
            }
        }
    }
    breaches.found
}

fn open_end(line: &str, mark: &str, prose: bool) -> bool {
    line.match_indices(mark).any(|(start, _)| {
        let (before, after) = (&line[..start], &line[start + mark.len()..]);
        let part = |c: char| c.is_alphanumeric() || c == '_';
        let whole = !before.ends_with(part) && !after.starts_with(part);
        let issue = after.trim_start_matches([' ', '(']).strip_prefix('#').unwrap_or_default();
        whole && (!prose || after.starts_with(':')) && !issue.starts_with(|c: char| c.is_ascii_digit())
    })
}

pub fn check_tests(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Breaches::new("tests");
    // The fault harness lets real time pass: a process is killed and started again while people write.
    let harness = |path: &str| path.starts_with("tests/outside/");
    for (path, scan) in tree.rust.iter().filter(|(path, _)| !harness(path)) {
        for (number, line) in scan.lines().into_iter().filter(|(number, _)| scan.in_test(*number)) {
            for what in REAL_TIME.iter().filter(|what| line.contains(**what)) {
                let what = what.trim_end_matches('(');
                breaches.add(path, number, format!("`{what}` in a test: pass a clock, or wait for the event itself"));
            }
        }
    }
    breaches.found
}

pub fn check_first_line(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Breaches::new("first line");
    // A `tests.rs` stands beside the file it tests and needs no word of its own.
    for path in tree.rust.keys().filter(|path| !path.ends_with("/tests.rs")) {
        let first = tree.texts.get(path).and_then(|text| text.lines().next()).unwrap_or_default();
        if first.strip_prefix("//!").is_none_or(|said| said.trim().is_empty()) {
            breaches.add(path, 1, "a file starts with a `//!` line that says what it is for");
        }
    }
    breaches.found
}

pub fn check_prompts(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Breaches::new("prompts");
    for path in tree.texts.keys() {
        let Some(name) = path.strip_prefix("prompts/").filter(|name| !name.ends_with("README.md")) else { continue };
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        let in_source = tree.product().any(|(_, scan)| {
            let mut spoken = scan.strings.iter().filter(|(line, _)| !scan.in_test(*line));
            spoken.any(|(_, text)| text == stem || text.contains(name))
        });
        let in_prompts =
            tree.texts.range("prompts/".to_owned()..).take_while(|(other, _)| other.starts_with("prompts/"));
        if !in_source && !in_prompts.into_iter().any(|(other, text)| other != path && text.contains(name)) {
            breaches.add(path, 1, format!("no source names `{name}`: a prompt that nothing renders"));
        }
    }
    breaches.found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(rule: fn(&Tree) -> Vec<Breach>, path: &str, text: &str) -> Vec<usize> {
        rule(&Tree::of(&[(path, text)])).into_iter().map(|breach| breach.line).collect()
    }

    #[test]
    fn an_open_end_names_its_issue() {
        let mark = OPEN_ENDS[0];
        let text = format!("// {mark}: later\n// {mark}(#12) later\n// {mark} #3\nlet A{mark} = 1;\n");
        assert_eq!(lines(check_words, "src/a.rs", &text), [1]);
        assert_eq!(lines(check_words, "a.md", &format!("No {mark} here.\n{}: x\n", OPEN_ENDS[1])), [2]);
    }

    #[test]
    fn a_test_is_never_switched_off() {
        assert_eq!(lines(check_words, "tests/a.rs", "#[test]\n#[ignore = \"slow\"]\nfn a() {}\n// #[ignore]"), [2]);
    }

    #[test]
    fn a_test_waits_for_no_clock() {
        let sleeps = "fn a() { std::thread::sleep(d); }\n#[test]\nfn b() { tokio::time::sleep(d).await; }\n";
        assert_eq!(lines(check_tests, "src/a.rs", sleeps), [3]);
        assert_eq!(lines(check_tests, "tests/it/a.rs", "fn c() {\n let t = std::time::Instant::now();\n}"), [2]);
        assert_eq!(lines(check_tests, "tests/it/a.rs", "// thread::sleep\nlet a = \"Instant::now\";"), [0_usize; 0]);
    }

    #[test]
    fn a_file_says_what_it_is_for() {
        assert_eq!(lines(check_first_line, "src/a.rs", "//! Things.\n"), [0_usize; 0]);
        assert_eq!(lines(check_first_line, "src/a.rs", "use a;\n//! Things.\n"), [1]);
        assert_eq!(lines(check_first_line, "src/a.rs", "//!\n"), [1]);
    }

    #[test]
    fn a_prompt_is_rendered_by_somebody() {
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

//! The rule `error codes`: each error code of the product has a page in `docs/errors/`, and each page belongs to a code in use.

use std::collections::BTreeMap;

use super::{Tree, Violation, Violations};

const FOLDER: &str = "docs/errors/";
const SECTIONS: [&str; 4] = ["## What happened", "## Why", "## How to fix it", "## Example"];

/// Every error code of the product with the file and line of its first use. A code is a string literal of one capital letter and four
/// digits, outside tests.
fn codes_in_use(tree: &Tree) -> BTreeMap<&str, (&str, usize)> {
    let mut codes = BTreeMap::new();
    for (path, source) in tree.product() {
        for (line, text) in source.strings.iter().filter(|(line, text)| is_code(text) && !source.in_test(*line)) {
            codes.entry(text.as_str()).or_insert((path.as_str(), *line));
        }
    }
    codes
}

fn is_code(text: &str) -> bool {
    matches!(text.as_bytes(), [b'A'..=b'Z', digits @ ..] if digits.len() == 4 && digits.iter().all(u8::is_ascii_digit))
}

pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Violations::new("error codes");
    let codes = codes_in_use(tree);
    for (code, (path, line)) in &codes {
        if !tree.texts.contains_key(&format!("{FOLDER}{code}.md")) {
            violations.add(path, *line, format!("{code} has no page {FOLDER}{code}.md"));
        }
    }
    for (path, text) in tree.texts.range(FOLDER.to_owned()..) {
        let Some(name) = path.strip_prefix(FOLDER) else { break };
        let Some(code) = name.strip_suffix(".md").filter(|code| is_code(code)) else {
            if name != "README.md" {
                violations.add(
                    path,
                    1,
                    "this folder contains README.md and pages that are named after an error code, nothing else",
                );
            }
            continue;
        };
        if !codes.contains_key(code) {
            violations.add(path, 1, format!("no source uses {code}: delete the page"));
        }
        if title(text, code).is_none() {
            violations.add(path, 1, format!("the first line must be `# {code}: …`"));
        }
        let mut headings = text.lines().enumerate().filter(|(_, line)| line.starts_with("## "));
        for section in SECTIONS {
            match headings.next() {
                Some((_, line)) if line.trim_end() == section => {}
                Some((index, _)) => violations.add(path, index + 1, format!("expected the section `{section}` here")),
                None => {
                    violations.add(path, text.lines().count().max(1), format!("the section `{section}` is missing"))
                }
            }
        }
    }
    violations.items
}

fn title<'a>(text: &'a str, code: &str) -> Option<&'a str> {
    let title = text.lines().next()?.strip_prefix("# ")?.strip_prefix(code)?.strip_prefix(": ")?.trim();
    (!title.is_empty()).then_some(title)
}

/// All error codes in use: code, file and line of the first use, title of the page.
pub fn list(tree: &Tree) -> Vec<(&str, &str, usize, &str)> {
    let page = |code: &str| tree.texts.get(&format!("{FOLDER}{code}.md"));
    codes_in_use(tree)
        .into_iter()
        .map(|(code, (path, line))| {
            (code, path, line, page(code).and_then(|text| title(text, code)).unwrap_or("(no page)"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# F0203: A step is missing\n\n## What happened\n\n## Why\n\n## How to fix it\n\n## Example\n";

    #[test]
    fn code_without_a_page_and_page_without_a_code_are_reported() {
        let source = ("src/a.rs", "f(\"F0203\");\n// \"F0001\"\n#[test]\nfn t() { g(\"F0002\"); }\n");
        assert_eq!(check(&Tree::of(&[source, ("docs/errors/F0203.md", PAGE)])), []);
        assert_eq!(check(&Tree::of(&[source])).len(), 1);
        assert_eq!(check(&Tree::of(&[("docs/errors/F0203.md", PAGE)])).len(), 1);
        assert_eq!(check(&Tree::of(&[("docs/errors/notes.md", "")])).len(), 1);
    }

    #[test]
    fn missing_title_and_section_of_a_page_are_reported() {
        let source = ("crates/engine/src/a.rs", "\"F0203\"");
        let wrong = PAGE.replace("# F0203:", "# F0204:").replace("\n## Example\n", "");
        let found = check(&Tree::of(&[source, ("docs/errors/F0203.md", &wrong)]));
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn list_contains_places_and_titles() {
        let tree = Tree::of(&[("src/a.rs", "\n\"F0203\""), ("docs/errors/F0203.md", PAGE)]);
        assert_eq!(list(&tree), [("F0203", "src/a.rs", 2, "A step is missing")]);
    }
}

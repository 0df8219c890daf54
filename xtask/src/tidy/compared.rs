//! The rule `compared`: what the page that compares Segue with other systems names exists: files, tests, keys, commands, tools, events.
//!
//! A row has four cells: what another system has, where it is here, the names that it has here, and its tests. Code spans with `/` are
//! files. In the last cell, the spans after a file are tests in it. A name is found in the files of its row, or on a reference page. A row
//! without a test says how Segue differs.

use super::markdown_tables::{code_spans, tables};
use super::{Tree, Violation, Violations};

const PAGE: &str = "docs/reference/compared-systems.md";
/// Pages that list names.
const REFERENCES: [&str; 6] = [
    "docs/reference/keys.md",
    "docs/reference/cli.md",
    "docs/reference/limits.md",
    "docs/reference/events.md",
    "docs/reference/mission-events.md",
    "docs/errors/README.md",
];
/// How the second cell of a row begins that has no test.
const DIFFERS: &str = "Differs:";

pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Violations::new("compared");
    let Some(text) = tree.texts.get(PAGE) else { return violations.items };
    for table in tables(text) {
        for row in table.iter().skip(1) {
            let [_, here, names, tests] = row.cells.as_slice() else {
                violations.add(PAGE, row.line, format!("a row has four cells, not {}", row.cells.len()));
                continue;
            };
            for problem in files(tree, here).into_iter().chain(names_of(tree, here, names, tests)) {
                violations.add(PAGE, row.line, problem);
            }
            if code_spans(tests).next().is_none() && !here.starts_with(DIFFERS) {
                violations.add(
                    PAGE,
                    row.line,
                    format!("a row names a test, or its second cell begins with `{DIFFERS}`"),
                );
            }
            for problem in tests_of(tree, tests) {
                violations.add(PAGE, row.line, problem);
            }
        }
    }
    violations.items
}

fn is_file(span: &str) -> bool {
    span.contains('/') && !span.contains([' ', '<'])
}

/// The files of a cell that do not exist.
fn files(tree: &Tree, cell: &str) -> Vec<String> {
    let missing = code_spans(cell).filter(|span| is_file(span) && !tree.paths.contains(span.trim_end_matches('/')));
    missing.map(|span| format!("`{span}` does not exist")).collect()
}

/// The names of a row that are in none of its files and on no reference page.
fn names_of(tree: &Tree, here: &str, names: &str, tests: &str) -> Vec<String> {
    let of_row = code_spans(here).chain(code_spans(tests)).filter(|span| is_file(span));
    let texts: Vec<&String> = of_row.chain(REFERENCES).filter_map(|path| tree.texts.get(path)).collect();
    let is_known = |name: &str| {
        let last = if name.starts_with("segue ") { name } else { name.rsplit('.').next().unwrap_or(name) };
        let variant = camel_case(last);
        texts.iter().any(|text| has_word(text, last) || has_word(text, &variant))
    };
    let unknown = code_spans(names).filter(|name| !is_known(name));
    unknown.map(|name| format!("`{name}` is in no file of the row and on no reference page")).collect()
}

/// The name of the Rust variant for the name of an event.
fn camel_case(name: &str) -> String {
    let part = |part: &str| {
        let mut chars = part.chars();
        chars.next().map(|first| first.to_ascii_uppercase().to_string() + chars.as_str()).unwrap_or_default()
    };
    name.split('_').map(part).collect()
}

/// Whether a text contains a word that is not a part of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (text[..at].chars().next_back(), text[at + word.len()..].chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// The tests of a cell that do not exist.
fn tests_of(tree: &Tree, cell: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut file = None;
    for span in code_spans(cell) {
        if is_file(span) {
            file = tree.texts.get(span).map(|text| (span, text));
            if file.is_none() {
                problems.push(format!("`{span}` does not exist"));
            }
            continue;
        }
        let Some((path, text)) = file else { continue };
        let exists = match path.ends_with(".rs") {
            true => has_word(text, &format!("fn {span}")) || has_word(text, &format!("{span}:")),
            false => text.contains(span),
        };
        if !exists {
            problems.push(format!("`{path}` has no test `{span}`"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(row: &str) -> Vec<String> {
        let page = format!("| there | here | names | tests |\n| --- | --- | --- | --- |\n{row}\n");
        let files = [
            (PAGE, page.as_str()),
            ("src/a.rs", "fn run() { tool(\"set_plan\") } enum Event { TaskBegan }"),
            ("tests/a.rs", "fn it_works() {}\nmacro! { crash_works: A; }"),
            ("tests/a.yml", "- case: it is refused"),
            ("docs/reference/keys.md", "| `max_turns` | an integer |"),
            ("docs/reference/cli.md", "### `segue mission run`"),
        ];
        check(&Tree::of(&files)).into_iter().map(|violation| violation.message).collect()
    }

    #[test]
    fn a_row_whose_names_exist_passes() {
        let names = "`set_plan`, `task_began`, `commander.max_turns`, `segue mission run`";
        let tests = "`tests/a.rs` `it_works`, `crash_works`; `tests/a.yml` `it is refused`";
        assert_eq!(problems(&format!("| plan | in `src/a.rs` | {names} | {tests} |")), [""; 0]);
        assert_eq!(problems("| webhooks | Differs: there are none | | – |"), [""; 0]);
    }

    #[test]
    fn names_files_and_tests_that_do_not_exist_are_found() {
        let row = "| plan | `src/b.rs` | `set_pla`, `max_turn`, `segue mission walk` | `tests/a.rs` `it_work`; `tests/b.rs` |";
        assert_eq!(
            problems(row),
            [
                "`src/b.rs` does not exist",
                "`set_pla` is in no file of the row and on no reference page",
                "`max_turn` is in no file of the row and on no reference page",
                "`segue mission walk` is in no file of the row and on no reference page",
                "`tests/a.rs` has no test `it_work`",
                "`tests/b.rs` does not exist",
            ]
        );
        assert_eq!(
            problems("| plan | `src/a.rs` | | – |"),
            ["a row names a test, or its second cell begins with `Differs:`"]
        );
        assert_eq!(problems("| plan | `src/a.rs` | |"), ["a row has four cells, not 3"]);
    }
}

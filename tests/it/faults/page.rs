//! `docs/faults.md` has every row of both matrices, and for each tests that are there; and what is named for a row stands in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use regex::Regex;

use crate::limits::table::{ROOT, tests};

/// Rows of the two matrices of reliability.md 2: models, MCP servers.
const MATRICES: [(&str, u32); 2] = [("L", 30), ("M", 23)];

fn page() -> String {
    fs::read_to_string(Path::new(ROOT).join("docs/faults.md")).unwrap()
}

/// The tests in the last column of each row, by matrix and number; no cell of a row is empty.
fn rows(page: &str) -> BTreeMap<(String, u32), Vec<String>> {
    let row = Regex::new(r"(?m)^\| ([LM])(\d+)([^|]*)\|(.+)\|$").unwrap();
    let test = Regex::new(r"`(\w+)`").unwrap();
    let mut rows = BTreeMap::new();
    for found in row.captures_iter(page) {
        let key = (found[1].to_owned(), found[2].parse().unwrap());
        assert_eq!(found[3].trim(), "", "{key:?}: one row for one fault");
        let cells: Vec<&str> = found[4].split(" | ").map(str::trim).collect();
        let expected = if key.0 == "L" { 3 } else { 4 };
        assert_eq!(cells.len(), expected, "{key:?}: {cells:?}");
        assert!(cells.iter().all(|cell| !cell.is_empty()), "{key:?}: {cells:?}");
        let last = cells.last().unwrap();
        let named: Vec<String> = test.captures_iter(last).map(|test| test[1].to_owned()).collect();
        let others = test.replace_all(last, "").replace([',', ' '], "");
        assert!(others.is_empty(), "{key:?}: `{others}` is no test");
        assert!(rows.insert(key.clone(), named).is_none(), "{key:?} stands twice");
    }
    rows
}

fn known(folders: &[&str]) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for folder in folders {
        tests(&Path::new(ROOT).join(folder), &mut known);
    }
    known
}

#[test]
fn every_row_of_both_matrices_names_tests_that_are_there() {
    let known = known(&["src", "crates/engine/src", "crates/engine/tests", "tests"]);
    let rows = rows(&page());
    let expected: Vec<_> =
        MATRICES.iter().flat_map(|(matrix, last)| (1..=*last).map(|row| ((*matrix).to_owned(), row))).collect();
    assert_eq!(rows.keys().cloned().collect::<Vec<_>>(), expected, "every row, once");
    for (row, tests) in &rows {
        assert!(!tests.is_empty(), "{row:?} names no test");
        let strange: Vec<_> = tests.iter().filter(|test| !known.contains(*test)).collect();
        assert!(strange.is_empty(), "{row:?}: no such tests: {strange:?}");
    }
}

/// A test that bears the number of a row is named in that row and in no other; each row of the servers has one.
#[test]
fn tests_that_bear_the_number_of_a_row_stand_in_it() {
    let rows = rows(&page());
    let (prefix, number) = (Regex::new(r"^([lm]\d+_)+").unwrap(), Regex::new(r"([lm])(\d+)_").unwrap());
    let rows_of = |test: &str| -> Vec<(String, u32)> {
        let prefix = prefix.find(test).map_or("", |found| found.as_str());
        number.captures_iter(prefix).map(|found| (found[1].to_uppercase(), found[2].parse().unwrap())).collect()
    };
    for test in known(&["tests"]) {
        for row in rows_of(&test) {
            assert!(rows.get(&row).is_some_and(|tests| tests.contains(&test)), "{row:?} does not name `{test}`");
        }
    }
    for (row, tests) in &rows {
        let of = |test: &String| rows_of(test);
        let foreign: Vec<_> = tests.iter().filter(|test| !of(test).is_empty() && !of(test).contains(row)).collect();
        assert!(foreign.is_empty(), "{row:?} names tests of other rows: {foreign:?}");
        let alone = tests.iter().any(|test| of(test) == [row.clone()]);
        assert!(row.0 == "L" || alone, "{row:?} has no test of its own");
    }
}

/// Scenarios of the grid, limits and prompts that the page names are there.
#[test]
fn what_else_the_page_names_is_there() {
    let page = page();
    let grid = fs::read_to_string(Path::new(ROOT).join("tests/wire/scenarios.yml")).unwrap();
    let named: Vec<String> =
        Regex::new(r"«([^»]+)»").unwrap().captures_iter(&page).map(|found| found[1].to_owned()).collect();
    assert!(named.len() > 15, "{named:?}");
    for name in named {
        assert!(grid.contains(&format!("- name: {name}\n")), "no scenario is called {name:?}");
    }
    let limits = fs::read_to_string(Path::new(ROOT).join("src/limits.rs")).unwrap();
    for found in Regex::new(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`").unwrap().captures_iter(&page) {
        assert!(limits.contains(&format!("pub const {}:", &found[1])), "{} is no limit", &found[1]);
    }
    for found in Regex::new(r"`(prompts/[^`]+)`").unwrap().captures_iter(&page) {
        assert!(Path::new(ROOT).join(&found[1]).is_file(), "{} is not there", &found[1]);
    }
}

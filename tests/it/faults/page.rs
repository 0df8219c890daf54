//! `docs/faults.md` has every row of the matrix, and for each tests that are there.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use regex::Regex;

use crate::limits::table::{ROOT, tests};

#[test]
fn every_row_of_the_matrix_names_tests_that_are_there() {
    let mut known = BTreeSet::new();
    for folder in ["src", "crates/engine/src", "crates/engine/tests", "tests"] {
        tests(&Path::new(ROOT).join(folder), &mut known);
    }
    let page = fs::read_to_string(Path::new(ROOT).join("docs/faults.md")).unwrap();
    let row = Regex::new(r"(?m)^\| L(\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$").unwrap();
    let test = Regex::new(r"`(\w+)`").unwrap();
    let mut rows = BTreeMap::new();
    for found in row.captures_iter(&page) {
        let number: u32 = found[1].parse().unwrap();
        let named: Vec<String> = test.captures_iter(&found[4]).map(|test| test[1].to_owned()).collect();
        assert!(rows.insert(number, named).is_none(), "L{number} stands twice");
    }
    assert_eq!(rows.keys().copied().collect::<Vec<_>>(), (1..=30).collect::<Vec<_>>(), "every row, once");
    for (number, tests) in &rows {
        assert!(!tests.is_empty(), "L{number} names no test");
        let strange: Vec<_> = tests.iter().filter(|test| !known.contains(*test)).collect();
        assert!(strange.is_empty(), "L{number}: no such tests: {strange:?}");
    }
}

/// Scenarios of the grid that the page names are there.
#[test]
fn scenarios_that_the_page_names_are_in_the_grid() {
    let grid = fs::read_to_string(Path::new(ROOT).join("tests/wire/scenarios.yml")).unwrap();
    let page = fs::read_to_string(Path::new(ROOT).join("docs/faults.md")).unwrap();
    let named: Vec<String> =
        Regex::new(r"«([^»]+)»").unwrap().captures_iter(&page).map(|found| found[1].to_owned()).collect();
    assert!(named.len() > 15, "{named:?}");
    for name in named {
        assert!(grid.contains(&format!("- name: {name}\n")), "no scenario is called {name:?}");
    }
}

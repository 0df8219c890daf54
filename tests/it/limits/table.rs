//! `docs/limits.md` names every limit with its value, and for each a test that is there.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use regex::Regex;

pub(crate) const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The constants of both tables.
fn constants() -> BTreeSet<String> {
    let constant = Regex::new(r"(?m)^pub const ([A-Z0-9_]+):").unwrap();
    let tables = ["src/limits.rs", "crates/engine/src/limits.rs"];
    let text = tables.map(|table| fs::read_to_string(Path::new(ROOT).join(table)).unwrap()).concat();
    let names: BTreeSet<String> = constant.captures_iter(&text).map(|found| found[1].to_owned()).collect();
    assert!(names.len() > 100, "{names:?}");
    names
}

/// The names of all functions that are tests.
pub(crate) fn tests(folder: &Path, found: &mut BTreeSet<String>) {
    let test = Regex::new(r"#\[(?:tokio::)?test[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:async )?fn (\w+)").unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.extend(test.captures_iter(&text).map(|test| test[1].to_owned()));
        }
    }
}

#[test]
fn every_limit_stands_in_the_table_with_a_test_that_is_there() {
    let mut known = BTreeSet::new();
    for folder in ["src", "crates/engine/src", "crates/engine/tests", "tests"] {
        tests(&Path::new(ROOT).join(folder), &mut known);
    }
    let page = fs::read_to_string(Path::new(ROOT).join("docs/limits.md")).unwrap();
    let row = Regex::new(r"(?m)^\| `([A-Z0-9_]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$").unwrap();
    let test = Regex::new(r"`(\w+)`").unwrap();
    let mut rows = BTreeMap::new();
    for found in row.captures_iter(&page) {
        let named: Vec<String> = test.captures_iter(&found[4]).map(|test| test[1].to_owned()).collect();
        assert!(rows.insert(found[1].to_owned(), named).is_none(), "{} stands twice", &found[1]);
    }
    let constants = constants();
    let missing: Vec<_> = constants.iter().filter(|name| !rows.contains_key(*name)).collect();
    assert!(missing.is_empty(), "docs/limits.md lacks {missing:?}: add a row with a test that reaches it");
    let gone: Vec<_> = rows.keys().filter(|name| !constants.contains(*name)).collect();
    assert!(gone.is_empty(), "docs/limits.md names {gone:?}, which are no limits");
    for (name, tests) in &rows {
        assert!(!tests.is_empty(), "the row of {name} names no test");
        let strange: Vec<_> = tests.iter().filter(|test| !known.contains(*test)).collect();
        assert!(strange.is_empty(), "{name}: no such tests: {strange:?}");
    }
}

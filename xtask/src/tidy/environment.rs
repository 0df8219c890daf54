//! Environment variables that the product names are on their page.

use super::{Tree, Violation, Violations};
use crate::docs::environment::VARIABLES;

/// Words of protocols in the same spelling are in these files.
const PROTOCOLS: [&str; 2] = ["crates/a2a/", "src/channels/a2a/"];
/// Texts that look like variables and are none that the product reads.
const OTHERS: [&str; 12] = [
    "CARGO_PKG_VERSION",
    "CARGO_MANIFEST_DIR",
    // What a child inherits or is given.
    "LC_ALL",
    "LC_CTYPE",
    "SANIC_HOST",
    // Names that messages suggest for variables of a project.
    "ACTION_SERVER_TOKEN",
    "ACTION_SERVER_PASSWORD",
    "NLG_PASSWORD",
    // The end of names that are put together.
    "API_KEY",
    // Marks that models write.
    "NO_TOKEN",
    "NO_ANSWER",
    "INPUT_REQUIRED",
];

pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Violations::new("environment");
    let known = |name: &str| VARIABLES.iter().any(|(_, group)| group.iter().any(|(known, _)| *known == name));
    for (path, scan) in tree.product().filter(|(path, _)| !PROTOCOLS.iter().any(|folder| path.starts_with(folder))) {
        for (line, text) in scan.strings.iter().filter(|(line, text)| is_variable(text) && !scan.in_test(*line)) {
            if !known(text) && !OTHERS.contains(&text.as_str()) {
                violations.add(path, *line, format!("`{text}` is not in `xtask/src/docs/environment.rs`"));
            }
        }
    }
    violations.items
}

fn is_variable(text: &str) -> bool {
    let letters = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
    text.contains('_') && text.split('_').all(letters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_not_on_the_page_is_reported() {
        let source = "fn f() { variable(\"LOG_LEVEL\"); variable(\"SEGUE_NEW\"); }\n";
        let found =
            check(&Tree::of(&[("src/a.rs", source), ("crates/a2a/src/b.rs", source), ("tests/it/c.rs", source)]));
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("SEGUE_NEW"));
    }
}

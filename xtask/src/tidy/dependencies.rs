//! The rule `dependencies`: no `Cargo.lock` contains a package that `deny.toml` bans, or a git source. `cargo deny check` checks more
//! (licences, advisories); this rule needs neither another tool nor a network.

use super::{Tree, Violation, Violations};

pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Violations::new("dependencies");
    let deny = tree.texts.get("deny.toml").map_or("", String::as_str);
    let banned: Vec<&str> = deny.lines().filter_map(banned_package).collect();
    if tree.paths.contains("Cargo.lock") && banned.is_empty() {
        violations.add("deny.toml", 1, "the list of bans has no line `{ crate = \"…\" }`, which this rule reads");
    }
    for (path, text) in tree.texts.iter().filter(|(path, _)| path.ends_with("Cargo.lock")) {
        for (index, line) in text.lines().enumerate() {
            let name = line.strip_prefix("name = \"").and_then(|rest| rest.strip_suffix('"'));
            if let Some(name) = name.filter(|name| banned.contains(name)) {
                violations.add(path, index + 1, format!("`{name}` is banned in deny.toml"));
            }
            if line.starts_with("source = \"git+") {
                violations.add(path, index + 1, "a package with a dependency from a git source cannot be published");
            }
        }
    }
    violations.items
}

/// The name of the package in a line such as `{ crate = "openssl", reason = "…" },`.
fn banned_package(line: &str) -> Option<&str> {
    line.trim().strip_prefix("{ crate = \"")?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banned_package_and_git_source_are_reported() {
        let deny = ("deny.toml", "[bans]\ndeny = [\n  { crate = \"openssl\", reason = \"one TLS\" },\n]\n");
        let lock = "name = \"openssl\"\nversion = \"1\"\nname = \"ring\"\nsource = \"git+https://example.org/x\"\n";
        let found = check(&Tree::of(&[deny, ("Cargo.lock", lock)]));
        assert_eq!(found.iter().map(|violation| violation.line).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(check(&Tree::of(&[deny, ("Cargo.lock", "name = \"ring\"\n")])), []);
        assert_eq!(check(&Tree::of(&[("Cargo.lock", "")])).len(), 1);
    }
}

//! Dependencies: what `deny.toml` bans is in no lock file, and nothing comes from a git address. `cargo deny` checks more
//! (licences, advisories); this part needs neither a tool nor a network.

use super::{Breach, Breaches, Tree};

pub fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Breaches::new("dependencies");
    let rules = tree.texts.get("deny.toml").map_or("", String::as_str);
    let banned: Vec<&str> = rules.lines().filter_map(ban).collect();
    if tree.paths.contains("Cargo.lock") && banned.is_empty() {
        breaches.add("deny.toml", 1, "no `{ crate = \"…\" }` in the list of bans: it is the input of this rule");
    }
    for (path, text) in tree.texts.iter().filter(|(path, _)| path.ends_with("Cargo.lock")) {
        for (index, line) in text.lines().enumerate() {
            let name = line.strip_prefix("name = \"").and_then(|rest| rest.strip_suffix('"'));
            if let Some(name) = name.filter(|name| banned.contains(name)) {
                breaches.add(path, index + 1, format!("`{name}` is banned in deny.toml"));
            }
            if line.starts_with("source = \"git+") {
                breaches.add(path, index + 1, "a dependency from a git address cannot be released");
            }
        }
    }
    breaches.found
}

/// The name in a line such as `{ crate = "openssl", reason = "…" },`.
fn ban(line: &str) -> Option<&str> {
    line.trim().strip_prefix("{ crate = \"")?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_banned_package_and_a_git_source_are_told() {
        let rules = ("deny.toml", "[bans]\ndeny = [\n  { crate = \"openssl\", reason = \"one TLS\" },\n]\n");
        let lock = "name = \"openssl\"\nversion = \"1\"\nname = \"ring\"\nsource = \"git+https://example.org/x\"\n";
        let found = check(&Tree::of(&[rules, ("Cargo.lock", lock)]));
        assert_eq!(found.iter().map(|breach| breach.line).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(check(&Tree::of(&[rules, ("Cargo.lock", "name = \"ring\"\n")])), []);
        assert_eq!(check(&Tree::of(&[("Cargo.lock", "")])).len(), 1);
    }
}

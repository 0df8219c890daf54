//! Sizes: nobody holds 600 lines in mind, and the two loops stay readable at a glance.

use super::{Breach, Breaches, Tree};

/// The list of files that may be longer, each with its reason: `path: reason`.
const ALLOWED: &str = "xtask/tidy.allow";
/// Lines of a Rust file beyond which it needs a reason.
const MOST: usize = 600;
/// Files that must stay below a limit of their own.
const SHORT: &[(&str, usize)] = &[("src/agents/react.rs", 200), ("src/runtime/turn.rs", 240)];

pub fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Breaches::new("size");
    let mut allowed = Vec::new();
    for (index, line) in tree.texts.get(ALLOWED).map_or("", String::as_str).lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once(": ").filter(|(_, reason)| !reason.trim().is_empty()) {
            Some((path, _)) => allowed.push((index + 1, path)),
            None => breaches.add(ALLOWED, index + 1, "a line reads `path: reason`"),
        }
    }
    for (line, path) in &allowed {
        match tree.texts.get(*path) {
            None => breaches.add(ALLOWED, *line, format!("there is no {path}: take the line away")),
            Some(text) if text.lines().count() <= MOST => {
                breaches.add(ALLOWED, *line, format!("{path} has no more than {MOST} lines: take the line away"));
            }
            Some(_) => {}
        }
    }
    for path in tree.rust.keys() {
        let lines = tree.texts.get(path).map_or(0, |text| text.lines().count());
        if let Some((_, most)) = SHORT.iter().find(|(short, most)| short == path && lines >= *most) {
            breaches.add(path, *most, format!("{lines} lines; this file stays under {most}: move a step into its own"));
        } else if lines > MOST && !allowed.iter().any(|(_, allowed)| allowed == path) {
            breaches.add(
                path,
                MOST + 1,
                format!("{lines} lines: split by the second noun, or give a reason in {ALLOWED}"),
            );
        }
    }
    breaches.found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_needs_a_reason() {
        let (long, short) = ("//\n".repeat(601), "//\n".repeat(600));
        assert_eq!(check(&Tree::of(&[("src/a.rs", &long)])).len(), 1);
        assert_eq!(check(&Tree::of(&[("src/a.rs", &short)])).len(), 0);
        let reason = "# files\n\nsrc/a.rs: one table\n";
        assert_eq!(check(&Tree::of(&[("src/a.rs", &long), (ALLOWED, reason)])).len(), 0);
    }

    #[test]
    fn a_stale_or_bare_entry_is_told() {
        let found = check(&Tree::of(&[("src/a.rs", ""), (ALLOWED, "src/a.rs: was long\nsrc/b.rs: gone\nsrc/a.rs\n")]));
        assert_eq!(found.iter().map(|breach| breach.line).collect::<Vec<_>>(), [3, 1, 2]);
    }

    #[test]
    fn the_loops_stay_under_two_hundred_lines() {
        assert_eq!(check(&Tree::of(&[("src/runtime/turn.rs", &"//\n".repeat(240))])).len(), 1);
        assert_eq!(check(&Tree::of(&[("src/runtime/turn.rs", &"//\n".repeat(199))])).len(), 0);
    }
}

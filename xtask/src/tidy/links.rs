//! Links: what a Markdown file points to is there, headings included; so is every path named in a table of the map.

use super::table::{quoted, tables};
use super::{Breach, Breaches, Tree};

const MAP: &str = "ARCHITECTURE.md";

pub fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Breaches::new("links");
    for (path, text) in tree.texts.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (line, target) in links(text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let Some(file) = resolve(path, file) else {
                breaches.add(path, line, format!("`{target}` leads out of the repository"));
                continue;
            };
            if !file.is_empty() && !tree.paths.contains(&file) {
                breaches.add(path, line, format!("there is no `{file}`"));
                continue;
            }
            if let Some(there) = tree.texts.get(&file).filter(|_| !heading.is_empty() && file.ends_with(".md"))
                && !headings(there).any(|known| known == heading)
            {
                breaches.add(path, line, format!("`{file}` has no heading `#{heading}`"));
            }
        }
    }
    if let Some(text) = tree.texts.get(MAP) {
        for row in tables(text).iter().flatten() {
            for mention in row.cells.iter().flat_map(|cell| quoted(cell)).filter(|mention| is_path(mention)) {
                if !there(tree, mention) {
                    breaches.add(MAP, row.line, format!("the table names `{mention}`, which is not there"));
                }
            }
        }
    }
    breaches.found
}

/// Whether a back-quoted mention means a file or folder.
fn is_path(mention: &str) -> bool {
    let plain = mention.chars().all(|c| c.is_alphanumeric() || "/._-<>*".contains(c));
    let ends = [".rs", ".md", ".toml", ".yml", ".yaml", ".j2"].iter().any(|end| mention.ends_with(end));
    plain && !mention.starts_with(['.', '/']) && (ends || mention.contains('/'))
}

/// Whether a mention exists; of one with a blank (`<name>`, `*`) the folder before the blank must.
fn there(tree: &Tree, mention: &str) -> bool {
    let known = match mention.find(['<', '*']) {
        Some(blank) => mention[..blank].rsplit_once('/').map_or("", |(folder, _)| folder),
        None => mention.trim_end_matches('/'),
    };
    known.is_empty() || tree.paths.contains(known)
}

/// The targets of inline links, images and reference lines, with their lines; code is skipped.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut all = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        fenced ^= line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        if let Some((_, target)) = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
            all.push((index + 1, target.split_whitespace().next().unwrap_or_default()));
        }
        // Spans of code stand at the odd places between back-quotes; a link may have code in its text, not in its target.
        for (start, _) in line.match_indices("](") {
            if line[..start].matches('`').count() % 2 == 1 {
                continue;
            }
            let target = &line[start + 2..];
            let target = &target[..target.find(')').unwrap_or(target.len())];
            all.push((index + 1, target.split_whitespace().next().unwrap_or_default()));
        }
    }
    all
}

/// A link's file from the root: its own file for an empty one, `None` if it climbs out.
fn resolve(from: &str, target: &str) -> Option<String> {
    if target.is_empty() {
        return Some(from.to_owned());
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The anchors of a file's headings, formed as code hosts form them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter(|line| line.starts_with('#')).map(|line| {
        let kept = line.trim_start_matches('#').trim().chars();
        let kept = kept.filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(files: &[(&str, &str)]) -> Vec<usize> {
        check(&Tree::of(files)).into_iter().map(|breach| breach.line).collect()
    }

    #[test]
    fn a_link_leads_somewhere() {
        let text = "[a](b.md)\n[c](d.md) ![e](docs/f.png)\n[g]: docs/x.md\n[h](https://example.org/x) `[i](j.md)`\n";
        assert_eq!(lines(&[("README.md", text), ("b.md", ""), ("docs/x.md", "")]), [2, 2]);
        assert_eq!(lines(&[("docs/x.md", "[up](../README.md)\n[out](../../y)\n"), ("README.md", "")]), [2]);
    }

    #[test]
    fn a_heading_is_there() {
        let files = [("README.md", "# One, two\n[a](#one-two)\n[b](#three)\n[c](b.md#x)\n"), ("b.md", "## Y\n")];
        assert_eq!(lines(&files), [3, 4]);
    }

    #[test]
    fn code_is_no_link() {
        assert_eq!(lines(&[("README.md", "```\n[a](b.md)\n```\n")]), [0_usize; 0]);
    }

    #[test]
    fn a_table_of_the_map_names_what_exists() {
        let map = "`src/none.rs` in prose\n\n| a | b |\n| --- | --- |\n| `src/a.rs` | `src/b.rs` |\n\
                   | `src/<name>.rs` | `module`, `a::b` |\n| `other/<name>.rs` | `crates/` |\n";
        assert_eq!(lines(&[(MAP, map), ("src/a.rs", ""), ("crates/engine/x", "")]), [5, 7]);
    }
}

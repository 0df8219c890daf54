//! The rule `links`: each relative link of a Markdown file leads to a file and heading that exist, each Rust file that a Markdown file
//! names exists, and each path in a table of ARCHITECTURE.md exists.

use super::markdown_tables::{code_spans, tables};
use super::{Tree, Violation, Violations};

const ARCHITECTURE: &str = "ARCHITECTURE.md";

pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Violations::new("links");
    for (path, text) in tree.texts.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (line, target) in links(text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let Some(file) = resolve(path, file) else {
                violations.add(path, line, format!("`{target}` leads out of the repository"));
                continue;
            };
            if !file.is_empty() && !tree.paths.contains(&file) {
                violations.add(path, line, format!("`{file}` does not exist"));
                continue;
            }
            if let Some(text) = tree.texts.get(&file).filter(|_| !heading.is_empty() && file.ends_with(".md"))
                && !anchors(text).any(|anchor| anchor == heading)
            {
                violations.add(path, line, format!("`{file}` has no heading `#{heading}`"));
            }
        }
        for (line, file) in rust_files(text).filter(|(_, file)| !rust_file_exists(tree, path, file)) {
            violations.add(path, line, format!("`{file}` does not exist"));
        }
    }
    if let Some(text) = tree.texts.get(ARCHITECTURE) {
        for row in tables(text).iter().flatten() {
            for path in row.cells.iter().flat_map(|cell| code_spans(cell)).filter(|text| is_path(text)) {
                if !exists(tree, path) {
                    violations.add(
                        ARCHITECTURE,
                        row.line,
                        format!("the table contains `{path}`, which does not exist"),
                    );
                }
            }
        }
    }
    violations.items
}

/// The Rust files in the code spans of a page, with their lines. Code blocks are skipped.
fn rust_files(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    let lines = text.lines().enumerate().filter(move |(_, line)| {
        fenced ^= line.trim_start().starts_with("```");
        !fenced
    });
    let is_rust_file = |span: &&str| {
        span.len() > ".rs".len()
            && span.ends_with(".rs")
            && span.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c))
    };
    lines.flat_map(move |(index, line)| code_spans(line).filter(is_rust_file).map(move |file| (index + 1, file)))
}

/// Whether a Rust file exists that a page names: by its path from the root or from the page, or by its name alone.
fn rust_file_exists(tree: &Tree, page: &str, file: &str) -> bool {
    tree.rust.contains_key(file)
        || resolve(page, file).is_some_and(|path| tree.rust.contains_key(&path))
        || (!file.contains('/') && tree.rust.keys().any(|path| path.rsplit('/').next() == Some(file)))
}

/// Whether a code span is the path of a file or folder.
fn is_path(text: &str) -> bool {
    let has_path_characters = text.chars().all(|c| c.is_alphanumeric() || "/._-<>*".contains(c));
    let has_extension = [".rs", ".md", ".toml", ".yml", ".yaml", ".j2"].iter().any(|end| text.ends_with(end));
    has_path_characters && !text.starts_with(['.', '/']) && (has_extension || text.contains('/'))
}

/// Whether a path exists. Of a path with a placeholder (`<name>`, `*`) only the folder before the placeholder must exist.
fn exists(tree: &Tree, path: &str) -> bool {
    let fixed = match path.find(['<', '*']) {
        Some(placeholder) => path[..placeholder].rsplit_once('/').map_or("", |(folder, _)| folder),
        None => path.trim_end_matches('/'),
    };
    fixed.is_empty() || tree.paths.contains(fixed)
}

/// The targets of inline links, images and link reference definitions, with their lines. Code blocks and code spans are skipped.
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
        // After an odd number of backticks the text is inside a code span. The text of a link may contain code, its target may not.
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

/// The path of a link's target from the root: the file itself for an empty target, `None` for a target outside the repository.
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

/// The anchors of a file's headings as GitHub generates them, without its numbers for repeated headings.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter(|line| line.starts_with('#')).map(|line| {
        let heading = line.trim_start_matches('#').trim().chars();
        let anchor = heading.filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        anchor.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(files: &[(&str, &str)]) -> Vec<usize> {
        check(&Tree::of(files)).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn broken_link_is_reported() {
        let text = "[a](b.md)\n[c](d.md) ![e](docs/f.png)\n[g]: docs/x.md\n[h](https://example.org/x) `[i](j.md)`\n";
        assert_eq!(lines(&[("README.md", text), ("b.md", ""), ("docs/x.md", "")]), [2, 2]);
        assert_eq!(lines(&[("docs/x.md", "[up](../README.md)\n[out](../../y)\n"), ("README.md", "")]), [2]);
    }

    #[test]
    fn link_to_a_missing_heading_is_reported() {
        let files = [("README.md", "# One, two\n[a](#one-two)\n[b](#three)\n[c](b.md#x)\n"), ("b.md", "## Y\n")];
        assert_eq!(lines(&files), [3, 4]);
    }

    #[test]
    fn link_in_a_code_block_is_not_checked() {
        assert_eq!(lines(&[("README.md", "```\n[a](b.md)\n```\n")]), [0_usize; 0]);
    }

    #[test]
    fn missing_rust_file_is_reported() {
        let page = "`src/a.rs` `b/c.rs` `c.rs`\n`src/none.rs` `none.rs` `*.rs`\n```\n`src/none.rs`\n```\n";
        assert_eq!(lines(&[("docs/x.md", page), ("src/a.rs", ""), ("docs/b/c.rs", "")]), [2, 2]);
    }

    #[test]
    fn missing_path_in_a_table_of_the_architecture_page_is_reported() {
        let page = "`src/none` in prose\n\n| a | b |\n| --- | --- |\n| `src/a.rs` | `src/b.rs` |\n\
                   | `src/<name>.rs` | `module`, `a::b` |\n| `other/<name>.rs` | `crates/` |\n";
        // The missing Rust file violates two rules.
        assert_eq!(lines(&[(ARCHITECTURE, page), ("src/a.rs", ""), ("crates/engine/x", "")]), [5, 5, 7]);
    }
}

//! The page of all keys, made from the tables; `cargo xtask docs` writes it.

use std::fmt::Write as _;

use super::{Key, MapSchema, SCHEMAS, Support, UnknownKeys};

const HEAD: &str = "# Every key of the format

This page is written by `cargo xtask docs` from the declarations that the loader reads by, so it says what the program does. A key
that is not listed is unknown; what happens to it stands above each table. Editors read the same as JSON Schema
([how](../checks.md#in-an-editor)).

*supported* works as described. *accepted* is read and has no effect, and nothing is lost by that. *accepted with a warning* is read,
`segue check` says what is different here, and the project loads. *refused* is an error with a cure. *required* keys must be there.
";

/// The page, as Markdown.
pub fn reference() -> String {
    let mut out = HEAD.to_owned();
    let mut file = "";
    let mut sums = [0_usize; 4];
    for schema in SCHEMAS {
        if schema.file != file {
            file = schema.file;
            let _ = write!(out, "\n## `{file}`\n");
        }
        section(&mut out, schema);
        for key in schema.keys {
            let at = match key.support {
                Support::Full => 0,
                Support::Accepted(_) => 1,
                Support::AcceptedWithWarning(_) => 2,
                Support::Refused(_) => 3,
            };
            if let Some(sum) = sums.get_mut(at) {
                *sum += 1;
            }
        }
    }
    let [full, quiet, warned, refused] = sums;
    let all = full + quiet + warned + refused;
    let _ = write!(
        out,
        "\n## In figures\n\n{all} keys: {full} supported, {quiet} accepted, {warned} accepted with a warning, {refused} refused.\n"
    );
    out
}

fn section(out: &mut String, schema: &MapSchema) {
    let name = schema.a();
    let mut letters = name.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    let unknown = match schema.unknown {
        UnknownKeys::Refused => "Any other key is an error.",
        UnknownKeys::Warned => "Any other key is left out with a warning.",
        UnknownKeys::Kept => "Any other key is kept; a likely typo is warned about.",
    };
    let _ = write!(out, "\n### {first}{}\n\n{unknown}\n\n", letters.as_str());
    out.push_str("| key | takes | here | what it is for |\n| --- | --- | --- | --- |\n");
    for key in schema.keys {
        let (names, takes, support) = (names(key), cell(&key.takes.described()), support(key));
        let _ = writeln!(out, "| {names} | {takes} | {support} | {} |", cell(&doc(key)));
    }
}

/// What it is for, and its default.
fn doc(key: &Key) -> String {
    match key.default {
        Some(default) => format!("{}; `{default}` unless set.", key.doc.trim_end_matches('.')),
        None => key.doc.to_owned(),
    }
}

fn names(key: &Key) -> String {
    let older: String = key.older.iter().map(|name| format!(", older `{name}`")).collect();
    format!("`{}`{older}", key.name)
}

fn support(key: &Key) -> String {
    let (word, why) = match key.support {
        Support::Full => ("supported", ""),
        Support::Accepted(why) => ("accepted", why),
        Support::AcceptedWithWarning(why) => ("accepted with a warning", why),
        Support::Refused(why) => ("refused", why),
    };
    let required = if key.required { ", required" } else { "" };
    match why {
        "" => format!("{word}{required}"),
        why => format!("{word}{required}: {}", cell(why)),
    }
}

/// A text inside a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_row() {
        let page = reference();
        let rows = page.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, SCHEMAS.iter().map(|schema| schema.keys.len()).sum::<usize>());
        assert!(page.contains("| `generation_prompt` | a value | refused: "), "{page}");
        assert!(page.contains("### An agent's configuration\n"), "{page}");
    }
}

//! The reference page of all keys, generated from the schemas; `cargo xtask docs` writes it.

use std::fmt::Write as _;

use super::{Key, MapSchema, SCHEMAS, Support, UnknownKeys};

const HEAD: &str = "# Key reference

All keys of the project files. `cargo xtask docs` generates this page from the declarations that the loader uses. A key that is not
listed is unknown; the line above each table says what happens to it. Editors can use the same declarations as JSON Schema
([setup](../checks.md#in-an-editor)).

*supported*: works as described. *accepted*: has no effect, and the project behaves the same without it. *accepted with a warning*: the
project loads, and `segue check` reports the difference. *refused*: an error, with what to write instead. *required*: must be present.
";

/// The reference page, as Markdown.
pub fn reference() -> String {
    let mut out = HEAD.to_owned();
    let mut file = "";
    let mut counts = [0_usize; 4];
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
            if let Some(count) = counts.get_mut(at) {
                *count += 1;
            }
        }
    }
    let [full, accepted, warned, refused] = counts;
    let all = full + accepted + warned + refused;
    let _ = write!(
        out,
        "\n## Totals\n\n{all} keys: {full} supported, {accepted} accepted, {warned} accepted with a warning, {refused} refused.\n"
    );
    out
}

fn section(out: &mut String, schema: &MapSchema) {
    let name = schema.name_with_article();
    let mut letters = name.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    let unknown = match schema.unknown {
        UnknownKeys::Refused => "Any other key is an error.",
        UnknownKeys::IgnoredWithWarning => "Any other key is ignored with a warning.",
        UnknownKeys::Allowed => "Any other key is allowed; a likely typo is a warning.",
    };
    let _ = write!(out, "\n### {first}{}\n\n{unknown}\n\n", letters.as_str());
    out.push_str("| key | type | support | description |\n| --- | --- | --- | --- |\n");
    for key in schema.keys {
        let (names, takes, support) = (names(key), cell(&key.value_type.description()), support(key));
        let _ = writeln!(out, "| {names} | {takes} | {support} | {} |", cell(&doc(key)));
    }
}

/// The documentation, followed by the default.
fn doc(key: &Key) -> String {
    match key.default {
        Some(default) => format!("{} Default: `{default}`.", key.doc),
        None => key.doc.to_owned(),
    }
}

fn names(key: &Key) -> String {
    let aliases: String = key.aliases.iter().map(|name| format!(", alias `{name}`")).collect();
    format!("`{}`{aliases}", key.name)
}

fn support(key: &Key) -> String {
    let (word, reason) = match key.support {
        Support::Full => ("supported", ""),
        Support::Accepted(reason) => ("accepted", reason),
        Support::AcceptedWithWarning(reason) => ("accepted with a warning", reason),
        Support::Refused(reason) => ("refused", reason),
    };
    let required = if key.required { ", required" } else { "" };
    match reason {
        "" => format!("{word}{required}"),
        reason => format!("{word}{required}: {}", cell(reason)),
    }
}

/// A text as the cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_row() {
        let page = reference();
        let rows = page.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, SCHEMAS.iter().map(|schema| schema.keys.len()).sum::<usize>());
        assert!(page.contains("| `generation_prompt` | any value | refused: "), "{page}");
        assert!(page.contains("### An agent's configuration\n"), "{page}");
    }
}

//! The reference page of all keys, generated from the schemas; `cargo xtask docs` writes it.

use std::fmt::Write as _;

use super::{
    AGENT_FILE, CONFIG, CONFTEST, CREDENTIALS, DOMAIN, ENDPOINTS, FLOW_FILE, Key, MISSION_FILE, MapSchema, SCHEMAS,
    SUBAGENTS_FILE, Support, TEST_FILE, UnknownKeys, ValueType, examples::EXAMPLES,
};

/// The maps that files consist of.
static ROOTS: [&MapSchema; 10] = [
    &CONFIG,
    &DOMAIN,
    &FLOW_FILE,
    &ENDPOINTS,
    &CREDENTIALS,
    &AGENT_FILE,
    &MISSION_FILE,
    &SUBAGENTS_FILE,
    &TEST_FILE,
    &CONFTEST,
];
/// How many places of a map are shown.
const PLACES: usize = 4;

const HEAD: &str = "# Configuration

All keys of the project files. `cargo xtask docs` generates this page from the declarations that the loader uses. A key that is not
listed is unknown; the line above each table says what happens to it. Editors can use the same declarations as JSON Schema
([setup](checks.md#in-an-editor)).

*supported*: works as described. *accepted*: has no effect, and the project behaves the same without it. *accepted with a warning*: the
project loads, and `segue check` reports the difference. *rejected*: an error, with what to write instead. *required*: must be present.

A heading is the path of a map in its file: `a.b` is the key `b` below `a`, `<name>` any name, `[]` an entry of a list.
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
        "\n## Totals\n\n{all} keys: {full} supported, {accepted} accepted, {warned} accepted with a warning, {refused} rejected.\n"
    );
    out
}

fn section(out: &mut String, schema: &'static MapSchema) {
    let places = places(schema);
    let name = schema.name_with_article();
    let unknown = match schema.unknown {
        UnknownKeys::Refused => "Any other key is an error.",
        UnknownKeys::IgnoredWithWarning => "Any other key is ignored with a warning.",
        UnknownKeys::Allowed => "Any other key is allowed; a likely typo is a warning.",
    };
    let (heading, others) = match places.split_first() {
        Some((first, others)) => (first.clone(), others),
        None => (schema.file.to_owned(), [].as_slice()),
    };
    if places.is_empty() {
        let _ = write!(out, "\n### The whole file\n\n{unknown}\n\n");
    } else {
        let others = others.iter().take(PLACES - 1).map(|place| format!("`{place}`")).collect::<Vec<_>>().join(", ");
        let also = if others.is_empty() { String::new() } else { format!(" Also {others}.") };
        let _ = write!(out, "\n### `{heading}`\n\n{}.{also} {unknown}\n\n", capital(&name));
    }
    out.push_str("| key | type | support | description |\n| --- | --- | --- | --- |\n");
    for key in schema.keys {
        let (names, takes, support) = (names(key), cell(&key.value_type.description()), support(key));
        let _ = writeln!(out, "| {names} | {takes} | {support} | {} |", cell(&doc(key)));
    }
    if let Some((_, example)) = EXAMPLES.iter().find(|(place, _)| *place == heading) {
        // Where the example is tried (`tests/it/pages.rs`).
        let file = match schema.file {
            "data/**/*.yml" => "flows/example.yml",
            "sub_agents/*/config.yml" => "sub_agents/teller/config.yml",
            "tests/**/*.yml" => "tests/example.yml",
            "endpoints.yml, credentials.yml" => "credentials.yml",
            "tests/**/conftest.yml" => "tests/conftest.yml",
            file => file,
        };
        let _ = write!(out, "\n```yaml {file}\n{example}```\n");
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default() + letters.as_str()
}

/// The paths at which a map may be in the file that it belongs to, shortest first; none for a whole file.
fn places(schema: &'static MapSchema) -> Vec<String> {
    if ROOTS.iter().any(|root| std::ptr::eq(*root, schema)) {
        return Vec::new();
    }
    // Other files may hold the same kind of map as well; those that it names come first.
    let is_own = |root: &&'static MapSchema| schema.file.split(", ").any(|file| file == root.file);
    let (own, others): (Vec<_>, Vec<_>) = ROOTS.into_iter().partition(is_own);
    let found = places_in(schema, &own);
    if found.is_empty() { places_in(schema, &others) } else { found }
}

fn places_in(schema: &'static MapSchema, roots: &[&'static MapSchema]) -> Vec<String> {
    let mut found = Vec::new();
    for root in roots.iter().copied() {
        let mut open = vec![(String::new(), root)];
        let mut seen: Vec<&MapSchema> = vec![root];
        while !open.is_empty() {
            let mut deeper = Vec::new();
            for (path, map) in open {
                for key in map.keys {
                    let path = if path.is_empty() { key.name.to_owned() } else { format!("{path}.{}", key.name) };
                    maps_in(key.value_type, path, &mut |path, inner| {
                        if std::ptr::eq(inner, schema) && !found.contains(&path) {
                            found.push(path.clone());
                        }
                        if !seen.iter().any(|one| std::ptr::eq(*one, inner)) {
                            seen.push(inner);
                            deeper.push((path, inner));
                        }
                    });
                }
            }
            open = deeper;
        }
    }
    found
}

/// Every map with declared keys in a value, with its path.
fn maps_in(value: ValueType, path: String, each: &mut impl FnMut(String, &'static MapSchema)) {
    match value {
        ValueType::Section(schema) => each(path, schema),
        ValueType::List(item) => maps_in(*item, format!("{path}[]"), each),
        ValueType::Map(item) => maps_in(*item, format!("{path}.<name>"), each),
        ValueType::AnyOf(forms) => forms.iter().for_each(|form| maps_in(*form, path.clone(), each)),
        _ => {}
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
        Support::Refused(reason) => ("rejected", reason),
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
        assert!(page.contains("| `generation_prompt` | any value | rejected: "), "{page}");
        assert!(page.contains("### `flows.<name>.steps[]`\n\nA step. "), "{page}");
    }

    #[test]
    fn only_files_are_whole_files() {
        let page = reference();
        assert_eq!(page.matches("### The whole file\n").count(), ROOTS.len());
        for path in ["mission.tasks.<name>.iterator", "mission.local_agents.<name>"] {
            assert!(page.contains(&format!("`{path}`")), "{path}");
        }
    }

    #[test]
    fn every_example_belongs_to_a_table() {
        let page = reference();
        assert_eq!(page.matches("\n```yaml ").count(), EXAMPLES.len());
    }
}

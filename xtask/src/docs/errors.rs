//! The index of error codes, generated from the titles of their pages.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Result, ensure};

/// The folder with one page for each error code.
pub const FOLDER: &str = "docs/errors/";
/// The path of the index.
pub const INDEX: &str = "docs/errors/README.md";

/// The areas of error codes: first letter, heading, and the meaning of a code in this area.
const AREAS: [(&str, &str, &str); 11] = [
    ("A", "agents", "A run of an agent failed, or a remote agent (A2A) did."),
    ("C", "channels", "A channel, a push notification or the keys of callers' tokens do not work."),
    ("E", "tests", "`segue test` found a mistake in a test case, or could not run it."),
    ("F", "project files", "`segue check` found a problem in the files of the project."),
    ("M", "models", "A language model or a prompt cannot be opened."),
    ("N", "missions", "A run of a mission was not started, or it failed."),
    ("R", "turns", "A message was rejected, or a turn did not do all that it should."),
    ("S", "store", "The store of conversations has a problem."),
    ("T", "tools and actions", "An MCP server, a tool or the action server has a problem."),
    ("U", "understanding and search", "The command generator, embeddings or the document search failed."),
    ("V", "server", "The HTTP server of `segue run` does not start, or rejects requests."),
];
/// The sections of an area with many codes: the first characters of a code, and the heading.
const SECTIONS: [(&str, &str); 8] = [
    ("F01", "Files and YAML"),
    ("F02", "Flows"),
    ("F03", "Domain: slots and responses"),
    ("F04", "Conditions and templates"),
    ("F05", "Agents"),
    ("F06", "`endpoints.yml` and `credentials.yml`"),
    ("F07", "`config.yml`"),
    ("F08", "Missions and delegation"),
];

const HEAD: &str = "\
# Error codes

Each message of Segue about a problem has a code: a letter and four digits. `segue explain F0203` prints the page of a code;
the program contains all pages.

`segue check` reports problems of three kinds:

* `error`: the project does not load. With `--online`: a service that the project needs does not answer.
* `warning`: the project loads, but something does not work as written.
* `note`: nothing is wrong, but you may want to know.

The first letter says which part of Segue reports the problem:

| letter | about | meaning |
| --- | --- | --- |
";
const FOOT: &str = "
## For contributors

`cargo xtask docs` writes this page. Each code has one page, `<CODE>.md`, and occurs in the source as a string literal of its
own, such as `\"F0203\"`. Codes in tests need no page. `cargo xtask tidy` fails if a code has no page, a page has no code, or
a page has other headings than these:

| heading | content |
| --- | --- |
| `# F0203: …` | The error as people search for it, without a full stop. |
| `## What happened` | What Segue found, and what it does now: does the project load, does the user get a response? |
| `## Why` | The rule or the usual causes. |
| `## How to fix it` | The most likely fix first. Files and keys are written as in the project. |
| `## Example` | The wrong lines, the message of Segue, and the right lines. A test runs the examples of F codes. |

Write for people who do not know the source. A code never gets a second meaning: when no source uses it, delete its page, and
do not use the number again.
";

/// Generates the index from the file names and texts of `pages`. Error if a code belongs to no area or section.
pub fn index<'a>(pages: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<String> {
    let titles: BTreeMap<&str, &str> = pages
        .into_iter()
        .filter_map(|(name, text)| Some((name.strip_suffix(".md")?, text.lines().next()?.strip_prefix("# ")?)))
        .filter_map(|(code, title)| Some((code, title.strip_prefix(code)?.strip_prefix(": ")?)))
        .collect();
    let mut page = HEAD.to_owned();
    for (letter, name, about) in AREAS {
        writeln!(page, "| [{letter}](#{}) | {name} | {about} |", anchor(letter, name))?;
    }
    let mut listed = 0;
    for (letter, name, _) in AREAS {
        write!(page, "\n## {letter}: {name}\n")?;
        let sections: Vec<(&str, &str)> = SECTIONS.into_iter().filter(|(start, _)| start.starts_with(letter)).collect();
        for (start, heading) in if sections.is_empty() { vec![(letter, "")] } else { sections } {
            if !heading.is_empty() {
                write!(page, "\n### {heading}\n")?;
            }
            page.push('\n');
            for (code, title) in titles.iter().filter(|(code, _)| code.starts_with(start)) {
                writeln!(page, "* [{code}]({code}.md): {title}")?;
                listed += 1;
            }
        }
    }
    ensure!(listed == titles.len(), "an error code belongs to no area: extend `AREAS` or `SECTIONS`");
    page.push_str(FOOT);
    Ok(page)
}

fn anchor(letter: &str, name: &str) -> String {
    format!("{letter}-{name}").to_lowercase().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_code_is_listed_with_its_title_in_its_section() {
        let page = index([("F0203.md", "# F0203: Empty list of steps\n"), ("README.md", "# Error codes\n")]).unwrap();
        let (_, flows) = page.split_once("### Flows\n\n").unwrap();
        assert!(flows.starts_with("* [F0203](F0203.md): Empty list of steps\n\n### Domain"), "{page}");
        assert_eq!(page.matches("[README]").count(), 0);
    }

    #[test]
    fn error_code_without_an_area_is_an_error() {
        assert!(index([("F0901.md", "# F0901: New\n")]).is_err());
        assert!(index([("Q0101.md", "# Q0101: New\n")]).is_err());
    }
}

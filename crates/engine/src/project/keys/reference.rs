//! The page of all keys, made from the tables; `cargo xtask docs` writes it.

use std::fmt::Write as _;

use super::{Key, SHAPES, Shape, Support, Unknown};

const HEAD: &str = "# Every key of the format

This page is written by `cargo xtask docs` from the tables that the loader reads by, so it says what the program does. A key
that is not listed is unknown; what happens to it stands above each table.

*supported* works as described. *accepted* is read and has no effect, and nothing is lost by that. *accepted with a warning* is read,
`segue check` says what is different here, and the project loads. *refused* is an error with a cure. *required* keys must be there.
";

/// The page, as Markdown.
pub fn reference() -> String {
    let mut out = HEAD.to_owned();
    let mut file = "";
    let mut sums = [0_usize; 4];
    for shape in SHAPES {
        if shape.file != file {
            file = shape.file;
            let _ = write!(out, "\n## `{file}`\n");
        }
        section(&mut out, shape);
        for key in shape.keys {
            let at = match key.support {
                Support::Full => 0,
                Support::Quiet(_) => 1,
                Support::Warned(_) => 2,
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

fn section(out: &mut String, shape: &Shape) {
    let name = shape.a();
    let mut letters = name.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    let unknown = match shape.unknown {
        Unknown::Refused => "Any other key is an error.",
        Unknown::Warned => "Any other key is left out with a warning.",
        Unknown::Kept => "Any other key is kept; one that looks like a slip of the pen is warned about.",
    };
    let _ = write!(out, "\n### {first}{}\n\n{unknown}\n\n", letters.as_str());
    out.push_str("| key | takes | here | what it is for |\n| --- | --- | --- | --- |\n");
    for key in shape.keys {
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} |",
            key.name,
            cell(&key.takes.expected()),
            support(key),
            cell(key.doc)
        );
    }
}

fn support(key: &Key) -> String {
    let (word, why) = match key.support {
        Support::Full => ("supported", ""),
        Support::Quiet(why) => ("accepted", why),
        Support::Warned(why) => ("accepted with a warning", why),
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
        assert_eq!(rows, SHAPES.iter().map(|shape| shape.keys.len()).sum::<usize>());
        assert!(page.contains("| `generation_prompt` | a value | refused: "), "{page}");
        assert!(page.contains("### An agent's configuration\n"), "{page}");
    }
}

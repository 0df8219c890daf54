//! The page of all limits, generated from the constants in each `limits.rs` and their doc comments.

use std::fmt::Write;

use anyhow::{Context, Result};
use quote::ToTokens;
use syn::{Attribute, BinOp, Expr, ExprBinary, ExprCall, Item, Lit, Meta};

/// The files with the constants, in the order of the page.
pub const SOURCES: [&str; 3] =
    ["crates/lang/src/limits.rs", "crates/engine/src/limits.rs", "crates/base/src/limits.rs"];
/// The heading of each file in [`SOURCES`].
const HEADINGS: [&str; 3] = ["Conditions and templates", "Loading and dialogue", "The running parts"];
const HEAD: &str = "\
# Limits

Every buffer and every wait has a limit. This page is written by `cargo xtask docs` from the files `limits.rs` of the packages
`lang`, `engine` and `base`. Values that can be configured have a key in [the reference](keys.md); the others are changed in the source.
";

/// Generates the page from the texts of [`SOURCES`]. Error if one of them is not Rust.
pub fn page(sources: &[&str]) -> Result<String> {
    let mut page = HEAD.to_owned();
    for ((source, text), heading) in SOURCES.iter().zip(sources).zip(HEADINGS) {
        let file = syn::parse_file(text).with_context(|| format!("{source} is not valid Rust"))?;
        write!(page, "\n## {heading}\n\n| limit | default | what it limits |\n| --- | --- | --- |\n")?;
        for item in file.items {
            if let Item::Const(limit) = item {
                writeln!(page, "| `{}` | {} | {} |", limit.ident, value(&limit.expr), comment(&limit.attrs))?;
            }
        }
    }
    Ok(page)
}

/// The doc comment as one line of Markdown for a table cell.
fn comment(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(doc) if doc.path.is_ident("doc") => match &doc.value {
            Expr::Lit(text) => match &text.lit {
                Lit::Str(text) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    let text = lines.collect::<Vec<_>>().join(" ");
    text.replace("[`", "`").replace("`]", "`").replace('|', "\\|")
}

/// The value of a constant in a readable unit; the source of the expression if it is neither a number nor a `Duration`.
fn value(expression: &Expr) -> String {
    if let Expr::Array(array) = expression {
        return array.elems.iter().map(value).collect::<Vec<_>>().join(", ");
    }
    let source = expression.to_token_stream().to_string();
    if let Some(number) = product(expression) {
        let is_size = source.contains("<<") || source.contains("1024") && source != "1024";
        let unit = [(1024 * 1024, "MiB"), (1024, "KiB")].into_iter().find(|(size, _)| is_size && number % size == 0);
        return unit.map_or_else(|| grouped(number), |(size, name)| format!("{} {name}", number / size));
    }
    time(expression).unwrap_or_else(|| format!("`{source}`"))
}

/// The value of an integer literal, or of a product or left shift of them.
fn product(expression: &Expr) -> Option<u64> {
    match expression {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => number.base10_parse().ok(),
            _ => None,
        },
        Expr::Binary(ExprBinary { left, op, right, .. }) => {
            let (left, right) = (product(left)?, product(right)?);
            match op {
                BinOp::Mul(_) => left.checked_mul(right),
                BinOp::Shl(_) => left.checked_shl(u32::try_from(right).ok()?),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The value of a `Duration` in its largest unit without a fraction.
fn time(expression: &Expr) -> Option<String> {
    let name = |expression: &Expr| expression.to_token_stream().to_string().replace(' ', "");
    let milliseconds = match expression {
        Expr::Path(_) if name(expression) == "Duration::ZERO" => 0,
        Expr::Call(ExprCall { func, args, .. }) => match name(func).as_str() {
            "Duration::from_secs" => product(args.first()?)? * 1000,
            "Duration::from_millis" => product(args.first()?)?,
            _ => return None,
        },
        _ => return None,
    };
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms")];
    let (size, name) =
        units.into_iter().find(|(size, _)| milliseconds >= *size && milliseconds % size == 0).unwrap_or((1000, "s"));
    Some(format!("{} {name}", milliseconds / size))
}

/// A number with a comma between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<String> =
        digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned()).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_with_their_units() {
        let text = "/// Bytes `a|b` of\n/// [`B`].\npub const A: usize = 4 * 1024 * 1024;\npub const B: usize = 20_000;\n\
                    pub const C: Duration = Duration::from_secs(3_600);\npub const D: usize = A;\n\
                    pub const E: Duration = Duration::from_secs(90);\npub const F: Duration = Duration::from_secs(10 * 60);\n\
                    pub const G: Duration = Duration::from_millis(500);\n\
                    pub const H: [Duration; 2] = [Duration::ZERO, Duration::from_secs(1)];\npub const I: usize = 16 << 10;\n";
        let page = page(&[text, ""]).unwrap();
        for row in [
            "`A` | 4 MiB | Bytes `a\\|b` of `B`.",
            "`B` | 20,000 |",
            "`C` | 1 h |",
            "`D` | `A` |",
            "`E` | 90 s |",
            "`F` | 10 min |",
            "`G` | 500 ms |",
            "`H` | 0 s, 1 s |",
            "`I` | 16 KiB |",
        ] {
            assert!(page.contains(row), "{row} in {page}");
        }
    }
}

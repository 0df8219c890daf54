//! Patterns of scripts: case-insensitive regular expressions that can refer to tables of synonyms.
//!
//! `{port:from}` matches any word of the table `port`, and captures it as `from`, replaced by its canonical word.

use std::{collections::BTreeMap, sync::OnceLock};

use indexmap::IndexMap;
use regex::{Regex, RegexBuilder};
use segue_base::limits;

/// A regular expression that is compiled on first use. A script has hundreds of them and a request needs a few, so compiling all
/// at the start would be slow.
#[derive(Clone, Debug)]
struct LazyRegex {
    source: String,
    regex: OnceLock<Option<Regex>>,
}

impl LazyRegex {
    fn new(source: String) -> Self {
        Self { source, regex: OnceLock::new() }
    }

    /// `None`: it exceeds the size limit, and matches nothing. Its syntax was checked before.
    fn regex(&self) -> Option<&Regex> {
        let compiled =
            || RegexBuilder::new(&self.source).case_insensitive(true).size_limit(limits::SCRIPT_PATTERN).build().ok();
        self.regex.get_or_init(compiled).as_ref()
    }
}

/// A table of words and their synonyms.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// A pattern that matches any of the words.
    any: String,
    rows: Vec<(String, LazyRegex)>,
}

impl Table {
    /// The canonical word for `text`.
    pub(super) fn canonical(&self, text: &str) -> Option<&str> {
        let is = |names: &LazyRegex| names.regex().is_some_and(|names| names.is_match(text.trim()));
        self.rows.iter().find(|(_, names)| is(names)).map(|(word, _)| word.as_str())
    }
}

/// All tables of a script.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables(BTreeMap<String, Table>);

impl Tables {
    pub(super) fn new(raw: IndexMap<String, IndexMap<String, Vec<String>>>) -> Result<Self, String> {
        let mut tables = BTreeMap::new();
        for (name, rows) in raw {
            let mut all = Vec::new();
            let mut read = Vec::new();
            for (word, others) in rows {
                let names = std::iter::once(regex::escape(&word)).chain(others).collect::<Vec<_>>().join("|");
                check(&names).map_err(|error| format!("`tables.{name}.{word}`: {error}"))?;
                let names = ascii_classes(&names);
                read.push((word, LazyRegex::new(format!("^(?:{names})$"))));
                all.push(names);
            }
            tables.insert(name, Table { any: all.join("|"), rows: read });
        }
        Ok(Self(tables))
    }

    pub(super) fn all(&self) -> BTreeMap<String, Table> {
        self.0.clone()
    }
}

/// A pattern of a rule or of a fact.
#[derive(Debug)]
pub(super) struct Pattern {
    /// The pattern is `.`: any text.
    matches_any: bool,
    regex: LazyRegex,
    /// The tables of the captures, by capture name.
    canonical: BTreeMap<String, Table>,
}

impl Pattern {
    pub(super) fn new(text: &str, tables: &Tables) -> Result<Self, String> {
        let mut expanded = String::with_capacity(text.len());
        // The pattern with one letter in place of each table, to check its syntax: tables are long and already checked.
        let mut brief = String::with_capacity(text.len());
        let mut canonical = BTreeMap::new();
        let mut rest = text;
        while let Some((head, table, name, tail)) = reference(rest) {
            let Some(found) = tables.0.get(table) else {
                return Err(format!("`{text}`: no table is named `{table}`"));
            };
            expanded.push_str(&ascii_classes(head));
            brief.push_str(head);
            if name.is_empty() {
                expanded.push_str(&format!("(?:{})", found.any));
                brief.push_str("(?:x)");
            } else {
                expanded.push_str(&format!(r"(?P<{name}>(?-u:\b)(?:{})(?-u:\b))", found.any));
                brief.push_str(&format!("(?P<{name}>x)"));
                canonical.insert(name.to_owned(), found.clone());
            }
            rest = tail;
        }
        expanded.push_str(&ascii_classes(rest));
        brief.push_str(rest);
        check(&brief).map_err(|error| format!("`{text}`: {error}"))?;
        Ok(Self { matches_any: text == ".", regex: LazyRegex::new(expanded), canonical })
    }

    /// The captures of the first match in `text`.
    pub(super) fn find(&self, text: &str) -> Option<Captures> {
        if self.matches_any {
            return (!text.is_empty()).then(Captures::default);
        }
        let regex = self.regex.regex()?;
        let captures = regex.captures(text)?;
        let numbered =
            captures.iter().map(|group| group.map_or("", |group| group.as_str().trim()).to_owned()).collect();
        let mut named = BTreeMap::new();
        for name in regex.capture_names().flatten() {
            let Some(group) = captures.name(name) else { continue };
            let word = self.canonical.get(name).and_then(|table| table.canonical(group.as_str()));
            named.insert(name.to_owned(), word.unwrap_or(group.as_str().trim()).to_owned());
        }
        Some(Captures { named, numbered })
    }

    /// The last match in `text`: its group `it`, else its first matching group, else the whole match.
    pub(super) fn last(&self, text: &str) -> Option<String> {
        let captures = self.regex.regex()?.captures_iter(text).last()?;
        let group =
            captures.name("it").or_else(|| captures.iter().skip(1).flatten().next()).or_else(|| captures.get(0))?;
        Some(group.as_str().to_owned())
    }
}

/// Checks the syntax of a pattern without compiling it.
fn check(pattern: &str) -> Result<(), String> {
    let read = regex_syntax::ast::parse::Parser::new().parse(pattern);
    read.map(|_| ()).map_err(|error| error.to_string())
}

/// Replaces `\w`, `\W`, `\d` and `\b` by their ASCII forms, which compile about a hundred times faster than the Unicode ones.
fn ascii_classes(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('w') => out.push_str("[0-9A-Za-z_]"),
            Some('W') => out.push_str("[^0-9A-Za-z_]"),
            Some('d') => out.push_str("[0-9]"),
            Some('b') => out.push_str(r"(?-u:\b)"),
            Some(other) => out.extend(['\\', other]),
            None => out.push('\\'),
        }
    }
    out
}

/// The captures of a match, by name and by number, without white space at their ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Captures {
    pub(super) named: BTreeMap<String, String>,
    pub(super) numbered: Vec<String>,
}

/// The first `{table}` or `{table:name}` of `text`, with the text before and after it.
fn reference(text: &str) -> Option<(&str, &str, &str, &str)> {
    let mut from = 0;
    while let Some(at) = text.get(from..)?.find('{') {
        let open = from + at;
        let (head, inner) = (text.get(..open)?, text.get(open + 1..)?);
        let word = |word: &str| word.chars().all(|c| c.is_alphanumeric() || c == '_');
        if let Some((inside, tail)) = inner.split_once('}') {
            let (table, name) = inside.split_once(':').unwrap_or((inside, ""));
            let is_class = head.ends_with("\\p") || head.ends_with("\\P") || head.ends_with("\\x");
            if table.starts_with(char::is_alphabetic) && word(table) && word(name) && !is_class {
                return Some((head, table, name, tail));
            }
        }
        from = open + 1;
    }
    None
}

const NUMBERS: &[&str] = &[
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
];

/// Filter `number`: the first number in a text, in digits or in English words up to twenty; none when there is no number.
pub(super) fn number(text: String) -> minijinja::Value {
    let lower = text.to_lowercase();
    for word in lower.split(|c: char| !c.is_alphanumeric() && c != '.').filter(|word| !word.is_empty()) {
        if let Ok(integer) = word.parse::<i64>() {
            return integer.into();
        }
        if let Ok(decimal) = word.trim_end_matches('.').parse::<f64>() {
            return if decimal.fract() == 0.0 { (decimal as i64).into() } else { decimal.into() };
        }
        let word = match word {
            "alone" | "myself" | "single" => "one",
            "couple" | "both" | "pair" => "two",
            other => other,
        };
        if let Some(value) = NUMBERS.iter().position(|known| *known == word) {
            return (value as i64).into();
        }
    }
    minijinja::Value::from(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    fn tables() -> Tables {
        let rows = [("Bergen", vec!["bgo".to_owned()]), ("Stavanger", vec!["svg".into(), "stav\\w*".into()])];
        let rows = rows.into_iter().map(|(word, names)| (word.to_owned(), names)).collect();
        Tables::new([("port".to_owned(), rows)].into_iter().collect()).unwrap()
    }

    #[test]
    fn captures_of_tables_become_canonical_words() {
        let pattern = Pattern::new(r"from {port:from} to {port:to}(?: with (?P<n>\d{1,2}))?", &tables()).unwrap();
        let found = pattern.find("FROM bgo to STAVANGER with 12 please").unwrap();
        let named: Vec<_> = found.named.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(named, [("from", "Bergen"), ("n", "12"), ("to", "Stavanger")]);
        assert!(pattern.find("from Oslo to svg").is_none());
        assert!(pattern.find("from bgox to svg").is_none(), "only whole words match");
    }

    #[test]
    fn braces_of_regular_expressions_are_not_tables() {
        assert!(Pattern::new(r"^\p{L}{2,3}$", &tables()).unwrap().find("øre").is_some());
        assert!(Pattern::new("{dock:x}", &tables()).unwrap_err().contains("dock"));
    }

    #[test]
    fn numbers_are_found_in_digits_and_words() {
        for (text, expected) in [
            ("two adults", "2"),
            ("for 3.", "3"),
            ("Twelve of us", "12"),
            ("a couple of kids", "2"),
            ("just myself", "1"),
            ("2.5", "2.5"),
        ] {
            assert_eq!(number(text.into()).to_string(), expected, "{text}");
        }
        assert!(number("many".into()).is_none());
    }
}

//! Patterns of scripts: regular expressions without case, with tables of words in them.
//!
//! `{port:from}` stands for any word of the table `port`, captured as `from` and replaced by its canonical word.

use std::{collections::BTreeMap, sync::OnceLock};

use indexmap::IndexMap;
use regex::{Regex, RegexBuilder};
use segue_base::limits;

/// A regular expression that is compiled when it is first needed: a script has hundreds, a request needs a few, and compiling
/// all of them would be most of a program's start.
#[derive(Clone, Debug)]
struct Lazy {
    source: String,
    regex: OnceLock<Option<Regex>>,
}

impl Lazy {
    fn new(source: String) -> Self {
        Self { source, regex: OnceLock::new() }
    }

    /// `None`: it grows beyond the limit of size, and matches nothing. Its syntax was read before.
    fn regex(&self) -> Option<&Regex> {
        let compiled =
            || RegexBuilder::new(&self.source).case_insensitive(true).size_limit(limits::SCRIPT_PATTERN).build().ok();
        self.regex.get_or_init(compiled).as_ref()
    }
}

/// Words and their other names.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// Any of the words, as one group.
    any: String,
    rows: Vec<(String, Lazy)>,
}

impl Table {
    /// The word that `text` is another name of.
    pub(super) fn canonical(&self, text: &str) -> Option<&str> {
        let is = |names: &Lazy| names.regex().is_some_and(|names| names.is_match(text.trim()));
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
                let names = plain_classes(&names);
                read.push((word, Lazy::new(format!("^(?:{names})$"))));
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

/// One pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    /// `.`: anything at all.
    open: bool,
    regex: Lazy,
    /// The tables of captures that have one.
    canonical: BTreeMap<String, Table>,
}

impl Pattern {
    pub(super) fn new(text: &str, tables: &Tables) -> Result<Self, String> {
        let mut expanded = String::with_capacity(text.len());
        // The same with a letter for each table: tables were read before, and are long.
        let mut brief = String::with_capacity(text.len());
        let mut canonical = BTreeMap::new();
        let mut rest = text;
        while let Some((head, table, name, tail)) = reference(rest) {
            let Some(found) = tables.0.get(table) else {
                return Err(format!("`{text}`: no table is named `{table}`"));
            };
            expanded.push_str(&plain_classes(head));
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
        expanded.push_str(&plain_classes(rest));
        brief.push_str(rest);
        check(&brief).map_err(|error| format!("`{text}`: {error}"))?;
        Ok(Self { open: text == ".", regex: Lazy::new(expanded), canonical })
    }

    /// Where `text` matches: the captures by name and by number.
    pub(super) fn find(&self, text: &str) -> Option<Captures> {
        if self.open {
            return (!text.is_empty()).then(Captures::default);
        }
        let regex = self.regex.regex()?;
        let captures = regex.captures(text)?;
        let numbered = captures.iter().map(|group| group.map_or("", |group| group.as_str()).to_owned()).collect();
        let mut named = BTreeMap::new();
        for name in regex.capture_names().flatten() {
            let Some(group) = captures.name(name) else { continue };
            let word = self.canonical.get(name).and_then(|table| table.canonical(group.as_str()));
            named.insert(name.to_owned(), word.unwrap_or(group.as_str()).to_owned());
        }
        Some(Captures { named, numbered })
    }

    /// The last place where `text` matches: its group `it`, else the first group that took part, else all of it.
    pub(super) fn last(&self, text: &str) -> Option<String> {
        let captures = self.regex.regex()?.captures_iter(text).last()?;
        let group =
            captures.name("it").or_else(|| captures.iter().skip(1).flatten().next()).or_else(|| captures.get(0))?;
        Some(group.as_str().to_owned())
    }
}

/// Reads a pattern without compiling it.
fn check(pattern: &str) -> Result<(), String> {
    let read = regex_syntax::ast::parse::Parser::new().parse(pattern);
    read.map(|_| ()).map_err(|error| error.to_string())
}

/// `\w`, `\W`, `\d` as classes of ASCII letters and digits: the full ones cost a hundred times as much to compile, and scripts are
/// written for a few known sentences.
fn plain_classes(pattern: &str) -> String {
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

/// What a pattern caught.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Captures {
    pub(super) named: BTreeMap<String, String>,
    pub(super) numbered: Vec<String>,
}

/// The first `{table}` or `{table:name}` of `text`, with what stands before and after it.
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

/// Filter `number`: the first number in a text, in digits or in English words up to twenty; nothing when there is none.
pub(super) fn number(text: String) -> minijinja::Value {
    let lower = text.to_lowercase();
    for word in lower.split(|c: char| !c.is_alphanumeric() && c != '.').filter(|word| !word.is_empty()) {
        if let Ok(whole) = word.parse::<i64>() {
            return whole.into();
        }
        if let Ok(broken) = word.trim_end_matches('.').parse::<f64>() {
            return if broken.fract() == 0.0 { (broken as i64).into() } else { broken.into() };
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
    fn captures_of_tables_are_canonical() {
        let pattern = Pattern::new(r"from {port:from} to {port:to}(?: with (?P<n>\d{1,2}))?", &tables()).unwrap();
        let found = pattern.find("FROM bgo to STAVANGER with 12 please").unwrap();
        let named: Vec<_> = found.named.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(named, [("from", "Bergen"), ("n", "12"), ("to", "Stavanger")]);
        assert!(pattern.find("from Oslo to svg").is_none());
        assert!(pattern.find("from bgox to svg").is_none(), "words are whole");
    }

    #[test]
    fn braces_of_regular_expressions_stay() {
        assert!(Pattern::new(r"^\p{L}{2,3}$", &tables()).unwrap().find("øre").is_some());
        assert!(Pattern::new("{dock:x}", &tables()).unwrap_err().contains("dock"));
    }

    #[test]
    fn numbers_in_words() {
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

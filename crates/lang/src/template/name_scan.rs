//! Finds the filters, tests, methods and calls that a template uses, so that a misspelled name is reported at load and not in a
//! conversation.
//!
//! minijinja looks these names up at run time and does not expose its syntax tree, so this scans the text again for delimiters,
//! strings, pipes and parentheses, without a grammar. It scans only templates that minijinja has accepted.

/// How a template uses a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameKind {
    /// After a pipe.
    Filter,
    /// After `is` or `is not`.
    Test,
    /// After a dot and before a parenthesis.
    Method,
    /// Before a parenthesis. Keywords are included: `if (a)`.
    Function,
}

/// The names used in `text`, each with the byte at which it begins.
pub(super) fn names(text: &str) -> Vec<(NameKind, &str, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some((open, kind)) = next_open(text, at) {
        let body = open + 2;
        at = match kind {
            '#' => after(text, body, "#}"),
            _ if kind == '%' && is_raw(text, body) => after_raw(text, body),
            _ => scan_code(text, body, if kind == '%' { "%}" } else { "}}" }, &mut found),
        };
    }
    found
}

fn next_open(text: &str, from: usize) -> Option<(usize, char)> {
    let rest = text.get(from..)?;
    rest.match_indices('{').find_map(|(at, _)| {
        let kind = rest.get(at + 1..)?.chars().next().filter(|kind| matches!(kind, '{' | '%' | '#'))?;
        Some((from + at, kind))
    })
}

fn after(text: &str, from: usize, mark: &str) -> usize {
    text.get(from..).and_then(|rest| rest.find(mark)).map_or(text.len(), |at| from + at + mark.len())
}

fn is_raw(text: &str, body: usize) -> bool {
    let word = text.get(body..).unwrap_or_default().trim_start_matches(['-', '+']).trim_start();
    word.strip_prefix("raw").is_some_and(|rest| rest.trim_start_matches([' ', '-', '+']).starts_with("%}"))
}

fn after_raw(text: &str, body: usize) -> usize {
    let end = after(text, body, "endraw");
    after(text, end, "%}")
}

/// Scans code up to `close`, adds its filters to `found`, and returns the byte after `close`.
fn scan_code<'a>(text: &'a str, from: usize, close: &str, found: &mut Vec<(NameKind, &'a str, usize)>) -> usize {
    let mut quote = None;
    let mut depth = 0_usize; // the `}}` of a nested map does not end `{{ }}`
    let mut previous = Previous::Other;
    let mut chars = text.get(from..).unwrap_or_default().char_indices();
    while let Some((at, c)) = chars.next() {
        let at = from + at;
        match (quote, c) {
            (Some(_), '\\') => {
                chars.next();
            }
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, _) if depth == 0 && text.get(at..).is_some_and(|rest| rest.starts_with(close)) => {
                return at + close.len();
            }
            (None, '{') => depth += 1,
            (None, '}') => depth = depth.saturating_sub(1),
            (None, '|') => previous = Previous::Pipe,
            (None, '.') => previous = Previous::Dot,
            (None, c) if c.is_whitespace() => continue,
            (None, c) if c.is_alphanumeric() || c == '_' => {
                let name = word_at(text, at);
                for _ in name.chars().skip(1) {
                    chars.next();
                }
                let called = text.get(at + name.len()..).is_some_and(|rest| rest.trim_start().starts_with('('));
                let kind = match previous {
                    Previous::Pipe => Some(NameKind::Filter),
                    Previous::Is if name == "not" => continue,
                    Previous::Is => Some(NameKind::Test),
                    Previous::Dot => called.then_some(NameKind::Method),
                    Previous::Other => called.then_some(NameKind::Function),
                };
                let is_test = previous == Previous::Other && name == "is";
                previous = if is_test { Previous::Is } else { Previous::Other };
                if let (Some(kind), false) = (kind, c.is_numeric()) {
                    found.push((kind, name, at));
                }
                continue;
            }
            (None, _) => {}
        }
        if !matches!(c, '|' | '.') || quote.is_some() {
            previous = Previous::Other;
        }
    }
    text.len()
}

/// What precedes a word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Previous {
    Pipe,
    Dot,
    Is,
    Other,
}

fn word_at(text: &str, at: usize) -> &str {
    let rest = text.get(at..).unwrap_or_default();
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
    rest.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn only_names_in_code_are_found() {
        let text = "a | no {# x | no #}{{ 'a | no' | one }}{% raw %}{{ x | no }}{% endraw %}\
                    {% for k in d |two | three('\\'|no') %}{{ {'a': {'b': x|four}}|five }}{{ \"|no\" }}| no {% endfor %}";
        let found: Vec<&str> = names(text).into_iter().map(|(_, name, _)| name).collect();
        assert_eq!(found, ["one", "two", "three", "four", "five"]);
        for (_, name, at) in names(text) {
            assert!(text[at..].starts_with(name));
        }
    }

    #[test]
    fn tests_methods_and_calls_are_found() {
        use NameKind::*;
        let text =
            "{% if a.b is not odd and c is none %}{{ a.b.get('x(').strip () ~ f(1.5) ~ a.is | up(2) }}{% endif %}";
        let found: Vec<_> = names(text).into_iter().map(|(kind, name, _)| (kind, name)).collect();
        let expected =
            [(Test, "odd"), (Test, "none"), (Method, "get"), (Method, "strip"), (Function, "f"), (Filter, "up")];
        assert_eq!(found, expected);
    }
}

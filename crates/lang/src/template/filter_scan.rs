//! Finds the filters that a template uses, so that a misspelled filter is reported at load and not in a conversation.
//!
//! minijinja looks filters up at run time and does not expose its syntax tree, so this scans the text again for delimiters, strings and
//! pipes, without a grammar. It scans only templates that minijinja has accepted.

/// The filters used in `text`, each with the byte at which its name begins.
pub(super) fn filters(text: &str) -> Vec<(&str, usize)> {
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
fn scan_code<'a>(text: &'a str, from: usize, close: &str, found: &mut Vec<(&'a str, usize)>) -> usize {
    let mut quote = None;
    let mut depth = 0_usize; // the `}}` of a nested map does not end `{{ }}`
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
            (None, '|') => found.extend(name_after(text, at + 1)),
            (None, _) => {}
        }
    }
    text.len()
}

fn name_after(text: &str, from: usize) -> Option<(&str, usize)> {
    let rest = text.get(from..)?;
    let trimmed = rest.trim_start();
    let start = from + rest.len() - trimmed.len();
    let end = trimmed.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(trimmed.len());
    (end > 0).then_some((trimmed.get(..end)?, start))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn only_filters_in_code_are_found() {
        let text = "a | no {# x | no #}{{ 'a | no' | one }}{% raw %}{{ x | no }}{% endraw %}\
                    {% for k in d |two | three('\\'|no') %}{{ {'a': {'b': x|four}}|five }}{{ \"|no\" }}| no {% endfor %}";
        let names: Vec<&str> = filters(text).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["one", "two", "three", "four", "five"]);
        for (name, at) in filters(text) {
            assert!(text[at..].starts_with(name));
        }
    }
}

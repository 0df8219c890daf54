//! Wraps and truncates the labels of nodes and edges.

use crate::limits::{PICTURE_LINE, PICTURE_LINES};

/// Breaks a text between words into at most [`PICTURE_LINES`] lines of about [`PICTURE_LINE`] characters; the rest
/// becomes `…`. Line breaks and other control characters are treated as spaces.
pub(super) fn wrap(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        let word = cut(word, PICTURE_LINE);
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= PICTURE_LINE => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
        if lines.len() > PICTURE_LINES {
            lines.truncate(PICTURE_LINES);
            if let Some(last) = lines.last_mut() {
                last.push_str(" …");
            }
            break;
        }
    }
    lines
}

/// At most `most` characters.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_broken_between_words_and_cut() {
        assert_eq!(wrap("slots.a > 5"), ["slots.a > 5"]);
        assert_eq!(wrap("one\ntwo\u{1b}[2J"), ["one two [2J"]);
        let long = wrap(&"word ".repeat(60));
        assert_eq!(long.len(), PICTURE_LINES);
        assert!(long.iter().all(|line| line.chars().count() <= PICTURE_LINE + 2), "{long:?}");
        assert!(long.last().is_some_and(|line| line.ends_with(" …")));
        assert_eq!(wrap(&"x".repeat(200)), [format!("{}…", "x".repeat(PICTURE_LINE - 1))]);
    }
}

//! Safe handling of text: truncating it without splitting a character, and removing or escaping hidden characters.
//!
//! Use [`strip_hidden`] for third-party text that a model will read, [`escape_hidden`] for text that a person must judge (logs,
//! confirmations, the inspector), and [`truncate`] for text that has to fit. Apply them where text is used; stored text stays as it is.

use std::borrow::Cow;

use unicode_segmentation::UnicodeSegmentation;

/// The usual end mark of a truncated text.
pub const ELLIPSIS: &str = "…";

/// The largest size of a truncated text, including the end mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextLimit {
    /// At most this many bytes of UTF-8.
    Bytes(usize),
    /// At most this many characters (Unicode scalar values), the unit of `user_input.max_characters`.
    Chars(usize),
}

impl TextLimit {
    fn max(self) -> usize {
        match self {
            Self::Bytes(n) | Self::Chars(n) => n,
        }
    }
    fn size(self, text: &str) -> usize {
        match self {
            Self::Bytes(_) => text.len(),
            Self::Chars(_) => text.chars().count(),
        }
    }
}

/// Truncates `text` to `limit` and ends it with `mark`. A text within the limit is returned as it is.
///
/// A grapheme cluster (an emoji with a skin tone) is kept or dropped as a whole, unless it alone is larger than the limit; then it is
/// cut between scalar values. If not even the mark fits, it is omitted. Reads no further than the limit.
pub fn truncate<'a>(text: &'a str, limit: TextLimit, mark: &str) -> Cow<'a, str> {
    let max = limit.max();
    if text.len() <= max {
        return Cow::Borrowed(text); // every unit is at least one byte
    }
    let mark = if limit.size(mark) <= max { mark } else { "" };
    let available = max - limit.size(mark);
    let (mut used, mut end) = (0, 0);
    for (at, cluster) in text.grapheme_indices(true) {
        let size = limit.size(cluster);
        if used + size <= available {
            end = at + cluster.len();
        }
        used += size;
        if used > max {
            if end == 0 {
                end = scalar_boundary(cluster, limit, available);
            }
            let start = text.get(..end).unwrap_or_default();
            return Cow::Owned([start, mark].concat());
        }
    }
    Cow::Borrowed(text)
}

/// The byte at which to cut a single cluster that is larger than `available`: between two scalar values.
fn scalar_boundary(cluster: &str, limit: TextLimit, available: usize) -> usize {
    match limit {
        TextLimit::Chars(_) => cluster.char_indices().nth(available).map_or(cluster.len(), |(at, _)| at),
        TextLimit::Bytes(_) => cluster.floor_char_boundary(available),
    }
}

/// Whether a character prints nothing or moves other characters: controls (except newline and tab), bidirectional controls,
/// zero-width characters, and the tag and variation-selector blocks, which can carry hidden text.
///
/// The two presentation selectors (U+FE0E, U+FE0F) do not count: they choose between text and emoji form.
pub fn is_hidden(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}' => true,
        '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' => true,
        '\u{2060}'..='\u{206F}' | '\u{3164}' | '\u{FE00}'..='\u{FE0D}' | '\u{FEFF}' | '\u{FFA0}' => true,
        '\u{FFF0}'..='\u{FFFB}' | '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}' => true,
        '\u{E0000}'..='\u{E0FFF}' => true,
        other => other.is_control(),
    }
}

/// Removes hidden characters from third-party text (tool results, documents, descriptions, messages of remote agents).
///
/// Line breaks of every kind become `\n`. Zero-width joiners are removed too, so a joined emoji falls apart into its parts; that is
/// cheaper than letting a hidden instruction reach a model.
pub fn strip_hidden(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\r' => {
                chars.next_if_eq(&'\n');
                out.push('\n');
            }
            '\u{2028}' | '\u{2029}' => out.push('\n'),
            c if is_hidden(c) => {}
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Puts text on one line and replaces every hidden character by a visible symbol, for logs and confirmations.
///
/// Controls become their control pictures (`␊`, `␉`, `␛`), other characters their code point: `⟨U+202E⟩`.
pub fn escape_hidden(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| is_hidden(c) || c == '\n' || c == '\t') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\0'..='\u{1F}' => out.extend(char::from_u32(0x2400 + u32::from(c))),
            '\u{7F}' => out.push('␡'),
            c if is_hidden(c) => out.push_str(&format!("⟨U+{:04X}⟩", u32::from(c))),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Replaces every line break, of whatever kind, by one space, so that a value cannot start a new line of a prompt.
pub fn single_line(text: &str) -> Cow<'_, str> {
    let is_break = |c: char| matches!(c, '\n' | '\r' | '\u{0B}' | '\u{0C}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    if !text.contains(is_break) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\r' {
            chars.next_if_eq(&'\n');
        }
        out.push(if is_break(c) { ' ' } else { c });
    }
    Cow::Owned(out)
}

/// An id as words for people: `transfer_money` and `transfer-money` become `transfer money`.
pub fn readable_name(id: &str) -> String {
    id.split(['_', '-']).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn truncate_keeps_grapheme_clusters_and_counts_the_mark() {
        assert_eq!(truncate("abcdef", TextLimit::Chars(6), ELLIPSIS), "abcdef");
        assert_eq!(truncate("abcdefg", TextLimit::Chars(6), ELLIPSIS), "abcde…");
        assert_eq!(truncate("äöüäöü", TextLimit::Bytes(8), ELLIPSIS), "äö…");
        let family = "👨‍👩‍👧‍👦👨‍👩‍👧‍👦👨‍👩‍👧‍👦";
        assert_eq!(truncate(family, TextLimit::Chars(21), ELLIPSIS), family);
        assert_eq!(truncate(family, TextLimit::Chars(20), ELLIPSIS), "👨‍👩‍👧‍👦👨‍👩‍👧‍👦…");
        assert_eq!(truncate("abc", TextLimit::Bytes(2), ELLIPSIS), "ab", "the mark itself needs three bytes");
        assert_eq!(truncate("abc", TextLimit::Chars(0), ELLIPSIS), "");
    }

    #[test]
    fn truncate_cuts_inside_a_cluster_larger_than_the_limit() {
        let cluster = format!("a{}", "\u{0301}".repeat(500));
        assert_eq!(truncate(&cluster, TextLimit::Chars(10), ELLIPSIS).chars().count(), 10);
        assert!(truncate(&cluster, TextLimit::Bytes(10), ELLIPSIS).len() <= 10);
    }

    #[test]
    fn hidden_characters_are_stripped_or_escaped() {
        let tagged = "pay\u{E0069}\u{E0067} \u{202E}now\u{200B}\r\nplease\u{1B}[2J\u{FEFF}";
        assert_eq!(strip_hidden(tagged), "pay now\nplease[2J");
        assert_eq!(escape_hidden(tagged), "pay⟨U+E0069⟩⟨U+E0067⟩ ⟨U+202E⟩now⟨U+200B⟩␍␊please␛[2J⟨U+FEFF⟩");
        assert!(matches!(strip_hidden("größe ❤\u{FE0F}\n"), Cow::Borrowed(_)), "visible text is not touched");
    }

    #[test]
    fn line_breaks_become_spaces_and_ids_become_words() {
        assert_eq!(single_line("a\r\nb\nc\u{2028}d"), "a b c d");
        assert_eq!(readable_name("transfer_money"), "transfer money");
        assert_eq!(readable_name("check-in__flow"), "check in flow");
    }

    proptest! {
        #[test]
        fn truncated_text_never_exceeds_its_limit(text in ".{0,60}", limit in 0usize..20) {
            prop_assert!(truncate(&text, TextLimit::Bytes(limit), ELLIPSIS).len() <= limit);
            prop_assert!(truncate(&text, TextLimit::Chars(limit), ELLIPSIS).chars().count() <= limit);
        }

        #[test]
        fn strip_hidden_is_complete_and_idempotent(text in any::<String>()) {
            let once = strip_hidden(&text).into_owned();
            prop_assert!(!once.chars().any(is_hidden));
            prop_assert!(strip_hidden(&once) == once);
            prop_assert!(!escape_hidden(&text).chars().any(|c| is_hidden(c) || c == '\n'));
        }
    }
}

//! Text made safe: cut without breaking a character, freed of what nobody can see, or with the unseen made visible.
//!
//! Three uses, three functions. Text of others that a model will read is [`cleaned`]; text that a person must judge (logs,
//! confirmations, the inspector) keeps everything and is [`shown`]; text that has to fit is [`truncate`]d. What is stored is
//! never changed by any of them.

use std::borrow::Cow;

use unicode_segmentation::UnicodeSegmentation;

/// The mark that stands where text was cut away.
pub const CUT_MARK: &str = "…";

/// How much of a text may stay, the cut mark included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// At most this many bytes of UTF-8.
    Bytes(usize),
    /// At most this many characters (Unicode scalar values), the unit of `user_input.max_characters`.
    Chars(usize),
}

impl Keep {
    fn limit(self) -> usize {
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

/// Cuts `text` to the limit, ending it with `mark`, never inside a character.
///
/// A character of several code points (an emoji with a skin tone) is kept whole or dropped whole, unless it alone is
/// larger than the limit. Where not even the mark fits, there is no mark. Reads no further than the limit.
pub fn truncate<'a>(text: &'a str, keep: Keep, mark: &str) -> Cow<'a, str> {
    let limit = keep.limit();
    if text.len() <= limit {
        return Cow::Borrowed(text); // every unit is at least one byte
    }
    let mark = if keep.size(mark) <= limit { mark } else { "" };
    let room = limit - keep.size(mark);
    let (mut used, mut end) = (0, 0);
    for (at, cluster) in text.grapheme_indices(true) {
        let size = keep.size(cluster);
        if used + size <= room {
            end = at + cluster.len();
        }
        used += size;
        if used > limit {
            if end == 0 {
                end = cut_inside(cluster, keep, room);
            }
            let kept = text.get(..end).unwrap_or_default();
            return Cow::Owned([kept, mark].concat());
        }
    }
    Cow::Borrowed(text)
}

/// Where to cut a single cluster that is larger than the room: at a scalar value.
fn cut_inside(cluster: &str, keep: Keep, room: usize) -> usize {
    match keep {
        Keep::Chars(_) => cluster.char_indices().nth(room).map_or(cluster.len(), |(at, _)| at),
        Keep::Bytes(_) => cluster.floor_char_boundary(room),
    }
}

/// Whether a character prints nothing or moves other characters: controls (but newline and tab), bidi controls,
/// zero-width characters, the tag and variation blocks that can carry hidden words.
///
/// The two presentation selectors (U+FE0E, U+FE0F) are no such character: they choose between text and emoji form.
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

/// Text of others (tool results, documents, descriptions, other agents) without its hidden characters.
///
/// Line ends of every kind become `\n`. Joiners go too, so a joined emoji falls apart into its parts: hidden words cost more.
pub fn cleaned(text: &str) -> Cow<'_, str> {
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

/// Text on one line with every hidden character shown as a symbol, for logs and confirmations.
///
/// Controls become their pictures (`␊`, `␉`, `␛`), the others their number: `⟨U+202E⟩`.
pub fn shown(text: &str) -> Cow<'_, str> {
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

/// The text with every line break, of whatever kind, turned into one space: a prompt line stays one line.
pub fn flattened(text: &str) -> Cow<'_, str> {
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

/// An id as people say it: `transfer_money` and `transfer-money` read `transfer money`.
pub fn readable_name(id: &str) -> String {
    id.split(['_', '-']).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cut_keeps_whole_characters_and_counts_the_mark() {
        assert_eq!(truncate("abcdef", Keep::Chars(6), CUT_MARK), "abcdef");
        assert_eq!(truncate("abcdefg", Keep::Chars(6), CUT_MARK), "abcde…");
        assert_eq!(truncate("äöüäöü", Keep::Bytes(8), CUT_MARK), "äö…");
        let family = "👨‍👩‍👧‍👦👨‍👩‍👧‍👦👨‍👩‍👧‍👦";
        assert_eq!(truncate(family, Keep::Chars(21), CUT_MARK), family);
        assert_eq!(truncate(family, Keep::Chars(20), CUT_MARK), "👨‍👩‍👧‍👦👨‍👩‍👧‍👦…");
        assert_eq!(truncate("abc", Keep::Bytes(2), CUT_MARK), "ab", "the mark itself needs three bytes");
        assert_eq!(truncate("abc", Keep::Chars(0), CUT_MARK), "");
    }

    #[test]
    fn a_tower_of_accents_is_cut_inside() {
        let tower = format!("a{}", "\u{0301}".repeat(500));
        assert_eq!(truncate(&tower, Keep::Chars(10), CUT_MARK).chars().count(), 10);
        assert!(truncate(&tower, Keep::Bytes(10), CUT_MARK).len() <= 10);
    }

    #[test]
    fn hidden_words_are_taken_out_or_shown() {
        let tagged = "pay\u{E0069}\u{E0067} \u{202E}now\u{200B}\r\nplease\u{1B}[2J\u{FEFF}";
        assert_eq!(cleaned(tagged), "pay now\nplease[2J");
        assert_eq!(shown(tagged), "pay⟨U+E0069⟩⟨U+E0067⟩ ⟨U+202E⟩now⟨U+200B⟩␍␊please␛[2J⟨U+FEFF⟩");
        assert!(matches!(cleaned("größe ❤\u{FE0F}\n"), Cow::Borrowed(_)), "visible text is not touched");
    }

    #[test]
    fn lines_become_one_line() {
        assert_eq!(flattened("a\r\nb\nc\u{2028}d"), "a b c d");
        assert_eq!(readable_name("transfer_money"), "transfer money");
        assert_eq!(readable_name("check-in__flow"), "check in flow");
    }

    proptest! {
        #[test]
        fn a_cut_never_exceeds_its_limit(text in ".{0,60}", limit in 0usize..20) {
            prop_assert!(truncate(&text, Keep::Bytes(limit), CUT_MARK).len() <= limit);
            prop_assert!(truncate(&text, Keep::Chars(limit), CUT_MARK).chars().count() <= limit);
            prop_assert!(truncate(&text, Keep::Chars(limit), CUT_MARK).chars().count() <= limit);
        }

        #[test]
        fn cleaned_text_hides_nothing_and_stays_so(text in any::<String>()) {
            let once = cleaned(&text).into_owned();
            prop_assert!(!once.chars().any(is_hidden));
            prop_assert!(cleaned(&once) == once);
            prop_assert!(!shown(&text).chars().any(|c| is_hidden(c) || c == '\n'));
        }
    }
}

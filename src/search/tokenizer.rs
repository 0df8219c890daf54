//! Splits text into index terms. A word is a run of letters and digits of any script, in lower case.

/// An index term and its weight; a whole word has weight 1.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Term {
    pub(super) text: String,
    pub(super) weight: f32,
}

/// The weight of a prefix of a word.
const PREFIX_WEIGHT: f32 = 0.6;

/// The terms of a text, in order: words, and prefixes of words, so that `refunds` is found by `refund`. Scripts without spaces
/// between words yield single characters and pairs of characters.
pub(super) fn terms(text: &str) -> Vec<Term> {
    let mut terms = Vec::new();
    let mut word = String::new();
    let mut before: Option<char> = None;
    for c in text.chars() {
        if is_unspaced_script(c) {
            push_word(&mut word, &mut terms);
            terms.push(Term { text: c.to_string(), weight: PREFIX_WEIGHT });
            if let Some(before) = before {
                terms.push(Term { text: [before, c].iter().collect(), weight: 1.0 });
            }
            before = Some(c);
            continue;
        }
        before = None;
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        } else if !continues_word(c) || word.is_empty() {
            push_word(&mut word, &mut terms);
        }
    }
    push_word(&mut word, &mut terms);
    terms
}

fn push_word(word: &mut String, terms: &mut Vec<Term>) {
    if word.is_empty() {
        return;
    }
    let length = word.chars().count();
    let mut push_prefix = |count: usize| {
        let text = std::iter::once('~').chain(word.chars().take(count)).collect();
        terms.push(Term { text, weight: PREFIX_WEIGHT });
    };
    // The forms of a word share a prefix that is about as long as the shortest of them.
    match length {
        0..=2 => {}
        3 => push_prefix(3),
        4 | 5 => {
            push_prefix(length - 1);
            push_prefix(length);
        }
        _ => push_prefix(5),
    }
    terms.push(Term { text: std::mem::take(word), weight: 1.0 });
}

/// Characters of scripts without spaces between words: Chinese, Japanese, Thai, Lao and Khmer.
fn is_unspaced_script(c: char) -> bool {
    matches!(c, '\u{0E00}'..='\u{0EFF}' | '\u{1780}'..='\u{17FF}' | '\u{3040}'..='\u{30FF}' | '\u{3400}'..='\u{9FFF}'
        | '\u{F900}'..='\u{FAFF}' | '\u{20000}'..='\u{3FFFF}')
}

/// Characters that do not end a word: apostrophes, combining marks and joiners.
fn continues_word(c: char) -> bool {
    matches!(c, '\'' | '\u{2019}' | '\u{0300}'..='\u{036F}' | '\u{200C}' | '\u{200D}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<String> {
        terms(text).into_iter().map(|term| term.text).collect()
    }

    #[test]
    fn words_of_any_script_are_split() {
        assert_eq!(tokens("Transfer_money, now!"), ["~trans", "transfer", "~mone", "~money", "money", "~now", "now"]);
        assert_eq!(tokens("don\u{2019}t"), ["~don", "~dont", "dont"]);
        assert_eq!(tokens("ÜBER Straße"), ["~übe", "~über", "über", "~straß", "straße"]);
        assert_eq!(tokens("退款 a"), ["退", "款", "退款", "a"]);
        assert_eq!(tokens(" -- \u{1F600} "), Vec::<String>::new());
    }

    #[test]
    fn forms_of_a_word_share_a_prefix() {
        for (a, b) in [
            ("refund", "refunds"),
            ("boat", "boats"),
            ("dog", "dogs"),
            ("booking", "bookings"),
            ("cancel", "cancelling"),
        ] {
            let (a, b) = (tokens(a), tokens(b));
            assert!(a.iter().any(|term| b.contains(term)), "{a:?} {b:?}");
        }
    }
}

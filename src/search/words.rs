//! What counts as a word: runs of letters and digits of any script, in small letters.

/// A part of a text that can be looked for, and how much it counts beside a whole word.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Term {
    pub(super) text: String,
    pub(super) weight: f32,
}

/// The beginning of a word counts for less than the word.
const BEGINNING: f32 = 0.6;

/// The terms of a text, in order: words, and the beginnings of longer ones, so that `refunds` is found by `refund`. Scripts
/// without spaces between words give single characters and pairs.
pub(super) fn terms(text: &str) -> Vec<Term> {
    let mut terms = Vec::new();
    let mut word = String::new();
    let mut before: Option<char> = None;
    for c in text.chars() {
        if is_alone(c) {
            end(&mut word, &mut terms);
            terms.push(Term { text: c.to_string(), weight: BEGINNING });
            if let Some(before) = before {
                terms.push(Term { text: [before, c].iter().collect(), weight: 1.0 });
            }
            before = Some(c);
            continue;
        }
        before = None;
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        } else if !is_inside(c) || word.is_empty() {
            end(&mut word, &mut terms);
        }
    }
    end(&mut word, &mut terms);
    terms
}

fn end(word: &mut String, terms: &mut Vec<Term>) {
    if word.is_empty() {
        return;
    }
    let length = word.chars().count();
    let mut beginning = |count: usize| {
        let text = std::iter::once('~').chain(word.chars().take(count)).collect();
        terms.push(Term { text, weight: BEGINNING });
    };
    // A word and its forms share a beginning that is about as long as the shorter of them.
    match length {
        0..=2 => {}
        3 => beginning(3),
        4 | 5 => {
            beginning(length - 1);
            beginning(length);
        }
        _ => beginning(5),
    }
    terms.push(Term { text: std::mem::take(word), weight: 1.0 });
}

/// Scripts whose words are not set apart: Chinese characters, Japanese syllables, Thai and its neighbours.
fn is_alone(c: char) -> bool {
    matches!(c, '\u{0E00}'..='\u{0EFF}' | '\u{1780}'..='\u{17FF}' | '\u{3040}'..='\u{30FF}' | '\u{3400}'..='\u{9FFF}'
        | '\u{F900}'..='\u{FAFF}' | '\u{20000}'..='\u{3FFFF}')
}

/// What stands inside a word: apostrophes and marks on letters.
fn is_inside(c: char) -> bool {
    matches!(c, '\'' | '\u{2019}' | '\u{0300}'..='\u{036F}' | '\u{200C}' | '\u{200D}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<String> {
        terms(text).into_iter().map(|term| term.text).collect()
    }

    #[test]
    fn words_of_any_script() {
        assert_eq!(of("Transfer_money, now!"), ["~trans", "transfer", "~mone", "~money", "money", "~now", "now"]);
        assert_eq!(of("don\u{2019}t"), ["~don", "~dont", "dont"]);
        assert_eq!(of("ÜBER Straße"), ["~übe", "~über", "über", "~straß", "straße"]);
        assert_eq!(of("退款 a"), ["退", "款", "退款", "a"]);
        assert_eq!(of(" -- \u{1F600} "), Vec::<String>::new());
    }

    #[test]
    fn other_forms_of_a_word_share_its_beginning() {
        for (a, b) in [
            ("refund", "refunds"),
            ("boat", "boats"),
            ("dog", "dogs"),
            ("booking", "bookings"),
            ("cancel", "cancelling"),
        ] {
            let (a, b) = (of(a), of(b));
            assert!(a.iter().any(|term| b.contains(term)), "{a:?} {b:?}");
        }
    }
}

//! When an agent says that it is done, it must be done: claims of completion, held against the effects that were recorded.
//!
//! A sentence is a claim when it says in the first person, or of something of the user's, that it has been done. Questions,
//! conditions and what lies ahead are none. The built-in expressions are English; for other languages, and for claims that only
//! certain tools can make true, the author lists `claims`.

use std::sync::{Arc, OnceLock};

use super::slot_tools;
use segue_engine::{
    project::{AgentRules, ClaimRule, GroundedRule},
    regex_dialect::{Flags, PythonRegex},
};

/// What changes the world, in the form that follows `have`.
const DONE: &str = "booked|rebooked|reserved|ordered|purchased|bought|paid|refunded|transferred|sent|submitted|cancelled|\
    canceled|changed|updated|deleted|removed|created|added|scheduled|rescheduled|registered|confirmed|arranged|filed|\
    blocked|activated|deactivated|placed|issued|emailed|e-mailed|processed|completed|saved|set up|signed up";

/// Of these, what recording a value may be called: tools that record the values of slots prove this, and nothing else.
const RECORDED: [&str; 6] = ["added", "changed", "removed", "saved", "set up", "updated"];

/// Whose claims are looked at, and how.
#[derive(Clone, Copy)]
pub(super) struct Claims<'a> {
    rules: &'a AgentRules,
}

impl<'a> Claims<'a> {
    /// Of an agent.
    pub(super) fn of(rules: &'a AgentRules) -> Option<Self> {
        (rules.grounded != GroundedRule::Off).then_some(Self { rules })
    }
    /// Whether the user must not hear what is not proven.
    pub(super) fn repairs(self) -> bool {
        self.rules.grounded == GroundedRule::Repair
    }
    /// The first sentence of a text that claims what none of these tools has done.
    pub(super) fn unproven<'t>(self, text: &'t str, effects: &[Arc<str>]) -> Option<&'t str> {
        let mut rest = text;
        while !rest.is_empty() {
            let end = sentence_end(rest).unwrap_or(rest.len());
            let (sentence, after) = rest.split_at(end);
            if !self.holds(sentence, effects) {
                return Some(sentence.trim());
            }
            rest = after;
        }
        None
    }
    /// Whether a sentence claims nothing that these tools have not done.
    pub(super) fn holds(self, sentence: &str, effects: &[Arc<str>]) -> bool {
        let own: Vec<&ClaimRule> =
            self.rules.claims.iter().filter(|claim| claim.says.is_match(sentence).is_match()).collect();
        // A value that was recorded is a thing that was done, but nothing beyond the conversation.
        let real = effects.iter().any(|tool| !tool.starts_with(slot_tools::PREFIX));
        if own.is_empty() {
            return real || !(if effects.is_empty() { is_claim(sentence) } else { claims_more(sentence) });
        }
        own.iter().all(|claim| match claim.needs.as_slice() {
            [] => real,
            needs => needs.iter().any(|tool| effects.contains(tool)),
        })
    }
}

/// Where the first sentence of a text ends, its white space included; `None` while it may go on.
pub(super) fn sentence_end(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|(_, next)| *next);
        let ends = match c {
            '\n' | '。' | '！' | '？' => true,
            '.' | '!' | '?' => next.is_some_and(char::is_whitespace),
            _ => false,
        };
        if ends {
            let tail = text.get(at + c.len_utf8()..).unwrap_or_default();
            let blank = tail.len() - tail.trim_start().len();
            return Some(at + c.len_utf8() + blank);
        }
    }
    None
}

/// How a claim is said; `{done}` is one of [`DONE`], `{beside}` the plain word for it, `{adverb}` what may stand before it.
const SAYS: [&str; 5] = [
    r"\b(?:i|we)(?:['’]ve| have)? {adverb}(?:{done})\b",
    r"\byour\b[^.?!]{0,60}\b(?:has been|have been|is|are|was|were) {adverb}(?:{done})\b",
    r"\bsuccessfully (?:{done})\b",
    r"^\W*(?:it(?:['’]s| is)|all) {adverb}(?:{beside}{done})\b",
    r"^\W*(?:done|all done|booked|confirmed|cancelled|canceled)\b",
];
/// What lies ahead, what is denied, and what is only supposed.
const NOT: &str = r"\?\s*$|\b(?:if|once|when|whether|after|before|until|unless|not|never|cannot|could|would|will|shall|should|may|might|can|no longer|nothing|please)\b|n['’]t\b";

/// Whether a sentence says of something that it has been done.
pub(super) fn is_claim(sentence: &str) -> bool {
    static FOUND: OnceLock<Found> = OnceLock::new();
    found(FOUND.get_or_init(|| compiled(DONE, "done|")), sentence)
}

/// Whether a sentence says of something that it has been done which is more than recording a value.
fn claims_more(sentence: &str) -> bool {
    static FOUND: OnceLock<Found> = OnceLock::new();
    let more = || DONE.split('|').filter(|word| !RECORDED.contains(word)).collect::<Vec<_>>().join("|");
    found(FOUND.get_or_init(|| compiled(&more(), "")), sentence)
}

/// The words that a claim needs, how it is said, and what makes it none.
type Found = [Vec<PythonRegex>; 3];

fn compiled(done: &str, beside: &str) -> Found {
    let flags = Flags { ignore_case: true, ..Flags::default() };
    let adverb = "(?:(?:now|just|already|successfully|also|both) )*";
    let says = SAYS.map(|text| text.replace("{adverb}", adverb).replace("{beside}", beside).replace("{done}", done));
    let compiled = says.iter().filter_map(|text| PythonRegex::new(text, flags).ok());
    let one = |text: &str| PythonRegex::new(text, flags).into_iter().collect();
    [one(&format!("{beside}{done}")), compiled.collect(), one(NOT)]
}

fn found([words, says, not]: &Found, sentence: &str) -> bool {
    let any = |patterns: &[PythonRegex]| patterns.iter().any(|pattern| pattern.is_match(sentence).is_match());
    // Most sentences have no such word: they are looked at once.
    any(words) && any(says) && !any(not)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_told_from_other_sentences() {
        for claim in [
            "I've booked NW-1 for you.",
            "I have now cancelled your crossing!",
            "Your refund has been issued.",
            "Your booking NW-7F3K2 is confirmed.",
            "Done! Have a nice trip.",
            "It's booked.",
            "We successfully transferred the money.",
            "I just sent it.",
        ] {
            assert!(is_claim(claim), "{claim}");
        }
        for none in [
            "Shall I book it?",
            "Once your booking is confirmed, you get a letter.",
            "I have not booked anything yet.",
            "I haven't cancelled it.",
            "I can book that for you.",
            "There are three crossings.",
            "I have found two boats.",
            "The crossing takes two hours.",
            "I will send it now.",
            "Has it been paid?",
        ] {
            assert!(!is_claim(none), "{none}");
        }
    }

    #[test]
    fn a_claim_of_the_author_needs_its_own_tool() {
        let says = PythonRegex::new("gebucht", Flags { ignore_case: true, ..Flags::default() });
        let claims = says.into_iter().map(|says| ClaimRule { says, needs: vec!["book".into()] }).collect();
        let rules = AgentRules { claims, ..AgentRules::default() };
        let claims = Claims { rules: &rules };
        assert!(!claims.holds("Ist gebucht.", &["pay".into()]));
        assert!(claims.holds("Ist gebucht.", &["book".into()]));
        assert_eq!(claims.unproven("Moment. Ist gebucht. Danke.", &[]), Some("Ist gebucht."));
        assert!(!claims.holds("I've paid it.", &[]));
        assert!(claims.holds("I've paid it.", &["pay".into()]));
    }

    #[test]
    fn sentences_end_where_people_end_them() {
        assert_eq!(sentence_end("At 10.30 it leaves. Then"), Some(20));
        assert_eq!(sentence_end("At 10."), None);
        assert_eq!(sentence_end("one\ntwo"), Some(4));
    }
}

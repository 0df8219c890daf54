//! The grounding check: an agent may claim that something was done only if a tool call that succeeded did it.
//!
//! A sentence is a claim if it states in the first person, or about something that belongs to the user, that it has been done. Questions,
//! conditions and plans are not claims. The built-in patterns are English; for other languages, and for claims that need a certain
//! tool, the configuration lists `claims`.

use std::sync::{Arc, OnceLock};

use segue_engine::{
    conversation::BotKind,
    project::{AgentRules, ClaimRule, GroundedRule},
    regex_dialect::{Flags, PythonRegex},
};
use serde_json::Map;

use super::{dialogue::DialogueHost, slot_tools};
use crate::{
    context::CallContext,
    limits,
    llm::{ChatMessage, FinishReason},
    react::{LoopState, ModelTurn, sentence_end},
};

/// The agent claimed an effect that no tool result supports.
pub(super) const CODE_UNGROUNDED_CLAIM: &str = "A0522";

/// The response that replaces a claim that no tool result supports.
const UNGROUNDED_RESPONSE: &str = "utter_agent_unproven";

/// Verbs of effects, in the form that follows `have`.
const EFFECT_VERBS: &str = "booked|rebooked|reserved|ordered|purchased|bought|paid|refunded|transferred|sent|submitted|cancelled|\
    canceled|changed|updated|deleted|removed|created|added|scheduled|rescheduled|registered|confirmed|arranged|filed|\
    blocked|activated|deactivated|placed|issued|emailed|e-mailed|processed|completed|saved|set up|signed up";

/// The verbs among them that describe recording a value: a slot tool supports these and no others.
const RECORDING_VERBS: [&str; 6] = ["added", "changed", "removed", "saved", "set up", "updated"];

/// The grounding rules of one agent.
#[derive(Clone, Copy)]
pub(super) struct GroundingCheck<'a> {
    rules: &'a AgentRules,
}

impl<'a> GroundingCheck<'a> {
    /// The check of an agent, unless `grounded` is off.
    pub(super) fn from_rules(rules: &'a AgentRules) -> Option<Self> {
        (rules.grounded != GroundedRule::Off).then_some(Self { rules })
    }
    /// Whether a sentence that is not supported must be withheld.
    pub(super) fn repairs(self) -> bool {
        self.rules.grounded == GroundedRule::Repair
    }
    /// The first sentence of a text whose claim none of these effects supports.
    pub(super) fn first_ungrounded<'t>(self, text: &'t str, effects: &[Arc<str>]) -> Option<&'t str> {
        let mut rest = text;
        while !rest.is_empty() {
            let end = sentence_end(rest).unwrap_or(rest.len());
            let (sentence, after) = rest.split_at(end);
            if !self.is_grounded(sentence, effects) {
                return Some(sentence.trim());
            }
            rest = after;
        }
        None
    }
    /// Whether a sentence makes no claim, or only claims that these effects support.
    pub(super) fn is_grounded(self, sentence: &str, effects: &[Arc<str>]) -> bool {
        let own: Vec<&ClaimRule> =
            self.rules.claims.iter().filter(|claim| claim.says.is_match(sentence).is_match()).collect();
        // A recorded slot value has no effect outside the conversation.
        let real = effects.iter().any(|tool| !tool.starts_with(slot_tools::PREFIX));
        if own.is_empty() {
            return real || !(if effects.is_empty() { is_claim(sentence) } else { claims_effect(sentence) });
        }
        own.iter().all(|claim| match claim.needs.as_slice() {
            [] => real,
            needs => needs.iter().any(|tool| effects.contains(tool)),
        })
    }
}

impl DialogueHost<'_> {
    /// Handles a sentence that was withheld because no tool result supports it. `None` means that the model is called again.
    pub(super) async fn enforce_grounding(
        &mut self,
        turn: ModelTurn,
        state: &mut LoopState,
        cx: &CallContext,
    ) -> Option<ModelTurn> {
        let ModelTurn::Answer(answer, mut streamed) = turn else { return Some(turn) };
        if answer.finish == FinishReason::ContentFilter {
            // The model is not called again, and the withheld text is not sent.
            return Some(ModelTurn::Answer(answer, streamed));
        }
        let Some(sentence) = streamed.ungrounded.clone() else {
            if answer.tool_calls.is_empty() {
                self.report_ungrounded(&streamed.text);
            }
            return Some(ModelTurn::Answer(answer, streamed));
        };
        self.report_claim(&sentence);
        if !answer.tool_calls.is_empty() {
            return Some(ModelTurn::Answer(answer, streamed));
        }
        if state.grounding_retries < limits::AGENT_REPAIRS {
            state.grounding_retries += 1;
            Box::pin(streamed.send_end(BotKind::Intermediate, &mut *self.out, cx)).await;
            self.recorder.record_text(&streamed, BotKind::Intermediate, false, cx);
            state.messages.push(answer.to_message());
            let variables = minijinja::context! { sentence };
            let text = self.prompts.render(&self.prompts.agent_unproven, variables).unwrap_or_default();
            state.messages.push(ChatMessage::system(text.trim()));
            return None;
        }
        if let Some(replacement) = self.request.host.render_response(UNGROUNDED_RESPONSE, &Map::new(), 0) {
            let source = self.source();
            Box::pin(streamed.append(&replacement, &source, &mut *self.out, cx)).await;
        }
        Some(ModelTurn::Answer(answer, streamed))
    }

    /// Reports an unsupported claim in a text that was sent; the text itself stays unchanged.
    pub(super) fn report_ungrounded(&self, text: &str) {
        let claim = self.grounding.and_then(|check| check.first_ungrounded(text, self.policy.effects()));
        if let Some(sentence) = claim {
            self.report_claim(sentence);
        }
    }

    fn report_claim(&self, sentence: &str) {
        let message = format!(
            "agent {} claims an effect that no tool result of its task supports: {sentence}",
            self.request.call.agent
        );
        self.request.host.report_warning(CODE_UNGROUNDED_CLAIM, message);
    }
}

/// Patterns of claims; `{done}` is one of [`EFFECT_VERBS`], `{beside}` an additional word with `|`, `{adverb}` optional adverbs.
const CLAIM_PATTERNS: [&str; 5] = [
    r"\b(?:i|we)(?:['’]ve| have)? {adverb}(?:{done})\b",
    r"\byour\b[^.?!]{0,60}\b(?:has been|have been|is|are|was|were) {adverb}(?:{done})\b",
    r"\bsuccessfully (?:{done})\b",
    r"^\W*(?:it(?:['’]s| is)|all) {adverb}(?:{beside}{done})\b",
    r"^\W*(?:done|all done|booked|confirmed|cancelled|canceled)\b",
];
/// Words by which a sentence is not a claim: plans, negations and conditions.
const EXCLUDED_PATTERN: &str = r"\?\s*$|\b(?:if|once|when|whether|after|before|until|unless|not|never|cannot|could|would|will|shall|should|may|might|can|no longer|nothing|please)\b|n['’]t\b";

/// Whether a sentence claims that something has been done.
pub(super) fn is_claim(sentence: &str) -> bool {
    static PATTERNS: OnceLock<ClaimPatterns> = OnceLock::new();
    matches_claim(PATTERNS.get_or_init(|| compile_patterns(EFFECT_VERBS, "done|")), sentence)
}

/// Whether a sentence claims more than that a value has been recorded.
fn claims_effect(sentence: &str) -> bool {
    static PATTERNS: OnceLock<ClaimPatterns> = OnceLock::new();
    let more = || EFFECT_VERBS.split('|').filter(|word| !RECORDING_VERBS.contains(word)).collect::<Vec<_>>().join("|");
    matches_claim(PATTERNS.get_or_init(|| compile_patterns(&more(), "")), sentence)
}

/// Words that a claim needs, patterns of claims, and words that exclude a sentence.
type ClaimPatterns = [Vec<PythonRegex>; 3];

fn compile_patterns(done: &str, beside: &str) -> ClaimPatterns {
    let flags = Flags { ignore_case: true, ..Flags::default() };
    let adverb = "(?:(?:now|just|already|successfully|also|both) )*";
    let says =
        CLAIM_PATTERNS.map(|text| text.replace("{adverb}", adverb).replace("{beside}", beside).replace("{done}", done));
    let compiled = says.iter().filter_map(|text| PythonRegex::new(text, flags).ok());
    let one = |text: &str| PythonRegex::new(text, flags).into_iter().collect();
    [one(&format!("{beside}{done}")), compiled.collect(), one(EXCLUDED_PATTERN)]
}

fn matches_claim([words, claims, excluded]: &ClaimPatterns, sentence: &str) -> bool {
    let any = |patterns: &[PythonRegex]| patterns.iter().any(|pattern| pattern.is_match(sentence).is_match());
    // Most sentences contain none of the words, so that the other patterns are skipped.
    any(words) && any(claims) && !any(excluded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_completion_are_recognised() {
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
    fn a_configured_claim_needs_one_of_its_tools() {
        let says = PythonRegex::new("gebucht", Flags { ignore_case: true, ..Flags::default() });
        let claims = says.into_iter().map(|says| ClaimRule { says, needs: vec!["book".into()] }).collect();
        let rules = AgentRules { claims, ..AgentRules::default() };
        let claims = GroundingCheck { rules: &rules };
        assert!(!claims.is_grounded("Ist gebucht.", &["pay".into()]));
        assert!(claims.is_grounded("Ist gebucht.", &["book".into()]));
        assert_eq!(claims.first_ungrounded("Moment. Ist gebucht. Danke.", &[]), Some("Ist gebucht."));
        assert!(!claims.is_grounded("I've paid it.", &[]));
        assert!(claims.is_grounded("I've paid it.", &["pay".into()]));
    }
}

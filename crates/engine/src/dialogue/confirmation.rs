//! Confirmation of tool calls: what the user is shown, and what counts as an answer.
//!
//! An agent whose tool needs confirmation stores its calls in the metadata of its frame. The user is shown these calls
//! themselves, with every argument. No model rephrases them, and no model interprets the answer: only a message that is
//! nothing but a yes or a no counts.

use serde_json::{Map, Value as Json, json};

use super::{Reason, advance_context::AdvanceContext, response, shortcuts};
use crate::{
    conversation::{AgentFrame, BotKind, EventKind, Frame, UNCONFIRMED_CALLS_KEY, UnconfirmedCall},
    ids::AgentName,
    limits,
    text::{ELLIPSIS, TextLimit, escape_hidden, readable_name, truncate},
};

/// The response that shows unconfirmed calls.
const CONFIRM_RESPONSE: &str = "utter_agent_confirm";
/// The prefix of a response that shows the calls of one tool.
const TOOL_CONFIRM_PREFIX: &str = "utter_agent_confirm_";
/// Words that may accompany a yes or a no without changing its meaning.
const NEUTRAL_WORDS: &[&str] = &[
    "please",
    "do",
    "it",
    "this",
    "that",
    "go",
    "ahead",
    "is",
    "fine",
    "right",
    "correct",
    "thanks",
    "thank",
    "you",
    "so",
    "confirm",
    "confirmed",
    "proceed",
    "with",
    "of",
    "course",
    "that's",
    "do",
    "don't",
    "not",
    "stop",
    "cancel",
];
/// The neutral words that only fit a no.
const NEGATIVE_WORDS: &[&str] = &["don't", "not", "stop", "cancel"];
/// Words for yes that are also verbs: "correct it" asks for a change. They count only at the end of a message.
const ALSO_VERBS: &[&str] = &["correct", "right"];
/// Words that may follow those.
const THANKS_WORDS: &[&str] = &["thanks", "thank", "you"];

/// The metadata key for calls that could not be shown: a yes does not confirm them.
const UNSHOWN_CALLS_KEY: &str = "held_calls_unshown";

/// Whether the agent has unconfirmed calls that the user has seen.
pub(super) fn has_unconfirmed_calls(frame: &AgentFrame) -> bool {
    !frame.metadata.contains_key(UNSHOWN_CALLS_KEY) && !UnconfirmedCall::of(&frame.metadata).is_empty()
}

/// Removes the unconfirmed calls from the frame on top.
pub(super) fn clear_unconfirmed_calls(turn: &mut AdvanceContext<'_>) {
    if let Some(frame) = turn.stack.last_mut().and_then(Frame::agent_mut) {
        frame.metadata.shift_remove(UNCONFIRMED_CALLS_KEY);
        frame.metadata.shift_remove(UNSHOWN_CALLS_KEY);
    }
}

/// The answer of a text to the unconfirmed calls of the agent on top, if it is one.
pub(super) fn parse_answer(turn: &AdvanceContext<'_>, text: &str) -> Option<bool> {
    let frame = turn.stack.top().and_then(Frame::agent)?;
    if !super::agent_frame::is_top_agent_waiting(&turn.stack)
        || !has_unconfirmed_calls(frame)
        || turn.is_before_question()
    {
        return None;
    }
    parse_consent(&turn.project.config.language, text)
}

/// The answer of this turn's message to the unconfirmed calls of this agent.
pub(super) fn answer_of_turn(turn: &AdvanceContext<'_>, frame: &AgentFrame) -> Option<bool> {
    let conversation = turn.conversation();
    let is_answer = conversation.turn.by_message && has_unconfirmed_calls(frame) && !turn.is_before_question();
    let message = conversation.latest_message.as_ref().filter(|_| is_answer)?;
    parse_consent(&turn.project.config.language, &message.text)
}

/// Parses a yes or a no that contains nothing else but neutral words.
fn parse_consent(language: &str, text: &str) -> Option<bool> {
    let plain = text.trim().trim_end_matches(['.', '!']).trim_end();
    if let Some(answer) = shortcuts::yes_or_no(language, plain) {
        return Some(answer);
    }
    let lower = plain.to_lowercase().replace('\u{2019}', "'");
    let words: Vec<&str> = lower
        .split(|c: char| c.is_whitespace() || matches!(c, ',' | '.' | '!' | ';' | '-'))
        .filter(|word| !word.is_empty())
        .collect();
    let (first, rest) = words.split_first()?;
    let answer = shortcuts::yes_or_no(language, first)?;
    let end = words.iter().rposition(|word| !THANKS_WORDS.contains(word)).unwrap_or_default();
    if answer && words.iter().take(end).any(|word| ALSO_VERBS.contains(word)) {
        return None;
    }
    let fits = rest.iter().all(|word| {
        let own = shortcuts::yes_or_no(language, word) == Some(answer);
        own || (NEUTRAL_WORDS.contains(word) && (!answer || !NEGATIVE_WORDS.contains(word)))
    });
    fits.then_some(answer)
}

/// Asks the user to confirm the calls in this metadata; returns whether there are any. If they cannot be shown, the
/// metadata records this and the user gets an error response: calls that were not shown are not executed.
pub(super) fn ask_for_confirmation(
    turn: &mut AdvanceContext<'_>,
    agent: &AgentName,
    metadata: &mut Map<String, Json>,
) -> bool {
    metadata.shift_remove(UNSHOWN_CALLS_KEY);
    let held = UnconfirmedCall::of(metadata);
    if held.is_empty() {
        return false;
    }
    let own = match held.as_slice() {
        [only] => {
            Some(format!("{TOOL_CONFIRM_PREFIX}{}", only.tool)).filter(|name| turn.project.response(name).is_some())
        }
        _ => None,
    };
    let lines: Vec<String> = held.iter().map(call_line).collect();
    let mut arguments = Map::new();
    if let (Some(_), [UnconfirmedCall { arguments: Json::Object(given), .. }]) = (&own, held.as_slice()) {
        arguments = given.iter().map(|(name, value)| (name.clone(), Json::from(display_value(value)))).collect();
    }
    arguments.insert("calls".to_owned(), json!(lines.join("\n")));
    let name = own.as_deref().unwrap_or(CONFIRM_RESPONSE);
    let message = turn.compose_exact(name, &arguments);
    let Some(mut message) = message.filter(|message| message.reply.text.is_some()) else {
        let because = format!("`{name}` renders no text, so the user cannot be asked and no call is executed");
        let flow = turn.stack.last().map(|top| top.flow_id.to_string()).unwrap_or_default();
        turn.add_reason(Reason::Failed { flow, cause: because });
        metadata.insert(UNSHOWN_CALLS_KEY.to_owned(), json!(true));
        turn.say(response::INTERNAL_ERROR, &Map::new());
        return true;
    };
    // The text shows exactly what will be executed, so it is not rephrased.
    message.rephrase = None;
    message.kind = BotKind::InputRequired;
    message.agent = Some(agent.clone());
    turn.emit_in_top_frame(EventKind::bot(message));
    true
}

/// A call in readable form: `cancel booking: reference = "NW-7F3K2"`.
fn call_line(call: &UnconfirmedCall) -> String {
    let name = readable_name(&escape_hidden(&call.tool));
    let arguments: Vec<String> = match &call.arguments {
        Json::Object(given) => {
            given.iter().map(|(name, value)| format!("{} = {}", escape_hidden(name), display_value(value))).collect()
        }
        Json::Null => Vec::new(),
        other => vec![display_value(other)],
    };
    if arguments.is_empty() { format!("- {name}") } else { format!("- {name}: {}", arguments.join(", ")) }
}

/// A value without invisible characters. A long value is truncated in the middle and states its length, because the end
/// matters too.
fn display_value(value: &Json) -> String {
    let text = match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    let text = escape_hidden(&text).into_owned();
    let length = text.chars().count();
    if length <= limits::CONFIRM_VALUE {
        return text;
    }
    let half = limits::CONFIRM_VALUE / 2;
    let head = truncate(&text, TextLimit::Chars(half), ELLIPSIS).into_owned();
    let tail: String = text.chars().skip(length - half).collect();
    format!("{head} [{length} characters] {ELLIPSIS}{tail}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_a_plain_yes_or_no_is_consent() {
        for yes in [
            "yes",
            "Yes!",
            "yes please",
            "ok, do it",
            "Yes, go ahead.",
            "sure, that's right",
            "yes yes",
            "correct",
            "Right, thank you",
            "yes, correct",
        ] {
            assert_eq!(parse_consent("en", yes), Some(true), "{yes}");
        }
        for no in ["no", "No, thanks", "no, stop", "no don't", "nope, cancel it"] {
            assert_eq!(parse_consent("en", no), Some(false), "{no}");
        }
        for other in [
            "yes but for three",
            "yes, and pay it too",
            "yes don't",
            "not sure",
            "yesterday",
            "please",
            "",
            "what?",
            "yes no",
            "correct it",
            "correct it, please",
            "Correct this.",
            "yes, correct it please",
            "ok, right that",
        ] {
            assert_eq!(parse_consent("en", other), None, "{other}");
        }
        assert_eq!(parse_consent("de", "ja, genau"), Some(true));
    }

    #[test]
    fn call_line_shows_all_arguments_without_hidden_characters() {
        let call = UnconfirmedCall {
            tool: "pay_bill".into(),
            arguments: json!({"to": "a\u{202e}b\nc", "amount": 12.5, "note": "x".repeat(2_000) + "END"}),
        };
        let line = call_line(&call);
        assert!(line.starts_with("- pay bill: "), "{line}");
        assert!(!line.contains('\u{202e}') && !line.contains('\n'), "{line:?}");
        assert!(
            line.contains("amount = 12.5") && line.ends_with("END") && line.contains("[2003 characters]"),
            "{line}"
        );
    }
}

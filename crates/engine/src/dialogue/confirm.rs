//! A yes before a call: what the user is shown of it, and what counts as their answer.
//!
//! An agent that may not act alone leaves its calls in the metadata of its frame. What is shown are these calls themselves,
//! with every argument; no model words them, and no model reads the answer. A yes is a message that says nothing else.

use serde_json::{Map, Value as Json, json};

use super::{Reason, reply, shortcuts, turn::Turn};
use crate::{
    conversation::{AgentFrame, BotKind, EventKind, Frame, HELD, UnconfirmedCall},
    ids::AgentName,
    limits,
    text::{ELLIPSIS, TextLimit, escape_hidden, readable_name, truncate},
};

/// The response that shows calls.
const QUESTION: &str = "utter_agent_confirm";
/// What the name of a response begins with that shows the calls of one tool.
const OWN: &str = "utter_agent_confirm_";
/// Words that may stand beside a yes or a no without changing it.
const POLITE: &[&str] = &[
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
/// Those of them that belong to a no.
const NEGATIVE: &[&str] = &["don't", "not", "stop", "cancel"];
/// Words for yes that are also verbs: "correct it" asks for a change. They count at the end of a message only.
const ALSO_VERBS: &[&str] = &["correct", "right"];
/// What may follow even those.
const THANKS: &[&str] = &["thanks", "thank", "you"];

/// The key of an agent's metadata that says that its calls could not be shown: no yes counts for them.
const UNSHOWN: &str = "held_calls_unshown";

/// Whether calls of this agent wait for a yes: the user has seen them.
pub(super) fn waits(frame: &AgentFrame) -> bool {
    !frame.metadata.contains_key(UNSHOWN) && !UnconfirmedCall::of(&frame.metadata).is_empty()
}

/// Takes the calls that wait out of the frame on top.
pub(super) fn forget(turn: &mut Turn<'_>) {
    if let Some(frame) = turn.stack.last_mut().and_then(Frame::agent_mut) {
        frame.metadata.shift_remove(HELD);
        frame.metadata.shift_remove(UNSHOWN);
    }
}

/// What the user answers to the calls on top of the stack, if that is what the message does.
pub(super) fn answered(turn: &Turn<'_>, text: &str) -> Option<bool> {
    let frame = turn.stack.top().and_then(Frame::agent)?;
    if !super::agent_frame::waits(&turn.stack) || !waits(frame) {
        return None;
    }
    consent(&turn.project.config.language, text)
}

/// What the message that opened this turn answers to the calls of this agent.
pub(super) fn answer(turn: &Turn<'_>, frame: &AgentFrame) -> Option<bool> {
    let conversation = turn.conversation();
    let is_answer = conversation.turn.by_message && waits(frame);
    let message = conversation.latest_message.as_ref().filter(|_| is_answer)?;
    consent(&turn.project.config.language, &message.text)
}

/// A yes or a no, and nothing else but politeness.
fn consent(language: &str, text: &str) -> Option<bool> {
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
    let end = words.iter().rposition(|word| !THANKS.contains(word)).unwrap_or_default();
    if answer && words.iter().take(end).any(|word| ALSO_VERBS.contains(word)) {
        return None;
    }
    let fits = rest.iter().all(|word| {
        let own = shortcuts::yes_or_no(language, word) == Some(answer);
        own || (POLITE.contains(word) && (!answer || !NEGATIVE.contains(word)))
    });
    fits.then_some(answer)
}

/// Asks for a yes to the calls in this metadata; whether there are any. Where they cannot be shown, the metadata says so from now on
/// and the user hears that something is wrong: what was not shown is not done.
pub(super) fn ask(turn: &mut Turn<'_>, agent: &AgentName, metadata: &mut Map<String, Json>) -> bool {
    metadata.shift_remove(UNSHOWN);
    let held = UnconfirmedCall::of(metadata);
    if held.is_empty() {
        return false;
    }
    let own = match held.as_slice() {
        [only] => Some(format!("{OWN}{}", only.tool)).filter(|name| turn.project.response(name).is_some()),
        _ => None,
    };
    let lines: Vec<String> = held.iter().map(line).collect();
    let mut arguments = Map::new();
    if let (Some(_), [UnconfirmedCall { arguments: Json::Object(given), .. }]) = (&own, held.as_slice()) {
        arguments = given.iter().map(|(name, value)| (name.clone(), Json::from(value_shown(value)))).collect();
    }
    arguments.insert("calls".to_owned(), json!(lines.join("\n")));
    let name = own.as_deref().unwrap_or(QUESTION);
    let message = turn.compose_itself(name, &arguments);
    let Some(mut message) = message.filter(|message| message.reply.text.is_some()) else {
        let because = format!("`{name}` says nothing here, so nobody is asked and nothing is done");
        let flow = turn.stack.last().map(|top| top.flow_id.to_string()).unwrap_or_default();
        turn.because(Reason::Failed { flow, because });
        metadata.insert(UNSHOWN.to_owned(), json!(true));
        turn.say(reply::INTERNAL_ERROR, &Map::new());
        return true;
    };
    // What is shown is what will be done: nobody words it anew.
    message.wording = None;
    message.kind = BotKind::InputRequired;
    message.agent = Some(agent.clone());
    turn.emit_here(EventKind::bot(message));
    true
}

/// One call as a person reads it: `cancel booking: reference = "NW-7F3K2"`.
fn line(call: &UnconfirmedCall) -> String {
    let name = readable_name(&escape_hidden(&call.tool));
    let arguments: Vec<String> = match &call.arguments {
        Json::Object(given) => {
            given.iter().map(|(name, value)| format!("{} = {}", escape_hidden(name), value_shown(value))).collect()
        }
        Json::Null => Vec::new(),
        other => vec![value_shown(other)],
    };
    if arguments.is_empty() { format!("- {name}") } else { format!("- {name}: {}", arguments.join(", ")) }
}

/// A value with nothing hidden in it. What is too long is cut in the middle, and says how long it is: the end counts too.
fn value_shown(value: &Json) -> String {
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
    fn a_yes_says_nothing_else() {
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
            assert_eq!(consent("en", yes), Some(true), "{yes}");
        }
        for no in ["no", "No, thanks", "no, stop", "no don't", "nope, cancel it"] {
            assert_eq!(consent("en", no), Some(false), "{no}");
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
            assert_eq!(consent("en", other), None, "{other}");
        }
        assert_eq!(consent("de", "ja, genau"), Some(true));
    }

    #[test]
    fn what_is_shown_hides_nothing() {
        let call = UnconfirmedCall {
            tool: "pay_bill".into(),
            arguments: json!({"to": "a\u{202e}b\nc", "amount": 12.5, "note": "x".repeat(2_000) + "END"}),
        };
        let line = line(&call);
        assert!(line.starts_with("- pay bill: "), "{line}");
        assert!(!line.contains('\u{202e}') && !line.contains('\n'), "{line:?}");
        assert!(
            line.contains("amount = 12.5") && line.ends_with("END") && line.contains("[2003 characters]"),
            "{line}"
        );
    }
}

//! Shortcuts: texts that need no model, such as a button title, yes or no, a number, a declared value. Only for the
//! slot that is being asked for, and only if the whole message matches.

use serde_json::{Value as Json, json};

use super::{
    Reason,
    advance_context::AdvanceContext,
    collect,
    commands::CommandSource,
    confirmation,
    message_payload::{self, ParsedMessage},
    slots,
};
use crate::{
    conversation::{Button, Command, FilledBy},
    ids::SlotName,
    project::{SlotDef, SlotType},
};

/// Words for yes and no by language; English applies to every language.
const YES_NO_WORDS: &[(&str, &[&str], &[&str])] = &[
    (
        "en",
        &["yes", "y", "yeah", "yep", "yes please", "sure", "ok", "okay", "correct", "right", "true"],
        &["no", "n", "nope", "no thanks", "no thank you", "false"],
    ),
    ("de", &["ja", "ja bitte", "jo", "genau", "gerne", "klar"], &["nein", "nein danke", "nee"]),
    ("fr", &["oui", "d'accord", "bien sûr"], &["non", "non merci"]),
    ("es", &["sí", "si", "claro", "vale"], &["no", "no gracias"]),
    ("it", &["sì", "si", "certo", "va bene"], &["no", "no grazie"]),
    ("nl", &["ja", "ja graag", "zeker"], &["nee", "nee bedankt"]),
    ("nb", &["ja", "ja takk", "gjerne"], &["nei", "nei takk"]),
    ("sv", &["ja", "ja tack", "gärna"], &["nej", "nej tack"]),
    ("da", &["ja", "ja tak", "gerne"], &["nej", "nej tak"]),
    ("pt", &["sim", "claro"], &["não", "não obrigado"]),
];

/// Parses a text that needs no model; `None` when a model must process it.
pub(super) fn parse(turn: &mut AdvanceContext<'_>, text: &str) -> Option<(Vec<Command>, CommandSource)> {
    // Applies even without `shortcuts`: the confirmation of a tool call must not pass through a model.
    if confirmation::parse_answer(turn, text).is_some() {
        turn.add_note("the message answers the yes-or-no question of the waiting agent");
        return Some((vec![Command::ContinueAgent], CommandSource::Shortcut));
    }
    if !turn.project.config.shortcuts {
        return None;
    }
    let asked = collect::asked_slot(turn)?.clone();
    if let Some(commands) = match_button(turn, &asked, text) {
        return Some((commands, CommandSource::Shortcut));
    }
    let slot = turn.project.slot(asked.as_str())?;
    if !slots::may_fill(slot, FilledBy::Shortcut, &[]) {
        return None;
    }
    let (value, rule) = parse_value(slot, &turn.project.config.language, text)?;
    turn.add_reason(Reason::Shortcut { slot: asked.clone(), value: value.clone(), rule: rule.to_owned() });
    Some((vec![Command::SetSlot { name: asked, value, extractor: FilledBy::Shortcut }], CommandSource::Shortcut))
}

fn parse_value(slot: &SlotDef, language: &str, text: &str) -> Option<(Json, &'static str)> {
    let plain = text.trim().trim_end_matches(['.', '!']).trim_end();
    match &slot.kind {
        SlotType::Bool => yes_or_no(language, plain).map(|yes| (Json::Bool(yes), "yes or no")),
        SlotType::Float { .. } => {
            let digits = text.trim();
            let number = digits.strip_prefix('-').unwrap_or(digits);
            let is_plain = number.starts_with(|c: char| c.is_ascii_digit())
                && number.ends_with(|c: char| c.is_ascii_digit())
                && number.chars().all(|c| c.is_ascii_digit() || c == '.')
                && number.len() <= 15;
            digits.parse::<f64>().ok().filter(|_| is_plain).map(|number| (json!(number), "number"))
        }
        SlotType::Categorical(values) => {
            let lower = plain.to_lowercase();
            let value = values.iter().find(|value| value.to_lowercase() == lower)?;
            Some((Json::from(&**value), "value"))
        }
        _ => None,
    }
}

/// The language without its region: `de` of `de-AT`.
pub(super) fn base_language(language: &str) -> &str {
    language.split(['-', '_']).next().unwrap_or(language)
}

/// Parses yes or no in the project's language or in English; `None` for anything else.
pub(super) fn yes_or_no(language: &str, text: &str) -> Option<bool> {
    let lower = text.to_lowercase();
    let base = base_language(language);
    // The project's language has priority, so that words such as Italian `si` are not taken from another table.
    let mut tables =
        YES_NO_WORDS.iter().filter(|(of, ..)| *of == base).chain(YES_NO_WORDS.iter().filter(|(of, ..)| *of == "en"));
    tables.find_map(|(_, yes, no)| match () {
        () if yes.contains(&lower.as_str()) => Some(true),
        () if no.contains(&lower.as_str()) => Some(false),
        () => None,
    })
}

/// Parses the payload of the button with exactly this title in the last replies, or with this number: channels without buttons
/// show them as a numbered list. A payload in free text is left to the model.
fn match_button(turn: &mut AdvanceContext<'_>, asked: &SlotName, text: &str) -> Option<Vec<Command>> {
    let wanted = text.trim().to_lowercase();
    let is_choice = turn.project.slot(asked.as_str()).is_some_and(|slot| {
        // A number can be a value of other types.
        matches!(slot.kind, SlotType::Bool | SlotType::Categorical(_))
    });
    let shown =
        turn.conversation().recent_replies.before_message().iter().rev().find(|reply| !reply.buttons.is_empty())?;
    let by_title = shown.buttons.iter().find(|button| button.title.trim().to_lowercase() == wanted);
    let (pressed, rule) = match by_title {
        Some(button) => (button, "title"),
        None if is_choice => (numbered(&shown.buttons, &wanted)?, "number of a button"),
        None => return None,
    };
    let payload = pressed.payload.clone();
    match message_payload::parse(turn, &payload) {
        // What a click would do that only reports an unknown intent, or anything else, is left to the model.
        ParsedMessage::Commands(commands, _) if commands.iter().all(is_start_or_value) => {
            let value = Json::from(&*payload);
            turn.add_reason(Reason::Shortcut { slot: asked.clone(), value, rule: rule.to_owned() });
            Some(commands)
        }
        _ => None,
    }
}

/// The button with this number. If titles contain digits, a number may mean one of these.
fn numbered<'b>(buttons: &'b [Button], text: &str) -> Option<&'b Button> {
    let number: usize = text.trim_end_matches(['.', ')']).parse().ok()?;
    let has_digits = buttons.iter().any(|button| button.title.contains(|c: char| c.is_ascii_digit()));
    if has_digits { None } else { buttons.get(number.checked_sub(1)?) }
}

fn is_start_or_value(command: &Command) -> bool {
    matches!(command, Command::StartFlow { .. } | Command::SetSlot { .. })
}

#[cfg(test)]
mod tests {
    use super::yes_or_no;

    #[test]
    fn yes_or_no_matches_whole_texts_in_the_project_language_or_english() {
        assert_eq!(yes_or_no("en", "Yes"), Some(true));
        assert_eq!(yes_or_no("de-AT", "nein danke"), Some(false));
        assert_eq!(yes_or_no("de", "yes"), Some(true));
        assert_eq!(yes_or_no("en", "ja"), None);
        assert_eq!(yes_or_no("en", "yes but tomorrow"), None);
    }
}

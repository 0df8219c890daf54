//! Texts that need no model: the title of an offered button, yes and no, a number, a declared value. Only while the slot that
//! they answer is being asked for, and only whole messages.

use serde_json::{Value as Json, json};

use super::{
    Reason, collect,
    commands::Source,
    confirm, slots,
    structured::{self, Parsed},
    turn::Turn,
};
use crate::{
    conversation::{Command, FilledBy},
    ids::SlotName,
    project::{SlotDef, SlotType},
};

/// Words for yes and no by language; English is understood everywhere.
const WORDS: &[(&str, &[&str], &[&str])] = &[
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

/// The commands of a text that needs no model; `None` when a model must look at it.
pub(super) fn take(turn: &mut Turn<'_>, text: &str) -> Option<(Vec<Command>, Source)> {
    // Not a matter of taste: a yes to a call that was shown must not pass through a model.
    if confirm::answered(turn, text).is_some() {
        turn.note("the agent that waits asked for a yes or a no, and this is one");
        return Some((vec![Command::ContinueAgent], Source::Shortcut));
    }
    if !turn.project.config.shortcuts {
        return None;
    }
    let asked = collect::asked(turn)?.clone();
    if let Some(commands) = titled(turn, &asked, text) {
        return Some((commands, Source::Shortcut));
    }
    let slot = turn.project.slot(asked.as_str())?;
    if !slots::may_fill(slot, FilledBy::Shortcut, &[]) {
        return None;
    }
    let (value, rule) = read(slot, &turn.project.config.language, text)?;
    turn.because(Reason::Shortcut { slot: asked.clone(), value: value.clone(), rule: rule.to_owned() });
    Some((vec![Command::SetSlot { name: asked, value, extractor: FilledBy::Shortcut }], Source::Shortcut))
}

fn read(slot: &SlotDef, language: &str, text: &str) -> Option<(Json, &'static str)> {
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

/// Yes or no, in the project's language or in English; `None` for anything else.
pub(super) fn yes_or_no(language: &str, text: &str) -> Option<bool> {
    let lower = text.to_lowercase();
    let base = language.split(['-', '_']).next().unwrap_or(language);
    // The project's language first: Italian `si` and the like must not be decided by another table.
    let mut tables = WORDS.iter().filter(|(of, ..)| *of == base).chain(WORDS.iter().filter(|(of, ..)| *of == "en"));
    tables.find_map(|(_, yes, no)| match () {
        () if yes.contains(&lower.as_str()) => Some(true),
        () if no.contains(&lower.as_str()) => Some(false),
        () => None,
    })
}

/// The payload of the button with exactly that title, under what was said last. A payload in free words is left to the model.
fn titled(turn: &mut Turn<'_>, asked: &SlotName, text: &str) -> Option<Vec<Command>> {
    let wanted = text.trim().to_lowercase();
    let shown = turn.conversation().said.before().iter().rev().find(|reply| !reply.buttons.is_empty())?;
    let pressed = shown.buttons.iter().find(|button| button.title.trim().to_lowercase() == wanted)?;
    let payload = pressed.payload.clone();
    match structured::parse(turn, &payload) {
        Parsed::Commands(commands, _) => {
            let value = Json::from(&*payload);
            turn.because(Reason::Shortcut { slot: asked.clone(), value, rule: "title".to_owned() });
            Some(commands)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::yes_or_no;

    #[test]
    fn yes_and_no_are_whole_words_of_the_projects_language_or_english() {
        assert_eq!(yes_or_no("en", "Yes"), Some(true));
        assert_eq!(yes_or_no("de-AT", "nein danke"), Some(false));
        assert_eq!(yes_or_no("de", "yes"), Some(true));
        assert_eq!(yes_or_no("en", "ja"), None);
        assert_eq!(yes_or_no("en", "yes but tomorrow"), None);
    }
}

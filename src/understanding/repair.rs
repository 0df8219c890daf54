//! From a whole answer to commands: what is plain is taken, what is doubtful goes back to the model, once.
//!
//! Accepted beside bare commands: hidden thoughts before them, a code block around them, prose before or after them, a
//! heading between them, and the same commands as JSON. Doubtful: prose between commands (they may be alternatives that the
//! model only weighs), a repetition of the prompt, and an answer with no usable command at all.

use segue_engine::conversation::Command;
use serde_json::Value as Json;

use super::grammar::{Dropped, Grammar, Parsed, Why};
use crate::llm::{ChatResponse, FinishReason};

/// What an answer comes to.
#[derive(Debug, PartialEq)]
pub(super) struct Reading {
    /// The commands that may act.
    pub(super) commands: Vec<Command>,
    /// What was left out, and why.
    pub(super) dropped: Vec<Dropped>,
    /// What to tell the model, when another round may help; empty otherwise.
    pub(super) mistakes: Vec<String>,
    /// The model said nothing at all: it may be asked once more.
    pub(super) is_blank: bool,
}

impl Reading {
    fn nothing(is_blank: bool) -> Self {
        Self { commands: Vec::new(), dropped: Vec::new(), mistakes: Vec::new(), is_blank }
    }
}

/// Reads an answer that reached its terminal mark.
pub(super) fn read(answer: &ChatResponse, grammar: &Grammar<'_>) -> Reading {
    // What the vendor's filter stopped is nobody's command, and is not got round by asking again.
    if answer.finish == FinishReason::ContentFilter || answer.refusal.is_some() {
        return Reading::nothing(false);
    }
    let text = spoken(&answer.text);
    if text.trim().is_empty() {
        return Reading::nothing(true);
    }
    let is_cut = answer.finish == FinishReason::Length;
    let parsed = match json(text) {
        Some(items) => grammar.read_items(&items),
        None => grammar.read(text, is_cut),
    };
    judge(parsed)
}

fn judge(parsed: Parsed) -> Reading {
    let Parsed { mut commands, dropped, is_broken_up, is_echo, .. } = parsed;
    let mut mistakes = Vec::new();
    if is_echo {
        mistakes.push("It repeats the forms instead of using them: no placeholder in <> may be left.".to_owned());
    } else if is_broken_up {
        mistakes
            .push("There is prose between the actions, so that it is not clear which of them are meant.".to_owned());
    }
    if is_echo || is_broken_up {
        commands.clear();
    }
    if commands.is_empty() {
        let told = dropped.iter().filter(|dropped| !matches!(dropped.why, Why::Again | Why::TooMuch));
        mistakes.extend(told.map(ToString::to_string));
    }
    Reading { commands, dropped, mistakes, is_blank: false }
}

/// The answer without the thoughts that some servers leave in its text.
///
/// Only a block at the very start counts, closed by its first end mark, and an end mark that has a line of its own: the words
/// of a user that come back in a value cannot cut the answer.
fn spoken(text: &str) -> &str {
    const MARKS: [(&str, &str); 2] = [("<think>", "</think>"), ("<thinking>", "</thinking>")];
    let trimmed = text.trim_start();
    for (open, close) in MARKS {
        if let Some(inside) = trimmed.strip_prefix(open) {
            return inside.split_once(close).map_or("", |(_, after)| after);
        }
        let mut from = 0;
        for line in trimmed.split_inclusive('\n') {
            from += line.len();
            if line.trim() == close {
                return trimmed.get(from..).unwrap_or_default();
            }
        }
    }
    text
}

/// The items of an answer in JSON: one value, an array, or several values one after the other; `None` when it is none.
fn json(text: &str) -> Option<Vec<Json>> {
    let mut rest = text;
    let body = loop {
        let line = rest.split('\n').next().unwrap_or_default();
        if line.trim_start().starts_with(['[', '{']) {
            break rest;
        }
        rest = rest.get(line.len() + 1..)?;
    };
    let mut items = Vec::new();
    for value in serde_json::Deserializer::from_str(body).into_iter::<Json>() {
        match value {
            Ok(value) => collect(value, &mut items, 0),
            // What follows a whole value may be the end of a code block, or prose; half a value is no JSON answer.
            Err(_) if !items.is_empty() => break,
            Err(_) => return None,
        }
    }
    (!items.is_empty()).then_some(items)
}

/// Takes arrays apart, and objects that only wrap one.
fn collect(value: Json, items: &mut Vec<Json>, depth: usize) {
    match value {
        Json::Array(list) if depth < 3 => list.into_iter().for_each(|value| collect(value, items, depth + 1)),
        Json::Object(mut map) => {
            match map.iter().find(|(key, value)| WRAPPERS.contains(&key.as_str()) && value.is_array()) {
                Some((key, _)) if depth < 3 => {
                    let key = key.clone();
                    collect(map.remove(&key).unwrap_or_default(), items, depth + 1);
                }
                _ => items.push(Json::Object(map)),
            }
        }
        value => items.push(value),
    }
}

const WRAPPERS: [&str; 3] = ["actions", "commands", "output"];

#[cfg(test)]
mod tests;

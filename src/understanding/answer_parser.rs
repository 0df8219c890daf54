//! Parses a complete answer of the model into commands, and says which mistakes to report to the model when it is asked to
//! repair its answer.
//!
//! Besides bare commands it accepts reasoning before them, a code block around them, prose before or after them, a heading
//! between them, and the same commands as JSON. It does not accept prose between commands (they may be alternatives that the
//! model only considers), a repetition of the prompt, or an answer without a usable command.

use segue_engine::conversation::Command;
use serde_json::Value as Json;

use super::grammar::{DropReason, DroppedText, Grammar, Parsed};
use crate::llm::{ChatResponse, FinishReason};

/// The result of parsing an answer.
#[derive(Debug, PartialEq)]
pub(super) struct ParsedAnswer {
    /// The commands to execute.
    pub(super) commands: Vec<Command>,
    /// The parts that are no commands.
    pub(super) dropped: Vec<DroppedText>,
    /// What to report to the model in a repair request; empty when a repair would not help.
    pub(super) mistakes: Vec<String>,
    /// The answer is empty, so the model may be called once more.
    pub(super) is_blank: bool,
}

impl ParsedAnswer {
    fn empty(is_blank: bool) -> Self {
        Self { commands: Vec::new(), dropped: Vec::new(), mistakes: Vec::new(), is_blank }
    }
}

/// Parses an answer whose stream ended with a finish reason.
pub(super) fn parse(answer: &ChatResponse, grammar: &Grammar<'_>) -> ParsedAnswer {
    // A content filter or a refusal is final: no command, and no second call.
    if answer.finish == FinishReason::ContentFilter || answer.refusal.is_some() {
        return ParsedAnswer::empty(false);
    }
    let text = strip_reasoning(&answer.text);
    if text.trim().is_empty() {
        return ParsedAnswer::empty(true);
    }
    let is_truncated = answer.finish == FinishReason::Length;
    let parsed = match json(text) {
        Some(items) => grammar.parse_items(&items),
        None => grammar.parse(text, is_truncated),
    };
    check(parsed)
}

fn check(parsed: Parsed) -> ParsedAnswer {
    let Parsed { mut commands, dropped, has_prose_between, repeats_prompt, .. } = parsed;
    let mut mistakes = Vec::new();
    if repeats_prompt {
        mistakes.push("It repeats the forms instead of using them: no placeholder in <> may be left.".to_owned());
    } else if has_prose_between {
        mistakes
            .push("There is prose between the actions, so that it is not clear which of them are meant.".to_owned());
    }
    if repeats_prompt || has_prose_between {
        commands.clear();
    }
    if commands.is_empty() {
        let reported = dropped
            .iter()
            .filter(|dropped| !matches!(dropped.reason, DropReason::Duplicate | DropReason::LimitExceeded));
        mistakes.extend(reported.map(ToString::to_string));
    }
    ParsedAnswer { commands, dropped, mistakes, is_blank: false }
}

/// The answer without the reasoning that some servers leave in its text.
///
/// It removes a block at the very start, up to its first end tag, and everything before an end tag on a line of its own.
/// An end tag anywhere else, for example in a value that quotes the user, has no effect.
fn strip_reasoning(text: &str) -> &str {
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

/// The items of an answer in JSON: one value, an array, or several values in a row; `None` when the answer is no JSON.
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
            Ok(value) => collect_items(value, &mut items, 0),
            // After a complete value, the end of a code block or prose is ignored. An incomplete first value is no JSON answer.
            Err(_) if !items.is_empty() => break,
            Err(_) => return None,
        }
    }
    (!items.is_empty()).then_some(items)
}

/// Flattens arrays, and objects that only wrap an array.
fn collect_items(value: Json, items: &mut Vec<Json>, depth: usize) {
    match value {
        Json::Array(list) if depth < 3 => list.into_iter().for_each(|value| collect_items(value, items, depth + 1)),
        Json::Object(mut map) => {
            match map.iter().find(|(key, value)| WRAPPERS.contains(&key.as_str()) && value.is_array()) {
                Some((key, _)) if depth < 3 => {
                    let key = key.clone();
                    collect_items(map.remove(&key).unwrap_or_default(), items, depth + 1);
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

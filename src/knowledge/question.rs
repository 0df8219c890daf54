//! What is looked for, and what a model is shown of the conversation.

use segue_engine::{
    conversation::{BotKind, Conversation, HistoryItem},
    text::{ELLIPSIS, TextLimit, single_line, strip_hidden, truncate},
};

use crate::limits;

/// Earlier utterances count for less than the question itself when words are compared.
const EARLIER: f32 = 0.3;

/// The newest message, and the utterances before it that belong to the question.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Question {
    /// Oldest first; the last is the newest message.
    parts: Vec<String>,
}

impl Question {
    /// Makes a question of the latest `messages` utterances, both sides counted.
    pub(super) fn of(conversation: &Conversation, messages: usize) -> Self {
        let mut room = limits::KNOWLEDGE_QUERY;
        let mut parts = Vec::new();
        for (_, text, _) in utterances(conversation).filter(|(.., is_filler)| !is_filler).take(messages.max(1)) {
            let line = one_line(text);
            let part = truncate(&line, TextLimit::Chars(room), "").into_owned();
            room = room.saturating_sub(part.chars().count());
            parts.push(part);
            if room == 0 {
                break;
            }
        }
        parts.reverse();
        Self { parts }
    }

    /// All of it, for comparing meanings.
    pub(super) fn whole(&self) -> String {
        self.parts.join("\n")
    }

    /// Its parts with their weights, for comparing words.
    pub(super) fn weighed(&self) -> Vec<(&str, f32)> {
        let last = self.parts.len().saturating_sub(1);
        let weight = |at: usize| if at == last { 1.0 } else { EARLIER };
        self.parts.iter().enumerate().map(|(at, part)| (part.as_str(), weight(at))).collect()
    }

    /// The newest message.
    pub(super) fn newest(&self) -> &str {
        self.parts.last().map_or("", String::as_str)
    }
}

/// The latest utterances as lines `USER: …` and `AI: …`, oldest first. One utterance is one line, whatever is in it.
pub(super) fn transcript(conversation: &Conversation, most: usize) -> String {
    let mut lines: Vec<String> = utterances(conversation)
        .take(most)
        .map(|(who, text, _)| {
            let text = truncate(text, TextLimit::Chars(limits::COMMAND_UTTERANCE), ELLIPSIS);
            format!("{who}: {}", one_line(&text))
        })
        .collect();
    lines.reverse();
    lines.join("\n")
}

/// Newest first, with whether it is what an agent said while it worked: part of the conversation, but of no question.
fn utterances(conversation: &Conversation) -> impl Iterator<Item = (&'static str, &str, bool)> {
    conversation.history.iter().rev().filter_map(|item| match item {
        HistoryItem::User { text, .. } => Some(("USER", &**text, false)),
        HistoryItem::Bot { text, kind, .. } if *kind != BotKind::Intermediate => {
            Some(("AI", &**text, *kind == BotKind::Filler))
        }
        _ => None,
    })
}

/// A text on one line, without what nobody can see.
pub(super) fn one_line(text: &str) -> String {
    single_line(&strip_hidden(text)).into_owned()
}

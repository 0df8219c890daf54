//! The search query of a conversation, and the transcript for the prompt.

use segue_engine::{
    conversation::{BotKind, Conversation, HistoryItem},
    text::{ELLIPSIS, TextLimit, single_line, strip_hidden, truncate},
};

use crate::limits;

/// The weight of earlier utterances in the lexical score; the newest message has weight 1.
const EARLIER_UTTERANCE_WEIGHT: f32 = 0.3;

/// The search query: the newest message and some utterances before it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SearchQuery {
    /// Oldest first; the last is the newest message.
    parts: Vec<String>,
}

impl SearchQuery {
    /// The query of the latest `messages` utterances of the user and the assistant. At most [`limits::KNOWLEDGE_QUERY`]
    /// characters.
    pub(super) fn new(conversation: &Conversation, messages: usize) -> Self {
        let mut remaining = limits::KNOWLEDGE_QUERY;
        let mut parts = Vec::new();
        for (_, text, _) in utterances(conversation).filter(|(.., is_filler)| !is_filler).take(messages.max(1)) {
            let line = one_line(text);
            let part = truncate(&line, TextLimit::Chars(remaining), "").into_owned();
            remaining = remaining.saturating_sub(part.chars().count());
            parts.push(part);
            if remaining == 0 {
                break;
            }
        }
        parts.reverse();
        Self { parts }
    }

    /// The whole query as one text, for embeddings.
    pub(super) fn text(&self) -> String {
        self.parts.join("\n")
    }

    /// Its parts with their weights, for the lexical score.
    pub(super) fn weighted_parts(&self) -> Vec<(&str, f32)> {
        let last = self.parts.len().saturating_sub(1);
        let weight = |at: usize| if at == last { 1.0 } else { EARLIER_UTTERANCE_WEIGHT };
        self.parts.iter().enumerate().map(|(at, part)| (part.as_str(), weight(at))).collect()
    }

    /// The newest message.
    pub(super) fn newest(&self) -> &str {
        self.parts.last().map_or("", String::as_str)
    }
}

/// The latest utterances as lines `USER: …` and `AI: …`, oldest first. Every utterance is on one line, whatever it contains.
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

/// The utterances, newest first: speaker, text, and whether it is a filler message of an agent, which no query contains.
fn utterances(conversation: &Conversation) -> impl Iterator<Item = (&'static str, &str, bool)> {
    conversation.history.iter().rev().filter_map(|item| match item {
        HistoryItem::User { text, .. } => Some(("USER", &**text, false)),
        HistoryItem::Bot { text, kind, .. } if *kind != BotKind::Intermediate => {
            Some(("AI", &**text, *kind == BotKind::Filler))
        }
        _ => None,
    })
}

/// A text on one line, without invisible characters.
pub(super) fn one_line(text: &str) -> String {
    single_line(&strip_hidden(text)).into_owned()
}

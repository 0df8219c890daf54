//! Transcripts as MCP resources: a conversation as text, for the session that started it.

use segue_engine::{
    conversation::{BotKind, Event, EventKind},
    ids::ConversationId,
    text::escape_hidden,
};

use super::super::encode;
use crate::{limits, runtime::Assistant, store::StoreError};

/// The beginning of every transcript's URI.
const URI_PREFIX: &str = "segue://conversation/";

/// The URI template of transcripts.
pub(super) const URI_TEMPLATE: &str = "segue://conversation/{conversation_id}";

/// The URI of a conversation's transcript.
pub(super) fn uri(id: &ConversationId) -> String {
    format!("{URI_PREFIX}{id}")
}

/// The conversation of a transcript's URI.
pub(super) fn conversation_of(uri: &str) -> Option<ConversationId> {
    uri.strip_prefix(URI_PREFIX).map(ConversationId::from)
}

/// The messages of a conversation's newest [`limits::MCP_SERVED_EVENTS`] events as lines, and of these the newest that fit into
/// [`limits::TOOL_RESULT`] bytes. If not all fit, the first line is an ellipsis.
///
/// # Errors
/// [`StoreError`] when the events cannot be read.
pub(super) async fn text(assistant: &Assistant, id: &ConversationId) -> Result<String, StoreError> {
    let events = assistant.store().latest_events(id, limits::MCP_SERVED_EVENTS).await?;
    let lines: Vec<String> = events.iter().flat_map(lines).collect();
    let mut bytes_left = limits::TOOL_RESULT;
    let fits = |line: &&String| {
        let fits = line.len() < bytes_left;
        bytes_left = bytes_left.saturating_sub(line.len() + 1);
        fits
    };
    let mut newest: Vec<&str> = lines.iter().rev().take_while(fits).map(String::as_str).collect();
    if newest.len() < lines.len() {
        newest.push("…");
    }
    newest.reverse();
    Ok(newest.join("\n"))
}

fn lines(event: &Event) -> Vec<String> {
    match &event.kind {
        EventKind::User(message) => vec![format!("user: {}", escape_hidden(&message.text))],
        EventKind::External { trigger } => match &trigger.action {
            segue_engine::conversation::TriggerAction::StartIfAllowed(flow) => vec![format!("user: (begins {flow})")],
            _ => Vec::new(),
        },
        EventKind::Bot(bot) => {
            let speaker = if bot.kind == BotKind::Filler { "filler" } else { "assistant" };
            encode::plain_texts(&bot.reply).iter().map(|text| format!("{speaker}: {}", escape_hidden(text))).collect()
        }
        _ => Vec::new(),
    }
}

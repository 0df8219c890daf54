//! What was said in a talk, as a text for whoever began it.

use segue_engine::{
    conversation::{BotKind, Event, EventKind},
    ids::ConversationId,
    text::escape_hidden,
};

use super::super::encode;
use crate::{limits, runtime::Assistant, store::StoreError};

/// What the address of every transcript begins with.
const SCHEME: &str = "segue://conversation/";

/// The address of any transcript, as a template.
pub(super) const TEMPLATE: &str = "segue://conversation/{conversation_id}";

/// The address of a transcript.
pub(super) fn address(id: &ConversationId) -> String {
    format!("{SCHEME}{id}")
}

/// The talk that an address is about.
pub(super) fn talk(address: &str) -> Option<ConversationId> {
    address.strip_prefix(SCHEME).map(ConversationId::from)
}

/// The newest [`limits::MCP_SERVED_EVENTS`] events of a talk as lines, at most [`limits::TOOL_RESULT`] bytes of them.
///
/// # Errors
/// [`StoreError`] when it cannot be read.
pub(super) async fn written(assistant: &Assistant, id: &ConversationId) -> Result<String, StoreError> {
    let events = assistant.store().latest_events(id, limits::MCP_SERVED_EVENTS).await?;
    let lines: Vec<String> = events.iter().flat_map(lines).collect();
    let mut room = limits::TOOL_RESULT;
    let fits = |line: &&String| {
        let fits = line.len() < room;
        room = room.saturating_sub(line.len() + 1);
        fits
    };
    let mut kept: Vec<&str> = lines.iter().rev().take_while(fits).map(String::as_str).collect();
    if kept.len() < lines.len() {
        kept.push("…");
    }
    kept.reverse();
    Ok(kept.join("\n"))
}

fn lines(event: &Event) -> Vec<String> {
    match &event.kind {
        EventKind::User(message) => vec![format!("user: {}", escape_hidden(&message.text))],
        EventKind::External { trigger } => match &trigger.action {
            segue_engine::conversation::TriggerAction::StartIfAllowed(flow) => vec![format!("user: (begins {flow})")],
            _ => Vec::new(),
        },
        EventKind::Bot(bot) => {
            let who = if bot.kind == BotKind::Filler { "filler" } else { "assistant" };
            encode::plain_texts(&bot.reply).iter().map(|text| format!("{who}: {}", escape_hidden(text))).collect()
        }
        _ => Vec::new(),
    }
}

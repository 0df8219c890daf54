//! `action_repeat_bot_messages`: the last answer once more.

use std::sync::Arc;

use crate::{
    conversation::{BotKind, BotMessage, EventKind, FrameKind, HistoryItem, PatternFrame, Reply},
    dialogue::{patterns, turn::Turn},
};

/// Says again what was said since the user's message before this one. The open question is left out: it is asked again anyway.
/// A user who asks for it when nothing was said hears that.
pub(super) fn run(turn: &mut Turn<'_>) {
    let mut users = 0;
    let mut texts: Vec<Arc<str>> = Vec::new();
    for item in turn.conversation().history.iter().rev() {
        match item {
            HistoryItem::User { .. } => users += 1,
            HistoryItem::Bot { text, kind, .. } if users == 1 && *kind != BotKind::Filler => texts.push(text.clone()),
            _ => {}
        }
        if users > 1 {
            break;
        }
    }
    let below = turn.stack.len().checked_sub(2).and_then(|at| turn.stack.get(at));
    let asks = below.is_some_and(|frame| {
        matches!(
            frame.kind,
            FrameKind::Pattern { context: PatternFrame::CollectInformation { .. } | PatternFrame::ValidateSlot { .. } }
        )
    });
    let wished = turn.stack.last().is_some_and(|frame| frame.flow_id == *patterns::REPEAT);
    if texts.is_empty() && !asks && wished {
        turn.note("nothing was said that could be repeated");
        let reason = "cannot_handle_default".to_owned();
        turn.push_pattern(patterns::CANNOT_HANDLE, PatternFrame::CannotHandle { reason });
    }
    for text in texts.into_iter().skip(usize::from(asks)).rev() {
        turn.emit_here(EventKind::bot(BotMessage { reply: Reply::text(text), ..BotMessage::default() }));
    }
}

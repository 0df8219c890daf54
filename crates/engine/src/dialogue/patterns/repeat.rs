//! `action_repeat_bot_messages`: the last answer once more.

use crate::{
    conversation::{BotMessage, EventKind, PatternFrame, Reply},
    dialogue::{collect, patterns, turn::Turn},
};

/// Says again what was said since the user's message before this one, with buttons and all. The open question is left out: it is
/// asked again anyway. A user who asks for it when nothing was said hears that.
pub(in crate::dialogue) fn run(turn: &mut Turn<'_>) {
    let mut replies: Vec<Reply> = turn.conversation().said.before().to_vec();
    let below = turn.stack.len().checked_sub(2).and_then(|at| turn.stack.get(at));
    let asks = below.is_some_and(collect::asks);
    let wished = turn.stack.last().is_some_and(|frame| frame.flow_id == *patterns::REPEAT);
    if replies.is_empty() && !asks && wished {
        turn.note("nothing was said that could be repeated");
        let reason = "cannot_handle_default".to_owned();
        turn.push_pattern(patterns::CANNOT_HANDLE, PatternFrame::CannotHandle { reason });
    }
    if asks {
        replies.pop();
    }
    for reply in replies {
        turn.emit_here(EventKind::bot(BotMessage { reply, ..BotMessage::default() }));
    }
}

//! `action_repeat_bot_messages`: repeats the last replies.

use crate::{
    conversation::{BotMessage, EventKind, PatternFrame, Reply},
    dialogue::{advance_context::AdvanceContext, collect, patterns},
};

/// Repeats the replies to the previous user message, with buttons. The open question is excluded, because it is asked
/// again anyway. If there is nothing to repeat, the user is notified.
pub(in crate::dialogue) fn run(turn: &mut AdvanceContext<'_>) {
    let mut replies: Vec<Reply> = turn.conversation().recent_replies.before_message().to_vec();
    let below = turn.stack.len().checked_sub(2).and_then(|at| turn.stack.get(at));
    let asks = below.is_some_and(collect::is_asking);
    let requested = turn.stack.last().is_some_and(|frame| frame.flow_id == *patterns::REPEAT);
    if replies.is_empty() && !asks && requested {
        turn.add_note("there is no reply to repeat");
        let reason = "cannot_handle_default".to_owned();
        turn.push_pattern(patterns::CANNOT_HANDLE, PatternFrame::CannotHandle { reason });
    }
    if asks {
        replies.pop();
    }
    for reply in replies {
        turn.emit_in_top_frame(EventKind::bot(BotMessage { reply, ..BotMessage::default() }));
    }
}

//! Replies for people who look on: text as it streams, fillers marked, buttons with numbers.

use std::{io, sync::Arc};

use futures::future::BoxFuture;
use segue::{
    channels::wire,
    context::CallContext,
    conversation::{BotKind, Button, DeliveryError, Receipt, Reply, ReplyEvent, ReplySink},
};

use super::plain::output_closed;
use crate::cli::output;

/// Asks for the next message.
pub(super) fn prompt() -> io::Result<()> {
    output::print("you> ")
}

/// The buttons under the newest replies.
pub(super) fn buttons(buttons: &[Button]) -> io::Result<()> {
    for (index, button) in buttons.iter().enumerate() {
        output::println(&format!("  {}: {}", index + 1, output::strip_control_characters(&button.title)))?;
    }
    Ok(())
}

/// Writes text as it comes.
#[derive(Default)]
pub(super) struct TerminalSink {
    /// The message that stands on an unfinished line, and its text so far.
    open: Option<(Arc<str>, String)>,
}

impl ReplySink for TerminalSink {
    fn wants_deltas(&self) -> bool {
        true
    }
    fn accepts_earlier_replies(&self) -> bool {
        true
    }
    fn send<'a>(&'a mut self, piece: ReplyEvent, _: &'a CallContext) -> BoxFuture<'a, Result<Receipt, DeliveryError>> {
        let text = self.text(&piece);
        let done =
            if text.is_empty() { Ok(Receipt::Delivered) } else { output::print(&text).map(|()| Receipt::Delivered) };
        Box::pin(std::future::ready(done.map_err(output_closed)))
    }
}

impl TerminalSink {
    /// What a piece adds to the screen.
    fn text(&mut self, piece: &ReplyEvent) -> String {
        match piece {
            ReplyEvent::Start { id, .. } => {
                self.open = Some((id.clone(), String::new()));
                "bot> ".to_owned()
            }
            ReplyEvent::Delta { text, .. } => {
                if let Some((_, so_far)) = &mut self.open {
                    so_far.push_str(text);
                }
                output::strip_control_characters(text).into_owned()
            }
            ReplyEvent::End { id, message, kind, interrupted } => {
                let streamed = self.open.take().filter(|(open, _)| open == id).map(|(_, text)| text);
                let is_whole = streamed.is_some_and(|text| message.text.as_deref().map(str::trim) == Some(text.trim()));
                let mark = if *interrupted { " [cut]" } else { mark(*kind) };
                // What counts is the message at the end; it is shown again where it is another one.
                if is_whole { format!("{mark}\n") } else { format!("\n{}", whole(message, *kind)) }
            }
            ReplyEvent::Message { message, kind, .. } => whole(message, *kind),
            ReplyEvent::Activity { .. } => String::new(),
        }
    }
}

fn mark(kind: BotKind) -> &'static str {
    if kind == BotKind::Filler { "  [working on it]" } else { "" }
}

fn whole(reply: &Reply, kind: BotKind) -> String {
    let texts = wire::texts(reply);
    texts.iter().map(|text| format!("bot> {}{}\n", output::strip_control_characters(text), mark(kind))).collect()
}

#[cfg(test)]
mod tests {
    use segue::conversation::ReplyKind;

    use super::*;

    fn shown(pieces: &[ReplyEvent]) -> String {
        let mut sink = TerminalSink::default();
        pieces.iter().map(|piece| sink.text(piece)).collect()
    }

    fn end(text: &str, kind: BotKind) -> ReplyEvent {
        ReplyEvent::End { id: "m".into(), message: Box::new(Reply::text(text)), kind, interrupted: false }
    }

    #[test]
    fn streamed_text_is_shown_once_and_replaced_where_it_changed() {
        let start = ReplyEvent::Start { id: "m".into(), source: "agent:a".into(), kind: ReplyKind::Pending };
        let delta = |text: &str| ReplyEvent::Delta { id: "m".into(), text: text.into() };
        let pieces = [start.clone(), delta("Hel"), delta("lo"), end("Hello", BotKind::FinalResponse)];
        assert_eq!(shown(&pieces), "bot> Hello\n");
        let pieces = [start.clone(), delta("One moment"), end("One moment", BotKind::Filler)];
        assert_eq!(shown(&pieces), "bot> One moment  [working on it]\n");
        assert_eq!(shown(&[start, delta("Hel"), end("Other", BotKind::Response)]), "bot> Hel\nbot> Other\n");
    }
}

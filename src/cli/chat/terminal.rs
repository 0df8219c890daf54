//! Replies for a terminal: streamed text, marked fillers, numbered buttons.

use std::{io, sync::Arc};

use segue::{
    async_trait,
    channels::encode,
    context::CallContext,
    conversation::{BotKind, Button, DeliveryError, Receipt, Reply, ReplySink, TurnEvent},
};

use super::plain::output_error;
use crate::cli::output;

const PROMPT: &str = "you> ";

/// Prints the prompt for the next message.
pub(super) fn print_prompt() -> io::Result<()> {
    output::print(PROMPT)
}

/// Prints the buttons of the last replies with their numbers.
pub(super) fn print_buttons(buttons: &[Button]) -> io::Result<()> {
    for (index, button) in buttons.iter().enumerate() {
        output::println(&format!("  {}: {}", index + 1, output::strip_control_characters(&button.title)))?;
    }
    Ok(())
}

/// Writes text as it is streamed.
#[derive(Default)]
pub(super) struct TerminalSink {
    /// The id and the text so far of a message that is being streamed.
    streaming: Option<(Arc<str>, String)>,
    /// Whether a prompt stands before each message, and must be printed again after it.
    is_unprompted: bool,
}

#[async_trait]
impl ReplySink for TerminalSink {
    fn wants_deltas(&self) -> bool {
        true
    }
    fn accepts_earlier_replies(&self) -> bool {
        true
    }
    async fn send(&mut self, piece: TurnEvent, _: &CallContext) -> Result<Receipt, DeliveryError> {
        let text = self.text(&piece);
        let result =
            if text.is_empty() { Ok(Receipt::Delivered) } else { output::print(&text).map(|()| Receipt::Delivered) };
        result.map_err(output_error)
    }
}

impl TerminalSink {
    /// A sink for messages that arrive while the prompt stands in the terminal.
    pub(super) fn unprompted() -> Self {
        Self { is_unprompted: true, ..Self::default() }
    }

    /// The text to print for an event.
    fn text(&mut self, piece: &TurnEvent) -> String {
        match piece {
            TurnEvent::MessageStart { id, .. } => {
                self.streaming = Some((id.clone(), String::new()));
                "bot> ".to_owned()
            }
            TurnEvent::MessageDelta { text, .. } => {
                if let Some((_, so_far)) = &mut self.streaming {
                    so_far.push_str(text);
                }
                output::strip_control_characters(text).into_owned()
            }
            TurnEvent::MessageEnd { id, message, kind, interrupted } => {
                let streamed = self.streaming.take().filter(|(streamed, _)| streamed == id).map(|(_, text)| text);
                let is_unchanged =
                    streamed.is_some_and(|text| message.text.as_deref().map(str::trim) == Some(text.trim()));
                let mark = if *interrupted { " [interrupted]" } else { mark(*kind) };
                // The complete message is authoritative; if it differs from the streamed text, it is printed again.
                if is_unchanged { format!("{mark}\n") } else { format!("\n{}", format_message(message, *kind)) }
            }
            TurnEvent::Message { message, kind, .. } if self.is_unprompted => {
                format!("\n{}{PROMPT}", format_message(message, *kind))
            }
            TurnEvent::Message { message, kind, .. } => format_message(message, *kind),
            _ => String::new(),
        }
    }
}

/// The mark after a message.
fn mark(kind: BotKind) -> &'static str {
    if kind == BotKind::Filler { "  [working on it]" } else { "" }
}

/// A complete message as it is printed.
fn format_message(reply: &Reply, kind: BotKind) -> String {
    let texts = encode::plain_texts(reply);
    texts.iter().map(|text| format!("bot> {}{}\n", output::strip_control_characters(text), mark(kind))).collect()
}

#[cfg(test)]
mod tests {
    use segue::conversation::ReplyKind;

    use super::*;

    fn printed(pieces: &[TurnEvent]) -> String {
        let mut sink = TerminalSink::default();
        pieces.iter().map(|piece| sink.text(piece)).collect()
    }

    fn end(text: &str, kind: BotKind) -> TurnEvent {
        TurnEvent::MessageEnd { id: "m".into(), message: Box::new(Reply::text(text)), kind, interrupted: false }
    }

    #[test]
    fn streamed_text_is_printed_once_and_again_if_it_changed() {
        let start = TurnEvent::MessageStart { id: "m".into(), source: "agent:a".into(), kind: ReplyKind::Pending };
        let delta = |text: &str| TurnEvent::MessageDelta { id: "m".into(), text: text.into() };
        let pieces = [start.clone(), delta("Hel"), delta("lo"), end("Hello", BotKind::FinalResponse)];
        assert_eq!(printed(&pieces), "bot> Hello\n");
        let pieces = [start.clone(), delta("One moment"), end("One moment", BotKind::Filler)];
        assert_eq!(printed(&pieces), "bot> One moment  [working on it]\n");
        assert_eq!(printed(&[start, delta("Hel"), end("Other", BotKind::Response)]), "bot> Hel\nbot> Other\n");
    }
}

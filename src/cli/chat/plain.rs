//! Replies as plain text for programs: each line of a text is one line of output, with the prefix `bot: ` or `filler: `.

use std::io;

use segue::{
    async_trait,
    channels::encode,
    context::CallContext,
    conversation::{BotKind, DeliveryError, Receipt, Reply, ReplySink, TurnEvent},
};

use crate::cli::output;

/// Writes each message when it is complete. Its kind, and so its prefix, is not known before.
pub(super) struct PlainTextSink;

#[async_trait]
impl ReplySink for PlainTextSink {
    fn wants_deltas(&self) -> bool {
        true
    }
    fn accepts_earlier_replies(&self) -> bool {
        true
    }
    async fn send(&mut self, piece: TurnEvent, _: &CallContext) -> Result<Receipt, DeliveryError> {
        let result = match &piece {
            TurnEvent::Message { message, kind, .. } | TurnEvent::MessageEnd { message, kind, .. } => {
                output::print(&format_lines(message, *kind)).map(|()| Receipt::Delivered)
            }
            _ => Ok(Receipt::Skipped),
        };
        result.map_err(output_error)
    }
}

/// An error of writing to standard output. It is permanent: the output is closed.
pub(super) fn output_error(error: io::Error) -> DeliveryError {
    DeliveryError::Permanent(error.to_string())
}

/// A reply as lines. Buttons are omitted.
fn format_lines(reply: &Reply, kind: BotKind) -> String {
    let prefix = if kind == BotKind::Filler { "filler: " } else { "bot: " };
    let texts = encode::plain_texts(reply);
    let lines = texts.iter().flat_map(|text| text.lines()).filter(|line| !line.trim().is_empty());
    lines.map(|line| format!("{prefix}{}\n", output::strip_control_characters(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_a_prefix_and_buttons_are_omitted() {
        let mut reply = Reply::text("One\ntwo\n\nthree\u{1b}[2J");
        reply.image = Some("https://x/y.png".to_owned());
        reply.buttons = vec![segue::conversation::Button {
            title: "Yes".into(),
            payload: "/y".into(),
            extra: serde_json::Map::new(),
        }];
        assert_eq!(
            format_lines(&reply, BotKind::Response),
            "bot: One\nbot: two\nbot: three[2J\nbot: Image: https://x/y.png\n"
        );
        assert_eq!(format_lines(&Reply::text("wait"), BotKind::Filler), "filler: wait\n");
        assert_eq!(format_lines(&Reply::default(), BotKind::Response), "");
    }
}

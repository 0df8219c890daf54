//! Replies for programs: one line of text, one line of output, with a prefix that tells what it is.

use std::io;

use futures::future::BoxFuture;
use segue::{
    channels::wire,
    context::CallContext,
    conversation::{BotKind, DeliveryError, Receipt, Reply, ReplyEvent, ReplySink},
};

use crate::cli::output;

/// Writes each message when it is complete: what it is for is not known before.
pub(super) struct PlainTextSink;

impl ReplySink for PlainTextSink {
    fn wants_deltas(&self) -> bool {
        true
    }
    fn accepts_earlier_replies(&self) -> bool {
        true
    }
    fn send<'a>(&'a mut self, piece: ReplyEvent, _: &'a CallContext) -> BoxFuture<'a, Result<Receipt, DeliveryError>> {
        let done = match &piece {
            ReplyEvent::Message { message, kind, .. } | ReplyEvent::End { message, kind, .. } => {
                output::print(&lines(message, *kind)).map(|()| Receipt::Delivered)
            }
            ReplyEvent::Start { .. } | ReplyEvent::Delta { .. } | ReplyEvent::Activity { .. } => Ok(Receipt::Skipped),
        };
        Box::pin(std::future::ready(done.map_err(output_closed)))
    }
}

pub(super) fn output_closed(error: io::Error) -> DeliveryError {
    DeliveryError::Permanent(error.to_string())
}

/// A reply as lines. Buttons are for people, and left out.
fn lines(reply: &Reply, kind: BotKind) -> String {
    let prefix = if kind == BotKind::Filler { "filler: " } else { "bot: " };
    let texts = wire::texts(reply);
    let lines = texts.iter().flat_map(|text| text.lines()).filter(|line| !line.trim().is_empty());
    lines.map(|line| format!("{prefix}{}\n", output::strip_control_characters(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_its_prefix_and_buttons_are_left_out() {
        let mut reply = Reply::text("One\ntwo\n\nthree\u{1b}[2J");
        reply.image = Some("https://x/y.png".to_owned());
        reply.buttons = vec![segue::conversation::Button {
            title: "Yes".into(),
            payload: "/y".into(),
            extra: serde_json::Map::new(),
        }];
        assert_eq!(
            lines(&reply, BotKind::Response),
            "bot: One\nbot: two\nbot: three[2J\nbot: Image: https://x/y.png\n"
        );
        assert_eq!(lines(&Reply::text("wait"), BotKind::Filler), "filler: wait\n");
        assert_eq!(lines(&Reply::default(), BotKind::Response), "");
    }
}

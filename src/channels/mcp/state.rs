//! What a host carries from a question to its answer, where there is no session: which talk waits, and where.
//!
//! It holds no secret and no right that the id of the talk does not give: whoever has the id may go on with the talk anyway.
//! That it is whole is checked, so that no answer goes to another question; any process with the same store can check it.

use segue_engine::ids::ConversationId;

use super::session::{PREFIX, digest};

/// Where a call waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    /// The talk.
    pub(super) talk: ConversationId,
    /// How many events it had.
    pub(super) at: u64,
}

impl Waiting {
    /// As the host carries it, for calls of this tool.
    pub(super) fn written(&self, tool: &str) -> String {
        format!("{}.{}.{}", self.talk, self.at, self.check(tool))
    }

    /// Reads it; `None` when it is none of ours, not whole, or of another tool.
    pub(super) fn read(text: &str, tool: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let (talk, at, check) = (parts.next()?, parts.next()?, parts.next()?);
        let waiting = Self { talk: ConversationId::from(talk), at: at.parse().ok()? };
        (talk.starts_with(PREFIX) && waiting.check(tool) == check).then_some(waiting)
    }

    fn check(&self, tool: &str) -> String {
        digest(&format!("{}\n{}\n{tool}", self.talk, self.at))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_was_changed_on_the_way_is_refused() {
        let waiting = Waiting { talk: ConversationId::from("mcp-0123"), at: 7 };
        let text = waiting.written("order");
        assert_eq!(Waiting::read(&text, "order").unwrap(), waiting);
        for changed in [format!("{text}-x"), text.replace(".7.", ".8."), text.replace("0123", "0124"), String::new()] {
            assert_eq!(Waiting::read(&changed, "order"), None, "{changed}");
        }
        assert_eq!(Waiting::read(&text, "greet"), None, "another tool");
    }
}

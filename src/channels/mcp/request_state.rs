//! The `requestState` of MCP 2026-07-28: what a host sends back with the answers to an elicitation, so that the call resumes
//! without a session.
//!
//! It contains the conversation and its length, and is no secret: it grants nothing beyond what the id of the conversation grants.
//! Its digest protects against damage, and against answers to another question or tool; it is not keyed, so it is no proof against
//! forgery. Any process with the same store can resume the call.

use segue_engine::ids::ConversationId;

use super::session::{CONVERSATION_PREFIX, digest};

/// Where a tool call waits for answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestState {
    pub(super) conversation: ConversationId,
    /// Number of events of the conversation when the question was asked.
    pub(super) events: u64,
}

impl RequestState {
    /// The text that the host sends back, valid for calls of this tool.
    pub(super) fn encode(&self, tool: &str) -> String {
        format!("{}.{}.{}", self.conversation, self.events, self.checksum(tool))
    }

    /// Reads what [`RequestState::encode`] writes; `None` for anything else, for a damaged text and for another tool.
    pub(super) fn decode(text: &str, tool: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let (conversation, events, checksum) = (parts.next()?, parts.next()?, parts.next()?);
        let state = Self { conversation: ConversationId::from(conversation), events: events.parse().ok()? };
        (conversation.starts_with(CONVERSATION_PREFIX) && state.checksum(tool) == checksum).then_some(state)
    }

    fn checksum(&self, tool: &str) -> String {
        digest(&format!("{}\n{}\n{tool}", self.conversation, self.events))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn changed_request_state_is_refused() {
        let state = RequestState { conversation: ConversationId::from("mcp-0123"), events: 7 };
        let text = state.encode("order");
        assert_eq!(RequestState::decode(&text, "order").unwrap(), state);
        for changed in [format!("{text}-x"), text.replace(".7.", ".8."), text.replace("0123", "0124"), String::new()] {
            assert_eq!(RequestState::decode(&changed, "order"), None, "{changed}");
        }
        assert_eq!(RequestState::decode(&text, "greet"), None, "another tool");
    }
}

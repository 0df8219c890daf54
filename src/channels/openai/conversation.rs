//! Which conversation a request belongs to. It is always named: two callers who begin with the same words have two conversations.

use std::borrow::Cow;

use axum::http::{HeaderMap, StatusCode};
use percent_encoding::percent_decode_str;
use segue_engine::ids::ConversationId;
use serde_json::Value as Json;

use super::{
    super::{Caller, RESERVED_PREFIXES},
    ApiError, OpenAiChannel,
};
use crate::limits;

/// The header that names the conversation.
const HEADER: &str = "x-conversation-id";

/// Where requests name their conversation, besides path and header, in this order: `metadata` of any client, the call of Vapi, and the
/// user of any client.
const POINTERS: [&str; 5] =
    ["/metadata/conversation_id", "/metadata/session_id", "/call/id", "/user", "/safety_identifier"];

/// Splits a path such as `/c/ada/chat/completions` into the conversation, if it has one, and the rest.
pub(super) fn in_path(path: &str) -> (Option<String>, &str) {
    let split = path.strip_prefix("/c/").and_then(|path| {
        let slash = path.find('/')?;
        path.split_at_checked(slash)
    });
    match split {
        Some((id, rest)) => (Some(percent_decode_str(id).decode_utf8_lossy().into_owned()), rest),
        None => (None, path),
    }
}

impl OpenAiChannel {
    /// The conversation of a request.
    pub(super) fn conversation_of(
        &self,
        caller: &Caller,
        in_path: Option<String>,
        headers: &HeaderMap,
        body: &Json,
    ) -> Result<ConversationId, ApiError> {
        let in_header = || {
            let header = headers.get(HEADER)?;
            Some(String::from_utf8_lossy(header.as_bytes()).into_owned())
        };
        let pointers = self.conversation_from.iter().map(String::as_str).chain(POINTERS);
        let named = in_path.or_else(in_header).or_else(|| pointers.filter_map(|at| text(body.pointer(at)?)).next());
        let Some(id) = named.map(|id| id.trim().to_owned()).filter(|id| !id.is_empty()) else {
            return Err(ApiError::new(StatusCode::BAD_REQUEST, "conversation_id_required").because(
                "the request names no conversation; use the base URL `…/v1/c/<id>`, the header `X-Conversation-Id`, \
                 `metadata.conversation_id` or `user`, with an id that only this conversation has",
            ));
        };
        if id.len() > limits::WIRE_ID {
            return Err(ApiError::invalid("conversation_id", format!("it is longer than {} bytes", limits::WIRE_ID)));
        }
        if let Some(prefix) = RESERVED_PREFIXES.iter().find(|prefix| id.starts_with(**prefix)) {
            return Err(ApiError::invalid(
                "conversation_id",
                format!("it must not begin with `{prefix}`; choose another one"),
            ));
        }
        Ok(match &caller.id {
            Some(caller) => format!("openai@{caller}:{id}"),
            None => format!("openai:{id}"),
        }
        .into())
    }
}

fn text(value: &Json) -> Option<String> {
    let text = match value {
        Json::String(text) => Cow::Borrowed(text.trim()),
        Json::Number(number) => Cow::Owned(number.to_string()),
        _ => return None,
    };
    (!text.is_empty()).then(|| text.into_owned())
}

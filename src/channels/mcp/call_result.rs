//! The result of a tool call: the replies as content for the host's model, and as structured content with the state of the
//! conversation.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use segue_engine::{
    conversation::{BotKind, Conversation, Reply},
    ids::ConversationId,
    project::Project,
};
use serde_json::{Map, Value as Json, json};

use super::{super::encode, question, texts::text};
use crate::{runtime::TurnReport, store::StoredReply};

/// The URI of an embedded attachment. MCP requires one; nothing can be read there.
const ATTACHMENT_URI: &str = "segue://attachment";

/// What a tool call returns of one turn.
pub(super) struct TurnReplies {
    pub(super) replies: Vec<StoredReply>,
    pub(super) has_failures: bool,
    pub(super) session_ended: bool,
    /// Whether an earlier call ran the turn.
    pub(super) is_repeated: bool,
}

impl From<TurnReport> for TurnReplies {
    fn from(report: TurnReport) -> Self {
        let TurnReport { earlier_replies, replies, failures, session_ended, is_duplicate, .. } = report;
        let replies = [earlier_replies, replies].concat();
        Self { replies, has_failures: !failures.is_empty(), session_ended, is_repeated: is_duplicate }
    }
}

/// What a tool call returns of all its turns.
pub(super) struct CallReplies<'a> {
    conversation_id: &'a ConversationId,
    replies: Vec<StoredReply>,
    has_failures: bool,
    session_ended: bool,
    is_repeated: bool,
}

impl<'a> CallReplies<'a> {
    pub(super) fn new(conversation_id: &'a ConversationId) -> Self {
        Self { conversation_id, replies: Vec::new(), has_failures: false, session_ended: false, is_repeated: false }
    }

    /// Adds one turn; its replies only if `with_replies`.
    pub(super) fn add(&mut self, turn: &TurnReplies, with_replies: bool) {
        self.replies.extend(turn.replies.iter().filter(|_| with_replies).cloned());
        self.has_failures |= turn.has_failures;
        self.session_ended |= turn.session_ended;
        self.is_repeated |= turn.is_repeated;
    }

    /// The result, with the conversation as it is after the last turn.
    pub(super) fn result(&self, project: &Project, conversation: &Conversation, was_cancelled: bool) -> CallToolResult {
        let ended = self.session_ended || conversation.session.ended;
        let waits = !ended && !conversation.stack.is_empty();
        let mut content: Vec<ContentBlock> = self
            .replies
            .iter()
            .filter(|reply| reply.kind != BotKind::Filler)
            .flat_map(|reply| content_blocks(&reply.reply))
            .collect();
        if content.is_empty() && !was_cancelled {
            content.push(ContentBlock::text(text("silent", &[])));
        }
        if was_cancelled {
            content.push(ContentBlock::text(text("cut", &[])));
        }
        let state = if ended {
            "ended"
        } else if waits {
            "waits"
        } else {
            "goes_on"
        };
        content.push(ContentBlock::text(text(state, &[("id", self.conversation_id.as_str())])));
        let mut result = CallToolResult::success(content);
        result.structured_content = Some(self.structured_content(project, conversation, waits, ended));
        // If the flow waits for an answer after a failure, the call itself has not failed.
        result.is_error = Some(self.has_failures && !waits);
        result
    }

    fn structured_content(&self, project: &Project, conversation: &Conversation, waits: bool, ended: bool) -> Json {
        let replies: Vec<Json> = self.replies.iter().map(reply_json).collect();
        let mut data = json!({
            "conversation_id": self.conversation_id.as_str(),
            "replies": replies,
            "waiting_for_input": waits,
            "session_ended": ended,
        });
        if let Some(data) = data.as_object_mut() {
            if let Some(question) = question::open_question(project, conversation).filter(|_| waits) {
                data.insert("question".into(), json!({"slot": question.slot, "schema": question.schema}));
            }
            if self.is_repeated {
                data.insert("repeated".into(), json!(true));
            }
        }
        data
    }
}

/// A reply as JSON: its own fields, and `kind`.
fn reply_json(reply: &StoredReply) -> Json {
    let mut fields = match serde_json::to_value(&reply.reply) {
        Ok(Json::Object(fields)) => fields,
        _ => Map::new(),
    };
    fields.insert("kind".into(), serde_json::to_value(reply.kind).unwrap_or_default());
    Json::Object(fields)
}

/// A reply as content. Images, audio and files in `data:` URLs are content of their own kind; other URLs are text.
pub(super) fn content_blocks(reply: &Reply) -> Vec<ContentBlock> {
    let mut blocks = Vec::new();
    let body = reply.text.as_deref().map(str::trim).filter(|text| !text.is_empty());
    blocks.extend(body.map(ContentBlock::text));
    let mut rest = Reply { text: None, ..reply.clone() };
    if let Some(block) = reply.image.as_deref().and_then(embedded) {
        blocks.push(block);
        rest.image = None;
    }
    let source =
        reply.attachment.as_ref().and_then(|one| one.as_str().or_else(|| one.pointer("/payload/src")?.as_str()));
    if let Some(block) = source.and_then(embedded) {
        blocks.push(block);
        rest.attachment = None;
    }
    blocks.extend(encode::plain_texts(&rest).into_iter().map(ContentBlock::text));
    let quick_replies = reply.quick_replies.iter().filter_map(|one| one.get("title").and_then(Json::as_str));
    let titles: Vec<&str> = reply.buttons.iter().map(|button| &*button.title).chain(quick_replies).collect();
    if !titles.is_empty() {
        blocks.push(ContentBlock::text(text("options", &[("titles", &titles.join(" | "))])));
    }
    blocks
}

/// The content of a `data:` URL in base64; `None` for other URLs.
fn embedded(url: &str) -> Option<ContentBlock> {
    let (mime_type, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    match mime_type.split_once('/')? {
        ("image", _) => Some(ContentBlock::image(data, mime_type)),
        ("audio", _) => Some(ContentBlock::audio(data, mime_type)),
        _ => Some(ContentBlock::resource(ResourceContents::blob(data, ATTACHMENT_URI).with_mime_type(mime_type))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use super::*;

    fn content(reply: Json) -> Json {
        let reply: Reply = serde_json::from_value(reply).unwrap();
        serde_json::to_value(content_blocks(&reply)).unwrap()
    }

    #[test]
    fn text_image_custom_data_and_buttons_become_content() {
        let content = content(json!({
            "text": "Which?", "buttons": [{"title": "One", "payload": "/x"}, {"title": "Two", "payload": "/y"}],
            "image": "https://x/y.png", "custom": {"k": 1},
        }));
        let texts: Vec<&str> =
            content.as_array().unwrap().iter().map(|block| block["text"].as_str().unwrap()).collect();
        assert_eq!(texts[0], "Which?");
        assert!(texts.contains(&"Image: https://x/y.png") && texts.contains(&"{\"k\":1}"), "{texts:?}");
        assert!(texts.last().unwrap().contains("One | Two"), "{texts:?}");
    }

    #[test]
    fn data_urls_become_image_audio_and_resource_content() {
        let image = content(json!({"image": "data:image/png;base64,AAAA"}));
        assert_eq!(image, json!([{"type": "image", "data": "AAAA", "mimeType": "image/png"}]));
        let audio = content(json!({"attachment": {"type": "audio", "payload": {"src": "data:audio/wav;base64,AAAA"}}}));
        assert_eq!(audio, json!([{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]));
        let file = content(json!({"attachment": "data:text/csv;base64,AAAA"}));
        assert_eq!((&file[0]["type"], &file[0]["resource"]["blob"]), (&json!("resource"), &json!("AAAA")));
        assert!(embedded("data:;base64,AAAA").is_none());
    }
}

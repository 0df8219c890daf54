//! What a call answers: the replies as content, and the same as data with where the talk stands.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use segue_engine::{
    conversation::{BotKind, Conversation, Reply},
    ids::ConversationId,
    project::Project,
};
use serde_json::{Map, Value as Json, json};

use super::{super::encode, question, words::say};
use crate::{runtime::TurnReport, store::StoredReply};

/// The address of an attachment that has none: it is in the answer itself.
const ATTACHMENT: &str = "segue://attachment";

/// What one turn came to, for whoever called.
pub(super) struct Heard {
    pub(super) replies: Vec<StoredReply>,
    pub(super) has_failures: bool,
    pub(super) ended: bool,
    /// Whether the message had been answered before.
    pub(super) repeated: bool,
}

impl From<TurnReport> for Heard {
    fn from(report: TurnReport) -> Self {
        let TurnReport { earlier_replies, replies, failures, session_ended, is_duplicate, .. } = report;
        let replies = [earlier_replies, replies].concat();
        Self { replies, has_failures: !failures.is_empty(), ended: session_ended, repeated: is_duplicate }
    }
}

/// What was said in the turns of one call.
pub(super) struct Said<'a> {
    id: &'a ConversationId,
    replies: Vec<StoredReply>,
    has_failures: bool,
    ended: bool,
    repeated: bool,
}

impl<'a> Said<'a> {
    pub(super) fn new(id: &'a ConversationId) -> Self {
        Self { id, replies: Vec::new(), has_failures: false, ended: false, repeated: false }
    }

    /// Takes what one turn came to; its words only where they are news.
    pub(super) fn hear(&mut self, heard: &Heard, is_news: bool) {
        self.replies.extend(heard.replies.iter().filter(|_| is_news).cloned());
        self.has_failures |= heard.has_failures;
        self.ended |= heard.ended;
        self.repeated |= heard.repeated;
    }

    /// The answer, where the talk stands so.
    pub(super) fn result(&self, project: &Project, talk: &Conversation, was_cut: bool) -> CallToolResult {
        let ended = self.ended || talk.session.ended;
        let waits = !ended && !talk.stack.is_empty();
        let mut content: Vec<ContentBlock> = self
            .replies
            .iter()
            .filter(|reply| reply.kind != BotKind::Filler)
            .flat_map(|one| blocks(&one.reply))
            .collect();
        if content.is_empty() && !was_cut {
            content.push(ContentBlock::text(say("silent", &[])));
        }
        if was_cut {
            content.push(ContentBlock::text(say("cut", &[])));
        }
        let state = if ended {
            "ended"
        } else if waits {
            "waits"
        } else {
            "goes_on"
        };
        content.push(ContentBlock::text(say(state, &[("id", self.id.as_str())])));
        let mut result = CallToolResult::success(content);
        result.structured_content = Some(self.data(project, talk, waits, ended));
        // A failure after which the flow goes on is not the caller's.
        result.is_error = Some(self.has_failures && !waits);
        result
    }

    fn data(&self, project: &Project, talk: &Conversation, waits: bool, ended: bool) -> Json {
        let replies: Vec<Json> = self.replies.iter().map(shown).collect();
        let mut data = json!({
            "conversation_id": self.id.as_str(),
            "replies": replies,
            "waiting_for_input": waits,
            "session_ended": ended,
        });
        if let Some(data) = data.as_object_mut() {
            if let Some(question) = question::open(project, talk).filter(|_| waits) {
                data.insert("question".into(), json!({"slot": question.slot, "schema": question.schema}));
            }
            if self.repeated {
                data.insert("repeated".into(), json!(true));
            }
        }
        data
    }
}

/// A reply as data: its own fields, and what it was for.
fn shown(reply: &StoredReply) -> Json {
    let mut fields = match serde_json::to_value(&reply.reply) {
        Ok(Json::Object(fields)) => fields,
        _ => Map::new(),
    };
    fields.insert("kind".into(), serde_json::to_value(reply.kind).unwrap_or_default());
    Json::Object(fields)
}

/// A reply as content. What is there as data is shown as what it is; of everything else the address is told.
pub(super) fn blocks(reply: &Reply) -> Vec<ContentBlock> {
    let mut out = Vec::new();
    let text = reply.text.as_deref().map(str::trim).filter(|text| !text.is_empty());
    out.extend(text.map(ContentBlock::text));
    let mut rest = Reply { text: None, ..reply.clone() };
    if let Some(block) = reply.image.as_deref().and_then(inline) {
        out.push(block);
        rest.image = None;
    }
    let source =
        reply.attachment.as_ref().and_then(|one| one.as_str().or_else(|| one.pointer("/payload/src")?.as_str()));
    if let Some(block) = source.and_then(inline) {
        out.push(block);
        rest.attachment = None;
    }
    out.extend(encode::plain_texts(&rest).into_iter().map(ContentBlock::text));
    let quick = reply.quick_replies.iter().filter_map(|one| one.get("title").and_then(Json::as_str));
    let titles: Vec<&str> = reply.buttons.iter().map(|button| &*button.title).chain(quick).collect();
    if !titles.is_empty() {
        out.push(ContentBlock::text(say("options", &[("titles", &titles.join(" | "))])));
    }
    out
}

/// What a `data:` address in base64 holds.
fn inline(address: &str) -> Option<ContentBlock> {
    let (kind, data) = address.strip_prefix("data:")?.split_once(";base64,")?;
    match kind.split_once('/')? {
        ("image", _) => Some(ContentBlock::image(data, kind)),
        ("audio", _) => Some(ContentBlock::audio(data, kind)),
        _ => Some(ContentBlock::resource(ResourceContents::blob(data, ATTACHMENT).with_mime_type(kind))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use super::*;

    fn content(reply: Json) -> Json {
        let reply: Reply = serde_json::from_value(reply).unwrap();
        serde_json::to_value(blocks(&reply)).unwrap()
    }

    #[test]
    fn what_a_reply_holds_is_all_told() {
        let shown = content(json!({
            "text": "Which?", "buttons": [{"title": "One", "payload": "/x"}, {"title": "Two", "payload": "/y"}],
            "image": "https://x/y.png", "custom": {"k": 1},
        }));
        let texts: Vec<&str> = shown.as_array().unwrap().iter().map(|block| block["text"].as_str().unwrap()).collect();
        assert_eq!(texts[0], "Which?");
        assert!(texts.contains(&"Image: https://x/y.png") && texts.contains(&"{\"k\":1}"), "{texts:?}");
        assert!(texts.last().unwrap().contains("One | Two"), "{texts:?}");
    }

    #[test]
    fn what_is_there_as_data_is_shown_as_what_it_is() {
        let shown = content(json!({"image": "data:image/png;base64,AAAA"}));
        assert_eq!(shown, json!([{"type": "image", "data": "AAAA", "mimeType": "image/png"}]));
        let heard = content(json!({"attachment": {"type": "audio", "payload": {"src": "data:audio/wav;base64,AAAA"}}}));
        assert_eq!(heard, json!([{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]));
        let file = content(json!({"attachment": "data:text/csv;base64,AAAA"}));
        assert_eq!((&file[0]["type"], &file[0]["resource"]["blob"]), (&json!("resource"), &json!("AAAA")));
        assert!(inline("data:;base64,AAAA").is_none());
    }
}

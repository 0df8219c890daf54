//! The body of a request, and what of its messages is new.

use std::sync::Arc;

use segue_base::json::from_slice_lossy;
use serde::Deserialize;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use super::{ApiError, no_model};

/// A request for a chat completion. Everything that steers a model, such as `temperature` and `tools`, is ignored: an assistant decides
/// by its project.
#[derive(Debug, Deserialize)]
pub(super) struct ChatRequest {
    #[serde(default)]
    model: Option<String>,
    messages: Vec<Message>,
    #[serde(default)]
    pub(super) stream: Option<bool>,
    #[serde(default)]
    pub(super) stream_options: Option<StreamOptions>,
    #[serde(default)]
    n: Option<u64>,
    #[serde(default)]
    metadata: Option<Metadata>,
    /// The body as it was sent.
    #[serde(skip)]
    pub(super) body: Json,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct StreamOptions {
    /// Whether the last part of the stream says how many tokens were used.
    #[serde(default)]
    pub(super) include_usage: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata {
    /// Whether the user has finished: then writes need not wait.
    #[serde(default)]
    segue_final: Option<Json>,
}

#[derive(Debug, Deserialize)]
struct Message {
    role: String,
    #[serde(default)]
    content: Option<Content>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: Option<String>,
}

/// Parses a body; `model` is the only model that there is.
pub(super) fn parse(body: &[u8], model: &str) -> Result<ChatRequest, ApiError> {
    let (body, is_repaired): (Json, bool) = from_slice_lossy(body).map_err(|error| {
        ApiError::invalid("", format!("the body is not JSON ({error}); expected `{{\"messages\": […]}}`"))
    })?;
    if is_repaired {
        tracing::warn!(channel = super::NAME, "a message has invalid text, which is replaced by U+FFFD");
    }
    let mut request: ChatRequest = serde_path_to_error::deserialize(&body)
        .map_err(|error| ApiError::invalid(error.path().to_string(), format!("{}", error.inner())))?;
    if let Some(wanted) = request.model.as_deref().filter(|wanted| *wanted != model) {
        return Err(no_model(wanted, model));
    }
    if request.n.is_some_and(|n| n != 1) {
        return Err(ApiError::invalid("n", "an assistant gives one answer; leave `n` out"));
    }
    request.body = body;
    Ok(request)
}

/// What the user has said in a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UserTurn {
    /// The number of user messages in the request.
    count: usize,
    /// The text that is new; `None` if the request has no user message: the assistant begins.
    pub(super) text: Option<String>,
    /// Whether the request contains what the assistant has said.
    has_answers: bool,
    /// Identifies the text, whatever its case and the punctuation at its end: a voice stack transcribes the same words more than once.
    hash: Box<str>,
}

/// The position of a user message, as the id of the message has it: so it is known after a restart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// The number of events of the conversation before the message. It distinguishes the message from earlier ones with the same text.
    before: u64,
    count: usize,
    hash: Box<str>,
}

impl ChatRequest {
    /// Whether the client says that the user has finished.
    pub(super) fn is_final(&self) -> bool {
        let is_final = self.metadata.as_ref().and_then(|metadata| metadata.segue_final.as_ref());
        matches!(is_final, Some(Json::Bool(true))) || is_final.and_then(Json::as_str) == Some("true")
    }

    /// What the user has said since the message at `last`, the newest one of the conversation that came over this API.
    pub(super) fn user_turn(&self, last: Option<&Position>) -> Result<UserTurn, ApiError> {
        let mut said = Vec::new();
        for (at, message) in self.messages.iter().enumerate() {
            match message.role.as_str() {
                "user" => said.push(message.text(at)?),
                // What the assistant said is between two turns of the user.
                "assistant" => said.push(None),
                _ => {}
            }
        }
        let count = said.iter().flatten().count();
        let trailing = said.iter().rev().take_while(|text| text.is_some()).count();
        // Of several messages without an answer between, those that were processed are not processed again.
        let unseen = last.map_or(trailing, |last| count.saturating_sub(last.count));
        let new = said.iter().flatten().rev().take(trailing.min(unseen).max(1));
        let mut new: Vec<&str> = new.map(String::as_str).collect();
        new.reverse();
        let text = (count > 0).then(|| new.join("\n"));
        let hash = hash(text.as_deref().unwrap_or_default());
        let has_answers = self.messages.iter().any(|message| message.role == "assistant");
        Ok(UserTurn { count, text, has_answers, hash })
    }
}

impl Message {
    /// The text of the message with this number; `None` if it has none.
    fn text(&self, at: usize) -> Result<Option<String>, ApiError> {
        match &self.content {
            None => Ok(None),
            Some(Content::Text(text)) => Ok(Some(text.clone())),
            Some(Content::Parts(parts)) => {
                let texts = parts.iter().enumerate().map(|(part, content)| match (&*content.kind, &content.text) {
                    ("text" | "input_text", Some(text)) => Ok(text.as_str()),
                    (kind, _) => Err(ApiError::invalid(
                        format!("messages[{at}].content[{part}]"),
                        format!("a user message may contain `text`; `{kind}` is not supported"),
                    )),
                });
                Ok(Some(texts.collect::<Result<Vec<_>, _>>()?.join("\n")))
            }
        }
    }
}

impl UserTurn {
    /// The position of this message in a conversation with so many events.
    pub(super) fn position(&self, before: u64) -> Position {
        Position { before, count: self.count, hash: self.hash.clone() }
    }

    /// Whether a client repeats the message at `last`. A client that does not send the history sends one user message in every request: then
    /// the same text is a new message.
    pub(super) fn repeats(&self, last: &Position) -> bool {
        let sends_history = self.has_answers || self.count != 1 || last.before == 0;
        self.count == last.count && self.hash == last.hash && sends_history
    }
}

impl Position {
    const PREFIX: &str = "chat";

    /// The position in the id of a message; `None` if it is not a message of this channel.
    pub(super) fn parse(message_id: &str) -> Option<Self> {
        let mut parts = message_id.split(':');
        let (Some(Self::PREFIX), Some(before), Some(count), Some(hash), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        Some(Self { before: before.parse().ok()?, count: count.parse().ok()?, hash: hash.into() })
    }

    /// The id of the message at this position.
    pub(super) fn message_id(&self) -> String {
        let Self { before, count, hash } = self;
        format!("{}:{before}:{count}:{hash}", Self::PREFIX)
    }
}

/// A hash of a text without its case, the spaces around it and the punctuation at its end.
fn hash(text: &str) -> Box<str> {
    let text = text.to_lowercase();
    let text = text.trim_end_matches(|c: char| c.is_whitespace() || c.is_ascii_punctuation() || "…。！？".contains(c));
    let digest = Sha256::digest(text.trim_start().as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

/// The id of the completion of a turn: the same whenever the turn is asked for.
pub(super) fn completion_id(conversation: &str, turn: u64) -> Arc<str> {
    let digest = Sha256::digest(conversation.as_bytes());
    let conversation: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("chatcmpl-{conversation}{turn:08}").into()
}

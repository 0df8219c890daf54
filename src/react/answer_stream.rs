//! One response of the model as a stream: text is forwarded to the user at once, tool calls only when the response is complete.

use std::sync::Arc;

use crate::{
    context::CallContext,
    conversation::{BotKind, Reply, ReplyKind, ReplySink, TurnEvent},
    llm::{ChatRequest, ChatResponse, Delta, Llm, LlmError, LlmErrorKind},
};

/// A message to the user that is being streamed or will be sent, with its id.
pub(crate) struct StreamedText {
    /// The id of the message.
    pub(crate) id: Arc<str>,
    /// Its text, trimmed; empty if there is none.
    pub(crate) text: Arc<str>,
    /// Whether deltas of it were sent.
    started: bool,
    /// The first sentence that was withheld because no tool result supports its claim; the text after it was withheld too.
    pub(crate) ungrounded: Option<Arc<str>>,
    /// Whether the text is incomplete.
    pub(crate) truncated: bool,
}

/// The result of one model call.
pub(crate) enum ModelTurn {
    /// A complete response; its text may have been sent already.
    Answer(Arc<ChatResponse>, StreamedText),
    /// The response failed; the part that the user saw counts as sent.
    Failed(LlmError, StreamedText),
}

/// Decides for each sentence whether it may be sent.
pub(crate) type SentenceFilter<'a> = &'a (dyn Fn(&str) -> bool + Sync);

/// Calls the model and forwards its text under the name of its `source`; sentence by sentence if there is a filter.
pub(crate) async fn stream_answer(
    llm: &dyn Llm,
    source: &Arc<str>,
    chat_request: ChatRequest,
    filter: Option<SentenceFilter<'_>>,
    out: &mut dyn ReplySink,
    cx: &CallContext,
) -> ModelTurn {
    let mut streamed = StreamedText {
        id: cx.key.as_str().into(),
        text: "".into(),
        started: false,
        ungrounded: None,
        truncated: false,
    };
    let mut buffer = SentenceBuffer::default();
    let mut stream = match llm.chat(chat_request, cx).await {
        Ok(stream) => stream,
        Err(error) => return ModelTurn::Failed(error, streamed),
    };
    let mut forwarded = String::new();
    loop {
        match stream.next().await {
            Some(Ok(Delta::Text(text) | Delta::Refusal(text))) => {
                let Some(filter) = filter else {
                    streamed.forward(&mut forwarded, text, source, out, cx).await;
                    continue;
                };
                if let Some(passed) = buffer.take(&text, filter, false) {
                    streamed.forward(&mut forwarded, passed.into(), source, out, cx).await;
                }
            }
            Some(Ok(Delta::Done(answer))) => {
                let text =
                    if answer.text.trim().is_empty() { answer.refusal.as_deref().unwrap_or("") } else { &answer.text };
                streamed.text = text.trim().into();
                if let Some(filter) = filter {
                    if let Some(rest) = buffer.take("", filter, true) {
                        streamed.forward(&mut forwarded, rest.into(), source, out, cx).await;
                    }
                    if let Some(sentence) = buffer.ungrounded {
                        streamed.text = forwarded.trim().into();
                        streamed.ungrounded = Some(sentence);
                    }
                }
                return ModelTurn::Answer(answer, streamed);
            }
            Some(Ok(_)) => {}
            ended => {
                let error = ended.and_then(Result::err).unwrap_or_else(|| LlmErrorKind::Truncated.into());
                streamed.text = forwarded.trim().into();
                return ModelTurn::Failed(error, streamed.into_truncated());
            }
        }
    }
}

/// Text that waits for the filter.
#[derive(Default)]
struct SentenceBuffer {
    waiting: String,
    ungrounded: Option<Arc<str>>,
}

impl SentenceBuffer {
    /// Adds text and returns the sentences that may be sent now. After the first rejected sentence it returns nothing more.
    fn take(&mut self, text: &str, filter: SentenceFilter<'_>, last: bool) -> Option<String> {
        self.waiting.push_str(text);
        let mut passed = String::new();
        while self.ungrounded.is_none() && !self.waiting.is_empty() {
            let Some(end) = sentence_end(&self.waiting).or(last.then_some(self.waiting.len())) else { break };
            let rest = self.waiting.split_off(end);
            let sentence = std::mem::replace(&mut self.waiting, rest);
            if filter(&sentence) {
                passed.push_str(&sentence);
            } else {
                self.ungrounded = Some(sentence.trim().into());
            }
        }
        (!passed.is_empty()).then_some(passed)
    }
}

impl StreamedText {
    /// A message that is sent as a whole.
    pub(crate) fn complete(cx: &CallContext, text: Arc<str>) -> Self {
        Self { id: cx.key.as_str().into(), text, started: false, ungrounded: None, truncated: false }
    }
    /// Appends a sentence.
    pub(crate) async fn append(
        &mut self,
        sentence: &str,
        source: &Arc<str>,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) {
        let mut forwarded = self.text.to_string();
        let more = if forwarded.is_empty() { sentence.to_owned() } else { format!(" {sentence}") };
        self.forward(&mut forwarded, more.into(), source, out, cx).await;
        self.text = forwarded.trim().into();
    }
    /// Whether deltas of it were sent.
    pub(crate) fn has_started(&self) -> bool {
        self.started
    }

    /// Forwards a delta. A message starts with its first visible character, so that a response of calls alone shows no empty message.
    async fn forward(
        &mut self,
        forwarded: &mut String,
        text: Arc<str>,
        source: &Arc<str>,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) {
        forwarded.push_str(&text);
        if !out.wants_deltas() {
            return;
        }
        let text = if self.started { text } else { forwarded.trim_start().into() };
        if text.is_empty() {
            return;
        }
        if !self.started {
            self.started = true;
            let start =
                TurnEvent::MessageStart { id: self.id.clone(), source: source.clone(), kind: ReplyKind::Pending };
            let _ = out.send(start, cx).await;
        }
        // A lost delta does not stop the run: the whole text is stored with the turn and delivered from there.
        let _ = out.send(TurnEvent::MessageDelta { id: self.id.clone(), text }, cx).await;
    }

    /// The part that the user saw, marked as incomplete.
    pub(crate) fn into_truncated(mut self) -> Self {
        if !self.started {
            self.text = "".into();
        }
        self.truncated = true;
        self
    }

    /// Ends the message with its kind; sends it as a whole if no delta was sent.
    pub(crate) async fn send_end(&self, kind: BotKind, out: &mut dyn ReplySink, cx: &CallContext) {
        if self.text.is_empty() {
            return;
        }
        let (id, message) = (self.id.clone(), Box::new(Reply::text(self.text.clone())));
        let event = if self.started {
            TurnEvent::MessageEnd { id, message, kind, interrupted: self.truncated }
        } else {
            TurnEvent::Message { id, message, kind }
        };
        let _ = out.send(event, cx).await;
    }
}

/// The byte offset after the first sentence of a text and its white space; `None` if the sentence may be incomplete.
pub(crate) fn sentence_end(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|(_, next)| *next);
        let ends = match c {
            '\n' | '。' | '！' | '？' => true,
            '.' | '!' | '?' => next.is_some_and(char::is_whitespace),
            _ => false,
        };
        if ends {
            let tail = text.get(at + c.len_utf8()..).unwrap_or_default();
            let blank = tail.len() - tail.trim_start().len();
            return Some(at + c.len_utf8() + blank);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::sentence_end;

    #[test]
    fn a_sentence_ends_at_punctuation_before_white_space_or_at_a_line_break() {
        assert_eq!(sentence_end("At 10.30 it leaves. Then"), Some(20));
        assert_eq!(sentence_end("At 10."), None);
        assert_eq!(sentence_end("one\ntwo"), Some(4));
    }
}

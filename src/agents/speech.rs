//! One answer of the model, forwarded as it comes: text to the user at once, calls only when the answer is complete.

use std::sync::Arc;

use super::{AgentRequest, claims::sentence_end};
use crate::{
    context::CallContext,
    conversation::{BotKind, Reply, ReplyEvent, ReplyKind, ReplySink},
    llm::{ChatRequest, ChatResponse, Delta, LlmError, LlmErrorKind},
};

/// A text that was sent, or is to be sent, under an id of its own.
pub(super) struct Spoken {
    /// The id of the message.
    pub(super) id: Arc<str>,
    /// Its text, trimmed; empty when nothing was said.
    pub(super) text: Arc<str>,
    /// Whether pieces of it left already.
    begun: bool,
    /// The sentence that was held back, and all after it, because nothing proves what it claims.
    pub(super) unproven: Option<Arc<str>>,
    /// Whether there would have been more of it.
    pub(super) cut: bool,
}

/// What came of one model call.
pub(super) enum Heard {
    /// A complete answer; its text may have left already.
    Answer(Arc<ChatResponse>, Spoken),
    /// The answer broke off; what the user saw of it counts as said.
    Broken(LlmError, Spoken),
}

/// A look at each sentence before it leaves: whether it may.
pub(super) type Look<'a> = &'a (dyn Fn(&str) -> bool + Sync);

/// Asks the model and forwards its text; sentence by sentence where each is looked at.
pub(super) async fn ask(
    task: &AgentRequest<'_>,
    request: ChatRequest,
    look: Option<Look<'_>>,
    out: &mut dyn ReplySink,
    cx: &CallContext,
) -> Heard {
    let mut spoken = Spoken { id: cx.key.as_str().into(), text: "".into(), begun: false, unproven: None, cut: false };
    let mut held = Held::default();
    let mut stream = match task.llm.chat(request, cx).await {
        Ok(stream) => stream,
        Err(error) => return Heard::Broken(error, spoken),
    };
    let source: Arc<str> = format!("agent:{}", task.call.agent).into();
    let mut said = String::new();
    loop {
        match stream.next().await {
            Some(Ok(Delta::Text(text) | Delta::Refusal(text))) => {
                let Some(look) = look else {
                    spoken.forward(&mut said, text, &source, out, cx).await;
                    continue;
                };
                if let Some(proven) = held.take(&text, look, false) {
                    spoken.forward(&mut said, proven.into(), &source, out, cx).await;
                }
            }
            Some(Ok(Delta::Done(answer))) => {
                let text =
                    if answer.text.trim().is_empty() { answer.refusal.as_deref().unwrap_or("") } else { &answer.text };
                spoken.text = text.trim().into();
                if let Some(look) = look {
                    if let Some(rest) = held.take("", look, true) {
                        spoken.forward(&mut said, rest.into(), &source, out, cx).await;
                    }
                    if let Some(sentence) = held.unproven {
                        spoken.text = said.trim().into();
                        spoken.unproven = Some(sentence);
                    }
                }
                return Heard::Answer(answer, spoken);
            }
            Some(Ok(_)) => {}
            ended => {
                let error = ended.and_then(Result::err).unwrap_or_else(|| LlmErrorKind::Truncated.into());
                spoken.text = said.trim().into();
                return Heard::Broken(error, spoken.broken_off());
            }
        }
    }
}

/// Text that is looked at before it leaves.
#[derive(Default)]
struct Held {
    waiting: String,
    unproven: Option<Arc<str>>,
}

impl Held {
    /// Takes more text; what may leave now. After the first sentence that may not, nothing does.
    fn take(&mut self, text: &str, look: Look<'_>, last: bool) -> Option<String> {
        self.waiting.push_str(text);
        let mut free = String::new();
        while self.unproven.is_none() && !self.waiting.is_empty() {
            let Some(end) = sentence_end(&self.waiting).or(last.then_some(self.waiting.len())) else { break };
            let rest = self.waiting.split_off(end);
            let sentence = std::mem::replace(&mut self.waiting, rest);
            if look(&sentence) {
                free.push_str(&sentence);
            } else {
                self.unproven = Some(sentence.trim().into());
            }
        }
        (!free.is_empty()).then_some(free)
    }
}

impl Spoken {
    /// A text that is said as a whole.
    pub(super) fn whole(cx: &CallContext, text: Arc<str>) -> Self {
        Self { id: cx.key.as_str().into(), text, begun: false, unproven: None, cut: false }
    }
    /// Adds a sentence to a text that was cut.
    pub(super) async fn add(&mut self, sentence: &str, source: &Arc<str>, out: &mut dyn ReplySink, cx: &CallContext) {
        let mut said = self.text.to_string();
        let more = if said.is_empty() { sentence.to_owned() } else { format!(" {sentence}") };
        self.forward(&mut said, more.into(), source, out, cx).await;
        self.text = said.trim().into();
    }
    /// Whether pieces of it left already.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Forwards a piece. A message begins with its first visible character: an answer of calls alone leaves no empty bubble.
    async fn forward(
        &mut self,
        said: &mut String,
        text: Arc<str>,
        source: &Arc<str>,
        out: &mut dyn ReplySink,
        cx: &CallContext,
    ) {
        said.push_str(&text);
        if !out.streams() {
            return;
        }
        let text = if self.begun { text } else { said.trim_start().into() };
        if text.is_empty() {
            return;
        }
        if !self.begun {
            self.begun = true;
            let start = ReplyEvent::Start { id: self.id.clone(), source: source.clone(), kind: ReplyKind::Pending };
            let _ = out.send(start, cx).await;
        }
        // A lost piece is no reason to stop: the whole text is stored with the turn and delivered from there.
        let _ = out.send(ReplyEvent::Delta { id: self.id.clone(), text }, cx).await;
    }

    /// The same, as far as it was seen: it breaks off.
    pub(super) fn broken_off(mut self) -> Self {
        if !self.begun {
            self.text = "".into();
        }
        self.cut = true;
        self
    }

    /// Ends the message: now its kind is known.
    pub(super) async fn end(&self, kind: BotKind, out: &mut dyn ReplySink, cx: &CallContext) {
        if self.text.is_empty() {
            return;
        }
        let (id, message) = (self.id.clone(), Box::new(Reply::text(self.text.clone())));
        let piece = if self.begun {
            ReplyEvent::End { id, message, kind, interrupted: self.cut }
        } else {
            ReplyEvent::Message { id, message, kind }
        };
        let _ = out.send(piece, cx).await;
    }
}

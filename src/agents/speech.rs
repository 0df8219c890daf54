//! One answer of the model, forwarded as it comes: text to the user at once, calls only when the answer is complete.

use std::sync::Arc;

use super::AgentTask;
use crate::{
    conversation::{BotKind, Reply, ReplyKind, ReplyPiece, ReplySink},
    cx::Cx,
    llm::{Answer, ChatRequest, Delta, LlmError, LlmErrorKind},
};

/// A text that was sent, or is to be sent, under an id of its own.
pub(super) struct Spoken {
    /// The id of the message.
    pub(super) id: Arc<str>,
    /// Its text, trimmed; empty when nothing was said.
    pub(super) text: Arc<str>,
    /// Whether pieces of it left already.
    begun: bool,
}

/// What came of one model call.
pub(super) enum Heard {
    /// A complete answer; its text may have left already.
    Answer(Arc<Answer>, Spoken),
    /// The answer broke off; what the user saw of it counts as said.
    Broken(LlmError, Spoken),
}

/// Asks the model and forwards its text.
pub(super) async fn ask(task: &AgentTask<'_>, request: ChatRequest, out: &mut dyn ReplySink, cx: &Cx) -> Heard {
    let mut spoken = Spoken { id: cx.key.as_str().into(), text: "".into(), begun: false };
    let mut stream = match task.llm.chat(request, cx).await {
        Ok(stream) => stream,
        Err(error) => return Heard::Broken(error, spoken),
    };
    let source: Arc<str> = format!("agent:{}", task.call.agent).into();
    let mut said = String::new();
    loop {
        match stream.next().await {
            Some(Ok(Delta::Text(text) | Delta::Refusal(text))) => {
                spoken.forward(&mut said, text, &source, out, cx).await;
            }
            Some(Ok(Delta::Done(answer))) => {
                let text =
                    if answer.text.trim().is_empty() { answer.refusal.as_deref().unwrap_or("") } else { &answer.text };
                spoken.text = text.trim().into();
                return Heard::Answer(answer, spoken);
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                spoken.text = if spoken.begun { said.trim().into() } else { "".into() };
                return Heard::Broken(error, spoken);
            }
            None => return Heard::Broken(LlmErrorKind::CutShort.into(), spoken),
        }
    }
}

impl Spoken {
    /// Forwards a piece. A message begins with its first visible character: an answer of calls alone leaves no empty bubble.
    async fn forward(
        &mut self,
        said: &mut String,
        text: Arc<str>,
        source: &Arc<str>,
        out: &mut dyn ReplySink,
        cx: &Cx,
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
            let start = ReplyPiece::Start { id: self.id.clone(), source: source.clone(), kind: ReplyKind::Pending };
            let _ = out.send(start, cx).await;
        }
        // A lost piece is no reason to stop: the whole text is stored with the turn and delivered from there.
        let _ = out.send(ReplyPiece::Delta { id: self.id.clone(), text }, cx).await;
    }

    /// Ends the message: now its kind is known.
    pub(super) async fn end(&self, kind: BotKind, interrupted: bool, out: &mut dyn ReplySink, cx: &Cx) {
        if self.text.is_empty() {
            return;
        }
        let (id, message) = (self.id.clone(), Reply::text(self.text.clone()));
        let piece = if self.begun {
            ReplyPiece::End { id, message, kind, interrupted }
        } else {
            ReplyPiece::Message { id, message, kind }
        };
        let _ = out.send(piece, cx).await;
    }
}

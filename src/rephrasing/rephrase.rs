//! Rephrases one response: the request to the model, and its answer as a stream to the channel.

use std::sync::Arc;

use minijinja::{Value, context};
use segue_engine::{
    conversation::BotKind,
    project::{Nlg, Rephraser},
    template::from_json,
};

use super::{RephraseRequest, context};
use crate::{
    context::CallContext,
    conversation::{Reply, ReplyKind, ReplySink, TurnEvent},
    limits,
    llm::{ChatMessage, ChatRequest, Delta, Llm, Purpose, request::is_set},
    prompts::PromptSet,
};

/// The `utter_source` of rephrased messages, as in Rasa.
pub const REPHRASER: &str = "ContextualResponseRephraser";

pub(super) async fn rephrase(
    prompts: &PromptSet,
    request: &RephraseRequest<'_>,
    llm: &Arc<dyn Llm>,
    out: &mut dyn ReplySink,
    cx: &CallContext,
) -> Result<Arc<str>, String> {
    let Some(Nlg::Rephraser(rephraser)) = &request.project.endpoints.nlg else {
        return Err("the project has no rephraser".to_owned());
    };
    let settings = request.project.endpoints.model_settings(rephraser.model_group.as_deref(), &rephraser.llm);
    let mut chat_request = chat_request(prompts, rephraser, request)?.with_defaults(
        &settings,
        llm.profile(),
        limits::REPHRASE_TEMPERATURE,
        limits::REPHRASE_TOKENS,
    );
    chat_request.streamed_to_user = out.wants_deltas();
    let cx = if is_set(&settings, &["timeout", "request_timeout"]) {
        cx.clone()
    } else {
        cx.with_timeout(limits::REPHRASE_WAIT)
    };
    let mut stream = RephraseStream { request, out, has_started: false, received: String::new() };
    let text = match cx.wait(stream.run(llm, chat_request, &cx)).await {
        Ok(text) => text,
        Err(error) => Err(error.to_string()),
    };
    stream.end(text.as_ref().ok(), &cx).await;
    text
}

fn chat_request(
    prompts: &PromptSet,
    rephraser: &Rephraser,
    request: &RephraseRequest<'_>,
) -> Result<ChatRequest, String> {
    let (project, conversation) = (request.project, request.conversation);
    let (history, current_input) = context::transcript(conversation, rephraser.turns);
    let slots: Value = from_json(&context::slots(project, conversation).into());
    let language = context::language(project, conversation);
    let suggested_response = request.message.reply.text.as_deref().unwrap_or_default();
    let values = context! { history, current_input, suggested_response, slots, language };
    let own = request.variation().and_then(|variation| variation.rephrase_prompt.as_ref());
    let messages = match own.or(rephraser.prompt.as_ref()) {
        Some(template) => {
            let text = project.templates.render(template, values).map_err(|error| error.to_string())?;
            vec![ChatMessage::user(text)]
        }
        None => {
            let render = |prompt| prompts.render(prompt, values.clone()).map_err(|error| error.to_string());
            let rules = render(&prompts.rephrase)?;
            vec![ChatMessage::system(rules.trim_end()), ChatMessage::user(render(&prompts.rephrase_turn)?)]
        }
    };
    Ok(ChatRequest::new(Purpose::REPHRASE, messages))
}

/// The rephrased text while it streams to the channel.
struct RephraseStream<'a, 'm> {
    request: &'a RephraseRequest<'m>,
    out: &'a mut dyn ReplySink,
    /// Whether a reply has started on the channel.
    has_started: bool,
    received: String,
}

impl RephraseStream<'_, '_> {
    async fn run(&mut self, llm: &Arc<dyn Llm>, request: ChatRequest, cx: &CallContext) -> Result<Arc<str>, String> {
        let mut stream = llm.chat(request, cx).await.map_err(|error| format!("{}: {error}", error.code()))?;
        loop {
            match stream.next().await {
                Some(Ok(Delta::Text(text))) => self.push(&text, cx).await,
                Some(Ok(Delta::Done(answer))) if answer.text.trim().is_empty() => {
                    return Err("the answer of the model is empty".to_owned());
                }
                Some(Ok(Delta::Done(answer))) => return Ok(answer.text.trim().into()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(format!("{}: {error}", error.code())),
                None => return Err("the answer ended without a finish reason".to_owned()),
            }
        }
    }

    /// Adds a delta and sends it; the reply starts with its first visible character.
    async fn push(&mut self, text: &str, cx: &CallContext) {
        self.received.push_str(text);
        if !self.out.wants_deltas() {
            return;
        }
        let text = if self.has_started { text } else { self.received.trim_start() };
        if text.is_empty() {
            return;
        }
        let (id, text): (Arc<str>, Arc<str>) = (self.request.id.clone(), text.into());
        if !self.has_started {
            self.has_started = true;
            let name = self.request.message.utter_action.as_deref().unwrap_or_default();
            let source = format!("response:{name}").into();
            let kind = ReplyKind::Known(self.request.message.kind);
            let _ = self.out.send(TurnEvent::MessageStart { id: id.clone(), source, kind }, cx).await;
        }
        let _ = self.out.send(TurnEvent::MessageDelta { id, text }, cx).await;
    }

    /// Ends a reply that has started: with the rephrased text, or with the original text after an error. A reply that has not
    /// started is delivered with the turn.
    async fn end(&mut self, text: Option<&Arc<str>>, cx: &CallContext) {
        if !self.has_started {
            return;
        }
        let mut message = self.request.message.reply.clone();
        if let Some(text) = text {
            message.text = Some(text.clone());
        }
        let kind: BotKind = self.request.message.kind;
        let _ = self.out.send(end_event(self.request.id.clone(), message, kind), cx).await;
    }
}

fn end_event(id: Arc<str>, message: Reply, kind: BotKind) -> TurnEvent {
    TurnEvent::MessageEnd { id, message: Box::new(message), kind, interrupted: false }
}

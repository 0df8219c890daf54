//! One response in other words: the request, and the answer on its way to the channel.

use std::sync::Arc;

use minijinja::{Value, context};
use segue_engine::{
    conversation::BotKind,
    project::{Nlg, Rephraser},
    template::from_json,
};

use super::{Moment, view};
use crate::{
    context::CallContext,
    conversation::{Reply, ReplyEvent, ReplyKind, ReplySink},
    limits,
    llm::{ChatMessage, ChatRequest, Delta, Llm, Purpose, request::is_set},
    prompts::PromptSet,
};

/// The name under which bot messages say that they were rephrased.
pub const REPHRASER: &str = "ContextualResponseRephraser";

pub(super) async fn rephrase(
    prompts: &PromptSet,
    moment: &Moment<'_>,
    llm: &Arc<dyn Llm>,
    out: &mut dyn ReplySink,
    cx: &CallContext,
) -> Result<Arc<str>, String> {
    let Some(Nlg::Rephraser(rephraser)) = &moment.project.endpoints.nlg else {
        return Err("the project has no rephraser".to_owned());
    };
    let settings = moment.project.endpoints.model_settings(rephraser.model_group.as_deref(), &rephraser.llm);
    let request = request(prompts, rephraser, moment)?;
    let mut request =
        request.with_defaults(&settings, llm.profile(), limits::REPHRASE_TEMPERATURE, limits::REPHRASE_TOKENS);
    request.streamed_to_user = out.streams();
    let cx = if is_set(&settings, &["timeout", "request_timeout"]) {
        cx.clone()
    } else {
        cx.with_timeout(limits::REPHRASE_WAIT)
    };
    let mut forward = Forward { moment, out, begun: false, said: String::new() };
    let text = match cx.wait(forward.listen(llm, request, &cx)).await {
        Ok(text) => text,
        Err(stopped) => Err(stopped.to_string()),
    };
    forward.end(text.as_ref().ok(), &cx).await;
    text
}

fn request(prompts: &PromptSet, rephraser: &Rephraser, moment: &Moment<'_>) -> Result<ChatRequest, String> {
    let (project, conversation) = (moment.project, moment.conversation);
    let (history, current_input) = view::transcript(conversation, rephraser.turns);
    let slots: Value = from_json(&view::slots(project, conversation).into());
    let language = view::language(project, conversation);
    let suggested_response = moment.message.reply.text.as_deref().unwrap_or_default();
    let values = context! { history, current_input, suggested_response, slots, language };
    let own = moment.variation().and_then(|variation| variation.rephrase_prompt.as_ref());
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

/// An answer on its way to the channel.
struct Forward<'a, 'm> {
    moment: &'a Moment<'m>,
    out: &'a mut dyn ReplySink,
    /// Whether the channel heard anything.
    begun: bool,
    said: String,
}

impl Forward<'_, '_> {
    async fn listen(&mut self, llm: &Arc<dyn Llm>, request: ChatRequest, cx: &CallContext) -> Result<Arc<str>, String> {
        let mut stream = llm.chat(request, cx).await.map_err(|error| format!("{}: {error}", error.code()))?;
        loop {
            match stream.next().await {
                Some(Ok(Delta::Text(text))) => self.piece(&text, cx).await,
                Some(Ok(Delta::Done(answer))) if answer.text.trim().is_empty() => {
                    return Err("the model answered with nothing".to_owned());
                }
                Some(Ok(Delta::Done(answer))) => return Ok(answer.text.trim().into()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(format!("{}: {error}", error.code())),
                None => return Err("the answer broke off".to_owned()),
            }
        }
    }

    /// Forwards a piece; a message begins with its first visible character.
    async fn piece(&mut self, text: &str, cx: &CallContext) {
        self.said.push_str(text);
        if !self.out.streams() {
            return;
        }
        let text = if self.begun { text } else { self.said.trim_start() };
        if text.is_empty() {
            return;
        }
        let (id, text): (Arc<str>, Arc<str>) = (self.moment.id.clone(), text.into());
        if !self.begun {
            self.begun = true;
            let name = self.moment.message.utter_action.as_deref().unwrap_or_default();
            let source = format!("response:{name}").into();
            let kind = ReplyKind::Known(self.moment.message.kind);
            let _ = self.out.send(ReplyEvent::Start { id: id.clone(), source, kind }, cx).await;
        }
        let _ = self.out.send(ReplyEvent::Delta { id, text }, cx).await;
    }

    /// Ends a message that was begun; one that was not is delivered with the turn.
    async fn end(&mut self, text: Option<&Arc<str>>, cx: &CallContext) {
        if !self.begun {
            return;
        }
        let mut message = self.moment.message.reply.clone();
        if let Some(text) = text {
            message.text = Some(text.clone());
        }
        let kind: BotKind = self.moment.message.kind;
        let _ = self.out.send(ended(self.moment.id.clone(), message, kind), cx).await;
    }
}

fn ended(id: Arc<str>, message: Reply, kind: BotKind) -> ReplyEvent {
    ReplyEvent::End { id, message: Box::new(message), kind, interrupted: false }
}

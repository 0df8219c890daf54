//! The prompt, the stream, the answer.

use std::{fmt::Write as _, sync::Arc};

use minijinja::{Value, context};
use segue_engine::{
    conversation::{BotMessage, Reply, SearchOutcome},
    template::{ZonedTime, from_json},
    text::{ELLIPSIS, TextLimit, truncate},
};
use serde_json::{Map, Value as Json, json};

use super::{
    AnswerTask, SearchResult,
    citations::Citations,
    question::{one_line, transcript},
};
use crate::{
    context::CallContext,
    conversation::{BotKind, ReplyEvent, ReplyKind, ReplySink},
    limits,
    llm::{ChatMessage, ChatRequest, Delta, LlmError, LlmErrorKind, Purpose},
    prompts::PromptSet,
    search::Found,
};

/// Who is said to have made the answer, as in the CALM format.
const SOURCE: &str = "EnterpriseSearchPolicy";

pub(super) async fn make(
    prompts: &PromptSet,
    task: &AnswerTask<'_>,
    looked: &SearchResult,
    out: &mut dyn ReplySink,
    cx: &CallContext,
) -> SearchOutcome {
    if looked.found.is_empty() {
        return SearchOutcome::NoAnswer { reason: "no passage of the documents is near the question".to_owned() };
    }
    if !task.config.generative {
        let answer = looked.found.iter().find_map(|found| found.passage.answer());
        return match answer {
            Some(answer) => answered(answer, &looked.found, &[1].into(), None),
            None => SearchOutcome::NoAnswer { reason: "what was found has no `answer` of its own".to_owned() },
        };
    }
    let request = match request(prompts, task, looked) {
        Ok(request) => request,
        Err(reason) => return SearchOutcome::Failed { reason, partial: None },
    };
    generated(task, looked, request, out, cx).await
}

/// Asks, and forwards the text where nothing can be taken back any more.
async fn generated(
    task: &AnswerTask<'_>,
    looked: &SearchResult,
    mut request: ChatRequest,
    out: &mut dyn ReplySink,
    cx: &CallContext,
) -> SearchOutcome {
    let mut spoken = Spoken::new(cx.key.as_str().into(), !task.config.check_relevancy && out.streams());
    let mut citations = Citations::new(if task.config.citations { looked.found.len() } else { 0 });
    request.streamed_to_user = spoken.streams;
    // A template of the project's own may have marks of its own meaning.
    let reads_marks = task.config.citations || task.config.prompt.is_none();
    let mut stream = match task.llm.chat(request, cx).await {
        Ok(stream) => stream,
        Err(error) => return failed(&error, None),
    };
    loop {
        match stream.next().await {
            Some(Ok(Delta::Text(text))) => {
                let text = if reads_marks { citations.push(&text) } else { text.to_string() };
                spoken.say(&text, out, cx).await;
            }
            Some(Ok(Delta::Done(_))) => break,
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                spoken.end(true, out, cx).await;
                return failed(&error, spoken.seen());
            }
            None => {
                spoken.end(true, out, cx).await;
                return failed(&LlmErrorKind::Truncated.into(), spoken.seen());
            }
        }
    }
    let rest = citations.finish();
    spoken.say(&rest, out, cx).await;
    if task.config.check_relevancy && says_nothing_fits(&spoken.text) {
        return SearchOutcome::NoAnswer { reason: "the model found that no passage answers the question".to_owned() };
    }
    if spoken.text.trim().is_empty() {
        return SearchOutcome::NoAnswer { reason: "the model answered with nothing".to_owned() };
    }
    let sources = sources(&looked.found, citations.cited());
    spoken.say(&sources, out, cx).await;
    spoken.end(false, out, cx).await;
    answered(spoken.text.trim(), &looked.found, citations.cited(), Some(spoken.id))
}

fn failed(error: &LlmError, said: Option<Box<BotMessage>>) -> SearchOutcome {
    let reason = match &error.detail {
        Some(detail) => format!("{}: {error} ({detail})", error.code()),
        None => format!("{}: {error}", error.code()),
    };
    SearchOutcome::Failed { reason, partial: said }
}

fn answered(
    text: &str,
    found: &[Found],
    cited: &std::collections::BTreeSet<usize>,
    reply_id: Option<Arc<str>>,
) -> SearchOutcome {
    let results = found.iter().enumerate().map(|(at, found)| {
        json!({
            "source": found.passage.source(),
            "text": &*found.passage.text,
            "score": found.score,
            "cited": cited.contains(&(at + 1)),
        })
    });
    SearchOutcome::Answered {
        message: Box::new(BotMessage {
            reply: Reply::text(text),
            reply_id,
            utter_source: Some(SOURCE.into()),
            search_results: results.collect(),
            ..BotMessage::default()
        }),
    }
}

/// The list of sources below an answer.
fn sources(found: &[Found], cited: &std::collections::BTreeSet<usize>) -> String {
    let mut text = String::new();
    for (number, found) in cited.iter().filter_map(|number| Some((number, found.get(number.checked_sub(1)?)?))) {
        let title = found.passage.metadata.get("title").and_then(Json::as_str);
        let title =
            title.filter(|title| *title != found.passage.source()).map(|title| format!(", {}", one_line(title)));
        let begins = if text.is_empty() { "\n\n" } else { "\n" };
        let _ = write!(text, "{begins}[{number}] {}{}", one_line(found.passage.source()), title.unwrap_or_default());
    }
    text
}

/// Whether the answer is the mark that no passage fits, as our prompt has it and as those of projects do.
fn says_nothing_fits(text: &str) -> bool {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('[') {
        let Some((inside, tail)) = after.split_once(']') else { return false };
        let is_mark = |c: char| c.is_ascii_uppercase() || c == '_' || c == ' ';
        if inside.starts_with("NO_") && inside.contains("ANSWER") && inside.chars().all(is_mark) {
            return true;
        }
        rest = tail;
    }
    false
}

fn request(prompts: &PromptSet, task: &AnswerTask<'_>, looked: &SearchResult) -> Result<ChatRequest, String> {
    let config = task.config;
    let now = config.include_date_time.then(|| ZonedTime::new(task.at, &config.timezone).ok()).flatten();
    let now = now.as_ref().map(ZonedTime::to_value);
    let history = transcript(task.conversation, config.max_history.unwrap_or(limits::COMMAND_HISTORY).max(1));
    let messages = match &config.prompt {
        Some(template) => {
            let values = context! {
                docs => looked.found.iter().map(own_doc).collect::<Vec<_>>(),
                slots => from_json(&Json::Object(slots(task))),
                current_conversation => history,
                current_datetime => now,
                citation_enabled => config.citations,
                check_relevancy => config.check_relevancy,
            };
            let text = task.project.templates.render(template, values).map_err(|error| error.to_string())?;
            vec![ChatMessage::user(text)]
        }
        None => {
            let rules = context! { cite => config.citations, check => config.check_relevancy };
            let newest = super::question::Question::of(task.conversation, 1);
            let values = context! {
                docs => looked.found.iter().enumerate().map(|(at, found)| doc(at + 1, found)).collect::<Vec<_>>().join("\n"),
                slots => Json::Object(slots(task)).to_string(),
                history,
                current_datetime => now,
                question => newest.newest(),
            };
            let render = |prompt, values| prompts.render(prompt, values).map_err(|error| error.to_string());
            let rules = render(&prompts.knowledge, rules)?;
            vec![ChatMessage::system(rules.trim_end()), ChatMessage::user(render(&prompts.knowledge_turn, values)?)]
        }
    };
    let choice = &config.llm;
    let settings = task.project.endpoints.model_settings(choice.group.as_deref(), &choice.own);
    let request = ChatRequest::new(Purpose::SEARCH, messages);
    Ok(request.with_defaults(&settings, task.llm.profile(), 0.0, limits::KNOWLEDGE_TOKENS))
}

/// A passage as our prompt shows it: one line of JSON, so that nothing in it reads as a rule.
fn doc(number: usize, found: &Found) -> String {
    let title = found.passage.metadata.get("title").and_then(Json::as_str);
    let mut shown = json!({"number": number, "source": found.passage.source()});
    if let (Some(title), Some(map)) = (title, shown.as_object_mut()) {
        map.insert("title".into(), title.into());
    }
    if let Some(map) = shown.as_object_mut() {
        map.insert("text".into(), Json::from(&*found.passage.text));
    }
    shown.to_string()
}

/// A passage as templates of projects expect it.
fn own_doc(found: &Found) -> Value {
    context! {
        text => &*found.passage.text,
        metadata => from_json(&Json::Object(found.passage.metadata.clone())),
        score => found.score,
    }
}

/// The author's slots that have a value.
fn slots(task: &AnswerTask<'_>) -> Map<String, Json> {
    let own = task.project.domain.slots.values().filter(|slot| !slot.builtin);
    let values = own.filter_map(|slot| {
        let value = task.conversation.slots.get(slot.name.as_str()).unwrap_or(&slot.initial);
        let value = match value {
            Json::Null => return None,
            Json::String(text) => Json::from(&*truncate(text, TextLimit::Chars(limits::KNOWLEDGE_VALUE), ELLIPSIS)),
            Json::Array(_) | Json::Object(_) => {
                let text = value.to_string();
                if text.len() > limits::KNOWLEDGE_VALUE {
                    Json::from(&*truncate(&text, TextLimit::Chars(limits::KNOWLEDGE_VALUE), ELLIPSIS))
                } else {
                    value.clone()
                }
            }
            other => other.clone(),
        };
        Some((slot.name.to_string(), value))
    });
    values.collect()
}

/// The answer on its way out.
struct Spoken {
    id: Arc<str>,
    text: String,
    streams: bool,
    begun: bool,
}

impl Spoken {
    fn new(id: Arc<str>, streams: bool) -> Self {
        Self { id, text: String::new(), streams, begun: false }
    }

    /// Takes more text. A message begins with its first visible character, and blanks at its end wait for what follows.
    async fn say(&mut self, text: &str, out: &mut dyn ReplySink, cx: &CallContext) {
        let before = self.text.trim_end().len();
        self.text.push_str(text);
        if !self.begun {
            self.text.drain(..self.text.len() - self.text.trim_start().len());
        }
        let upto = self.text.trim_end().len();
        let before = before.min(upto);
        let Some(piece) = self.text.get(before..upto).filter(|piece| self.streams && !piece.is_empty()) else { return };
        let text: Arc<str> = piece.into();
        if !self.begun {
            self.begun = true;
            let kind = ReplyKind::Known(BotKind::Response);
            let start = ReplyEvent::Start { id: self.id.clone(), source: "knowledge".into(), kind };
            let _ = out.send(start, cx).await;
        }
        // A lost piece is no reason to stop: the whole text is stored with the turn and delivered from there.
        let _ = out.send(ReplyEvent::Delta { id: self.id.clone(), text }, cx).await;
    }

    /// What the user saw of it, if anything: whatever that was counts as said.
    fn seen(&self) -> Option<Box<BotMessage>> {
        self.begun.then(|| {
            Box::new(BotMessage {
                reply: Reply::text(self.text.trim()),
                reply_id: Some(self.id.clone()),
                utter_source: Some(SOURCE.into()),
                truncated: true,
                ..BotMessage::default()
            })
        })
    }

    async fn end(&self, interrupted: bool, out: &mut dyn ReplySink, cx: &CallContext) {
        if self.begun {
            let message = Reply::text(self.text.trim());
            let end = ReplyEvent::End {
                id: self.id.clone(),
                message: Box::new(message),
                kind: BotKind::Response,
                interrupted,
            };
            let _ = out.send(end, cx).await;
        }
    }
}

//! Generates an answer from passages: the request to the model, and its answer as a stream.

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
    query::{one_line, transcript},
};
use crate::{
    context::CallContext,
    conversation::{BotKind, ReplyKind, ReplySink, TurnEvent},
    limits,
    llm::{ChatMessage, ChatRequest, Delta, LlmError, LlmErrorKind, Purpose},
    prompts::PromptSet,
    search::ScoredPassage,
};

/// The `utter_source` of the answer, as in Rasa.
const UTTER_SOURCE: &str = "EnterpriseSearchPolicy";

pub(super) async fn generate_answer(
    prompts: &PromptSet,
    task: &AnswerTask<'_>,
    result: &SearchResult,
    out: &mut dyn ReplySink,
    cx: &CallContext,
) -> SearchOutcome {
    if result.passages.is_empty() {
        return SearchOutcome::NoAnswer { reason: "no passage of the documents fits the question".to_owned() };
    }
    if !task.config.generative {
        let answer = result.passages.iter().find_map(|found| found.passage.answer());
        return match answer {
            Some(answer) => answered_outcome(answer, &result.passages, &[1].into(), None),
            None => SearchOutcome::NoAnswer { reason: "no passage that was found has an `answer`".to_owned() },
        };
    }
    let request = match request(prompts, task, result) {
        Ok(request) => request,
        Err(reason) => return SearchOutcome::Failed { reason, partial: None },
    };
    stream_answer(task, result, request, out, cx).await
}

/// Calls the model. The text streams to the user unless the relevancy is checked, because a streamed text cannot be withdrawn.
async fn stream_answer(
    task: &AnswerTask<'_>,
    result: &SearchResult,
    mut request: ChatRequest,
    out: &mut dyn ReplySink,
    cx: &CallContext,
) -> SearchOutcome {
    let mut answer = AnswerStream::new(cx.key.as_str().into(), !task.config.check_relevancy && out.wants_deltas());
    let mut citations = Citations::new(if task.config.citations { result.passages.len() } else { 0 });
    request.streamed_to_user = answer.streams;
    // In the answer to a template of the project, `[1]` may mean something other than a citation.
    let reads_citations = task.config.citations || task.config.prompt.is_none();
    let mut stream = match task.llm.chat(request, cx).await {
        Ok(stream) => stream,
        Err(error) => return failed_outcome(&error, None),
    };
    loop {
        match stream.next().await {
            Some(Ok(Delta::Text(text))) => {
                let text = if reads_citations { citations.push(&text) } else { text.to_string() };
                answer.push(&text, out, cx).await;
            }
            Some(Ok(Delta::Done(_))) => break,
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                answer.end(true, out, cx).await;
                return failed_outcome(&error, answer.visible_part());
            }
            None => {
                answer.end(true, out, cx).await;
                return failed_outcome(&LlmErrorKind::Truncated.into(), answer.visible_part());
            }
        }
    }
    let rest = citations.finish();
    answer.push(&rest, out, cx).await;
    if task.config.check_relevancy && is_no_answer_marker(&answer.text) {
        return SearchOutcome::NoAnswer { reason: "the model found that no passage answers the question".to_owned() };
    }
    if answer.text.trim().is_empty() {
        return SearchOutcome::NoAnswer { reason: "the answer of the model is empty".to_owned() };
    }
    let sources = sources(&result.passages, citations.cited());
    answer.push(&sources, out, cx).await;
    answer.end(false, out, cx).await;
    answered_outcome(answer.text.trim(), &result.passages, citations.cited(), Some(answer.id))
}

fn failed_outcome(error: &LlmError, partial: Option<Box<BotMessage>>) -> SearchOutcome {
    let reason = match &error.detail {
        Some(detail) => format!("{}: {error} ({detail})", error.code()),
        None => format!("{}: {error}", error.code()),
    };
    SearchOutcome::Failed { reason, partial }
}

fn answered_outcome(
    text: &str,
    found: &[ScoredPassage],
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
            utter_source: Some(UTTER_SOURCE.into()),
            search_results: results.collect(),
            ..BotMessage::default()
        }),
    }
}

/// The list of cited sources that follows an answer.
fn sources(found: &[ScoredPassage], cited: &std::collections::BTreeSet<usize>) -> String {
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

/// Whether the answer contains the marker that no passage fits: `[NO_ANSWER]` of the built-in prompt, or a similar one of a
/// Rasa template, such as `[NO_RELEVANT_ANSWER_FOUND]`.
fn is_no_answer_marker(text: &str) -> bool {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('[') {
        let Some((inside, tail)) = after.split_once(']') else { return false };
        let is_marker_char = |c: char| c.is_ascii_uppercase() || c == '_' || c == ' ';
        if inside.starts_with("NO_") && inside.contains("ANSWER") && inside.chars().all(is_marker_char) {
            return true;
        }
        rest = tail;
    }
    false
}

fn request(prompts: &PromptSet, task: &AnswerTask<'_>, result: &SearchResult) -> Result<ChatRequest, String> {
    let config = task.config;
    let now = config.include_date_time.then(|| ZonedTime::new(task.at, &config.timezone).ok()).flatten();
    let now = now.as_ref().map(ZonedTime::to_value);
    let history = transcript(task.conversation, config.max_history.unwrap_or(limits::COMMAND_HISTORY).max(1));
    let messages = match &config.prompt {
        Some(template) => {
            let values = context! {
                docs => result.passages.iter().map(custom_template_doc).collect::<Vec<_>>(),
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
            let newest = super::query::SearchQuery::new(task.conversation, 1);
            let values = context! {
                docs => result.passages.iter().enumerate().map(|(at, found)| doc(at + 1, found)).collect::<Vec<_>>().join("\n"),
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

/// A passage in the built-in prompt: one line of JSON, so that its text cannot be mistaken for instructions.
fn doc(number: usize, found: &ScoredPassage) -> String {
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

/// A passage in a template of the project.
fn custom_template_doc(found: &ScoredPassage) -> Value {
    context! {
        text => &*found.passage.text,
        metadata => from_json(&Json::Object(found.passage.metadata.clone())),
        score => found.score,
    }
}

/// The slots of the project that have a value; long values are truncated.
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

/// The answer while it streams to the user.
struct AnswerStream {
    id: Arc<str>,
    text: String,
    streams: bool,
    has_started: bool,
}

impl AnswerStream {
    fn new(id: Arc<str>, streams: bool) -> Self {
        Self { id, text: String::new(), streams, has_started: false }
    }

    /// Adds text. The message starts with its first visible character; white space at the end is sent with the text after it.
    async fn push(&mut self, text: &str, out: &mut dyn ReplySink, cx: &CallContext) {
        let before = self.text.trim_end().len();
        self.text.push_str(text);
        if !self.has_started {
            self.text.drain(..self.text.len() - self.text.trim_start().len());
        }
        let visible = self.text.trim_end().len();
        let before = before.min(visible);
        let Some(delta) = self.text.get(before..visible).filter(|delta| self.streams && !delta.is_empty()) else {
            return;
        };
        let text: Arc<str> = delta.into();
        if !self.has_started {
            self.has_started = true;
            let kind = ReplyKind::Known(BotKind::Response);
            let start = TurnEvent::MessageStart { id: self.id.clone(), source: "knowledge".into(), kind };
            let _ = out.send(start, cx).await;
        }
        // A failed delta does not stop the answer: the whole text is stored with the turn and delivered from there.
        let _ = out.send(TurnEvent::MessageDelta { id: self.id.clone(), text }, cx).await;
    }

    /// The part of the answer that the user saw, if any. It becomes part of the conversation.
    fn visible_part(&self) -> Option<Box<BotMessage>> {
        self.has_started.then(|| {
            Box::new(BotMessage {
                reply: Reply::text(self.text.trim()),
                reply_id: Some(self.id.clone()),
                utter_source: Some(UTTER_SOURCE.into()),
                truncated: true,
                ..BotMessage::default()
            })
        })
    }

    async fn end(&self, interrupted: bool, out: &mut dyn ReplySink, cx: &CallContext) {
        if self.has_started {
            let message = Reply::text(self.text.trim());
            let end = TurnEvent::MessageEnd {
                id: self.id.clone(),
                message: Box::new(message),
                kind: BotKind::Response,
                interrupted,
            };
            let _ = out.send(end, cx).await;
        }
    }
}

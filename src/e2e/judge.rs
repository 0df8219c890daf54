//! Assertions about generated texts that a model judges. Calls of the judge model are part of the recording of the case.

use std::{sync::Arc, time::Duration};

use minijinja::context;
use segue_engine::{
    conversation::{BotMessage, EventKind},
    project::test_cases::JudgedTextExpectation,
};
use serde::Deserialize;
use serde_json::Value as Json;

use super::{
    assertions::AssertionResult,
    observed::{ObservedTurn, message_summary, truncate},
    recording::{Lookup, Recording},
};
use crate::{
    clock::Clock,
    context::{CallContext, StepKey},
    limits,
    llm::{ChatMessage, ChatRequest, Llm, Purpose},
    prompts::PromptSet,
};

/// What the judge model measures of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JudgeMetric {
    /// Whether it answers the message of the user: the mean similarity of the message and questions that the text answers.
    Relevance,
    /// Whether the facts support it: the share of its statements that are supported.
    Groundedness,
}

/// The judge of one case.
pub(super) struct Judge {
    /// The judge model; none in a replay.
    pub(super) llm: Option<Arc<dyn Llm>>,
    pub(super) prompts: Arc<PromptSet>,
    pub(super) recording: Option<Arc<Recording>>,
    pub(super) clock: Arc<dyn Clock>,
}

/// Why a text has no score, as a message.
pub(super) struct JudgeError(pub(super) String);

impl Judge {
    /// Judges the texts of a turn that the assertion selects. It passes if one of them reaches the threshold. `key` identifies the
    /// assertion within the conversation.
    pub(super) async fn judge(
        &self,
        metric: JudgeMetric,
        wanted: &JudgedTextExpectation,
        observed: &ObservedTurn,
        from: usize,
        key: &str,
    ) -> Result<AssertionResult, JudgeError> {
        let is_selected = |(at, bot): &(usize, &BotMessage)| {
            let named = wanted.utter_name.as_deref().is_none_or(|name| bot.utter_action.as_deref() == Some(name));
            let source = wanted.utter_source.as_deref();
            let has_source = source.is_none_or(|source| {
                bot.utter_source.as_deref() == Some(source) || observed.source(*at).as_deref() == Some(source)
            });
            // Without a response or source in the assertion, only generated texts are judged.
            let is_judged = wanted.utter_name.is_some() || source.is_some() || is_generated(bot);
            *at >= from && named && has_source && is_judged && bot.reply.text.is_some()
        };
        let texts: Vec<(usize, &BotMessage)> = observed.messages().filter(is_selected).collect();
        if texts.is_empty() {
            let actual = observed.messages().map(|(_, bot)| truncate(&message_summary(bot))).collect();
            return Ok(AssertionResult::Failed {
                expected: vec![format!("a generated text{}", describe_selection(wanted))],
                actual,
            });
        }
        let mut scores = Vec::new();
        for (number, (at, bot)) in texts.into_iter().enumerate() {
            let key = StepKey::new(format!("judge/{key}/{number}"));
            let score = self.score(metric, wanted, observed, bot, &key).await?;
            if score >= wanted.threshold {
                return Ok(AssertionResult::Passed(Some(at)));
            }
            scores.push(format!("{score:.2} for {}", truncate(&message_summary(bot))));
        }
        let adjective = if metric == JudgeMetric::Relevance { "relevant" } else { "grounded" };
        let selection = describe_selection(wanted);
        let expected = vec![format!("a text{selection} that is {adjective}: at least {:.2}", wanted.threshold)];
        Ok(AssertionResult::Failed { expected, actual: scores })
    }

    /// The score of one text, from 0 to 1.
    async fn score(
        &self,
        metric: JudgeMetric,
        wanted: &JudgedTextExpectation,
        observed: &ObservedTurn,
        bot: &BotMessage,
        key: &StepKey,
    ) -> Result<f64, JudgeError> {
        let template = match metric {
            JudgeMetric::Relevance => &self.prompts.judge_relevant,
            JudgeMetric::Groundedness => &self.prompts.judge_grounded,
        };
        let truth = match &wanted.ground_truth {
            Some(truth) => truth.to_string(),
            None if metric == JudgeMetric::Groundedness => source_texts(bot, observed).ok_or_else(|| {
                JudgeError("the sources of the text are unknown; add a `ground_truth` to the assertion".to_owned())
            })?,
            None => String::new(),
        };
        let context = context! { answer => bot.reply.text.as_deref().unwrap_or_default(), message => &*observed.user, truth => truth };
        let prompt = self.prompts.render(template, context).map_err(|error| JudgeError(error.to_string()))?;
        let mut request = ChatRequest::new(Purpose::JUDGE, vec![ChatMessage::user(prompt)]);
        request.temperature = Some(0.0);
        let response = self.call_judge(request, key).await?;
        let score = match metric {
            JudgeMetric::Relevance => relevance(&response),
            JudgeMetric::Groundedness => groundedness(&response),
        };
        score.ok_or_else(|| {
            JudgeError(format!("the response of the judge model has the wrong format: {}", truncate(&response)))
        })
    }

    /// Calls the judge model, or takes its response from the recording.
    async fn call_judge(&self, request: ChatRequest, key: &StepKey) -> Result<String, JudgeError> {
        let hash = request.hash().to_string();
        match self.recording.as_ref().map(|recording| recording.lookup(key, "judge", &hash)) {
            Some(Lookup::Recorded(outcome)) => {
                return serde_json::from_str(&outcome).map_err(|error| JudgeError(error.to_string()));
            }
            Some(Lookup::Missing) => {
                return Err(JudgeError("the recording has no judgement of this text".to_owned()));
            }
            Some(Lookup::Forward) | None => {}
        }
        let Some(llm) = &self.llm else { return Err(JudgeError("there is no judge model".to_owned())) };
        let cx = CallContext::new(self.clock.clone(), limits::TURN_TIMEOUT.max(Duration::from_secs(1)));
        let stream = llm.chat(request, &cx).await.map_err(|error| JudgeError(error.to_string()))?;
        let response = stream.finish().await.map_err(|error| JudgeError(error.to_string()))?;
        if let Some(recording) = &self.recording {
            recording.record_outcome(key, &Json::from(&*response.text).to_string());
        }
        Ok(response.text.to_string())
    }
}

/// Whether a model wrote or rephrased the message: only such messages name the component that called the model.
fn is_generated(bot: &BotMessage) -> bool {
    bot.utter_source.is_some()
}

/// The sources of a generated text: the passages of a search, or else the results of the tools called in this turn.
fn source_texts(bot: &BotMessage, observed: &ObservedTurn) -> Option<String> {
    let text = |passage: &Json| passage.as_str().or_else(|| passage.get("text")?.as_str()).map(str::to_owned);
    let mut found: Vec<String> = bot.search_results.iter().filter_map(text).collect();
    if found.is_empty() {
        found.extend(observed.events.iter().filter_map(|event| match &event.kind {
            EventKind::ToolExecuted { summary: Some(summary), status, .. } if status == "done" => Some(summary.clone()),
            _ => None,
        }));
    }
    (!found.is_empty()).then(|| found.join("\n"))
}

/// The response and the source that an assertion selects, for messages.
fn describe_selection(wanted: &JudgedTextExpectation) -> String {
    let name = wanted.utter_name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
    let source = wanted.utter_source.as_ref().map(|source| format!(" of {source}")).unwrap_or_default();
    format!("{name}{source}")
}

/// The share of supported statements in a response of the judge model; 1 if the text contains no statement. None for a wrong format.
fn groundedness(response: &str) -> Option<f64> {
    #[derive(Deserialize)]
    struct Statements {
        statements: Vec<Statement>,
    }
    #[derive(Deserialize)]
    struct Statement {
        supported: bool,
    }
    let Statements { statements } = parse_json_object(response)?;
    if statements.is_empty() {
        return Some(1.0);
    }
    let supported = statements.iter().filter(|statement| statement.supported).count();
    Some(supported as f64 / statements.len() as f64)
}

/// The mean similarity of the questions in a response of the judge model. None for a wrong format or no question.
fn relevance(response: &str) -> Option<f64> {
    #[derive(Deserialize)]
    struct Questions {
        questions: Vec<Question>,
    }
    #[derive(Deserialize)]
    struct Question {
        #[serde(rename = "closeness")]
        similarity: f64,
    }
    let Questions { questions } = parse_json_object(response)?;
    let sum: f64 = questions.iter().map(|question| question.similarity.clamp(0.0, 1.0)).sum();
    (!questions.is_empty()).then(|| sum / questions.len() as f64)
}

/// Parses the JSON object in a response; models often write text or a code fence around it.
fn parse_json_object<T: serde::de::DeserializeOwned>(response: &str) -> Option<T> {
    let (begin, end) = (response.find('{')?, response.rfind('}')?);
    serde_json::from_str(response.get(begin..=end)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_parsed_from_responses_with_code_fences_and_clamped() {
        let two_of_three = "```json\n{\"statements\": [{\"statement\": \"a\", \"supported\": true}, \
                            {\"statement\": \"b\", \"supported\": true}, {\"statement\": \"c\", \"supported\": false}]}\n```";
        assert_eq!(groundedness(two_of_three), Some(2.0 / 3.0));
        assert_eq!(groundedness("{\"statements\": []}"), Some(1.0));
        assert_eq!(groundedness("It is fine."), None);
        let questions =
            "{\"questions\": [{\"question\": \"a\", \"closeness\": 1.5}, {\"question\": \"b\", \"closeness\": 0.5}]}";
        assert_eq!(relevance(questions), Some(0.75));
        assert_eq!(relevance("{\"questions\": []}"), None);
        assert_eq!(relevance("} {"), None);
    }
}

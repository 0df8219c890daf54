//! Texts that a model judges. What it is asked passes the recording of the case like everything else.

use std::{sync::Arc, time::Duration};

use minijinja::context;
use segue_engine::{
    conversation::{BotMessage, EventKind},
    project::test_cases::JudgedTextExpectation,
};
use serde::Deserialize;
use serde_json::Value as Json;

use super::{
    look::Verdict,
    seen::{Seen, bot_line, cut},
    tape::{Played, Tape},
};
use crate::{
    clock::Clock,
    context::{CallContext, StepKey},
    limits,
    llm::{ChatMessage, ChatRequest, Llm, Purpose},
    prompts::PromptSet,
};

/// What a judge is asked about a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Does it answer the user?
    Relevant,
    /// Is everything it says supported by what is known?
    Grounded,
}

/// The judge of one case.
pub(super) struct Judge {
    /// Nobody, where a recording answers.
    pub(super) llm: Option<Arc<dyn Llm>>,
    pub(super) prompts: Arc<PromptSet>,
    pub(super) tape: Option<Arc<Tape>>,
    pub(super) clock: Arc<dyn Clock>,
}

/// Why there is no judgement.
pub(super) struct NoJudgement(pub(super) String);

impl Judge {
    /// Judges the texts of a turn that the assertion is about. It holds when the best of them reaches the threshold.
    pub(super) async fn judge(
        &self,
        question: Question,
        wanted: &JudgedTextExpectation,
        seen: &Seen,
        from: usize,
        key: &str,
    ) -> Result<Verdict, NoJudgement> {
        let about = |(at, bot): &(usize, &BotMessage)| {
            let named = wanted.utter_name.as_deref().is_none_or(|name| bot.utter_action.as_deref() == Some(name));
            let source = wanted.utter_source.as_deref();
            let said_by = source.is_none_or(|source| {
                bot.utter_source.as_deref() == Some(source) || seen.source(*at).as_deref() == Some(source)
            });
            // Only what was generated is judged, unless the author says whose words are meant.
            let meant = wanted.utter_name.is_some() || source.is_some() || is_generated(bot);
            *at >= from && named && said_by && meant && bot.reply.text.is_some()
        };
        let texts: Vec<(usize, &BotMessage)> = seen.messages().filter(about).collect();
        if texts.is_empty() {
            let lines = seen.messages().map(|(_, bot)| cut(&bot_line(bot))).collect();
            return Ok(Verdict::Missed { expected: vec![format!("a generated text{}", of(wanted))], seen: lines });
        }
        let mut scores = Vec::new();
        for (number, (at, bot)) in texts.into_iter().enumerate() {
            let key = StepKey::new(format!("judge/{key}/{number}"));
            let score = self.score(question, wanted, seen, bot, &key).await?;
            if score >= wanted.threshold {
                return Ok(Verdict::Held(Some(at)));
            }
            scores.push(format!("{score:.2} for {}", cut(&bot_line(bot))));
        }
        let word = if question == Question::Relevant { "relevant" } else { "grounded" };
        let expected = vec![format!("a text{} that is {word}: at least {:.2}", of(wanted), wanted.threshold)];
        Ok(Verdict::Missed { expected, seen: scores })
    }

    async fn score(
        &self,
        question: Question,
        wanted: &JudgedTextExpectation,
        seen: &Seen,
        bot: &BotMessage,
        key: &StepKey,
    ) -> Result<f64, NoJudgement> {
        let template = match question {
            Question::Relevant => &self.prompts.judge_relevant,
            Question::Grounded => &self.prompts.judge_grounded,
        };
        let truth = match &wanted.ground_truth {
            Some(truth) => truth.to_string(),
            None if question == Question::Grounded => ground(bot, seen).ok_or_else(|| {
                NoJudgement("nothing says what the text was made from; give the assertion a `ground_truth`".to_owned())
            })?,
            None => String::new(),
        };
        let context = context! { answer => bot.reply.text.as_deref().unwrap_or_default(), message => &*seen.user, truth => truth };
        let prompt = self.prompts.render(template, context).map_err(|error| NoJudgement(error.to_string()))?;
        let mut request = ChatRequest::new(Purpose::JUDGE, vec![ChatMessage::user(prompt)]);
        request.temperature = Some(0.0);
        let answer = self.ask(request, key).await?;
        let score = match question {
            Question::Relevant => relevance(&answer),
            Question::Grounded => groundedness(&answer),
        };
        score.ok_or_else(|| {
            NoJudgement(format!("the judge answered something else than was asked for: {}", cut(&answer)))
        })
    }

    /// Asks the judge, or the recording.
    async fn ask(&self, request: ChatRequest, key: &StepKey) -> Result<String, NoJudgement> {
        let hash = request.hash().to_string();
        match self.tape.as_ref().map(|tape| tape.ask(key, "judge", &hash)) {
            Some(Played::Answer(outcome)) => {
                return serde_json::from_str(&outcome).map_err(|error| NoJudgement(error.to_string()));
            }
            Some(Played::Missing) => {
                return Err(NoJudgement("the recording holds no judgement of this text".to_owned()));
            }
            Some(Played::Ask) | None => {}
        }
        let Some(llm) = &self.llm else { return Err(NoJudgement("there is no model to judge".to_owned())) };
        let cx = CallContext::new(self.clock.clone(), limits::TURN_TIMEOUT.max(Duration::from_secs(1)));
        let stream = llm.chat(request, &cx).await.map_err(|error| NoJudgement(error.to_string()))?;
        let answer = stream.finish().await.map_err(|error| NoJudgement(error.to_string()))?;
        if let Some(tape) = &self.tape {
            tape.keep(key, &Json::from(&*answer.text).to_string());
        }
        Ok(answer.text.to_string())
    }
}

/// Whether a model wrote the message or its last form: then it says which component had it written.
fn is_generated(bot: &BotMessage) -> bool {
    bot.utter_source.is_some()
}

/// What a generated text was made from: passages that were found, else what tools answered in the turn.
fn ground(bot: &BotMessage, seen: &Seen) -> Option<String> {
    let text = |passage: &Json| passage.as_str().or_else(|| passage.get("text")?.as_str()).map(str::to_owned);
    let mut found: Vec<String> = bot.search_results.iter().filter_map(text).collect();
    if found.is_empty() {
        found.extend(seen.events.iter().filter_map(|event| match &event.kind {
            EventKind::ToolExecuted { summary: Some(summary), status, .. } if status == "done" => Some(summary.clone()),
            _ => None,
        }));
    }
    (!found.is_empty()).then(|| found.join("\n"))
}

fn of(wanted: &JudgedTextExpectation) -> String {
    let name = wanted.utter_name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
    let source = wanted.utter_source.as_ref().map(|source| format!(" of {source}")).unwrap_or_default();
    format!("{name}{source}")
}

/// Supported statements among all; an answer that states nothing has nothing that lacks a ground.
fn groundedness(answer: &str) -> Option<f64> {
    #[derive(Deserialize)]
    struct Statements {
        statements: Vec<Statement>,
    }
    #[derive(Deserialize)]
    struct Statement {
        supported: bool,
    }
    let Statements { statements } = json(answer)?;
    if statements.is_empty() {
        return Some(1.0);
    }
    let supported = statements.iter().filter(|statement| statement.supported).count();
    Some(supported as f64 / statements.len() as f64)
}

/// The mean closeness of the questions.
fn relevance(answer: &str) -> Option<f64> {
    #[derive(Deserialize)]
    struct Questions {
        questions: Vec<Compared>,
    }
    #[derive(Deserialize)]
    struct Compared {
        closeness: f64,
    }
    let Questions { questions } = json(answer)?;
    let sum: f64 = questions.iter().map(|question| question.closeness.clamp(0.0, 1.0)).sum();
    (!questions.is_empty()).then(|| sum / questions.len() as f64)
}

/// The JSON object of an answer; models like to put words or fences around it.
fn json<T: serde::de::DeserializeOwned>(answer: &str) -> Option<T> {
    let (begin, end) = (answer.find('{')?, answer.rfind('}')?);
    serde_json::from_str(answer.get(begin..=end)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_read_out_of_what_judges_write() {
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

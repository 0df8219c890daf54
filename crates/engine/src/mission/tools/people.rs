//! `ask`: questions to people.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use super::{Caller, Then, ToolAnswer, ToolContext, ToolError, number, text};
use crate::{
    limits::MISSION_QUESTION_SECONDS,
    mission::{
        event::{ChosenBy, ChosenTarget, NewEvent, PersonQuestion, RunEventKind},
        routes, scheduler,
        state::HumanInput,
        unit::UnitView,
    },
    project::missions::{QuestionsDef, RouteTarget},
    text::escape_hidden,
};

pub(super) fn ask(arguments: &Map<String, Json>, cx: &ToolContext<'_>) -> Result<ToolAnswer, ToolError> {
    let question: Arc<str> = text(arguments, "question").unwrap_or_default().trim().into();
    if question.is_empty() {
        return Err(ToolError::new("ask.empty", "The question is empty.", "Write a question."));
    }
    let question_id = cx.id();
    if let Some(known) = cx.unit.run.human_inputs.get(&question_id) {
        // The call runs again after a crash: the same question stays open, and an answer that came meanwhile is used.
        return Ok(match known.open {
            true => ToolAnswer::later(Then::AskPerson { question_id }, Vec::new()),
            false => ToolAnswer::of(answer(known)),
        });
    }
    let choices = arguments.get("choices").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    let choices: Vec<Arc<str>> = choices.iter().filter_map(Json::as_str).map(Arc::from).collect();
    let declared = &cx.unit.task.questions;
    let timeout_seconds = time_limit(arguments, declared)?;
    let own_default = own_default(arguments, declared)?;
    let question = PersonQuestion {
        question,
        default_of_asker: own_default.is_some(),
        // A declared default belongs to a time limit; a question without one waits as long as it takes.
        default: own_default.or_else(|| declared.default.clone().filter(|_| timeout_seconds.is_some())),
        short_summary: text(arguments, "short_summary").map(Arc::from),
        additional_context: text(arguments, "additional_context").map(Arc::from),
        agent: match &cx.caller {
            Caller::Commander => None,
            Caller::Agent(name) => Some(name.clone()),
        },
        multi_select: !choices.is_empty() && arguments.get("multi_select") == Some(&Json::Bool(true)),
        choices,
        timeout_seconds,
        confirms: None,
    };
    check_default(&question)?;
    let event = requested(&question_id, question, cx);
    Ok(ToolAnswer::later(Then::AskPerson { question_id }, vec![event]))
}

/// How long a question waits. What the mission declares holds: a model that asks for a permission must not shorten the time until silence
/// counts as it wants.
fn time_limit(arguments: &Map<String, Json>, declared: &QuestionsDef) -> Result<Option<u64>, ToolError> {
    let is_valid = |seconds: &u64| (1..=MISSION_QUESTION_SECONDS).contains(seconds);
    let own = number(arguments, "timeout_seconds").filter(is_valid);
    if arguments.contains_key("timeout_seconds") && own.is_none() {
        let message = format!("`timeout_seconds` is a whole number from 1 to {MISSION_QUESTION_SECONDS}.");
        let hint = "Correct it, or leave it out: then the question waits as the mission declares.";
        return Err(ToolError::new("args.invalid", message, hint));
    }
    Ok(declared.timeout_seconds.or(own.filter(|_| declared.default.is_none())))
}

/// The answer that a model assumes if nobody answers. Where the mission declares what silence means, a model must not decide it: it would
/// answer its own question.
fn own_default(arguments: &Map<String, Json>, declared: &QuestionsDef) -> Result<Option<Arc<str>>, ToolError> {
    let own = text(arguments, "default").map(Arc::from);
    if own.is_none() || (declared.timeout_seconds.is_none() && declared.default.is_none()) || own == declared.default {
        return Ok(own.filter(|_| declared.default.is_none()));
    }
    let message = "`default` cannot be set: the mission declares what holds if nobody answers.";
    Err(ToolError::new("args.invalid", message, "Call again without `default`."))
}

/// The question whether an agent may make a call that needs a confirmation. It has no default answer, and no route follows if nobody
/// answers: silence is no consent.
pub fn confirm(tool: &str, arguments: &Json, cx: &ToolContext<'_>) -> ToolAnswer {
    let question_id = cx.id();
    if cx.unit.run.human_inputs.contains_key(&question_id) {
        return ToolAnswer::later(Then::AskPerson { question_id }, Vec::new());
    }
    let agent = match &cx.caller {
        Caller::Commander => None,
        Caller::Agent(name) => Some(name.clone()),
    };
    let who = agent.as_ref().map_or_else(|| "the commander".to_owned(), |agent| format!("the agent `{agent}`"));
    let question = PersonQuestion {
        question: format!("May {who} call `{tool}` with {}?", escape_hidden(&arguments.to_string())).into(),
        short_summary: Some(format!("May {who} call `{tool}`?").into()),
        agent,
        choices: CONSENT.iter().map(|choice| (*choice).into()).collect(),
        timeout_seconds: cx.unit.task.questions.timeout_seconds,
        confirms: Some(tool.into()),
        ..PersonQuestion::default()
    };
    let event = requested(&question_id, question, cx);
    ToolAnswer::later(Then::AskPerson { question_id }, vec![event])
}

/// The choices of a confirmation; the first one is consent.
const CONSENT: [&str; 2] = ["yes", "no"];

/// Whether a person has agreed to the call of a confirmation.
pub fn is_consent(input: &HumanInput) -> bool {
    input.question.confirms.is_some() && !input.open && input.answer.as_deref() == CONSENT.first().copied()
}

fn check_default(question: &PersonQuestion) -> Result<(), ToolError> {
    let invalid = |problem: String| {
        let hint = "Correct `default`, or leave it out: then nobody's answer is assumed.";
        Err(ToolError::new("args.invalid", problem, hint))
    };
    match (&question.default, question.timeout_seconds) {
        (None, _) => Ok(()),
        (Some(_), None) => invalid("`default` needs `timeout_seconds`.".into()),
        (Some(default), Some(_)) => match check_answer(question, default) {
            Ok(_) => Ok(()),
            Err(reason) => invalid(format!("`default` is no answer: {reason}.")),
        },
    }
}

/// The events of a question whose time is over: it is closed, and if it has no default answer and the task has a route for this case, the
/// task ends with that route. Then its other questions are closed too, and its agents, which wait for answers, are cancelled.
pub fn timed_out(unit: &UnitView<'_>, question_id: &Arc<str>) -> Vec<NewEvent> {
    let Some(input) = unit.run.human_inputs.get(question_id) else { return Vec::new() };
    let closed = |question_id: &Arc<str>, timed_out| {
        let question_id = question_id.clone();
        let kind = RunEventKind::HumanInputResolved { question_id, answer: None, timed_out, responder: None };
        NewEvent::of_unit(unit.id, kind)
    };
    let mut events = vec![closed(question_id, true)];
    let route = routes::without_answer(unit.task)
        .filter(|_| input.question.default.is_none() && input.question.confirms.is_none());
    if let Some(RouteTarget::Task(target)) = route.map(|route| &route.target) {
        let chosen = RunEventKind::RouteChosen {
            target: ChosenTarget::Task(target.clone()),
            by: ChosenBy::NoAnswer,
            condition: "no_answer".into(),
            values: json!({"question": &*input.question.question}),
        };
        let summary = format!("Nobody answered in time: {}", input.question.question).into();
        let inputs = unit.run.human_inputs.iter();
        let others = inputs.filter(|(id, other)| *id != question_id && other.open && other.unit == *unit.id);
        events.extend(others.map(|(id, _)| closed(id, false)));
        events.extend(scheduler::agents_cancelled(unit.run, unit.id));
        events.push(NewEvent::of_unit(unit.id, chosen));
        events.push(NewEvent::of_unit(unit.id, RunEventKind::TaskCompleted { summary }));
    }
    events
}

fn requested(question_id: &Arc<str>, question: PersonQuestion, cx: &ToolContext<'_>) -> NewEvent {
    cx.event(RunEventKind::HumanInputRequested { question_id: question_id.clone(), question })
}

/// The questions of a blocked task: their ids and events.
pub(super) fn questions(questions: &[&str], cx: &ToolContext<'_>) -> (Vec<Arc<str>>, Vec<NewEvent>) {
    let (mut ids, mut events) = (Vec::new(), Vec::new());
    let declared = &cx.unit.task.questions;
    for (number, question) in (1..).zip(questions) {
        let id: Arc<str> = format!("{}/{number}", cx.id()).into();
        let question = PersonQuestion {
            question: (*question).into(),
            timeout_seconds: declared.timeout_seconds,
            default: declared.default.clone().filter(|_| declared.timeout_seconds.is_some()),
            ..PersonQuestion::default()
        };
        events.push(requested(&id, question, cx));
        ids.push(id);
    }
    (ids, events)
}

/// Checks the answer of a person, and returns it in the form in which the model reads it: one of the choices, for several choices a JSON
/// list of them, otherwise any text. Choices can be named by their number, from 1, and whatever the case of letters.
///
/// # Errors
/// Why it is no answer, as a sentence for the person.
pub fn check_answer(question: &PersonQuestion, answer: &str) -> Result<Arc<str>, String> {
    let answer = answer.trim();
    if answer.is_empty() {
        return Err("the answer is empty".into());
    }
    if question.choices.is_empty() {
        return Ok(answer.into());
    }
    let choice = |named: &str| {
        let named = named.trim();
        let exact = question.choices.iter().find(|choice| &***choice == named);
        let similar = || question.choices.iter().find(|choice| choice.to_lowercase() == named.to_lowercase());
        let numbered = || named.parse::<usize>().ok()?.checked_sub(1).and_then(|index| question.choices.get(index));
        exact.or_else(similar).or_else(numbered).cloned().ok_or_else(|| {
            let choices: Vec<&str> = question.choices.iter().map(|choice| &**choice).collect();
            format!("`{named}` is none of the choices: {}", choices.join(", "))
        })
    };
    if !question.multi_select {
        return choice(answer);
    }
    let named: Vec<String> = match serde_json::from_str(answer) {
        Ok(Json::Array(values)) => {
            values.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect()
        }
        _ => answer.split(',').map(str::to_owned).collect(),
    };
    let chosen: Vec<Arc<str>> = named.iter().map(|named| choice(named)).collect::<Result<_, _>>()?;
    Ok(json!(chosen).to_string().into())
}

/// The result of `ask` when the question is closed: the answer, for several choices a JSON list, or why there is none.
pub fn answer(input: &HumanInput) -> Json {
    match &input.answer {
        Some(answer) => json!(&**answer),
        None if input.timed_out => {
            let seconds = input.question.timeout_seconds.unwrap_or(0);
            if let Some(default) = &input.question.default {
                let whose = match input.question.default_of_asker {
                    true => "the default that was set with the question counts",
                    false => "the default that the mission declares counts",
                };
                let message = format!("No person answered within {seconds} seconds; {whose}.");
                return json!({"status": "ok", "answer": &**default, "default": true, "message": message});
            }
            let message = format!("No person answered within {seconds} seconds.");
            ToolError::new("ask.timeout", message, "Do not assume an answer.").json(None)
        }
        None => {
            ToolError::new("ask.cancelled", "The question was closed without an answer.", "Do not assume an answer.")
                .json(None)
        }
    }
}

/// The result of `ask` where no person can be reached.
pub fn unavailable() -> Json {
    ToolError::new("ask.unavailable", "No person can be asked in this run.", "Do not assume an answer.").json(None)
}

//! The commanders' `ask_commander`, `list_commander_questions`, `get_commander_answer`.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use super::{Then, ToolAnswer, ToolContext, ToolError, number, text};
use crate::mission::{
    event::{CommanderAnswer, NewEvent, RunEventKind},
    graph,
    state::{CommanderQuestion, RunState, TaskState, TaskStatus},
    unit::{UnitId, UnitView},
};

/// Questions that one commander may put to others.
pub const MOST_QUESTIONS: usize = 20;

/// The completed tasks before the task of a unit, in topological order.
pub fn ancestors(unit: &UnitView<'_>) -> Vec<Arc<str>> {
    let mut tasks = graph::ancestors(unit.def, unit.run, &unit.id.task);
    tasks.retain(|task| unit.run.task_status(task) == TaskStatus::Completed);
    tasks
}

/// A task before this one.
fn ancestor<'a>(name: &str, cx: &ToolContext<'a>) -> Result<&'a TaskState, ToolError> {
    let ancestors = ancestors(&cx.unit);
    if let (true, Some(task)) = (ancestors.iter().any(|task| &**task == name), cx.unit.run.tasks.get(name)) {
        return Ok(task);
    }
    let names: Vec<&str> = ancestors.iter().map(|task| &**task).collect();
    let message = format!("`{name}` is not a completed task before this one.");
    Err(ToolError::new("ask.not_ancestor", message, "Use one of the tasks listed.").with("allowed", json!(names)))
}

pub(super) fn ask(arguments: &Map<String, Json>, cx: &ToolContext<'_>) -> Result<ToolAnswer, ToolError> {
    let name = text(arguments, "task_name").unwrap_or_default();
    let task = ancestor(name, cx)?;
    let index = number(arguments, "index").map(|index| u32::try_from(index).unwrap_or(u32::MAX));
    let unit = commander(name, task, index)?;
    let question: Arc<str> = text(arguments, "question").unwrap_or_default().trim().into();
    if question.is_empty() {
        return Err(ToolError::new("args.invalid", "The question is empty.", "Write a question."));
    }
    let question_id = cx.id();
    if let Some(known) = cx.unit.run.commander_questions.iter().find(|known| known.id == question_id) {
        // The call runs again after a crash.
        return Ok(match &known.answer {
            Some(answer) => ToolAnswer::of(answer_text(answer)),
            None => ToolAnswer::later(Then::AskCommander { question_id, unit, question }, Vec::new()),
        });
    }
    let is_own =
        |asked: &&CommanderQuestion| asked.asked_by == cx.unit.id.task && asked.asked_by_item == cx.unit.id.iteration;
    if cx.unit.run.commander_questions.iter().filter(is_own).count() >= MOST_QUESTIONS {
        let message = format!("{MOST_QUESTIONS} questions were asked already.");
        return Err(ToolError::new("ask.limit", message, "Go on with the answers you have."));
    }
    let event = cx.event(RunEventKind::CommanderQuestionAsked {
        question_id: question_id.clone(),
        target: unit.task.clone(),
        index: unit.iteration,
        question: question.clone(),
    });
    Ok(ToolAnswer::later(Then::AskCommander { question_id, unit, question }, vec![event]))
}

/// The unit of the commander that is asked.
fn commander(name: &str, task: &TaskState, index: Option<u32>) -> Result<UnitId, ToolError> {
    let total = task.total_items.unwrap_or(0);
    let range = || match total {
        0 => "The task had no items.".to_owned(),
        total => format!("The indices are 0 to {}.", total.saturating_sub(1)),
    };
    let unknown = |index: u32| {
        let message = format!("Item {index} of the task `{name}` has no commander that can be asked.");
        ToolError::new("ask.index_unknown", message, range())
    };
    if let Some(unit) = &task.unit {
        // One commander for the whole task, whatever the item.
        let is_known = index.is_none_or(|index| index == 0 || index < total);
        return match index {
            Some(index) if !is_known => Err(unknown(index)),
            _ => Ok(UnitId::task(name, unit.attempt).in_round(task.round())),
        };
    }
    let Some(index) = index else {
        let message = format!("The task `{name}` has a commander for each item.");
        return Err(ToolError::new("ask.index_required", message, format!("Call again with `index`. {}", range())));
    };
    let item = task.items.get(&index).filter(|item| item.status == TaskStatus::Completed);
    let attempt = item.and_then(|item| item.unit.as_ref()).map(|unit| unit.attempt);
    attempt.map(|attempt| UnitId::item(name, index, attempt).in_round(task.round())).ok_or_else(|| unknown(index))
}

/// The result of `ask_commander` when the clone has answered or failed.
pub fn answered(unit: &UnitId, question_id: &Arc<str>, answer: CommanderAnswer) -> ToolAnswer {
    let result = answer_text(&answer);
    let event = RunEventKind::CommanderQuestionAnswered { question_id: question_id.clone(), answer };
    ToolAnswer { events: vec![NewEvent::of_unit(unit, event)], ..ToolAnswer::of(result) }
}

/// What the model reads of an answer.
pub fn answer_text(answer: &CommanderAnswer) -> Json {
    match answer {
        CommanderAnswer::Answer(text) => json!(&**text),
        CommanderAnswer::Error(reason) => {
            let message = format!("The question was not answered: {reason}");
            ToolError::new("ask.failed", message, "Ask again, or go on without the answer.").json(None)
        }
    }
}

/// Why a question will never be answered: the unit that asked it has ended.
pub fn lost(run: &RunState, question: &CommanderQuestion) -> Option<CommanderAnswer> {
    let asker = question.asker();
    let unit = run.tasks.get(&asker.task).and_then(|task| task.unit(&asker));
    let is_open = unit.is_some_and(|unit| unit.status.is_open());
    (!is_open).then(|| CommanderAnswer::Error("the commander that asked it ended before the answer came".into()))
}

/// The questions to a task, in the order in which they were asked. All of them, or those to one item.
fn questions<'a>(arguments: &Map<String, Json>, cx: &ToolContext<'a>) -> Result<Vec<&'a CommanderQuestion>, ToolError> {
    let name = text(arguments, "task_name").unwrap_or_default();
    ancestor(name, cx)?;
    let item = number(arguments, "iteration");
    let is_meant = |asked: &&CommanderQuestion| {
        &*asked.target == name && item.is_none_or(|item| asked.index.map(u64::from) == Some(item))
    };
    Ok(cx.unit.run.commander_questions.iter().filter(is_meant).collect())
}

pub(super) fn list(arguments: &Map<String, Json>, cx: &ToolContext<'_>) -> Result<ToolAnswer, ToolError> {
    let questions = questions(arguments, cx)?;
    if questions.is_empty() {
        return Ok(ToolAnswer::of(json!("No questions were asked yet.")));
    }
    let line = |(number, asked): (usize, &&CommanderQuestion)| {
        let question = json!(&*asked.question);
        match asked.index {
            Some(index) => format!("{number} (item {index}): {question}"),
            None => format!("{number}: {question}"),
        }
    };
    let lines: Vec<String> = questions.iter().enumerate().map(line).collect();
    Ok(ToolAnswer::of(json!(lines.join("\n"))))
}

pub(super) fn get(arguments: &Map<String, Json>, cx: &ToolContext<'_>) -> Result<ToolAnswer, ToolError> {
    let questions = questions(arguments, cx)?;
    let index = number(arguments, "index").unwrap_or(0);
    let found = usize::try_from(index).ok().and_then(|index| questions.get(index));
    let Some(found) = found else {
        let hint = match questions.len() {
            0 => "No questions were asked yet.".to_owned(),
            count => format!("The numbers are 0 to {}.", count.saturating_sub(1)),
        };
        return Err(ToolError::new("ask.index_unknown", format!("There is no question {index}."), hint));
    };
    Ok(match found.answer.clone().or_else(|| lost(cx.unit.run, found)) {
        Some(answer) => ToolAnswer::of(answer_text(&answer)),
        None => ToolAnswer::later(Then::AwaitCommanderAnswer { question_id: found.id.clone() }, Vec::new()),
    })
}

//! The rounds of a repeated task: what follows a round, and what the next one is told about those before.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value as Json, json};

use super::{
    budget,
    event::{IssueSeverity, RunEventKind},
    learnings::Learnings,
    routes,
    state::{RoundState, RunState},
};
use crate::{
    limits::{MISSION_ROUND_CHARS, MISSION_ROUNDS_SHOWN},
    project::missions::{OnExhausted, RepeatDef, TaskDef},
    template::{TemplateEngine, TemplateError},
    text::{ELLIPSIS, TextLimit, truncate},
};

/// The code of a task whose condition does not hold after its last round.
pub const CODE_EXHAUSTED: &str = "repeat.exhausted";
/// The code of a task whose condition cannot be evaluated.
pub const CODE_CONDITION: &str = "repeat.condition";
/// The category of the warning about a task that is completed although its condition does not hold.
const CATEGORY_EXHAUSTED: &str = "repeat_exhausted";

/// What follows a round that succeeded.
#[derive(Clone, Debug, PartialEq)]
pub enum RoundEnd {
    /// The task is completed, after this event if there is one.
    Complete(Option<RunEventKind>),
    /// The next round, after this event.
    Next(RunEventKind),
    /// The task fails.
    Failed {
        /// The code of the reason.
        code: &'static str,
        /// Why.
        error: String,
    },
}

/// Decides what follows a round. `output` is what a condition reads: that of the task, or the list of the items' outputs.
///
/// # Errors
/// The condition cannot be evaluated.
pub fn after(
    task: &TaskDef,
    run: &RunState,
    output: &Json,
    summary: &str,
    learnings: Option<&Learnings>,
    engine: &TemplateEngine,
) -> Result<RoundEnd, TemplateError> {
    let Some(repeat) = &task.repeat else { return Ok(RoundEnd::Complete(None)) };
    let (holds, values) = routes::evaluate(&repeat.until, output, &run.inputs, summary, engine)?;
    if holds {
        return Ok(RoundEnd::Complete(None));
    }
    let round = run.tasks.get(&task.name).map_or(1, super::state::TaskState::round);
    let until: Arc<str> = repeat.until.source().text().into();
    let is_cut = run.must_finish(&task.name);
    if round < repeat.max && !is_cut {
        let (summary, learnings) = (summary.into(), learnings.cloned());
        return Ok(RoundEnd::Next(RunEventKind::TaskRoundCompleted { summary, until, values, learnings }));
    }
    let (code, reason) = match is_cut {
        true => (budget::CODE_EXCEEDED, format!("the budget was used up after round {round}")),
        false => (CODE_EXHAUSTED, format!("round {round} was the last one")),
    };
    let error = format!("{reason}, and `{until}` does not hold; it read {values}");
    Ok(match repeat.on_exhausted {
        OnExhausted::Fail => RoundEnd::Failed { code, error },
        OnExhausted::Continue => RoundEnd::Complete(Some(RunEventKind::MissionIssue {
            severity: IssueSeverity::Warning,
            category: CATEGORY_EXHAUSTED.into(),
            message: error.into(),
            details: json!({"round": round, "until": &*until, "values": values}),
        })),
    })
}

/// The present round, for the prompt of a commander.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RoundContext {
    /// Its number, from 1.
    pub number: u32,
    /// The maximum number of rounds.
    pub max: u32,
    /// The condition that ends the repetition.
    pub until: Arc<str>,
    /// The rounds before, the earliest first; at most [`MISSION_ROUNDS_SHOWN`].
    pub earlier: Vec<EarlierRound>,
    /// What the rounds before learned, one entry each.
    pub learned: Vec<String>,
}

/// An earlier round, for the prompt of a commander.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EarlierRound {
    /// Its number, from 1.
    pub number: u32,
    /// What its commander reported, or that of the item.
    pub summary: String,
    /// Its output, or that of the item, as JSON; empty if it has none.
    pub output: String,
    /// The values of the condition that did not hold, as JSON.
    pub values: String,
}

/// The present round of a task as the prompt of a commander shows it; `None` if the task is not repeated. `item`: the item of a parallel
/// iteration.
pub fn context(task: &TaskDef, run: &RunState, item: Option<u32>) -> Option<RoundContext> {
    let RepeatDef { until, max, .. } = task.repeat.as_ref()?;
    let state = run.tasks.get(&task.name)?;
    let skipped = state.rounds.len().saturating_sub(MISSION_ROUNDS_SHOWN);
    let earlier = (1..).zip(&state.rounds).skip(skipped).map(|(number, round)| earlier(number, round, item));
    Some(RoundContext {
        number: state.round(),
        max: *max,
        until: until.source().text().into(),
        earlier: earlier.collect(),
        learned: learned(&state.learnings),
    })
}

/// What was learned, one entry each.
pub fn learned(learnings: &Learnings) -> Vec<String> {
    let insights = learnings.key_insights.iter().map(ToString::to_string);
    let failures = learnings.failures.iter().map(|failure| match &*failure.solution {
        "" => failure.problem.to_string(),
        solution => format!("{}: {solution}", failure.problem),
    });
    let advice = Some(&learnings.recommendations).filter(|advice| !advice.is_empty()).map(ToString::to_string);
    insights.chain(failures).chain(advice).collect()
}

fn earlier(number: u32, round: &RoundState, item: Option<u32>) -> EarlierRound {
    let short = |text: &str| truncate(text, TextLimit::Chars(MISSION_ROUND_CHARS), ELLIPSIS).into_owned();
    let json = |value: Json| if value.is_null() { String::new() } else { short(&value.to_string()) };
    let of_item = item.and_then(|index| round.items.get(&index));
    let (summary, output) = match (of_item, round.items.is_empty()) {
        (Some(item), _) => (&item.summary, item.output.clone().unwrap_or_default()),
        (None, true) => (&round.summary, round.output.clone().unwrap_or_default()),
        (None, false) => {
            (&round.summary, round.items.values().map(|item| item.output.clone().unwrap_or_default()).collect())
        }
    };
    EarlierRound { number, summary: short(summary), output: json(output), values: json(round.values.clone()) }
}

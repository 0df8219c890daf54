//! `segue mission list` and `segue mission show`.

use std::{
    io::{self, IsTerminal},
    sync::Arc,
};

use segue::{missions::RunReport, store::runs::RunFilter};
use serde_json::{Map, Value as Json, json};

use super::{List, Show, one, open, progress};
use crate::cli::{CommandResult, EXIT_FINDINGS, output};

/// Runs that `list` shows.
const MOST_LISTED: usize = 100;

pub(super) async fn list(args: List) -> CommandResult {
    let Some((engine, _, _)) = open(&args.project, args.store.as_deref(), true)? else { return Ok(EXIT_FINDINGS) };
    let filter = RunFilter { mission: args.mission.map(Arc::from), ..RunFilter::default() };
    for run in engine.runs(filter, MOST_LISTED).await? {
        output::println(&match io::stdout().is_terminal() {
            true => format!("{}  {}  {}", run.id, run.status, run.mission),
            false => serde_json::to_string(&run)?,
        })?;
    }
    Ok(0)
}

pub(super) async fn show(args: Show) -> CommandResult {
    let Some((engine, run)) = one(&args.run)? else { return Ok(EXIT_FINDINGS) };
    let report = engine.status(&run).await?;
    if args.events {
        let mut after = 0;
        loop {
            let events = engine.events(&run, after).await?;
            let Some(last) = events.last() else { return Ok(0) };
            after = last.sequence;
            for event in &events {
                output::println(&serde_json::to_string(event)?)?;
            }
        }
    }
    match io::stdout().is_terminal() {
        true => output::println(&progress::overview(&report.state))?,
        false => output::println(&describe(&report).to_string())?,
    }
    Ok(0)
}

/// A run as one JSON object.
fn describe(report: &RunReport) -> Json {
    let state = &report.state;
    let tasks: Map<String, Json> = state
        .tasks
        .iter()
        .map(|(name, task)| {
            let state = task;
            let mut task =
                json!({"status": task.status, "summary": task.summary, "output": task.output, "error": task.error});
            if let Some(task) = task.as_object_mut() {
                task.extend((state.round() > 1).then(|| ("round".to_owned(), json!(state.round()))));
                task.extend(state.copied_from.as_ref().map(|run| ("copied_from".to_owned(), json!(&**run))));
            }
            (name.to_string(), task)
        })
        .collect();
    let questions: Vec<Json> = state
        .human_inputs
        .iter()
        .filter(|(_, input)| input.open)
        .map(|(id, input)| json!({"id": &**id, "question": input.question}))
        .collect();
    json!({
        "run": report.stored.summary.id,
        "mission": &*report.stored.summary.mission,
        "status": report.stored.summary.status,
        "chain": &*state.chain_id,
        "previous": state.previous,
        "rerun_of": state.rerun_of,
        "next": state.follow_ups.iter().map(|next| json!({"run": &*next.run, "mission": &*next.mission})).collect::<Vec<_>>(),
        "tasks": tasks,
        "questions": questions,
        "usage": state.usage,
    })
}

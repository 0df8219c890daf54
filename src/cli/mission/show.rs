//! `segue mission list` and `segue mission show`.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal},
    sync::Arc,
};

use segue::{
    clock::{Clock, SystemClock},
    ids::RunId,
    missions::{FollowEnd, MissionError, RunControl, RunEnd, RunReport},
    store::runs::{RunFilter, RunStoreError, RunSummary},
};
use segue_engine::mission::state::{RunState, TaskStatus};
use serde_json::{Map, Value as Json, json};

use super::{
    List, Show,
    drive::stop_on_signals,
    open_control,
    progress::{self, Progress},
    tree,
};
use crate::cli::{CommandResult, EXIT_ERROR, EXIT_FINDINGS, output};

pub(super) async fn list(args: List) -> CommandResult {
    let Some(control) = open_control(&args.project, args.store.as_deref(), false)? else { return Ok(EXIT_FINDINGS) };
    let filter = RunFilter { mission: args.mission.map(Arc::from), ..RunFilter::default() };
    let runs = control.runs(filter, args.limit).await?;
    let is_terminal = io::stdout().is_terminal();
    let mut rows = Vec::new();
    for run in runs {
        let state = read(&control, &run.id).await?;
        match is_terminal {
            true => rows.push(Row::new(&run, &state)),
            false => output::println(&summary_json(&run, &state)?.to_string())?,
        }
    }
    match is_terminal {
        true if rows.is_empty() => output::status("the store holds no run; `segue mission run` starts one"),
        true => output::print(&table(&rows))?,
        false => {}
    }
    Ok(0)
}

/// The state of a run, or why it cannot be read.
async fn read(control: &RunControl, run: &RunId) -> Result<Result<RunState, String>, MissionError> {
    match control.status(run).await {
        Ok(report) => Ok(Ok(report.state)),
        Err(MissionError::Unreadable { reason, .. } | MissionError::Store(RunStoreError::Corrupt { reason, .. })) => {
            Ok(Err(reason))
        }
        Err(error) => Err(error),
    }
}

fn completed_tasks(state: &RunState) -> usize {
    state.tasks.values().filter(|task| task.status == TaskStatus::Completed).count()
}

fn summary_json(run: &RunSummary, state: &Result<RunState, String>) -> serde_json::Result<Json> {
    let mut row = serde_json::to_value(run)?;
    if let Json::Object(row) = &mut row {
        match state {
            Ok(state) => {
                row.insert("tasks".into(), json!({"completed": completed_tasks(state), "total": state.task_count}));
                row.insert("usage".into(), json!(state.usage));
            }
            Err(reason) => {
                row.insert("unreadable".into(), json!(reason));
            }
        }
    }
    Ok(row)
}

/// A line of the list for people.
struct Row {
    id: String,
    status: String,
    mission: String,
    started: String,
    took: String,
    tasks: String,
    cost: String,
}

impl Row {
    fn new(run: &RunSummary, state: &Result<RunState, String>) -> Self {
        let now = SystemClock.now();
        let seconds = |from: segue::Timestamp, to: segue::Timestamp| to.since(from).max(0) / 1_000_000;
        let (tasks, cost) = match state {
            Ok(state) => (format!("{}/{}", completed_tasks(state), state.task_count), cost(state)),
            Err(_) => ("?".to_owned(), "?".to_owned()),
        };
        Self {
            id: output::single_line(run.id.as_str()),
            status: run.status.to_string(),
            mission: output::single_line(&run.mission),
            started: format!("{} ago", output::format_age(seconds(run.started_at, now))),
            took: output::format_age(seconds(run.started_at, run.ended_at.unwrap_or(now))),
            tasks,
            cost,
        }
    }

    fn columns(&self) -> [&str; 7] {
        [&self.id, &self.status, &self.mission, &self.started, &self.took, &self.tasks, &self.cost]
    }
}

/// The money that a run cost if the prices of its models are known, else its tokens.
fn cost(state: &RunState) -> String {
    let usage = &state.usage.usage;
    match usage.cost {
        Some(cost) => format!("{cost:.4}"),
        None => format!("{} tokens", usage.input.saturating_add(usage.output)),
    }
}

/// The list as aligned columns.
fn table(rows: &[Row]) -> String {
    let head = ["run", "status", "mission", "started", "took", "tasks", "cost"];
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.columns().get(column).map(|cell| cell.chars().count()));
        cells.chain(head.get(column).map(|cell| cell.len())).max().unwrap_or(0)
    };
    let mut text = String::new();
    for cells in std::iter::once(head).chain(rows.iter().map(Row::columns)) {
        let line: Vec<String> =
            cells.iter().enumerate().map(|(column, cell)| format!("{cell:<width$}", width = width(column))).collect();
        let _ = writeln!(text, "{}", line.join("  ").trim_end());
    }
    text
}

pub(super) async fn show(args: Show) -> CommandResult {
    let Some(control) = open_control(&args.run.project, args.run.store.as_deref(), false)? else {
        return Ok(EXIT_FINDINGS);
    };
    let run = RunId::new(args.run.run.as_str());
    let report = control.status(&run).await?;
    if args.follow {
        return follow(&control, &run).await;
    }
    if args.events {
        let mut after = 0;
        loop {
            let events = control.events(&run, after).await?;
            let Some(last) = events.last() else { return Ok(0) };
            after = last.sequence;
            for event in &events {
                output::println(&serde_json::to_string(event)?)?;
            }
        }
    }
    match io::stdout().is_terminal() {
        true => output::println(&overview(&report))?,
        false => output::println(&describe(&report).to_string())?,
    }
    Ok(0)
}

/// Shows what happens in a run until it ends, waits for people, or nobody works on it.
async fn follow(control: &RunControl, run: &RunId) -> CommandResult {
    let progress = Progress::new();
    let stop = stop_on_signals(&progress, None);
    let end = control.follow(run, 0, &stop, &mut |event| progress.show(event)).await?;
    progress.finish()?;
    match end {
        FollowEnd::Run(RunEnd::Waiting) => {
            output::status(&format!("run {run} waits for answers; `segue mission show {run}` lists its questions"));
        }
        FollowEnd::Run(_) | FollowEnd::Left => {}
        FollowEnd::Free => {
            output::status(&format!("no process works on run {run}; continue it with `segue mission resume {run}`"));
            return Ok(EXIT_ERROR);
        }
    }
    Ok(0)
}

/// A run for people: its tree without limit of height, what it cost, why it failed, and its open questions.
fn overview(report: &RunReport) -> String {
    let state = &report.state;
    let look = tree::Look { height: usize::MAX, ..progress::look() };
    let mut lines = tree::tree(state, look);
    let summary = &report.stored.summary;
    let until = summary.ended_at.unwrap_or_else(|| SystemClock.now());
    let seconds = until.since(summary.started_at).max(0) / 1_000_000;
    lines.push(format!("{}, took {}, {}", summary.status, output::format_age(seconds), cost(state)));
    if let Some(failure) = &state.failure {
        lines.push(output::single_line(&format!("failed: {} [{}]", failure.error, failure.code)));
    }
    for (id, input) in state.human_inputs.iter().filter(|(_, input)| input.open) {
        lines.push(output::single_line(&format!("question {id}: {}", input.question.question)));
        let choices = input.question.choices.iter().enumerate();
        lines.extend(choices.map(|(index, choice)| output::single_line(&format!("  {}: {choice}", index + 1))));
    }
    lines.join("\n")
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
        "failure": state.failure,
        "usage": state.usage,
    })
}

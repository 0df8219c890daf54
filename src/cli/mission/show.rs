//! `segue mission list` and `segue mission show`.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal},
    path::Path,
    sync::Arc,
};

use segue::{
    clock::{Clock, SystemClock},
    ids::RunId,
    missions::{FollowEnd, MissionError, RunControl, RunEnd, RunFiles, RunReport, question_number},
    store::{
        StoreLocation,
        runs::{RunFilter, RunStoreError, RunSummary},
    },
};
use segue_engine::mission::{query, state::RunState};
use serde_json::{Map, Value as Json, json};

use super::{
    List, OneRun, Show, control_of,
    drive::stop_on_signals,
    files, names_of,
    progress::{self, Progress},
    tree::{self, TaskCounts},
};
use crate::cli::{CommandResult, EXIT_ERROR, EXIT_FINDINGS, output};

/// Characters of an id that the list shows at least.
const SHORT_ID: usize = 8;

pub(super) async fn list(args: List) -> CommandResult {
    let url = args.store.as_deref();
    let Some(opened) = args.project.open_to_read(url)? else { return Ok(EXIT_FINDINGS) };
    // A store that is named and missing is an error: the name may be wrong.
    if url.is_none()
        && let StoreLocation::Sqlite { path, .. } = args.project.location(None, &opened.project)?
        && !path.is_file()
    {
        output::status("there are no runs yet; `segue mission run MISSION` starts the first one");
        return Ok(0);
    }
    let control = control_of(&args.project, &opened, url, false)?;
    let mut filter = RunFilter::default();
    (filter.id_prefix, filter.mission) = (args.run.map(Arc::from), args.mission.map(Arc::from));
    let runs = control.runs(filter, args.limit).await?;
    let is_terminal = io::stdout().is_terminal();
    let mut rows = Vec::new();
    for run in runs {
        let state = read(&control, &run.id).await?;
        let interrupted = control.is_interrupted(&run).await?;
        match is_terminal {
            true => rows.push(Row::new(&run, &state, interrupted)),
            false => output::println(&summary_json(&run, &state, interrupted)?.to_string())?,
        }
    }
    match is_terminal {
        true if rows.is_empty() => output::status("the store holds no run; `segue mission run` starts one"),
        true => {
            shorten_ids(&mut rows);
            output::print(&table(&rows))?;
        }
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

fn counts_json(state: &RunState) -> Json {
    let TaskCounts { completed, total, not_chosen } = TaskCounts::of(state);
    let mut counts = json!({"completed": completed, "total": total});
    if let Some(counts) = counts.as_object_mut().filter(|_| not_chosen > 0) {
        counts.insert("not_chosen".into(), not_chosen.into());
    }
    counts
}

fn summary_json(run: &RunSummary, state: &Result<RunState, String>, interrupted: bool) -> serde_json::Result<Json> {
    let mut row = serde_json::to_value(run)?;
    if let Json::Object(row) = &mut row {
        if interrupted {
            row.insert("interrupted".into(), true.into());
        }
        match state {
            Ok(state) => {
                row.insert("tasks".into(), counts_json(state));
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
    fn new(run: &RunSummary, state: &Result<RunState, String>, interrupted: bool) -> Self {
        let now = SystemClock.now();
        let seconds = |from: segue::Timestamp, to: segue::Timestamp| to.since(from).max(0) / 1_000_000;
        let (tasks, cost) = match state {
            Ok(state) => {
                let TaskCounts { completed, total, .. } = TaskCounts::of(state);
                (format!("{completed}/{total}"), cost(state))
            }
            Err(_) => ("?".to_owned(), "?".to_owned()),
        };
        Self {
            id: output::single_line(run.id.as_str()),
            status: if interrupted { "interrupted".to_owned() } else { run.status.to_string() },
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

/// Leaves as much of each id as tells it from the others of the list, so that a row fits the line. An id with a `/` belongs to a run that
/// another one has led to, and is only found whole.
fn shorten_ids(rows: &mut [Row]) {
    let ids: Vec<String> = rows.iter().map(|row| row.id.clone()).collect();
    for (row, id) in rows.iter_mut().zip(&ids).filter(|(_, id)| !id.contains('/')) {
        let led_to = format!("{id}/");
        let others = || ids.iter().filter(|other| *other != id && !other.starts_with(&led_to));
        let is_unique = |end: &usize| id.get(..*end).is_some_and(|part| !others().any(|other| other.starts_with(part)));
        if let Some(part) = (SHORT_ID..id.len()).find(is_unique).and_then(|end| id.get(..end)) {
            row.id = part.to_owned();
        }
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
    let OneRun { run, project, store } = &args.run;
    let Some(opened) = project.open_to_read(store.as_deref())? else { return Ok(EXIT_FINDINGS) };
    let control = control_of(project, &opened, store.as_deref(), false)?;
    let run = control.find(run).await?;
    let report = control.status(&run).await?;
    if args.follow {
        return follow(&control, &run, &args.run.project.folder).await;
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
    let files = RunFiles::of(&args.run.project.folder, &run).await;
    let summary = &report.stored.summary;
    let writes = control.writes(&run).await?;
    let is_gone = !summary.status.is_ended() && opened.project.mission(&summary.mission).is_none();
    let waits_for = is_gone.then(|| MissionError::WithoutMission(run.clone(), summary.mission.clone()).to_string());
    let interrupted = control.is_interrupted(summary).await?;
    match io::stdout().is_terminal() {
        true => {
            let mut lines = overview(&report, interrupted && !is_gone);
            lines.extend(waits_for.map(|why| output::single_line(&why)));
            if !writes.is_empty() {
                lines.push(output::single_line(&format!("done: {}", names_of(&writes))));
            }
            lines.extend(files.iter().flat_map(files::lines));
            output::println(&lines.join("\n"))?;
        }
        false => {
            let mut described = describe(&report);
            if let Some(described) = described.as_object_mut() {
                described.extend(interrupted.then(|| ("interrupted".into(), true.into())));
                described.extend(waits_for.map(|why| ("waits_for".into(), why.into())));
                described.extend((!writes.is_empty()).then(|| ("writes".into(), json!(writes))));
                described.extend(files.as_ref().map(|files| ("files".into(), files::as_json(files))));
            }
            output::println(&described.to_string())?;
        }
    }
    Ok(0)
}

/// Shows what happens in a run until it ends, waits for people, or nobody works on it.
async fn follow(control: &RunControl, run: &RunId, project: &Path) -> CommandResult {
    let progress = Progress::new();
    let stop = stop_on_signals(&progress, None);
    let end = control.follow(run, 0, &stop, &mut |event| progress.show(event)).await?;
    progress.finish()?;
    files::report(project, run).await?;
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
fn overview(report: &RunReport, interrupted: bool) -> Vec<String> {
    let state = &report.state;
    let look = tree::Look { height: usize::MAX, items: tree::MOST_ITEMS, ..progress::look() };
    let mut lines = tree::tree(state, look);
    let summary = &report.stored.summary;
    let until = summary.ended_at.unwrap_or_else(|| SystemClock.now());
    let seconds = until.since(summary.started_at).max(0) / 1_000_000;
    lines.push(format!("{}, took {}, {}", summary.status, output::format_age(seconds), cost(state)));
    if interrupted {
        let run = output::single_line(summary.id.as_str());
        lines.push(format!("interrupted: no process works on it; continue it with `segue mission resume {run}`"));
    }
    if let Some(failure) = &state.failure {
        lines.push(output::single_line(&format!("failed: {} [{}]", failure.error, failure.code)));
    }
    for (id, input) in state.human_inputs.iter().filter(|(_, input)| input.open) {
        let number = question_number(state, id).unwrap_or_default();
        lines.push(output::single_line(&format!("question {number} ({id}): {}", input.question.question)));
        let choices = input.question.choices.iter().enumerate();
        lines.extend(choices.map(|(index, choice)| output::single_line(&format!("  {}: {choice}", index + 1))));
    }
    lines
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
                task.extend(state.total_items.map(|_| ("items".to_owned(), json!(query::items(state)))));
                task.extend(state.copied_from.as_ref().map(|run| ("copied_from".to_owned(), json!(&**run))));
            }
            (name.to_string(), task)
        })
        .collect();
    let questions: Vec<Json> = state
        .human_inputs
        .iter()
        .filter(|(_, input)| input.open)
        .map(|(id, input)| json!({"id": &**id, "number": question_number(state, id), "question": input.question}))
        .collect();
    json!({
        "run": report.stored.summary.id,
        "mission": &*report.stored.summary.mission,
        "status": report.stored.summary.status,
        "chain": &*state.chain_id,
        "previous": state.previous,
        "rerun_of": state.rerun_of,
        "next": state.follow_ups.iter().map(|next| json!({"run": &*next.run, "mission": &*next.mission})).collect::<Vec<_>>(),
        "task_counts": counts_json(state),
        "tasks": tasks,
        "questions": questions,
        "failure": state.failure,
        "usage": state.usage,
    })
}

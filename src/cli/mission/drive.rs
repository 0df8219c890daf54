//! `segue mission run`, `resume` and `rerun`: work on runs in this process.

use std::{
    collections::{HashMap, VecDeque},
    io::{self, Read},
    sync::Arc,
};

use segue::{
    ids::RunId,
    missions::{FollowEnd, MissionError, RunControl, RunEnd, RunEngine, StartRun, question_number},
    server::ShutdownSignals,
    store::{
        StoreLocation,
        runs::{RunStatus, RunStoreError},
    },
};
use segue_engine::{
    mission::{inputs::InputProblem, rerun::RerunFrom, state::RunState},
    project::missions::{MissionDef, ValueKind},
};
use serde_json::{Map, Value as Json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{OneRun, OpenEngine, Rerun, Run, check::unknown, files, names_of, open, progress::Progress};
use crate::cli::{CommandResult, EXIT_ERROR, EXIT_FINDINGS, EXIT_USAGE, output};

/// Exit code: the run waits for answers of people.
pub(super) const EXIT_WAITING: u8 = 4;

pub(super) async fn run(args: Run) -> CommandResult {
    let Some(inputs) = read_inputs(&args.inputs)? else { return Ok(EXIT_USAGE) };
    let Some(opened) = open(&args.project, args.store.as_deref(), false)? else { return Ok(EXIT_FINDINGS) };
    let Some(mission) = opened.project.mission(&args.mission) else {
        return unknown(&args.mission, &opened.project);
    };
    let start = StartRun {
        mission: args.mission.as_str().into(),
        inputs,
        idempotency_key: args.idempotency_key.map(Arc::from),
        dry_run: args.dry_run,
        entry: args.entry.map(Arc::from),
    };
    let is_repeatable = start.idempotency_key.is_some();
    let run = opened.engine.start(start).await.inspect_err(|error| hint_at_objects(mission, error))?;
    let mut is_ended = false;
    if is_repeatable {
        let earlier = opened.engine.control().summary(&run).await?;
        is_ended = earlier.status.is_ended();
        // A run that was started just now has its first event only.
        if is_ended {
            output::status(&format!(
                "run {run} was started with this key before and is already {}; nothing was started",
                earlier.status
            ));
        } else if earlier.last_seq > 1 {
            output::status(&format!("run {run} was started with this key before; it goes on"));
        }
    }
    if opened.location != StoreLocation::Memory && !is_ended {
        output::status(&format!("run {run} (continue it with `segue mission resume {run}`)"));
    }
    drive(&opened, run, &HashMap::new()).await
}

/// Says how a value is given that is too long for a command line.
fn hint_at_objects(mission: &MissionDef, error: &MissionError) {
    let MissionError::Inputs(problems) = error else { return };
    let is_long = |kind| matches!(kind, ValueKind::List | ValueKind::Object | ValueKind::Map);
    let kind = |problem: &InputProblem| mission.inputs.get(&problem.input).map(|input| input.field.kind);
    if problems.iter().filter_map(kind).any(is_long) {
        output::status("`--input @-` reads one JSON object with inputs from standard input, also lists and objects");
    }
}

/// `name=value` pairs and `@-`. `None`: one is neither; a message was printed.
pub(super) fn read_inputs(given: &[String]) -> anyhow::Result<Option<Map<String, Json>>> {
    let mut inputs = Map::new();
    for one in given {
        if one == "@-" {
            let mut text = String::new();
            io::stdin().take(segue_engine::limits::RUN_TEXT as u64).read_to_string(&mut text)?;
            match serde_json::from_str::<Json>(&text) {
                Ok(Json::Object(object)) => inputs.extend(object),
                _ => {
                    output::status("standard input is not a JSON object with inputs");
                    return Ok(None);
                }
            }
            continue;
        }
        let Some((name, value)) = one.split_once('=') else {
            output::status(&format!(
                "`--input {one}` is not `name=value`; `--input @-` reads one JSON object with inputs from standard input"
            ));
            return Ok(None);
        };
        inputs.insert(name.trim().to_owned(), Json::from(value));
    }
    Ok(Some(inputs))
}

/// A token that the first signal to shut down cancels, after printing `first`; the second signal ends the process.
pub(super) fn stop_on_signals(progress: &Progress, first: Option<&'static str>) -> CancellationToken {
    let stop = CancellationToken::new();
    let (cancelled, progress) = (stop.clone(), progress.clone());
    let mut signals = ShutdownSignals::new();
    tokio::spawn(async move {
        signals.next().await;
        if let Some(first) = first {
            progress.say(first);
        }
        cancelled.cancel();
        signals.next().await;
        std::process::exit(i32::from(EXIT_ERROR));
    });
    stop
}

/// Works on a run and on those that follow it, and prints their events: of the runs in `past`, those after the given number.
async fn drive(opened: &OpenEngine, first: RunId, past: &HashMap<RunId, u64>) -> CommandResult {
    let OpenEngine { retention, .. } = opened;
    // Ended before the store is closed: the last one that has it closes it.
    let mut background = JoinSet::new();
    let kept = retention.clone();
    background.spawn(async move { kept.keep().await });
    let ended = drive_all(opened, first, past).await;
    background.shutdown().await;
    ended
}

async fn drive_all(opened: &OpenEngine, first: RunId, past: &HashMap<RunId, u64>) -> CommandResult {
    let engine = &opened.engine;
    let progress = Progress::new();
    let stop = stop_on_signals(&progress, Some("stopping; press Ctrl-C again to end at once"));
    let mut runs = VecDeque::from([first]);
    // The run that was found waiting without a question, and the number of its last event.
    let mut answered_meanwhile = None;
    while let Some(run) = runs.pop_front() {
        progress.begin(past.get(&run).copied().unwrap_or(0));
        if engine.control().summary(&run).await?.status == RunStatus::Queued {
            progress.say(&format!(
                "run {run} is queued: as many runs as `concurrency` allows have begun; it starts when one of them has ended"
            ));
        }
        let end = match wait_for_holder(engine, &run, &stop, &progress).await? {
            FollowEnd::Free => engine.drive(&run, &stop, &mut |event| progress.show(event)).await?,
            FollowEnd::Run(end) => end,
            FollowEnd::Left => {
                progress.finish()?;
                output::status(&format!(
                    "another process goes on with run {run}; `segue mission cancel {run}` ends it"
                ));
                return Ok(EXIT_ERROR);
            }
        };
        progress.finish()?;
        let report = engine.status(&run).await?;
        if end == RunEnd::Waiting && !report.state.human_inputs.values().any(|input| input.open) {
            // Another process has answered, or the time of the question is over: the run goes on.
            let seen = Some((run.clone(), report.state.sequence));
            if answered_meanwhile != seen {
                answered_meanwhile = seen;
                runs.push_front(run);
                continue;
            }
        }
        files::report(&opened.folder, &run).await?;
        let code = describe_end(&run, end, &report.state);
        report_writes(engine.control(), &run, end).await?;
        if let Some(code) = code {
            return Ok(code);
        }
        runs.extend(report.state.follow_ups.iter().map(|next| RunId::new(next.run.clone())));
    }
    Ok(0)
}

/// Says how a run has ended and what can be done. The exit code, unless it is completed.
fn describe_end(run: &RunId, end: RunEnd, state: &RunState) -> Option<u8> {
    match end {
        RunEnd::Completed => None,
        RunEnd::Failed => {
            if let Some(failure) = &state.failure {
                output::status(&format!(
                    "run {run} failed: {} [{code}]; `segue explain {code}` says how to fix it, and `segue mission resume {run}` \
                     continues it",
                    failure.error,
                    code = failure.code
                ));
            }
            Some(EXIT_FINDINGS)
        }
        RunEnd::Stopped => {
            output::status(&format!("run {run} was stopped; continue it with `segue mission resume {run}`"));
            Some(EXIT_ERROR)
        }
        RunEnd::Cancelled => {
            output::status(&format!("run {run} was cancelled"));
            Some(EXIT_ERROR)
        }
        RunEnd::Waiting => {
            let open: Vec<_> = state.human_inputs.iter().filter(|(_, input)| input.open).collect();
            for (id, input) in &open {
                let number = question_number(state, id).unwrap_or_default();
                output::status(&format!("question {number} ({id}): {}", input.question.question));
            }
            let which = if open.len() > 1 { " --question NUMBER" } else { "" };
            output::status(&format!(
                "answer with `segue mission answer {run} TEXT{which}`, then continue with `segue mission resume {run}`"
            ));
            Some(EXIT_WAITING)
        }
    }
}

/// Says what a run has changed that was not completed, and what may have been done in any run that has ended.
pub(super) async fn report_writes(control: &RunControl, run: &RunId, end: RunEnd) -> Result<(), MissionError> {
    let writes = control.writes(run).await?;
    let is_told = match end {
        RunEnd::Completed => !writes.in_doubt.is_empty(),
        RunEnd::Failed | RunEnd::Stopped | RunEnd::Cancelled => !writes.is_empty(),
        RunEnd::Waiting => false,
    };
    if is_told {
        output::status(&format!("done in this run: {}; `segue mission show {run}` has the calls", names_of(&writes)));
    }
    Ok(())
}

/// Follows a run as long as another process works on it: a second one would only share its work, and Ctrl-C would stop both.
async fn wait_for_holder(
    engine: &RunEngine,
    run: &RunId,
    stop: &CancellationToken,
    progress: &Progress,
) -> anyhow::Result<FollowEnd> {
    let control = engine.control();
    let Some(holder) = control.holder(run).await? else { return Ok(FollowEnd::Free) };
    let until = holder.until.to_utc().format("%H:%M:%S");
    progress.say(&format!(
        "{} works on run {run}: this process shows the progress, and continues the run if that process has ended (known at \
         {until} UTC at the earliest); Ctrl-C ends only this process",
        holder.owner
    ));
    Ok(control.follow(run, 0, stop, &mut |event| progress.show(event)).await?)
}

pub(super) async fn resume(args: OneRun) -> CommandResult {
    let Some(opened) = open(&args.project, args.store.as_deref(), true)? else { return Ok(EXIT_FINDINGS) };
    let engine = &opened.engine;
    let run = engine.control().find(&args.run).await?;
    let summary = engine.control().summary(&run).await?;
    let is_completed = summary.status == RunStatus::Completed;
    let past = recorded(engine, &run).await?;
    // The runs that follow a completed one may have been interrupted.
    if is_completed && engine.status(&run).await?.state.follow_ups.is_empty() {
        output::status(&format!("run {run} is completed"));
        return Ok(0);
    }
    // A process that was killed while it stopped the run has left the request.
    let is_left = summary.stop.is_some() && engine.control().holder(&run).await?.is_none();
    if !is_completed && (summary.status.is_ended() || is_left) {
        engine.resume(&run).await?;
    }
    drive(&opened, run, &past).await
}

/// The number of the last event of a run, and of each run that it has led to.
async fn recorded(engine: &RunEngine, run: &RunId) -> Result<HashMap<RunId, u64>, MissionError> {
    let mut past = HashMap::new();
    let mut runs = VecDeque::from([run.clone()]);
    while let Some(run) = runs.pop_front() {
        let state = match engine.status(&run).await {
            Ok(report) => report.state,
            // It was not started yet, or was deleted; what cannot be read ends when it is worked on.
            Err(
                MissionError::UnknownRun(_)
                | MissionError::Unreadable { .. }
                | MissionError::Store(RunStoreError::Corrupt { .. }),
            ) => continue,
            Err(error) => return Err(error),
        };
        let next = state.follow_ups.iter().map(|next| RunId::new(next.run.clone()));
        runs.extend(next.filter(|next| !past.contains_key(next)));
        past.insert(run, state.sequence);
    }
    Ok(past)
}

pub(super) async fn rerun(args: Rerun) -> CommandResult {
    let OneRun { run, project, store } = args.run;
    let Some(opened) = open(&project, store.as_deref(), true)? else { return Ok(EXIT_FINDINGS) };
    let from = args.task.map(|task| RerunFrom { task: task.into(), failed_items: args.failed_items });
    let run = opened.engine.control().find(&run).await?;
    let writes = opened.engine.repeated_writes(&run, from.as_ref()).await?;
    if !writes.is_empty() {
        let names = names_of(&writes);
        output::status(&format!("the run {run} has done this, and the new run may do it again: {names}"));
    }
    let new = opened.engine.rerun(&run, from.as_ref()).await?;
    output::status(&format!("run {new}"));
    drive(&opened, new, &HashMap::new()).await
}

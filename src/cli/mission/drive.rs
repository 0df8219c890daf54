//! `segue mission run`, `resume` and `rerun`: work on runs in this process.

use std::{
    collections::VecDeque,
    io::{self, IsTerminal, Read},
    sync::Arc,
};

use segue::{
    ids::RunId,
    missions::{RunEnd, RunEngine, StartRun},
    store::{StoreLocation, runs::RunStatus},
};
use segue_engine::mission::rerun::RerunFrom;
use serde_json::{Map, Value as Json};

use super::{OneRun, Rerun, Run, check::unknown, one, open, progress::Progress};
use crate::cli::{CommandResult, EXIT_ERROR, EXIT_FINDINGS, EXIT_USAGE, output, stop_on_signal};

/// Exit code: the run waits for answers of people.
const EXIT_WAITING: u8 = 4;

pub(super) async fn run(args: Run) -> CommandResult {
    let Some(inputs) = read_inputs(&args.inputs)? else { return Ok(EXIT_USAGE) };
    let Some((engine, project, location)) = open(&args.project, args.store.as_deref(), false)? else {
        return Ok(EXIT_FINDINGS);
    };
    if project.mission(&args.mission).is_none() {
        return unknown(&args.mission, &project);
    }
    let start = StartRun {
        mission: args.mission.as_str().into(),
        inputs,
        idempotency_key: args.idempotency_key.map(Arc::from),
        dry_run: args.dry_run,
        entry: args.entry.map(Arc::from),
    };
    let run = engine.start(start).await?;
    if location != StoreLocation::Memory {
        output::status(&format!("run {run} (continue it with `segue mission resume {run}`)"));
    }
    drive(&engine, run).await
}

/// `name=value` pairs and `@-`. `None`: one is neither; a message was printed.
pub(super) fn read_inputs(given: &[String]) -> anyhow::Result<Option<Map<String, Json>>> {
    let mut inputs = Map::new();
    for one in given {
        if one == "@-" {
            let mut text = String::new();
            io::stdin().take(segue::limits::RUN_TEXT as u64).read_to_string(&mut text)?;
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
            output::status(&format!("`--input {one}` is not `name=value`"));
            return Ok(None);
        };
        inputs.insert(name.trim().to_owned(), Json::from(value));
    }
    Ok(Some(inputs))
}

/// Works on a run and on those that follow it, and prints their events.
async fn drive(engine: &RunEngine, first: RunId) -> CommandResult {
    let stop = stop_on_signal();
    let exit = stop.clone();
    tokio::spawn(async move {
        exit.cancelled().await;
        output::status("stopping; press Ctrl-C again to end at once");
        segue::server::shutdown_signal().await;
        std::process::exit(i32::from(EXIT_ERROR));
    });
    let is_terminal = io::stdout().is_terminal();
    let mut runs = VecDeque::from([first]);
    while let Some(run) = runs.pop_front() {
        if engine.status(&run).await?.stored.summary.status == RunStatus::Queued {
            output::status(&format!(
                "run {run} is queued: as many runs as `concurrency` allows have begun; it starts when one of them has ended"
            ));
        }
        let mut progress = Progress::new(is_terminal);
        let end = engine.drive(&run, &stop, &mut |event| progress.show(event)).await?;
        progress.finish()?;
        let report = engine.status(&run).await?;
        match end {
            RunEnd::Completed => {}
            RunEnd::Failed => {
                if let Some(failure) = report.state.failure {
                    output::status(&format!("run {run} failed: {} [{}]", failure.error, failure.code));
                }
                return Ok(EXIT_FINDINGS);
            }
            RunEnd::Stopped | RunEnd::Cancelled => {
                output::status(&format!("run {run} was stopped; continue it with `segue mission resume {run}`"));
                return Ok(EXIT_ERROR);
            }
            RunEnd::Waiting => {
                for (id, input) in report.state.human_inputs.iter().filter(|(_, input)| input.open) {
                    output::status(&format!("question {id}: {}", input.question.question));
                }
                output::status(&format!("answer with `segue mission answer {run} TEXT`"));
                return Ok(EXIT_WAITING);
            }
        }
        // One after the other; the next ones find those that follow them.
        runs.extend(report.state.follow_ups.iter().map(|next| RunId::new(next.run.clone())));
    }
    Ok(0)
}

pub(super) async fn resume(args: OneRun) -> CommandResult {
    let Some((engine, run)) = one(&args)? else { return Ok(EXIT_FINDINGS) };
    let status = engine.status(&run).await?.stored.summary.status;
    if status == RunStatus::Completed {
        output::status(&format!("run {run} is completed"));
        return Ok(0);
    }
    if status.is_ended() {
        engine.resume(&run).await?;
    }
    drive(&engine, run).await
}

pub(super) async fn rerun(args: Rerun) -> CommandResult {
    let Some((engine, run)) = one(&args.run)? else { return Ok(EXIT_FINDINGS) };
    let from = args.task.map(|task| RerunFrom { task: task.into(), failed_items: args.failed_items });
    let new = engine.rerun(&run, from.as_ref()).await?;
    output::status(&format!("run {new}"));
    drive(&engine, new).await
}

//! `segue mission answer` and `segue mission cancel`: what people tell a run.

use std::{
    io::{self, Read},
    sync::Arc,
    time::Duration,
};

use segue::{
    ids::RunId,
    missions::{RunEnd, question_number},
    store::runs::{SignalOutcome, StopRequest},
};

use super::{Answer, OneRun, drive::report_writes, files, open_control};
use crate::cli::{CommandResult, EXIT_FINDINGS, EXIT_USAGE, output};

/// How long `cancel` waits until the process that works on the run has ended it.
const CANCEL_PATIENCE: Duration = Duration::from_secs(10);

pub(super) async fn answer(args: Answer) -> CommandResult {
    let Some(control) = open_control(&args.project, args.store.as_deref(), true)? else { return Ok(EXIT_FINDINGS) };
    let run = control.find(&args.run).await?;
    let mut text = args.answer;
    if text == "-" {
        text.clear();
        io::stdin().take(segue_engine::limits::RUN_TEXT as u64).read_to_string(&mut text)?;
        text.truncate(text.trim_end().len());
    }
    if let Some(event) = &args.event_id
        && let Some(done) = control.answered_by(&run, event).await?
    {
        return Ok(accepted(&run, done.answer.as_deref().unwrap_or_default()));
    }
    let report = control.status(&run).await?;
    let open: Vec<&Arc<str>> =
        report.state.human_inputs.iter().filter(|(_, input)| input.open).map(|(id, _)| id).collect();
    let number = |id: &str| question_number(&report.state, id).unwrap_or_default().to_string();
    let question = match (args.question, open.as_slice()) {
        (Some(named), _) => named,
        (None, [one]) => one.to_string(),
        (None, []) => {
            output::status(&format!("run {run} has no open question"));
            return Ok(EXIT_USAGE);
        }
        (None, several) => {
            let numbers: Vec<String> = several.iter().map(|id| number(id)).collect();
            output::status(&format!(
                "several questions are open; name one with `--question NUMBER`: {}. `segue mission show {run}` shows them",
                numbers.join(", ")
            ));
            return Ok(EXIT_USAGE);
        }
    };
    let event = args.event_id.unwrap_or_else(|| uuid::Uuid::new_v4().simple().to_string());
    let answer = control.answer(&run, &question, &text, &event, None).await?;
    files::say(&args.project.folder, &run).await;
    Ok(accepted(&run, &answer))
}

fn accepted(run: &RunId, answer: &str) -> u8 {
    output::status(&format!("answered: {answer}; continue with `segue mission resume {run}`"));
    0
}

pub(super) async fn cancel(args: OneRun) -> CommandResult {
    let Some(control) = open_control(&args.project, args.store.as_deref(), true)? else { return Ok(EXIT_FINDINGS) };
    let run = control.find(&args.run).await?;
    if let SignalOutcome::Ended(status) = control.stop(&run, StopRequest::Cancel).await? {
        output::status(&format!("run {run} has ended already: {status}"));
        return Ok(0);
    }
    let holder = control.holder(&run).await?;
    match control.wait_for_end(&run, CANCEL_PATIENCE).await? {
        Some(status) => {
            output::status(&format!("run {run} is {status}"));
            // A damaged run can be ended too.
            let _ = report_writes(&control, &run, RunEnd::Cancelled).await;
        }
        None => {
            let owner = holder.map(|holder| holder.owner).unwrap_or_default();
            output::status(&format!(
                "run {run} is to be cancelled; {owner} ends it when the tool call that it waits for is done"
            ));
        }
    }
    Ok(0)
}

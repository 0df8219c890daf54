//! `segue mission answer` and `segue mission cancel`: what people tell a run.

use std::sync::Arc;

use segue::{
    ids::RunId,
    store::runs::{SignalOutcome, StopRequest},
};

use super::{Answer, OneRun, one, open};
use crate::cli::{CommandResult, EXIT_FINDINGS, EXIT_USAGE, output};

pub(super) async fn answer(args: Answer) -> CommandResult {
    let Some((engine, _, _)) = open(&args.project, args.store.as_deref(), true)? else { return Ok(EXIT_FINDINGS) };
    let run = RunId::new(args.run.as_str());
    let report = engine.status(&run).await?;
    let open: Vec<&Arc<str>> =
        report.state.human_inputs.iter().filter(|(_, input)| input.open).map(|(id, _)| id).collect();
    let question = match (args.question, open.as_slice()) {
        (Some(named), _) => named,
        (None, [one]) => one.to_string(),
        (None, []) => {
            output::status(&format!("run {run} has no open question"));
            return Ok(EXIT_USAGE);
        }
        (None, several) => {
            let ids: Vec<&str> = several.iter().map(|id| &***id).collect();
            output::status(&format!("several questions are open; name one with `--question`: {}", ids.join(", ")));
            return Ok(EXIT_USAGE);
        }
    };
    let event = uuid::Uuid::new_v4().simple().to_string();
    let accepted = engine.answer(&run, &question, &args.answer, &event, None).await?;
    output::status(&format!("answered: {accepted}; continue with `segue mission resume {run}`"));
    Ok(0)
}

pub(super) async fn cancel(args: OneRun) -> CommandResult {
    let Some((engine, run)) = one(&args)? else { return Ok(EXIT_FINDINGS) };
    engine.status(&run).await?;
    match engine.stop(&run, StopRequest::Cancel).await? {
        SignalOutcome::Accepted => output::status(&format!("run {run} is to be cancelled")),
        SignalOutcome::Ended(status) => output::status(&format!("run {run} has ended already: {status}")),
    }
    Ok(0)
}

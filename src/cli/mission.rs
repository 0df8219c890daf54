//! `segue mission`: runs missions, and shows, answers, stops and continues their runs.

mod progress;

use std::{
    io::{self, IsTerminal, Read},
    sync::Arc,
};

use segue::{
    ids::RunId,
    missions::{MissionError, RunEnd, RunEngine, RunReport, StartRun},
    project::{Project, findings_report},
    store::{
        self, StoreLocation,
        runs::{RunFilter, RunStatus, SignalOutcome, StopRequest},
    },
};
use serde_json::{Map, Value as Json, json};

use self::progress::Progress;
use super::{
    CommandResult, EXIT_ERROR, EXIT_FINDINGS, EXIT_USAGE,
    logging::init_logging,
    output,
    project_args::{ProjectArgs, describe_build_error},
    stop_on_signal,
};

/// Exit code: the run waits for answers of people.
const EXIT_WAITING: u8 = 4;
/// Runs that `list` shows.
const MOST_LISTED: usize = 100;

#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(super) struct Args {
    #[command(subcommand)]
    command: MissionCommand,
}

#[derive(clap::Subcommand)]
enum MissionCommand {
    /// Report all errors and warnings of the project, and name its missions
    Check(ProjectOnly),
    /// Show the tasks of a mission in the order in which they can run
    Plan(Plan),
    /// Start a run and work on it until it ends or waits for an answer
    Run(Run),
    /// List the runs, the newest first
    List(List),
    /// Show a run: its tasks and its open questions, or its events
    Show(Show),
    /// Answer a question of a run
    Answer(Answer),
    /// End a run for good; a process that works on it stops
    Cancel(OneRun),
    /// Continue a run that was stopped or interrupted, that waited for an answer, or that failed
    Resume(OneRun),
    /// Start a new run with the mission and the inputs of another
    Rerun(OneRun),
}

#[derive(clap::Args)]
struct ProjectOnly {
    #[command(flatten)]
    project: ProjectArgs,
}

#[derive(clap::Args)]
struct Plan {
    /// The mission
    mission: String,
    #[command(flatten)]
    project: ProjectArgs,
}

#[derive(clap::Args)]
struct Run {
    /// The mission
    mission: String,
    #[command(flatten)]
    project: ProjectArgs,
    /// An input, as `name=value`; a value of another type than text is JSON. `@-` reads a JSON object from standard input
    #[arg(short, long = "input", value_name = "NAME=VALUE")]
    inputs: Vec<String>,
    /// The store, as in `sqlite:missions.db`, or `memory`; that of `endpoints.yml` unless set
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// A later start of the mission with this key continues the first run instead
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// The task to enter, instead of the first ones
    #[arg(long, value_name = "TASK")]
    entry: Option<String>,
    /// Refuse tools that change something
    #[arg(long)]
    dry_run: bool,
}

#[derive(clap::Args)]
struct List {
    #[command(flatten)]
    project: ProjectArgs,
    /// Only runs of this mission
    #[arg(long, value_name = "NAME")]
    mission: Option<String>,
    /// The store
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

#[derive(clap::Args)]
struct OneRun {
    /// The run; `segue mission list` lists the ids
    run: String,
    #[command(flatten)]
    project: ProjectArgs,
    /// The store
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

#[derive(clap::Args)]
struct Show {
    #[command(flatten)]
    run: OneRun,
    /// Print the events as JSON lines
    #[arg(long)]
    events: bool,
}

#[derive(clap::Args)]
struct Answer {
    /// The run
    run: String,
    /// The answer: a text, or the name or number of a choice
    answer: String,
    #[command(flatten)]
    project: ProjectArgs,
    /// The question, if the run has several open ones
    #[arg(long, value_name = "ID")]
    question: Option<String>,
    /// The store
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

pub(super) async fn mission(args: Args) -> CommandResult {
    init_logging("warn")?;
    let result = match args.command {
        MissionCommand::Check(args) => check(&args),
        MissionCommand::Plan(args) => plan(&args),
        MissionCommand::Run(args) => run(args).await,
        MissionCommand::List(args) => list(args).await,
        MissionCommand::Show(args) => show(args).await,
        MissionCommand::Answer(args) => answer(args).await,
        MissionCommand::Cancel(args) => cancel(args).await,
        MissionCommand::Resume(args) => resume(args).await,
        MissionCommand::Rerun(args) => rerun(args).await,
    };
    match result {
        Err(error) => match error.downcast_ref::<MissionError>() {
            Some(
                MissionError::UnknownMission(_)
                | MissionError::Inputs(_)
                | MissionError::UnknownRun(_)
                | MissionError::Question(_),
            ) => {
                output::status(&error.to_string());
                Ok(EXIT_USAGE)
            }
            _ => Err(error),
        },
        done => done,
    }
}

fn check(args: &ProjectOnly) -> CommandResult {
    let checked = args.project.check()?;
    if !checked.findings.is_empty() {
        output::eprint(&findings_report::all(&checked.findings, &checked.sources));
    }
    let Some(project) = checked.project else { return Ok(EXIT_FINDINGS) };
    for mission in project.missions.values() {
        output::println(&format!("{}: {} tasks", mission.name, mission.tasks.len()))?;
    }
    if project.missions.is_empty() {
        output::status("the project has no missions; they are files in `missions/`");
    }
    Ok(0)
}

fn plan(args: &Plan) -> CommandResult {
    let Some(opened) = args.project.open()? else { return Ok(EXIT_FINDINGS) };
    let Some(mission) = opened.project.mission(&args.mission) else { return unknown(&args.mission, &opened.project) };
    for task in mission.tasks.values() {
        let mut line = task.name.to_string();
        if !task.depends_on.is_empty() {
            line.push_str(&format!(" after {}", task.depends_on.join(", ")));
        }
        if let Some(iterator) = &task.iterator {
            let how = match iterator.parallel {
                true => format!("{} at a time", iterator.concurrency_limit),
                false => "one after the other".to_owned(),
            };
            line.push_str(&format!(", for each item of {} ({how})", iterator.dataset));
        }
        let targets = segue_engine::project::mission_graph::targets(task);
        if !targets.is_empty() {
            let targets: Vec<&str> = targets.iter().map(|target| &***target).collect();
            line.push_str(&format!(", then {}", targets.join(" or ")));
        }
        output::println(&line)?;
    }
    Ok(0)
}

fn unknown(mission: &str, project: &Project) -> CommandResult {
    let names: Vec<&str> = project.missions.keys().map(|name| &**name).collect();
    let known = if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
    output::status(&format!("the project has no mission `{mission}`; {known}"));
    Ok(EXIT_USAGE)
}

/// An engine over the runs of a project. `existing`: the store must exist already.
fn open(
    project: &ProjectArgs,
    url: Option<&str>,
    existing: bool,
) -> anyhow::Result<Option<(RunEngine, Arc<Project>, StoreLocation)>> {
    let Some(opened) = project.open()? else { return Ok(None) };
    let location = match existing {
        true => project.existing_location(url, &opened.project)?,
        false => project.location(url, &opened.project)?,
    };
    let runs = store::open_stores(&location)?.runs;
    let project = opened.project.clone();
    let engine = opened.builder.build_missions(runs).map_err(describe_build_error)?;
    Ok(Some((engine, project, location)))
}

async fn run(args: Run) -> CommandResult {
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
fn read_inputs(given: &[String]) -> anyhow::Result<Option<Map<String, Json>>> {
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
    let mut run = first;
    loop {
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
        match report.state.follow_ups.first() {
            Some(next) => run = RunId::new(next.run.clone()),
            None => return Ok(0),
        }
    }
}

async fn list(args: List) -> CommandResult {
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

async fn show(args: Show) -> CommandResult {
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
            let task =
                json!({"status": task.status, "summary": task.summary, "output": task.output, "error": task.error});
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
        "tasks": tasks,
        "questions": questions,
        "usage": state.usage,
    })
}

fn one(args: &OneRun) -> anyhow::Result<Option<(RunEngine, RunId)>> {
    let opened = open(&args.project, args.store.as_deref(), true)?;
    Ok(opened.map(|(engine, _, _)| (engine, RunId::new(args.run.as_str()))))
}

async fn answer(args: Answer) -> CommandResult {
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

async fn cancel(args: OneRun) -> CommandResult {
    let Some((engine, run)) = one(&args)? else { return Ok(EXIT_FINDINGS) };
    engine.status(&run).await?;
    match engine.stop(&run, StopRequest::Cancel).await? {
        SignalOutcome::Accepted => output::status(&format!("run {run} is to be cancelled")),
        SignalOutcome::Ended(status) => output::status(&format!("run {run} has ended already: {status}")),
    }
    Ok(0)
}

async fn resume(args: OneRun) -> CommandResult {
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

async fn rerun(args: OneRun) -> CommandResult {
    let Some((engine, run)) = one(&args)? else { return Ok(EXIT_FINDINGS) };
    let new = engine.rerun(&run).await?;
    output::status(&format!("run {new}"));
    drive(&engine, new).await
}

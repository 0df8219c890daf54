//! `segue mission`: runs missions, and shows, answers, stops and continues their runs.

mod check;
mod control;
mod drive;
mod files;
mod progress;
mod show;
mod tree;

use std::{path::PathBuf, sync::Arc};

use segue::{
    clock::SystemClock,
    missions::{MissionError, RunControl, RunEngine, RunRetention},
    project::Project,
    store::{self, StoreLocation, runs::RunStoreError},
};
use segue_engine::conversation::Writes;

use super::{
    CommandResult, EXIT_USAGE,
    logging::init_logging,
    output,
    project_args::{OpenProject, ProjectArgs, describe_build_error},
};

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
    /// End a run for good, also one that was stopped or has failed; a process that works on it stops
    Cancel(OneRun),
    /// Continue a run that was stopped or interrupted, that waited for an answer, or that failed; never one that was cancelled
    Resume(OneRun),
    /// Start a new run with the mission and the inputs of another, from the beginning or from a task
    Rerun(Rerun),
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
    /// An input, as for `segue mission run`. With inputs, they are checked and the objectives are shown with them
    #[arg(short, long = "input", value_name = "NAME=VALUE")]
    inputs: Vec<String>,
    /// The task to enter, instead of the first ones
    #[arg(long, value_name = "TASK")]
    entry: Option<String>,
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
    /// A later start of the mission with this key and the same inputs continues the first run instead
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// The task to enter, instead of the first ones
    #[arg(long, value_name = "TASK")]
    entry: Option<String>,
    /// A dry run: tools that change something are refused
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
    /// Only runs whose id begins with this text
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// How many are listed
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// The store
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

#[derive(clap::Args)]
struct OneRun {
    /// The run: its id, or the beginning of it. `segue mission list` lists the ids
    run: String,
    #[command(flatten)]
    project: ProjectArgs,
    /// The store
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

#[derive(clap::Args)]
struct Rerun {
    #[command(flatten)]
    run: OneRun,
    /// Start with this task: completed tasks that do not depend on it are taken over
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// Repeat only the failed items of the task
    #[arg(long, requires = "task")]
    failed_items: bool,
}

#[derive(clap::Args)]
struct Show {
    #[command(flatten)]
    run: OneRun,
    /// Print the events as JSON lines
    #[arg(long)]
    events: bool,
    /// Show what happens until the run ends or waits for an answer
    #[arg(long, conflicts_with = "events")]
    follow: bool,
}

#[derive(clap::Args)]
struct Answer {
    /// The run: its id, or the beginning of it
    run: String,
    /// The answer: a text, or the name or number of a choice; `-` reads it from standard input
    answer: String,
    /// The id of this answer. An answer that is sent again with the same id has the same result and counts once
    #[arg(long, value_name = "ID")]
    event_id: Option<String>,
    #[command(flatten)]
    project: ProjectArgs,
    /// The question, if the run has several open ones: its number, its id, or the beginning or end of it
    #[arg(long, value_name = "NUMBER")]
    question: Option<String>,
    /// The store
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

pub(super) async fn mission(args: Args) -> CommandResult {
    init_logging("warn")?;
    let result = match args.command {
        MissionCommand::Check(args) => check::check(&args),
        MissionCommand::Plan(args) => check::plan(&args),
        MissionCommand::Run(args) => drive::run(args).await,
        MissionCommand::List(args) => show::list(args).await,
        MissionCommand::Show(args) => show::show(args).await,
        MissionCommand::Answer(args) => control::answer(args).await,
        MissionCommand::Cancel(args) => control::cancel(args).await,
        MissionCommand::Resume(args) => drive::resume(args).await,
        MissionCommand::Rerun(args) => drive::rerun(args).await,
    };
    match result {
        Err(error) => match error.downcast_ref::<MissionError>() {
            Some(
                known @ (MissionError::UnknownMission(_)
                | MissionError::WithoutMission(..)
                | MissionError::Inputs(_)
                | MissionError::UnknownRun(_)
                | MissionError::AmbiguousRun(..)
                | MissionError::Rerun(_)
                | MissionError::Files(..)
                | MissionError::Store(RunStoreError::WrongStatus { .. })
                | MissionError::Question(_)),
            ) => {
                output::status(&format!("{known} [{}]", known.code()));
                Ok(EXIT_USAGE)
            }
            _ => Err(error),
        },
        done => done,
    }
}

/// An engine over the runs of a project.
struct OpenEngine {
    engine: RunEngine,
    project: Arc<Project>,
    /// The folder of the project.
    folder: PathBuf,
    location: StoreLocation,
    retention: RunRetention,
}

/// Opens the project and the store of runs. `existing`: the store must exist already.
fn open(project: &ProjectArgs, url: Option<&str>, existing: bool) -> anyhow::Result<Option<OpenEngine>> {
    let Some(opened) = project.open()? else { return Ok(None) };
    let location = match existing {
        true => project.existing_location(url, &opened.project)?,
        false => project.location(url, &opened.project)?,
    };
    let runs = store::open_runs(&location)?;
    let settings = &opened.project.endpoints.runs;
    let retention = RunRetention::new(runs.clone(), Arc::new(SystemClock), &project.folder, settings);
    let folder = project.folder.clone();
    let project = opened.project.clone();
    let engine = opened.builder.build_missions(runs).map_err(describe_build_error)?;
    Ok(Some(OpenEngine { engine, project, folder, location, retention }))
}

/// What calls have changed, as people read it: the tools, those in doubt with a word for it.
fn names_of(writes: &Writes) -> String {
    let in_doubt = writes.in_doubt_names().into_iter().map(|name| format!("{name} (perhaps)"));
    writes.done_names().into_iter().chain(in_doubt).collect::<Vec<_>>().join(", ")
}

/// The runs of an existing store, without models. `to_write`: answers and signals are stored.
fn open_control(project: &ProjectArgs, url: Option<&str>, to_write: bool) -> anyhow::Result<Option<RunControl>> {
    let Some(opened) = project.open_to_read(url)? else { return Ok(None) };
    control_of(project, &opened, url, to_write).map(Some)
}

fn control_of(
    project: &ProjectArgs,
    opened: &OpenProject,
    url: Option<&str>,
    to_write: bool,
) -> anyhow::Result<RunControl> {
    let location = project.existing_location(url, &opened.project)?;
    let runs = match to_write {
        true => store::open_runs(&location)?,
        false => store::open_stores_read_only(&location)?.runs,
    };
    Ok(RunControl::new(runs, Arc::new(SystemClock)))
}

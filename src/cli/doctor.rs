//! `segue doctor`: lists stuck and damaged conversations of a store and the runs to look at, closes open turns, and deletes
//! conversations.

use std::{fmt::Write as _, sync::Arc};

use segue::{
    ConversationId, Timestamp,
    clock::{Clock, SystemClock},
    limits,
    missions::{RunControl, RunProblem, RunProblemKind, RunRetention, RunsReport},
    runtime::Assistant,
    store::{self, ConversationProblem, StoreError, UnfinishedTurnSummary},
    tools::workspace::Workspaces,
};
use serde_json::json;

use super::{
    CommandResult, EXIT_ERROR, EXIT_FINDINGS, EXIT_USAGE,
    check::Format,
    output::{self, format_age, single_line},
    project_args::{ProjectArgs, describe_build_error},
};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: DoctorCommand,
}

#[derive(clap::Subcommand)]
enum DoctorCommand {
    /// List conversations with open turns, undelivered replies or damage, and runs that nobody works on, that wait for answers or that
    /// cannot be read; works while a server runs
    List(List),
    /// End the open turns of a conversation with one message to the user, without another attempt
    Close(Close),
    /// Delete everything that is stored about a conversation, with its runs and their files
    Erase(Erase),
}

#[derive(clap::Args)]
struct List {
    #[command(flatten)]
    project: ProjectArgs,
    /// The store, as in `sqlite:conversations.db`; the project's store unless set
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(clap::Args)]
struct Close {
    /// The conversation
    id: String,
    #[command(flatten)]
    project: ProjectArgs,
    /// Only this turn
    #[arg(long, value_name = "N")]
    turn: Option<u64>,
    /// The store, as in `sqlite:conversations.db`; the project's store unless set
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

#[derive(clap::Args)]
struct Erase {
    /// The conversation
    id: String,
    #[command(flatten)]
    project: ProjectArgs,
    /// The store, as in `sqlite:conversations.db`; the project's store unless set
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

pub(super) async fn doctor(args: Args) -> CommandResult {
    match args.command {
        DoctorCommand::List(args) => list(args).await,
        DoctorCommand::Close(args) => close(args).await,
        DoctorCommand::Erase(args) => erase(args).await,
    }
}

/// Opens the store for writing, with an assistant that calls no external service. Fails if another process writes to the store.
/// `None`: the project has errors, which are printed.
fn open_for_writing(project: &ProjectArgs, store: Option<&str>) -> anyhow::Result<Option<(Assistant, RunRetention)>> {
    let Some(opened) = project.open_to_read(store)? else { return Ok(None) };
    let stores = store::open_stores(&project.existing_location(store, &opened.project)?)?;
    let settings = &opened.project.endpoints.runs;
    let runs = RunRetention::new(stores.runs.clone(), Arc::new(SystemClock), &project.folder, settings);
    let assistant =
        opened.builder.store(stores.conversations).runs(stores.runs).offline().build().map_err(describe_build_error)?;
    Ok(Some((assistant, runs)))
}

async fn close(args: Close) -> CommandResult {
    let Some((assistant, _)) = open_for_writing(&args.project, args.store.as_deref())? else {
        return Ok(EXIT_FINDINGS);
    };
    let id = ConversationId::from(args.id.as_str());
    let mut turns = assistant.store().unfinished_turns(&id).await?;
    turns.retain(|open| args.turn.is_none_or(|turn| open.turn.0 == turn));
    let mut code = 0;
    if turns.is_empty() {
        let missing = args.turn.map_or("no open turn".to_owned(), |turn| format!("no open turn {turn}"));
        output::status(&format!(
            "the conversation {} has {missing}; `segue doctor list` shows open turns",
            single_line(&args.id)
        ));
        code = EXIT_USAGE;
    }
    for open in turns {
        match assistant.close_turn(&id, open.turn).await {
            Ok(report) => {
                let texts = report.replies.iter().filter_map(|reply| reply.reply.text.as_deref());
                let texts: Vec<_> = texts.map(single_line).collect();
                output::println(&format!("turn {} is closed; the user receives: {}", open.turn.0, texts.join(" ")))?;
            }
            Err(error) => {
                output::status(&format!("turn {} could not be closed: {error} [{}]", open.turn.0, error.code()));
                code = EXIT_ERROR;
                break;
            }
        }
    }
    assistant.close(limits::SOURCE_CLOSE_TIMEOUT).await;
    Ok(code)
}

async fn erase(args: Erase) -> CommandResult {
    let Some((assistant, runs)) = open_for_writing(&args.project, args.store.as_deref())? else {
        return Ok(EXIT_FINDINGS);
    };
    let id = ConversationId::from(args.id.as_str());
    let store = assistant.store();
    // A damaged conversation exists, too.
    let exists = match (store.load(&id).await, store.unfinished_turns(&id).await) {
        (Err(StoreError::Corrupt { .. }), _) | (_, Err(StoreError::Corrupt { .. })) => true,
        (loaded, open) => loaded?.version.0 > 0 || !open?.is_empty(),
    };
    // What an erasure that failed has left.
    let files = assistant.workspaces().folder().join(Workspaces::conversation_folder(id.as_str()));
    // First the runs: with the conversation, nothing would lead to them after an error.
    let deleted = runs.erase(&id).await?;
    let exists = exists || deleted > 0 || files.exists();
    if exists {
        assistant.erase(&id).await?;
        let runs = if deleted > 0 { format!(", with {deleted} run(s)") } else { String::new() };
        output::println(&format!("conversation {} was deleted{runs}", single_line(&args.id)))?;
    } else {
        output::status(&format!("there is no conversation {}", single_line(&args.id)));
    }
    assistant.close(limits::SOURCE_CLOSE_TIMEOUT).await;
    Ok(if exists { 0 } else { EXIT_USAGE })
}

async fn list(args: List) -> CommandResult {
    let Some(opened) = args.project.open_to_read(args.store.as_deref())? else { return Ok(EXIT_FINDINGS) };
    let location = args.project.existing_location(args.store.as_deref(), &opened.project)?;
    let stores = store::open_stores_read_only(&location)?;
    let problems = stores.conversations.problems().await?;
    let runs = RunControl::new(stores.runs, Arc::new(SystemClock)).problems().await?;
    let now = SystemClock.now();
    match args.format {
        Format::Json => {
            let all: Vec<_> = problems.iter().map(|problem| problem_json(problem, now)).collect();
            output::println(&json!({"conversations": all, "runs": runs_json(&runs)}).to_string())?;
        }
        Format::Text if problems.is_empty() => {
            output::println("no conversation has open turns, undelivered replies or damage")?;
            output::print(&format_runs(&runs))?;
        }
        Format::Text => {
            output::print(&problems.iter().map(|problem| format_problem(problem, now)).collect::<String>())?;
            output::print(&format_runs(&runs))?;
            let (count, open) =
                (problems.len(), problems.iter().map(|problem| problem.unfinished_turns.len()).sum::<usize>());
            let (conversations, turns) =
                (if count == 1 { "conversation" } else { "conversations" }, if open == 1 { "turn" } else { "turns" });
            output::status(&format!("{count} {conversations}, with {open} open {turns}"));
        }
    }
    Ok(0)
}

fn runs_json(runs: &RunsReport) -> serde_json::Value {
    let by_status: serde_json::Map<_, _> =
        runs.counts.runs.iter().map(|(status, count)| (status.to_string(), json!(count))).collect();
    let problems: Vec<_> = runs.problems.iter().map(|problem| {
        json!({"run": problem.run, "mission": problem.mission, "problem": problem.kind.name(), "what_to_do": advice(problem)})
    }).collect();
    json!({
        "by_status": by_status,
        "expired_leases": runs.counts.expired_leases,
        "open_questions": runs.counts.open_questions,
        "problems": problems,
    })
}

/// The runs as text; nothing if the store has none.
fn format_runs(runs: &RunsReport) -> String {
    if runs.counts.runs.is_empty() {
        return String::new();
    }
    let counts: Vec<String> = runs.counts.runs.iter().map(|(status, count)| format!("{count} {status}")).collect();
    let mut text = format!("runs of missions: {}\n", counts.join(", "));
    if runs.counts.expired_leases > 0 {
        let _ = writeln!(text, "  expired leases: {}", runs.counts.expired_leases);
    }
    if runs.counts.open_questions > 0 {
        let _ = writeln!(text, "  open questions: {}", runs.counts.open_questions);
    }
    for problem in &runs.problems {
        let mission = problem.mission.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        let line = format!("{}{mission}: {}", problem.run, advice(problem));
        let _ = writeln!(text, "run {}", single_line(&line));
    }
    text
}

/// What is wrong with a run, and what to do.
fn advice(problem: &RunProblem) -> String {
    let run = &problem.run;
    match &problem.kind {
        RunProblemKind::Unattended { lost } => {
            let lost = lost.as_ref().map(|owner| format!("; {owner} has ended or hangs")).unwrap_or_default();
            format!("no process works on it{lost}; continue it with `segue mission resume {run}`")
        }
        RunProblemKind::Questions(count) => format!(
            "waits for {count} answer(s); read the questions with `segue mission show {run}`, and answer with \
             `segue mission answer {run} TEXT`"
        ),
        RunProblemKind::Answered => {
            format!("its questions are answered; continue it with `segue mission resume {run}`")
        }
        RunProblemKind::Unreadable(reason) => format!(
            "cannot be read: {reason}; restore the store from a backup, or end the run with `segue mission cancel {run}` [S0102]"
        ),
    }
}

/// Seconds since a turn was accepted.
fn age(open: &UnfinishedTurnSummary, now: Timestamp) -> i64 {
    now.since(open.at).max(0) / 1_000_000
}

fn problem_json(problem: &ConversationProblem, now: Timestamp) -> serde_json::Value {
    let open = problem.unfinished_turns.iter();
    let open: Vec<_> = open.map(|turn| {
        json!({"turn": turn.turn, "accepted": turn.at, "age_seconds": age(turn, now), "attempts": turn.attempts})
    }).collect();
    json!({
        "conversation": problem.conversation,
        "open": open,
        "undelivered": problem.pending_replies,
        "damage": problem.corruption,
    })
}

fn format_problem(problem: &ConversationProblem, now: Timestamp) -> String {
    let mut text = format!("{}\n", single_line(problem.conversation.as_str()));
    for open in &problem.unfinished_turns {
        let since = open.at.to_utc().format("%Y-%m-%d %H:%M:%S");
        let _ = writeln!(
            text,
            "  turn {}: open since {since} UTC ({}){}",
            open.turn.0,
            format_age(age(open, now)),
            format_attempts(open.attempts)
        );
    }
    if problem.pending_replies > 0 {
        let _ = writeln!(text, "  {} replies are not delivered", problem.pending_replies);
    }
    if let Some(damage) = &problem.corruption {
        let _ = writeln!(text, "  cannot be read: {}", single_line(damage));
    }
    text
}

/// The number of attempts of a turn.
pub(super) fn format_attempts(attempts: u32) -> String {
    match attempts {
        0 => ", not tried yet".to_owned(),
        1 => ", tried once".to_owned(),
        _ => format!(", tried {attempts} times"),
    }
}

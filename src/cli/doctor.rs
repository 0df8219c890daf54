//! `segue doctor`: lists stuck and damaged conversations of a store, closes open turns, and deletes conversations.

use std::fmt::Write as _;

use segue::{
    ConversationId, Timestamp,
    clock::{Clock, SystemClock},
    limits,
    runtime::Assistant,
    store::{self, ConversationProblem, StoreError, UnfinishedTurnSummary},
};
use serde_json::json;

use super::{
    CommandResult, EXIT_ERROR, EXIT_FINDINGS, EXIT_USAGE,
    check::Format,
    output,
    project_args::{ProjectArgs, describe_build_error},
};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: DoctorCommand,
}

#[derive(clap::Subcommand)]
enum DoctorCommand {
    /// List conversations with open turns, undelivered replies or damage; works while a server runs
    List(List),
    /// End the open turns of a conversation with one message to the user, without another attempt
    Close(Close),
    /// Delete everything that is stored about a conversation
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
fn open_for_writing(project: &ProjectArgs, store: Option<&str>) -> anyhow::Result<Option<Assistant>> {
    let Some(opened) = project.open_to_read(store)? else { return Ok(None) };
    let store = store::open(&project.existing_location(store, &opened.project)?)?;
    Ok(Some(opened.builder.store(store).offline().build().map_err(describe_build_error)?))
}

async fn close(args: Close) -> CommandResult {
    let Some(assistant) = open_for_writing(&args.project, args.store.as_deref())? else { return Ok(EXIT_FINDINGS) };
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
    let Some(assistant) = open_for_writing(&args.project, args.store.as_deref())? else { return Ok(EXIT_FINDINGS) };
    let id = ConversationId::from(args.id.as_str());
    let store = assistant.store();
    // A damaged conversation exists, too.
    let exists = match (store.load(&id).await, store.unfinished_turns(&id).await) {
        (Err(StoreError::Corrupt { .. }), _) | (_, Err(StoreError::Corrupt { .. })) => true,
        (loaded, open) => loaded?.version.0 > 0 || !open?.is_empty(),
    };
    if exists {
        assistant.erase(&id).await?;
        output::println(&format!("conversation {} was deleted", single_line(&args.id)))?;
    } else {
        output::status(&format!("there is no conversation {}", single_line(&args.id)));
    }
    assistant.close(limits::SOURCE_CLOSE_TIMEOUT).await;
    Ok(if exists { 0 } else { EXIT_USAGE })
}

async fn list(args: List) -> CommandResult {
    let Some(opened) = args.project.open_to_read(args.store.as_deref())? else { return Ok(EXIT_FINDINGS) };
    let store = args.project.open_existing_store(args.store.as_deref(), &opened.project)?;
    let problems = store.problems().await?;
    let now = SystemClock.now();
    match args.format {
        Format::Json => {
            let all: Vec<_> = problems.iter().map(|problem| problem_json(problem, now)).collect();
            output::println(&json!({"conversations": all}).to_string())?;
        }
        Format::Text if problems.is_empty() => {
            output::println("no conversation has open turns, undelivered replies or damage")?;
        }
        Format::Text => {
            output::print(&problems.iter().map(|problem| format_problem(problem, now)).collect::<String>())?;
            let (count, open) =
                (problems.len(), problems.iter().map(|problem| problem.unfinished_turns.len()).sum::<usize>());
            let (conversations, turns) =
                (if count == 1 { "conversation" } else { "conversations" }, if open == 1 { "turn" } else { "turns" });
            output::status(&format!("{count} {conversations}, with {open} open {turns}"));
        }
    }
    Ok(0)
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

/// Text of a user or model on one line, without control characters.
fn single_line(text: &str) -> String {
    output::strip_control_characters(text).replace(['\n', '\t'], " ")
}

/// A duration in a suitable unit.
fn format_age(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

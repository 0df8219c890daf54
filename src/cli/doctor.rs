//! `segue doctor`: what is stuck in a store.

use std::fmt::Write as _;

use segue::{
    Timestamp,
    clock::{Clock, SystemClock},
    store::{OpenTurn, Trouble},
};
use serde_json::json;

use super::{Done, FINDINGS, check::Format, out, place::Place};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Show conversations with open turns, undelivered replies or damage; works beside a server
    List(List),
}

#[derive(clap::Args)]
struct List {
    #[command(flatten)]
    place: Place,
    /// Where the conversations are, as in `sqlite:talks.db`; the project's store unless set
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// How it is shown
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(super) async fn doctor(args: Args) -> Done {
    match args.what {
        What::List(args) => list(args).await,
    }
}

async fn list(args: List) -> Done {
    let Some(opened) = args.place.open()? else { return Ok(FINDINGS) };
    let store = args.place.existing_store(args.store.as_deref(), &opened.project)?;
    let troubles = store.troubles().await?;
    let now = SystemClock.now();
    match args.format {
        Format::Json => {
            let all: Vec<_> = troubles.iter().map(|trouble| told(trouble, now)).collect();
            out::line(&json!({"conversations": all}).to_string())?;
        }
        Format::Text if troubles.is_empty() => {
            out::line("no conversation has open turns, undelivered replies or damage")?;
        }
        Format::Text => out::raw(&troubles.iter().map(|trouble| text(trouble, now)).collect::<String>())?,
    }
    Ok(0)
}

/// Seconds since a turn was accepted.
fn age(open: &OpenTurn, now: Timestamp) -> i64 {
    now.since(open.at).max(0) / 1_000_000
}

fn told(trouble: &Trouble, now: Timestamp) -> serde_json::Value {
    let open = trouble.open.iter();
    let open: Vec<_> =
        open.map(|turn| json!({"turn": turn.turn, "accepted": turn.at, "age_seconds": age(turn, now)})).collect();
    json!({
        "conversation": trouble.conversation,
        "open": open,
        "undelivered": trouble.undelivered,
        "damage": trouble.damage,
    })
}

fn text(trouble: &Trouble, now: Timestamp) -> String {
    let mut text = format!("{}\n", line(trouble.conversation.as_str()));
    for open in &trouble.open {
        let since = open.at.to_utc().format("%Y-%m-%d %H:%M:%S");
        let _ = writeln!(text, "  turn {}: open since {since} UTC ({})", open.turn.0, span(age(open, now)));
    }
    if trouble.undelivered > 0 {
        let _ = writeln!(text, "  {} replies are not delivered", trouble.undelivered);
    }
    if let Some(damage) = &trouble.damage {
        let _ = writeln!(text, "  cannot be read: {}", line(damage));
    }
    text
}

/// Text of others on one line.
fn line(text: &str) -> String {
    out::plain(text).replace(['\n', '\t'], " ")
}

/// A span of time as people say it.
fn span(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

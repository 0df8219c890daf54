//! `segue conversations`: lists the stored conversations, so that `trace`, `replay` and `chat --conversation` can be given an id.

use std::fmt::Write as _;

use segue::{
    conversation::EventKind,
    ids::ConversationId,
    store::{Store, StoreError},
};
use serde::Serialize;

use super::{CommandResult, EXIT_FINDINGS, check::Format, output, project_args::ProjectArgs};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    project: ProjectArgs,
    /// The store, as in `sqlite:conversations.db`; the project's store unless set
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// How many are listed, the most recently active first
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// The output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// One line of the list.
#[derive(Serialize)]
struct Row {
    id: String,
    /// The number of the latest turn; 0 when no turn is finished.
    turns: u64,
    /// When its latest event happened, in RFC 3339; absent when no turn is finished, or the conversation cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_active: Option<String>,
    /// What the user wrote last.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_message: Option<String>,
    /// Why the conversation cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    corrupt: Option<String>,
}

/// Lists the conversations. Works beside a running server.
pub(super) async fn conversations(args: Args) -> CommandResult {
    let Some(opened) = args.project.open_to_read(args.store.as_deref())? else { return Ok(EXIT_FINDINGS) };
    let store = args.project.open_existing_store(args.store.as_deref(), &opened.project)?;
    let mut rows = Vec::new();
    for id in store.conversations(args.limit).await? {
        rows.push(read(&*store, &id).await?);
    }
    match args.format {
        Format::Json => output::println(&serde_json::json!({ "conversations": rows }).to_string())?,
        Format::Text if rows.is_empty() => output::status("the store holds no conversation"),
        Format::Text => output::print(&table(&rows))?,
    }
    Ok(0)
}

async fn read(store: &dyn Store, id: &ConversationId) -> Result<Row, StoreError> {
    let mut row = Row { id: id.to_string(), turns: 0, last_active: None, last_message: None, corrupt: None };
    let turns = match store.latest_turns(id, None, 1).await {
        Ok(turns) => turns,
        Err(StoreError::Corrupt { reason, .. }) => return Ok(Row { corrupt: Some(reason), ..row }),
        Err(error) => return Err(error),
    };
    if let Some(latest) = turns.first() {
        row.turns = latest.turn.0;
        row.last_active =
            latest.events.last().map(|event| event.at.to_utc().to_rfc3339_opts(chrono::SecondsFormat::Secs, true));
        row.last_message = latest.events.iter().rev().find_map(|event| match &event.kind {
            EventKind::User(user) => Some(user.text.to_string()),
            _ => None,
        });
    }
    Ok(row)
}

/// The list as aligned columns.
fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.id.chars().count()).max().unwrap_or(0).max(2);
    let mut text = format!("{:<width$}  {:>5}  {:<20}  last message\n", "id", "turns", "last active");
    for row in rows {
        let shown = match (&row.corrupt, &row.last_message) {
            (Some(reason), _) => format!("cannot be read: {reason}"),
            (None, Some(message)) => excerpt(message),
            (None, None) => "-".to_owned(),
        };
        let active = row.last_active.as_deref().unwrap_or("-");
        let line = format!("{:<width$}  {:>5}  {active:<20}  {shown}", row.id, row.turns);
        let _ = writeln!(text, "{}", output::strip_control_characters(&line).replace('\n', " "));
    }
    text
}

/// The beginning of a message, on one line.
fn excerpt(message: &str) -> String {
    const LONGEST: usize = 60;
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

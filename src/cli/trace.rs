//! `segue trace`: explains the turns of a stored conversation. The trace is computed from the record; no model or tool is called.

use std::fmt::Write as _;

use segue::runtime::{TraceEntry, TurnTrace};
use serde_json::Value as Json;

use super::{
    CommandResult, EXIT_FINDINGS, EXIT_USAGE,
    check::Format,
    output,
    project_args::{ProjectArgs, describe_build_error},
};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The conversation
    id: String,
    #[command(flatten)]
    project: ProjectArgs,
    /// Only this turn
    #[arg(long, value_name = "N")]
    turn: Option<u64>,
    /// The store, as in `sqlite:conversations.db`
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(super) async fn trace(args: Args) -> CommandResult {
    let Some(opened) = args.project.open()? else { return Ok(EXIT_FINDINGS) };
    let store = args.project.open_existing_store(args.store.as_deref(), &opened.project)?;
    let assistant = opened.builder.store(store).offline().build().map_err(describe_build_error)?;
    let traces = assistant.trace(&args.id.as_str().into(), args.turn).await?;
    if let (true, Some(turn)) = (traces.is_empty(), args.turn) {
        output::status(&format!("the conversation {} has no turn {turn}", args.id));
        return Ok(EXIT_USAGE);
    }
    match args.format {
        Format::Json => output::println(&serde_json::to_string(&traces)?)?,
        Format::Text => output::print(&traces.iter().map(text).collect::<String>())?,
    }
    Ok(0)
}

/// The trace of one turn as text.
fn text(trace: &TurnTrace) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "turn {}: {}", trace.turn, trace.message);
    for reason in &trace.why {
        let _ = writeln!(text, "  why     {reason}");
    }
    for seen in &trace.seen {
        let _ = writeln!(text, "  {}", format_entry(seen));
    }
    for step in &trace.steps {
        let after = step.after.map_or("no outcome".to_owned(), |after| format!("after {after:.1} ms"));
        let _ = writeln!(text, "  step    {} ({}) {after}", step.key, step.kind);
        for news in &step.news {
            let of = news.total.map(|total| format!(" of {total}")).unwrap_or_default();
            let said = news.message.as_deref().map(|said| format!(": {said:?}")).unwrap_or_default();
            let _ = writeln!(text, "  news    {} told {}{of} after {} ms{said}", step.key, news.done, news.after);
        }
    }
    for event in &trace.events {
        let _ = writeln!(text, "  event   {}", serde_json::to_string(event).unwrap_or_default());
    }
    if !trace.used.is_empty() {
        let _ = writeln!(text, "  used    {}; so far {}", trace.used, trace.used_so_far);
    }
    for (code, reason) in &trace.failures {
        let _ = writeln!(text, "  failure {reason} [{code}]");
    }
    text.push('\n');
    output::strip_control_characters(&text).into_owned()
}

/// One request or response of the turn as text.
fn format_entry(seen: &TraceEntry) -> String {
    match seen {
        TraceEntry::ModelRequest { key, purpose, messages, tools } => {
            let mut text = format!("asked   {key} for {purpose}");
            if !tools.is_empty() {
                let _ = write!(text, ", tools: {}", tools.join(", "));
            }
            for message in messages {
                let role = message.get("role").and_then(Json::as_str).unwrap_or("?");
                let content =
                    message.get("text").and_then(Json::as_str).map_or_else(|| message.to_string(), str::to_owned);
                let _ = write!(text, "\n          {role}: {}", content.replace('\n', "\n          | "));
            }
            text
        }
        TraceEntry::ModelResponse { key, answer } => format!("heard   {key}: {answer}"),
        TraceEntry::CommandsRead { key, notes } => {
            let notes: Vec<String> = notes.iter().map(|note| format!("\n          left out: {note}")).collect();
            format!("read    {key}:{}", notes.concat())
        }
        TraceEntry::FlowsChosen { key, by_meaning, flows_from_semantic_search, flows_in_prompt, trouble } => {
            let mut text = format!("chose   {key}: {}", format_ranking(flows_from_semantic_search, *by_meaning));
            let _ = write!(text, "\n          in the prompt: {}", flows_in_prompt.join(", "));
            if let Some(trouble) = trouble {
                let _ = write!(text, "\n          {trouble}");
            }
            text
        }
        TraceEntry::DocumentsSearched { key, question, by_meaning, found, notes } => {
            let mut text = format!("looked  {key}: {}", format_ranking(found, *by_meaning));
            let _ = write!(text, "\n          for: {}", question.replace('\n', "\n          | "));
            for note in notes {
                let _ = write!(text, "\n          {note}");
            }
            text
        }
        TraceEntry::ToolCall { key, tool, arguments } => format!("called  {key}: {tool} {arguments}"),
    }
}

/// Search results with their scores, best first.
fn format_ranking(found: &[(String, f32)], by_meaning: bool) -> String {
    let by = if by_meaning { "by embeddings and keywords" } else { "by keywords" };
    let found: Vec<String> = found.iter().map(|(name, near)| format!("{name} {near:.2}")).collect();
    format!("{by}: {}", if found.is_empty() { "nothing".to_owned() } else { found.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_commands_are_listed_below_their_step() {
        let notes = vec!["line 1, column 12: \"start flow heist\": there is no such flow to start".to_owned()];
        let shown = format_entry(&TraceEntry::CommandsRead { key: "1/0/understand".to_owned(), notes: notes.clone() });
        assert_eq!(shown, format!("read    1/0/understand:\n          left out: {}", notes.concat()));
    }
}

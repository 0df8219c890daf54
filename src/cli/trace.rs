//! `segue trace`: explains stored turns from the journal. No model, tool or server is called.

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
    /// The conversation; `segue conversations` lists the ids
    id: String,
    #[command(flatten)]
    place: ProjectArgs,
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
    let Some(opened) = args.place.open()? else { return Ok(EXIT_FINDINGS) };
    let store = args.place.open_existing_store(args.store.as_deref(), &opened.project)?;
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

/// One turn as text: a line for each entry, which begins with what the entry is.
fn text(trace: &TurnTrace) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "turn {}: {}", trace.turn, trace.message);
    for reason in &trace.why {
        entry(&mut text, "reason", &reason.to_string());
    }
    for seen in &trace.seen {
        let (label, shown) = effect(seen);
        entry(&mut text, label, &shown);
    }
    for step in &trace.steps {
        let after = step.after.map_or("no outcome".to_owned(), |after| format!("after {after:.1} ms"));
        entry(&mut text, "step", &format!("{} ({}) {after}", step.key, step.kind));
        for progress in &step.news {
            let total = progress.total.map(|total| format!(" of {total}")).unwrap_or_default();
            let message = progress.message.as_deref().map(|message| format!(": {message:?}")).unwrap_or_default();
            entry(
                &mut text,
                "progress",
                &format!("{} {}{total} after {} ms{message}", step.key, progress.done, progress.after),
            );
        }
    }
    for event in &trace.events {
        entry(&mut text, "event", &serde_json::to_string(event).unwrap_or_default());
    }
    if !trace.used.is_empty() {
        entry(&mut text, "usage", &format!("{}; conversation so far {}", trace.used, trace.used_so_far));
    }
    for (code, reason) in &trace.failures {
        entry(&mut text, "failure", &format!("{reason} [{code}]"));
    }
    text.push('\n');
    output::strip_control_characters(&text).into_owned()
}

/// Adds an entry; its further lines are indented below the first.
fn entry(text: &mut String, label: &str, shown: &str) {
    let _ = writeln!(text, "  {label:<8} {}", shown.replace('\n', "\n           "));
}

/// The label of a recorded effect, and its text.
fn effect(entry: &TraceEntry) -> (&'static str, String) {
    match entry {
        TraceEntry::ModelRequest { key, purpose, messages, tools } => {
            let mut text = format!("{key} for {purpose}");
            if !tools.is_empty() {
                let _ = write!(text, ", tools: {}", tools.join(", "));
            }
            for message in messages {
                let role = message.get("role").and_then(Json::as_str).unwrap_or("?");
                let content =
                    message.get("text").and_then(Json::as_str).map_or_else(|| message.to_string(), str::to_owned);
                let _ = write!(text, "\n{role}: {}", content.replace('\n', "\n| "));
            }
            ("request", text)
        }
        TraceEntry::ModelResponse { key, answer } => ("response", format!("{key}: {answer}")),
        TraceEntry::CommandsRead { key, notes } => {
            let notes: Vec<String> = notes.iter().map(|note| format!("\ndropped: {note}")).collect();
            ("commands", format!("{key}:{}", notes.concat()))
        }
        TraceEntry::FlowsChosen { key, by_meaning, flows_from_semantic_search, flows_in_prompt, trouble } => {
            let mut text = format!("{key}: {}", ranking(flows_from_semantic_search, *by_meaning));
            let _ = write!(text, "\nin the prompt: {}", flows_in_prompt.join(", "));
            if let Some(trouble) = trouble {
                let _ = write!(text, "\n{trouble}");
            }
            ("flows", text)
        }
        TraceEntry::DocumentsSearched { key, question, by_meaning, found, notes } => {
            let mut text = format!("{key}: {}", ranking(found, *by_meaning));
            let _ = write!(text, "\nquery: {}", question.replace('\n', "\n| "));
            for note in notes {
                let _ = write!(text, "\n{note}");
            }
            ("search", text)
        }
        TraceEntry::ToolCall { key, tool, arguments } => ("tool", format!("{key}: {tool} {arguments}")),
    }
}

/// Search results, best first, with their scores.
fn ranking(found: &[(String, f32)], by_meaning: bool) -> String {
    let by = if by_meaning { "by embeddings and keywords" } else { "by keywords" };
    let found: Vec<String> = found.iter().map(|(name, score)| format!("{name} {score:.2}")).collect();
    format!("{by}: {}", if found.is_empty() { "nothing".to_owned() } else { found.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_commands_are_listed_below_their_step() {
        let notes = vec!["line 1, column 12: \"start flow heist\": there is no such flow to start".to_owned()];
        let (label, shown) =
            effect(&TraceEntry::CommandsRead { key: "1/0/understand".to_owned(), notes: notes.clone() });
        let mut text = String::new();
        entry(&mut text, label, &shown);
        assert_eq!(text, format!("  commands 1/0/understand:\n           dropped: {}\n", notes.concat()));
    }
}

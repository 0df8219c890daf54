//! `segue trace`: why turns went as they did. Nothing is asked again: all of it stands in the record.

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

/// One turn for people.
fn text(trace: &TurnTrace) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "turn {}: {}", trace.turn, trace.message);
    for reason in &trace.reasons {
        let _ = writeln!(text, "  why     {reason}");
    }
    for seen in &trace.entries {
        let _ = writeln!(text, "  {}", effect(seen));
    }
    for step in &trace.steps {
        let after = step.after_ms.map_or("no outcome".to_owned(), |after| format!("after {after:.1} ms"));
        let _ = writeln!(text, "  step    {} ({}) {after}", step.key, step.kind);
        for news in &step.progress {
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

fn effect(seen: &TraceEntry) -> String {
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
        TraceEntry::FlowsChosen {
            key,
            used_embeddings,
            flows_from_semantic_search,
            flows_in_prompt,
            embedding_error,
        } => {
            let mut text = format!("chose   {key}: {}", nearest(flows_from_semantic_search, *used_embeddings));
            let _ = write!(text, "\n          in the prompt: {}", flows_in_prompt.join(", "));
            if let Some(embedding_error) = embedding_error {
                let _ = write!(text, "\n          {embedding_error}");
            }
            text
        }
        TraceEntry::DocumentsSearched { key, query, used_embeddings, found, notes } => {
            let mut text = format!("looked  {key}: {}", nearest(found, *used_embeddings));
            let _ = write!(text, "\n          for: {}", query.replace('\n', "\n          | "));
            for note in notes {
                let _ = write!(text, "\n          {note}");
            }
            text
        }
        TraceEntry::ToolCall { key, tool, arguments } => format!("called  {key}: {tool} {arguments}"),
    }
}

/// What was found, best first, with how near it is.
fn nearest(found: &[(String, f32)], used_embeddings: bool) -> String {
    let by = if used_embeddings { "by embeddings and keywords" } else { "by keywords" };
    let found: Vec<String> = found.iter().map(|(name, near)| format!("{name} {near:.2}")).collect();
    format!("{by}: {}", if found.is_empty() { "nothing".to_owned() } else { found.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_of_an_answer_stands_below_its_step() {
        let notes = vec!["line 1, column 12: \"start flow heist\": there is no such flow to start".to_owned()];
        let shown = effect(&TraceEntry::CommandsRead { key: "1/0/understand".to_owned(), notes: notes.clone() });
        assert_eq!(shown, format!("read    1/0/understand:\n          left out: {}", notes.concat()));
    }
}

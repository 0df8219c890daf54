//! `segue trace`: explains stored turns from the journal. No model, tool or server is called.

use std::fmt::Write as _;

use segue::{
    ids::ConversationId,
    runtime::{ReplayError, TraceEntry, TurnTrace},
    store::{JournalRecord, UnfinishedTurn},
};
use serde_json::{Value as Json, json};

use super::{
    CommandResult, EXIT_FINDINGS, EXIT_USAGE,
    check::Format,
    doctor::format_attempts,
    output,
    project_args::{ProjectArgs, describe_build_error},
};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The conversation; `segue conversations` lists the ids
    id: String,
    #[command(flatten)]
    project: ProjectArgs,
    /// Only this turn
    #[arg(long, value_name = "N")]
    turn: Option<u64>,
    /// Also show the messages of the requests to models
    #[arg(long)]
    full: bool,
    /// The store, as in `sqlite:conversations.db`
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(super) async fn trace(args: Args) -> CommandResult {
    let Some(opened) = args.project.open_to_read(args.store.as_deref())? else { return Ok(EXIT_FINDINGS) };
    let store = args.project.open_existing_store(args.store.as_deref(), &opened.project)?;
    let assistant = opened.builder.store(store).offline().build().map_err(describe_build_error)?;
    let id = ConversationId::from(args.id.as_str());
    let mut open = assistant.store().unfinished_turns(&id).await?;
    let is_known = !open.is_empty();
    open.retain(|open| args.turn.is_none_or(|turn| open.turn.0 == turn));
    let traces = match assistant.trace(&id, args.turn).await {
        Err(ReplayError::Unknown(_)) if is_known => Vec::new(),
        traces => traces?,
    };
    if let (true, true, Some(turn)) = (traces.is_empty(), open.is_empty(), args.turn) {
        output::status(&format!("the conversation {} has no turn {turn}", args.id));
        return Ok(EXIT_USAGE);
    }
    match args.format {
        Format::Json => {
            let mut json = serde_json::to_value(&traces)?;
            json.as_array_mut().into_iter().flatten().for_each(add_former_names);
            json.as_array_mut().into_iter().for_each(|turns| turns.extend(open.iter().map(open_turn_json)));
            output::println(&json.to_string())?;
        }
        Format::Text => {
            let finished = traces.iter().map(|trace| text(trace, args.full));
            output::print(&finished.chain(open.iter().map(open_turn)).collect::<String>())?;
        }
    }
    Ok(0)
}

/// Former names of keys, and what they are called now.
const FORMER_KEYS: [(&str, &str); 3] =
    [("by_meaning", "used_embeddings"), ("trouble", "embedding_error"), ("question", "query")];
/// Former names of entries, and what they are called now.
const FORMER_ENTRIES: [(&str, &str); 6] = [
    ("asked", "model_request"),
    ("heard", "model_response"),
    ("read", "commands_read"),
    ("chose", "flows_chosen"),
    ("looked", "documents_searched"),
    ("called", "tool_call"),
];

/// Adds the keys that version 0.1 had under other names: `why`, `seen`, `used`, `used_so_far`, and `after` and `news` of steps. Version
/// 0.3 will not have them.
fn add_former_names(trace: &mut Json) {
    let Some(fields) = trace.as_object_mut() else { return };
    for step in
        fields.get_mut("steps").and_then(Json::as_array_mut).into_iter().flatten().filter_map(Json::as_object_mut)
    {
        for (former, now) in [("after", "after_ms"), ("news", "progress")] {
            if let Some(value) = step.get(now).cloned() {
                step.insert(former.to_owned(), value);
            }
        }
    }
    let mut seen = fields.get("entries").cloned().unwrap_or_default();
    for recorded in seen.as_array_mut().into_iter().flatten().filter_map(Json::as_object_mut) {
        if let Some(kind) = recorded.get("effect").and_then(Json::as_str)
            && let Some((former, _)) = FORMER_ENTRIES.iter().find(|(_, now)| *now == kind)
        {
            recorded.insert("effect".to_owned(), (*former).into());
        }
        for (former, now) in FORMER_KEYS {
            if let Some(value) = recorded.remove(now) {
                recorded.insert(former.to_owned(), value);
            }
        }
    }
    fields.insert("seen".to_owned(), seen);
    for (former, now) in [("why", "reasons"), ("used", "usage"), ("used_so_far", "usage_so_far")] {
        if let Some(value) = fields.get(now).cloned() {
            fields.insert(former.to_owned(), value);
        }
    }
}

/// A turn that is not finished, with its journal so far.
fn open_turn(open: &UnfinishedTurn) -> String {
    let number = open.turn.0;
    let message = open.inbound.message.text.as_ref();
    let mut text = format!("turn {number}: {message}\n");
    let attempts = format_attempts(open.attempts());
    entry(&mut text, "open", &format!("turn {number} is open, not finished{attempts}; its journal so far:"));
    for record in &open.journal {
        let outcome = if record.outcome.is_some() { "finished" } else { "no outcome" };
        entry(&mut text, "step", &format!("{} ({}) {outcome}", record.key, record.kind));
    }
    text.push('\n');
    output::strip_control_characters(&text).into_owned()
}

fn open_turn_json(open: &UnfinishedTurn) -> Json {
    let step =
        |record: &JournalRecord| json!({"key": record.key, "kind": record.kind, "finished": record.outcome.is_some()});
    json!({
        "turn": open.turn,
        "message": open.inbound.message.text,
        "open": true,
        "attempts": open.attempts(),
        "steps": open.journal.iter().map(step).collect::<Vec<_>>(),
    })
}

/// One turn as text: a line for each entry, which begins with what the entry is. `full`: with the messages of requests.
fn text(trace: &TurnTrace, full: bool) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "turn {}: {}", trace.turn, trace.message);
    if trace.project_differs {
        entry(&mut text, "reason", "the project differs from the recorded turn; reasons are left out");
    }
    for reason in &trace.reasons {
        entry(&mut text, "reason", &reason.to_string());
    }
    for recorded in &trace.entries {
        let (label, shown) = effect(recorded, full);
        entry(&mut text, label, &shown);
    }
    for step in &trace.steps {
        let after = step.after_ms.map_or("no outcome".to_owned(), |after| format!("after {after:.1} ms"));
        entry(&mut text, "step", &format!("{} ({}) {after}", step.key, step.kind));
        for progress in &step.progress {
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
    if !trace.usage.is_empty() {
        entry(&mut text, "usage", &format!("{}; conversation so far {}", trace.usage, trace.usage_so_far));
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
fn effect(entry: &TraceEntry, full: bool) -> (&'static str, String) {
    match entry {
        TraceEntry::ModelRequest { key, purpose, messages, tools } => {
            let mut text = format!("{key} for {purpose}");
            if !tools.is_empty() {
                let _ = write!(text, ", tools: {}", tools.join(", "));
            }
            if !full {
                let bytes: usize = messages.iter().map(|message| message_text(message).len()).sum();
                let (count, noun) = (messages.len(), if messages.len() == 1 { "message" } else { "messages" });
                let _ = write!(text, ": {count} {noun}, {bytes} bytes (`--full` shows them)");
                return ("request", text);
            }
            for message in messages {
                let role = message.get("role").and_then(Json::as_str).unwrap_or("?");
                let _ = write!(text, "\n{role}: {}", message_text(message).replace('\n', "\n| "));
            }
            ("request", text)
        }
        TraceEntry::ModelResponse { key, answer } => ("response", format!("{key}: {answer}")),
        TraceEntry::CommandsRead { key, notes } => {
            let notes: Vec<String> = notes.iter().map(|note| format!("\ndropped: {note}")).collect();
            ("commands", format!("{key}:{}", notes.concat()))
        }
        TraceEntry::FlowsChosen {
            key,
            used_embeddings,
            flows_from_semantic_search,
            flows_in_prompt,
            embedding_error,
        } => {
            let mut text = format!("{key}: {}", ranking(flows_from_semantic_search, *used_embeddings));
            let _ = write!(text, "\nin the prompt: {}", flows_in_prompt.join(", "));
            if let Some(error) = embedding_error {
                let _ = write!(text, "\n{error}");
            }
            ("flows", text)
        }
        TraceEntry::DocumentsSearched { key, query, used_embeddings, found, notes } => {
            let mut text = format!("{key}: {}", ranking(found, *used_embeddings));
            let _ = write!(text, "\nquery: {}", query.replace('\n', "\n| "));
            for note in notes {
                let _ = write!(text, "\n{note}");
            }
            ("search", text)
        }
        TraceEntry::ToolCall { key, tool, arguments } => ("tool", format!("{key}: {tool} {arguments}")),
    }
}

/// The text of a message of a request; its JSON if it has none.
fn message_text(message: &Json) -> String {
    message.get("text").and_then(Json::as_str).map_or_else(|| message.to_string(), str::to_owned)
}

/// Search results, best first, with their scores.
fn ranking(found: &[(String, f32)], used_embeddings: bool) -> String {
    let by = if used_embeddings { "by embeddings and keywords" } else { "by keywords" };
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
            effect(&TraceEntry::CommandsRead { key: "1/0/understand".to_owned(), notes: notes.clone() }, false);
        let mut text = String::new();
        entry(&mut text, label, &shown);
        assert_eq!(text, format!("  commands 1/0/understand:\n           dropped: {}\n", notes.concat()));
    }

    #[test]
    fn json_has_the_former_names_beside_the_new_ones() {
        let mut trace = serde_json::json!({
            "reasons": [1],
            "entries": [{"effect": "documents_searched", "query": "pets", "used_embeddings": false}],
            "steps": [{"key": "1", "after_ms": 2.5}],
            "usage": {"answers": 1},
        });
        add_former_names(&mut trace);
        assert_eq!(trace["why"], serde_json::json!([1]));
        assert_eq!(trace["seen"], serde_json::json!([{"effect": "looked", "question": "pets", "by_meaning": false}]));
        assert_eq!((&trace["steps"][0]["after"], &trace["used"]["answers"]), (&2.5.into(), &1.into()));
        assert_eq!(trace["entries"][0]["effect"], "documents_searched");
    }
}

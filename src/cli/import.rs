//! `segue import`: imports conversations from a tracker store of Rasa or a file of events.

use segue::{
    import::{self, ImportReport},
    store,
};

use super::{CommandResult, EXIT_ERROR, EXIT_FINDINGS, check::Format, output, project_args::ProjectArgs};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    project: ProjectArgs,
    /// The source: `sqlite:///tracker.db`, or a file with one JSON event on each line
    #[arg(long, value_name = "SOURCE")]
    from: String,
    /// The destination, as in `sqlite:conversations.db`; the project's store unless set
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// Reads the whole source, then writes the conversations. Conversations that exist already are not changed.
pub(super) async fn import(args: Args) -> CommandResult {
    let Some(opened) = args.project.open()? else { return Ok(EXIT_FINDINGS) };
    let location = args.project.location(args.store.as_deref(), &opened.project)?;
    if location == store::StoreLocation::Memory {
        output::status("a store in memory ends with its process; pass a file with `--store`");
        return Ok(EXIT_ERROR);
    }
    let export = import::read(&args.from)?;
    let store = store::open(&location)?;
    let report = import::import_conversations(export, &opened.project, &store).await?;
    store.close().await?;
    match args.format {
        Format::Json => output::println(&serde_json::to_string(&report)?)?,
        Format::Text => output::print(&format_report(&report))?,
    }
    Ok(0)
}

fn format_report(report: &ImportReport) -> String {
    let ImportReport { conversations, events, in_progress, .. } = report;
    let mut out = format!("{conversations} conversations with {events} events were imported\n");
    let mut add = |line: String| out.push_str(&line);
    if !report.existing.is_empty() {
        add(format!("{} conversations exist already and were not changed\n", report.existing.len()));
    }
    if *in_progress > 0 {
        add(format!("{in_progress} conversations have a flow in progress; it is not resumed, its slots are kept\n"));
    }
    for (title, counts) in [
        ("events without an effect in Segue, stored unchanged", &report.unsupported_events),
        ("slots that the project does not have", &report.unknown_slots),
        ("flows that the project does not have", &report.unknown_flows),
    ] {
        if !counts.is_empty() {
            let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
            add(format!("{title}: {}\n", output::strip_control_characters(&counts.join(", "))));
        }
    }
    if !report.skipped_rows.is_empty() {
        add(format!("{} rows were skipped:\n", report.skipped_rows.len()));
        report.skipped_rows.iter().for_each(|row| add(format!("  {}\n", output::strip_control_characters(row))));
    }
    out
}

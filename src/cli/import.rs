//! `segue import`: conversations of another store.

use segue::{
    import::{self, ImportReport},
    store,
};

use super::{CommandResult, EXIT_ERROR, EXIT_FINDINGS, check::Format, output, project_args::ProjectArgs};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: ProjectArgs,
    /// Where they are: `sqlite:///tracker.db`, or a file with one event as JSON on each line
    #[arg(long, value_name = "SOURCE")]
    from: String,
    /// Where they go, as in `sqlite:talks.db`; the project's store unless set
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// How the report is shown
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// Reads everything, then writes one conversation after another. Those that are there already stay as they are.
pub(super) async fn import(args: Args) -> CommandResult {
    let Some(opened) = args.place.open()? else { return Ok(EXIT_FINDINGS) };
    let location = args.place.location(args.store.as_deref(), &opened.project)?;
    if location == store::StoreLocation::Memory {
        output::status("a store in memory ends with this process; name a file with `--store`");
        return Ok(EXIT_ERROR);
    }
    let export = import::read(&args.from)?;
    let store = store::open(&location)?;
    let report = import::import_conversations(export, &opened.project, &store).await?;
    store.close().await?;
    match args.format {
        Format::Json => output::println(&serde_json::to_string(&report)?)?,
        Format::Text => output::print(&told(&report))?,
    }
    Ok(0)
}

fn told(report: &ImportReport) -> String {
    let ImportReport { conversations, events, in_progress, .. } = report;
    let mut out = format!("{conversations} conversations with {events} events were brought over\n");
    let mut add = |line: String| out.push_str(&line);
    if !report.existing.is_empty() {
        add(format!("{} conversations are here already and stay as they are\n", report.existing.len()));
    }
    if *in_progress > 0 {
        add(format!("{in_progress} stood in the middle of a flow: it begins anew, with the values that were given\n"));
    }
    for (what, counts) in [
        ("events are kept as they are, without an effect here", &report.unsupported_events),
        ("slots are not in the project", &report.unknown_slots),
        ("flows are not in the project", &report.unknown_flows),
    ] {
        if !counts.is_empty() {
            let each: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
            add(format!("{what}: {}\n", output::strip_control_characters(&each.join(", "))));
        }
    }
    if !report.skipped_rows.is_empty() {
        add(format!("{} rows were left out:\n", report.skipped_rows.len()));
        report.skipped_rows.iter().for_each(|row| add(format!("  {}\n", output::strip_control_characters(row))));
    }
    out
}

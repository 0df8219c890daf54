//! `segue mcp`: the assistant as an MCP server for one host, on standard input and output.

use std::convert::Infallible;

use segue::{
    channels::{
        Channel, Inbox,
        mcp::{McpServerChannel, McpServerSettings, NAME},
    },
    limits,
    runtime::{Assistant, OutboxSink},
    store::{self, StoreLocation},
};

use super::{
    CommandResult, EXIT_ERROR, EXIT_FINDINGS, EXIT_USAGE,
    logging::log,
    output,
    project_args::{ProjectArgs, describe_build_error},
    stop_on_signal,
};

#[derive(clap::Args)]
#[group(skip)]
pub(super) struct Args {
    #[command(flatten)]
    place: ProjectArgs,
    /// Where the talks are kept: `memory`, or a file as in `sqlite:talks.db`
    #[arg(long, value_name = "URL", default_value = "memory")]
    store: String,
    /// Put questions to the person behind the host, where the host can ask; also `mcp: {elicitation: true}` in credentials.yml
    #[arg(long)]
    elicit: bool,
}

/// Nothing but the protocol goes to standard output.
pub(super) async fn serve(args: Args) -> CommandResult {
    log("warn")?;
    let Some(opened) = args.place.open()? else { return Ok(EXIT_FINDINGS) };
    opened.warn_about_scripted_models();
    let entry = opened.project.credentials.get(NAME).cloned().unwrap_or_default();
    let mut settings = match McpServerSettings::new(&entry, &opened.project) {
        Ok(settings) => settings,
        Err(problem) => {
            output::status(&format!("credentials.yml: `{NAME}`: {problem} [C0101]"));
            return Ok(EXIT_USAGE);
        }
    };
    settings.elicits |= args.elicit;
    let location = StoreLocation::parse(&args.store)?;
    let store = store::open(&location)?;
    let assistant = opened.builder.store(store).build().map_err(describe_build_error)?;
    if std::io::IsTerminal::is_terminal(&std::io::stdin()) {
        output::status(
            "`segue mcp` speaks MCP over stdio and is started by an MCP client. To chat yourself, run `segue chat`",
        );
    }
    let channel = McpServerChannel::new(settings).over_stdio();
    let served = {
        tokio::select! {
            served = channel.run(Inbox::new(assistant.clone(), NAME), stop_on_signal()) => served,
            // The reminders of other conversations are for a server to fire.
            () = assistant.run_reminders(&|_, _| Box::new(OutboxSink)), if location == StoreLocation::Memory => Ok(()),
            // Sources connect while the host is served already; a call that needs one waits for it.
            never = connected(&assistant) => match never {},
        }
    };
    assistant.close(limits::DRAIN_TIMEOUT).await;
    match served {
        Ok(()) => Ok(0),
        Err(problem) => {
            output::status(&problem.to_string());
            Ok(EXIT_ERROR)
        }
    }
}

/// Connects to every source, and stays.
async fn connected(assistant: &Assistant) -> Infallible {
    assistant.connect().await;
    std::future::pending().await
}

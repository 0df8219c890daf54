//! `segue mcp`: serves the assistant to one MCP client, over standard input and output.

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
    logging::init_logging,
    output,
    project_args::{ProjectArgs, describe_build_error},
    stop_on_signal,
};

#[derive(clap::Args)]
#[group(skip)]
pub(super) struct Args {
    #[command(flatten)]
    project: ProjectArgs,
    /// The store: `memory`, or a file as in `sqlite:conversations.db`
    #[arg(long, value_name = "URL", default_value = "memory")]
    store: String,
    /// Ask the user with elicitation requests, if the client supports them; as `mcp: {elicitation: true}` in credentials.yml
    #[arg(long = "elicit")]
    elicitation: bool,
}

/// Serves until the client closes the connection or the process gets a signal. Standard output contains only messages of the protocol.
pub(super) async fn serve(args: Args) -> CommandResult {
    init_logging("warn")?;
    let Some(opened) = args.project.open()? else { return Ok(EXIT_FINDINGS) };
    opened.warn_about_scripted_models();
    let entry = opened.project.credentials.get(NAME).cloned().unwrap_or_default();
    let mut settings = match McpServerSettings::new(&entry, &opened.project) {
        Ok(settings) => settings,
        Err(problem) => {
            output::status(&format!("credentials.yml: `{NAME}`: {problem} [C0101]"));
            return Ok(EXIT_USAGE);
        }
    };
    settings.elicits |= args.elicitation;
    let location = StoreLocation::parse(&args.store)?;
    let stores = store::open_stores(&location)?;
    let assistant =
        opened.builder.store(stores.conversations).runs(stores.runs).build().map_err(describe_build_error)?;
    if std::io::IsTerminal::is_terminal(&std::io::stdin()) {
        output::status(
            "`segue mcp` speaks MCP over stdio and is started by an MCP client. To chat yourself, run `segue chat`",
        );
    }
    let channel = McpServerChannel::new(settings).over_stdio();
    let result = {
        tokio::select! {
            result = channel.run(Inbox::new(assistant.clone(), NAME), stop_on_signal()) => result,
            // Only for a store in memory: in a file, reminders of other conversations belong to a server.
            () = assistant.run_reminders(&|_, _| Box::new(OutboxSink)), if location == StoreLocation::Memory => Ok(()),
            // Tool servers connect while the client is served already; a call that needs one waits for it.
            never = connect(&assistant) => match never {},
        }
    };
    assistant.close(limits::DRAIN_TIMEOUT).await;
    match result {
        Ok(()) => Ok(0),
        Err(problem) => {
            output::status(&problem.to_string());
            Ok(EXIT_ERROR)
        }
    }
}

/// Connects to all tool servers. Never returns, so that it does not end the serving.
async fn connect(assistant: &Assistant) -> Infallible {
    assistant.connect().await;
    std::future::pending().await
}

//! `segue mcp`: the assistant as an MCP server for one host, on standard input and output.

use std::convert::Infallible;

use segue::{
    channels::mcp::{self, Desk, Offer},
    limits,
    runtime::{Assistant, Outbox},
    server,
    store::{self, StoreLocation},
};

use super::{
    COULD_NOT_RUN, Done, FINDINGS, USAGE,
    logging::log,
    out,
    place::{Place, cannot_build},
};

#[derive(clap::Args)]
#[group(skip)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    /// Where the talks are kept: `memory`, or a file as in `sqlite:talks.db`
    #[arg(long, value_name = "URL", default_value = "memory")]
    store: String,
    /// Put questions to the person behind the host, where the host can ask; also `mcp: {elicitation: true}` in credentials.yml
    #[arg(long)]
    elicit: bool,
}

/// Nothing but the protocol goes to standard output.
pub(super) async fn offer(args: Args) -> Done {
    log("warn")?;
    let Some(opened) = args.place.open()? else { return Ok(FINDINGS) };
    opened.name_scripted_models();
    let channel = opened.project.credentials.get(mcp::NAME).cloned().unwrap_or_default();
    let mut offer = match Offer::new(&channel, &opened.project) {
        Ok(offer) => offer,
        Err(problem) => {
            out::note(&format!("credentials.yml: `{}`: {problem} [C0101]", mcp::NAME));
            return Ok(USAGE);
        }
    };
    offer.elicits |= args.elicit;
    let location = StoreLocation::parse(&args.store)?;
    let store = store::open(&location)?;
    let assistant = opened.builder.store(store).build().map_err(cannot_build)?;
    if std::io::IsTerminal::is_terminal(&std::io::stdin()) {
        out::note(
            "this speaks MCP on standard input, one message a line: a host starts it. To talk yourself: `segue chat`",
        );
    }
    let desk = Desk::new(&assistant, offer);
    let served = {
        tokio::select! {
            served = desk.serve_stdio(server::end_asked()) => served,
            // The reminders of other conversations are for a server to fire.
            () = assistant.timers(&|_, _| Box::new(Outbox)), if location == StoreLocation::Memory => Ok(()),
            // Sources connect while the host is served already; a call that needs one waits for it.
            never = connected(&assistant) => match never {},
        }
    };
    assistant.close(limits::DRAIN).await;
    match served {
        Ok(()) => Ok(0),
        Err(problem) => {
            out::note(&problem);
            Ok(COULD_NOT_RUN)
        }
    }
}

/// Connects to every source, and stays.
async fn connected(assistant: &Assistant) -> Infallible {
    assistant.connect().await;
    std::future::pending().await
}

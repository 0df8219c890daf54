//! `segue run`: the server.

use std::{net::IpAddr, sync::Arc};

use segue::{
    channels::{self, BearerToken, Channel, ChannelError, ChannelOptions},
    environment, failpoint,
    health::Health,
    limits,
    project::Project,
    runtime::{Assistant, Outbox},
    server,
    server::{ServerSettings, listen},
    store,
};
use tokio_util::sync::CancellationToken;

use super::{
    CommandResult, EXIT_ERROR, EXIT_FINDINGS, EXIT_USAGE,
    logging::log,
    output,
    project_args::{ProjectArgs, describe_build_error},
    rasa_compat, stop_on_signal,
};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: ProjectArgs,
    /// The port; 0 selects a free one
    #[arg(short, long, default_value_t = 5005)]
    port: u16,
    /// The address to listen on; 0.0.0.0 is every address of this machine
    #[arg(short = 'i', long, alias = "interface", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Accepted without effect: there is no HTTP API over conversations
    #[arg(long)]
    enable_api: bool,
    /// The token that callers of /mcp must show; `SEGUE_AUTH_TOKEN` unless set
    #[arg(long, value_name = "TOKEN")]
    auth_token: Option<String>,
    /// Serve the assistant over MCP at /mcp, as an entry `mcp:` in credentials.yml does
    #[cfg(feature = "mcp")]
    #[arg(long)]
    mcp: bool,
    /// The store: `memory`, or a file as in `sqlite:conversations.db`
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Exit when an MCP server, remote agent or action server is down
    #[arg(long)]
    strict: bool,
    /// Open only this channel of credentials.yml
    #[arg(long, value_name = "NAME")]
    connector: Option<String>,
    /// Listen on other addresses than loopback although a channel does not authenticate its callers
    #[arg(long)]
    insecure: bool,
    /// Accepted for scripts: browsers ask from where they are served
    #[arg(long, value_name = "ORIGIN", num_args = 0..=1, hide = true)]
    cors: Option<Option<String>>,
    #[command(flatten)]
    accepted: rasa_compat::IgnoredOptions,
}

pub(super) async fn serve(args: Args) -> CommandResult {
    log("info")?;
    if args.place.project.as_os_str() == "actions" && !args.place.project.join("config.yml").is_file() {
        return rasa_compat::unknown_command(&["run".to_owned(), "actions".to_owned()]);
    }
    args.accepted.say();
    if args.cors.is_some() {
        output::status("`--cors` does nothing: this version answers no page of another origin");
    }
    let Some(opened) = args.place.open()? else { return Ok(EXIT_FINDINGS) };
    opened.warn_about_scripted_models();
    let token = args.auth_token.clone().or_else(|| environment::variable("SEGUE_AUTH_TOKEN"));
    let mut settings = ServerSettings::new().host(args.host).port(args.port);
    if args.enable_api {
        settings = settings.api(token.as_ref().is_some_and(|token| !token.trim().is_empty()));
    }
    #[cfg(feature = "mcp")]
    let is_mcp = args.mcp;
    #[cfg(not(feature = "mcp"))]
    let is_mcp = false;
    let options = ChannelOptions::new()
        .only(args.connector.clone())
        .mcp(is_mcp)
        .token(token.as_deref().and_then(BearerToken::new))
        .local(args.host.is_loopback());
    let Some((channels, troubles)) = open_channels(&opened.project, &options) else { return Ok(EXIT_USAGE) };
    match server::guarded(&channels, args.host) {
        Err(error) if !args.insecure => {
            output::status(&format!("{error} [{}]", error.code()));
            return Ok(EXIT_USAGE);
        }
        Err(_) => {
            tracing::warn!("`--insecure`: channels without a token are open to everybody who reaches {}", args.host)
        }
        Ok(()) => {}
    }
    let listener = match listen(&settings).await {
        Ok(listener) => listener,
        Err(error) => {
            output::status(&format!("{error} [{}]", error.code()));
            return Ok(if matches!(error, server::ServeError::Unguarded(_)) { EXIT_USAGE } else { EXIT_ERROR });
        }
    };
    if args.enable_api {
        tracing::warn!("this version has no HTTP API over conversations yet; channels and /health are served");
    }
    let project = opened.project.clone();
    let location = args.place.location(args.store.as_deref(), &project)?;
    let store = store::open(&location)?;
    let assistant = opened.builder.store(store).build().map_err(describe_build_error)?;
    for trouble in troubles {
        tracing::warn!(code = trouble.code, "{trouble}");
    }
    if args.strict {
        assistant.connect().await;
        let servers = assistant.sources().into_iter().map(|(name, health)| (format!("tool server {name}"), health));
        let agents =
            assistant.remote_agents().into_iter().map(|(name, health)| (format!("remote agent {name}"), health));
        let actions = assistant.action_server().map(|health| ("action server".to_owned(), health));
        let trouble = |(what, health): (String, Health)| health.reason().map(|reason| (what, reason));
        if let Some((what, reason)) = servers.chain(agents).chain(actions).find_map(trouble) {
            output::status(&format!("the {what} does not answer: {reason}"));
            return Ok(EXIT_ERROR);
        }
    }
    let address = listener.local_addr()?;
    let names: Vec<_> = channels.iter().map(|channel| channel.name().to_owned()).collect();
    let router = server::router(&assistant, &channels);
    if failpoint::is_armed("defect:recover-first") {
        assistant.recover().await?;
    }
    tracing::info!(channels = names.join(","), "listening on http://{address}");
    let reach = |to: &segue::ids::ConversationId, channel: &str| {
        channels.iter().find(|one| one.name() == channel).and_then(|one| one.sink(to))
    };
    let stop = stop_on_signal();
    let serving = server::serve(listener, router, &assistant, stop.clone().cancelled_owned());
    // Tool sources connect while the server already answers; a turn that needs one waits for it.
    tokio::select! {
        served = serving => served?,
        () = background(&assistant, !args.strict) => {}
        () = running(&assistant, &channels, &stop) => {}
        failed = recovery(&assistant) => failed?,
        // What a reminder says goes to the outbox, and from there to its user by whatever channel can.
        () = assistant.timers(&|_, _| Box::new(Outbox)) => {}
        () = assistant.deliveries(&reach) => {}
    }
    tracing::info!("stopped");
    Ok(0)
}

/// Channels, and what could not be opened.
type OpenedChannels = (Vec<Arc<dyn Channel>>, Vec<ChannelError>);

/// Opens the channels; `None` where the server does not start, which was said.
fn open_channels(project: &Project, options: &ChannelOptions) -> Option<OpenedChannels> {
    let (opened, troubles) = channels::open(project, options);
    if let Some(only) = options.only.as_deref().filter(|only| !opened.iter().any(|channel| channel.name() == *only)) {
        let trouble = troubles.iter().find(|trouble| trouble.channel == only);
        let why = trouble.map_or_else(|| format!("`{only}` has nothing to open"), ToString::to_string);
        output::status(&format!("`--connector {only}`: {why}"));
        return None;
    }
    if let Some(required) = troubles.iter().find(|trouble| trouble.is_required) {
        output::status(&required.to_string());
        return None;
    }
    Some((opened, troubles))
}

/// Runs what channels do besides answering requests; never ends, since the server goes on without.
async fn running(assistant: &Assistant, channels: &[Arc<dyn Channel>], stop: &CancellationToken) {
    server::run_channels(assistant, channels, stop).await;
    std::future::pending().await
}

/// Finishes what an earlier process left, beside serving; ends only when the store cannot say what that is.
async fn recovery(assistant: &Assistant) -> Result<(), store::StoreError> {
    let turns = assistant.recover().await?;
    if turns > 0 {
        tracing::info!(turns, "recovered unfinished turns");
    }
    std::future::pending().await
}

/// What goes on beside serving; never ends.
async fn background(assistant: &Assistant, connect: bool) {
    if connect {
        assistant.connect().await;
    }
    let mut day = tokio::time::interval(limits::RETENTION_INTERVAL);
    loop {
        day.tick().await;
        if let Err(error) = assistant.expire().await {
            tracing::warn!(code = error.code(), "expired data could not be removed: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use segue::{
        Assistant, DiscardReplies, IncomingMessage,
        testing::{ManualClock, ScriptedLlm},
    };

    use super::*;

    const FILES: [(&str, &str); 3] = [
        (
            "config.yml",
            "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n",
        ),
        ("domain.yml", "responses: {utter_hello: [{text: Hello!}]}\n"),
        ("flows/greet.yml", "flows: {greet: {description: greets, steps: [{action: utter_hello}]}}\n"),
    ];

    #[tokio::test(start_paused = true)]
    async fn what_is_past_its_retention_goes_once_a_day() {
        let clock = ManualClock::new();
        let model = Arc::new(ScriptedLlm::strict(["start flow greet"]));
        let builder = Assistant::builder_from_texts(FILES).unwrap().model(model).clock(Arc::new(clock.clone()));
        let assistant = builder.build().unwrap();
        assistant.receive(IncomingMessage::text("u", "hello", "test"), Box::new(DiscardReplies)).await.unwrap();
        let records = async || assistant.store().turns(&"u".into()).await.unwrap()[0].journal.len();
        let kept = records().await;
        assert!(kept > 0);
        let mut beside = std::pin::pin!(background(&assistant, false));
        assert!(futures::poll!(&mut beside).is_pending());
        clock.advance(limits::JOURNAL_RETENTION * 2);
        assert!(futures::poll!(&mut beside).is_pending());
        assert_eq!(records().await, kept, "it looks once a day, not all the time");
        tokio::time::advance(limits::RETENTION_INTERVAL).await;
        assert!(futures::poll!(&mut beside).is_pending());
        assert_eq!(records().await, 0);
    }
}

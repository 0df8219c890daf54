//! `segue run`: serves the channels of a project.

use std::{net::IpAddr, sync::Arc};

use segue::{
    channels::{self, BearerToken, Channel, ChannelError, ChannelOptions, RestChannel},
    clock::SystemClock,
    environment,
    health::Health,
    limits,
    missions::RunRetention,
    project::Project,
    runtime::{Assistant, OutboxSink},
    server,
    server::{ServerSettings, listen},
    store,
};
use tokio_util::sync::CancellationToken;

use super::{
    CommandResult, EXIT_ERROR, EXIT_FINDINGS, EXIT_USAGE,
    logging::init_logging,
    output,
    project_args::{ProjectArgs, describe_build_error},
    rasa_compat, stop_on_signal,
};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    project: ProjectArgs,
    /// The port; 0 selects a free one
    #[arg(short, long, default_value_t = 5005)]
    port: u16,
    /// The address to listen on; 0.0.0.0 is every address of this machine
    #[arg(short = 'i', long, alias = "interface", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Accepted without effect: there is no HTTP API over conversations
    #[arg(long, hide = true)]
    enable_api: bool,
    /// The token that callers of /mcp must send; `SEGUE_AUTH_TOKEN` unless set
    #[arg(long, value_name = "TOKEN")]
    auth_token: Option<String>,
    /// Serve the assistant over MCP at /mcp, as an entry `mcp:` in credentials.yml does
    #[cfg(feature = "mcp")]
    #[arg(long)]
    mcp: bool,
    /// The store: `memory`, or a file as in `sqlite:conversations.db`
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Exit if an MCP server, remote agent or action server is down
    #[arg(long)]
    strict: bool,
    /// Open only this channel of credentials.yml
    #[arg(long, value_name = "NAME")]
    connector: Option<String>,
    /// Listen on other addresses than loopback although a channel does not authenticate its callers
    #[arg(long)]
    insecure: bool,
    /// Accepted for scripts: `allowed_origins` of a channel lists the pages of other origins
    #[arg(long, value_name = "ORIGIN", num_args = 0..=1, hide = true)]
    cors: Option<Option<String>>,
    #[command(flatten)]
    ignored: rasa_compat::IgnoredOptions,
}

pub(super) async fn serve(args: Args) -> CommandResult {
    init_logging("info")?;
    if args.project.folder.as_os_str() == "actions" && !args.project.folder.join("config.yml").is_file() {
        return rasa_compat::unknown_command(&["run".to_owned(), "actions".to_owned()]);
    }
    args.ignored.warn();
    if args.cors.is_some() {
        output::status(
            "`--cors` is ignored: list the pages of other origins under `allowed_origins` of the channel in credentials.yml",
        );
    }
    if args.enable_api {
        output::status(
            "`--enable-api` does nothing: this version has no HTTP API over conversations; channels and /health are served",
        );
    }
    let Some(opened) = args.project.open()? else { return Ok(EXIT_FINDINGS) };
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
    let Some((channels, errors)) = open_channels(&opened.project, &options) else { return Ok(EXIT_USAGE) };
    match server::check_exposure(&channels, args.host) {
        Err(error) if !args.insecure => {
            output::status(&format!("{error} [{}]", error.code()));
            return Ok(EXIT_USAGE);
        }
        Err(_) => {
            tracing::warn!(
                "`--insecure`: channels without a token are open to every caller that can reach {}",
                args.host
            )
        }
        Ok(()) => {}
    }
    let listener = match listen(&settings).await {
        Ok(listener) => listener,
        Err(error) => {
            output::status(&format!("{error} [{}]", error.code()));
            return Ok(if matches!(error, server::ServeError::UnauthenticatedApi(_)) {
                EXIT_USAGE
            } else {
                EXIT_ERROR
            });
        }
    };
    let project = opened.project.clone();
    let location = args.project.location(args.store.as_deref(), &project)?;
    let stores = store::open_stores(&location)?;
    // Missions may have been run with this file.
    let settings = &project.endpoints.runs;
    let runs = RunRetention::new(stores.runs.clone(), Arc::new(SystemClock), &args.project.folder, settings);
    let assistant =
        opened.builder.store(stores.conversations).runs(stores.runs).build().map_err(describe_build_error)?;
    for error in errors {
        tracing::warn!(code = error.code, "{error}");
    }
    if args.strict
        && let Some((service, reason)) = first_failure(&assistant).await
    {
        output::status(&format!("the {service} does not answer: {reason}"));
        return Ok(EXIT_ERROR);
    }
    let address = listener.local_addr()?;
    let names: Vec<_> = channels.iter().map(|channel| channel.name().to_owned()).collect();
    let has_page = has_page(&project, args.host, &channels);
    let router =
        if has_page { server::router_with_page(&assistant, &channels) } else { server::router(&assistant, &channels) };
    tracing::info!(channels = names.join(","), "listening on http://{address}");
    if has_page {
        tracing::info!("chat page: http://{address}/");
    }
    let sink_of = |to: &segue::ids::ConversationId, name: &str| {
        channels.iter().find(|channel| channel.name() == name).and_then(|channel| channel.sink(to))
    };
    let stop = stop_on_signal();
    let serving = server::serve(listener, router, &assistant, stop.clone().cancelled_owned());
    // Tool servers connect while the server already accepts messages; a turn that needs one waits for it.
    tokio::select! {
        served = serving => served?,
        () = run_background_tasks(&assistant, &runs, !args.strict) => {}
        () = run_channels(&assistant, &channels, &stop) => {}
        failed = recover(&assistant) => failed?,
        // The replies of a reminder go to the outbox, which delivers them over a channel of the conversation.
        () = assistant.run_reminders(&|_, _| Box::new(OutboxSink)) => {}
        () = assistant.deliver_outbox(&sink_of) => {}
    }
    tracing::info!("stopped");
    Ok(0)
}

/// Whether the server has the chat page: by the setting of the project, otherwise on loopback, and only with the channel that it uses.
fn has_page(project: &Project, host: IpAddr, channels: &[Arc<dyn Channel>]) -> bool {
    project.endpoints.server.chat_page.unwrap_or(host.is_loopback())
        && channels.iter().any(|channel| channel.name() == RestChannel::NAME)
}

/// Connects to all services; returns one that does not answer, with the reason.
async fn first_failure(assistant: &Assistant) -> Option<(String, String)> {
    assistant.connect().await;
    let servers =
        assistant.tool_source_status().into_iter().map(|(name, health)| (format!("MCP server {name}"), health));
    let agents =
        assistant.remote_agent_status().into_iter().map(|(name, health)| (format!("remote agent {name}"), health));
    let actions = assistant.action_server_status().map(|health| ("action server".to_owned(), health));
    let failure = |(service, health): (String, Health)| health.reason().map(|reason| (service, reason));
    servers.chain(agents).chain(actions).find_map(failure)
}

/// The opened channels, and the errors of those that could not be opened.
type OpenedChannels = (Vec<Arc<dyn Channel>>, Vec<ChannelError>);

/// Opens the channels. `None`: the server must not start, and the reason is printed.
fn open_channels(project: &Project, options: &ChannelOptions) -> Option<OpenedChannels> {
    let (opened, errors) = channels::open(project, options);
    if let Some(only) = options.only.as_deref().filter(|only| !opened.iter().any(|channel| channel.name() == *only)) {
        let error = errors.iter().find(|error| error.channel == only);
        let reason = error.map_or_else(|| format!("there is no channel `{only}`"), ToString::to_string);
        output::status(&format!("`--connector {only}`: {reason}"));
        return None;
    }
    if let Some(required) = errors.iter().find(|error| error.is_required) {
        output::status(&required.to_string());
        return None;
    }
    Some((opened, errors))
}

/// Runs the background tasks of channels. Never returns, so that the server continues when they have ended.
async fn run_channels(assistant: &Assistant, channels: &[Arc<dyn Channel>], stop: &CancellationToken) {
    server::run_channels(assistant, channels, stop).await;
    std::future::pending().await
}

/// Recovers the unfinished turns of an earlier process while the server runs. Returns only if the store fails.
async fn recover(assistant: &Assistant) -> Result<(), store::StoreError> {
    let turns = assistant.recover().await?;
    if turns > 0 {
        tracing::info!(turns, "recovered unfinished turns");
    }
    std::future::pending().await
}

/// Connects to external services if `connect` is set, and removes expired data and runs past their retention once a day. Never returns.
async fn run_background_tasks(assistant: &Assistant, runs: &RunRetention, connect: bool) {
    if connect {
        assistant.connect().await;
    }
    let mut day = tokio::time::interval(limits::RETENTION_INTERVAL);
    loop {
        day.tick().await;
        if let Err(error) = assistant.expire().await {
            tracing::warn!(code = error.code(), "expired data could not be removed: {error}");
        }
        if let Err(error) = runs.purge().await {
            tracing::warn!(code = error.code(), "runs past their retention could not be deleted: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use segue::{
        Assistant, DiscardReplies, IncomingMessage,
        clock::Clock,
        store::runs::{MemoryRunStore, NewRun, RunBatch, RunFilter, RunStatus, RunStore},
        testing::{ManualClock, ScriptedLlm},
    };
    use segue_engine::project::RunsDef;

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
    async fn expired_journals_and_runs_are_removed_once_a_day() {
        let clock = ManualClock::new();
        let store = Arc::new(MemoryRunStore::new());
        store.start_run(NewRun::new("r", "m", clock.now())).await.unwrap();
        let ended = RunBatch { status: Some(RunStatus::Completed), ..RunBatch::new("r".into(), clock.now()) };
        store.append_run(ended).await.unwrap();
        let runs = async || store.runs(RunFilter::default(), 9).await.unwrap().len();
        let folder = tempfile::tempdir().unwrap();
        let retention = RunRetention::new(store.clone(), Arc::new(clock.clone()), folder.path(), &RunsDef::default());
        let model = Arc::new(ScriptedLlm::strict(["start flow greet"]));
        let builder = Assistant::builder_from_texts(FILES).unwrap().model(model).clock(Arc::new(clock.clone()));
        let assistant = builder.build().unwrap();
        assistant
            .receive(IncomingMessage::new("u", "hello").input_channel("test"), Box::new(DiscardReplies))
            .await
            .unwrap();
        let records = async || assistant.store().turns(&"u".into()).await.unwrap()[0].journal.len();
        let count = records().await;
        assert!(count > 0);
        let mut tasks = std::pin::pin!(run_background_tasks(&assistant, &retention, false));
        assert!(futures::poll!(&mut tasks).is_pending());
        clock.advance(limits::JOURNAL_RETENTION.max(limits::RUN_RETENTION) * 2);
        assert!(futures::poll!(&mut tasks).is_pending());
        assert_eq!((records().await, runs().await), (count, 1), "expired data is removed only once a day");
        tokio::time::advance(limits::RETENTION_INTERVAL).await;
        assert!(futures::poll!(&mut tasks).is_pending());
        // The folder of the run is removed on another thread.
        while runs().await > 0 {
            assert!(futures::poll!(&mut tasks).is_pending());
            tokio::task::yield_now().await;
        }
        assert_eq!(records().await, 0);
    }
}

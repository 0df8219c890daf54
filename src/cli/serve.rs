//! `segue run`: the server.

use std::{net::IpAddr, sync::Arc};

use segue::{
    channels::{
        self,
        a2a::{A2aAgent, Offer},
    },
    environment, failpoint,
    health::Health,
    limits,
    project::{ChannelDef, ChannelSettings, Project, RestSettings},
    runtime::Outbox,
    server,
    server::{ServerSettings, listen},
    store,
};

#[cfg(feature = "mcp")]
use super::desk;
use super::{
    COULD_NOT_RUN, Done, FINDINGS, USAGE,
    logging::log,
    out,
    place::{Place, cannot_build},
    rasa,
};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    /// The port; 0 takes a free one
    #[arg(short, long, default_value_t = 5005)]
    port: u16,
    /// The address to listen on; 0.0.0.0 is every one of this machine
    #[arg(short = 'i', long, alias = "interface", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Offer the HTTP API over conversations
    #[arg(long)]
    enable_api: bool,
    /// The token that callers of the API must show; `SEGUE_AUTH_TOKEN` unless set
    #[arg(long, value_name = "TOKEN")]
    auth_token: Option<String>,
    /// Offer the assistant as an MCP server under /mcp; an entry `mcp:` in credentials.yml does the same
    #[cfg(feature = "mcp")]
    #[arg(long)]
    mcp: bool,
    /// Where conversations are kept: `memory`, or a file as in `sqlite:talks.db`
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Do not start when a tool server is down
    #[arg(long)]
    strict: bool,
    /// Open only this channel, whatever credentials.yml lists
    #[arg(long, value_name = "NAME")]
    connector: Option<String>,
    /// Listen off loopback although a channel asks its callers for no token
    #[arg(long)]
    insecure: bool,
    /// Accepted for scripts: browsers ask from where they are served
    #[arg(long, value_name = "ORIGIN", num_args = 0..=1, hide = true)]
    cors: Option<Option<String>>,
    #[command(flatten)]
    accepted: rasa::Accepted,
}

pub(super) async fn serve(args: Args) -> Done {
    log("info")?;
    if args.place.project.as_os_str() == "actions" && !args.place.project.join("config.yml").is_file() {
        return rasa::elsewhere(&["run".to_owned(), "actions".to_owned()]);
    }
    args.accepted.say();
    if args.cors.is_some() {
        out::note("`--cors` does nothing: this version answers no page of another origin");
    }
    let Some(opened) = args.place.open()? else { return Ok(FINDINGS) };
    opened.name_scripted_models();
    let token = args.auth_token.clone().or_else(|| environment::variable("SEGUE_AUTH_TOKEN"));
    let open_agent = opened.project.endpoints.a2a_server.as_ref();
    let open_agent = open_agent.is_some_and(|offer| offer.token.is_none() && offer.jwt.is_none() && !args.insecure);
    let mut settings = ServerSettings::new().host(args.host).port(args.port).open_agent(open_agent);
    if args.enable_api {
        settings = settings.api(token.as_ref().is_some_and(|token| !token.trim().is_empty()));
    }
    let Some((channels, troubles)) = opened_channels(&opened.project, args.connector.as_deref()) else {
        return Ok(USAGE);
    };
    match server::guarded(&channels, args.host) {
        Err(error) if !args.insecure => {
            out::note(&format!("{error} [{}]", error.code()));
            return Ok(USAGE);
        }
        Err(_) => {
            tracing::warn!("`--insecure`: channels without a token are open to everybody who reaches {}", args.host)
        }
        Ok(()) => {}
    }
    let listener = match listen(&settings).await {
        Ok(listener) => listener,
        Err(error) => {
            out::note(&format!("{error} [{}]", error.code()));
            let is_too_open = matches!(error, server::ServeError::Unguarded(_) | server::ServeError::Open(_));
            let code = if is_too_open { USAGE } else { COULD_NOT_RUN };
            return Ok(code);
        }
    };
    if args.enable_api {
        tracing::warn!("this version has no HTTP API over conversations yet; channels and /health are served");
    }
    let project = opened.project.clone();
    let location = args.place.location(args.store.as_deref(), &project)?;
    let store = store::open(&location)?;
    let assistant = opened.builder.store(store).build().map_err(cannot_build)?;
    for trouble in troubles {
        tracing::warn!(code = channels::ChannelError::CODE, "{trouble}");
    }
    if args.strict {
        assistant.connect().await;
        let servers = assistant.sources().into_iter().map(|(name, health)| (format!("tool server {name}"), health));
        let agents =
            assistant.remote_agents().into_iter().map(|(name, health)| (format!("remote agent {name}"), health));
        let actions = assistant.action_server().map(|health| ("action server".to_owned(), health));
        let trouble = |(what, health): (String, Health)| health.reason().map(|reason| (what, reason));
        if let Some((what, reason)) = servers.chain(agents).chain(actions).find_map(trouble) {
            out::note(&format!("the {what} does not answer: {reason}"));
            return Ok(COULD_NOT_RUN);
        }
    }
    let address = listener.local_addr()?;
    let names: Vec<_> = channels.iter().map(|channel| channel.name().to_owned()).collect();
    let mut router = server::router(&assistant, &channels);
    router = server::reports(router, &assistant);
    if let Some(def) = &project.endpoints.a2a_server {
        let url = def.url.clone().unwrap_or_else(|| format!("http://{address}"));
        let agent = match A2aAgent::new(&assistant, def, &Offer { url, local: args.host.is_loopback() }) {
            Ok(agent) => agent,
            Err(problem) => {
                out::note(&format!("endpoints.yml: `a2a_server`: {problem} [F0643]"));
                return Ok(USAGE);
            }
        };
        router = server::offered(router, &agent, &assistant);
        tracing::info!("offered to other agents at http://{address}/a2a");
    }
    #[cfg(feature = "mcp")]
    let (router, desk) =
        match desk::opened(&project, &assistant, router, (args.mcp, args.host, args.insecure), token.as_deref()) {
            Ok(opened) => opened,
            Err(refused) => return Ok(refused.said()),
        };
    if failpoint::is_armed("defect:recover-first") {
        assistant.recover().await?;
    }
    tracing::info!(channels = names.join(","), "listening on http://{address}");
    #[cfg(not(feature = "mcp"))]
    let ended = server::end_asked();
    #[cfg(feature = "mcp")]
    let ended = desk::closing(desk);
    let reach = |to: &segue::ids::ConversationId, channel: &str| {
        channels.iter().find(|one| one.name() == channel).and_then(|one| one.sink(to))
    };
    let serving = server::serve(listener, router, &assistant, ended);
    // Sources connect while the server already answers; whoever needs one waits for it.
    tokio::select! {
        served = serving => served?,
        () = background(&assistant, !args.strict) => {}
        failed = recovery(&assistant) => failed?,
        // What a reminder says goes to the outbox, and from there to its user by whatever channel can.
        () = assistant.timers(&|_, _| Box::new(Outbox)) => {}
        () = assistant.deliveries(&reach) => {}
    }
    tracing::info!("stopped");
    Ok(0)
}

/// The channels of the project, or the one that was asked for.
type Channels = (Vec<Arc<dyn channels::Channel>>, Vec<channels::ChannelError>);

fn opened_channels(project: &Project, only: Option<&str>) -> Option<Channels> {
    let Some(only) = only else { return Some(channels::open(&project.credentials)) };
    let settings = project.credentials.get(only).cloned().unwrap_or_else(|| match only {
        "rest" => ChannelDef { settings: ChannelSettings::Rest(RestSettings::default()), ..ChannelDef::default() },
        _ => ChannelDef::default(),
    });
    let (opened, troubles) = channels::open(&[(only.to_owned(), settings)].into_iter().collect());
    if opened.is_empty() {
        let why = troubles.first().map(ToString::to_string).unwrap_or_else(|| format!("`{only}` has nothing to open"));
        out::note(&format!("`--connector {only}`: {why}"));
        return None;
    }
    Some((opened, troubles))
}

/// Finishes what an earlier process left, beside serving; ends only when the store cannot say what that is.
async fn recovery(assistant: &segue::runtime::Assistant) -> Result<(), store::StoreError> {
    let turns = assistant.recover().await?;
    if turns > 0 {
        tracing::info!(turns, "turns that an earlier process left were finished");
    }
    std::future::pending().await
}

/// What goes on beside serving; never ends.
async fn background(assistant: &segue::runtime::Assistant, connect: bool) {
    if connect {
        assistant.connect().await;
    }
    let mut day = tokio::time::interval(limits::RETENTION_INTERVAL);
    loop {
        day.tick().await;
        if let Err(error) = assistant.expire().await {
            tracing::warn!(code = error.code(), "what is past its retention could not be removed: {error}");
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

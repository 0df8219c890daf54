//! The registry of built-in channels, and the selection of those that a project opens. A new channel needs a module and an entry in
//! [`CHANNELS`].

use std::sync::Arc;

use segue_engine::project::{ChannelDef, Project};

use super::{BearerToken, Channel, a2a, callback, openai, rest, socketio, websocket};

/// All channels that configuration alone can open.
const CHANNELS: &[ChannelFactory] = &[
    rest::FACTORY,
    openai::FACTORY,
    websocket::FACTORY,
    socketio::FACTORY,
    callback::FACTORY,
    #[cfg(feature = "mcp")]
    super::mcp::FACTORY,
    a2a::FACTORY,
    a2a::push_receiver::FACTORY,
];

/// Entries of `credentials.yml` without a channel here: `segue chat` opens the terminal, `rasa` is a setting of Rasa servers, and `mcp`
/// is not in builds without the feature `mcp`.
const ENTRIES_WITHOUT_CHANNEL: [&str; 3] = ["cmdline", "rasa", "mcp"];

/// The channel of a project whose `credentials.yml` has no entry.
const DEFAULT_CHANNEL: &str = "rest";

/// The names of all channels, for tests that try each.
#[cfg(test)]
pub(super) fn channel_names() -> impl Iterator<Item = &'static str> {
    CHANNELS.iter().map(|channel| channel.name)
}

/// How a built-in channel is opened.
pub(super) struct ChannelFactory {
    /// The name of the channel, which is also its key in `credentials.yml`.
    pub(super) name: &'static str,
    /// Whether the channel is opened even without an entry in `credentials.yml`, or if the options select another channel.
    pub(super) is_wanted: fn(&Project, &ChannelOptions) -> bool,
    /// Opens the channel; the error names the invalid setting and the fix.
    pub(super) open: fn(&ChannelSource<'_>) -> Result<Arc<dyn Channel>, String>,
    /// Where its settings are, for error messages.
    pub(super) place: &'static str,
    /// The code of the error if the channel cannot be opened.
    pub(super) code: &'static str,
    /// Whether the server refuses to start if the channel is wanted and cannot be opened.
    pub(super) is_required: bool,
}

/// The input for opening a channel.
pub(super) struct ChannelSource<'a> {
    /// The project.
    pub(super) project: &'a Project,
    /// The entry of the channel in `credentials.yml`.
    pub(super) entry: Option<&'a ChannelDef>,
    /// The options of the operator.
    pub(super) options: &'a ChannelOptions,
}

/// Options of the operator for the channels, in addition to the files of the project.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ChannelOptions {
    /// If set, only this channel of `credentials.yml` is opened.
    pub only: Option<String>,
    /// Whether the MCP server is opened even without an entry in `credentials.yml`.
    pub mcp: bool,
    /// The bearer token of callers of the MCP server if its entry configures no authentication.
    pub token: Option<BearerToken>,
    /// Whether the server listens on loopback only: then push notifications of A2A tasks may go to loopback addresses too.
    pub is_local: bool,
}

impl ChannelOptions {
    /// Options that add nothing to the files of the project, for a server that other machines may reach.
    pub fn new() -> Self {
        Self::default()
    }
    /// Opens only this channel of `credentials.yml`; `None` opens all.
    #[must_use]
    pub fn only(mut self, name: Option<String>) -> Self {
        self.only = name;
        self
    }
    /// Opens the MCP server even without an entry in `credentials.yml`.
    #[must_use]
    pub fn mcp(mut self, mcp: bool) -> Self {
        self.mcp = mcp;
        self
    }
    /// Sets the bearer token of the MCP server if its entry configures no authentication.
    #[must_use]
    pub fn token(mut self, token: Option<BearerToken>) -> Self {
        self.token = token;
        self
    }
    /// Sets whether the server listens on loopback only.
    #[must_use]
    pub fn local(mut self, is_local: bool) -> Self {
        self.is_local = is_local;
        self
    }
}

/// The error of a channel that cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem} [{code}]")]
#[non_exhaustive]
pub struct ChannelError {
    /// The name of the channel.
    pub channel: String,
    /// Where its settings are.
    pub place: String,
    /// The problem and the fix.
    pub problem: String,
    /// The error code; `segue explain` prints its page.
    pub code: &'static str,
    /// Whether the server refuses to start because of this error. Otherwise it starts without the channel.
    pub is_required: bool,
}

/// The error code of a channel in `credentials.yml` that cannot be opened.
pub(super) const CODE_CANNOT_OPEN: &str = "C0101";

/// Opens the channels that a project configures: those of `credentials.yml`, or `rest` if it has none; and the MCP server, the A2A
/// server and the receiver of push notifications if they are configured. Returns the channels, and the errors of those that cannot be
/// opened.
pub fn open(project: &Project, options: &ChannelOptions) -> (Vec<Arc<dyn Channel>>, Vec<ChannelError>) {
    let mut names: Vec<&str> = match &options.only {
        Some(only) => vec![only],
        None if project.credentials.is_empty() => vec![DEFAULT_CHANNEL],
        None => project.credentials.keys().map(|name| &**name).collect(),
    };
    for factory in CHANNELS {
        if !names.contains(&factory.name) && (factory.is_wanted)(project, options) {
            names.push(factory.name);
        }
    }
    let (mut channels, mut errors): (Vec<Arc<dyn Channel>>, _) = (Vec::new(), Vec::new());
    for name in names {
        let factory = CHANNELS.iter().find(|factory| factory.name == name);
        let opened = match factory {
            Some(factory) => (factory.open)(&ChannelSource { project, entry: project.credentials.get(name), options }),
            None if ENTRIES_WITHOUT_CHANNEL.contains(&name) => continue,
            None => Err("this version has no such channel; use `rest`, or implement the `Channel` trait".to_owned()),
        };
        match opened {
            Ok(channel) => channels.push(channel),
            Err(problem) => errors.push(ChannelError {
                channel: name.to_owned(),
                place: factory.map_or_else(|| format!("credentials.yml: `{name}`"), |factory| factory.place.to_owned()),
                problem,
                code: factory.map_or(CODE_CANNOT_OPEN, |factory| factory.code),
                is_required: factory.is_some_and(|it| it.is_required && (it.is_wanted)(project, options)),
            }),
        }
    }
    (channels, errors)
}

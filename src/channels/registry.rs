//! The channels of ours, by name, and which of them a project opens. A new one is a folder and a line in [`CHANNELS`].

use std::sync::Arc;

use segue_engine::project::{ChannelDef, Project};

use super::{BearerToken, Channel, a2a, rest};

/// All channels that can be opened by configuration alone.
const CHANNELS: &[ChannelFactory] = &[
    rest::FACTORY,
    #[cfg(feature = "mcp")]
    super::mcp::FACTORY,
    a2a::FACTORY,
    a2a::push_receiver::FACTORY,
];

/// Entries of `credentials.yml` that open nothing: the terminal is opened by `segue chat`, the others are for Rasa servers or
/// left out of this build.
const NOTHING_TO_OPEN: [&str; 3] = ["cmdline", "rasa", "mcp"];

/// The channel of a project that lists none.
const USUAL: &str = "rest";

/// How a channel of ours is opened.
pub(super) struct ChannelFactory {
    /// Its name, and its key in `credentials.yml`.
    pub(super) name: &'static str,
    /// Whether it is opened although `credentials.yml` has no entry of its name, or another one alone is wanted.
    pub(super) is_wanted: fn(&Project, &ChannelOptions) -> bool,
    /// Opens it; the error says what is wrong with a setting, and the fix.
    pub(super) open: fn(&ChannelSource<'_>) -> Result<Arc<dyn Channel>, String>,
    /// Where its settings stand, for messages.
    pub(super) place: &'static str,
    /// The code of such a message.
    pub(super) code: &'static str,
    /// Whether a server does not start without it where it is wanted.
    pub(super) is_required: bool,
}

/// What a channel is opened from.
pub(super) struct ChannelSource<'a> {
    /// The project.
    pub(super) project: &'a Project,
    /// Its entry in `credentials.yml`.
    pub(super) entry: Option<&'a ChannelDef>,
    /// What the operator says besides.
    pub(super) options: &'a ChannelOptions,
}

/// What an operator says about the channels besides the files of the project.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ChannelOptions {
    /// The one channel of `credentials.yml` to open.
    pub only: Option<String>,
    /// Whether the assistant is an MCP server although `credentials.yml` does not say so.
    pub mcp: bool,
    /// What callers of the MCP server show where its entry asks for nothing.
    pub token: Option<BearerToken>,
    /// Whether only this machine reaches the server: then tasks are reported to addresses of this machine too.
    pub is_local: bool,
}

impl ChannelOptions {
    /// What the files of the project say, for a server that others may reach.
    pub fn new() -> Self {
        Self::default()
    }
    /// This channel of `credentials.yml` alone.
    #[must_use]
    pub fn only(mut self, name: Option<String>) -> Self {
        self.only = name;
        self
    }
    /// The assistant as an MCP server too.
    #[must_use]
    pub fn mcp(mut self, mcp: bool) -> Self {
        self.mcp = mcp;
        self
    }
    /// The token of the MCP server where its entry asks for nothing.
    #[must_use]
    pub fn token(mut self, token: Option<BearerToken>) -> Self {
        self.token = token;
        self
    }
    /// Whether only this machine reaches the server.
    #[must_use]
    pub fn local(mut self, is_local: bool) -> Self {
        self.is_local = is_local;
        self
    }
}

/// Why a channel of the project cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem} [{code}]")]
#[non_exhaustive]
pub struct ChannelError {
    /// The channel.
    pub channel: String,
    /// Where its settings stand.
    pub place: String,
    /// What is wrong, and the fix.
    pub problem: String,
    /// The code that `segue explain` knows.
    pub code: &'static str,
    /// Whether a server does not start without the channel; the others do without those that are not required.
    pub is_required: bool,
}

/// The code of an entry in `credentials.yml` that cannot be opened.
pub(super) const CODE: &str = "C0101";

/// Opens the channels that a project configures: those of `credentials.yml`, `rest` where it lists none at all, the MCP server, the
/// A2A server, and the receiver of push notifications. What cannot be opened comes second.
pub fn open(project: &Project, options: &ChannelOptions) -> (Vec<Arc<dyn Channel>>, Vec<ChannelError>) {
    let mut names: Vec<&str> = match &options.only {
        Some(only) => vec![only],
        None if project.credentials.is_empty() => vec![USUAL],
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
            None if NOTHING_TO_OPEN.contains(&name) => continue,
            None => {
                Err("this version does not speak this channel; use `rest`, or implement the `Channel` trait".to_owned())
            }
        };
        match opened {
            Ok(channel) => channels.push(channel),
            Err(problem) => errors.push(ChannelError {
                channel: name.to_owned(),
                place: factory.map_or_else(|| format!("credentials.yml: `{name}`"), |factory| factory.place.to_owned()),
                problem,
                code: factory.map_or(CODE, |factory| factory.code),
                is_required: factory.is_some_and(|it| it.is_required && (it.is_wanted)(project, options)),
            }),
        }
    }
    (channels, errors)
}

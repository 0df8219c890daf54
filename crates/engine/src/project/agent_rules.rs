//! What an agent may do, and what must hold first: the part of `configuration` that no prompt can talk its way around.

use std::{sync::Arc, time::Duration};

use indexmap::IndexMap;

use crate::{condition::Condition, finding::SourceLocation, regex_dialect::PythonRegex};

/// The rules of one agent.
#[derive(Debug, Default)]
pub struct AgentRules {
    /// Rules of single tools, by the name under which the model calls them.
    pub tools: IndexMap<Arc<str>, ToolRule>,
    /// Whether every call that changes something is shown to the user first.
    pub confirm: ConfirmRule,
    /// What is done about arguments that may come from a text that nobody vouches for.
    pub taint: UntrustedInputPolicy,
    /// What is done when the agent says that something is done that no tool did.
    pub grounded: GroundedRule,
    /// What counts as such a claim, beside the built-in English ones.
    pub claims: Vec<ClaimRule>,
    /// When something is said while tools work, where the author wants that.
    pub filler_after: Option<FillerPace>,
    /// What happens after an interruption.
    pub resume: ResumeRule,
    /// Keys of the metadata that may leave the process with a call of a hook server or a remote agent.
    pub forward_metadata: Vec<Arc<str>>,
}

impl AgentRules {
    /// The rule of a tool, if it has one.
    pub fn tool(&self, name: &str) -> Option<&ToolRule> {
        self.tools.get(name)
    }
    /// Whether a call must be shown to the user before it runs. `changes` says that the tool is no `read`.
    pub fn must_confirm(&self, name: &str, changes: bool) -> bool {
        match self.tool(name).and_then(|rule| rule.confirm) {
            Some(own) => own,
            None => changes && (self.confirm == ConfirmRule::Writes || self.taint == UntrustedInputPolicy::Confirm),
        }
    }
}

/// The rule of one tool.
#[derive(Clone, Debug, Default)]
pub struct ToolRule {
    /// What it does: `read`, `idempotent` or `write`; the author's word, over that of the server.
    pub effect: Option<Arc<str>>,
    /// What must hold when it is called.
    pub requires: Option<Condition>,
    /// What the model is told when that does not hold.
    pub refusal: Option<Arc<str>>,
    /// Whether the user is asked first; as the agent says unless set.
    pub confirm: Option<bool>,
    /// Calls of it in one task.
    pub max_calls: Option<u32>,
    /// Where it stands.
    pub place: SourceLocation,
}

/// Whether every call that changes something is shown to the user first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ConfirmRule {
    /// Only where a tool says so.
    #[default]
    Never,
    /// Yes.
    Writes,
}

/// What is done about arguments that may come from a text that nobody vouches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum UntrustedInputPolicy {
    /// Where each argument comes from is recorded with the call.
    #[default]
    Trace,
    /// The user sees every call that changes something, with its arguments, before it runs.
    Confirm,
}

/// What is done when the agent says that something is done that no tool did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum GroundedRule {
    /// Nothing.
    Off,
    /// It is recorded.
    #[default]
    Warn,
    /// The user does not hear it: the agent is asked to say what is true.
    Repair,
}

/// A claim that only certain tools can make true.
#[derive(Clone, Debug)]
pub struct ClaimRule {
    /// Found in a sentence that makes the claim.
    pub says: PythonRegex,
    /// The tools of which one must have worked; any that changes something, if empty.
    pub needs: Vec<Arc<str>>,
}

/// When something is said while tools work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FillerPace {
    /// On channels that are not named.
    pub usual: Option<Duration>,
    /// By channel; none means never.
    pub channels: IndexMap<Arc<str>, Option<Duration>>,
}

impl FillerPace {
    /// The pace on a channel.
    pub fn on(&self, channel: &str) -> Option<Duration> {
        self.channels.get(channel).copied().unwrap_or(self.usual)
    }
}

/// What happens when an agent goes on after an interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ResumeRule {
    /// It runs, and knows that it was interrupted.
    #[default]
    Invoke,
    /// Its last question is said again, without asking a model.
    Repeat,
}

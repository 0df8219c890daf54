//! What an agent may do, and under which conditions. The program enforces these rules; a prompt cannot override them.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use indexmap::IndexMap;
use sha2::{Digest, Sha256};

use crate::{condition::Condition, finding::SourceLocation, regex_dialect::PythonRegex};

/// The rules of an agent.
#[derive(Debug, Default)]
pub struct AgentRules {
    /// Rules for single tools, by the name that the server gives them or that the model calls.
    pub tools: IndexMap<Arc<str>, ToolRule>,
    /// Whether the user confirms every call that is not a `read`.
    pub confirm: ConfirmRule,
    /// What happens if arguments of a tool call come from untrusted text.
    pub taint: UntrustedInputPolicy,
    /// What happens if the agent claims an action that no tool performed.
    pub grounded: GroundedRule,
    /// Patterns of such claims, in addition to the built-in English ones.
    pub claims: Vec<ClaimRule>,
    /// When a filler message is sent while tools run; `None`: never.
    pub filler_after: Option<FillerDelays>,
    /// What happens after an interruption.
    pub resume: ResumeRule,
    /// The keys of the message's metadata that are sent to a hook server or a remote agent.
    pub forward_metadata: Vec<Arc<str>>,
}

impl AgentRules {
    /// The rule of a tool, by the name that the model calls, if it has one. A rule by the name of the server holds under each
    /// [name](offered_tool_name) that the model is offered.
    pub fn tool(&self, name: &str) -> Option<&ToolRule> {
        let is_it = |key: &&Arc<str>| {
            let plain = offered_tool_name(None, key);
            let is_hashed = name.strip_suffix(&*tool_name_hash(key)).is_some_and(|name| name.ends_with('_'));
            is_hashed
                || name
                    .strip_suffix(&*plain)
                    .is_some_and(|server| server.is_empty() || server.len() > 2 && server.ends_with("__"))
        };
        let by_server =
            || self.tools.keys().filter(is_it).max_by_key(|key| key.len()).and_then(|key| self.tools.get(key));
        self.tools.get(name).or_else(by_server)
    }
    /// Whether the user must confirm a call before it runs. `changes`: the effect class of the tool is not `read`.
    pub fn must_confirm(&self, name: &str, changes: bool) -> bool {
        match self.tool(name).and_then(|rule| rule.confirm) {
            Some(own) => own,
            None => changes && (self.confirm == ConfirmRule::Writes || self.taint == UntrustedInputPolicy::Confirm),
        }
    }
}

/// The name under which a model is offered a tool: `_` stands for each character that not every model API accepts. `server` comes before it
/// where the name alone would not be unique.
pub fn offered_tool_name(server: Option<&str>, tool: &str) -> String {
    let safe = |name: &str| -> String {
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect()
    };
    server.map_or_else(|| safe(tool), |server| format!("{}__{}", safe(server), safe(tool)))
}

/// The hash with which the name of a tool ends, after a `_`, where [its name](offered_tool_name) would be too long, or is also that of
/// another tool.
pub fn tool_name_hash(tool: &str) -> String {
    Sha256::digest(tool.as_bytes()).iter().take(4).fold(String::with_capacity(8), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The rule for a tool.
#[derive(Clone, Debug, Default)]
pub struct ToolRule {
    /// Its effect class: `read`, `idempotent` or `write`. Takes precedence over that of the server.
    pub effect: Option<Arc<str>>,
    /// The condition that must be true when it is called.
    pub requires: Option<Condition>,
    /// The text that the model gets if that condition is false.
    pub refusal: Option<Arc<str>>,
    /// Whether the user confirms every call; `None`: as for the agent.
    pub confirm: Option<bool>,
    /// The maximum number of calls in a task.
    pub max_calls: Option<u32>,
    /// The response that the user is sent when a call has succeeded, before the model goes on.
    pub on_success: Option<Arc<str>>,
    /// The response that the user is sent when a call has certainly failed, before the model goes on.
    pub on_failure: Option<Arc<str>>,
    /// Its location in the project files.
    pub place: SourceLocation,
}

/// Whether the user confirms every call that is not a `read`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ConfirmRule {
    /// Only if the rule of the tool requires it.
    #[default]
    Never,
    /// Yes.
    Writes,
}

/// What happens if arguments of a tool call come from untrusted text, such as a tool result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum UntrustedInputPolicy {
    /// The origin of each argument is recorded with the call.
    #[default]
    Trace,
    /// The user confirms every call that is not a `read`, with its arguments.
    Confirm,
}

/// What happens if the agent claims an action that no tool performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum GroundedRule {
    /// Nothing.
    Off,
    /// It is recorded.
    #[default]
    Warn,
    /// The text is not sent; the model corrects it.
    Repair,
}

/// A pattern of claims and the tools that make such a claim true.
#[derive(Clone, Debug)]
pub struct ClaimRule {
    /// Matches a part of a sentence with the claim.
    pub says: PythonRegex,
    /// The tools of which one must have succeeded; empty: any tool that is not a `read`.
    pub needs: Vec<Arc<str>>,
}

/// When a filler message is sent while tools run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FillerDelays {
    /// The delay on all other channels; `None`: never.
    pub default: Option<Duration>,
    /// The delay by channel; `None`: never.
    pub channels: IndexMap<Arc<str>, Option<Duration>>,
}

impl FillerDelays {
    /// The delay on a channel; `None`: never.
    pub fn on(&self, channel: &str) -> Option<Duration> {
        self.channels.get(channel).copied().unwrap_or(self.default)
    }
}

/// What happens when an agent resumes after an interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ResumeRule {
    /// The agent runs; its prompt says that it was interrupted.
    #[default]
    Invoke,
    /// Its last question is sent again without a model call.
    Repeat,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_by_the_name_of_the_server_holds_for_the_names_that_models_call() {
        let mut rules = AgentRules::default();
        for (calls, name) in ["book", "notes.create", "srv2__book", "note-book"].into_iter().enumerate() {
            let rule = ToolRule { max_calls: u32::try_from(calls).ok(), ..ToolRule::default() };
            rules.tools.insert(name.into(), rule);
        }
        let most = |name: &str| rules.tool(name).and_then(|rule| rule.max_calls);
        assert_eq!(["book", "srv__book", "srv2__book"].map(most), [Some(0), Some(0), Some(2)]);
        assert_eq!(["notes.create", "notes_create", "srv__notes_create"].map(most), [Some(1); 3]);
        assert_eq!(
            ["srv__note-book", "notebook", "__book", "create", "books"].map(most),
            [Some(3), None, None, None, None]
        );
    }
}

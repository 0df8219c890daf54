//! The rules in `configuration` of an agent.

use std::{sync::Arc, time::Duration};

use super::super::{
    AgentRules, ClaimRule, ConfirmRule, FillerDelays, GroundedRule, ResumeRule, ToolRule, UntrustedInputPolicy,
    load_context::{LoadContext, MapFields, describe},
    references::{ConditionRole, ReferenceKind},
    schema::{AGENT_TOOL, CLAIM},
    yaml::Node,
};
use crate::regex_dialect::{Flags, PythonRegex};

/// The key for the delay on all other channels.
const DEFAULT_CHANNEL: &str = "default";

/// Reads the rules.
pub(super) fn rules(context: &mut LoadContext<'_>, configuration: &MapFields<'_>) -> AgentRules {
    let mut rules = AgentRules {
        confirm: if configuration.text("confirm") == Some("writes") { ConfirmRule::Writes } else { ConfirmRule::Never },
        taint: if configuration.text("taint") == Some("confirm") {
            UntrustedInputPolicy::Confirm
        } else {
            UntrustedInputPolicy::Trace
        },
        grounded: match configuration.text("grounded") {
            Some("off") => GroundedRule::Off,
            Some("repair") => GroundedRule::Repair,
            _ => GroundedRule::Warn,
        },
        resume: if configuration.text("resume") == Some("repeat") { ResumeRule::Repeat } else { ResumeRule::Invoke },
        filler_after: configuration.node("filler_after").and_then(|node| delays(context, node)),
        forward_metadata: shared(configuration, "forward_metadata"),
        ..AgentRules::default()
    };
    for entry in configuration.map("tools") {
        let Some(fields) = context.fields(&entry.node, &AGENT_TOOL) else { continue };
        let mut response = |key: &str| {
            let node = fields.node(key)?;
            context.reference(ReferenceKind::Response, node);
            node.text().map(Into::into)
        };
        let (on_success, on_failure) = (response("on_success"), response("on_failure"));
        let rule = ToolRule {
            on_success,
            on_failure,
            effect: fields.shared("effect"),
            requires: fields.node("requires").and_then(|node| context.condition(node, ConditionRole::Tool)),
            refusal: fields.shared("refusal"),
            confirm: fields.bool("confirm"),
            max_calls: fields.whole("max_calls").map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
            place: context.place(&entry.at),
        };
        rules.tools.insert(entry.key.as_str().into(), rule);
    }
    for node in configuration.list("claims") {
        let Some(fields) = context.fields(node, &CLAIM) else { continue };
        let Some(says) = fields.node("says").and_then(|says| expression(context, says)) else { continue };
        rules.claims.push(ClaimRule { says, needs: shared(&fields, "needs") });
    }
    rules
}

fn shared(fields: &MapFields<'_>, key: &str) -> Vec<Arc<str>> {
    fields.texts(key).into_iter().filter_map(|node| node.text().map(Into::into)).collect()
}

fn expression(context: &mut LoadContext<'_>, node: &Node) -> Option<PythonRegex> {
    match PythonRegex::new(node.text()?, Flags { ignore_case: true, ..Flags::default() }) {
        Ok(pattern) => Some(pattern),
        Err(error) => {
            let message = format!("`says` is not a valid regular expression: {error}");
            context.error(
                "F0530",
                node,
                message,
                "Use the regular expression syntax of Python, without slashes around it.",
            );
            None
        }
    }
}

/// A number of seconds, or a map from channel to seconds; `false` means never.
fn delays(context: &mut LoadContext<'_>, node: &Node) -> Option<FillerDelays> {
    if let Some(default) = seconds(node) {
        return Some(FillerDelays { default, ..FillerDelays::default() });
    }
    let Some(entries) = node.map() else {
        report_delay(context, node);
        return None;
    };
    let mut delays = FillerDelays::default();
    for entry in entries {
        match seconds(&entry.node) {
            None => report_delay(context, &entry.node),
            Some(default) if entry.key == DEFAULT_CHANNEL => delays.default = default,
            Some(own) => {
                delays.channels.insert(entry.key.as_str().into(), own);
            }
        }
    }
    Some(delays)
}

/// `None`: the value is invalid; `Some(None)`: never.
fn seconds(node: &Node) -> Option<Option<Duration>> {
    if node.bool() == Some(false) {
        return Some(None);
    }
    let seconds = node.number().and_then(|number| number.as_f64())?;
    let real = seconds.is_finite() && seconds > 0.0 && seconds < 1e6;
    real.then(|| Duration::try_from_secs_f64(seconds).ok()).flatten().map(Some)
}

fn report_delay(context: &mut LoadContext<'_>, node: &Node) {
    let message = format!(
        "`filler_after` must be a number of seconds, `false`, or a map by channel, but this is {}",
        describe(node)
    );
    context.error("F0531", node, message, "Write for example `filler_after: 3` or `{default: 3, voice: 1.5}`.");
}

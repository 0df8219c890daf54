//! The rules in `configuration` of an agent.

use std::{sync::Arc, time::Duration};

use super::super::{
    AgentRules, ClaimRule, ConfirmRule, FillerPace, GroundedRule, ResumeRule, ToolRule, UntrustedInputPolicy,
    reader::{Fields, Reader, said},
    schema::{AGENT_TOOL, CLAIM},
    uses::Role,
    yaml::Node,
};
use crate::regex_dialect::{Flags, PythonRegex};

/// The name of the pace on channels that are not named.
const USUAL: &str = "default";

/// Reads them.
pub(super) fn rules(reader: &mut Reader<'_>, how: &Fields<'_>) -> AgentRules {
    let mut rules = AgentRules {
        confirm: if how.text("confirm") == Some("writes") { ConfirmRule::Writes } else { ConfirmRule::Never },
        taint: if how.text("taint") == Some("confirm") {
            UntrustedInputPolicy::Confirm
        } else {
            UntrustedInputPolicy::Trace
        },
        grounded: match how.text("grounded") {
            Some("off") => GroundedRule::Off,
            Some("repair") => GroundedRule::Repair,
            _ => GroundedRule::Warn,
        },
        resume: if how.text("resume") == Some("repeat") { ResumeRule::Repeat } else { ResumeRule::Invoke },
        filler_after: how.node("filler_after").and_then(|node| pace(reader, node)),
        forward_metadata: shared(how, "forward_metadata"),
        ..AgentRules::default()
    };
    for entry in how.map("tools") {
        let Some(fields) = reader.fields(&entry.node, &AGENT_TOOL) else { continue };
        let rule = ToolRule {
            effect: fields.shared("effect"),
            requires: fields.node("requires").and_then(|node| reader.condition(node, Role::Tool)),
            refusal: fields.shared("refusal"),
            confirm: fields.bool("confirm"),
            max_calls: fields.whole("max_calls").map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
            place: reader.place(&entry.at),
        };
        rules.tools.insert(entry.key.as_str().into(), rule);
    }
    for node in how.list("claims") {
        let Some(fields) = reader.fields(node, &CLAIM) else { continue };
        let Some(says) = fields.node("says").and_then(|says| expression(reader, says)) else { continue };
        rules.claims.push(ClaimRule { says, needs: shared(&fields, "needs") });
    }
    rules
}

fn shared(fields: &Fields<'_>, key: &str) -> Vec<Arc<str>> {
    fields.texts(key).into_iter().filter_map(|node| node.text().map(Into::into)).collect()
}

fn expression(reader: &mut Reader<'_>, node: &Node) -> Option<PythonRegex> {
    match PythonRegex::new(node.text()?, Flags { ignore_case: true, ..Flags::default() }) {
        Ok(pattern) => Some(pattern),
        Err(error) => {
            let message = format!("`says` is no regular expression: {error}");
            reader.error("F0530", node, message, "Write it in the dialect of Python, without slashes around it.");
            None
        }
    }
}

/// A number of seconds, or one for each channel; `false` is never.
fn pace(reader: &mut Reader<'_>, node: &Node) -> Option<FillerPace> {
    if let Some(usual) = seconds(node) {
        return Some(FillerPace { usual, ..FillerPace::default() });
    }
    let Some(entries) = node.map() else {
        wrong_pace(reader, node);
        return None;
    };
    let mut pace = FillerPace::default();
    for entry in entries {
        match seconds(&entry.node) {
            None => wrong_pace(reader, &entry.node),
            Some(usual) if entry.key == USUAL => pace.usual = usual,
            Some(own) => {
                pace.channels.insert(entry.key.as_str().into(), own);
            }
        }
    }
    Some(pace)
}

/// The outer `None` is for what is no time.
fn seconds(node: &Node) -> Option<Option<Duration>> {
    if node.bool() == Some(false) {
        return Some(None);
    }
    let seconds = node.number().and_then(|number| number.as_f64())?;
    let real = seconds.is_finite() && seconds > 0.0 && seconds < 1e6;
    real.then(|| Duration::try_from_secs_f64(seconds).ok()).flatten().map(Some)
}

fn wrong_pace(reader: &mut Reader<'_>, node: &Node) {
    let message = format!("`filler_after` takes seconds, `false`, or both by channel, but this is {}", said(node));
    reader.error("F0531", node, message, "Write for example `filler_after: 3` or `{default: 3, voice: 1.5}`.");
}

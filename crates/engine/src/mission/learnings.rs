//! What an iteration learned, for the items after it: `<LEARNINGS>` blocks in answers of commanders and agents.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::limits::{MISSION_LEARNING_CHARS, MISSION_LEARNINGS};
use crate::text::{ELLIPSIS, TextLimit, truncate};

/// A problem and what helped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedFailure {
    /// The problem.
    pub problem: Arc<str>,
    /// What helped.
    #[serde(default)]
    pub solution: Arc<str>,
}

/// What was learned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Learnings {
    /// Insights, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key_insights: Vec<Arc<str>>,
    /// Problems, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<LearnedFailure>,
    /// What to do for the next items.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub recommendations: Arc<str>,
}

impl Learnings {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.key_insights.is_empty() && self.failures.is_empty() && self.recommendations.is_empty()
    }

    /// The last complete `<LEARNINGS>` block of a text with usable content. Text around the JSON inside the block, such as a code fence, is
    /// ignored, and so are fields of other types.
    pub fn parse(text: &str) -> Option<Self> {
        let mut rest = text;
        while let Some(end) = rest.rfind("</LEARNINGS>") {
            let (before, _) = rest.split_at(end);
            let start = before.rfind("<LEARNINGS>")?;
            let block = before.get(start + "<LEARNINGS>".len()..).unwrap_or_default();
            if let Some(learnings) = parse_block(block).filter(|learnings| !learnings.is_empty()) {
                return Some(learnings);
            }
            rest = before.get(..start).unwrap_or_default();
        }
        None
    }

    /// A text without its `<LEARNINGS>` blocks.
    pub fn strip(text: &str) -> String {
        let (mut out, mut rest) = (String::with_capacity(text.len()), text);
        while let Some((before, after)) = rest.split_once("<LEARNINGS>") {
            let Some((_, after)) = after.split_once("</LEARNINGS>") else { break };
            out.push_str(before.trim_end());
            rest = after;
        }
        out.push_str(rest);
        out.trim().to_owned()
    }

    /// Adds what was learned later. Of [`MISSION_LEARNINGS`] entries of each kind the newest stay; a repeated entry counts as new. Later
    /// recommendations replace earlier ones.
    pub fn merge(&mut self, later: &Self) {
        for insight in &later.key_insights {
            self.key_insights.retain(|known| known != insight);
            self.key_insights.push(insight.clone());
        }
        for failure in &later.failures {
            self.failures.retain(|known| known.problem != failure.problem);
            self.failures.push(failure.clone());
        }
        keep_newest(&mut self.key_insights);
        keep_newest(&mut self.failures);
        if !later.recommendations.is_empty() {
            self.recommendations = later.recommendations.clone();
        }
    }

    /// The values for a prompt: `key_insights`, `failures` with `problem` and `solution`, `recommendations`.
    pub fn prompt_values(&self) -> minijinja::Value {
        crate::template::from_json(&serde_json::to_value(self).unwrap_or_default())
    }
}

fn keep_newest<T>(entries: &mut Vec<T>) {
    let excess = entries.len().saturating_sub(MISSION_LEARNINGS);
    entries.drain(..excess);
}

fn parse_block(block: &str) -> Option<Learnings> {
    let json = block.get(block.find('{')?..=block.rfind('}')?)?;
    let value: Json = serde_json::from_str(json).ok()?;
    let list = |name: &str| value.get(name).and_then(Json::as_array).cloned().unwrap_or_default();
    let mut learnings = Learnings {
        key_insights: list("key_insights").iter().filter_map(entry).collect(),
        failures: list("failures").iter().filter_map(failure).collect(),
        recommendations: match value.get("recommendations") {
            // Models write a list here as often as a text.
            Some(Json::Array(lines)) => {
                let lines: Vec<Arc<str>> = lines.iter().filter_map(entry).collect();
                short(&lines.join("\n"))
            }
            other => other.and_then(entry).unwrap_or_default(),
        },
    };
    keep_newest(&mut learnings.key_insights);
    keep_newest(&mut learnings.failures);
    Some(learnings)
}

fn entry(value: &Json) -> Option<Arc<str>> {
    value.as_str().map(str::trim).filter(|text| !text.is_empty()).map(short)
}

fn failure(value: &Json) -> Option<LearnedFailure> {
    let problem = value.get("problem").unwrap_or(value);
    let solution = value.get("solution").and_then(entry).unwrap_or_default();
    Some(LearnedFailure { problem: entry(problem)?, solution })
}

fn short(text: &str) -> Arc<str> {
    truncate(text, TextLimit::Chars(MISSION_LEARNING_CHARS), ELLIPSIS).into()
}

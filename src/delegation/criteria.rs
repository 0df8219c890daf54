//! `acceptance_criteria` of `task`: what code can check is checked when the delegate has answered, everything else is marked as unverified.
//!
//! A criterion is an object with one key: `{"file": "outputs/report.md"}` (it exists), `{"file_not_empty": …}`, `{"command": "…"}` (it ends
//! with status 0), or `{"text": "…"}` for what code cannot check. Models write named keys reliably, and the key alone says what code does, so
//! no sentence has to be interpreted. One form for all items keeps the schema free of alternatives, which some APIs of models refuse. A plain
//! text in place of an object is accepted as `text`.

use std::sync::Arc;

use minijinja::context;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::{
    parent::DelegationParent,
    report::{hash, words},
    types::DELEGATES_ONLY,
};
use crate::{
    context::CallContext,
    limits,
    prompts::PromptSet,
    tools::{
        ToolCallContext, ToolOutcome, invoke,
        tool_set::ToolSet,
        workspace::{BASH, READ_FILE, SOURCE},
    },
};

/// The keys of a criterion.
const KEYS: [&str; 4] = ["file", "file_not_empty", "command", "text"];

/// What must hold when an assignment is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Criterion {
    /// The file exists.
    File(Arc<str>),
    /// The file exists and has content.
    FileNotEmpty(Arc<str>),
    /// The command ends with status 0.
    Command(Arc<str>),
    /// Something that code cannot check.
    Text(Arc<str>),
}

/// Whether a criterion holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Code has checked that it holds.
    Met,
    /// Code has checked that it does not hold.
    NotMet,
    /// Nobody has checked it.
    Unverified,
}

/// A criterion and whether it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedCriterion {
    /// The criterion as a text: `file outputs/report.md`.
    pub criterion: Arc<str>,
    /// Whether it holds.
    pub verdict: Verdict,
    /// Why it does not hold, or why it was not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
}

impl Criterion {
    /// Reads the criteria of a call.
    ///
    /// # Errors
    /// Why they cannot be used.
    pub(super) fn read_all(values: &[Json]) -> Result<Vec<Self>, String> {
        if values.len() > limits::DELEGATION_CRITERIA {
            return Err(format!("there are {}, at most {} are allowed", values.len(), limits::DELEGATION_CRITERIA));
        }
        let read = |(at, value)| Self::read(value).map_err(|problem| format!("number {at}: {problem}"));
        (1..).zip(values).map(read).collect()
    }

    fn read(value: &Json) -> Result<Self, String> {
        let text = |text: &str| match text.trim() {
            "" => Err("it is empty".to_owned()),
            text if text.chars().count() > limits::DELEGATION_CRITERION => {
                Err(format!("it has more than {} characters", limits::DELEGATION_CRITERION))
            }
            text => Ok(Arc::from(text)),
        };
        if let Some(plain) = value.as_str() {
            return text(plain).map(Self::Text);
        }
        let keys = || format!("write an object with one of the keys {}", KEYS.join(", "));
        // A model may write the keys that it does not use as null.
        let given = value.as_object().ok_or_else(keys)?.iter().filter(|(_, value)| !value.is_null());
        let given: Vec<(&String, &Json)> = given.collect();
        let [(key, value)] = given.as_slice() else { return Err(keys()) };
        let value = text(value.as_str().ok_or_else(|| format!("the value of `{key}` must be a text"))?)?;
        match key.as_str() {
            "file" => Ok(Self::File(value)),
            "file_not_empty" => Ok(Self::FileNotEmpty(value)),
            "command" => Ok(Self::Command(value)),
            "text" => Ok(Self::Text(value)),
            _ => Err(keys()),
        }
    }

    /// The criterion in one line.
    fn line(&self) -> Arc<str> {
        let (key, value) = match self {
            Self::Text(text) => return text.clone(),
            Self::File(path) => ("file", path),
            Self::FileNotEmpty(path) => ("file_not_empty", path),
            Self::Command(command) => ("command", command),
        };
        format!("{key} {value}").into()
    }

    /// The criteria as part of the assignment.
    pub(super) fn assignment(criteria: &[Self], prompts: &PromptSet) -> String {
        let lines: Vec<Arc<str>> = criteria.iter().map(Self::line).collect();
        let text = prompts.render(&prompts.delegate_turn, context! { outcome => "criteria", criteria => lines });
        text.unwrap_or_default().trim().to_owned()
    }
}

/// What checks the criteria of one assignment.
pub(super) struct Checker<'a> {
    pub(super) parent: &'a DelegationParent,
    /// The tools of the delegate.
    pub(super) tools: &'a ToolSet,
    /// The context of the call of `task`.
    pub(super) call: &'a ToolCallContext,
    /// The context of the delegate, with its time limit and its cancellation.
    pub(super) cx: &'a CallContext,
    /// The id of the delegate.
    pub(super) id: &'a str,
}

impl Checker<'_> {
    /// Checks criteria one after the other. Each check is a step of the journal: a file is read, a command is a `write`, which is never
    /// repeated after a crash. When the time of the delegate is over or it is cancelled, the others are not checked.
    pub(super) async fn check(&self, criteria: &[Criterion]) -> Vec<CheckedCriterion> {
        let mut checked = Vec::with_capacity(criteria.len());
        for (at, criterion) in criteria.iter().enumerate() {
            let cx = self.cx.step(format!("criterion.{at}"));
            let result = async {
                match criterion {
                    Criterion::File(path) => self.file(path, false, cx).await,
                    Criterion::FileNotEmpty(path) => self.file(path, true, cx).await,
                    Criterion::Command(command) => self.command(command, cx).await,
                    Criterion::Text(_) => (Verdict::Unverified, None),
                }
            };
            let stopped = (Verdict::Unverified, self.reason(context! { reason => "failed" }));
            let (verdict, reason) = self.cx.wait(result).await.unwrap_or(stopped);
            checked.push(CheckedCriterion { criterion: criterion.line(), verdict, reason });
        }
        checked
    }

    async fn file(&self, path: &str, not_empty: bool, cx: CallContext) -> (Verdict, Option<Arc<str>>) {
        let arguments = json!({"description": "acceptance criteria", "path": path, "start_line": 1, "end_line": 1});
        let Some(outcome) = self.perform(READ_FILE, arguments, cx).await else {
            return (Verdict::Unverified, self.reason(context! { reason => "no_tool", tool => READ_FILE }));
        };
        let failure = match outcome {
            ToolOutcome::Done(output) => {
                let is_empty = output.meta.get("sha256").and_then(Json::as_str) == Some(&*hash(""));
                return match not_empty && is_empty {
                    true => (Verdict::NotMet, self.reason(context! { reason => "empty" })),
                    false => (Verdict::Met, None),
                };
            }
            ToolOutcome::Failed(failure) => failure,
            _ => return (Verdict::Unverified, self.reason(context! { reason => "failed" })),
        };
        match failure.code.as_deref() {
            // It is there and has content that is no text, or more than can be read.
            Some("file.binary" | "file.too_large") => (Verdict::Met, None),
            Some("file.not_found") => (Verdict::NotMet, self.reason(context! { reason => "missing" })),
            Some("file.not_a_file" | "file.not_a_folder" | "file.path" | "file.link") => {
                (Verdict::NotMet, self.reason(context! { reason => "no_file" }))
            }
            _ => (Verdict::Unverified, self.reason(context! { reason => "failed" })),
        }
    }

    async fn command(&self, command: &str, cx: CallContext) -> (Verdict, Option<Arc<str>>) {
        let arguments = json!({"description": "acceptance criteria", "command": command});
        let Some(outcome) = self.perform(BASH, arguments, cx).await else {
            return (Verdict::Unverified, self.reason(context! { reason => "no_tool", tool => BASH }));
        };
        let ToolOutcome::Done(output) = outcome else {
            return (Verdict::Unverified, self.reason(context! { reason => "failed" }));
        };
        match output.meta.get("exit_status").and_then(Json::as_i64) {
            Some(0) => (Verdict::Met, None),
            Some(status) => (Verdict::NotMet, self.reason(context! { reason => "exit_status", status })),
            None => (Verdict::NotMet, self.reason(context! { reason => "killed" })),
        }
    }

    /// Calls a tool of the workspace: one of the delegate, or one that its parent has itself. `None`: neither has it. So a criterion can do
    /// nothing that the delegate or its parent could not do.
    async fn perform(&self, name: &str, arguments: Json, cx: CallContext) -> Option<ToolOutcome> {
        let has = |tools: &ToolSet, others: bool| {
            let found = tools.get(name).map(|entry| entry.info.source.clone());
            found.is_some_and(|source| *source == *SOURCE || others && *source == *DELEGATES_ONLY)
        };
        let tools = if has(self.tools, true) {
            self.tools
        } else if self.parent.narrowing.allows(name) && has(&self.parent.tools, false) {
            &self.parent.tools
        } else {
            return None;
        };
        let key = invoke::idempotency_key(&self.parent.conversation, self.parent.turn, &cx);
        let context = ToolCallContext::new(cx, self.parent.conversation.clone(), key)
            // What is read here, no agent has read.
            .with_caller(self.call.caller.clone().session(format!("{}/criteria", self.id)))
            .with_metadata(self.call.metadata.clone());
        Some(invoke::invoke(tools, name, arguments, &context, None).await)
    }

    fn reason(&self, variables: minijinja::Value) -> Option<Arc<str>> {
        let variables = context! { outcome => "criterion", ..variables };
        Some(words(&self.parent.prompts, variables).into())
    }
}

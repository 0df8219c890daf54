//! A script of a skill as a tool: a child process that reads its arguments as JSON from standard input.
//!
//! It is of the effect class `write`, has a time limit, and inherits no environment variable that may hold a secret. It runs in the folder of its skill. Standard output is
//! its result: JSON, or text. A script that does not end with status 0 has failed. What it leaves running in its process group is killed.

use std::{
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use segue_base::{
    child::{self, ChildCommand},
    environment,
    json::from_slice_lossy,
    limits,
};
use segue_engine::project::SkillScript;
use serde_json::{Value as Json, json};

use super::{
    EffectClass, FailureKind, ToolCallContext, ToolFailure, ToolHandler, ToolInfo, ToolOutcome, ToolOutput,
    messages::{ToolMessage, render_message, shown_seconds},
};

/// The source of scripts, in traces.
pub const SOURCE: &str = "skill";
/// Characters of the errors of a script that the model gets.
const ERRORS: usize = 2_000;

/// The tool.
pub struct ScriptTool {
    info: ToolInfo,
    script: SkillScript,
    /// The folder of the skill.
    folder: PathBuf,
}

impl ScriptTool {
    /// The tool of a script of the skill in `folder`.
    pub fn new(script: &SkillScript, folder: &Path) -> Self {
        let description =
            render_message(ToolMessage::ScriptDescription, &[("path", &script.path), ("skill", &script.skill)]);
        let parameters = json!({"type": "object", "properties": {}, "additionalProperties": true});
        let info = ToolInfo::new(script.tool.clone(), description)
            .parameters(parameters)
            .effect(EffectClass::Write)
            .source(SOURCE);
        Self { info, script: script.clone(), folder: folder.to_owned() }
    }

    async fn run(&self, arguments: &Json, context: &ToolCallContext) -> Result<ToolOutput, ToolOutcome> {
        let not_started = |detail: String| {
            let message = render_message(ToolMessage::ScriptNotStarted, &[]);
            let mut failure = ToolFailure::new(FailureKind::Unavailable, message);
            failure.detail = Some(detail);
            ToolOutcome::Failed(failure)
        };
        // A path that does not depend on the working directory of the script.
        let folder = &self.folder;
        let folder = folder.canonicalize().map_err(|error| not_started(format!("{}: {error}", folder.display())))?;
        let (program, args) = command(folder.join(&*self.script.path));
        let own = self.script.environment.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let variables = environment::all();
        let environment = child::inherited(&variables).cloned().chain(own).collect();
        let command = ChildCommand { program: &program, args: &args, environment, directory: Some(&folder) };
        let started = child::spawn(command).map_err(not_started)?;
        let input = serde_json::to_vec(arguments).unwrap_or_default();
        let mut output = Vec::new();
        let keep = |bytes: &[u8]| {
            // One byte more shows that there was too much.
            let room = (limits::SKILL_SCRIPT_OUTPUT + 1).saturating_sub(output.len());
            output.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        };
        let limit = self.script.timeout.min(context.remaining());
        let until = context.cx.clock.deadline(limit);
        let stop = async {
            tokio::select! {
                biased;
                () = context.cx.cancel.cancelled() => stopped(FailureKind::Cancelled, ToolMessage::ScriptCancelled, limit),
                () = context.cx.clock.sleep(until) => stopped(FailureKind::Timeout, ToolMessage::ScriptTimeout, limit),
            }
        };
        let ended = started.run(&input, keep, stop).await;
        match ended.status? {
            Ok(status) if status.success() => Ok(result_of(output)),
            Ok(status) => Err(failed(status, &ended.errors.last(ERRORS))),
            Err(error) => Err(not_started(error.to_string())),
        }
    }
}

/// The program and its arguments: an interpreter by the ending of the file, or the file itself.
fn command(file: PathBuf) -> (PathBuf, Vec<String>) {
    let interpreter = match file.extension().and_then(|ending| ending.to_str()) {
        Some("py") => "python3",
        Some("sh") => "sh",
        Some("js" | "mjs") => "node",
        Some("rb") => "ruby",
        _ => return (file, Vec::new()),
    };
    (interpreter.into(), vec![file.to_string_lossy().into_owned()])
}

/// It ran, and what it did remains.
fn stopped(kind: FailureKind, message: ToolMessage, limit: Duration) -> ToolOutcome {
    ToolOutcome::Unknown(ToolFailure::new(kind, render_message(message, &[("seconds", &shown_seconds(limit))])))
}

fn failed(status: ExitStatus, errors: &str) -> ToolOutcome {
    let status = status.to_string();
    let message = render_message(ToolMessage::ScriptFailed, &[("status", &status), ("errors", &errors)]);
    ToolOutcome::failed(FailureKind::ToolError, message)
}

fn result_of(output: Vec<u8>) -> ToolOutput {
    if output.len() > limits::SKILL_SCRIPT_OUTPUT {
        let message = render_message(ToolMessage::ScriptOutput, &[("limit", &limits::SKILL_SCRIPT_OUTPUT)]);
        return ToolOutput { unusable: Some(message), ..ToolOutput::default() };
    }
    match from_slice_lossy(&output) {
        Ok((value @ (Json::Object(_) | Json::Array(_)), _)) => ToolOutput::structured(value),
        _ => ToolOutput::text(String::from_utf8_lossy(&output).trim()),
    }
}

#[async_trait]
impl ToolHandler for ScriptTool {
    fn info(&self) -> &ToolInfo {
        &self.info
    }
    fn idle_timeout(&self) -> Option<Duration> {
        Some(self.script.timeout)
    }
    fn total_timeout(&self) -> Option<Duration> {
        Some(self.script.timeout.saturating_add(limits::MCP_CLOSE))
    }
    async fn call(&self, arguments: Json, context: &ToolCallContext) -> ToolOutcome {
        match self.run(&arguments, context).await {
            Ok(output) => ToolOutcome::Done(output),
            Err(outcome) => outcome,
        }
    }
}

/// The scripts as tools. `folder_of` is the folder of a skill.
pub fn tools(scripts: &[SkillScript], folder_of: impl Fn(&str) -> PathBuf) -> Vec<Arc<dyn ToolHandler>> {
    let tool =
        |script: &SkillScript| Arc::new(ScriptTool::new(script, &folder_of(&script.skill))) as Arc<dyn ToolHandler>;
    scripts.iter().map(tool).collect()
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;
    use crate::fixture::context;

    /// The tool `s_run`, without variables.
    fn script(path: &str, timeout: Duration) -> SkillScript {
        SkillScript { tool: "s_run".into(), skill: "s".into(), path: path.into(), environment: Vec::new(), timeout }
    }

    /// Runs a shell script with this text.
    async fn run(text: &str, environment: &[(&str, &str)], timeout: Duration) -> ToolOutcome {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("run.sh"), text).unwrap();
        let environment = environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let script = SkillScript { environment, ..script("run.sh", timeout) };
        ScriptTool::new(&script, folder.path()).call(json!({"a": 1}), &context()).await
    }

    const LONG: Duration = Duration::from_secs(50);

    #[tokio::test]
    async fn script_reads_json_and_gets_only_harmless_and_granted_variables() {
        // Cargo sets this variable for tests: it stands for a secret of the process.
        let ToolOutcome::Done(output) =
            run("cat; echo; echo \"[$CARGO_MANIFEST_DIR][$TOKEN]\"", &[("TOKEN", "t")], LONG).await
        else {
            panic!("it fails");
        };
        assert_eq!(output.joined_text(), "{\"a\":1}\n[][t]");
        let ToolOutcome::Done(output) = run("echo '{\"sum\": 3}'", &[], LONG).await else { panic!("it fails") };
        assert_eq!(output.structured, Some(json!({"sum": 3})));
    }

    #[tokio::test]
    async fn failing_script_reports_status_and_errors_and_a_missing_one_does_not_run() {
        let ToolOutcome::Failed(failure) = run("echo no money >&2; exit 3", &[], LONG).await else {
            panic!("it succeeds")
        };
        assert_eq!((failure.kind, failure.message.contains("no money")), (FailureKind::ToolError, true), "{failure:?}");
        let script = script("none.sh", LONG);
        let missing = ScriptTool::new(&script, Path::new("/no/such/folder")).call(json!({}), &context()).await;
        let ToolOutcome::Failed(failure) = missing else { panic!("{missing:?}") };
        assert_eq!(failure.kind, FailureKind::Unavailable);
        assert_eq!(ScriptTool::new(&script, Path::new("x")).info().effect, EffectClass::Write);
    }

    #[tokio::test]
    async fn cancelled_script_is_killed_and_its_outcome_is_unknown() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("run.sh"), "sleep 3600").unwrap();
        let script = script("run.sh", LONG);
        let context = context();
        context.cx.cancel.cancel();
        let outcome = ScriptTool::new(&script, folder.path()).call(json!({}), &context).await;
        let ToolOutcome::Unknown(failure) = outcome else { panic!("{outcome:?}") };
        assert_eq!(failure.kind, FailureKind::Cancelled);
    }

    #[tokio::test(start_paused = true)]
    async fn script_that_takes_too_long_is_stopped() {
        // The time of the test is paused: it passes at once while the script waits.
        let outcome = run("sleep 3600", &[], Duration::from_millis(5_970)).await;
        let ToolOutcome::Unknown(failure) = outcome else { panic!("{outcome:?}") };
        assert_eq!((failure.kind, failure.message.contains("after 6 s")), (FailureKind::Timeout, true), "{failure:?}");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_process_that_a_script_leaves_does_not_take_its_result_away() {
        let folder = tempfile::tempdir().unwrap();
        let (started, pipe) = (folder.path().join("started"), folder.path().join("go"));
        assert!(std::process::Command::new("mkfifo").args([&started, &pipe]).status().unwrap().success());
        // It leaves the process group, and holds both outputs open until the test lets it end.
        let leave = "setsid sh -c 'echo > started; read line < go' & read line < started; echo '{\"ticket\": 7}'";
        // The clock stands still, so the call does not end by its time limit.
        let context = ToolCallContext { cx: segue_base::manual_clock::ManualClock::new().context(LONG), ..context() };
        std::fs::write(folder.path().join("run.sh"), leave).unwrap();
        let script = script("run.sh", LONG);
        let outcome = ScriptTool::new(&script, folder.path()).call(json!({}), &context).await;
        tokio::task::spawn_blocking(move || std::fs::write(pipe, "go\n")).await.unwrap().unwrap();
        let ToolOutcome::Done(output) = outcome else { panic!("{outcome:?}") };
        assert_eq!(output.structured, Some(json!({"ticket": 7})));
    }
}

//! `bash`: runs a command in the sandbox, with a limit for everything it may use.

use std::{collections::VecDeque, path::Path, process::ExitStatus, sync::Arc, time::Duration};

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use super::{
    Inner, Usage, Workspace,
    error::FileError,
    folder::Excess,
    path::{Area, VIRTUAL_ROOT},
    sandbox::Sandbox,
    tools::{BASH, Place, bad_arguments, info},
};
use crate::{
    ArgumentCheck, EffectClass, FailureKind, ToolCallContext, ToolFailure, ToolHandler, ToolInfo, ToolOutcome,
    ToolOutput,
    messages::{ToolMessage, render_message, shown_seconds},
    tool::deserialize_arguments,
};
use segue_base::{
    child::{self, ChildCommand},
    context::{CallContext, WaitError},
    limits,
};

/// Limits the size of a file (in blocks of 512 bytes) and lets only the owner read new files, then runs the command with one pipe for both
/// outputs, so that they stay in order. What the sandbox itself writes to standard error stays apart.
const SCRIPT: &str = r#"ulimit -f "$1" 2>/dev/null; umask 077; exec bash -c "$2" 2>&1"#;
/// Bytes of one of the blocks.
const BLOCK: u64 = 512;
/// Characters of an error of the sandbox that operators see.
const DETAIL: usize = 2_000;

/// The tool.
pub(super) struct BashTool {
    info: ToolInfo,
    check: Option<Arc<ArgumentCheck>>,
    place: Place,
    sandbox: Option<Sandbox>,
    stop: CancellationToken,
}

impl BashTool {
    pub(super) fn new(place: Place, sandbox: Option<Sandbox>, stop: CancellationToken) -> Self {
        let info = info(BASH, EffectClass::Write);
        let check = ArgumentCheck::compile(&info.parameters).ok().map(Arc::new);
        Self { info, check, place, sandbox, stop }
    }

    /// The time of a call: waiting for a place, and the command itself.
    fn total(&self) -> Option<Duration> {
        self.sandbox.as_ref().map(|sandbox| sandbox.inner().time_limit + limits::SANDBOX_QUEUE)
    }
}

#[derive(Deserialize)]
struct BashArguments {
    command: String,
}

#[async_trait]
impl ToolHandler for BashTool {
    fn info(&self) -> &ToolInfo {
        &self.info
    }
    fn argument_check(&self) -> Option<Arc<ArgumentCheck>> {
        self.check.clone()
    }
    fn idle_timeout(&self) -> Option<Duration> {
        self.total()
    }
    fn total_timeout(&self) -> Option<Duration> {
        self.total()
    }
    async fn call(&self, arguments: Json, context: &ToolCallContext) -> ToolOutcome {
        let arguments: BashArguments = match deserialize_arguments(arguments) {
            Ok(arguments) => arguments,
            Err(problem) => return bad_arguments(&problem),
        };
        if !cfg!(unix) {
            return ToolOutcome::failed(FailureKind::Refused, render_message(ToolMessage::BashSystem, &[]));
        }
        let Some(sandbox) = &self.sandbox else {
            return ToolOutcome::failed(FailureKind::Refused, render_message(ToolMessage::BashOff, &[]));
        };
        let workspace = match self.place.workspace(&context.caller) {
            Ok(workspace) => workspace,
            Err(error) => return error.into_outcome(),
        };
        match run(sandbox, &workspace, &arguments.command, &self.stop, &context.cx).await {
            Ok(run) => run.into_outcome(),
            Err(error) => error.into_outcome(),
        }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Exited(i32),
    Signalled(i32),
    /// It was stopped after its time limit.
    TimedOut(Duration),
    /// It was stopped because its files exceed a limit.
    OverQuota(Excess),
    Cancelled,
}

/// A command that ran.
#[derive(Debug)]
pub(super) struct CommandRun {
    pub(super) ending: Ending,
    /// Its output and its end, for the model.
    pub(super) text: String,
}

/// Why a command did not run.
#[derive(Debug)]
pub(super) enum NotRun {
    Command,
    Busy,
    Stopped,
    /// The sandbox failed; the text is for operators.
    Sandbox(String),
    Files(FileError),
}

impl NotRun {
    pub(super) fn detail(&self) -> String {
        match self {
            Self::Sandbox(detail) => detail.clone(),
            other => format!("{other:?}"),
        }
    }

    fn into_outcome(self) -> ToolOutcome {
        match self {
            Self::Command => {
                let message = render_message(ToolMessage::BashCommand, &[("limit", &limits::SANDBOX_COMMAND)]);
                ToolOutcome::failed(FailureKind::BadArguments, message)
            }
            Self::Busy => ToolOutcome::failed(FailureKind::Timeout, render_message(ToolMessage::BashBusy, &[])),
            Self::Stopped => {
                ToolOutcome::failed(FailureKind::Cancelled, render_message(ToolMessage::CancelledBeforeSend, &[]))
            }
            Self::Sandbox(detail) => {
                tracing::warn!(detail, "the sandbox for commands cannot be started");
                let mut failure =
                    ToolFailure::new(FailureKind::Unavailable, render_message(ToolMessage::BashNotStarted, &[]));
                failure.code = Some("sandbox.not_started".to_owned());
                failure.detail = Some(detail);
                ToolOutcome::Failed(failure)
            }
            Self::Files(error) => error.into_outcome(),
        }
    }
}

impl CommandRun {
    fn into_outcome(self) -> ToolOutcome {
        let meta = match self.ending {
            // It ran, and what it did remains.
            Ending::Cancelled => {
                return ToolOutcome::Unknown(ToolFailure::new(
                    FailureKind::Cancelled,
                    render_message(ToolMessage::BashCancelled, &[]),
                ));
            }
            Ending::Exited(status) => json!({"exit_status": status}),
            Ending::Signalled(signal) => json!({"signal": signal}),
            Ending::TimedOut(_) => json!({"timed_out": true}),
            Ending::OverQuota(_) => json!({"over_quota": true}),
        };
        let meta = meta.as_object().cloned().unwrap_or_default();
        ToolOutcome::Done(ToolOutput { meta, ..ToolOutput::text(self.text) })
    }
}

/// Counts a running command: while one runs, the size of the workspace is not known.
struct Running(Arc<Inner>);

impl Running {
    fn new(inner: &Arc<Inner>) -> Self {
        inner.state().commands += 1;
        Self(inner.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.commands = state.commands.saturating_sub(1);
        state.usage = None;
        drop(state);
        self.0.idle.notify_waiters();
    }
}

/// Runs a command. Cancellation: dropping the future kills the command with all its processes.
pub(super) async fn run(
    sandbox: &Sandbox,
    workspace: &Workspace,
    command: &str,
    stop: &CancellationToken,
    cx: &CallContext,
) -> Result<CommandRun, NotRun> {
    if command.trim().is_empty() || command.contains('\0') || command.len() > limits::SANDBOX_COMMAND {
        return Err(NotRun::Command);
    }
    let inner = &workspace.inner;
    let queue = cx.with_timeout(limits::SANDBOX_QUEUE);
    let _place = tokio::select! {
        biased;
        () = stop.cancelled() => return Err(NotRun::Stopped),
        () = inner.closed.cancelled() => return Err(NotRun::Files(FileError::Removed)),
        place = queue.wait(sandbox.inner().places.clone().acquire_owned()) => {
            match place {
                Ok(Ok(place)) => place,
                Ok(Err(_)) | Err(WaitError::DeadlinePassed) => return Err(NotRun::Busy),
                Err(WaitError::Cancelled) => return Err(NotRun::Stopped),
            }
        }
    };
    let (before, _) = workspace.run(|inner, _| inner.settled()).await.map_err(NotRun::Files)?;
    if before.entries > limits::WORKSPACE_COUNTED {
        return Err(NotRun::Files(FileError::TooManyFiles));
    }
    let running = Running::new(inner);
    // A workspace that is full may still be emptied by a command.
    let free = inner.max_bytes.saturating_sub(before.bytes).max(BLOCK);
    let mut args = sandbox.arguments(&inner.root);
    let blocks = (free / BLOCK).to_string();
    args.extend(["sh", "-c", SCRIPT, "sh", &blocks, command].map(str::to_owned));
    let environment = [
        ("PATH", sandbox.inner().path.as_str()),
        ("HOME", &format!("{VIRTUAL_ROOT}/{}", Area::Workspace.as_str())),
        ("LANG", "C.UTF-8"),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let directory = inner.root.join(Area::Workspace.as_str());
    let program = Path::new(sandbox.program());
    let started = child::spawn(ChildCommand { program, args: &args, environment, directory: Some(&directory) });
    let started = started.map_err(NotRun::Sandbox)?;

    let mut captured = Capture::default();
    let limit = sandbox.inner().time_limit.min(cx.remaining());
    let until = cx.clock.deadline(limit);
    let stopped = async {
        tokio::select! {
            biased;
            () = stop.cancelled() => Ending::Cancelled,
            () = cx.cancel.cancelled() => Ending::Cancelled,
            () = inner.closed.cancelled() => Ending::Cancelled,
            () = cx.clock.sleep(until) => Ending::TimedOut(limit),
            excess = watch_size(workspace, before, cx) => Ending::OverQuota(excess),
        }
    };
    // The command reads nothing.
    let ended = started.run(&[], |bytes| captured.push(bytes), stopped).await;
    drop(running);
    let ending = match ended.status {
        Ok(Ok(status)) => ending_of(status),
        Ok(Err(error)) => return Err(NotRun::Sandbox(error.to_string())),
        Err(ending) => ending,
    };
    let sandbox_error = ended.errors.last(DETAIL);
    if matches!(ending, Ending::Exited(1..)) && captured.is_empty() && !sandbox_error.is_empty() {
        return Err(NotRun::Sandbox(sandbox_error));
    }
    let after = match ending {
        Ending::Cancelled => None,
        _ => workspace.run(|inner, _| inner.settled()).await.ok(),
    };
    let text = text_of(inner, &captured, ending, after);
    Ok(CommandRun { ending, text })
}

#[cfg(unix)]
fn ending_of(status: ExitStatus) -> Ending {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exited(code),
        (None, signal) => Ending::Signalled(signal.unwrap_or_default()),
    }
}

#[cfg(not(unix))]
fn ending_of(status: ExitStatus) -> Ending {
    Ending::Exited(status.code().unwrap_or(-1))
}

/// Ends when the files of the run exceed a limit. A workspace that exceeded it `before` may be emptied by the command, but not grow.
///
/// Counting many files takes long, so they are counted in a tenth of the time, and at once when the file system has lost much of the room
/// that is left.
async fn watch_size(workspace: &Workspace, before: Usage, cx: &CallContext) -> Excess {
    let max_bytes = workspace.inner.max_bytes;
    let free = async || workspace.run(|inner, _| Ok(inner.opened()?.free())).await.ok().flatten();
    let (mut usage, mut free_then) = (before, free().await);
    let (mut counted_at, mut took) = (cx.clock.elapsed(), Duration::ZERO);
    loop {
        cx.clock.sleep(cx.clock.deadline(limits::SANDBOX_CHECK)).await;
        let (began, free_now) = (cx.clock.elapsed(), free().await);
        let since = began.saturating_sub(counted_at);
        let has_shrunk = usage.may_be_full(free_then, free_now, max_bytes) && since >= took;
        if !has_shrunk && since < took.saturating_mul(9).min(limits::SANDBOX_CHECK_MOST) {
            continue;
        }
        let Ok(counted) = workspace.run(|inner, _| inner.counted()).await else { continue };
        if let Some(excess) = counted.growth(before, max_bytes) {
            return excess;
        }
        counted_at = cx.clock.elapsed();
        took = counted_at.saturating_sub(began);
        (usage, free_then) = (counted, free_now);
    }
}

/// `after`: what the files take, and whether folders that were nested too deeply were removed.
fn text_of(inner: &Inner, captured: &Capture, ending: Ending, after: Option<(Usage, bool)>) -> String {
    let (max_bytes, entries, levels) = (inner.max_bytes, limits::WORKSPACE_ENTRIES, limits::WORKSPACE_NESTED);
    let mut notes = vec![match ending {
        Ending::Exited(status) => render_message(ToolMessage::BashExit, &[("status", &status)]),
        Ending::Signalled(signal) => render_message(ToolMessage::BashSignal, &[("signal", &signal)]),
        Ending::TimedOut(limit) => render_message(ToolMessage::BashTimeout, &[("seconds", &shown_seconds(limit))]),
        Ending::OverQuota(Excess::Bytes) => render_message(ToolMessage::BashQuota, &[("limit", &max_bytes)]),
        Ending::OverQuota(Excess::Entries) => render_message(ToolMessage::BashQuotaEntries, &[("limit", &entries)]),
        Ending::OverQuota(Excess::Depth) => render_message(ToolMessage::BashQuotaDepth, &[("levels", &levels)]),
        Ending::Cancelled => render_message(ToolMessage::BashCancelled, &[]),
    }];
    let (usage, is_pruned) = after.unwrap_or_default();
    if is_pruned {
        notes.push(render_message(ToolMessage::BashPruned, &[("levels", &levels)]));
    }
    match usage.excess(max_bytes) {
        None => {}
        Some(Excess::Depth) => notes.push(render_message(ToolMessage::BashOverDepth, &[("levels", &levels)])),
        Some(_) if usage.entries > limits::WORKSPACE_COUNTED => {
            notes.push(render_message(ToolMessage::BashOverCounted, &[("limit", &limits::WORKSPACE_COUNTED)]));
        }
        Some(_) => {
            let used = [("bytes", &usage.bytes as &dyn std::fmt::Display), ("entries", &usage.entries)];
            notes.push(render_message(ToolMessage::BashOver, &used));
        }
    }
    let output = captured.text(inner);
    let output = if output.trim().is_empty() { render_message(ToolMessage::BashQuiet, &[]) } else { output };
    format!("{}\n{}", output.trim_end_matches('\n'), notes.join("\n"))
}

/// The start and the end of an output, with bounded memory.
#[derive(Default)]
pub(super) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Bytes between the two that were dropped.
    dropped: u64,
}

impl Capture {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let room = limits::SANDBOX_CAPTURE.saturating_sub(self.head.len()).min(bytes.len());
        let (head, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let surplus = self.tail.len().saturating_sub(limits::SANDBOX_CAPTURE);
        self.tail.drain(..surplus);
        self.dropped += surplus as u64;
    }

    fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// The output as text, masked, with its middle left out if it is long.
    pub(super) fn text(&self, inner: &Inner) -> String {
        let (front, back) = self.tail.as_slices();
        let tail = [front, back].concat();
        if self.dropped == 0 {
            let whole = [self.head.as_slice(), &tail].concat();
            let masked = inner.masks.apply(&String::from_utf8_lossy(&whole));
            return without_middle(&masked, "", 0);
        }
        let head = inner.masks.apply(&String::from_utf8_lossy(&self.head));
        let tail = inner.masks.apply(&String::from_utf8_lossy(&tail));
        // At the gap there may be a part of a secret, which the masks do not recognise.
        let longest = inner.masks.longest();
        let head = head.get(..head.floor_char_boundary(head.len().saturating_sub(longest))).unwrap_or_default();
        let tail = tail.get(tail.ceil_char_boundary(longest.min(tail.len()))..).unwrap_or_default();
        without_middle(head, tail, self.dropped)
    }
}

/// The start of `head` and the end of `tail` (of `head`, if that is empty), at most [`limits::SANDBOX_OUTPUT`] characters.
fn without_middle(head: &str, tail: &str, dropped: u64) -> String {
    let (of_head, of_tail) = (head.chars().count(), tail.chars().count());
    let total = of_head + of_tail;
    if dropped == 0 && total <= limits::SANDBOX_OUTPUT {
        return [head, tail].concat();
    }
    // Some characters are left for the mark.
    let half = limits::SANDBOX_OUTPUT / 2 - 50;
    let start: String = head.chars().take(half).collect();
    let end = if tail.is_empty() { head } else { tail };
    let skipped = end.chars().count().saturating_sub(half);
    let end: String = end.chars().skip(skipped).collect();
    let left_out = (total.saturating_sub(start.chars().count() + end.chars().count()) as u64).saturating_add(dropped);
    format!("{start}\n{}\n{end}", render_message(ToolMessage::BashCut, &[("count", &left_out)]))
}

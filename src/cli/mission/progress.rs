//! What `segue mission run` prints while a run is worked on: a tree for people, events as JSON lines for programs.

use std::io::{self, Write};

use segue_engine::mission::{
    event::{RunEvent, RunEventKind},
    state::{RunState, TaskState, TaskStatus},
};

use crate::cli::output;

/// Prints the progress of a run.
pub(super) struct Progress {
    is_terminal: bool,
    state: RunState,
    /// Lines of the tree that was drawn last.
    lines: usize,
    /// The first error of writing; nothing is written after it.
    error: Option<io::Error>,
}

impl Progress {
    pub(super) fn new(is_terminal: bool) -> Self {
        Self { is_terminal, state: RunState::default(), lines: 0, error: None }
    }

    /// Shows an event.
    pub(super) fn show(&mut self, event: &RunEvent) {
        self.state.apply(event);
        if self.error.is_some() {
            return;
        }
        let shown = match self.is_terminal {
            true if changes_the_tree(&event.event.kind) => self.redraw(),
            true => Ok(()),
            false => output::println(&serde_json::to_string(event).unwrap_or_default()),
        };
        self.error = shown.err();
    }

    fn redraw(&mut self) -> io::Result<()> {
        let text = overview(&self.state);
        let mut out = io::stdout().lock();
        if self.lines > 0 {
            // Moves to the first line of the tree and clears what follows.
            write!(out, "\x1b[{}A\x1b[J", self.lines)?;
        }
        writeln!(out, "{text}")?;
        out.flush()?;
        self.lines = text.lines().count();
        Ok(())
    }

    /// The end of the output.
    pub(super) fn finish(self) -> io::Result<()> {
        self.error.map_or(Ok(()), Err)
    }
}

fn changes_the_tree(kind: &RunEventKind) -> bool {
    !matches!(
        kind,
        RunEventKind::SessionTurn { .. } | RunEventKind::ToolCalled { .. } | RunEventKind::ToolCompleted { .. }
    )
}

/// The tasks of a run with their states, one in a line.
pub(super) fn overview(state: &RunState) -> String {
    let mut lines = vec![format!("{} ({})", state.mission, state.run)];
    for (name, task) in &state.tasks {
        lines.push(format!("  {} {name}{}", sign(task.status), details(task)));
    }
    let clean = |line: &String| output::strip_control_characters(line).into_owned();
    lines.iter().map(clean).collect::<Vec<_>>().join("\n")
}

fn sign(status: TaskStatus) -> &'static str {
    match status {
        TaskStatus::Completed => "✓",
        TaskStatus::Failed => "✗",
        TaskStatus::Cancelled => "-",
        status if status.is_open() => "▸",
        _ => "·",
    }
}

fn details(task: &TaskState) -> String {
    let mut text = String::new();
    if task.round() > 1 {
        text.push_str(&format!(" (round {})", task.round()));
    }
    if let Some(total) = task.total_items {
        let failed = task.count(TaskStatus::Failed);
        text.push_str(&format!(": {} of {total} items", task.count(TaskStatus::Completed)));
        if failed > 0 {
            text.push_str(&format!(", {failed} failed"));
        }
    } else if let Some(plan) = task.unit.as_ref().and_then(|unit| unit.plan.as_ref()) {
        text.push_str(&format!(": {} of {} subtasks", plan.completed, plan.subtasks.len()));
    }
    if let Some(error) = &task.error {
        text.push_str(&format!(": {}", error.lines().next().unwrap_or_default()));
    }
    text
}

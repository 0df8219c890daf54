//! The tree of a run for people: its tasks with their states, one in a line that fits the terminal.

use segue_engine::mission::state::{ItemState, MissionStatus, RunState, TaskState, TaskStatus};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::cli::output;

/// Characters of a progress bar.
const BAR: usize = 20;
/// Items in progress, and failed ones, that a task shows while the tree is drawn again and again.
pub(super) const FEW_ITEMS: usize = 3;
/// The same for a tree that is printed once.
pub(super) const MOST_ITEMS: usize = 100;

/// How a tree is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// The longest line, in columns.
    pub(super) width: usize,
    /// The most lines.
    pub(super) height: usize,
    /// The most items of a task that are in progress, and that have failed.
    pub(super) items: usize,
    /// Whether states have colours.
    pub(super) colour: bool,
}

/// A line of the tree.
struct Line {
    indent: usize,
    state: State,
    text: String,
}

/// What the sign of a line says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Pending,
    Running,
    Waiting,
    Completed,
    Failed,
    Cancelled,
}

impl State {
    fn of(status: TaskStatus) -> Self {
        match status {
            TaskStatus::Pending => Self::Pending,
            TaskStatus::Running => Self::Running,
            TaskStatus::Blocked => Self::Waiting,
            TaskStatus::Completed => Self::Completed,
            TaskStatus::Failed => Self::Failed,
            TaskStatus::Cancelled => Self::Cancelled,
        }
    }

    /// The sign, and its colour as a parameter of an SGR sequence (ECMA-48, 8.3.117).
    fn sign(self) -> (&'static str, &'static str) {
        match self {
            Self::Pending => ("·", "2"),
            Self::Running => ("▸", "36"),
            Self::Waiting => ("?", "33"),
            Self::Completed => ("✓", "32"),
            Self::Failed => ("✗", "31"),
            Self::Cancelled => ("-", "2"),
        }
    }
}

/// How many tasks of a run there are.
pub(super) struct TaskCounts {
    /// Those that are completed.
    pub(super) completed: usize,
    /// All of the mission; of a completed run, those that ran.
    pub(super) total: usize,
    /// Those of a completed run that no route has led to.
    pub(super) not_chosen: usize,
}

impl TaskCounts {
    pub(super) fn of(state: &RunState) -> Self {
        let completed = state.tasks.values().filter(|task| task.status == TaskStatus::Completed).count();
        let all = usize::try_from(state.task_count).unwrap_or(usize::MAX);
        let total = if state.status == MissionStatus::Completed { state.tasks.len().min(all) } else { all };
        Self { completed, total, not_chosen: all - total }
    }
}

/// The tree of a run, as lines without line ends.
pub(super) fn tree(state: &RunState, look: Look) -> Vec<String> {
    let mut lines: Vec<Line> = Vec::new();
    for (name, task) in &state.tasks {
        lines.push(Line { indent: 2, state: state_of(state, name, task), text: format!("{name}{}", details(task)) });
        let has_ended = state.status.has_ended();
        lines.extend(items(task, look.items, |item| item.status.is_open() && !has_ended));
        lines.extend(items(task, look.items, |item| item.status == TaskStatus::Failed));
    }
    let TaskCounts { completed, total, not_chosen } = TaskCounts::of(state);
    let others = if not_chosen > 0 { format!(", {not_chosen} not chosen") } else { String::new() };
    let head = format!("{} ({}): {completed} of {total} tasks{others}", state.mission, state.run);
    let mut drawn = vec![cut(&clean(&head), look.width)];
    drawn.extend(fit(lines, look.height.saturating_sub(1)).iter().map(|line| draw(line, look)));
    drawn.truncate(look.height.max(1));
    drawn
}

/// The first items of a kind, and how many more there are.
fn items(task: &TaskState, most: usize, of_kind: impl Fn(&ItemState) -> bool) -> Vec<Line> {
    let found: Vec<&ItemState> = task.items.unfinished().map(|(_, item)| item).filter(|item| of_kind(item)).collect();
    let line = |item: &&ItemState| {
        let attempt = item.unit.as_ref().map_or(1, |unit| unit.attempt);
        let mut text = format!("item {}", item.item_id);
        if attempt > 1 {
            text.push_str(&format!(", attempt {attempt}"));
        }
        if let Some(error) = item.error.as_ref().filter(|_| !item.status.is_open()) {
            text.push_str(&format!(": {error}"));
        }
        Line { indent: 4, state: State::of(item.status), text }
    };
    let mut lines: Vec<Line> = found.iter().take(most).map(line).collect();
    if let Some(last) = found.get(most) {
        let text = format!("and {} more", found.len() - most);
        lines.push(Line { indent: 4, state: State::of(last.status), text });
    }
    lines
}

/// Whether a task waits for people is known from its questions. Nothing runs in a run that has ended.
fn state_of(run: &RunState, name: &str, task: &TaskState) -> State {
    if run.status.has_ended() && task.status.is_open() {
        return State::Cancelled;
    }
    let asks = run.human_inputs.values().any(|input| input.open && &*input.unit.task == name);
    if asks && task.status.is_open() { State::Waiting } else { State::of(task.status) }
}

/// At most so many lines: items are left out first, then completed tasks are counted in one line, and then the last ones are counted.
fn fit(mut lines: Vec<Line>, height: usize) -> Vec<Line> {
    if lines.len() > height {
        lines.retain(|line| line.indent == 2);
    }
    if lines.len() > height {
        let all = lines.len();
        lines.retain(|line| line.state != State::Completed);
        let text = format!("{} completed tasks", all - lines.len());
        lines.insert(0, Line { indent: 2, state: State::Completed, text });
    }
    if lines.len() > height {
        let kept = height.saturating_sub(1);
        let text = format!("and {} more", lines.len() - kept);
        lines.truncate(kept);
        lines.push(Line { indent: 2, state: State::Pending, text });
    }
    lines
}

fn draw(line: &Line, look: Look) -> String {
    let (sign, colour) = line.state.sign();
    let text = cut(&format!("{:indent$}{sign} {}", "", clean(&line.text), indent = line.indent), look.width);
    match look.colour {
        true => text.replacen(sign, &format!("\x1b[{colour}m{sign}\x1b[0m"), 1),
        false => text,
    }
}

/// A text on one line, without control characters.
fn clean(text: &str) -> String {
    output::single_line(text)
}

/// The beginning of a line that fits a width; its last character says that something is missing.
fn cut(line: &str, width: usize) -> String {
    if line.width() <= width {
        return line.to_owned();
    }
    let (mut text, mut used) = (String::new(), 0);
    for c in line.chars() {
        used += c.width().unwrap_or(0);
        if used + 1 > width {
            break;
        }
        text.push(c);
    }
    if width > 0 {
        text.push('…');
    }
    text
}

fn details(task: &TaskState) -> String {
    let mut text = String::new();
    if task.round() > 1 {
        text.push_str(&format!(" (round {})", task.round()));
    }
    if let Some(total) = task.total_items {
        let (done, failed) = (task.count(TaskStatus::Completed), task.count(TaskStatus::Failed));
        text.push_str(&format!("  {}  {done} of {total} items", bar(done, total)));
        if failed > 0 {
            text.push_str(&format!(", {failed} failed"));
        }
    } else if let Some(plan) = task.unit.as_ref().and_then(|unit| unit.plan.as_ref()) {
        text.push_str(&format!(": {} of {} subtasks", plan.completed, plan.subtasks.len()));
    }
    if let Some(error) = &task.error {
        text.push_str(&format!(": {error}"));
    }
    text
}

fn bar(done: u32, total: u32) -> String {
    let full = match total {
        0 => BAR,
        _ => usize::try_from(u64::from(done) * BAR as u64 / u64::from(total)).unwrap_or(BAR).min(BAR),
    };
    format!("{}{}", "█".repeat(full), "░".repeat(BAR - full))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

    use super::*;

    const WIDE: Look = Look { width: 100, height: 50, items: 1, colour: false };

    fn run() -> RunState {
        let item = |id: &str, status: &str| serde_json::json!({"item_id": id, "status": status});
        let failed = serde_json::json!({"item_id": "k1", "status": "failed", "error": "bad page"});
        serde_json::from_value(serde_json::json!({
            "sequence": 9, "run": "r1", "mission": "report", "status": "running", "task_count": 4,
            "tasks": {
                "gather": {"status": "completed", "attempts": 1},
                "read": {"status": "running", "attempts": 1, "total_items": 6,
                    "items": {"0": item("k0", "completed"), "1": failed, "2": item("k2", "running"), "3": item("k3", "running"),
                        "4": item("k4", "running")}},
                "write": {"status": "failed", "attempts": 1, "error": "first line\nsecond \u{1b}[2Jline"},
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_tree_shows_the_tasks_with_their_progress_and_no_control_characters() {
        assert_eq!(
            tree(&run(), WIDE),
            [
                "report (r1): 1 of 4 tasks",
                "  ✓ gather",
                "  ▸ read  ███░░░░░░░░░░░░░░░░░  1 of 6 items, 1 failed",
                "    ▸ item k2",
                "    ▸ and 2 more",
                "    ✗ item k1: bad page",
                "  ✗ write: first line second [2Jline",
            ]
        );
    }

    #[test]
    fn nothing_runs_in_a_run_that_has_ended() {
        let mut run = run();
        run.status = MissionStatus::Stopped;
        assert_eq!(tree(&run, WIDE)[2], "  - read  ███░░░░░░░░░░░░░░░░░  1 of 6 items, 1 failed");
        assert!(!tree(&run, WIDE).concat().contains('▸'));
    }

    #[test]
    fn tasks_that_no_route_has_led_to_are_counted_apart() {
        let mut run = run();
        run.tasks.shift_remove("write");
        run.status = MissionStatus::Completed;
        assert_eq!(tree(&run, WIDE)[0], "report (r1): 1 of 2 tasks, 2 not chosen");
    }

    #[test]
    fn lines_are_cut_at_the_width_of_the_terminal_in_columns() {
        for width in [1, 8, 20] {
            let lines = tree(&run(), Look { width, ..WIDE });
            assert!(lines.iter().all(|line| line.width() <= width), "{lines:?}");
        }
        // Wide characters take two columns.
        assert_eq!(cut("日本語です", 6), "日本…");
        assert_eq!(cut("日本語", 6), "日本語");
    }

    #[test]
    fn a_tree_is_never_higher_than_the_terminal_and_leaves_out_what_matters_least() {
        assert_eq!(tree(&run(), Look { height: 4, ..WIDE }).len(), 4, "without the items");
        assert_eq!(
            tree(&run(), Look { height: 3, ..WIDE }),
            ["report (r1): 1 of 4 tasks", "  ✓ 1 completed tasks", "  · and 2 more"]
        );
        for height in 0..6 {
            assert!(tree(&run(), Look { height, ..WIDE }).len() <= height.max(1));
        }
    }

    #[test]
    fn colours_are_those_of_the_signs_only() {
        let lines = tree(&run(), Look { colour: true, ..WIDE });
        assert_eq!(lines[1], "  \x1b[32m✓\x1b[0m gather");
        assert!(!tree(&run(), WIDE).concat().contains('\x1b'));
    }
}

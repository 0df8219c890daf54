//! What `segue mission run` prints while a run is worked on: a tree for people, events as JSON lines for programs.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Arc, Mutex, PoisonError},
};

use segue::environment;
use segue_engine::mission::{
    event::{RunEvent, RunEventKind},
    state::RunState,
};

use super::tree::{FEW_ITEMS, Look, tree};
use crate::cli::output;

/// Prints the progress of runs. Cheap to clone; clones print to the same place.
#[derive(Clone)]
pub(super) struct Progress(Arc<Mutex<Printed>>);

struct Printed {
    is_terminal: bool,
    state: RunState,
    /// The number of the last event that is not printed, because an earlier command did.
    past: u64,
    /// The tree that was drawn last.
    drawn: Vec<String>,
    /// The first error of writing; nothing is written after it.
    error: Option<io::Error>,
}

impl Progress {
    pub(super) fn new() -> Self {
        let is_terminal = io::stdout().is_terminal();
        let printed = Printed { is_terminal, state: RunState::default(), past: 0, drawn: Vec::new(), error: None };
        Self(Arc::new(Mutex::new(printed)))
    }

    /// Begins a run: events up to this number are part of its tree, and are not printed as lines.
    pub(super) fn begin(&self, past: u64) {
        self.with(|printed| printed.past = past);
    }

    fn with<T>(&self, change: impl FnOnce(&mut Printed) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Shows an event. One that was shown before is ignored.
    pub(super) fn show(&self, event: &RunEvent) {
        self.with(|printed| {
            if event.sequence <= printed.state.sequence {
                return;
            }
            printed.state.apply(event);
            if printed.error.is_some() {
                return;
            }
            if event.sequence < printed.past {
                return;
            }
            let is_past = event.sequence == printed.past;
            let shown = match printed.is_terminal {
                true if is_past || changes_the_tree(&event.event.kind) => printed.draw(),
                true => Ok(()),
                false if is_past => Ok(()),
                false => output::println(&serde_json::to_string(event).unwrap_or_default()),
            };
            printed.error = shown.err();
        });
    }

    /// Prints a status message above the tree.
    pub(super) fn say(&self, text: &str) {
        self.with(|printed| {
            if printed.error.is_none() {
                printed.error = printed.clear().err();
            }
            output::status(text);
            if printed.is_terminal && printed.state.sequence > 0 && printed.error.is_none() {
                printed.error = printed.draw().err();
            }
        });
    }

    /// The end of a run: its tree stays.
    pub(super) fn finish(&self) -> io::Result<()> {
        self.with(|printed| {
            printed.state = RunState::default();
            printed.past = 0;
            printed.drawn.clear();
            printed.error.take().map_or(Ok(()), Err)
        })
    }
}

impl Printed {
    fn draw(&mut self) -> io::Result<()> {
        let lines = tree(&self.state, look());
        if lines == self.drawn {
            return Ok(());
        }
        self.clear()?;
        output::print(&format!("{}\n", lines.join("\n")))?;
        self.drawn = lines;
        Ok(())
    }

    /// Removes the tree from the terminal.
    fn clear(&mut self) -> io::Result<()> {
        let lines = std::mem::take(&mut self.drawn).len();
        if lines == 0 {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        // Moves to the first line of the tree and clears what follows.
        write!(out, "\x1b[{lines}A\r\x1b[J")?;
        out.flush()
    }
}

fn changes_the_tree(kind: &RunEventKind) -> bool {
    !matches!(
        kind,
        RunEventKind::SessionTurn { .. } | RunEventKind::ToolCalled { .. } | RunEventKind::ToolCompleted { .. }
    )
}

/// How a tree looks on standard output: within the size of the terminal, and in colour unless `NO_COLOR` is set
/// (<https://no-color.org>).
pub(super) fn look() -> Look {
    let (width, height) = size().unwrap_or((80, 24));
    let colour = environment::variable("NO_COLOR").is_none_or(|value| value.is_empty());
    // The cursor is in the line below the tree.
    Look { width, height: height.saturating_sub(1).max(1), items: FEW_ITEMS, colour }
}

/// Columns and rows of the terminal, if it says them.
fn size() -> Option<(usize, usize)> {
    #[cfg(unix)]
    {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        let known = size.ws_col > 0 && size.ws_row > 0;
        known.then(|| (usize::from(size.ws_col), usize::from(size.ws_row)))
    }
    #[cfg(not(unix))]
    None
}

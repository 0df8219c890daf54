//! The page of the events of missions, made from the types that are stored and their comments.

use anyhow::{Result, ensure};
use syn::File;

use super::events::Types;

/// The files with the types.
pub const SOURCES: [&str; 3] =
    ["crates/engine/src/mission/event.rs", "crates/engine/src/mission/learnings.rs", "crates/lang/src/usage.rs"];
const HEAD: &str = "\
# Events of missions

All that is stored of a run is a list of events. `cargo xtask docs` writes this page from their types. Where they appear:

* `segue mission run`, `resume`, `rerun` and `show --follow` print each event as a line of JSON, unless standard output is a terminal.
* `segue mission show RUN --events` prints those of a stored run.

What begins has an end: each `task_started` is followed by one of `task_completed`, `task_failed` and `task_cancelled`, each
`iteration_started` by one of `iteration_completed`, `iteration_failed` and `iteration_cancelled`, each `task_iteration_started` by
`task_iteration_completed` unless the task ends without it, each `agent_started` by `agent_completed`, each `tool_called` by
`tool_completed`, and each `human_input_requested` by `human_input_resolved` if the run goes on. `mission_started` is the first event. A run
ends with `mission_completed`, `mission_failed` or `mission_stopped`; after the last two, `mission_resumed` may follow. What was in progress when a run was stopped
goes on after it was resumed, without a second `…_started`. A call that a crash interrupted has its end after the run was resumed.

`tool_called` and `tool_completed` of one call have the same `call`. Calls of one response that only read may overlap, so that other events
can be between the two. A call that was refused before it ran, because its tool is unknown, its arguments are wrong or a rule forbids it, has
both, with `failed: true`; its result says why.

After the last event of a run that has files, `run`, `resume`, `rerun` and `show --follow` print one more line, whose `event` is
`run_files`, with `run`, `folder` and `files`. It has no `sequence` and is not stored.

A program that reads events ignores kinds and fields that it does not know.
";

/// The text of the page.
pub fn page(sources: &[&str]) -> Result<String> {
    let files: Vec<File> = sources.iter().map(|text| syn::parse_file(text)).collect::<Result<_, _>>()?;
    let types = Types(&files);
    let mut page = HEAD.to_owned();
    page.push_str("\n## Fields of every event\n");
    types.fields_of(&mut page, "RunEvent", "");
    types.fields_of(&mut page, "NewEvent", "");
    page.push_str("\n## Kinds\n\n`event` has the name.\n");
    types.variants(&mut page, "RunEventKind", "###");
    for (name, heading) in [
        ("PersonQuestion", "Question"),
        ("PreviousRun", "Previous run"),
        ("Learnings", "Learnings"),
        ("LearnedFailure", "Learned failure"),
        ("Usage", "Usage"),
    ] {
        types.fields_of(&mut page, name, &format!("## {heading}"));
    }
    page.push_str("\n## Chosen target\n\n`none`, or an object with one key:\n");
    types.variants(&mut page, "ChosenTarget", "###");
    page.push_str("\n## Answer of a commander\n\nAn object with one key:\n");
    types.variants(&mut page, "CommanderAnswer", "###");
    let is_whole = page.contains("### `mission_started`") && page.contains("## Usage") && page.contains("## Learnings");
    ensure!(files.iter().all(|file| file.items.is_empty()) || is_whole, "a type of events is no longer in its file");
    Ok(page)
}

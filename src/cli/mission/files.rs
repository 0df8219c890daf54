//! Where the files of a run are: at the end of commands that work on it, and in `segue mission show`.

use std::{
    io::{self, IsTerminal},
    path::Path,
};

use segue::{
    ids::RunId,
    missions::{RunFile, RunFiles},
};
use serde_json::{Value as Json, json};

use crate::cli::output;

/// Files that are named for people.
const MOST_LINES: usize = 10;

/// Names the files of a run: for people, and for programs as a line of JSON.
pub(super) async fn report(project: &Path, run: &RunId) -> io::Result<()> {
    let Some(files) = RunFiles::of(project, run).await else { return Ok(()) };
    if !io::stdout().is_terminal() {
        let mut line = json!({"event": "run_files", "run": run});
        if let (Json::Object(line), Json::Object(files)) = (&mut line, as_json(&files)) {
            line.extend(files);
        }
        output::println(&line.to_string())?;
    }
    lines(&files).iter().for_each(|line| output::status(line));
    Ok(())
}

/// Names the files of a run for people.
pub(super) async fn say(project: &Path, run: &RunId) {
    let files = RunFiles::of(project, run).await;
    files.iter().flat_map(lines).for_each(|line| output::status(&line));
}

/// The files for people, one line each.
pub(super) fn lines(files: &RunFiles) -> Vec<String> {
    let mut lines = vec![format!("files in {}:", files.folder.display())];
    let line = |RunFile { path, bytes }: &RunFile| format!("  {path} ({bytes} bytes)");
    lines.extend(files.files.iter().take(MOST_LINES).map(line));
    let more = files.more + files.files.len().saturating_sub(MOST_LINES);
    lines.extend((more > 0).then(|| format!("  and {more} more")));
    lines.iter().map(|line| output::single_line(line)).collect()
}

/// The files for programs.
pub(super) fn as_json(files: &RunFiles) -> Json {
    let each = files.files.iter().map(|RunFile { path, bytes }| json!({"path": path, "bytes": bytes}));
    let mut value = json!({"folder": files.folder.display().to_string(), "files": each.collect::<Vec<_>>()});
    if let Some(value) = value.as_object_mut().filter(|_| files.more > 0) {
        value.insert("more".into(), files.more.into());
    }
    value
}

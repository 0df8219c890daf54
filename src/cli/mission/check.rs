//! `segue mission check` and `segue mission plan`: what a project's missions are, without a store.

use segue::project::{Project, findings_report};

use super::{Plan, ProjectOnly};
use crate::cli::{CommandResult, EXIT_FINDINGS, EXIT_USAGE, output};

pub(super) fn check(args: &ProjectOnly) -> CommandResult {
    let checked = args.project.check()?;
    if !checked.findings.is_empty() {
        output::eprint(&findings_report::all(&checked.findings, &checked.sources));
    }
    let Some(project) = checked.project else { return Ok(EXIT_FINDINGS) };
    for mission in project.missions.values() {
        output::println(&format!("{}: {} tasks", mission.name, mission.tasks.len()))?;
    }
    if project.missions.is_empty() {
        output::status("the project has no missions; they are files in `missions/`");
    }
    Ok(0)
}

pub(super) fn plan(args: &Plan) -> CommandResult {
    let Some(opened) = args.project.open()? else { return Ok(EXIT_FINDINGS) };
    let Some(mission) = opened.project.mission(&args.mission) else { return unknown(&args.mission, &opened.project) };
    for task in mission.tasks.values() {
        let mut line = task.name.to_string();
        if !task.depends_on.is_empty() {
            line.push_str(&format!(" after {}", task.depends_on.join(", ")));
        }
        if let Some(iterator) = &task.iterator {
            let how = match iterator.parallel {
                true => format!("{} at a time", iterator.concurrency_limit),
                false => "one after the other".to_owned(),
            };
            line.push_str(&format!(", for each item of {} ({how})", iterator.dataset));
        }
        let targets = segue_engine::project::mission_graph::targets(task);
        if !targets.is_empty() {
            let targets: Vec<&str> = targets.iter().map(|target| &***target).collect();
            line.push_str(&format!(", then {}", targets.join(" or ")));
        }
        output::println(&line)?;
    }
    Ok(0)
}

pub(super) fn unknown(mission: &str, project: &Project) -> CommandResult {
    let names: Vec<&str> = project.missions.keys().map(|name| &**name).collect();
    let known = if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
    output::status(&format!("the project has no mission `{mission}`; {known}"));
    Ok(EXIT_USAGE)
}

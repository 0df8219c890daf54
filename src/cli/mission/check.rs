//! `segue mission check` and `segue mission plan`: what a project's missions are and what a run would need, without a store and
//! without a model.

use segue::{
    missions::MissionError,
    project::{Project, findings_report},
};

use segue_engine::{
    mission::plan::{self, PlannedTask},
    project::missions::{NextTasks, TaskDef},
};

use super::{Plan, ProjectOnly, drive::read_inputs};
use crate::cli::{CommandResult, EXIT_FINDINGS, EXIT_USAGE, output};

pub(super) fn check(args: &ProjectOnly) -> CommandResult {
    let checked = args.project.check()?;
    if !checked.findings.is_empty() {
        output::eprint(&findings_report::all(&checked.findings, &checked.sources));
    }
    let Some(project) = checked.project else { return Ok(EXIT_FINDINGS) };
    for mission in project.missions.values() {
        let title = mission.title.as_ref().map(|title| format!(" ({title})")).unwrap_or_default();
        output::println(&format!("{}{title}: {} tasks", mission.name, mission.tasks.len()))?;
    }
    if project.missions.is_empty() {
        output::status("the project has no missions; they are files in `missions/`");
    }
    Ok(0)
}

pub(super) fn plan(args: &Plan) -> CommandResult {
    let Some(inputs) = read_inputs(&args.inputs)? else { return Ok(EXIT_USAGE) };
    let Some(opened) = args.project.open()? else { return Ok(EXIT_FINDINGS) };
    let Some(mission) = opened.project.mission(&args.mission) else { return unknown(&args.mission, &opened.project) };
    let inputs = match segue::missions::input_files(mission, &inputs) {
        Ok(inputs) => inputs,
        Err(problems) => {
            problems.iter().for_each(|problem| output::status(&problem.to_string()));
            return Ok(EXIT_USAGE);
        }
    };
    let given = (!args.inputs.is_empty()).then_some(&inputs);
    if let Some(entry) = args.entry.as_deref().filter(|entry| !mission.tasks.contains_key(*entry)) {
        let names: Vec<&str> = mission.tasks.keys().map(|name| &**name).collect();
        output::status(&format!("the mission has no task `{entry}`; it has {}", names.join(", ")));
        return Ok(EXIT_USAGE);
    }
    let plan = match plan::plan(mission, given, args.entry.as_deref().map(Into::into)) {
        Ok(plan) => plan,
        Err(problems) => {
            problems.iter().for_each(|problem| output::status(&problem.to_string()));
            return Ok(EXIT_USAGE);
        }
    };
    for planned in &plan.tasks {
        let Some(task) = mission.tasks.get(&planned.task) else { continue };
        output::println(&heading(task, planned))?;
        if let Some(objective) = &planned.objective {
            let of_item =
                if task.iterator.as_ref().is_some_and(|iterator| iterator.parallel) { " (first item)" } else { "" };
            output::println(&format!("  objective{of_item}: {}", objective.trim().replace('\n', "\n    ")))?;
        }
        output::println(&format!("  {}", most(planned)))?;
    }
    let calls = match plan.commander_calls {
        Some(calls) => format!("model calls of commanders: at most {calls}"),
        None => "the number of model calls depends on datasets that are filled later".to_owned(),
    };
    if let Some(warning) = &plan.warning {
        output::status(&format!("warning: {warning}"));
    }
    let budget = budget(plan.tokens, plan.cost).unwrap_or_else(|| "no budget".to_owned());
    output::println(&format!("whole run: {calls}; those of agents depend on their assignments; {budget}"))?;
    Ok(0)
}

/// A task, what it waits for and what follows it.
fn heading(task: &TaskDef, planned: &PlannedTask) -> String {
    let mut line = task.name.to_string();
    if let Some(title) = &task.title {
        line.push_str(&format!(" ({title})"));
    }
    if task.always {
        line.push_str(", at the end of every run");
    }
    if planned.optional {
        line.push_str(", if it is chosen");
    }
    if !task.depends_on.is_empty() {
        line.push_str(&format!(" after {}", task.depends_on.join(", ")));
    }
    if let Some(iterator) = &task.iterator {
        let how = match iterator.parallel {
            true => format!("{} at a time", iterator.concurrency_limit),
            false => "one after the other".to_owned(),
        };
        let items = planned.items.map_or_else(|| "each item".to_owned(), |items| format!("each of {items} items"));
        line.push_str(&format!(", for {items} of {} ({how})", iterator.dataset));
    }
    if let Some(repeat) = &task.repeat {
        line.push_str(&format!(", until {} in at most {} rounds", repeat.until.source().text(), repeat.max));
    }
    let targets = segue_engine::project::mission_graph::targets(task);
    if !targets.is_empty() {
        let targets: Vec<&str> = targets.iter().map(|target| &***target).collect();
        let word = if matches!(task.next, NextTasks::SendTo(_)) { " and " } else { " or " };
        line.push_str(&format!(", then {}", targets.join(word)));
    }
    line
}

/// What a task may need at most.
fn most(planned: &PlannedTask) -> String {
    let mut parts = vec![match (planned.sessions, planned.commander_calls) {
        (Some(sessions), Some(calls)) => {
            format!("sessions: at most {sessions}; model calls of the commander: at most {calls}")
        }
        _ => "the number of items is not known yet".to_owned(),
    }];
    parts.extend(budget(planned.tokens, planned.cost));
    parts.join("; ")
}

fn budget(tokens: Option<u64>, cost: Option<f64>) -> Option<String> {
    let tokens = tokens.map(|tokens| format!("{tokens} tokens"));
    let parts: Vec<String> = tokens.into_iter().chain(cost.map(|cost| format!("a cost of {cost}"))).collect();
    (!parts.is_empty()).then(|| format!("budget: {}", parts.join(", ")))
}

pub(super) fn unknown(mission: &str, project: &Project) -> CommandResult {
    let names: Vec<&str> = project.missions.keys().map(|name| &**name).collect();
    let known = if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
    let code = MissionError::UnknownMission(mission.into()).code();
    output::status(&format!("the project has no mission `{mission}`; {known} [{code}]"));
    Ok(EXIT_USAGE)
}

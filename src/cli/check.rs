//! `segue check`: everything that is wrong with a project, at once.

use std::path::Path;

use clap::ValueEnum;
use segue::{
    actions, environment, limits,
    project::{Finding, Severity, SourceLocation as At, Sources, findings_report},
    runtime::{Assistant, AssistantBuilder, LoadError},
};

use super::{
    CommandResult, EXIT_FINDINGS, output,
    project_args::{MODEL_OR_PROMPT_ERROR, ProjectArgs, brought_over, kept_beside},
    wait,
};

/// How findings are shown.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people
    Text,
    /// One JSON object
    Json,
}

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) place: ProjectArgs,
    /// How findings are shown
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Also fail on warnings
    #[arg(long)]
    pub(super) strict: bool,
    /// Also contact MCP servers, remote agents and the action server
    #[arg(long)]
    online: bool,
}

/// Loads the project, then opens what it would run with, as far as that needs no network.
pub(super) fn check(args: &Args) -> CommandResult {
    let loaded = args.place.check()?;
    let mut findings = loaded.findings;
    if let Some(project) = loaded.project {
        findings.extend(args.place.beside(&project).map(|(theirs, ours)| Finding {
            code: "S0106",
            severity: Severity::Note,
            place: At { file: "endpoints.yml".into(), line: 0, column: 0, width: 1 },
            message: kept_beside(&theirs, &ours),
            help: format!("{}.", brought_over(&theirs)),
        }));
        let builder = AssistantBuilder::new(project.into(), args.place.project.clone());
        findings.extend(builder.unregistered());
        match builder.build() {
            Ok(assistant) if args.online => findings.extend(online(&assistant)?),
            Ok(assistant) => findings.extend(offline(&assistant, &args.place.project)?),
            Err(error) => findings.push(model_finding(&error)),
        }
    }
    show(&findings, &loaded.sources, args.format)?;
    let fails = |finding: &&Finding| {
        finding.severity == Severity::Error || (args.strict && finding.severity == Severity::Warning)
    };
    Ok(if findings.iter().any(|finding| fails(&finding)) { EXIT_FINDINGS } else { 0 })
}

/// A model that has no key here may have one where the project will run, so that is a warning.
fn model_finding(error: &LoadError) -> Finding {
    let (severity, file) = match error {
        LoadError::Model { .. } => (Severity::Warning, "endpoints.yml"),
        _ => (Severity::Error, "prompts"),
    };
    Finding {
        code: MODEL_OR_PROMPT_ERROR,
        severity,
        place: At { file: file.into(), line: 0, column: 0, width: 1 },
        message: error.to_string(),
        help: "The project would not start in the current environment.".to_owned(),
    }
}

/// What can be found out on this machine alone: whether a module of actions could be served.
fn offline(assistant: &Assistant, root: &Path) -> anyhow::Result<Option<Finding>> {
    let Some(def) = assistant.project().endpoints.action_endpoint.as_ref().filter(|def| def.url.is_none()) else {
        return Ok(None);
    };
    let around = actions::ActionEnvironment {
        clock: assistant.clock().clone(),
        http: assistant.outbound().clone(),
        directory: root.to_path_buf(),
        environment: environment::all().into(),
    };
    let trouble = wait(async { Ok(actions::check_python(def, &around).await) })?;
    let at = At { file: "endpoints.yml".into(), line: 0, column: 0, width: 1 };
    Ok(trouble.map(|trouble| Finding {
        code: "T0603",
        severity: Severity::Warning,
        place: def.place.clone().unwrap_or(at),
        message: format!("the action module cannot be served here: {trouble}"),
        help: "Actions of this project would fail on this machine.".to_owned(),
    }))
}

/// What the action server says to the actions that the project lists.
async fn served(assistant: &Assistant) -> Vec<Finding> {
    let Some(served) = assistant.served_actions().await else { return Vec::new() };
    let project = assistant.project();
    let place = project.endpoints.action_endpoint.as_ref().and_then(|def| def.place.clone());
    let place = place.unwrap_or(At { file: "endpoints.yml".into(), line: 0, column: 0, width: 1 });
    let finding = |code, message, help: &str| Finding {
        code,
        severity: Severity::Error,
        place: place.clone(),
        message,
        help: help.to_owned(),
    };
    match served {
        Err(reason) => {
            let message = format!("the action server does not answer: {reason}");
            vec![finding("T0601", message, "Start it, or correct `action_endpoint`.")]
        }
        Ok(names) => {
            let listed = project.domain.actions.keys().map(|name| name.as_str());
            let missing =
                listed.filter(|name| project.response(name).is_none() && !names.iter().any(|has| has == name));
            let help = "Add it to the action server, correct its name, or take it out of `actions` of the domain.";
            missing.map(|name| finding("T0602", format!("the action server has no action `{name}`"), help)).collect()
        }
    }
}

/// One error for each remote agent whose card cannot be fetched.
fn agents(assistant: &Assistant) -> Vec<Finding> {
    let lost = assistant.remote_agents().into_iter().filter_map(|(name, health)| Some((name, health.reason()?)));
    lost.map(|(name, reason)| Finding {
        code: "A0511",
        severity: Severity::Error,
        place: assistant.project().agent(&name).map_or_else(
            || At { file: "sub_agents".into(), line: 0, column: 0, width: 1 },
            |agent| agent.place.clone(),
        ),
        message: format!("the remote agent `{name}` does not answer: {reason}"),
        help: "Start it, or correct `agent_card` and `auth` of its configuration.".to_owned(),
    })
    .collect()
}

/// One error for each tool server that does not answer.
fn online(assistant: &Assistant) -> anyhow::Result<Vec<Finding>> {
    wait(async {
        assistant.connect().await;
        let down = assistant.sources().into_iter().filter_map(|(name, health)| {
            Some(Finding {
                code: "T0101",
                severity: Severity::Error,
                place: At { file: "endpoints.yml".into(), line: 0, column: 0, width: 1 },
                message: format!("the tool server `{name}` does not answer: {}", health.reason()?),
                help: "Start it, or correct its entry under `mcp_servers`.".to_owned(),
            })
        });
        let mut down: Vec<Finding> = down.collect();
        down.extend(served(assistant).await);
        down.extend(agents(assistant));
        assistant.close(limits::SOURCE_CLOSE_TIMEOUT).await;
        Ok(down)
    })
}

fn show(findings: &[Finding], texts: &Sources, format: Format) -> std::io::Result<()> {
    match format {
        Format::Text => output::print(&findings_report::all(findings, texts)),
        Format::Json => output::println(&findings_report::json(findings).to_string()),
    }
}

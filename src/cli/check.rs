//! `segue check`: reports all findings of a project at once.

use std::path::Path;

use clap::ValueEnum;
use segue::{
    actions, environment, limits,
    project::{Finding, Severity, SourceLocation, Sources, did_you_mean, findings_report, named_files},
    prompts::PromptSet,
    runtime::{Assistant, AssistantBuilder, LoadError},
};

use super::{
    CommandResult, EXIT_FINDINGS, block_on_until_signal,
    check_tools::check_tools,
    output,
    project_args::{MODEL_OR_PROMPT_ERROR, ProjectArgs, describe_import, describe_replacement},
};

/// The output format of a command.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Text for people
    Text,
    /// One JSON object
    Json,
}

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) project: ProjectArgs,
    /// The output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Also fail on warnings
    #[arg(long)]
    pub(super) strict: bool,
    /// Also contact MCP servers, remote agents and the action server
    #[arg(long)]
    online: bool,
}

/// Loads and analyses the project, and opens its models and prompts. Without `--online` this uses no network.
pub(super) fn check(args: &Args) -> CommandResult {
    let loaded = args.project.check()?;
    let mut findings = loaded.findings;
    findings.extend(unused_templates(&loaded.sources));
    if let Some(project) = loaded.project {
        findings.extend(args.project.replacement_of_foreign_store(&project).map(|(foreign, own)| Finding {
            code: "S0106",
            severity: Severity::Note,
            place: SourceLocation { file: "endpoints.yml".into(), line: 0, column: 0, width: 1 },
            message: describe_replacement(&foreign, &own),
            help: format!("{}.", describe_import(&foreign)),
        }));
        let builder = AssistantBuilder::new(project.into(), args.project.folder.clone());
        findings.extend(builder.unregistered_hooks());
        match builder.build() {
            Ok(assistant) if args.online => findings.extend(check_services(&assistant, &loaded.sources)?),
            Ok(assistant) => findings.extend(check_action_module(&assistant, &args.project.folder)?),
            Err(error) => findings.push(model_finding(&error)),
        }
    }
    show(&findings, &loaded.sources, args.format)?;
    let fails = |finding: &&Finding| {
        finding.severity == Severity::Error || (args.strict && finding.severity == Severity::Warning)
    };
    Ok(if findings.iter().any(|finding| fails(&finding)) { EXIT_FINDINGS } else { 0 })
}

/// The finding for a model or prompt that cannot be opened. For a model it is a warning, except for its script: an API key that is
/// missing here may be set where the project runs.
fn model_finding(error: &LoadError) -> Finding {
    const ELSEWHERE: &str = "The project would not start in the current environment.";
    let (severity, file, help) = match error {
        LoadError::Model { problem, .. } if matches!(problem.key, "script" | "cassette") => {
            (Severity::Error, "endpoints.yml", "Correct the file; the project does not start without it.")
        }
        LoadError::Model { .. } => (Severity::Warning, "endpoints.yml", ELSEWHERE),
        _ => (Severity::Error, "prompts", ELSEWHERE),
    };
    Finding {
        code: MODEL_OR_PROMPT_ERROR,
        severity,
        place: SourceLocation { file: file.into(), line: 0, column: 0, width: 1 },
        message: error.to_string(),
        help: help.to_owned(),
    }
}

/// Templates in `prompts/` that replace no built-in prompt and that no configuration names.
fn unused_templates(sources: &Sources) -> Vec<Finding> {
    let single = [&sources.config, &sources.endpoints, &sources.credentials];
    let named: Vec<String> = single.into_iter().flatten().chain(&sources.agents).flat_map(named_files).collect();
    let is_used =
        |path: &str, name: &str| PromptSet::FILES.contains(&name) || named.iter().any(|one| one.ends_with(path));
    let is_template = |name: &str| [".j2", ".jinja", ".jinja2"].iter().any(|ending| name.ends_with(ending));
    let templates = sources.texts.keys().filter_map(|path| Some((path, path.strip_prefix("prompts/")?)));
    let unused = templates.filter(|(path, name)| is_template(name) && !is_used(path, name));
    unused
        .map(|(path, name)| Finding {
            code: "F0119",
            severity: Severity::Warning,
            place: SourceLocation { file: path.as_str().into(), line: 0, column: 0, width: 1 },
            message: "nothing uses this template".to_owned(),
            help: match did_you_mean(name, PromptSet::FILES.iter().copied()) {
                Some(meant) => format!("Did you mean `{meant}`?"),
                None => {
                    "Name it in `prompt_template` or `prompt`, or give it the name of a built-in prompt.".to_owned()
                }
            },
        })
        .collect()
}

/// Checks without network access whether Segue can serve the Python module of custom actions, if the project has one.
fn check_action_module(assistant: &Assistant, root: &Path) -> anyhow::Result<Option<Finding>> {
    let project = assistant.project();
    let Some(def) = project.endpoints.action_endpoint.as_ref().filter(|def| def.url.is_none()) else {
        return Ok(None);
    };
    let dependencies = actions::ActionEnvironment {
        clock: assistant.clock().clone(),
        http: assistant.outbound().clone(),
        directory: root.to_path_buf(),
        environment: environment::all().into(),
    };
    let problem = block_on_until_signal(async { Ok(actions::check_python(def, &dependencies).await) })?;
    let default_place = SourceLocation { file: "endpoints.yml".into(), line: 0, column: 0, width: 1 };
    Ok(problem.map(|problem| Finding {
        code: "T0603",
        severity: Severity::Warning,
        place: def.place.clone().unwrap_or(default_place),
        message: format!("the action module cannot be served: {problem}"),
        help: "The custom actions of this project would fail on this machine.".to_owned(),
    }))
}

/// One error for each action of the domain that the action server does not have, or one error if it does not answer.
async fn check_action_server(assistant: &Assistant) -> Vec<Finding> {
    let Some(served) = assistant.list_server_actions().await else { return Vec::new() };
    let project = assistant.project();
    let place = project.endpoints.action_endpoint.as_ref().and_then(|def| def.place.clone());
    let place = place.unwrap_or(SourceLocation { file: "endpoints.yml".into(), line: 0, column: 0, width: 1 });
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
                listed.filter(|name| project.response(name).is_none() && !names.iter().any(|served| served == name));
            let help = "Add it to the action server, correct its name, or remove it from `actions` of the domain.";
            missing.map(|name| finding("T0602", format!("the action server has no action `{name}`"), help)).collect()
        }
    }
}

/// One error for each remote agent whose card cannot be fetched.
fn check_remote_agents(assistant: &Assistant) -> Vec<Finding> {
    let failed =
        assistant.remote_agent_status().into_iter().filter_map(|(name, health)| Some((name, health.reason()?)));
    failed
        .map(|(name, reason)| Finding {
            code: "A0511",
            severity: Severity::Error,
            place: assistant.project().agent(&name).map_or_else(
                || SourceLocation { file: "sub_agents".into(), line: 0, column: 0, width: 1 },
                |agent| agent.place.clone(),
            ),
            message: format!("the remote agent `{name}` does not answer: {reason}"),
            help: "Start it, or correct `agent_card` and `auth` of its configuration.".to_owned(),
        })
        .collect()
}

/// Connects to the MCP servers, remote agents and the action server. One error for each that does not answer, and for each tool that
/// differs from the project.
fn check_services(assistant: &Assistant, sources: &Sources) -> anyhow::Result<Vec<Finding>> {
    block_on_until_signal(async {
        assistant.connect().await;
        let servers = assistant.tool_source_status().into_iter().filter_map(|(name, health)| {
            Some(Finding {
                code: "T0101",
                severity: Severity::Error,
                place: assistant
                    .project()
                    .endpoints
                    .mcp_servers
                    .values()
                    .find(|def| *def.name.as_str() == *name)
                    .map_or_else(
                        || SourceLocation { file: "endpoints.yml".into(), line: 0, column: 0, width: 1 },
                        |def| def.place.clone(),
                    ),
                message: format!("the MCP server `{name}` does not answer: {}", health.reason()?),
                help: "Start it, or correct its entry under `mcp_servers`.".to_owned(),
            })
        });
        let mut findings: Vec<Finding> = servers.collect();
        findings.extend(check_tools(&assistant.project(), sources, &assistant.list_tools().await));
        findings.extend(check_action_server(assistant).await);
        findings.extend(check_remote_agents(assistant));
        assistant.close(limits::SOURCE_CLOSE_TIMEOUT).await;
        Ok(findings)
    })
}

fn show(findings: &[Finding], texts: &Sources, format: Format) -> std::io::Result<()> {
    match format {
        Format::Text => output::print(&findings_report::all(findings, texts)),
        Format::Json => output::println(&findings_report::json(findings).to_string()),
    }
}

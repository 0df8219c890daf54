//! `segue check`: everything that is wrong with a project, at once.

use clap::ValueEnum;
use segue::{
    limits,
    project::{Finding, Place as At, Severity, Texts, render},
    runtime::{Assistant, AssistantBuilder, LoadError},
    tools::SourceStatus,
};

use super::{
    Done, FINDINGS, out,
    place::{CANNOT_OPEN, Place},
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
    pub(super) place: Place,
    /// How findings are shown
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Also fail on warnings
    #[arg(long)]
    pub(super) strict: bool,
    /// Also ask the tool servers
    #[arg(long)]
    online: bool,
}

/// Loads the project, then opens what it would run with, as far as that needs no network.
pub(super) fn check(args: &Args) -> Done {
    let loaded = args.place.read()?;
    let mut findings = loaded.findings;
    if let Some(project) = loaded.project {
        match AssistantBuilder::new(project.into(), args.place.project.clone()).build() {
            Ok(assistant) if args.online => findings.extend(online(&assistant)?),
            Ok(_) => {}
            Err(error) => findings.push(unopened(&error)),
        }
    }
    show(&findings, &loaded.texts, args.format)?;
    let fails = |finding: &&Finding| {
        finding.severity == Severity::Error || (args.strict && finding.severity == Severity::Warning)
    };
    Ok(if findings.iter().any(|finding| fails(&finding)) { FINDINGS } else { 0 })
}

/// A model that has no key here may have one where the project will run, so that is a warning.
fn unopened(error: &LoadError) -> Finding {
    let (severity, file) = match error {
        LoadError::Model { .. } => (Severity::Warning, "endpoints.yml"),
        _ => (Severity::Error, "prompts"),
    };
    Finding {
        code: CANNOT_OPEN,
        severity,
        place: At { file: file.into(), line: 0, column: 0, width: 1 },
        message: error.to_string(),
        help: "Here and now the project would not start like this.".to_owned(),
    }
}

/// One error for each tool server that does not answer.
fn online(assistant: &Assistant) -> anyhow::Result<Vec<Finding>> {
    wait(async {
        assistant.connect().await;
        let down = assistant.sources().into_iter().filter_map(|(name, status)| match status {
            SourceStatus::Down { reason } => Some(Finding {
                code: "T0101",
                severity: Severity::Error,
                place: At { file: "endpoints.yml".into(), line: 0, column: 0, width: 1 },
                message: format!("the tool server `{name}` does not answer: {reason}"),
                help: "Start it, or mend its entry under `mcp_servers`.".to_owned(),
            }),
            SourceStatus::Up | SourceStatus::Unknown => None,
        });
        let down = down.collect();
        assistant.close(limits::CLOSE).await;
        Ok(down)
    })
}

fn show(findings: &[Finding], texts: &Texts, format: Format) -> std::io::Result<()> {
    match format {
        Format::Text => out::raw(&render::all(findings, texts)),
        Format::Json => out::line(&render::json(findings).to_string()),
    }
}

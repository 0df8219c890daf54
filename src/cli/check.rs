//! `segue check`: everything that is wrong with a project, at once.

use clap::ValueEnum;
use segue::{
    project::{Finding, Place as At, Severity, Texts, render},
    runtime::{AssistantBuilder, LoadError},
};

use super::{
    Done, FINDINGS, out,
    place::{CANNOT_OPEN, Place},
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
    place: Place,
    /// How findings are shown
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Also fail on warnings
    #[arg(long)]
    strict: bool,
}

/// Loads the project, then opens what it would run with, as far as that needs no network.
pub(super) fn check(args: &Args) -> Done {
    let loaded = args.place.read()?;
    let mut findings = loaded.findings;
    if let Some(project) = loaded.project {
        let builder = AssistantBuilder::new(project.into(), args.place.project.clone());
        if let Err(error) = builder.build() {
            findings.push(unopened(&error));
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

fn show(findings: &[Finding], texts: &Texts, format: Format) -> std::io::Result<()> {
    match format {
        Format::Text => out::raw(&render::all(findings, texts)),
        Format::Json => out::line(&render::json(findings).to_string()),
    }
}

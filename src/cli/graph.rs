//! `segue graph`: draws flows as Mermaid or DOT.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::ValueEnum;
use segue::project::diagram::{Diagram, DiagramFormat};

use super::{CommandResult, EXIT_FINDINGS, EXIT_USAGE, output, project_args::ProjectArgs};

/// The output format.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For Markdown pages
    Mermaid,
    /// For Graphviz, which draws images: `dot -Tsvg`
    Dot,
}

#[derive(clap::Args)]
pub(super) struct Args {
    /// The flow to draw; without one, a map of all flows. If it is a folder, it is the project
    flow: Option<String>,
    #[command(flatten)]
    project: ProjectArgs,
    /// The output format
    #[arg(long, value_enum, default_value = "mermaid")]
    format: Format,
    /// Draw the steps of every flow
    #[arg(long)]
    all: bool,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn graph(mut args: Args) -> CommandResult {
    // `segue graph my-project` selects the project, as in other commands.
    let is_default = args.project.folder.as_os_str() == ".";
    if let Some(folder) = args.flow.as_ref().map(PathBuf::from).filter(|path| is_default && path.is_dir()) {
        args.project.folder = folder;
        args.flow = None;
    }
    if args.all && args.flow.is_some() {
        output::status("`--all` draws every flow; omit the name of the flow");
        return Ok(EXIT_USAGE);
    }
    let Some(opened) = args.project.open()? else { return Ok(EXIT_FINDINGS) };
    let project = &*opened.project;
    let drawing = match &args.flow {
        Some(id) => Diagram::of_flow(project, &id.as_str().into()),
        None if args.all => Some(Diagram::of_all(project)),
        None => Some(Diagram::map(project)),
    };
    let Some(drawing) = drawing else {
        let id = args.flow.unwrap_or_default();
        let ids = || project.flows.keys().map(|id| id.as_str());
        let suggestion = segue::project::did_you_mean(&id, ids())
            .map_or_else(String::new, |similar| format!("; did you mean `{similar}`?"));
        output::status(&format!("there is no flow `{id}`{suggestion}"));
        return Ok(EXIT_USAGE);
    };
    let text = drawing.write(match args.format {
        Format::Mermaid => DiagramFormat::Mermaid,
        Format::Dot => DiagramFormat::Dot,
    });
    match &args.output {
        Some(path) => std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?,
        None => output::print(&text)?,
    }
    Ok(0)
}

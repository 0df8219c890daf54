//! `segue graph`: flows as pictures.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::ValueEnum;
use segue::project::diagram::{Diagram, DiagramFormat};

use super::{CommandResult, EXIT_FINDINGS, EXIT_USAGE, output, project_args::ProjectArgs};

/// How the picture is written.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For Markdown pages
    Mermaid,
    /// For Graphviz, which makes images of it: `dot -Tsvg`
    Dot,
}

#[derive(clap::Args)]
pub(super) struct Args {
    /// The flow to draw; without one, a map of all flows. A folder here is the project
    flow: Option<String>,
    #[command(flatten)]
    place: ProjectArgs,
    /// How the picture is written
    #[arg(long, value_enum, default_value = "mermaid")]
    format: Format,
    /// Draw the steps of every flow
    #[arg(long)]
    all: bool,
    /// Where it is written, in place of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn graph(mut args: Args) -> CommandResult {
    // `segue graph my-project` means the folder, as with every other command.
    let usual = args.place.project.as_os_str() == ".";
    if let Some(folder) = args.flow.as_ref().map(PathBuf::from).filter(|path| usual && path.is_dir()) {
        args.place.project = folder;
        args.flow = None;
    }
    if args.all && args.flow.is_some() {
        output::status("`--all` draws every flow; leave the name of the flow out");
        return Ok(EXIT_USAGE);
    }
    let Some(opened) = args.place.open()? else { return Ok(EXIT_FINDINGS) };
    let project = &*opened.project;
    let drawing = match &args.flow {
        Some(id) => Diagram::of_flow(project, &id.as_str().into()),
        None if args.all => Some(Diagram::of_all(project)),
        None => Some(Diagram::map(project)),
    };
    let Some(drawing) = drawing else {
        let written = args.flow.unwrap_or_default();
        let ids = || project.flows.keys().map(|id| id.as_str());
        let near = segue::project::did_you_mean(&written, ids());
        let cure = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        output::status(&format!("there is no flow `{written}`{cure}"));
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

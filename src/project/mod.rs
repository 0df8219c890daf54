//! Projects on disk.
//!
//! Entry: [`load`], which reads a folder and gives the project, every finding about it, and the texts that findings point
//! into. This room reads files and hands their texts to [`segue_engine::project`]; it never judges what stands in them.
//! No file outside the project's folder is read, whatever links lead out of it, unless the operator names it in [`Places`].

mod builtin;
mod documents;
mod files;
mod given;

use std::{io, path::Path};

pub use segue_engine::{
    finding::{Finding, Severity, SourceLocation, did_you_mean},
    project::*,
};

pub use self::files::Places;
pub(crate) use self::files::bounded as read_bounded;

/// All texts that were read; [`findings_report`] shows lines of them.
pub type Texts = Sources;

/// A project that was read from disk.
#[derive(Debug)]
pub struct LoadedProject {
    /// The project; absent when a finding is an error.
    pub project: Option<Project>,
    /// Everything that was found, by file and line.
    pub findings: Vec<Finding>,
    /// What was read.
    pub texts: Texts,
}

/// Reads the project in `root`, with everything that single lines and names show to be wrong.
///
/// # Errors
/// The folder itself cannot be read. A file that cannot be read is a finding with the code `F0101`.
pub fn load(root: &Path, places: &Places) -> io::Result<LoadedProject> {
    read(root, places, Project::load)
}

/// The same, and looks at how flows run and what their conditions can come to: everything that `segue check` shows.
///
/// # Errors
/// As [`load`].
pub fn check(root: &Path, places: &Places) -> io::Result<LoadedProject> {
    read(root, places, Project::load_and_analyse)
}

fn read(root: &Path, places: &Places, load: fn(&Texts) -> LoadResult) -> io::Result<LoadedProject> {
    let (texts, mut findings) = files::read(root, places)?;
    let loaded = load(&texts);
    let readable = !findings.iter().any(|finding| finding.severity == Severity::Error);
    findings.extend(loaded.findings.into_iter().filter(concerns_us));
    let mut project = loaded.project.filter(|_| readable);
    let documents = project.as_ref().map(|project| documents::check(root, project)).unwrap_or_default();
    if documents.iter().any(|finding| finding.severity == Severity::Error) {
        project = None;
    }
    findings.extend(documents);
    Ok(LoadedProject { project, findings, texts })
}

/// Checks a project whose files are handed in, as (path from the project's folder, text). The environment is not read.
pub fn from_texts<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> LoadedProject {
    let texts = given::sources(files);
    let loaded = Project::load(&texts);
    let findings = loaded.findings.into_iter().filter(concerns_us).collect();
    LoadedProject { project: loaded.project, findings, texts }
}

/// The engine does not know what this program was built with, and finds what the smallest build lacks.
fn concerns_us(finding: &Finding) -> bool {
    cfg!(not(feature = "grpc")) || finding.code != "F0622"
}

#[cfg(test)]
mod tests;

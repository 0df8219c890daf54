//! Projects on disk.
//!
//! Entry: [`load`] reads a project folder and returns the project, all findings about it, and the files that were read. This module
//! reads files and passes their texts to [`segue_engine::project`]; it does not judge their contents. A file outside the project
//! folder is read only if [`LoadOptions`] name it, even if a symbolic link in the folder leads to it.

mod builtin;
mod documents;
mod files;
mod in_memory;

use std::{io, path::Path};

pub use segue_engine::{
    finding::{Finding, Severity, SourceLocation, did_you_mean},
    project::*,
};

pub use self::files::LoadOptions;
pub(crate) use self::files::read_limited;

/// The result of loading a project.
#[derive(Debug)]
pub struct LoadedProject {
    /// The project; `None` when a finding is an error.
    pub project: Option<Project>,
    /// All findings.
    pub findings: Vec<Finding>,
    /// The files that were read; [`findings_report`] quotes lines of them.
    pub sources: Sources,
}

/// Loads the project in the folder `root`, without analysing its flows.
///
/// # Errors
/// The folder itself cannot be read. A file that cannot be read is a finding with the code `F0101`.
pub fn load(root: &Path, options: &LoadOptions) -> io::Result<LoadedProject> {
    read(root, options, Project::load)
}

/// Loads the project as [`load`], and analyses how its flows run and which values their conditions can have: all findings of `segue
/// check`.
///
/// # Errors
/// As [`load`].
pub fn check(root: &Path, options: &LoadOptions) -> io::Result<LoadedProject> {
    read(root, options, Project::load_and_analyse)
}

fn read(root: &Path, options: &LoadOptions, load: fn(&Sources) -> LoadResult) -> io::Result<LoadedProject> {
    let (sources, mut findings) = files::read(root, options)?;
    let is_readable = !findings.iter().any(|finding| finding.severity == Severity::Error);
    let loaded = load(&sources);
    findings.extend(loaded.findings.into_iter().filter(applies_to_this_build));
    let mut project = loaded.project.filter(|_| is_readable);
    let document_findings = project.as_ref().map(|project| documents::check(root, project)).unwrap_or_default();
    if document_findings.iter().any(|finding| finding.severity == Severity::Error) {
        project = None;
    }
    findings.extend(document_findings);
    Ok(LoadedProject { project, findings, sources })
}

/// Loads a project whose files are given as (path in the project folder, text). No environment variable is read, so `${NAME}` has no
/// value.
pub fn from_texts<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> LoadedProject {
    let sources = in_memory::sources(files);
    let loaded = Project::load(&sources);
    let findings = loaded.findings.into_iter().filter(applies_to_this_build).collect();
    LoadedProject { project: loaded.project, findings, sources }
}

/// The engine does not know the features of this build, and reports what needs the feature `grpc` (F0622). With the feature, this
/// finding does not apply.
fn applies_to_this_build(finding: &Finding) -> bool {
    cfg!(not(feature = "grpc")) || finding.code != "F0622"
}

#[cfg(test)]
mod tests;

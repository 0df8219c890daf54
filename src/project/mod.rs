//! Projects on disk.
//!
//! Entry: [`open`], which reads a folder and gives the project, every finding about it, and the texts that findings point
//! into. This room reads files and hands their texts to [`segue_engine::project`]; it never judges what stands in them.
//! No file outside the project's folder is read, whatever links lead out of it, unless the operator names it in [`Places`].

mod builtin;
mod files;

use std::path::Path;

pub use segue_engine::{
    finding::{Finding, Place, Severity},
    project::{Folders, Loaded, Project, Sources, render},
};

pub use self::files::Places;

/// A project that was read from disk.
#[derive(Debug)]
pub struct Opened {
    /// The project; absent when a finding is an error.
    pub project: Option<Project>,
    /// Everything that was found, by file and line.
    pub findings: Vec<Finding>,
    /// All texts that were read; [`render`] shows lines of them.
    pub sources: Sources,
}

/// Reads and checks the project in `root`.
///
/// Never fails: what cannot be read is a finding with the code `F0101`.
pub fn open(root: &Path, places: &Places) -> Opened {
    let (sources, mut findings) = files::read(root, places);
    let loaded = Project::load(&sources);
    let readable = !findings.iter().any(|finding| finding.severity == Severity::Error);
    findings.extend(loaded.findings);
    Opened { project: loaded.project.filter(|_| readable), findings, sources }
}
